"""Edges of what Pulsar's roles do: stops in ledger 0, brokers that change their limits, names like partitions', full connections."""

from __future__ import annotations

import threading
import time
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, receipt, stored, success
from wireproto import EARLIEST, LATEST, MessageId
from wireproto._codec import Columns, crc32c
from wireproto.deadlines import deadline_after
from wireproto.errors import BufferFull, Closed, Malformed, OptionError, TimedOut, TransportError, ValueUnsupported
from wireproto.net.retry import Policy
from wireproto.position import AtTime
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import queue as pulsar_queue
from wireproto.pulsar.client import PulsarClient
from wireproto.pulsar.positions import Question, finding
from wireproto.pulsar.subscription import Permits
from wireproto.pulsar.topics import parse_topic, without_partition
from wireproto.pulsar.unacked import Unacked
from wireproto.url import parse

T = "persistent://public/default/t"
NOTHING = 2**64 - 1


def metadata(partitions: int) -> Any:
    return lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
        request_id=ask.request_id, partitions=partitions, response="Success"
    )


def ends(entry: int, ledger: int = 7) -> Any:
    return lambda link, ask: api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=ledger, entryId=entry),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=ledger, entryId=NOTHING),
    )


def entries(count: int, ledger: int = 7) -> Any:
    """Entries of one record each, to each consumer."""

    def flow(link: Link, ask: Any) -> None:
        if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
            for number in range(count):
                link.message(ask.consumer_id, number, stored([b"%d" % number], number), ledger)

    return flow


def serving(**answers: Any) -> PulsarServer:
    usual = {"subscribe": success, "ack": acknowledged, "getLastMessageId": ends(2), "flow": entries(3), "partitionMetadata": metadata(0)}
    return PulsarServer(**(usual | answers))


def values(reader: Any, seconds: float = 20.0) -> list[bytes]:
    found: list[bytes] = []
    limit = time.monotonic() + 1.5 * seconds
    while not reader.done and time.monotonic() < limit:
        batch = reader.poll(seconds)
        found += batch.values() if batch is not None else []
    return found


# -- readers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "wanted"),
    [(MessageId("t", -1, 0, 1), [b"0"]), (MessageId("t", -1, 0, 1, after=True), [b"0", b"1"]), (LATEST, [b"0", b"1", b"2"])],
    ids=["at", "after", "latest"],
)
def test_a_stop_in_the_first_ledger_there_ever_was_is_one(stop: Any, wanted: list[bytes]) -> None:
    with serving(getLastMessageId=ends(2, 0), flow=entries(3, 0)) as server, wireproto.connect(server.url) as client:
        reader = client.reader("t", stop=stop)
        assert values(reader) == wanted
        link = server.links[-1]
        until(lambda: link.sock.fileno() == -1, "a reader that is done hangs up")
        assert reader.done
        assert reader.poll(0.0) is None


@pytest.mark.parametrize(("ms", "wanted"), [(1000, []), (1001, [b"0"]), (1002, [b"0", b"1"]), (1003, [b"0", b"1", b"2"])])
def test_a_stop_in_time_is_reached_with_the_first_entry_from_then_on(ms: int, wanted: list[bytes]) -> None:
    """Published at 1000, 1001 and 1002; or with the last there was."""
    with serving() as server, wireproto.connect(server.url) as client:
        reader = client.reader("t", stop=AtTime(ms))
        link = server.links[-1]
        assert values(reader, 5.0) == wanted
        assert reader.done
        until(lambda: link.sock.fileno() == -1, "a reader that is done hangs up")
        assert server.count("consumerStats") == 0, "the entries tell"
        [place] = reader.positions.values()
        assert (place.entry, place.after) == ((len(wanted) - 1, True) if wanted else (-1, True))


def test_a_reader_to_whom_nothing_comes_tells_what_it_was_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: else its broker does not tell that the topic is at its end."""

    def ack(link: Link, ask: Any) -> Any:
        assert ask.consumer_id == link.server.commands("subscribe")[-1].consumer_id
        return api.CommandReachedEndOfTopic(consumer_id=ask.consumer_id)

    with serving(ack=ack) as server, wireproto.connect(server.url) as client, client.reader("t") as reader:
        taken: list[bytes] = []
        while len(taken) < 3:
            taken += reader.poll(20.0).values()
        reader._checked -= 1.0  # nothing came for so long
        assert reader.poll(0.0) is None
        [told] = [server.wait("ack")]
        assert (told.ack_type, told.message_id[0].ledgerId, told.message_id[0].entryId) == (api.CommandAck.Cumulative, 7, 2)
        until(lambda: reader.poll(0.01) is None and reader.done, "the topic is at its end")
        reader._checked -= 1.0
        assert reader.poll(0.0) is None
        assert server.count("ack") == 1


def test_a_consumer_whose_mark_cannot_be_had_is_closed_before_the_next() -> None:
    """Opened again after its broker closed it: SUBSCRIBE is answered, the question behind it refused."""

    def mark(link: Link, ask: Any) -> Any:
        if server.count("getLastMessageId") == 2:
            return api.CommandError(request_id=ask.request_id, error="MetadataError", message="not now")
        return ends(2)(link, ask)

    with serving(getLastMessageId=mark) as server, wireproto.connect(server.url) as client:
        consumer = client.consumer("t", "g", mode="exclusive")
        server.wait("getLastMessageId")  # as a member begins
        first = server.commands("subscribe")[0].consumer_id
        server.links[-1].send(api.CommandCloseConsumer(consumer_id=first, request_id=NOTHING))
        until(lambda: consumer.poll(0.01) is None and server.count("getLastMessageId") == 3, "it is opened again", 30.0)
        assert [one.consumer_id for one in server.commands("close_consumer")] == [server.commands("subscribe")[1].consumer_id]
        assert server.count("subscribe") == 3
        consumer.close()


def test_a_look_for_partitions_may_take_as_long_as_lies_between_two(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def growing(known: Any, deadline: float) -> Any:
        left.append(deadline - time.monotonic())
        yield from ()
        return [], True

    with serving(partitionMetadata=metadata(1)) as server, wireproto.connect(server.url, metadata_max_age=0.05) as client:
        monkeypatch.setattr(client.cluster.lookup, "growing", growing)
        with client.reader("t"):
            until(lambda: len(left) >= 2, "it is looked for them")
    assert max(left) <= 0.05


def test_a_question_that_outlasts_its_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Question, where: Any, deadline: float) -> Any:
        yield time.monotonic() + 60.0

    monkeypatch.setattr(Question, "put", put)
    with (
        serving() as server,
        wireproto.connect(server.url) as client,
        pytest.raises(TimedOut, match=r"where t\[-1\] begins and ends: not done in time"),
    ):
        client.cluster.drive(finding(client.cluster, "t", {-1: T}, {("t", -1): EARLIEST}, deadline_after(0.1)), float("inf"))


def test_what_other_partitions_answered_is_known_where_one_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Question, where: Any, deadline: float) -> Any:
        if self._name == "silent":
            yield time.monotonic() + 60.0
        return (7, 3), True

    monkeypatch.setattr(Question, "put", put)
    names = {0: "a", 1: "silent", 2: "b"}
    with serving() as server, wireproto.connect(server.url) as client:
        asked = finding(client.cluster, "t", names, {("t", number): LATEST for number in names}, deadline_after(0.2))
        with pytest.raises(TimedOut, match=r"t\[1\]") as caught:
            client.cluster.drive(asked, float("inf"))
    assert caught.value.known == {("t", number): MessageId("t", number, 7, 3, after=True) for number in (0, 2)}


# -- workers --------------------------------------------------------------------------------------------------------------


def unreadable(what: str) -> bytes:
    """An entry of one record whose checksum is right, or of a batch that is none."""
    meta = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    payload = b"\x00\x00"
    if what == "packed":
        meta.compression, meta.uncompressed_size, payload = api.ZLIB, 100, zlib.compress(b"x" * 100)[:-8]
    elif what == "batch":
        meta.num_messages_in_batch = 3
    elif what == "encrypted":
        meta.encryption_keys.add(key="k", value=b"v")
        meta.num_messages_in_batch = 2
    elif what == "chunk":
        meta.uuid, meta.num_chunks_from_msg, meta.chunk_id, meta.total_chunk_msg_size = "u", 2, 0, 4
    head = meta.SerializeToString()
    checked = len(head).to_bytes(4, "big") + head + payload
    sum_ = crc32c(checked) ^ (what == "checksum")
    return b"\x0e\x01" + sum_.to_bytes(4, "big") + checked


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("checksum", api.CommandAck.ChecksumMismatch),
        ("packed", api.CommandAck.DecompressionError),
        ("batch", api.CommandAck.BatchDeSerializeError),
        ("encrypted", api.CommandAck.DecryptionError),
        ("chunk", api.CommandAck.BatchDeSerializeError),
    ],
)
@pytest.mark.parametrize("dated", [False, True])
def test_the_broker_is_told_why_an_entry_is_passed_over(what: str, reason: int, dated: bool) -> None:
    """With what brokers put before an entry, and without."""

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            beside = api.BrokerEntryMetadata(broker_timestamp=1, index=0).SerializeToString()
            before = b"\x0e\x02" + len(beside).to_bytes(4, "big") + beside if dated else b""
            link.message(ask.consumer_id, 0, before + unreadable(what))
            link.message(ask.consumer_id, 1, stored([b"1"], 1))

    with serving(flow=flow) as server, wireproto.connect(server.url) as client, client.queue("t", "g", on_corrupt="skip") as queue:
        delivery = queue.receive(20.0)
        assert delivery is not None
        assert delivery.value == b"1"
        told = server.wait("ack")
        assert told.HasField("validation_error")
        assert (told.message_id[0].entryId, told.validation_error) == (0, reason)


@pytest.mark.parametrize(("what", "why"), [("encrypted", "is encrypted"), ("chunk", "chunk of a larger message")])
def test_what_is_not_supported_is_told_and_given_back(what: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker may be able to read it."""
    monkeypatch.setattr("wireproto.pulsar.queue.UNREADABLE", Policy(first=0.1))

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            link.message(ask.consumer_id, 0, unreadable(what))

    with serving(flow=flow) as server, wireproto.connect(server.url) as client, client.queue("t", "g") as queue:
        with pytest.raises(Malformed, match=why):
            queue.receive(20.0)
        assert server.wait("redeliverUnacknowledgedMessages").message_ids[0].entryId == 0
        assert server.count("ack") == 0


def test_a_delay_that_finds_its_connection_full_is_over_a_little_later() -> None:
    class Full:
        """A connection that has no room, for the first `times` commands."""

        def __init__(self, conn: Any, times: int) -> None:
            self._conn, self.left = conn, times

        def send(self, frame: bytes) -> None:
            if self.left:
                self.left -= 1
                raise BufferFull("full")
            self._conn.send(frame)

    with serving(flow=entries(1)) as server, wireproto.connect(server.url) as client, client.queue("t", "g") as queue:
        delivery = queue.receive(20.0)
        [part] = queue._stream.parts
        conn = part.conn
        part.conn = full = Full(conn, 2)
        delivery.release(after=0.01)
        asked = server.wait("redeliverUnacknowledgedMessages")
        part.conn = conn
        assert full.left == 0
        assert [(one.ledgerId, one.entryId) for one in asked.message_ids] == [(7, 0)]
        link, consumer = server.links[-1], server.commands("subscribe")[-1].consumer_id
        assert asked.consumer_id == consumer
        link.message(consumer, 0, stored([b"0"]), redelivery_count=1)
        again = queue.receive(20.0)
        assert (again.value, again.attempt) == (b"0", 2)
    assert pulsar_queue.FULL.delay(1, lambda: 0.5) == pytest.approx(0.1)


def test_an_entry_that_comes_without_what_is_in_hand_is_not_acknowledged_for_that() -> None:
    """Its broker says that nobody wants the rest, while the user has a message of it that is not done."""
    with serving(flow=lambda link, ask: None) as server, wireproto.connect(server.url) as client, client.queue("t", "g") as queue:
        link, consumer = server.links[-1], server.commands("subscribe")[-1].consumer_id
        link.message(consumer, 0, stored([b"a", b"b"]))
        delivery = queue.receive(20.0)
        assert delivery.value == b"a"
        assert queue.receive(20.0).value == b"b"
        link.message(consumer, 0, stored([b"a", b"b"]), ack_set=[0])
        link.message(consumer, 1, stored([b"c"], 1))
        assert queue.receive(20.0).value == b"c", "what came before it was looked at"
        assert server.count("ack") == 0
        delivery.ack(20.0, wait=True)
        assert [(one.message_id[0].entryId, list(one.message_id[0].ack_set)) for one in server.commands("ack")] == [(0, [0b10])]


def test_what_is_done_with_leaves_nothing_behind() -> None:
    """Of an entry whose messages were given back, came again, and were all acknowledged."""
    hand, key = Unacked(None), (7, 0)  # type: ignore[arg-type]
    for sent in range(2):
        entry = hand.looks_at(key, 2)
        assert entry is not None
        assert [hand.attempt(key, index, sent) is not None for index in range(2)] == [True, True]
        entry.sent = sent
        entry.waiting.discard(0)
        entry.held.add(0)
        if not sent:
            hand.released(key, 0)
            assert key not in hand.entries
            assert hand._unmet == {key: {1: 1}}
    hand.acknowledged(key, 0, 0)
    assert key in hand.entries
    hand.acknowledged(key, 1, 0)
    assert not hand.entries
    assert not hand._unmet
    hand.forget()
    assert hand.looks_at(key, 2) is not None, "nothing of it is on its way any more"
    assert hand.exhausted(key)
    assert not hand.entries


def test_permits_are_granted_anew_when_half_is_left() -> None:
    permits = Permits(10)
    permits.largest = 1
    assert permits.more() == 10
    permits.sent()
    for handed, granted in ((4, 0), (1, 5), (4, 0), (1, 5)):
        permits.handed(handed, handed)
        assert permits.more() == granted
        permits.sent()


# -- producers ------------------------------------------------------------------------------------------------------------


def test_a_batch_that_a_broker_would_have_taken_before_fails_when_it_takes_less() -> None:
    """It was not acknowledged, and the broker that has the topic now has a smaller limit."""
    sizes = iter([1 << 20, 1 << 20, 1000, 1000])

    def connected(link: Link, ask: Any) -> Any:
        return api.CommandConnected(server_version="a string", protocol_version=21, max_message_size=next(sizes, 1000))

    def send(link: Link, ask: Any) -> Any:
        return receipt(ask, 1) if server.count("producer") > 1 else None

    with serving(connect=connected, send=send) as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching=False)
        large, small = out.send(bytes(50_000)), out.send(b"small")
        server.wait("send", 2)
        server.links[-1].close()
        with pytest.raises(ValueUnsupported, match="larger than the broker takes"):
            large.position(30.0)
        assert small.position(30.0).entry == 1
        with pytest.raises(ValueUnsupported, match="the broker takes 1000"):
            out.send(bytes(1200))
        out.close()


@pytest.mark.parametrize(
    ("partitions", "options", "grows"), [(2, {}, True), (0, {}, False), (2, {"first_sequence": 5, "producer_name": "mine"}, False)]
)
def test_a_producer_that_will_not_grow_does_not_look_for_partitions(partitions: int, options: dict[str, Any], grows: bool) -> None:
    """A topic without partitions, and one whose ids are said: those count by the partitions that there were."""
    with (
        serving(partitionMetadata=metadata(partitions)) as server,
        wireproto.connect(server.url, metadata_max_age=0.02) as client,
        client.producer("t", **options) as out,
    ):
        assert (out._growth is not None) is grows
        if grows:
            server.wait("partitionMetadata", 3)


@pytest.mark.parametrize("partition", [None, -1, 0])
def test_the_one_partition_of_a_topic_without_partitions_has_two_numbers(partition: int | None) -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as out:
        assert out.send(b"a", partition=partition).position(20.0).partition == -1
        assert [number for number, _ in out.shares(Columns.from_rows([b"a", b"b"]), partition)] == [0]
        for wrong in (-2, 1):
            with pytest.raises(OptionError, match="has 1"):
                out.send(b"b", partition=wrong)
            with pytest.raises(OptionError, match="has 1"):
                out.shares(Columns.from_rows([b"a"]), wrong)
        assert server.count("send") == 1


def test_a_producer_takes_nothing_while_it_closes_and_closes_once() -> None:
    with (
        serving(partitionMetadata=metadata(2), send=lambda link, ask: None) as server,
        wireproto.connect(server.url, linger=3600.0) as client,
    ):
        out = client.producer("t")
        sent = out.send(b"a", partition=1)
        closing = threading.Thread(target=out.close)
        closing.start()
        last = server.wait("send")  # it lingers until the close
        for more in (lambda: out.send(b"b"), lambda: out.send_batch(Columns.from_rows([b"c"]))):
            with pytest.raises(Closed, match="the producer is closed"):
                more()
        assert closing.is_alive()
        server.links[-1].send(receipt(last, 5))
        closing.join(30.0)
        assert not closing.is_alive()
        assert sent.position(0.0).entry == 5
        assert (server.count("send"), server.count("close_producer")) == (1, 2)
        out.close()
        assert server.count("close_producer") == 2


def test_a_connection_may_have_two_mebibytes_unsent() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.producer("t") as out:
        congested = out._sender._wire.congested
        assert [congested(SimpleNamespace(unsent=size)) for size in (0, 2 << 20, (2 << 20) + 1)] == [False, False, True]


def test_each_service_address_is_tried_once_before_the_last_one_s_failure_is_told() -> None:
    """A pause comes before the next round, which is not the look-up's matter."""

    def hang_up(link: Link, ask: Any) -> None:
        link.close()

    with PulsarServer(connect=hang_up) as first, PulsarServer(connect=hang_up) as second:
        client = PulsarClient.made(parse(f"pulsar://127.0.0.1:{first.port},127.0.0.1:{second.port}"), {})
        try:
            for rounds in (1, 2):
                with pytest.raises(TransportError) as caught:
                    client.cluster.lookup.service(deadline_after(3.0))
                assert caught.value.peer == f"127.0.0.1:{second.port}"
                assert (first.count("connect"), second.count("connect")) == (rounds, rounds)
        finally:
            client.close()


# -- names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "partition", "topic"),
    [
        ("t-partition-0", 0, "t"),
        ("t-partition-12", 12, "t"),
        ("t-partition-", -1, "t-partition-"),
        ("t-partition-x", -1, "t-partition-x"),
        ("t-partition-²", -1, "t-partition-²"),
        ("t-partition-٣", -1, "t-partition-٣"),
        ("t-partition--1", -1, "t-partition--1"),
        ("12", -1, "12"),
        ("a-partition-b-partition-3", 3, "a-partition-b"),
    ],
)
def test_what_names_a_partition(local: str, partition: int, topic: str) -> None:
    full = f"persistent://public/default/{local}"
    assert parse_topic(local).partition == partition
    assert without_partition(full) == f"persistent://public/default/{topic}"
