"""A Pulsar worker's messages in hand: what was acknowledged stays so, whatever had been fetched before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto.pulsar import PulsarApi_pb2 as api

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
    end.ack(20.0)


@pytest.mark.parametrize("acked", [1, 2, 3])
def test_what_was_acknowledged_after_an_unload_is_not_handed_out_again(server: PulsarServer, acked: int) -> None:
    """The entry comes again with the new consumer, before the worker acknowledges what it has in hand."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        held = take(queue, 3)
        unload(server)
        for delivery in held[:acked]:
            delivery.ack(20.0)
        nothing_more(server, queue)
        for delivery in held[acked:]:
            delivery.ack(20.0)
        assert server.count("subscribe") == 2
        nothing_more(server, queue, 10)


def test_what_is_acknowledged_while_its_entry_comes_again_is_not_handed_out_again(server: PulsarServer) -> None:
    """One message of three is given back, so the entry comes again; the others are acknowledged meanwhile."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        first, second, third = take(queue, 3)
        first.release(20.0)
        asked = server.wait("redeliverUnacknowledgedMessages")
        server.links[-1].message(asked.consumer_id, 0, stored(VALUES), redelivery_count=1)
        second.ack(20.0)
        third.ack(20.0)
        (again,) = take(queue, 1)
        assert (again.value, again.attempt) == (b"a", 1)
        again.ack(20.0)
        nothing_more(server, queue)


def test_an_entry_that_the_broker_hands_out_anew_later_is_handed_out(server: PulsarServer) -> None:
    """A cursor was set back: what was acknowledged before that comes as what it is, new."""
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 3):
            delivery.ack(20.0)
        unload(server)  # by the next receive the consumer is another one
        assert [delivery.value for delivery in take(queue, 3)] == VALUES
        nothing_more(server, queue)


def test_what_is_done_is_not_remembered_for_long(server: PulsarServer) -> None:
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 3):
            delivery.ack(20.0)
        ident = server.commands("subscribe")[-1].consumer_id
        for number in range(1, 300):
            server.links[-1].message(ident, number, stored([b"%d" % number]))
            take(queue, 1)[0].ack(20.0)
        assert len(queue._done[-1]) < 10
