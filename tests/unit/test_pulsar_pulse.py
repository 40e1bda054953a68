"""Whether a Pulsar broker is still there, and what it hears of a client that reads nothing for a while."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, stored, success
from wireproto.pulsar import PulsarApi_pb2 as api

BRIEF = 0.3
"""Seconds of silence that these clients take for strange."""


def pong(link: Link, ask: Any) -> Any:
    return api.CommandPong()


def test_a_silent_broker_is_asked_and_kept_when_it_answers() -> None:
    with PulsarServer(ping=pong) as server, wireproto.connect(server.url, keep_alive=BRIEF) as client:
        [conn] = client.loop.connections
        server.wait("ping", 4)
        assert not conn.closed
        pauses = [later - earlier for earlier, later in zip(server.moments("ping"), server.moments("ping")[1:], strict=False)]
        assert min(pauses) >= BRIEF, "a PONG is a word, too"


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


@pytest.mark.parametrize("role", ["consumer", "queue", "reader"])
def test_a_broker_hears_of_a_client_whose_user_is_busy(role: str) -> None:
    """More has come than the client holds: its connection is not read, and the broker's own questions stay unanswered."""
    full = threading.Event()

    def flow(link: Link, ask: Any) -> None:
        if full.is_set():
            return
        full.set()
        for number in range(4):  # more than was asked for
            link.message(ask.consumer_id, number, stored([b"x" * 100_000], number))

    with PulsarServer(
        subscribe=success,
        flow=flow,
        getLastMessageId=lambda link, ask: api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id,
            last_message_id=api.MessageIdData(ledgerId=7, entryId=2),
            consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
        ),
    ) as server, wireproto.connect(server.url, keep_alive=BRIEF, receive_memory=100_000) as client:
        opened: Any = client.reader("t") if role == "reader" else getattr(client, role)("t", "group")
        conn = client.loop.connections[-1]
        until = time.monotonic() + 20.0
        while not conn.held_back and time.monotonic() < until:
            server.wait("ping", server.count("ping") + 1)
        assert conn.held_back
        before = server.count("ping")
        server.wait("ping", before + 12)  # 12 looks: longer than the silence after which a connection that is read is given up
        assert not conn.closed
        found = opened.receive(20.0) if role == "queue" else opened.poll(20.0)
        assert found is not None
