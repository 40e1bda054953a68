"""Transactions on a real Kafka broker, beside librdkafka's: records of 100 B value and 16 B key, one partition, no linger, idempotent.

Each contender has its name at its coordinator before the clock runs. Wall time of single transactions is the median of the calls, as in
`latency`.

    one record a transaction       begin, send, commit: what a caller waits for
    1,000 records a transaction    the same; beside it what as many sends cost that are no transaction, each 1,000 behind a flush
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import wireproto
from patience import until
from wireproto import LATEST

from ..harness import Bench, Job, Sizes, Stretch
from .kafka import KEY, Place, one_node, values
from .latency import Calls
from .stored import expect, stored

MANY = 1000
SINGLE, TIMES = Sizes(1500, 0, 10), Sizes(100, 0, 2)  # no instructions are counted
PLAIN = "wireproto, no transaction"
_numbers = itertools.count()


def suite(bench: Bench) -> None:
    with one_node(bench) as broker:
        bench.brokers["transactions"] = f"Kafka {broker.version}, one node"
        tasks(bench, broker.url)


def tasks(bench: Bench, url: str) -> None:
    """All of them on the broker at that URL, on a topic of this process."""
    topic = f"bench-transactions-{os.getpid()}"
    with wireproto.connect(url) as client:
        client.admin().create_topic(topic, partitions=1)
        place = Place(client, url.partition("://")[2], topic)
        single(bench, place, values(bench.units(SINGLE)))
        many(bench, place, values(MANY * bench.units(TIMES)))


def single(bench: Bench, place: Place, rows: list[bytes]) -> None:
    jobs: dict[str, Job] = {"wireproto": lambda: ours_single(place, rows), "confluent-kafka": lambda: confluent_single(place, rows)}
    bench.compare("one record a transaction", len(rows), jobs, unit="transaction", by="wall", measures=())


def many(bench: Bench, place: Place, rows: list[bytes]) -> None:
    count = len(rows)
    jobs: dict[str, Job] = {
        "wireproto": stored(place.client, place.topic, count, lambda: shown(place, ours_many(place, rows))),
        "confluent-kafka": stored(place.client, place.topic, count, lambda: shown(place, confluent_many(place, rows))),
        PLAIN: stored(place.client, place.topic, count, lambda: ours_plain(place, rows)),
    }
    bench.compare("1,000 records a transaction", count, jobs, shown=(PLAIN,), measures=())


def shown(place: Place, stretch: Stretch) -> Stretch:
    """Wait until readers are let past the last transaction: its markers are written a moment behind the answer to its commit."""
    admin = place.client.admin()
    ends = admin.positions(place.topic, LATEST)
    until(lambda: all(at.offset >= ends[key].offset for key, at in admin.positions(place.topic, LATEST, committed=True).items()))
    return stretch


def thousands(rows: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(rows), MANY):
        yield rows[start : start + MANY]


def ours_single(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.transactions(name()) as work:

        def call(value: bytes) -> None:
            with work.begin() as turn:
                turn.send(value, topic=place.topic, key=KEY)

        return Calls().run(call, rows)


def ours_many(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.transactions(name()) as work, Stretch() as stretch:
        for some in thousands(rows):
            with work.begin() as turn:
                for value in some:
                    turn.send(value, topic=place.topic, key=KEY)
    return stretch


def ours_plain(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic, linger=0.0) as producer, Stretch() as stretch:
        for some in thousands(rows):
            for value in some:
                producer.send(value, key=KEY)
            producer.flush(60.0)
    return stretch


def confluent(place: Place) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": name(), "linger.ms": 0})
    producer.init_transactions(60)
    return producer


def confluent_turn(producer: Any, place: Place, rows: list[bytes]) -> None:
    producer.begin_transaction()
    for value in rows:
        producer.produce(place.topic, value, KEY)
    producer.commit_transaction(60)


def confluent_single(place: Place, rows: list[bytes]) -> Stretch:
    producer = confluent(place)

    def call(value: bytes) -> None:
        confluent_turn(producer, place, [value])

    stretch = Calls().run(call, rows)
    expect(producer.flush(30), 0)
    return stretch


def confluent_many(place: Place, rows: list[bytes]) -> Stretch:
    producer = confluent(place)
    with Stretch() as stretch:
        for some in thousands(rows):
            confluent_turn(producer, place, some)
    expect(producer.flush(30), 0)
    return stretch


def name() -> str:
    """A transactional name of its own: contenders that share one would fence each other."""
    return f"bench-{os.getpid()}-{next(_numbers)}"
