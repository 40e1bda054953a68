"""Coming back: what a broker's threads leave behind, answers that take longer than a poll, and a topic that moves while it is opened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, receipt, subscribed
from wireproto import EARLIEST, AtTime, MessageId
from wireproto._codec import PulsarBatchBuilder
from wireproto.errors import Revoked
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import ServiceNotReady
from wireproto.pulsar.frames import encode
from wireproto.pulsar.sending import PulsarSender

VALUES = [b"value 0", b"value 1", b"value 2"]


def feed(link: Link, flow: Any) -> None:
    """Entries 0, 1 and 2, once a consumer."""
    if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) > 1:
        return
    for number, value in enumerate(VALUES):
        builder = PulsarBatchBuilder("p", batched=False)
        builder.append(value)
        send = b"".join(builder.finish(1, number, 1000 + number))
        place = api.MessageIdData(ledgerId=7, entryId=number)
        frame = encode(api.CommandMessage(consumer_id=flow.consumer_id, message_id=place)) + send[4 + int.from_bytes(send[:4], "big") :]
        link.sock.sendall(len(frame).to_bytes(4, "big") + frame)


def success(link: Link, ask: Any) -> Any:
    return api.CommandSuccess(request_id=ask.request_id)


def last(link: Link, ask: Any) -> Any:
    return api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=7, entryId=2),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
    )


def take(poll: Callable[[float], Any], wanted: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    until = time.monotonic() + 20.0
    while len(found) < wanted and time.monotonic() < until:
        batch = poll(0.1)
        found += batch.values() if batch is not None else []
    return found


def test_a_reader_that_comes_back_is_no_heir_of_its_former_subscription() -> None:
    """The broker feeds no consumer of a subscription that it is about to let go, which it knows by its name."""
    with PulsarServer(subscribe=subscribed, getLastMessageId=last) as server:

        def fed(link: Link, flow: Any) -> None:
            asked = server.commands("subscribe")
            mine = next(one.subscription for one in asked if one.consumer_id == flow.consumer_id)
            if [one.subscription for one in asked].count(mine) == 1:
                feed(link, flow)

        server.answers["flow"] = fed
        with wireproto.connect(server.url) as client, client.reader("t") as reader:
            assert take(reader.poll, 3) == VALUES
            reader.seek(EARLIEST)
            assert take(reader.poll, 3) == VALUES
            server.links[-1].close()
            reader.poll(0.1)
            reader.seek(EARLIEST)
            assert take(reader.poll, 3) == VALUES


@pytest.mark.parametrize("late", ["lookupTopic", "subscribe"])
@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_an_answer_that_takes_longer_than_a_poll_is_waited_for(role: str, late: str) -> None:
    """After a loss: polls of 20 ms, and an answer that comes after several of them. Look-up and SUBSCRIBE are sent once."""
    held: list[Callable[[], None]] = []
    with PulsarServer(subscribe=subscribed, getLastMessageId=last) as server:
        at_once = server.answers[late]

        def fed(link: Link, flow: Any) -> None:
            if server.count("subscribe") > 1:  # nothing before the loss: it would come again, or be handed out while it is waited for
                feed(link, flow)

        server.answers["flow"] = fed

        def later(link: Link, ask: Any) -> Any:
            if len(server.commands("subscribe")) <= (late == "subscribe"):
                return at_once(link, ask)
            held.append(lambda: link.send(success(link, ask) if late == "subscribe" else at_once(link, ask)))
            return None

        server.answers[late] = later
        with wireproto.connect(server.url) as client:
            opened: Any = client.reader("t") if role == "reader" else getattr(client, role)("t", "group")
            brief = opened.receive if role == "queue" else opened.poll
            asked = server.count(late)
            server.links[-1].close()
            until = time.monotonic() + 20.0
            while not held and time.monotonic() < until:
                brief(0.02)
            for _ in range(5):
                brief(0.02)
            if role == "consumer":  # failover: the broker may say so before it answers SUBSCRIBE
                ident = server.commands("subscribe")[-1].consumer_id
                if late == "subscribe":
                    server.links[-1].send(api.CommandActiveConsumerChange(consumer_id=ident, is_active=True))
                    brief(0.02)
            for answer in held:
                answer()
            found = None
            while found is None and time.monotonic() < until:
                found = brief(0.02)
            assert (found.value if role == "queue" else found.values()[0]) == b"value 0"
            if role == "consumer" and late == "subscribe":
                assert opened.assignment == {("t", -1)}
            assert server.count(late) == asked + 1
            assert server.count("close_consumer") == 0


def test_a_producer_that_is_closed_while_it_opens_is_opened_again() -> None:
    """A topic unloaded at that moment: CLOSE_PRODUCER, then PRODUCER_SUCCESS; what is sent to it then nobody ever answers."""
    stored: list[int] = []

    def producer(link: Link, ask: Any) -> Any:
        opened = api.CommandProducerSuccess(request_id=ask.request_id, producer_name="p-1")
        closed = api.CommandCloseProducer(producer_id=ask.producer_id, request_id=2**64 - 1)
        return [closed, opened] if link.server.count("producer") in (1, 3) else opened

    def send(link: Link, sent: Any) -> Any:
        if link.server.count("producer") in (1, 3):
            return None
        if link.server.count("producer") == 2:
            return api.CommandCloseProducer(producer_id=sent.producer_id, request_id=2**64 - 1)
        stored.append(sent.sequence_id)
        return receipt(sent, sent.sequence_id)

    with (
        PulsarServer(producer=producer, send=send) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batching=False, delivery_timeout=20.0) as out,
    ):
        assert [out.send(b"%d" % number).position(20.0).entry for number in range(3)] == [0, 1, 2]
        assert stored == [0, 1, 2]
        assert server.count("producer") == 4


def test_a_batch_whose_thread_was_held_up_over_an_unload_leaves_behind_those_that_are_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken for the producer before: on the same connection, the one after would store it first."""
    taken, go = threading.Event(), threading.Event()
    transmit = PulsarSender.transmit

    def held_up(self: PulsarSender, link: Any, batches: Any) -> None:
        if batches[0].sequence == 1 and not taken.is_set():
            taken.set()
            assert go.wait(30.0)
        transmit(self, link, batches)

    monkeypatch.setattr(PulsarSender, "transmit", held_up)
    stored: list[tuple[int, int]] = []

    def send(link: Link, sent: Any) -> Any:
        opened = link.server.count("producer")
        stored.append((opened, sent.sequence_id))
        return receipt(sent, sent.sequence_id) if opened == 2 else None

    with (
        PulsarServer(send=send) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batching=False, delivery_timeout=60.0) as out,
    ):
        first = out.send(b"0")
        threading.Thread(target=lambda: out.send(b"1").position(30.0), daemon=True).start()
        assert taken.wait(30.0)
        (partition,) = out._sender._wire._partitions.values()  # type: ignore[attr-defined]
        ident = server.commands("producer")[0].producer_id
        until(lambda: server.count("send") == 1)
        server.links[-1].send(api.CommandCloseProducer(producer_id=ident, request_id=2**64 - 1))
        until(lambda: partition.epoch == 2)
        go.set()
        assert first.position(30.0).entry == 0
        out.flush(30.0)
    assert [number for opened, number in stored if opened == 2] == [0, 1]


@contextmanager
def unready(refusals: int, silence: threading.Event) -> Iterator[tuple[str, list[str]]]:
    """An admin interface that refuses so often, and is silent after that until told; its URL, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            asked.append(self.path)
            ready = len(asked) > refusals
            if ready:
                silence.wait(60.0)
            self.send_response(204 if ready else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{web.server_port}", asked
        finally:
            silence.set()
            web.shutdown()


def test_an_admin_interface_that_is_not_ready_is_asked_again() -> None:
    silence = threading.Event()
    silence.set()
    with unready(2, silence) as (url, asked), PulsarServer() as server, wireproto.connect(server.url, admin=url) as client:
        client.admin().delete_topic("t", timeout=20.0)
        assert asked == ["/admin/v2/persistent/public/default/t?force=true"] * 3


@pytest.mark.parametrize("refusals", [2, 1000])
def test_an_admin_interface_that_stays_so_is_told(refusals: int) -> None:
    """Also where it does not answer in the end."""
    with (
        unready(refusals, threading.Event()) as (url, asked),
        PulsarServer() as server,
        wireproto.connect(server.url, admin=url) as client,
    ):
        with pytest.raises(ServiceNotReady):
            client.admin().delete_topic("t", timeout=2.0)
        assert len(asked) > 2


def test_a_subscription_that_begins_at_a_time_loses_nothing_when_its_broker_is_slow() -> None:
    """SUBSCRIBE says how many seconds back from when the broker comes to it: each attempt anew, with room for the wait."""
    moment = int(time.time() * 1000) - 5000
    begins: list[float] = []

    def subscribe(link: Link, ask: Any) -> Any:
        begins.append(time.time() + 29.0 - ask.start_message_rollback_duration_sec)  # as a broker that comes to it 29 s later
        if link.server.count("subscribe") == 1:
            return api.CommandError(request_id=ask.request_id, error="ServiceNotReady", message="the topic is being loaded")
        return success(link, ask)

    with PulsarServer(subscribe=subscribe) as server, wireproto.connect(server.url) as client:
        client.consumer("t", "group", start=AtTime(moment), mode="exclusive", timeout=20.0).close()
    assert len(begins) == 2
    assert max(begins) * 1000 <= moment


def test_a_member_that_nobody_told_that_it_lost_a_partition_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow broker has answered SUBSCRIBE and not said yet which of the members it feeds."""
    monkeypatch.setattr("wireproto.pulsar.message_stream.ACTIVE_STATE_TIMEOUT", 0.2)
    place = MessageId("t", -1, 7, 2, after=True)

    def ack(link: Link, asked: Any) -> Any:
        return api.CommandAckResponse(consumer_id=asked.consumer_id, request_id=asked.request_id)

    with (
        PulsarServer(subscribe=subscribed, ack=ack) as server,
        wireproto.connect(server.url) as client,
        client.consumer("t", "group") as consumer,
    ):
        consumer.commit({("t", -1): place}, timeout=20.0)
        assert server.commands("ack")[-1].message_id[0].entryId == 2
        ident = server.commands("subscribe")[-1].consumer_id
        server.links[-1].send(api.CommandActiveConsumerChange(consumer_id=ident, is_active=True))
        server.links[-1].send(api.CommandActiveConsumerChange(consumer_id=ident, is_active=False))
        until = time.monotonic() + 20.0
        while consumer.assignment and time.monotonic() < until:
            consumer.poll(0.02)
        with pytest.raises(Revoked):
            consumer.commit({("t", -1): place}, timeout=20.0)
