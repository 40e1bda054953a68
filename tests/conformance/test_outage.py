"""A broker that goes away and comes back with its data: nothing acknowledged is lost; repeats only where the table allows them."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import Any

import pytest

from conformance.helpers import catch_up, poll_until, receive_until, records, until_readable, values, write
from conformance.seats import Seat
from wireproto import LATEST
from wireproto.errors import TransportError, WireprotoError

SENT = [b"%d" % number for number in range(20)]


def check(seat: Seat, expected: list[bytes], got: list[bytes | None]) -> None:
    """Nothing missing; nothing twice, unless the table says that it may."""
    assert set(expected) <= set(got), f"lost: {sorted(set(expected) - set(got))[:10]}"
    if not seat.features.repeats_after_crash:
        twice = [value for value, count in collections.Counter(got).items() if count > 1]
        assert not twice, f"repeated: {twice[:10]}"


def test_what_was_written_is_there_after_a_crash(seat: Seat, client: Any, topic: str) -> None:
    """What was acknowledged long before is there once. Of many unanswered sends when the connection goes, all arrive in order, once where
    the table says so."""
    write(client, topic, SENT)
    in_flight = [b"%06d" % number for number in range(2000)]
    with client.producer(topic) as producer:
        receipts = [producer.send(value) for value in in_flight[:1000]]
        with seat.away():
            receipts += [producer.send(value, timeout=60.0) for value in in_flight[1000:]]
        producer.flush(90.0)
        until_readable(client, topic, [receipt.position(1.0) for receipt in receipts])
    got = values(client, topic)
    assert [value for value in got if value in SENT] == SENT
    check(seat, in_flight, got[len(SENT) :])
    assert list(dict.fromkeys(got)) == [*SENT, *in_flight]
    write(client, topic, [b"after"])
    assert values(client, topic) == [*got, b"after"]


def test_a_producer_goes_on_over_an_outage(seat: Seat, client: Any, topic: str) -> None:
    """Records sent before, during and after; every receipt that gave a position is there."""
    begun: list[bytes] = []
    acknowledged: list[bytes] = []
    failed: list[bytes] = []
    stop = threading.Event()
    with client.producer(topic) as producer:

        def send() -> None:
            number = 0
            while not stop.is_set():
                value = b"%06d" % number
                number += 1
                begun.append(value)
                try:
                    producer.send(value, timeout=60.0).position(60.0)
                    acknowledged.append(value)
                except WireprotoError:
                    failed.append(value)  # unknown outcome: it may be there or not
                time.sleep(0.005)

        sender = threading.Thread(target=send)
        sender.start()
        deadline = time.monotonic() + 60
        while len(acknowledged) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        before = len(acknowledged)
        with seat.away():
            while len(begun) == len(acknowledged) + len(failed) and time.monotonic() < deadline + 60:
                time.sleep(0.01)  # until a send meets the outage
        while len(acknowledged) < before + 40 and time.monotonic() < deadline + 120:
            time.sleep(0.01)
        stop.set()
        sender.join(90)
        assert not sender.is_alive()
    assert len(acknowledged) >= before + 40, "the producer did not go on"
    got = values(client, topic)
    check(seat, acknowledged, got)
    assert set(got) <= {*acknowledged, *failed}
    firsts = list(dict.fromkeys(value for value in got if value not in failed))
    assert firsts == sorted(firsts), "order within a partition"


def test_a_reader_goes_on_over_an_outage(seat: Seat, dial: Any, client: Any, topic: str, group: str) -> None:
    """And a consumer, where there is one, from its commit."""
    write(client, topic, SENT)
    got: list[bytes | None] = []
    deadline = time.monotonic() + 120
    with contextlib.ExitStack() as ends:
        reader = ends.enter_context(client.reader(topic))
        while len(got) < len(SENT):
            assert time.monotonic() < deadline
            got += [record.value for record in reader.poll(timeout=1.0) or ()]
        consumer = ends.enter_context(dial().consumer(topic, group)) if seat.features.consumer else None
        if consumer is not None:
            poll_until(consumer, lambda found: len(found) >= len(SENT))
            consumer.commit()
        with seat.away():
            pass
        write(client, topic, [b"after"])
        deadline = time.monotonic() + 120  # a broker's boot takes what it takes
        while len(got) < len(SENT) + 1:
            assert time.monotonic() < deadline, "the reader did not come back"
            try:
                got += [record.value for record in reader.poll(timeout=1.0) or ()]
            except TransportError:
                continue  # it may tell of the outage, and goes on when asked again
        assert got == [*SENT, b"after"], "a reader neither loses nor repeats: it knows its position"
        if consumer is None:
            return
        check(seat, [b"after"], until_seen(consumer, b"after"))
        consumer.commit(timeout=60.0)
    write(client, topic, [b"last"])
    with dial().consumer(topic, group) as consumer:
        assert until_seen(consumer, b"last") == [b"last"], "what was committed after the crash must not come again"


def until_seen(consumer: Any, value: bytes) -> list[bytes | None]:
    """All that it hands out until this has come."""
    return [record.value for record in poll_until(consumer, lambda found: any(record.value == value for record in found), limit=120)]


def test_a_queue_goes_on(seat: Seat, dial: Any, client: Any, topic: str, group: str) -> None:
    if not seat.features.queue:
        pytest.skip("has no queue consumer")
    queue = dial().queue(topic, group)
    with queue:
        write(client, topic, SENT)
        got = receive_until(queue, 5)
        for delivery in got:
            delivery.ack()
        with seat.away():
            pass
        deadline = time.monotonic() + 120
        taken = [delivery.value for delivery in got]
        while set(taken) != set(SENT):
            assert time.monotonic() < deadline, f"missing: {sorted(set(SENT) - set(taken))}"
            try:
                delivery = queue.receive(timeout=1.0)
                if delivery is not None:
                    taken.append(delivery.value)
                    delivery.ack()
            except WireprotoError:
                continue  # an ack or receive may fail over the outage; the message comes again
        if not seat.features.repeats_after_crash:
            assert len(taken) == len(SENT)


def test_a_reset_connection_is_made_again(seat: Seat, dial: Any, client: Any, topic: str, fault_proxy: Any) -> None:
    url, options = seat.through(fault_proxy)
    other = dial(url, **options)
    write(other, topic, SENT[:10])
    fault_proxy.cut()
    write(other, topic, SENT[10:])
    fault_proxy.cut()
    assert values(other, topic) == SENT
    with other.reader(topic, stop=LATEST) as reader:
        got: list[Any] = []
        for batch in reader:
            got += batch.values()
            fault_proxy.cut()
    assert got == SENT
    catch_up(client, topic)
    assert [record.value for record in records(client, topic)] == SENT
