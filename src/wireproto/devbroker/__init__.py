"""Provides an embedded broker for development and tests: Kafka, Pulsar, RocketMQ and ZooKeeper in one process, over real TCP.

    with DevBroker() as broker:
        with wireproto.connect(broker.url("kafka")) as client: ...

Everything is kept in memory unless `data_dir` names a folder. It is for development: no replication, no security, no tuning; the
official clients of each protocol work with it unchanged, and it can inject faults (`broker.faults`).
"""

from __future__ import annotations

from .broker import DevBroker
from .faults import Fault, Faults
from .log import Entry, PartitionLog, Store

__all__ = ["DevBroker", "Entry", "Fault", "Faults", "PartitionLog", "Store"]
