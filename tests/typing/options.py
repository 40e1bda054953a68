"""Checked by mypy and pyright, run by nobody: options are typed, and one that is mistyped, of another role or another protocol is an error.

A line with an ignore is one that must be an error, for both: each says so when it is none (warn_unused_ignores,
reportUnnecessaryTypeIgnoreComment).
"""

from __future__ import annotations

from typing import Any

import wireproto
import wireproto.aio.kafka
import wireproto.aio.pulsar
import wireproto.aio.rocketmq
import wireproto.aio.zookeeper
import wireproto.kafka
import wireproto.pulsar
import wireproto.rocketmq
import wireproto.zookeeper
from wireproto import Client
from wireproto.aio import Client as AsyncClient
from wireproto.kafka.client import KafkaClient
from wireproto.pulsar.client import PulsarClient
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.half import CheckedMessage, Verdict
from wireproto.zookeeper.client import ZooKeeperClient
from wireproto.zookeeper.messages import Stat


def connecting(more: dict[str, Any]) -> None:
    wireproto.connect("kafka://h", timeout=5, linger=0.01, password=lambda: "secret", address_map={"a:1": "b:2"})
    wireproto.connect("kafka://h", **more)
    wireproto.connect("kafka://h", linge=0.01)  # type: ignore[call-arg]
    wireproto.connect("kafka://h", linger="soon")  # type: ignore[arg-type]
    wireproto.connect("kafka://h", user=b"x")  # type: ignore[arg-type]


def connecting_to_one_protocol() -> None:
    with wireproto.kafka.connect("kafka://h", session_timeout=6) as of_kafka:
        of_kafka.admin().describe_transactions(["t"])
        of_kafka.consumer("t", "g").rewind()
    with wireproto.pulsar.connect("pulsar://h", receive_memory=1 << 20) as of_pulsar:
        of_pulsar.hold("g")
    with wireproto.rocketmq.connect("rocketmq://h", header="binary") as of_rocketmq:
        of_rocketmq.transactional("g", lambda message: None)
    with wireproto.zookeeper.connect("zookeeper://h") as of_zookeeper:
        of_zookeeper.tree().watch()
    wireproto.kafka.connect("kafka://h", header="binary")  # type: ignore[call-arg]
    wireproto.pulsar.connect("pulsar://h", acks=1)  # type: ignore[call-arg]
    wireproto.rocketmq.connect("rocketmq://h", idempotence=True)  # type: ignore[call-arg]
    wireproto.zookeeper.connect("zookeeper://h", group="g")  # type: ignore[call-arg]
    wireproto.connect("kafka://h").consumer("t", "g").rewind()  # type: ignore[attr-defined]


async def check(message: CheckedMessage) -> Verdict | None:
    return "commit" if message.key else None


async def wrong_check(message: CheckedMessage) -> int:
    return len(message.value or b"")


async def awaiting_one_protocol() -> None:
    async with wireproto.aio.kafka.connect("kafka://h", session_timeout=6) as of_kafka:
        client: AsyncClient = of_kafka
        await client.admin().list_topics()
        sizes: dict[tuple[str, int], int] = await of_kafka.admin().sizes(["t"])
        of_kafka.producer("t", acks=-1, partitioner=lambda key, count: sizes["t", 0])
        await of_kafka.consumer("t", "g", on_assigned=print).rewind()
        async with of_kafka.transactions("name", transaction_timeout=5.0).begin() as turn:
            await turn.send(b"v", topic="t")
        of_kafka.producer("t", hashing="java")  # type: ignore[call-arg]
        of_kafka.reader("t", session_timeout=6)  # type: ignore[call-arg]
        of_kafka.consumer("t", "g", on_assigned=5)  # type: ignore[arg-type]
        await of_kafka.admin().brokers()  # type: ignore[attr-defined]
    async with wireproto.aio.pulsar.connect("pulsar://h", receive_memory=1 << 20) as of_pulsar:
        await of_pulsar.queue("t", "g", mode="key-shared").receive(1.0)
        await of_pulsar.admin().ledgers("t")
        of_pulsar.producer("t", acks="all")  # type: ignore[call-arg]
        of_pulsar.consumer("t", "g", mode="exclusiv")  # type: ignore[arg-type]
    async with wireproto.aio.rocketmq.connect("rocketmq://h", header="binary") as of_rocketmq:
        of_rocketmq.transactional("g", check, check_after=60)
        of_rocketmq.transactional("g", lambda message: None)
        of_rocketmq.transactional("g", wrong_check)  # type: ignore[arg-type]
        of_rocketmq.transactional("g", check, linger=0.5)  # type: ignore[call-arg]
        of_rocketmq.reader("t", max_unacked=2)  # type: ignore[call-arg]
        names: dict[str, str | None] = await of_rocketmq.admin().brokers()
        print(names)
    async with wireproto.aio.zookeeper.connect("zookeeper://h") as of_zookeeper:
        data, stat = await of_zookeeper.tree().get("/a", watch=of_zookeeper.tree().watch())
        told: tuple[bytes | None, Stat] = data, stat
        await of_zookeeper.tree().set("/a", told[0], version=stat.version)
        await of_zookeeper.tree().set("/a", 5)  # type: ignore[arg-type]
        await of_zookeeper.tree().set("/a", b"", versio=5)  # type: ignore[call-arg]
        of_zookeeper.queue("t", priority="high")  # type: ignore[call-arg]
    wireproto.aio.kafka.connect("kafka://h", header="binary")  # type: ignore[call-arg]
    wireproto.aio.pulsar.connect("pulsar://h", acks=1)  # type: ignore[call-arg]
    wireproto.aio.rocketmq.connect("rocketmq://h", idempotence=True)  # type: ignore[call-arg]
    wireproto.aio.zookeeper.connect("zookeeper://h", group="g")  # type: ignore[call-arg]


def any_client(client: Client, more: dict[str, Any]) -> None:
    client.producer("t", acks=1, linger=0.1, compression="zstd")
    client.reader("t", columns=("value",), on_corrupt="skip")
    client.consumer("t", "g", auto_commit=True, auto_commit_interval=1.0)
    client.queue("t", "g", max_unacked=5, **more)
    client.producer("t", linge=1)  # type: ignore[call-arg]
    client.producer("t", linger="1s")  # type: ignore[arg-type]
    client.producer("t", compression="zst")  # type: ignore[arg-type]
    client.reader("t", linger=9)  # type: ignore[call-arg]
    client.consumer("t", "g", auto_comit=True)  # type: ignore[call-arg]
    client.consumer("t", "g", auto_commit=0.5)  # type: ignore[arg-type]
    client.queue("t", "g", start=wireproto.LATEST)  # type: ignore[call-arg]


def kafka(client: KafkaClient) -> None:
    client.producer("t", acks=-1, partitioner=lambda key, count: 0).send(b"v")
    client.producer(linger=0.5).send(b"v", topic="t")
    client.consumer("t", "g", on_assigned=print, session_timeout=6)
    client.producer("t", hashing="java")  # type: ignore[call-overload]
    client.producer("t", acks=2)  # type: ignore[call-overload]
    client.producer("t", user="nobody")  # type: ignore[call-overload]
    client.reader("t", on_bad="skip")  # type: ignore[call-arg]
    client.reader("t", session_timeout=6)  # type: ignore[call-arg]
    client.consumer("t", "g", on_assigned=5)  # type: ignore[arg-type]


def pulsar(client: PulsarClient) -> None:
    client.queue("t", "g", mode="key-shared", receive_memory=1 << 20)
    client.producer("t", acks="all")  # type: ignore[call-overload]
    client.queue("t", "g", auto_commit=True)  # type: ignore[call-arg]
    client.consumer("t", "g", mode="exclusiv")  # type: ignore[arg-type]


def rocketmq(client: RocketClient) -> None:
    client.producer("t", max_in_flight=2, compression="zlib")
    client.producer(topic="t").send(b"v")
    client.producer(linger=0.5).send(b"v", topic="t")
    client.producer("t", in_flight=2)  # type: ignore[call-overload]
    client.producer("t", compression="gzip")  # type: ignore[call-overload]
    client.reader("t", max_unacked=2)  # type: ignore[call-arg]
    client.transactional("g", lambda message: "commit" if message.key else None, check_after=60)
    client.transactional("g", lambda message: True)  # type: ignore[arg-type, return-value]
    client.transactional("g", print, linger=0.5)  # type: ignore[call-arg]


def zookeeper(client: ZooKeeperClient) -> None:
    client.producer("t", priority=5, repeat=False)
    client.queue("t", acl="creator")
    client.producer("t", linger=1)  # type: ignore[call-arg]
    client.reader("t", acl="creator")  # type: ignore[call-arg]
    client.queue("t", priority="high")  # type: ignore[call-arg]
