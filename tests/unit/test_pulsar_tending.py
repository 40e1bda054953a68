"""Pulsar's reading roles over losses, refusals, moves and growth: partitions come back beside each other, what passes ends no role."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, fed, standing, stored
from wireproto.errors import OptionError, TimedOut
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import AuthorizationError, TopicNotFound

ROLES = ["consumer", "queue", "reader"]
Answer = Callable[[Link, Any], Any]


def topic_of(server: PulsarServer, consumer: int) -> str:
    found: str = next(one.topic for one in server.commands("subscribe") if one.consumer_id == consumer)
    return found


def name_once(link: Link, ask: Any) -> None:
    """The topic's own name as entry 0, to each consumer."""
    if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
        link.message(ask.consumer_id, 0, stored([topic_of(link.server, ask.consumer_id)[-1].encode()]))


def serving(partitions: int = 0, **answers: Answer) -> PulsarServer:
    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=partitions, response="Success")

    usual: dict[str, Answer] = {"subscribe": fed, "ack": acknowledged, "getLastMessageId": standing(100), "flow": name_once}
    return PulsarServer(**(usual | {"partitionMetadata": metadata} | answers))


def opened(client: Any, role: str, **options: Any) -> Any:
    return client.reader("t", **options) if role == "reader" else getattr(client, role)("t", "group", **options)


def values(role: Any, count: int, seconds: float = 20.0) -> list[bytes]:
    """As many values as asked for, whatever the role."""
    found: list[bytes] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        got = role.receive(1.0) if hasattr(role, "receive") else role.poll(1.0)
        if got is not None:
            found += [got.value] if hasattr(got, "ack") else got.values()
    return found


# -- beside each other ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_partitions_are_opened_beside_each_other(role: str) -> None:
    """Nobody is answered before all have asked."""
    waiting: list[tuple[Link, Any]] = []

    def subscribe(link: Link, ask: Any) -> None:
        waiting.append((link, ask))
        if len(waiting) == 5:
            for each, asked in waiting:
                fed(each, asked)

    with serving(5, subscribe=subscribe) as server, wireproto.connect(server.url) as client:
        assert sorted(values(opened(client, role, timeout=20.0), 5)) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("role", ROLES)
def test_a_partition_that_is_not_answered_keeps_no_other_away(role: str) -> None:
    """After a loss the first SUBSCRIBE of five stays unanswered."""
    with serving(5) as server, wireproto.connect(server.url) as client:
        role_ = opened(client, role)
        assert len(values(role_, 5)) == 5
        lost = server.commands("subscribe")
        server.answers["subscribe"] = lambda link, ask: None if ask.topic.endswith("0") else fed(link, ask)
        server.answers["flow"] = again_once
        server.links[-1].close()
        assert sorted(values(role_, 4)) == [b"1", b"2", b"3", b"4"]
        server.wait("subscribe", len(lost) + 5)
        assert server.count("subscribe") == len(lost) + 5


def again_once(link: Link, ask: Any) -> None:
    """As `name_once`, one entry further on."""
    if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
        link.message(ask.consumer_id, 1, stored([topic_of(link.server, ask.consumer_id)[-1].encode()]))


# -- refusals -------------------------------------------------------------------------------------------------------------

PASSING = [
    "UnknownError",
    "MetadataError",
    "AuthenticationError",
    "AuthorizationError",
    "ServiceNotReady",
    "ConsumerBusy",
    "NotAllowedError",
]


@pytest.mark.parametrize("step", ["lookupTopic", "subscribe"])
@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_was_open_outlives_refusals(role: str, step: str) -> None:
    """Whatever they are called: refused so often, then taken back, and nobody is told."""
    refusals: list[str] = []

    def answer(link: Link, ask: Any) -> Any:
        if refusals:
            code = refusals.pop()
            if step == "lookupTopic":
                return api.CommandLookupTopicResponse(request_id=ask.request_id, response="Failed", error=code, message="not now")
            return api.CommandError(request_id=ask.request_id, error=code, message="not now")
        return usual(link, ask)

    with serving() as server, wireproto.connect(server.url) as client:
        usual, server.answers[step] = server.answers[step], answer
        role_ = opened(client, role)
        assert values(role_, 1) == [b"t"]
        refusals += PASSING[:4]
        server.answers["flow"] = again_once
        server.links[-1].close()
        assert values(role_, 1) == [b"t"]
        assert not refusals


@pytest.mark.parametrize("role", ROLES)
def test_a_refusal_that_lasts_is_told_and_tried_on(role: str) -> None:
    """After `timeout`, once; and when it is over the role goes on."""
    refused = threading.Event()

    def subscribe(link: Link, ask: Any) -> Any:
        return (
            api.CommandError(request_id=ask.request_id, error="AuthorizationError", message="not yours")
            if refused.is_set()
            else fed(link, ask)
        )

    with serving(subscribe=subscribe) as server, wireproto.connect(server.url) as client:
        role_ = opened(client, role, timeout=20.0)
        role_._stream._recovery_timeout = 0.5
        assert values(role_, 1) == [b"t"]
        refused.set()
        server.links[-1].close()
        with pytest.raises(AuthorizationError, match="not yours"):
            values(role_, 1)
        refused.clear()
        server.answers["flow"] = again_once
        assert values(role_, 1) == [b"t"]


@pytest.mark.parametrize("role", ROLES)
def test_an_outage_is_never_raised_however_long_it_is(role: str) -> None:
    """Each attempt fails, in the ways of a broker that is not there; polls bring nothing in their time, and the end brings the rest."""
    out = threading.Event()

    def lookup(link: Link, ask: Any) -> Any:
        if not out.is_set():
            return usual(link, ask)
        tried = server.count("lookupTopic")
        if tried % 2:
            link.close()
            return None
        return api.CommandLookupTopicResponse(request_id=ask.request_id, response="Failed", error="ServiceNotReady", message="not now")

    with serving() as server, wireproto.connect(server.url) as client:
        usual, server.answers["lookupTopic"] = server.answers["lookupTopic"], lookup
        role_ = opened(client, role)
        role_._stream._recovery_timeout = 0.0
        assert values(role_, 1) == [b"t"]
        before = server.count("lookupTopic")
        out.set()
        server.links[-1].close()
        deadline = time.monotonic() + 60.0
        while server.count("lookupTopic") < before + 4:
            assert time.monotonic() < deadline
            assert not values(role_, 1, 0.2)
        out.clear()
        server.answers["flow"] = again_once
        assert values(role_, 1, 60.0) == [b"t"]


@pytest.mark.parametrize("role", ROLES)
def test_a_topic_that_is_gone_is_told_at_once(role: str) -> None:
    with serving() as server, wireproto.connect(server.url) as client:
        role_ = opened(client, role)
        assert values(role_, 1) == [b"t"]
        server.answers["subscribe"] = lambda link, ask: api.CommandError(request_id=ask.request_id, error="TopicNotFound", message="gone")
        server.links[-1].close()
        with pytest.raises(TopicNotFound):
            values(role_, 1)


def test_what_is_in_the_way_is_named_when_time_is_over() -> None:
    with (
        serving(subscribe=lambda link, ask: None) as server,
        wireproto.connect(server.url) as client,
        pytest.raises(TimedOut, match="SUBSCRIBE is not answered"),
    ):
        client.consumer("t", "group", timeout=0.5)


# -- moves and growth -----------------------------------------------------------------------------------------------------


def migrating(green: PulsarServer, kind: int) -> Answer:
    def moved(link: Link, ask: Any) -> Any:
        ident = ask.consumer_id if kind else ask.producer_id
        return api.CommandTopicMigrated(resource_id=ident, resource_type=kind, brokerServiceUrl=green.url)  # type: ignore[arg-type]

    return moved


@pytest.mark.parametrize("when", ["later", "instead of an answer"])
@pytest.mark.parametrize("role", ROLES)
def test_a_topic_that_migrates_is_read_where_it_is_now(role: str, when: str) -> None:
    with serving() as green, serving() as blue, wireproto.connect(blue.url) as client:
        if when == "later":
            role_ = opened(client, role)
            assert values(role_, 1) == [b"t"]
            green.answers["flow"] = again_once
            ident = blue.commands("subscribe")[-1].consumer_id
            blue.links[-1].send(migrating(green, 1)(blue.links[-1], api.CommandFlow(consumer_id=ident, messagePermits=1)))
        else:
            blue.answers["subscribe"] = migrating(green, 1)
            role_ = opened(client, role, timeout=20.0)
        assert values(role_, 1) == [b"t"]
        assert green.count("lookupTopic") == green.count("subscribe") == 1
        assert blue.count("subscribe") == 1


@pytest.mark.parametrize("role", ROLES)
def test_partitions_that_a_topic_gets_are_read_from_their_beginning(role: str) -> None:
    count = [1]

    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=count[0], response="Success")

    with serving(partitionMetadata=metadata) as server, wireproto.connect(server.url, metadata_max_age=0.1) as client:
        role_ = opened(client, role, **({"start": wireproto.LATEST} if role == "consumer" else {}))
        assert values(role_, 1) == [b"0"]
        count[0] = 3
        assert sorted(values(role_, 2)) == [b"1", b"2"]
        if role == "consumer":
            assert role_.assignment == {("t", 0), ("t", 1), ("t", 2)}
        begins = [one for one in server.commands("subscribe") if not one.topic.endswith("0")]
        if role == "reader":
            assert {one.start_message_id.entryId for one in begins} == {2**64 - 1}
        else:
            assert {one.initialPosition for one in begins} == {api.CommandSubscribe.Earliest}
        asked = server.count("partitionMetadata")
        server.wait("partitionMetadata", asked + 2)
        assert server.count("subscribe") == 3, "each is opened once"


def test_a_look_for_partitions_that_failed_is_soon_made_again() -> None:
    """An outage when it is due would leave new partitions unread, and unwritten, for as long again: by every role, each with its broker."""
    roles = [*ROLES, "producer"]
    asked: dict[str, list[float]] = {role: [] for role in roles}

    def metadata(role: str) -> Answer:
        def answer(link: Link, ask: Any) -> Any:
            asked[role].append(time.monotonic())
            if len(asked[role]) == 2:
                return api.CommandError(request_id=ask.request_id, error="ServiceNotReady", message="it starts")
            partitions = 1 if len(asked[role]) < 3 else 2
            return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=partitions, response="Success")

        return answer

    with ExitStack() as ends:
        kept = []
        for role in roles:
            server = ends.enter_context(serving(partitionMetadata=metadata(role)))
            client = ends.enter_context(wireproto.connect(server.url, metadata_max_age=3.0))
            kept.append(client.producer("t") if role == "producer" else opened(client, role))
        for role in roles:
            until(lambda times=asked[role]: len(times) >= 4, f"it is looked again by a {role}")
    for role, times in asked.items():
        to_the_failed_one, to_the_next, to_the_usual_one = (later - sooner for sooner, later in pairwise(times[:4]))
        assert to_the_failed_one > 2.9, role
        assert to_the_next < 2.9, role
        assert to_the_usual_one > 2.9, role


# -- what keeps nothing, migrates, or is written ------------------------------------------------------------------------


def three(link: Link, ask: Any) -> None:
    if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
        for number in range(3):
            link.message(ask.consumer_id, number, stored([b"%d" % number]))


@pytest.mark.parametrize("role", ["consumer", "reader"])
def test_ids_of_a_topic_that_keeps_nothing_begin_anew(role: str) -> None:
    """When it is loaded again; nothing that comes is taken for what has come before."""
    name = "non-persistent://public/default/t"
    unknown: Answer = lambda link, ask: api.CommandError(request_id=ask.request_id, error="UnknownError", message="no places here")  # noqa: E731
    with serving(flow=three, getLastMessageId=unknown) as server, wireproto.connect(server.url) as client:
        role_ = client.reader(name) if role == "reader" else client.consumer(name, "group", mode="exclusive")
        assert values(role_, 3) == [b"0", b"1", b"2"]
        server.links[-1].close()
        assert values(role_, 3) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("when", ["later", "instead of an answer"])
def test_a_topic_that_migrates_is_written_where_it_is_now(when: str) -> None:
    with PulsarServer() as green, PulsarServer() as blue, wireproto.connect(blue.url, operation_timeout=1.0) as client:
        out = client.producer("t", batching=False)
        assert out.send(b"a").position(20.0) is not None
        blue.answers["send" if when == "later" else "producer"] = migrating(green, 0)
        if when != "later":
            blue.links[-1].close()
        assert out.send(b"b").position(20.0) is not None
        assert green.count("send") == 1
        out.close()


def test_a_topic_that_has_migrated_when_its_producer_is_opened_is_written_there_at_once() -> None:
    """The broker says so in place of its answer, which is not waited for: that would take all of the call's time."""
    with PulsarServer() as green, PulsarServer(producer=migrating(green, 0)) as blue, wireproto.connect(blue.url) as client:
        with client.producer("t", batching=False, timeout=20.0) as out:
            assert out.send(b"a").position(20.0) is not None
        assert (blue.count("producer"), green.count("producer"), green.count("send")) == (1, 1, 1)


@pytest.mark.parametrize("role", [*ROLES, "producer"])
def test_a_topic_that_has_migrated_grows_where_it_is_now(role: str) -> None:
    """Its old cluster knows nothing of that, and is not asked for the new partitions."""
    count, kind = [1], int(role != "producer")

    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=count[0], response="Success")

    with serving(partitionMetadata=metadata) as green, serving(1) as blue, wireproto.connect(blue.url, metadata_max_age=0.1) as client:
        if role == "producer":
            out = client.producer("t", batching=False)
            blue.answers["send"] = migrating(green, 0)
            out.send(b"x").position(20.0)
            count[0] = 2
            green.wait("producer", 2)
        else:
            role_ = opened(client, role)
            assert values(role_, 1) == [b"0"]
            green.answers["flow"] = again_once
            ident = blue.commands("subscribe")[-1].consumer_id
            blue.links[-1].send(migrating(green, kind)(blue.links[-1], api.CommandFlow(consumer_id=ident, messagePermits=1)))
            assert values(role_, 1) == [b"0"]
            count[0] = 2
            assert values(role_, 1) == [b"1"]
        assert {one.topic[-1] for one in blue.commands("lookupTopic")} == {"0"}


def test_what_migrates_is_a_producer_or_a_consumer_and_not_the_other() -> None:
    """Of a cluster that is left producers go first, and consumers when they have read what is there."""
    with serving() as green, serving() as blue, wireproto.connect(blue.url) as client:
        consumer = client.consumer("t", "group")
        assert values(consumer, 1) == [b"t"]
        out = client.producer("t", batching=False)
        blue.answers["send"] = migrating(green, 0)
        out.send(b"x").position(20.0)
        blue.answers["flow"] = again_once
        for link in blue.links:
            link.close()
        assert values(consumer, 1) == [b"t"]
        assert (blue.count("subscribe"), green.count("subscribe")) == (2, 0)


def refusing(count: list[int], refused: list[str]) -> PulsarServer:
    """Topics have `count` partitions; a producer on one whose name is in `refused` is not made, once."""

    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=count[0], response="Success")

    def producer(link: Link, ask: Any) -> Any:
        if ask.topic in refused:
            refused.remove(ask.topic)
            return api.CommandError(request_id=ask.request_id, error="AuthorizationError", message="not yet")
        return api.CommandProducerSuccess(request_id=ask.request_id, producer_name="p-1")

    return PulsarServer(partitionMetadata=metadata, producer=producer)


def partition_of(server: PulsarServer, send: Any) -> int:
    names = {one.producer_id: one.topic for one in server.commands("producer")}
    return int(names[send.producer_id].rpartition("-")[2])


def test_partitions_that_a_topic_gets_are_written() -> None:
    """Together, once all of them are open: those with a key by the new count, those without in their turn."""
    count, refused = [1], ["persistent://public/default/t-partition-2"]
    with refusing(count, refused) as server, wireproto.connect(server.url, metadata_max_age=0.1, linger=0) as client:
        out = client.producer("t", batch_records=1)
        out.send(b"x", key=b"b").position(20.0)
        count[0] = 3
        server.wait("producer", 3)  # both are asked for, one is refused

        def known() -> bool:
            try:
                return out.send(b"", partition=2).position(20.0) is not None
            except OptionError:
                return False

        until(known, "the topic's partitions are not written")
        assert server.count("producer") == 4, "what was open is not opened again"
        before = server.count("send")
        places = {out.send(b"x", key=key).position(20.0).partition for key in (b"a", b"b", b"c")}  # 97, 98 and 99 by Java's hash
        assert places == {0, 1, 2}
        for _ in range(3):
            out.send(b"x").position(20.0)
        sends = server.commands("send")[before:]
        assert [partition_of(server, one) for one in sends[:3]] == [97 % 3, 98 % 3, 99 % 3]
        assert {partition_of(server, one) for one in sends[3:]} == {0, 1, 2}
        looked = server.count("partitionMetadata")
        server.wait("partitionMetadata", looked + 2)
        assert server.count("producer") == 4
        out.close()
        assert server.count("close_producer") == 3
        assert server.links[0].alive


def test_a_producer_that_closes_while_partitions_open_leaves_none_behind() -> None:
    count: list[int] = [1]
    silent: list[Any] = []
    with refusing(count, []) as server, wireproto.connect(server.url, metadata_max_age=0.1) as client:
        out = client.producer("t")
        server.answers["producer"] = lambda link, ask: silent.append(ask)
        count[0] = 2
        server.wait("producer", 2)
        out.close(5.0)
        server.wait("close_producer", 2)
        assert {one.producer_id for one in server.commands("close_producer")} == {one.producer_id for one in server.commands("producer")}
