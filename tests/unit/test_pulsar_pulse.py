"""Whether a Pulsar broker is still there, and what it hears of a client that reads nothing for a while."""

from __future__ import annotations

from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, stored, success
from wireproto.errors import TimedOut
from wireproto.pulsar import PulsarApi_pb2 as api

BRIEF = 2.0
"""Seconds of silence that these clients take for strange."""


def pong(link: Link, ask: Any) -> Any:
    return api.CommandPong()


def test_a_broker_is_asked_when_it_has_been_silent_for_keep_alive() -> None:
    with PulsarServer(ping=pong) as server, wireproto.connect(server.url, keep_alive=0.1):
        server.wait("ping")


def test_a_silent_broker_is_asked_and_kept_when_it_answers() -> None:
    with PulsarServer(ping=pong) as server, wireproto.connect(server.url, keep_alive=BRIEF) as client:
        [conn] = client.loop.connections
        server.wait("ping", 2)
        assert not conn.closed
        first, second = server.moments("ping")[:2]
        assert second - first >= BRIEF, "a PONG is a word, too"


def test_a_broker_that_says_nothing_any_more_is_given_up() -> None:
    """The connection stands, and nothing comes: what waits is sent over another one."""

    def send(link: Link, sent: Any) -> Any:
        return None if link is server.links[1] and server.count("send") > 1 else answer(link, sent)

    with PulsarServer() as server:
        answer = server.answers["send"]
        server.answers["send"] = send
        server.answers["ping"] = lambda link, ask: None if link is server.links[1] else api.CommandPong()
        with wireproto.connect(server.url, keep_alive=BRIEF) as client, client.producer("t", batching=False) as out:
            out.send(b"a").position(20.0)
            assert out.send(b"b").position(20.0) is not None
        assert server.count("producer") == 2
        assert server.count("ping") >= 1


def test_a_broker_hears_of_a_client_whose_user_is_busy() -> None:
    """More has come than the client holds: its connection is not read, and the broker's own questions stay unanswered."""
    heard: list[Link] = []

    def ping(link: Link, ask: Any) -> Any:
        with server.came:
            heard.append(link)
        return pong(link, ask)

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            for number in range(4):  # more than was asked for
                link.message(ask.consumer_id, number, stored([b"x" * 100_000], number))

    with (
        PulsarServer(subscribe=success, flow=flow, ping=ping) as server,
        wireproto.connect(server.url, keep_alive=BRIEF, receive_memory=100_000) as client,
    ):
        consumer = client.consumer("t", "group", mode="exclusive")
        conn, link = client.loop.connections[-1], server.links[-1]
        with server.came:  # 7 looks: longer than the silence after which a connection that is read is given up
            assert server.came.wait_for(lambda: heard.count(link) >= 7, 60.0)
        assert conn.held_back
        assert not conn.closed
        assert consumer.poll(20.0) is not None


def test_a_connection_that_brings_nothing_until_a_record_s_time_is_over_is_dropped() -> None:
    """Long before it is asked whether it is there: each send over it would fail by its time."""

    def send(link: Link, sent: Any) -> Any:
        return None if link is server.links[1] and server.count("send") > 1 else answer(link, sent)

    with PulsarServer() as server:
        answer, server.answers["send"] = server.answers["send"], send
        with wireproto.connect(server.url, delivery_timeout=3.0) as client, client.producer("t", batching=False) as out:
            out.send(b"a").position(20.0)
            with pytest.raises(TimedOut):
                out.send(b"b").position(20.0)
            assert out.send(b"c").position(20.0) is not None
        assert server.count("producer") == 2


def test_a_connection_that_brings_others_their_receipts_is_kept() -> None:
    with PulsarServer() as server, wireproto.connect(server.url, delivery_timeout=3.0) as client:
        stuck, other = client.producer("t", batching=False), client.producer("u", batching=False)
        answer, ident = server.answers["send"], server.commands("producer")[0].producer_id
        server.answers["send"] = lambda link, sent: None if sent.producer_id == ident else answer(link, sent)
        sent = stuck.send(b"a")
        server.wait("send")
        other.send(b"b").position(20.0)
        with pytest.raises(TimedOut):
            sent.position(20.0)
        other.send(b"c").position(20.0)
        assert server.count("producer") == 2
