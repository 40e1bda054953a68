"""A Pulsar worker's messages in hand: what was acknowledged stays so, whatever had been fetched before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto.devbroker import DevBroker
from wireproto.errors import ChecksumMismatch, OptionError, UsageError
from wireproto.net.retry import Policy
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.records import Backoff, Delivery

VALUES = [b"a", b"b", b"c"]


@pytest.fixture
def server() -> Iterator[PulsarServer]:
    """Sends one entry at each consumer's first FLOW, with nothing of it acknowledged: as fetched before any ACK came."""

    def flow(link: Link, ask: Any) -> None:
        if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
            link.message(ask.consumer_id, 0, stored(VALUES))

    def ack(link: Link, ask: Any) -> Any:
        return acknowledged(link, ask) if ask.consumer_id not in CLOSED else None

    CLOSED.clear()
    with PulsarServer(subscribe=success, ack=ack, flow=flow) as made:
        yield made


CLOSED: set[int] = set()
"""Consumers that the broker has closed: their ACKs are not answered."""


def unload(server: PulsarServer) -> None:
    """The broker closes the consumer; it comes back at the worker's next word."""
    ident = server.commands("subscribe")[-1].consumer_id
    CLOSED.add(ident)
    server.links[-1].send(api.CommandCloseConsumer(consumer_id=ident, request_id=2**64 - 1))


def take(queue: Any, count: int) -> list[Any]:
    found = []
    while len(found) < count:
        delivery = queue.receive(20.0)
        assert delivery is not None, found
        found.append(delivery)
    return found


def nothing_more(server: PulsarServer, queue: Any, number: int = 9) -> None:
    """Whatever was sent so far is here, and none of it is handed out."""
    last = server.commands("subscribe")[-1].consumer_id
    server.links[-1].message(last, number, stored([b"end"]))
    (end,) = take(queue, 1)
    assert end.value == b"end"
    end.ack(20.0, wait=True)


@pytest.mark.parametrize("acked", [1, 2, 3])
def test_what_was_acknowledged_after_an_unload_is_not_handed_out_again(server: PulsarServer, acked: int) -> None:
    """The entry comes again with the new consumer, before the worker acknowledges what it has in hand."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        held = take(queue, 3)
        unload(server)
        for delivery in held[:acked]:
            delivery.ack(20.0, wait=True)
        nothing_more(server, queue)
        for delivery in held[acked:]:
            delivery.ack(20.0, wait=True)
        assert server.count("subscribe") == 2
        nothing_more(server, queue, 10)


def test_what_is_acknowledged_while_its_entry_comes_again_is_not_handed_out_again(server: PulsarServer) -> None:
    """One message of three is given back, so the entry comes again; the others are acknowledged meanwhile."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        first, second, third = take(queue, 3)
        first.release(20.0)
        asked = server.wait("redeliverUnacknowledgedMessages")
        server.links[-1].message(asked.consumer_id, 0, stored(VALUES), redelivery_count=1)
        second.ack(20.0, wait=True)
        third.ack(20.0, wait=True)
        (again,) = take(queue, 1)
        assert (again.value, again.attempt) == (b"a", 2)
        again.ack(20.0, wait=True)
        nothing_more(server, queue)


def test_an_entry_that_the_broker_hands_out_anew_later_is_handed_out(server: PulsarServer) -> None:
    """A cursor was set back: what was acknowledged before that comes as what it is, new."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 3):
            delivery.ack(20.0, wait=True)
        unload(server)  # by the next receive the consumer is another one
        assert [delivery.value for delivery in take(queue, 3)] == VALUES
        nothing_more(server, queue)


def test_what_is_done_is_not_remembered_for_long(server: PulsarServer) -> None:
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 3):
            delivery.ack(20.0, wait=True)
        ident = server.commands("subscribe")[-1].consumer_id
        for number in range(1, 300):
            server.links[-1].message(ident, number, stored([b"%d" % number]))
            take(queue, 1)[0].ack(20.0, wait=True)
        assert len(queue._hands[-1]._done) < 10


# -- giving back later ----------------------------------------------------------------------------------------------------


def again(link: Link, ask: Any) -> None:
    """The broker's answer to a redelivery: the entry, with all of it wanted at the first time, and its first message at the second."""
    count = link.server.count("redeliverUnacknowledgedMessages")
    link.message(ask.consumer_id, ask.message_ids[0].entryId, stored(VALUES), redelivery_count=count, ack_set=[7 if count == 1 else 1])


def test_a_message_comes_back_after_its_delay_and_the_others_stay(server: PulsarServer) -> None:
    """It is given back while the worker is busy elsewhere."""
    server.answers["redeliverUnacknowledgedMessages"] = again
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        (first,) = take(queue, 1)
        begun = time.monotonic()
        first.release(after=0.3)
        with pytest.raises(UsageError, match="released before"):
            first.ack(20.0, wait=True)
        others = take(queue, 2)
        assert [delivery.value for delivery in others] == [b"b", b"c"]
        server.wait("redeliverUnacknowledgedMessages")
        assert server.moments("redeliverUnacknowledgedMessages")[0] - begun >= 0.3
        (back,) = take(queue, 1)
        assert (back.value, back.attempt) == (b"a", 2)
        for delivery in (back, *others):
            delivery.ack(20.0, wait=True)
        nothing_more(server, queue)
        assert server.count("redeliverUnacknowledgedMessages") == 1


def test_a_message_that_is_to_come_later_is_passed_over_until_then(server: PulsarServer) -> None:
    """Its entry comes before that: for another message of it that is released at once, and after an unload."""
    server.answers["redeliverUnacknowledgedMessages"] = again
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        first, second, third = take(queue, 3)
        first.release(after=2.0)
        second.release(20.0)
        (back,) = take(queue, 1)
        assert back.value == b"b"
        unload(server)
        third.ack(20.0, wait=True)
        back.ack(20.0, wait=True)
        (late,) = take(queue, 1)
        assert (late.value, server.count("redeliverUnacknowledgedMessages")) == (b"a", 2)
        assert server.commands("redeliverUnacknowledgedMessages")[-1].consumer_id == server.commands("subscribe")[-1].consumer_id
        late.ack(20.0, wait=True)
        nothing_more(server, queue)


def test_a_delay_outlasts_an_unload(server: PulsarServer) -> None:
    def single(link: Link, ask: Any) -> None:
        if sum(one.consumer_id == ask.consumer_id for one in server.commands("flow")) == 1:
            link.message(ask.consumer_id, 0, stored([b"a"]))

    server.answers["flow"] = single
    server.answers["redeliverUnacknowledgedMessages"] = lambda link, ask: link.message(ask.consumer_id, 0, stored([b"a"]))
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        (first,) = take(queue, 1)
        begun = time.monotonic()
        first.release(after=3.0)
        unload(server)
        while server.count("subscribe") < 2 or server.count("flow") < 2:
            assert queue.receive(0.05) is None
        nothing_more(server, queue)
        (late,) = take(queue, 1)
        assert late.value == b"a"
        assert time.monotonic() - begun >= 3.0


def whole(link: Link, ask: Any) -> None:
    """The broker's answer to a redelivery: the entry with all of it wanted; it counts for entries."""
    count = link.server.count("redeliverUnacknowledgedMessages")
    link.message(ask.consumer_id, ask.message_ids[0].entryId, stored(VALUES), redelivery_count=count)


def test_a_message_counts_how_often_it_was_handed_out_itself(server: PulsarServer) -> None:
    """Those behind it in its batch come again with it and were not seen by anybody yet."""
    server.answers["redeliverUnacknowledgedMessages"] = whole
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        (first,) = take(queue, 1)
        assert (first.value, first.attempt) == (b"a", 1)
        first.release(20.0)
        *others, first = take(queue, 3)
        assert [(delivery.value, delivery.attempt) for delivery in others] == [(b"b", 1), (b"c", 1)]
        assert (first.value, first.attempt) == (b"a", 2)
        first.release(20.0)
        (first,) = take(queue, 1)
        assert (first.value, first.attempt) == (b"a", 3)
        for delivery in (first, *others):
            delivery.ack(20.0, wait=True)
        nothing_more(server, queue)


def test_a_message_in_hand_does_not_count_what_another_of_its_batch_was_given_back_for(server: PulsarServer) -> None:
    server.answers["redeliverUnacknowledgedMessages"] = whole
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        first, second = take(queue, 2)
        first.release(20.0)
        third, first = take(queue, 2)
        assert [(delivery.value, delivery.attempt) for delivery in (third, first)] == [(b"c", 1), (b"a", 2)]
        second.release(20.0)
        (second,) = take(queue, 1)
        assert (second.value, second.attempt) == (b"b", 2)
        for delivery in (first, second, third):
            delivery.ack(20.0, wait=True)
        nothing_more(server, queue)
        assert not queue._hands[-1]._unmet


@pytest.mark.parametrize("poison", [0, 7])
def test_a_message_that_is_always_given_back_holds_up_no_other_of_its_batch(server: PulsarServer, poison: int) -> None:
    """Two batches of ten, and the worker cannot do one message of each: all others are done in the meantime."""
    sent: dict[int, int] = {}
    left: dict[int, list[int]] = {}

    def send(link: Link, consumer: int, entry: int) -> None:
        values = [b"%d-%d" % (entry, number) for number in range(10)]
        link.message(consumer, entry, stored(values, entry * 10), redelivery_count=sent.get(entry, 0), ack_set=left.get(entry, []))
        sent[entry] = sent.get(entry, 0) + 1

    def ack(link: Link, ask: Any) -> Any:
        left[ask.message_id[0].entryId] = list(ask.message_id[0].ack_set)
        return acknowledged(link, ask)

    def flow(link: Link, ask: Any) -> None:
        if link.server.count("flow") == 1:
            for entry in range(2):
                send(link, ask.consumer_id, entry)

    server.answers |= {"flow": flow, "ack": ack}
    server.answers["redeliverUnacknowledgedMessages"] = lambda link, ask: send(link, ask.consumer_id, ask.message_ids[0].entryId)
    bad, done = {b"%d-%d" % (entry, poison) for entry in range(2)}, []
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        for delivery in (take(queue, 1)[0] for _ in range(24)):
            if delivery.value in bad:
                delivery.release(20.0)
            else:
                delivery.ack(20.0, wait=True)
                done.append(delivery.value)
    assert len(done) == len(set(done)) == 18


def test_pauses_grow_with_the_attempts() -> None:
    assert [Backoff(1.0, 3.0, 20.0)(attempt) for attempt in (1, 2, 3, 4, 1000)] == [1.0, 3.0, 9.0, 20.0, 20.0]
    with DevBroker(["pulsar"]) as broker, wireproto.connect(broker.url("pulsar")) as client:
        seen = broker.record("pulsar")
        with client.producer("t", batching=False) as producer:
            producer.send(b"poison")
        begun = time.monotonic()
        with client.queue("t", "group") as queue:
            for attempt in range(1, 5):
                (delivery,) = take(queue, 1)
                assert delivery.attempt == attempt
                delivery.release(after=Backoff(first=0.1, factor=2.0, most=0.3))
            (delivery,) = take(queue, 1)
            assert time.monotonic() - begun >= 0.1 + 0.2 + 0.3 + 0.3
            delivery.ack(20.0, wait=True)
        assert len(seen.requests("redeliverUnacknowledgedMessages")) == 4


def test_a_broker_without_delays_says_so() -> None:
    ended: list[Any] = []
    delivery = Delivery(cast("Any", None), 0, lambda *given: ended.append(given))
    with pytest.raises(OptionError, match="after="):
        delivery.release(after=1.0)
    assert ended == []


# -- what cannot be read --------------------------------------------------------------------------------------------------


def broken(link: Link, ask: Any) -> None:
    if link.server.count("flow") == 1:
        entry = bytearray(stored([b"x"]))
        entry[-1] ^= 1
        link.message(ask.consumer_id, 0, bytes(entry))
        link.message(ask.consumer_id, 1, stored([b"good"]))


def test_an_entry_that_cannot_be_read_is_given_back(server: PulsarServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker may be able to; here it is told each time it comes."""
    monkeypatch.setattr("wireproto.pulsar.queue.UNREADABLE", Policy(first=0.1))
    server.answers["flow"] = broken
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        with pytest.raises(ChecksumMismatch, match="7:0"):
            queue.receive(20.0)
        asked = server.wait("redeliverUnacknowledgedMessages")
        assert [place.entryId for place in asked.message_ids] == [0]
        (good,) = take(queue, 1)
        assert good.value == b"good"
        good.ack(20.0, wait=True)
        assert [ack.message_id[0].entryId for ack in server.commands("ack")] == [1]


def test_an_entry_that_is_skipped_is_acknowledged_with_the_reason(server: PulsarServer) -> None:
    server.answers["flow"] = broken
    with wireproto.connect(server.url) as client, client.queue("t", "group", on_corrupt="skip") as queue:
        (good,) = take(queue, 1)
        good.ack(20.0, wait=True)
        told, done = server.commands("ack")
        assert (told.message_id[0].entryId, told.validation_error) == (0, api.CommandAck.ChecksumMismatch)
        assert (done.message_id[0].entryId, done.HasField("validation_error")) == (1, False)


def test_an_entry_that_comes_again_doubles_nothing_that_waits_to_be_handed_out(server: PulsarServer) -> None:
    """It was asked for twice, and has come twice before the worker looks."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        held = take(queue, 3)
        last = server.commands("subscribe")[-1].consumer_id
        for again in range(2):
            server.links[-1].message(last, 5, stored([b"d", b"e"]), redelivery_count=again)
        until(lambda: len(queue._stream.box) >= 2, "two frames were sent")
        more = take(queue, 2)
        assert [one.value for one in more] == [b"d", b"e"]
        nothing_more(server, queue)
        for one in [*held, *more]:
            one.ack(20.0, wait=True)
        assert [list(ack.message_id[0].ack_set) for ack in server.commands("ack")[-2:]] == [[0b10], []]


def test_an_entry_of_which_nothing_is_left_is_acknowledged(server: PulsarServer) -> None:
    """By others, or taken out by compaction: else it stands in the subscription's way for ever. One with something left is not."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        held = take(queue, 3)
        last = server.commands("subscribe")[-1].consumer_id
        server.links[-1].message(last, 1, stored(VALUES), ack_set=[0b010])
        (part,) = take(queue, 1)
        assert part.value == b"b"
        assert server.count("ack") == 0
        server.links[-1].message(last, 2, stored(VALUES), ack_set=[0])
        nothing_more(server, queue)
        acks = [(one.message_id[0].entryId, list(one.message_id[0].ack_set)) for one in server.commands("ack")]
        assert acks == [(2, []), (9, [])]
        for one in [*held, part]:
            one.ack(20.0, wait=True)
