"""A producer under use: threads that share it, rows and single records mixed, several partitions. Order and places are what is asked."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from conformance.helpers import records, until_readable
from conformance.seats import Seat


def counts(seat: Seat) -> int:
    return 60 if seat.protocol == "zookeeper" else 1500


@pytest.mark.parametrize("partitions", [1, 3])
def test_threads_share_a_producer(seat: Seat, client: Any, fresh: Any, partitions: int) -> None:
    """Each receipt names its own record's place, and the records of one key keep the order in which they were sent."""
    topic = fresh() if seat.protocol == "zookeeper" else fresh(partitions=partitions)
    keyed = seat.protocol != "zookeeper"
    receipts: list[list[Any]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        for n in range(counts(seat)):
            fields = {"key": b"thread-%d" % number} if keyed else {}
            if n % 97 == 5 and keyed:
                fields["headers"] = [("n", b"%d" % n)]
            receipts[number].append(producer.send(b"%d:%d" % (number, n), **fields))
            if n % 500 == 499:
                receipts[number][-1].position(30.0)

    with client.producer(topic) as producer:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive(), "stuck"
        producer.flush(30.0)
        until_readable(client, topic, [receipt.position(1.0) for mine in receipts for receipt in mine])
    read = records(client, topic)
    assert len(read) == 4 * counts(seat)
    places = {record.position: record.value for record in read}
    for number in range(4):
        sent = [b"%d:%d" % (number, n) for n in range(counts(seat))]
        assert [record.value for record in read if record.value.startswith(b"%d:" % number)] == sent
        assert [places[receipt.position(1.0)] for receipt in receipts[number]] == sent


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_and_single_records_keep_the_order_of_their_key(seat: Seat, client: Any, fresh: Any, partitions: int) -> None:
    if seat.protocol == "zookeeper":
        pytest.skip("queues carry no key")
    topic = fresh(partitions=partitions)
    sent: dict[bytes, list[bytes]] = {b"k%d" % key: [] for key in range(7)}
    shown: list[Any] = []
    with client.producer(topic) as producer:
        for turn in range(20):
            rows = [(b"k%d" % (n * n % 7), b"%d:%d" % (turn, n)) for n in range(turn * 17)]
            last = producer.send_batch(pa.record_batch({"key": [key for key, _ in rows], "value": [value for _, value in rows]}))
            assert bool(last) == bool(rows)
            for key, value in rows:
                sent[key].append(value)
            for n in range(5):
                key = b"k%d" % n
                shown.append(producer.send(b"%d:single" % turn, key=key))
                sent[key].append(b"%d:single" % turn)
            shown += last
        producer.flush(30.0)
        until_readable(client, topic, [receipt.position(1.0) for receipt in shown])
    found: dict[bytes, list[bytes]] = {key: [] for key in sent}
    where: dict[bytes, set[int]] = {key: set() for key in sent}
    for record in records(client, topic):
        found[record.key].append(record.value)
        where[record.key].add(record.partition)
    assert found == sent
    assert all(len(partitions) <= 1 for partitions in where.values())
