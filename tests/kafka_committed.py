"""What is to be seen of a topic's transactions, as a client that is not ours sees it: librdkafka's read_committed consumer."""

from __future__ import annotations

import time

import confluent_kafka

from brokers import Broker
from patience import LONG, soon

END_WAIT_MS = 100
"""How long a broker waits at a partition's end for more before it says so: out of the box 500 ms."""
_SETTINGS = {"group.id": "judge", "enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": END_WAIT_MS}


def seen(broker: Broker, topic: str, partitions: int = 2) -> list[bytes]:
    """All that librdkafka's read_committed consumer reads up to the end, partition by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": ",".join(broker.addresses), **_SETTINGS})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    ended: set[int] = set()
    deadline = soon(LONG)
    while len(ended) < partitions:
        assert deadline > soon(0.0)
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended.add(message.partition())
        else:
            found[message.partition()].append(message.value())
    consumer.close()
    return [value for number in range(partitions) for value in found[number]]


def settled(broker: Broker, topic: str, expected: list[bytes], *, ordered: bool = True, partitions: int = 2) -> None:
    """That this is what is to be seen, and nothing else was on the way: a commit is decided when its coordinator has answered, and seen a
    moment later, when the leaders have its markers."""
    deadline = soon()
    while (found := seen(broker, topic, partitions)) != expected:
        if not ordered and sorted(found) == expected:
            return
        assert set(found) <= set(expected), "what was rolled back, or is open"
        assert deadline > soon(0.0), f"{found} of {expected}"
        time.sleep(0.02)
