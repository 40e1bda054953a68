"""A Pulsar producer that comes back: how often it tries, and what it takes for final."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import wireproto
from pulsar_server import Link, PulsarServer
from wireproto.pulsar import PulsarApi_pb2 as api


def opened(link: Link, ask: Any) -> Any:
    return api.CommandProducerSuccess(request_id=ask.request_id, producer_name=ask.producer_name or "p-1")


def refusal(ask: Any, code: str, text: str = "not now") -> Any:
    return api.CommandError(request_id=ask.request_id, error=code, message=text)


def test_a_producer_that_is_refused_tries_again_less_and_less_often() -> None:
    """ServiceNotReady for two seconds: few attempts, each pause longer than the one before."""
    refused_from: list[float] = []

    def producer(link: Link, ask: Any) -> Any:
        if link.server.count("producer") == 1:
            return opened(link, ask)
        refused_from.append(time.monotonic())
        return refusal(ask, "ServiceNotReady") if time.monotonic() - refused_from[0] < 2.0 else opened(link, ask)

    with PulsarServer(producer=producer) as server, wireproto.connect(server.url) as client, client.producer("t") as out:
        out.send(b"a").position(20.0)
        server.links[-1].close()
        out.send(b"b").position(20.0)
        tries = server.moments("producer")[1:]
    assert 3 <= len(tries) <= 8
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses[0] >= 0.05
    assert pauses[-1] >= 0.5
