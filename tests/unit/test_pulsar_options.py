"""Each of Pulsar's options, asked at what is sent: an option that is ignored shows in the commands."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, metadata_of, receipt, stored, subscribed, success
from wireproto import UnknownPosition
from wireproto._codec import Columns
from wireproto.errors import OptionError, TimedOut, UsageError
from wireproto.pulsar import PulsarApi_pb2 as api

NEVER = 3600.0
NUMBERS = {"none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4}
UNPACK: dict[int, Callable[[bytes, int], bytes]] = {
    0: lambda data, size: data,
    1: lambda data, size: pa.Codec("lz4_raw").decompress(data, size, asbytes=True),
    2: lambda data, size: zlib.decompress(data),
    3: lambda data, size: pa.Codec("zstd").decompress(data, size, asbytes=True),
    4: lambda data, size: pa.Codec("snappy").decompress(data, size, asbytes=True),
}


def partitioned(count: int) -> Callable[[Link, Any], Any]:
    return lambda link, ask: api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=count, response="Success")


def last(link: Link, ask: Any) -> Any:
    return api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=7, entryId=9),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
    )


@pytest.fixture
def server() -> Iterator[PulsarServer]:
    with PulsarServer(subscribe=subscribed, ack=acknowledged, getLastMessageId=last) as made:
        yield made


def opened(client: Any, role: str, **options: Any) -> Any:
    return client.reader("t", **options) if role == "reader" else getattr(client, role)("t", "group", **options)


@contextmanager
def entries(server: PulsarServer, **options: Any) -> Iterator[Any]:
    with wireproto.connect(server.url, **options) as client, client.producer("t") as producer:
        yield producer


def payload_of(entry: bytes) -> tuple[Any, bytes]:
    meta, data = metadata_of(entry)
    return meta, UNPACK[meta.compression](data, meta.uncompressed_size)


def values_of(entry: bytes) -> list[bytes]:
    data = payload_of(entry)[1]
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        single = api.SingleMessageMetadata.FromString(data[4 : 4 + size])
        found.append(data[4 + size : 4 + size + single.payload_size])
        data = data[4 + size + single.payload_size :]
    return found


# -- what a producer sends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["single", "batch", "columns"])
@pytest.mark.parametrize("codec", NUMBERS)
def test_what_is_stored_is_packed_with_the_codec_asked_for(server: PulsarServer, codec: str, form: str) -> None:
    value = b"the same words again and again " * 40
    with entries(server, compression=codec, batching=form != "single", linger=NEVER) as producer:
        if form == "columns":
            producer.send_batch(Columns.from_rows([value, value]))
        else:
            for _ in range(1 if form == "single" else 2):
                producer.send(value)
    (entry,) = server.entries
    meta, data = metadata_of(entry)
    assert meta.compression == NUMBERS[codec]
    assert (len(data) < len(value)) == (codec != "none")
    assert payload_of(entry)[1].count(value) == (1 if form == "single" else 2)


def test_without_batching_each_record_is_an_entry_of_its_own(server: PulsarServer) -> None:
    with entries(server, batching=False, linger=NEVER) as producer:
        for number in range(3):
            producer.send(b"%d" % number)
        server.wait("send", 3)
    assert [metadata_of(entry)[0].HasField("num_messages_in_batch") for entry in server.entries] == [False] * 3
    assert [metadata_of(entry)[1] for entry in server.entries] == [b"0", b"1", b"2"]


def test_a_batch_is_closed_by_its_number_of_records(server: PulsarServer) -> None:
    with entries(server, batch_records=4, linger=NEVER) as producer:
        for number in range(8):
            producer.send(b"%d" % number)
        server.wait("send", 2)
        producer.send_batch(Columns.from_rows([b"x"] * 8))
        server.wait("send", 4)
    assert [len(values_of(entry)) for entry in server.entries] == [4, 4, 4, 4]


def test_a_batch_is_closed_by_its_bytes(server: PulsarServer) -> None:
    with entries(server, batch_size=2000, linger=NEVER) as producer:
        for _ in range(9):
            producer.send(b"x" * 600)
        server.wait("send", 2)
        producer.send_batch(Columns.from_rows([b"x" * 600] * 9))
        server.wait("send", 4)
    assert max(len(values_of(entry)) for entry in server.entries) <= 3
    assert sum(len(values_of(entry)) for entry in server.entries) == 18


def test_a_batch_waits_for_its_linger_and_no_longer(server: PulsarServer) -> None:
    with entries(server, linger=NEVER) as producer:
        producer.send(b"waits")
        with server.came:
            assert not server.came.wait_for(lambda: server.count("send"), 0.2)
        producer.flush(20.0)
    assert server.count("send") == 1
    with entries(server, linger=0.05) as producer:
        producer.send(b"goes")
        server.wait("send", 2)


@pytest.mark.parametrize(("hashing", "partition"), [("java", 97 % 3), ("murmur3", 0x3C2569B2 % 3)])
def test_keys_are_hashed_as_asked(server: PulsarServer, hashing: str, partition: int) -> None:
    server.answers["partitionMetadata"] = partitioned(3)
    with entries(server, hashing=hashing) as producer:
        producer.send(b"x", key=b"a")
        sent = server.wait("send")
    topics = {made.producer_id: made.topic for made in server.commands("producer")}
    assert topics[sent.producer_id] == f"persistent://public/default/t-partition-{partition}"


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("keyless", "first"),
    [("sticky", [b"0", b"1", b"2", b"3"]), ("round-robin", [b"0", b"2", b"4", b"6"])],
)
def test_records_without_a_key_go_to_partitions_in_turn(server: PulsarServer, keyless: str, first: list[bytes], columns: bool) -> None:
    server.answers["partitionMetadata"] = partitioned(2)
    values = [b"%d" % number for number in range(8)]
    with entries(server, keyless=keyless, batch_records=4, linger=NEVER) as producer:
        if columns:
            producer.send_batch(Columns.from_rows(values))
        else:
            for value in values:
                producer.send(value)
    found = sorted(values_of(entry) for entry in server.entries)
    assert found == [first, [value for value in values if value not in first]]
    assert len({sent.producer_id for sent in server.commands("send")}) == 2


@pytest.mark.parametrize("linger", [0.0, 0.001, NEVER])
def test_records_without_a_key_that_go_alone_go_to_partitions_in_turn(server: PulsarServer, linger: float) -> None:
    """Each is a batch, whether it is waited for, or its linger is over before the next comes."""
    server.answers["partitionMetadata"] = partitioned(3)
    with entries(server, linger=linger) as producer:
        for number in range(6):
            producer.send(b"%d" % number).position(20.0)
    sent = [one.producer_id for one in server.commands("send")]
    assert len(set(sent[:3])) == 3
    assert sent[3:] == sent[:3]


def test_a_record_with_a_key_does_not_take_the_turn_of_those_without(server: PulsarServer) -> None:
    server.answers["partitionMetadata"] = partitioned(2)
    with entries(server, linger=NEVER) as producer:
        for number in range(8):
            producer.send(b"%d" % number, key=b"a" if number % 2 else None)
    assert sorted(values_of(entry) for entry in server.entries) == [[b"0", b"2", b"4", b"6"], [b"1", b"3", b"5", b"7"]]


def test_a_producer_has_the_name_and_the_first_sequence_that_it_was_given(server: PulsarServer) -> None:
    with entries(server, producer_name="one-of-mine", first_sequence=40, batching=False) as producer:
        producer.send(b"a")
        producer.send(b"b")
    (made,) = server.commands("producer")
    assert (made.producer_name, made.user_provided_producer_name) == ("one-of-mine", True)
    assert [sent.sequence_id for sent in server.commands("send")] == [40, 41]
    with entries(server) as producer:
        producer.send(b"c")
    made = server.commands("producer")[-1]
    assert (made.producer_name, made.user_provided_producer_name) == ("", False)
    assert server.commands("send")[-1].sequence_id == 0


def test_what_has_no_sequence_id_left_is_not_sent(server: PulsarServer) -> None:
    with wireproto.connect(server.url) as client, client.producer("t", first_sequence=2**63 - 1, batching=False) as producer:
        assert producer.send(b"last").position(20.0) is not None
        with pytest.raises(UsageError, match=r"ids end at 2\*\*63 - 1"):
            producer.send(b"none").position(20.0)
    assert [sent.sequence_id for sent in server.commands("send")] == [2**63 - 1]


def test_a_receipt_of_what_the_broker_had_already_names_no_false_place(server: PulsarServer) -> None:
    """It comes with -1:-1, which as a start would be the beginning of the log."""
    server.answers["send"] = lambda link, send: receipt(send, 2**64 - 1, 2**64 - 1)
    with wireproto.connect(server.url) as client, client.producer("t", producer_name="again", first_sequence=0, batching=False) as producer:
        place = producer.send(b"known").position(20.0)
        assert place == UnknownPosition("t", -1)
        assert place.text() == "unknown"
        with pytest.raises(OptionError, match="not UnknownPosition"):
            client.reader("t", start=place)


def test_a_name_without_a_first_sequence_goes_on_after_its_last(server: PulsarServer) -> None:
    server.answers["producer"] = lambda link, ask: api.CommandProducerSuccess(
        request_id=ask.request_id, producer_name=ask.producer_name, last_sequence_id=99
    )
    with entries(server, producer_name="one-of-mine") as producer:
        producer.send(b"a")
    assert server.commands("send")[0].sequence_id == 100


@pytest.mark.parametrize("way", ["send", "send_batch", "key"])
def test_no_batch_holds_both_what_the_broker_has_and_what_it_has_not(server: PulsarServer, way: str) -> None:
    """With `first_sequence`; a broker that de-duplicates judges a batch by its first record."""
    server.answers["producer"] = lambda link, ask: api.CommandProducerSuccess(
        request_id=ask.request_id, producer_name=ask.producer_name, last_sequence_id=44
    )
    values = [b"%d" % number for number in range(10)]
    batching = "key" if way == "key" else True
    with entries(server, producer_name="job", first_sequence=40, linger=NEVER, batching=batching) as producer:
        if way == "send_batch":
            producer.send_batch(Columns.from_rows(values))
        else:
            for number, value in enumerate(values):
                producer.send(value, key=b"%d" % (number % 2) if way == "key" else None)
    assert [value for entry in server.entries for value in sorted(values_of(entry))][:5] == values[:5]
    assert sorted(value for entry in server.entries for value in values_of(entry)) == values
    spans = [(sent.sequence_id, sent.sequence_id + sent.num_messages - 1) for sent in server.commands("send")]
    assert [span for span in spans if span[0] <= 44 < span[1]] == []
    assert spans[-1][1] == 49


def test_a_batch_that_a_broker_turns_out_to_have_in_part_fails(server: PulsarServer) -> None:
    """It tells when the producer is opened again, and the batch is on its way by then."""
    last = [-1, 42]
    server.answers["producer"] = lambda link, ask: api.CommandProducerSuccess(
        request_id=ask.request_id, producer_name=ask.producer_name, last_sequence_id=last.pop(0)
    )
    server.answers["send"] = lambda link, send: link.close()
    with wireproto.connect(server.url) as client:
        producer = client.producer("t", producer_name="job", first_sequence=40, linger=NEVER)
        sent = [producer.send(b"%d" % number) for number in range(10)]
        with pytest.raises(UsageError, match="ids up to 42"):
            producer.flush(20.0)
        assert server.count("send") == 1
        with pytest.raises(UsageError):
            sent[9].position(0.0)
        with suppress(UsageError):
            producer.close(1.0)


def test_an_attempt_to_open_again_has_the_time_of_an_operation(server: PulsarServer) -> None:
    """PRODUCER unanswered: taken back, and made again."""

    def made(link: Link, ask: Any) -> Any:
        return None if server.count("producer") == 2 else api.CommandProducerSuccess(request_id=ask.request_id, producer_name="p-1")

    server.answers["producer"] = made
    with entries(server, operation_timeout=1.0, linger=0.001) as producer:
        producer.send(b"a").position(20.0)
        lost = time.monotonic()
        server.links[-1].close()
        producer.send(b"b").position(20.0)
    first, taken_back = server.commands("producer")[0], server.commands("close_producer")[0]
    assert taken_back.producer_id == first.producer_id
    assert server.moments("producer")[2] - lost >= 1.0
    assert server.count("producer") == 3


# -- what who reads says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_subscribe_has_the_time_of_an_operation(server: PulsarServer, role: str) -> None:
    with wireproto.connect(server.url, operation_timeout=1.0) as client, opened(client, role) as reading:
        server.answers["subscribe"] = lambda link, ask: success(link, ask) if server.count("subscribe") > 2 else None
        lost = time.monotonic()
        server.links[-1].close()
        poll = reading.receive if role == "queue" else reading.poll
        while server.count("subscribe") < 3:
            assert poll(0.1) is None
        second, third, *_ = server.commands("subscribe")[1:]
        assert [closed.consumer_id for closed in server.commands("close_consumer")] == [second.consumer_id]
        assert third.consumer_id != second.consumer_id
        assert server.moments("subscribe")[2] - lost >= 1.0


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_reading_makes_a_topic_only_where_it_may(server: PulsarServer, role: str, create: bool) -> None:
    with wireproto.connect(server.url) as client, opened(client, role, create_topic=create):
        assert [ask.metadata_auto_creation_enabled for ask in server.commands("partitionMetadata")] == [create]
        assert [ask.force_topic_creation for ask in server.commands("subscribe")] == [create]


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_the_compacted_form_is_asked_for(server: PulsarServer, role: str) -> None:
    with wireproto.connect(server.url) as client:
        opened(client, role, read_compacted=True, timeout=20.0).close()
        opened(client, role, timeout=20.0).close()
    assert [ask.read_compacted for ask in server.commands("subscribe")] == [True, False]


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_consumer_tells_its_name_and_priority(server: PulsarServer, role: str) -> None:
    with wireproto.connect(server.url) as client:
        more = {} if role == "reader" else {"priority": 3}
        opened(client, role, consumer_name="mine", **more).close()
        opened(client, role).close()
    given, plain = server.commands("subscribe")
    assert given.consumer_name == "mine"
    assert given.HasField("priority_level") == (role != "reader")
    assert given.priority_level == (0 if role == "reader" else 3)
    assert not plain.HasField("consumer_name")


@pytest.mark.parametrize(
    ("role", "mode", "kind"),
    [
        ("consumer", None, api.CommandSubscribe.Failover),
        ("consumer", "failover", api.CommandSubscribe.Failover),
        ("consumer", "exclusive", api.CommandSubscribe.Exclusive),
        ("queue", None, api.CommandSubscribe.Shared),
        ("queue", "shared", api.CommandSubscribe.Shared),
        ("queue", "key-shared", api.CommandSubscribe.Key_Shared),
    ],
)
def test_a_mode_is_a_kind_of_subscription(server: PulsarServer, role: str, mode: str | None, kind: int) -> None:
    with wireproto.connect(server.url) as client:
        opened(client, role, mode=mode).close()
    (asked,) = server.commands("subscribe")
    assert (asked.subscription, asked.topic, asked.durable) == ("group", "persistent://public/default/t", True)
    assert asked.subType == kind
    assert asked.HasField("keySharedMeta") == (mode == "key-shared")


def test_look_ups_name_the_listener(server: PulsarServer) -> None:
    with wireproto.connect(server.url, listener="outside") as client, client.producer("t"):
        pass
    with wireproto.connect(server.url) as client, client.producer("t"):
        pass
    assert [ask.advertised_listener_name for ask in server.commands("lookupTopic")] == ["outside", ""]


def test_the_broker_is_told_the_client_s_name() -> None:
    """Also behind a proxy, and in the answer to AUTH_CHALLENGE."""
    hidden = {"brokerServiceUrl": "pulsar://hidden.example:6650", "proxy_through_service_url": True}
    challenge = api.CommandAuthChallenge(challenge=api.AuthData(auth_method_name="token", auth_data=b"again"))
    answers: Any = {"lookupTopic": lambda link, ask: link.server.here(ask, **hidden)}
    with PulsarServer(**answers, connect=lambda link, ask: challenge, authResponse=PulsarServer._connected) as server:
        with wireproto.connect(server.url, client_id="billing") as client, client.producer("t"):
            server.links[-1].send(challenge)
            server.wait("authResponse", 3)
        assert [ask.client_version for ask in server.commands("connect")] == ["billing"] * 2
        assert [ask.client_version for ask in server.commands("authResponse")] == ["billing"] * 3


def three(link: Link, flow: Any) -> None:
    """Entries 0, 1 and 2 once a consumer, a bit of the second changed."""
    if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) > 1:
        return
    for number in range(3):
        entry = bytearray(stored([b"value %d" % number], number))
        entry[-1] ^= number == 1
        link.message(flow.consumer_id, number, bytes(entry))


def read(reading: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        if hasattr(reading, "receive"):
            got = reading.receive(20.0)
            assert got is not None, found
            found.append(got.value)
        else:
            batch = reading.poll(20.0)
            assert batch is not None, found
            found += batch.values()
    return found


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_checksums_are_verified_unless_told_otherwise(server: PulsarServer, role: str, caplog: pytest.LogCaptureFixture) -> None:
    server.answers["flow"] = three
    with wireproto.connect(server.url) as client:
        with opened(client, role, on_corrupt="skip") as reading:
            assert read(reading, 2) == [b"value 0", b"value 2"]
        assert [line.startswith("t[-1]: skipped at 7:1: ") for line in caplog.messages if "skipped at" in line] == [True]
        with opened(client, role, check_crc=False) as reading:
            assert read(reading, 3) == [b"value 0", b"value 0", b"value 2"]


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_only_the_columns_asked_for_are_decoded(server: PulsarServer, role: str) -> None:
    server.answers["flow"] = three
    with wireproto.connect(server.url) as client, opened(client, role, columns=("value",), check_crc=False) as reading:
        batch = reading.poll(20.0)
        assert sorted(pa.table(batch.columns).column_names) == ["value"]


def a_batch(link: Link, flow: Any) -> None:
    """One entry of three records, once a consumer."""
    if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) == 1:
        link.message(flow.consumer_id, 2, stored([b"a", b"b", b"c"]))


def test_a_poll_commits_what_the_one_before_handed_out_where_asked(server: PulsarServer) -> None:
    server.answers["flow"] = a_batch
    with wireproto.connect(server.url) as client:
        with client.consumer("t", "group", mode="exclusive") as consumer:
            read(consumer, 3)
            assert consumer.poll(0.0) is None
        assert server.count("ack") == 0
        with client.consumer("t", "group", mode="exclusive", auto_commit=True, auto_commit_interval=0.0) as consumer:
            read(consumer, 3)
            assert server.count("ack") == 0  # not before the user comes back
            assert consumer.poll(0.0) is None
            assert [(ack.ack_type, ack.message_id[0].entryId) for ack in server.commands("ack")] == [(api.CommandAck.Cumulative, 2)]
        assert server.count("ack") == 1


def test_what_was_handed_out_is_committed_at_close_where_asked(server: PulsarServer) -> None:
    server.answers["flow"] = a_batch
    with wireproto.connect(server.url) as client:
        with client.consumer("t", "group", mode="exclusive") as consumer:
            read(consumer, 3)
        assert server.count("ack") == 0
        with client.consumer("t", "group", mode="exclusive", auto_commit=True, auto_commit_interval=0.0) as consumer:
            read(consumer, 3)
        assert [ack.message_id[0].entryId for ack in server.commands("ack")] == [2]
        assert server.seen[-1][0] == "close_consumer"  # behind it: a broker drops an ACK of a consumer that is closed


def test_an_entry_that_is_not_acknowledged_fails_at_its_delivery_timeout(server: PulsarServer) -> None:
    server.answers["send"] = lambda link, sent: receipt(sent, 0) if server.count("send") > 1 else None
    with wireproto.connect(server.url, delivery_timeout=0.3) as client:
        producer = client.producer("t")
        with pytest.raises(TimedOut, match=r"0\.3 s"):
            producer.send(b"a").position(20.0)
        producer.close()
