"""Real brokers from Maven Central, started for tests, for the demo and by hand.

    from brokers import Kafka, Pulsar, RocketMQ, ZooKeeper       # with tests/ on the path
    with Kafka("4.3.1", sasl=True) as kafka:
        kafka.url, kafka.urls["sasl"], kafka.bootstrap
        kafka.kill(); kafka.start()                              # the data is kept
    python -m brokers start kafka --version 4.3.1                # prints a line of JSON, stays in the foreground

Standard library only. Needs a JDK 17+, and Maven once. README.md beside this file has every option.
"""

from __future__ import annotations

from .base import Broker
from .errors import BootFailed, Unavailable
from .kafka import Kafka
from .pulsar import Pulsar
from .rocketmq import RocketMQ
from .zookeeper import ZooKeeper

__all__ = ["BootFailed", "Broker", "Kafka", "Pulsar", "RocketMQ", "Unavailable", "ZooKeeper"]
