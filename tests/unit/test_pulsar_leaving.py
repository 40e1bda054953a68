"""How Pulsar's roles leave: openings that fail or are broken off, ends, records whose time is over, pushes that cannot be read."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
import wireproto.aio
from flow_parts import Quiet
from patience import quickest, until
from pulsar_server import Link, PulsarServer, acknowledged, receipt, stored, subscribed, success
from wireproto import MessageId
from wireproto.errors import Closed, OptionError, TimedOut
from wireproto.flow.sender import Again, SendTimes, Stored
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import consumer as pulsar_consumer
from wireproto.pulsar import message_stream, producer, sending
from wireproto.pulsar.acks import Log
from wireproto.pulsar.codes import AuthorizationError, ProducerBusy
from wireproto.pulsar.message_stream import MessageStream

NEVER = 3600.0
ROLES = ["reader", "consumer", "queue"]


def serving(partitions: int = 0, **answers: Any) -> PulsarServer:
    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=partitions, response="Success")

    def last(link: Link, ask: Any) -> Any:
        return api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id,
            last_message_id=api.MessageIdData(ledgerId=7, entryId=9),
            consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
        )

    usual = {"subscribe": success, "ack": acknowledged, "getLastMessageId": last, "partitionMetadata": metadata}
    return PulsarServer(**(usual | answers))


def opened(client: Any, role: str, **options: Any) -> Any:
    return client.reader("t", **options) if role == "reader" else getattr(client, role)("t", "group", **options)


def hung_up(link: Link) -> bool:
    """Whether the client has closed the connection."""
    return link.sock.fileno() == -1


# -- reading roles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_cannot_be_opened_leaves_what_was_and_waits_a_moment_for_that(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    closing = MessageStream.closing

    def kept(self: MessageStream, deadline: float) -> Any:
        left.append(deadline - time.monotonic())
        return closing(self, deadline)

    def subscribe(link: Link, ask: Any) -> Any:
        if ask.topic.endswith("-0"):
            return success(link, ask)
        return api.CommandError(request_id=ask.request_id, error="AuthorizationError", message="not yours")

    monkeypatch.setattr(MessageStream, "closing", kept)
    with serving(2, subscribe=subscribe) as server, wireproto.connect(server.url) as client:
        with pytest.raises(AuthorizationError):
            opened(client, role, timeout=20.0)
        [seconds] = left
        assert 0.0 < seconds <= 1.0
        open_one = next(one.consumer_id for one in server.commands("subscribe") if one.topic.endswith("-0"))
        until(lambda: open_one in [one.consumer_id for one in server.commands("close_consumer")], "what was open is closed")
        until(lambda: hung_up(server.links[-1]), "its connection is closed")
        assert not hung_up(server.links[0])


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_is_broken_off_while_it_opens_leaves_no_connection(role: str) -> None:
    """SUBSCRIBE unanswered, and whoever waited is cancelled."""

    async def body(server: PulsarServer) -> None:
        async with wireproto.aio.connect(server.url) as client:
            opening = opened(client, role)
            waits = asyncio.ensure_future(opening.receive(20.0) if role == "queue" else opening.poll(20.0))
            await asyncio.to_thread(server.wait, "subscribe")
            await opening.close(5.0)
            await asyncio.to_thread(until, lambda: hung_up(server.links[-1]), "its connection is closed")
            assert not hung_up(server.links[0])
            await asyncio.gather(waits, return_exceptions=True)

    with serving(subscribe=lambda link, ask: None) as server:
        asyncio.run(body(server))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_is_closed_leaves_no_connection(role: str) -> None:
    with serving(2) as server, wireproto.connect(server.url) as client:
        made = opened(client, role)
        assert not hung_up(server.links[-1])
        made.close()
        until(lambda: hung_up(server.links[-1]), "its connection is closed")
        assert not hung_up(server.links[0])
        assert server.count("close_consumer") == 2


def closed_by(made: Any, call: Callable[[], object]) -> list[Any]:
    """What a call ended with that another thread closed the role under."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(call())
        except BaseException as why:
            came.append(why)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: in_use(made), "the call has begun")
    made.close(5.0)
    thread.join(10.0)
    assert not thread.is_alive(), "the call goes on though its role is closed"
    return came


def in_use(made: Any) -> bool:
    try:
        made._only.wait(0.0)
    except TimedOut:
        return True
    return False


@pytest.mark.parametrize("call", ["commit", "committed", "seek"])
def test_a_close_ends_a_call_that_waits_for_a_partition_which_does_not_open(call: str) -> None:
    """And nobody subscribes again for that call."""
    with serving() as server, wireproto.connect(server.url) as client:
        made = opened(client, "consumer")
        server.answers["subscribe"] = lambda link, ask: None
        server.links[-1].close()
        server.wait("subscribe", 2)
        calls = {
            "commit": lambda: made.commit({("t", -1): MessageId("t", -1, 7, 1, after=True)}, timeout=NEVER),
            "committed": lambda: made.committed(timeout=NEVER),
            "seek": lambda: made.seek(wireproto.EARLIEST, timeout=NEVER),
        }
        [end] = closed_by(made, calls[call])
        assert isinstance(end, Closed)
        assert server.count("subscribe") == 2


def test_a_close_ends_a_commit_that_waits_to_learn_whether_it_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_stream, "ACTIVE_STATE_TIMEOUT", NEVER)
    with serving() as server, wireproto.connect(server.url) as client:
        made = opened(client, "consumer")
        [end] = closed_by(made, lambda: made.commit({("t", -1): MessageId("t", -1, 7, 1, after=True)}, timeout=NEVER))
        assert isinstance(end, Closed)


def test_an_automatic_commit_is_made_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [0.0]
    monkeypatch.setattr(pulsar_consumer, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
    numbers = itertools.count()
    with serving() as server, wireproto.connect(server.url) as client:
        options: dict[str, Any] = {"mode": "exclusive", "auto_commit": True, "auto_commit_interval": 1000.0}
        with client.consumer("t", "group", **options) as consumer:

            def acks_after(seconds: float) -> int:
                """How many commits there were, once a record was polled so much later."""
                ahead[0] += seconds
                link, number = server.links[-1], next(numbers)
                link.message(server.commands("subscribe")[-1].consumer_id, number, stored([b"x"], number))
                assert consumer.poll(20.0) is not None
                return server.count("ack")

            assert [acks_after(0.0), acks_after(900.0), acks_after(101.0)] == [0, 0, 1]
            assert [acks_after(0.0), acks_after(800.0)] == [1, 1], "an interval since the last one"
            consumer.commit()
            assert [acks_after(900.0), acks_after(101.0), acks_after(0.0)] == [2, 3, 3], "whoever made it"


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (MessageId("t", 0, 7, 3, 1, after=True), (7, 3, 1, [0b100])),
        (MessageId("t", 0, 7, 3, 1), (7, 3, 0, [0b110])),
        (MessageId("t", 0, 7, 3, 2, after=True), (7, 3, -1, [])),
        (MessageId("t", 0, 7, 3, after=True), (7, 3, -1, [])),
        (MessageId("t", 0, 7, 3), (7, 2, -1, [])),
        (MessageId("t", 0, 7, 3, 0), (7, 2, -1, [])),
        (MessageId("t", 0, 7, 0), None),
        (MessageId("t", 0, 7, -1, after=True), None),
        (MessageId("t", 0, -1, -1), None),
    ],
    ids=str,
)
def test_what_a_commit_names(place: MessageId, named: Any) -> None:
    """Of a partition that this member was handed the batch 7:3 of, three messages."""
    found = Log(sizes={(7, 3): 3}).target(place)
    assert (found and (found.ledgerId, found.entryId, found.batch_index, list(found.ack_set))) == named
    if found is not None:
        assert found.batch_size == (3 if found.ack_set else 0)


@pytest.mark.parametrize("place", [MessageId("t", 0, 7, 4, 1), MessageId("t", 0, 7, 4, 0, after=True)], ids=str)
def test_a_place_within_a_batch_that_was_not_handed_out_cannot_be_committed(place: MessageId) -> None:
    """Its size is not known, and with a wrong one the broker would take it for another set of messages."""
    with serving() as server, wireproto.connect(server.url) as client:
        consumer = client.consumer("t", "group", mode="exclusive")
        with pytest.raises(OptionError, match="the batch's size is not known"):
            consumer.commit({("t", -1): MessageId("t", -1, place.ledger, place.entry, place.index, after=place.after)})
        assert server.count("ack") == 0


@pytest.mark.parametrize(("given", "named"), [([(7, 8), (7, 9), (8, 0)], [(7, 9)]), ([(8, 0)], [])], ids=["it was handed", "it was not"])
def test_a_commit_at_a_ledgers_first_entry_names_the_entry_before_it(given: list[tuple[int, int]], named: list[tuple[int, int]]) -> None:
    """It lies in another ledger; where this member was not handed it, nothing is committed, and `committed` does not say so."""
    with serving(subscribe=subscribed) as server, wireproto.connect(server.url) as client:
        consumer = client.consumer("t", "group")
        feeds = server.wait("flow").consumer_id
        for ledger, entry in given:
            server.links[-1].message(feeds, entry, stored([b"v"]), ledger)
        got = 0
        while got < len(given):
            got += len(consumer.poll(20.0) or ())
        place = MessageId("t", -1, 8, 0)
        consumer.commit({("t", -1): place})
        assert [(ack.message_id[0].ledgerId, ack.message_id[0].entryId) for ack in server.commands("ack")] == named
        assert (consumer.committed()[("t", -1)] == place) == bool(named)


# -- producers ------------------------------------------------------------------------------------------------------------


def test_an_entry_fails_when_its_delivery_time_is_over_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], time_ns=time.time_ns, time=time.time)
    monkeypatch.setattr(sending, "time", clock)
    with serving(send=lambda link, ask: None) as server, wireproto.connect(server.url, delivery_timeout=1000.0) as client:
        out = client.producer("t", batching=False)
        sent = out.send(b"x")
        server.wait("send")
        ahead[0] = 900.0
        out._sender.tick()
        assert not sent.done
        ahead[0] = 1001.0
        out._sender.tick()
        with pytest.raises(TimedOut, match="not acknowledged within 1000 s"):
            sent.position(20.0)
        out.close(0.0)


def test_who_waits_for_a_place_without_saying_how_long_waits_for_the_delivery_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a second more, in which that is told as the record's outcome."""
    with serving(send=lambda link, ask: None) as server, wireproto.connect(server.url, delivery_timeout=1000.0) as client:
        out = client.producer("t", batching=False)
        sent = out.send(b"x")
        out._sender._clock = lambda: time.monotonic() - 1000.9

        def waits() -> None:
            with pytest.raises(TimedOut):
                sent.position()

        assert 0.05 < quickest(waits, 3) < 0.9
        out._sender._clock = time.monotonic
        server.answers["send"] = lambda link, ask: receipt(ask, 0)
        server.links[-1].close()


def test_a_close_waits_once_for_all_partitions_whose_brokers_do_not_answer() -> None:
    partitions = 8
    with serving(partitions, close_producer=lambda link, ask: None) as server, wireproto.connect(server.url) as client:
        out = client.producer("t")
        begun = time.monotonic()
        out.close(0.2)
        assert time.monotonic() - begun < partitions * 0.5 / 2
        server.wait("close_producer", partitions)


@pytest.mark.parametrize("timeout", [0.0, 0.2])
@pytest.mark.parametrize("waiting", [False, True])
def test_a_close_of_a_producer_keeps_its_time_though_no_broker_answers(timeout: float, waiting: bool) -> None:
    """It took half a second more; that it is closed is said all the same."""

    def closed() -> None:
        out = client.producer("t")
        if waiting:
            out.send(b"x")
        took.append(time.monotonic())
        with suppress(TimedOut):
            out.close(timeout)
        took[-1] = time.monotonic() - took[-1]

    took: list[float] = []
    with serving(2, close_producer=lambda link, ask: None, send=lambda link, ask: None) as server, wireproto.connect(server.url) as client:
        quickest(closed, 3)
        assert min(took) < timeout + 0.3
        server.wait("close_producer", 2 * 3)


@pytest.mark.parametrize("topic", ["t", None])
def test_what_is_sent_by_a_producer_that_nobody_holds_goes_out_at_the_client_s_close(topic: str | None) -> None:
    with serving() as server, wireproto.connect(server.url, linger=NEVER) as client:
        more = {} if topic else {"topic": "u"}
        client.producer(topic).send(b"x", **more)
        gc.collect()
        client.close()
        assert server.count("send") == 1


def forgotten(producer: weakref.ref[Any]) -> bool:
    gc.collect()
    return producer() is None


@pytest.mark.parametrize("times", [1, 3])
def test_a_producer_that_was_closed_is_not_kept_by_the_connection_it_used(times: int) -> None:
    """However often it was opened there: the connection lives as long as its client."""
    with serving() as server, wireproto.connect(server.url) as client, client.producer("other") as other:
        out = client.producer("t")
        number = server.commands("producer")[-1].producer_id
        for opened in range(2, times + 1):
            server.links[-1].send(api.CommandCloseProducer(producer_id=number, request_id=2**64 - 1))
            server.wait("producer", opened + 1)
        out.send(b"x").position(timeout=20.0)
        out.close()
        closed = weakref.ref(out)
        del out
        until(lambda: forgotten(closed), "a closed producer is kept")
        other.send(b"y").position(timeout=20.0)


def test_a_producer_that_was_closed_is_not_kept_by_the_timer_of_what_it_sent() -> None:
    """Which is set to the end of a batch's time when its receipt takes longer than its linger."""
    with serving(send=lambda link, ask: None) as server, wireproto.connect(server.url) as client, client.producer("other"):
        out = client.producer("t")
        sent = out.send(b"x")
        ask = server.wait("send")
        out._sender.tick()
        server.links[-1].send(receipt(ask, 0))
        sent.position(timeout=20.0)
        out.close()
        closed = weakref.ref(out)
        del out, sent
        until(lambda: forgotten(closed), "a closed producer is kept")


def test_a_sender_that_producers_leave_has_a_timer_for_the_batches_of_others_alone() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    one, other = wire.put(1, "one", full=True), wire.put(2, "other", full=True)
    wire.sender.drain()
    wire.sender.answered([(one, Stored(0))])
    wire.sender.leave(["one"])
    assert math.inf not in wire.alarms
    wire.sender.answered([(other, Stored(0))])
    wire.sender.leave()
    assert wire.alarms[-1] == math.inf
    wire.now = 2.0
    wire.put(3, "other")
    assert wire.alarms[-1] == 3.0, "it is set again"


class Partition:
    """A key of a sender."""


def test_a_sender_that_a_partition_leaves_forgets_it() -> None:
    """Whatever that waited for: a link, a pause, the end of its open batch's time."""
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=9.0))
    unlinked, paused, opened, due = keys = [Partition(), Partition(), Partition(), Partition()]
    wire.put(1, paused, full=True)
    wire.sender.drain()
    wire.sender.answered([(batch, Again(ProducerBusy("busy"))) for batch in wire.sent[-1]])
    wire.link = None
    wire.put(2, unlinked, full=True)
    wire.sender.drain()
    wire.put(3, opened)
    wire.sender.release([wire.sender.current(opened)])
    wire.put(4, due, full=True)
    wire.sender.fail(keys, Closed("gone"))
    for seen in (wire.sent, wire.told, wire.free, wire.wanted):
        seen.clear()
    left = [weakref.ref(key) for key in keys]
    wire.sender.leave(keys)
    del unlinked, paused, opened, due, keys
    gc.collect()
    assert [key() for key in left] == [None] * 4


def test_a_producer_that_is_refused_is_not_kept_by_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    real = producer.PulsarProducer.__init__

    def seen(self: Any, *args: Any) -> None:
        made.append(weakref.ref(self))
        real(self, *args)

    monkeypatch.setattr(producer.PulsarProducer, "__init__", seen)
    with (
        serving(producer=lambda link, ask: api.CommandError(request_id=ask.request_id, error="ProducerBusy", message="busy")) as server,
        wireproto.connect(server.url) as client,
    ):
        with pytest.raises(ProducerBusy):
            client.producer("t", producer_name="p")
        until(lambda: forgotten(made[0]), "a refused producer is kept")


def test_each_producer_of_a_connection_hears_of_its_end() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.producer("t") as one, client.producer("u") as two:
        client.producer("v").close()
        opened = server.count("producer")
        server.links[-1].close()
        server.wait("producer", opened + 2)
        for out in (one, two):
            out.send(b"x").position(timeout=20.0)


def test_a_topic_that_migrates_to_no_address_is_written_where_it_is() -> None:
    def moved(link: Link, ask: Any) -> Any:
        if server.count("producer") > 1:
            return receipt(ask, 5)
        return api.CommandTopicMigrated(resource_id=ask.producer_id, resource_type=0, brokerServiceUrl="no address")  # type: ignore[arg-type]

    with serving(send=moved) as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as out:
        assert out.send(b"a").position(20.0).entry == 5
        assert server.count("producer") == 2


# -- what cannot be read --------------------------------------------------------------------------------------------------


def lacking(name: str, command: Any = None) -> bytes:
    """A push whose command lacks what it must have."""
    base = api.BaseCommand(type=name.upper())  # type: ignore[arg-type]
    if command is not None:
        getattr(base, name).CopyFrom(command)
    body = base.SerializePartialToString()
    return (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("role", "push", "text"),
    [
        (None, lambda ident: lacking("auth_challenge"), "a command of type 36 without its body"),
        ("producer", lambda ident: lacking("close_producer", api.CommandCloseProducer(producer_id=ident)), "close_producer lacks"),
        ("consumer", lambda ident: lacking("close_consumer", api.CommandCloseConsumer(consumer_id=ident)), "close_consumer lacks"),
    ],
    ids=["the client", "a producer", "a consumer"],
)
def test_a_push_that_cannot_be_read_ends_its_connection(role: str | None, push: Callable[[int], bytes], text: str) -> None:
    with serving() as server, wireproto.connect(server.url) as client:
        made = None if role is None else client.producer("t") if role == "producer" else opened(client, role, mode="exclusive")
        ident = 0
        if role is not None:
            [command] = server.commands("producer" if role == "producer" else "subscribe")
            ident = getattr(command, f"{role}_id")
        link, conn = server.links[-1], client.loop.connections[-1]
        why: list[str] = []
        conn.on_lost(lambda error: why.append(str(error)))
        link.sock.sendall(push(ident))
        until(lambda: (role != "consumer" or made.poll(0.01) is None) and why and hung_up(link), "the connection is closed")
        assert text in why[0]
        if role == "producer":
            assert made.send(b"x").position(20.0) is not None
        elif role == "consumer":
            until(lambda: made.poll(0.05) is None and server.count("subscribe") == 2, "it is opened again")
        else:
            assert client.broker_info().server_version == "a string"
