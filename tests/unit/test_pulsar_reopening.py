"""A Pulsar producer that comes back: how often it tries, and what it takes for final."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer
from wireproto.errors import TimedOut
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import ProducerBlockedQuotaExceededException, ProducerFenced, TopicNotFound, TopicTerminatedError
from wireproto.pulsar.partition_producer import RETRY


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
    least = [RETRY.first * RETRY.factor**number * (1 - RETRY.jitter) for number in range(len(pauses))]
    assert all(pause >= bound for pause, bound in zip(pauses, least, strict=True)), pauses


def test_a_producer_that_comes_back_is_the_one_that_it_was() -> None:
    """Under its id and the name that it was given first, and later than the one before, which a broker may still hold."""
    with PulsarServer(producer=opened) as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as out:
        for number in range(3):
            out.send(b"%d" % number).position(20.0)
            server.links[-1].close()
            server.wait("producer", number + 2)
        out.send(b"3").position(20.0)
        made = server.commands("producer")[:4]
        assert [one.epoch for one in made] == [0, 1, 2, 3]
        assert [one.producer_name for one in made] == ["", "p-1", "p-1", "p-1"]
        assert not any(one.user_provided_producer_name for one in made)
        assert len({one.producer_id for one in made}) == 1
        assert {one.topic for one in made} == {"persistent://public/default/t"}


PASSING = [
    *(
        "UnknownError",
        "MetadataError",
        "PersistenceError",
        "AuthenticationError",
        "AuthorizationError",
        "ServiceNotReady",
        "TooManyRequests",
    ),
    *("TooManyRequests", "ProducerBlockedQuotaExceededError", "ProducerBusy", "NotAllowedError", "IncompatibleSchema", "InvalidTopicName"),
]


def refused_lookup(ask: Any, code: str) -> Any:
    return api.CommandLookupTopicResponse(request_id=ask.request_id, response="Failed", error=code, message="not now")


@pytest.mark.parametrize("step", ["lookupTopic", "producer"])
@pytest.mark.parametrize("code", PASSING)
def test_a_producer_that_was_open_outlives_a_refusal(code: str, step: str) -> None:
    """Whatever it is called: three times refused, then taken back."""

    def answer(link: Link, ask: Any) -> Any:
        if not 2 <= link.server.count(step) <= 4:
            return opened(link, ask) if step == "producer" else link.server.here(ask)
        return refusal(ask, code) if step == "producer" else refused_lookup(ask, code)

    with PulsarServer(**{step: answer}) as server, wireproto.connect(server.url) as client:
        with client.producer("t", batching=False) as out:
            assert out.send(b"a").position(20.0) is not None
            server.links[-1].close()
            server.wait(step, 2)
            kept = out.send(b"b")  # taken while it is away
            assert kept.position(20.0) is not None
            assert out.send(b"c").position(20.0) is not None
        assert server.count(step) == 5


def test_a_producer_fails_what_waits_at_a_full_quota_and_goes_on_when_it_is_free() -> None:
    free = threading.Event()

    def producer(link: Link, ask: Any) -> Any:
        full = link.server.count("producer") > 1 and not free.is_set()
        return refusal(ask, "ProducerBlockedQuotaExceededException", "the backlog is full") if full else opened(link, ask)

    with PulsarServer(producer=producer) as server, wireproto.connect(server.url) as client, client.producer("t") as out:
        out.send(b"a").position(20.0)
        server.links[-1].close()
        for _ in range(2):
            with pytest.raises(ProducerBlockedQuotaExceededException, match="the backlog is full"):
                out.send(b"refused").position(20.0)
        free.set()

        def stored() -> bool:
            with suppress(ProducerBlockedQuotaExceededException):  # of an attempt that was under way
                return out.send(b"b").position(20.0) is not None
            return False

        until(stored, "it does not go on")
        out.flush(20.0)
        assert client.cluster.budget.used == 0


@pytest.mark.parametrize(
    ("code", "kind"), [("TopicTerminatedError", TopicTerminatedError), ("ProducerFenced", ProducerFenced), ("TopicNotFound", TopicNotFound)]
)
def test_what_ends_a_producer_ends_it_when_it_comes_back_too(code: str, kind: type[Exception]) -> None:
    def producer(link: Link, ask: Any) -> Any:
        return opened(link, ask) if link.server.count("producer") == 1 else refusal(ask, code)

    with PulsarServer(producer=producer) as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching=False)
        out.send(b"a").position(20.0)
        server.answers["send"] = lambda link, sent: link.close()
        with pytest.raises(kind):
            out.send(b"b").position(20.0)
        with pytest.raises(kind):
            out.send(b"c")
        out.close()
        assert server.count("producer") == 2


@pytest.mark.parametrize(("holder", "comes_back"), [("p-1", True), ("p-2", False), ("a-p-1", False)])
def test_one_that_is_alone_waits_for_its_own_last_connection_to_be_seen_off_and_for_nobody_else(holder: str, comes_back: bool) -> None:
    def producer(link: Link, ask: Any) -> Any:
        if not 2 <= link.server.count("producer") <= 3:
            return opened(link, ask)
        return refusal(ask, "ProducerFenced", f"Topic has an existing exclusive producer: {holder}")

    with PulsarServer(producer=producer) as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching=False, access_mode="exclusive")
        out.send(b"a").position(20.0)
        server.links[-1].close()
        if comes_back:
            assert out.send(b"b").position(20.0) is not None
        else:
            with pytest.raises(ProducerFenced):
                out.send(b"b").position(20.0)
        out.close()
        assert server.count("producer") == (4 if comes_back else 2)


def test_credentials_that_cannot_be_had_just_now_do_not_end_a_producer() -> None:
    """They are the user's code, which may raise anything."""
    tokens: list[str] = ["one", "two", "", "", "three", "four"]  # two connections; then two attempts without one

    def token() -> str:
        found = tokens.pop(0)
        if not found:
            raise RuntimeError("the vault is sealed")
        return found

    with PulsarServer() as server, wireproto.connect(server.url, token=token) as client, client.producer("t") as out:
        out.send(b"a").position(20.0)
        server.links[-1].close()
        assert out.send(b"b").position(20.0) is not None
        assert tokens == ["four"]


def test_what_is_in_a_producer_s_way_is_told_when_time_is_over() -> None:
    def producer(link: Link, ask: Any) -> Any:
        return opened(link, ask) if link.server.count("producer") == 1 else refusal(ask, "AuthorizationError", "not your topic")

    with PulsarServer(producer=producer) as server, wireproto.connect(server.url, delivery_timeout=1.0) as client:
        out = client.producer("t")
        out.send(b"a").position(20.0)
        server.links[-1].close()
        with pytest.raises(TimedOut, match="not your topic"):
            out.send(b"b").position(20.0)
        out.close()


def test_partitions_are_opened_at_a_time_and_none_waits_for_another_to_come_back() -> None:
    """The broker answers none before it was asked for all; after a loss it leaves the first without an answer."""
    came: list[tuple[Link, Any]] = []

    def partitioned(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=3, response="Success")

    def producer(link: Link, ask: Any) -> None:
        came.append((link, ask))
        if len(came) == 3:
            for one, asked in came:
                one.send(opened(one, asked))
        elif len(came) > 3 and not ask.topic.endswith("/t-partition-0"):
            link.send(opened(link, ask))

    with (
        PulsarServer(partitionMetadata=partitioned, producer=producer) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", timeout=20.0, operation_timeout=60.0) as out,
        client.producer("other", timeout=20.0) as other,
    ):
        server.links[-1].close()
        stuck = out.send(b"x", partition=0)
        for one in (out.send(b"x", partition=1), out.send(b"x", partition=2), other.send(b"x", partition=2)):
            assert one.position(20.0) is not None
        assert not stuck.done
        again: list[tuple[Link, Any]] = []
        until(lambda: again.extend(one for one in came[3:] if one[1].topic.endswith("/t-partition-0")) or again)
        link, asked = again[0]
        link.send(opened(link, asked))
        assert stuck.position(20.0) is not None
