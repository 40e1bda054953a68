"""The queue consumer: each message acked or given back; nothing acked comes again, nothing unacked is lost."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from conformance.helpers import receive_until, write
from conformance.seats import Seat
from wireproto.errors import Closed, Revoked, UsageError

SENT = [b"%02d" % number for number in range(12)]


@pytest.fixture(autouse=True)
def _has_the_role(seat: Seat) -> None:
    if not seat.features.queue:
        pytest.skip("has no queue consumer")


@pytest.fixture
def opened(seat: Seat, dial: Any, topic: str, group: str) -> Any:
    """Opens queue consumers on clients of their own; the group exists before the first record is written."""

    def open_queue() -> Any:
        return dial().queue(topic, group)

    open_queue().close(10.0)
    return open_queue


def test_each_message_once_and_gone_after_ack(client: Any, topic: str, opened: Any) -> None:
    write(client, topic, SENT)
    with opened() as queue:
        for delivery in receive_until(queue, len(SENT)):
            assert delivery.attempt == 1
            delivery.ack()
        assert queue.receive(timeout=1.0) is None
    with opened() as queue:
        assert queue.receive(timeout=3.0) is None


def test_values_arrive_unchanged(client: Any, topic: str, opened: Any) -> None:
    positions = write(client, topic, SENT)
    with opened() as queue:
        got = receive_until(queue, len(SENT))
        assert sorted(delivery.value for delivery in got) == SENT
        assert sorted(delivery.position for delivery in got) == positions
        for delivery in got:
            delivery.ack()


def test_a_released_message_is_handed_out_again(seat: Seat, client: Any, topic: str, opened: Any) -> None:
    write(client, topic, [b"again"])
    with opened() as queue:
        (delivery,) = receive_until(queue, 1)
        delivery.release()
        (again,) = receive_until(queue, 1, limit=30.0 if seat.features.releases_at_once else 90.0)
        assert again.value == b"again"
        if seat.features.counts_attempts:
            assert again.attempt >= 2
        again.ack()
        assert queue.receive(timeout=1.0) is None


@pytest.mark.parametrize("again", ["ack", "release"])
@pytest.mark.parametrize("first", ["ack", "release"])
def test_ending_a_delivery_twice_is_a_mistake_of_the_caller(client: Any, topic: str, opened: Any, first: str, again: str) -> None:
    write(client, topic, [b"once", b"kept"])
    with opened() as queue:
        got = {delivery.value: delivery for delivery in receive_until(queue, 2)}
        once = got[b"once"]
        getattr(once, first)()
        for _ in range(2):  # said each time
            with pytest.raises(UsageError, match="acknowledged before" if first == "ack" else "released before") as refused:
                getattr(once, again)()
            assert type(refused.value) is UsageError, "nobody took the message away"
            assert (refused.value.topic, refused.value.position) == (topic, once.position)
        got[b"kept"].ack()


def test_a_delivery_that_was_released_does_not_end_the_next_one_of_its_message(seat: Seat, client: Any, topic: str, opened: Any) -> None:
    write(client, topic, [b"kept", b"again"])
    with opened() as queue:
        got = {delivery.value: delivery for delivery in receive_until(queue, 2)}
        old = got[b"again"]
        old.release()
        (new,) = receive_until(queue, 1, limit=30.0 if seat.features.releases_at_once else 90.0)
        assert new.value == b"again"
        with pytest.raises(UsageError, match="released before"):
            old.ack()
        new.release()
        (newest,) = receive_until(queue, 1, limit=30.0 if seat.features.releases_at_once else 90.0)
        newest.ack()
        got[b"kept"].ack()


@pytest.mark.parametrize("call", ["ack", "release"])
def test_a_delivery_of_a_closed_queue_cannot_be_ended(client: Any, topic: str, opened: Any, call: str) -> None:
    write(client, topic, [b"open", b"acked"])
    queue = opened()
    left, acked = receive_until(queue, 2)
    acked.ack()
    queue.close(10.0)
    for delivery in left, acked:
        with pytest.raises(Closed):
            getattr(delivery, call)()


def test_what_a_closed_consumer_held_goes_to_the_next(client: Any, topic: str, opened: Any) -> None:
    write(client, topic, SENT)
    first = opened()
    held = receive_until(first, 3)
    held[0].ack()
    acked = held[0].value
    first.close(10.0)
    with opened() as queue:
        rest = receive_until(queue, len(SENT) - 1, limit=90.0)
        assert sorted(delivery.value for delivery in rest) == sorted(value for value in SENT if value != acked)
        for delivery in rest:
            delivery.ack()


def test_two_consumers_share(seat: Seat, client: Any, fresh: Any, dial: Any, group: str) -> None:
    """Rounds of a few messages, one for each partition; the last two rounds are shared, and each message went to exactly one."""
    partitions = 1 if seat.features.shares_one_partition else 4
    topic = fresh(partitions=partitions)
    first, second = dial().queue(topic, group), dial().queue(topic, group)
    with first, second:
        deadline = time.monotonic() + 90
        shared = number = 0
        while shared < 2:
            sent = [b"%d" % (number + step) for step in range(4)]
            number += 4
            for step, value in enumerate(sent):
                write(client, topic, [value], **({"partition": step} if partitions > 1 else {}))
            taken: dict[str, list[bytes]] = {"first": [], "second": []}
            while not set(sent) <= {value for values in taken.values() for value in values}:
                assert time.monotonic() < deadline, f"lost, or one consumer got nothing: {sent}: {taken}"
                for name, queue in (("first", first), ("second", second)):
                    delivery = queue.receive(timeout=0.2)
                    if delivery is not None:
                        taken[name].append(delivery.value)
                        with contextlib.suppress(Revoked):  # then the other one gets it too
                            delivery.ack()
            assert time.monotonic() < deadline, f"one consumer got nothing: {taken}"
            once = sorted(taken["first"] + taken["second"]) == sorted(sent)
            assert once or not seat.features.shares_exactly, f"each message to exactly one: {taken}"
            shared = shared + 1 if once and taken["first"] and taken["second"] else 0
        assert [queue.receive(timeout=0.5) for queue in (first, second)] == [None, None]


def test_order_of_acks_does_not_matter(client: Any, topic: str, opened: Any) -> None:
    write(client, topic, SENT)
    with opened() as queue:
        got = receive_until(queue, len(SENT))
        for delivery in reversed(got):
            delivery.ack()
    with opened() as queue:
        assert queue.receive(timeout=3.0) is None
