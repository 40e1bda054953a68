"""Pulsar's client against a scripted broker: redirects, proxies, refusals, receipts out of order, silence."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

import wireproto
from patience import LATE
from pulsar_server import Link, PulsarServer, metadata_of, receipt
from wireproto import LATEST
from wireproto._codec import PulsarBatchBuilder
from wireproto.errors import (
    AuthError,
    BufferFull,
    ChecksumMismatch,
    Closed,
    ConnectError,
    OptionError,
    RoleUnsupported,
    TimedOut,
    ValueUnsupported,
)
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import ConsumerBusy, ProducerFenced, ServiceNotReady, TopicNotFound, TopicTerminatedError
from wireproto.pulsar.frames import encode


def test_a_redirect_is_followed_with_its_authority() -> None:
    with PulsarServer() as owner:
        ask_there = {"brokerServiceUrl": owner.url, "response": "Redirect", "authoritative": True}
        with (
            PulsarServer(lookupTopic=lambda link, ask: link.server.here(ask, **ask_there)) as first,
            wireproto.connect(first.url) as client,
            client.producer("t") as producer,
        ):
            producer.send(b"x").position(20)
        assert [ask.authoritative for ask in first.commands("lookupTopic")] == [False]
        assert [ask.authoritative for ask in owner.commands("lookupTopic")] == [True]
        assert owner.count("send") == 1
        assert first.count("send") == 0


def test_redirects_in_a_circle_end() -> None:
    answers: Any = {"lookupTopic": lambda link, ask: link.server.here(ask, response="Redirect")}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        with pytest.raises(ServiceNotReady, match="redirects"):
            client.cluster.lookup.broker("persistent://public/default/t", time.monotonic() + 5.0)
        assert server.count("lookupTopic") == 20


def test_behind_a_proxy_the_broker_is_named_in_connect() -> None:
    hidden = {"brokerServiceUrl": "pulsar://hidden.example:6650", "proxy_through_service_url": True}
    with (
        PulsarServer(lookupTopic=lambda link, ask: link.server.here(ask, **hidden)) as proxy,
        wireproto.connect(proxy.url) as client,
        client.producer("t") as producer,
    ):
        producer.send(b"x").position(20)
        assert [link.connect.proxy_to_broker_url for link in proxy.links] == ["", "hidden.example:6650"]


def test_refused_credentials_are_told_at_once_and_not_shown() -> None:
    def refuse(link: Link, ask: Any) -> Any:
        assert ask.auth_method_name == "token"
        assert ask.auth_data == b"s3cret"
        return api.CommandError(request_id=2**64 - 1, error="AuthenticationError", message="expired")

    with PulsarServer(connect=refuse) as server, pytest.raises(AuthError, match="expired") as caught:
        wireproto.connect(server.url, token="s3cret")
    assert "s3cret" not in str(caught.value)


def test_a_challenge_during_connect_is_answered() -> None:
    challenge = api.CommandAuthChallenge(challenge=api.AuthData(auth_method_name="token", auth_data=b"again"))
    answers: Any = {"connect": lambda link, ask: challenge, "authResponse": PulsarServer._connected}
    tokens = iter([b"first", b"second"])
    with PulsarServer(**answers) as server, wireproto.connect(server.url, token=lambda: next(tokens)):
        assert server.commands("authResponse")[0].response.auth_data == b"second"


def test_a_broker_that_never_answers_holds_nobody_beyond_the_timeout() -> None:
    with PulsarServer(connect=lambda link, ask: None) as server:
        begun = time.monotonic()
        with pytest.raises(TimedOut):
            wireproto.connect(server.url, timeout=0.3)
        assert time.monotonic() - begun < 5.0
    with PulsarServer(producer=lambda link, ask: None) as server, wireproto.connect(server.url) as client:
        begun = time.monotonic()
        with pytest.raises(TimedOut):
            client.producer("t", timeout=0.3)
        assert time.monotonic() - begun < 5.0
        until = time.monotonic() + 5.0
        while not server.count("close_producer"):  # the producer may exist by now
            assert time.monotonic() < until
            time.sleep(0.01)


def test_receipts_are_matched_in_order_and_repeats_ignored() -> None:
    def twice(link: Link, send: Any) -> Any:
        return [receipt(send, send.sequence_id), receipt(send, 99)]

    with (
        PulsarServer(send=twice) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batching=False) as producer,
    ):
        places = [producer.send(b"%d" % number) for number in range(5)]
        assert [place.position(20).entry for place in places] == [0, 1, 2, 3, 4]


def test_who_waits_for_a_receipt_takes_it_in_though_the_io_thread_is_busy() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        go_on.wait(60.0)

    with PulsarServer() as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as out:
        client.loop.call_soon(hold)
        assert busy.wait(20.0)
        try:
            assert [out.send(b"x").position(20.0).entry for _ in range(3)] == [1, 2, 3]
        finally:
            go_on.set()


def test_a_receipt_for_something_later_drops_the_connection_and_all_is_sent_again() -> None:
    def astray(link: Link, send: Any) -> Any:
        if len(link.server.commands("producer")) == 1:
            return receipt(send, 5) if send.sequence_id == 2 else None
        return receipt(send, send.sequence_id)

    with PulsarServer(send=astray) as server, wireproto.connect(server.url) as client:
        with client.producer("t", batching=False) as producer:
            places = [producer.send(b"%d" % number) for number in range(3)]
            assert [place.position(10).entry for place in places] == [0, 1, 2]
        first, again = server.commands("producer")
        assert (again.producer_name, again.producer_id, again.epoch) == ("p-1", first.producer_id, 1)
        assert [send.sequence_id for send in server.commands("send")] == [0, 1, 2, 0, 1, 2]


def test_a_closed_producer_comes_back_and_sends_what_is_pending_in_order() -> None:
    def close_once(link: Link, send: Any) -> Any:
        if len(link.server.commands("producer")) == 1:
            return api.CommandCloseProducer(producer_id=send.producer_id, request_id=2**64 - 1) if send.sequence_id == 4 else None
        return receipt(send, send.sequence_id)

    with (
        PulsarServer(send=close_once) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batching=False) as producer,
    ):
        places = [producer.send(b"%d" % number) for number in range(5)]
        assert [place.position(10).entry for place in places] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("name", "kind"), [("TopicTerminatedError", TopicTerminatedError), ("ProducerFenced", ProducerFenced)])
def test_a_producer_that_cannot_go_on_fails_everything(name: str, kind: type[Exception]) -> None:
    def refuse(link: Link, send: Any) -> Any:
        """Both, when both are there: behind the first refusal the producer takes nothing more."""
        if send.sequence_id == 0:
            return None
        return [api.CommandSendError(producer_id=send.producer_id, sequence_id=one, error=name, message="no more") for one in (0, 1)]

    with PulsarServer(send=refuse) as server, wireproto.connect(server.url) as client:
        producer = client.producer("t", batching=False)
        one, two = producer.send(b"1"), producer.send(b"2")
        for lost in (one, two):
            with pytest.raises(kind, match="no more"):
                lost.position(20)
        with pytest.raises(kind):
            producer.send(b"3")
        producer.close()
        assert client.cluster.budget.used == 0


def test_the_send_buffer_is_bounded() -> None:
    with PulsarServer(send=lambda link, send: None) as server, wireproto.connect(server.url, buffer_memory=1 << 16) as client:
        producer = client.producer("t", delivery_timeout=3.0)  # longer than a late machine takes to find no room
        producer.send(b"x" * 60_000)
        begun = time.monotonic()
        with pytest.raises(BufferFull):
            producer.send(b"x" * 60_000, timeout=0.2)
        assert time.monotonic() - begun < 0.2 + LATE
        with pytest.raises(TimedOut):
            producer.flush(10.0)
        producer.send(b"y", timeout=0.2)
        with pytest.raises(TimedOut):
            producer.close(10.0)
        assert client.cluster.budget.used == 0


def test_what_cannot_be_carried_is_refused_before_anything_is_sent() -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client, client.producer("t") as producer:
        for wrong in (
            {"value": b"x" * ((1 << 20) + 1)},
            {"value": b"", "headers": {"a": None}},
            {"value": b"", "headers": [("a", b"1"), ("a", b"1")]},
            {"value": b"", "headers": {"a": b"\xff"}},
            {"value": b"", "timestamp": 0},
            {"value": "text"},
        ):
            with pytest.raises(ValueUnsupported):
                producer.send(**wrong)
        with pytest.raises(OptionError):
            producer.send(b"", partition=3)
        producer.flush()
        assert server.count("send") == 0
        assert client.cluster.budget.used == 0


def test_a_record_that_goes_alone_may_be_as_large_as_it_packs() -> None:
    """As Java sends it: the broker takes what is packed, however large it was."""
    with (
        PulsarServer() as server,
        wireproto.connect(server.url) as client,
        client.producer("t", compression="zstd", batching=False) as producer,
    ):
        assert producer.send(bytes(3 << 20)).position(20.0) is not None
        meta, payload = metadata_of(server.entries[0])
        assert (meta.uncompressed_size, meta.compression) == (3 << 20, api.ZSTD)
        assert len(payload) < 1 << 20
        with pytest.raises(ValueUnsupported, match="packed"):
            producer.send(random.Random(1).randbytes(2 << 20)).position(20.0)  # which nothing packs
        assert server.count("send") == 1


def test_an_unknown_topic_and_a_role_that_is_not_there() -> None:
    def missing(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, response="Failed", error="TopicNotFound")

    with PulsarServer(partitionMetadata=missing) as server, wireproto.connect(server.url) as client:
        with pytest.raises(TopicNotFound):
            client.reader("t")
        with pytest.raises(RoleUnsupported) as caught:
            client.tree()
        assert caught.value.nearest == "admin"


def test_another_protocol_behind_the_port_is_told() -> None:
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def web() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(4096)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=web, daemon=True).start()
        with pytest.raises(ConnectError):
            wireproto.connect(f"pulsar://127.0.0.1:{listener.getsockname()[1]}", timeout=10.0)


def test_any_command_can_be_requested() -> None:
    def topics(link: Link, ask: Any) -> Any:
        return api.CommandGetTopicsOfNamespaceResponse(request_id=ask.request_id, topics=["persistent://a/b/c"])

    with PulsarServer(getTopicsOfNamespace=topics) as server:
        client = wireproto.connect(server.url)
        reply = client.request(api.CommandGetTopicsOfNamespace(namespace="a/b"))
        assert list(reply.topics) == ["persistent://a/b/c"]
        assert client.request(api.CommandPing()) is None
        for own in (api.CommandConnect(client_version="x"), api.CommandPong(), api.KeyValue(key="a", value="b")):
            with pytest.raises(OptionError):
                client.request(own)
        with pytest.raises(OptionError, match="entry"):
            client.request(api.CommandSend(producer_id=1, sequence_id=1))
        with pytest.raises(OptionError, match="namespace"):
            client.request(api.CommandGetTopicsOfNamespace())
        client.close()
        with pytest.raises(Closed):
            client.request(api.CommandGetTopicsOfNamespace(namespace="a/b"))


TEXT = api.Schema(name="", type="String", schema_data=b"")  # type: ignore[arg-type]


def test_a_request_goes_where_its_topic_is_served_and_else_to_the_service_address() -> None:
    coordinator = "persistent://pulsar/system/transaction_coordinator_assign-partition-3"
    schema = {"getOrCreateSchema": lambda link, ask: api.CommandGetOrCreateSchemaResponse(request_id=ask.request_id)}
    opened = {"tcClientConnectRequest": lambda link, ask: api.CommandTcClientConnectResponse(request_id=ask.request_id)}
    with PulsarServer(**schema, **opened) as there:
        away: Any = {"lookupTopic": lambda link, ask: link.server.here(ask, brokerServiceUrl=there.url)}
        with PulsarServer(**away) as here, wireproto.connect(here.url) as client:
            asks = api.CommandPartitionedTopicMetadata(topic="persistent://public/default/u")
            client.request(asks)
            assert (here.count("partitionMetadata"), there.count("partitionMetadata")) == (1, 0)
            client.request(asks, topic="t")
            assert (here.count("partitionMetadata"), there.count("partitionMetadata")) == (1, 1)
            client.request(api.CommandGetOrCreateSchema(topic="persistent://public/default/v", schema=TEXT))
            client.request(api.CommandTcClientConnectRequest(tc_id=3))
            assert (there.count("getOrCreateSchema"), there.count("tcClientConnectRequest")) == (1, 1)
            looked = [ask.topic for ask in here.commands("lookupTopic")]
            assert looked == ["persistent://public/default/t", "persistent://public/default/v", coordinator]


def entries(link: Link, flow: Any, broken: int) -> None:
    """MESSAGE frames 0, 1 and 2, once a consumer; in the broken one a bit of the payload is flipped."""
    if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) > 1:
        return
    for number in range(3):
        builder = PulsarBatchBuilder("p", batched=False)
        builder.append(b"value %d" % number)
        send = b"".join(builder.finish(1, number, 1000 + number))
        stored = bytearray(send[4 + int.from_bytes(send[:4], "big") :])
        if number == broken:
            stored[-1] ^= 1
        place = api.MessageIdData(ledgerId=7, entryId=number)
        frame = encode(api.CommandMessage(consumer_id=flow.consumer_id, message_id=place)) + bytes(stored)
        link.sock.sendall(len(frame).to_bytes(4, "big") + frame)


READING: Any = {
    "subscribe": lambda link, ask: api.CommandSuccess(request_id=ask.request_id),
    "getLastMessageId": lambda link, ask: api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=7, entryId=2),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
    ),
}


def read_on(reader: Any, read: list[bytes | None]) -> None:
    for batch in reader:
        read += batch.values()


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_broken_entry_is_raised_with_its_place_or_skipped(broken: int) -> None:
    good = [b"value %d" % number for number in range(3)]
    with PulsarServer(**READING, flow=lambda link, flow: entries(link, flow, broken)) as server, wireproto.connect(server.url) as client:
        reader = client.reader("t", stop=LATEST)
        read: list[bytes | None] = []
        with pytest.raises(ChecksumMismatch, match=f"7:{broken}"):
            read_on(reader, read)
        assert read == good[:broken]
        with pytest.raises(ChecksumMismatch):
            reader.poll(0.1)
        read = [value for batch in client.reader("t", stop=LATEST, on_corrupt="skip") for value in batch.values()]
        assert read == good[:broken] + good[broken + 1 :]


def test_a_terminated_topic_ends_a_reader_that_follows() -> None:
    def all_there_is(link: Link, flow: Any) -> Any:
        entries(link, flow, -1)
        return api.CommandReachedEndOfTopic(consumer_id=flow.consumer_id)

    with PulsarServer(**READING, flow=all_there_is) as server, wireproto.connect(server.url) as client:
        reader = client.reader("t")
        read: list[bytes | None] = []
        while not reader.done:
            batch = reader.poll(0.1)
            read += batch.values() if batch is not None else []
        assert len(read) == 3


def test_an_exclusive_subscription_in_use_is_told_at_once() -> None:
    def busy(link: Link, ask: Any) -> Any:
        return api.CommandError(request_id=ask.request_id, error="ConsumerBusy", message="Exclusive consumer is already connected")

    with PulsarServer(subscribe=busy) as server, wireproto.connect(server.url) as client:
        begun = time.monotonic()
        with pytest.raises(ConsumerBusy):
            client.consumer("t", "g", mode="exclusive")
        assert time.monotonic() - begun < 5.0


def test_an_exclusive_subscription_is_not_refused_for_an_attempt_of_our_own_that_went_unanswered() -> None:
    def subscribe(link: Link, ask: Any) -> Any:
        if link.server.count("subscribe") == 1:
            return link.close()  # done, and nobody was told
        if link.server.count("subscribe") == 2:  # the broker has not seen that connection end yet
            return api.CommandError(request_id=ask.request_id, error="ConsumerBusy", message="Exclusive consumer is already connected")
        return api.CommandSuccess(request_id=ask.request_id)

    with PulsarServer(subscribe=subscribe) as server, wireproto.connect(server.url) as client:
        client.consumer("t", "g", mode="exclusive").close()
        assert server.count("subscribe") == 3
