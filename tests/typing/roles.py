"""Checked by mypy, run by nobody: the four clients, and what they make, are the roles that `wireproto` promises.

A line with `type: ignore` is one that must be an error: mypy says so when it is none (warn_unused_ignores).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import wireproto
import wireproto.aio
from wireproto import (
    EARLIEST,
    LATEST,
    Admin,
    Batch,
    Client,
    Consumer,
    Delivery,
    Producer,
    QueueConsumer,
    Reader,
    Receipt,
    Record,
    Transaction,
    Transactions,
    Tree,
)
from wireproto.kafka.admin import KafkaAdmin
from wireproto.kafka.client import KafkaClient
from wireproto.kafka.consumer import KafkaConsumer
from wireproto.kafka.producer import KafkaProducer
from wireproto.kafka.reader import KafkaReader
from wireproto.kafka.transactions import KafkaTransactions
from wireproto.pulsar.admin import PulsarAdmin
from wireproto.pulsar.client import PulsarClient
from wireproto.pulsar.consumer import PulsarConsumer
from wireproto.pulsar.producer import PulsarProducer
from wireproto.pulsar.queue import PulsarQueue
from wireproto.pulsar.reader import PulsarReader
from wireproto.rocketmq.admin import RocketAdmin
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.consumer import RocketConsumer
from wireproto.rocketmq.half import CheckedMessage, Verdict
from wireproto.rocketmq.producer import RocketProducer
from wireproto.rocketmq.queue import RocketQueueConsumer
from wireproto.rocketmq.reader import RocketReader
from wireproto.roles import Closing
from wireproto.zookeeper.admin import QueueAdmin
from wireproto.zookeeper.client import ZooKeeperClient
from wireproto.zookeeper.producer import QueueProducer
from wireproto.zookeeper.queue import QueueWorker
from wireproto.zookeeper.reader import QueueReader
from wireproto.zookeeper.tree import Tree as ZooKeeperTree


class Made(Closing, Protocol):
    """A Client, but for the keywords of the makers: each adapter takes its own, and `Client` those of all."""

    @property
    def protocol(self) -> str: ...
    @property
    def producer(self) -> Callable[..., Producer]: ...
    @property
    def reader(self) -> Callable[..., Reader]: ...
    @property
    def consumer(self) -> Callable[..., Consumer]: ...
    @property
    def queue(self) -> Callable[..., QueueConsumer]: ...
    def admin(self) -> Admin: ...
    def tree(self) -> Tree: ...
    def request(self, message: Any, *, timeout: float = 30.0, **route: Any) -> Any: ...


def clients(a: KafkaClient, b: PulsarClient, c: RocketClient, d: ZooKeeperClient, e: Client) -> list[Made]:
    return [a, b, c, d, e]


def made(a: KafkaClient, b: PulsarClient, c: RocketClient, d: ZooKeeperClient) -> list[object]:
    """What `Client` says of the makers but for the options: each of these calls is one of its own."""
    made_producers: list[Producer] = [a.producer("t"), b.producer("t"), c.producer("t"), d.producer("t")]
    made_readers: list[Reader] = [
        a.reader("t", start=EARLIEST, stop=LATEST),
        b.reader("t", start=EARLIEST, stop=LATEST),
        c.reader("t", start=EARLIEST, stop=LATEST),
        d.reader("t", start=EARLIEST, stop=LATEST),
    ]
    made_consumers: list[Consumer] = [
        a.consumer(["t"], "g", start=LATEST),
        b.consumer(["t"], "g", start=LATEST),
        c.consumer(["t"], "g", start=LATEST),
    ]
    made_queues: list[QueueConsumer] = [b.queue("t", "g"), c.queue("t", "g"), d.queue("t", "g")]
    return [made_producers, made_readers, made_consumers, made_queues]


def producers(a: KafkaProducer, b: PulsarProducer, c: RocketProducer, d: QueueProducer) -> list[Producer]:
    return [a, b, c, d]


def readers(a: KafkaReader, b: PulsarReader, c: RocketReader, d: QueueReader) -> list[Reader]:
    return [a, b, c, d]


def consumers(a: KafkaConsumer, b: PulsarConsumer, c: RocketConsumer) -> list[Consumer]:
    return [a, b, c]


def queues(a: PulsarQueue, b: RocketQueueConsumer, c: QueueWorker) -> list[QueueConsumer]:
    return [a, b, c]


def admins(a: KafkaAdmin, b: PulsarAdmin, c: RocketAdmin, d: QueueAdmin) -> list[Admin]:
    return [a, b, c, d]


def trees(a: ZooKeeperTree) -> list[Tree]:
    return [a]


def works(a: KafkaTransactions) -> list[Transactions]:
    return [a]


def in_transactions(client: Client, log: Consumer) -> None:
    with client.transactions("name", transaction_timeout=9.0, linger=0.1) as work, work.begin() as tx:
        receipt: Receipt = tx.send(b"v", topic="t", key=b"k")
        tx.commit_positions(log)
        one: Transaction = tx
        producer: Producer = tx.producer("t")
        tx.send(b"v")  # type: ignore[call-arg]  # to which topic?
    client.transactions("name", transaction_timeot=9.0)  # type: ignore[call-arg]
    producer.send(b"v")
    one.abort(timeout=1.0)
    receipt.position(timeout=1.0)


async def halves(client: wireproto.aio.Client, known: RocketClient) -> None:
    async def check(message: CheckedMessage) -> Verdict | None:
        return "commit" if message.key else None

    def plain(message: CheckedMessage) -> Verdict:
        return "abort"

    async with client.transactional("g", check=check, check_after=9) as work, work.send(b"v", topic="t", key=b"k") as half:
        await half.commit(timeout=1.0)
    one: wireproto.aio.HalfMessage = await work.send(b"v", topic="t")
    task: asyncio.Task[wireproto.aio.HalfMessage] = asyncio.create_task(work.send(b"v", topic="t"))
    all_of: wireproto.aio.Transactional = await client.transactional("g", plain)
    await one.abort()
    await all_of.close()
    (await task).made.commit()
    work.send(b"v")  # type: ignore[call-arg]  # to which topic?
    client.transactional("g")  # type: ignore[call-arg]  # who is asked?
    known.transactional("g", plain)
    known.transactional("g", check)  # type: ignore[arg-type]  # nobody awaits it


def what_they_hand_out(client: Client) -> None:
    receipt: Receipt = client.producer("t").send(b"v")
    batch: Batch | None = client.reader("t", stop=wireproto.LATEST).poll()
    delivery: Delivery | None = client.queue("t", "g").receive()
    for record in batch or ():
        found: Record = record
        found.value.decode()  # type: ignore[union-attr]  # a value may be absent
    receipt.position(timeout=1.0)
    client.producer("t").send("text")  # type: ignore[arg-type]  # bytes alone
    client.reader("t", start="earliest")  # type: ignore[arg-type]  # EARLIEST, not a word
    client.consumer("t", "g").commit(batch)  # type: ignore[arg-type]  # positions, not a batch
    if delivery is not None:
        delivery.ack()
