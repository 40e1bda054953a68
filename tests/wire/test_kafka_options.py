"""Every option of the Kafka adapter does what its line says: seen in what is sent to the embedded broker, or in what comes back.

A check is a function named after its option; one that is ignored fails it. `test_each_option_has_a_check` holds the list complete.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow
import pytest

import wireproto
from patience import until
from wireproto import LATEST, LogOffset
from wireproto._codec import Columns, kafka_batches
from wireproto.devbroker import DevBroker, Faults
from wireproto.devbroker.recording import Recording, Seen
from wireproto.errors import Aborted, ChecksumMismatch, OptionError, TimedOut, UnsupportedVersion, ValueUnsupported
from wireproto.kafka.codes import UnknownMemberId, UnknownTopicOrPartition
from wireproto.kafka.options import KafkaOptions
from wireproto.net.options import CommonOptions

SOON = 20.0
_numbers = itertools.count()


@dataclasses.dataclass
class Scene:
    """A broker that is recorded, a topic of two partitions, and clients that end with the test."""

    broker: DevBroker
    seen: Recording
    topic: str
    ends: ExitStack

    @property
    def faults(self) -> Faults:
        return self.broker.faults("kafka")

    def connect(self, **options: Any) -> Any:
        """A client of this broker."""
        return self.ends.enter_context(wireproto.connect(self.broker.url("kafka"), **{"timeout": 10.0, **options}))

    def write(self, *values: bytes, **options: Any) -> None:
        """Records into partition 0, a batch each."""
        with self.connect().producer(self.topic, **options) as producer:
            for value in values:
                producer.send(value, partition=0).position(SOON)

    def batches(self) -> list[dict[str, Any]]:
        """The head of every batch that was sent, in order."""
        return [facts for seen in self.seen.requests("Produce") for facts in heads(seen)]

    def fetches(self) -> list[Any]:
        return [seen.message for seen in self.seen.requests("Fetch")]


def heads(seen: Seen) -> list[dict[str, Any]]:
    """The heads of the batches in a Produce."""
    return [facts for topic in seen.message.topic_data for part in topic.partition_data for facts in kafka_batches(part.records)]


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[DevBroker, Recording]]:
    with DevBroker(["kafka"]) as broker:
        yield broker, broker.record("kafka")


@pytest.fixture
def scene(recorded: tuple[DevBroker, Recording]) -> Iterator[Scene]:
    broker, seen = recorded
    topic = f"options-{next(_numbers)}"
    with wireproto.connect(broker.url("kafka")) as client:
        client.admin().create_topic(topic, partitions=2)
    seen.clear()
    with ExitStack() as ends:
        yield Scene(broker, seen, topic, ends)
        broker.faults("kafka").clear()
    broker.call("kafka", "let_in")


def first(consumer: Any) -> Any:
    """The first batch that a consumer gets."""
    deadline = time.monotonic() + SOON
    while (batch := consumer.poll(1.0)) is None:
        assert time.monotonic() < deadline, "nothing comes"
    return batch


# --- connections ---


def client_id(scene: Scene) -> None:
    scene.connect(client_id="somebody").admin().list_topics()
    assert {seen.header.client_id for seen in scene.seen.requests() if seen.name != "ApiVersions"} == {"somebody"}


def sasl(scene: Scene) -> None:
    """With a token and a password, OAUTHBEARER is what would be chosen."""
    scene.broker.call("kafka", "let_in", {"alice": "secret"}, ["abc"])
    scene.connect(sasl="PLAIN", user="alice", password="secret", token="abc").admin().list_topics()
    assert {seen.message.mechanism for seen in scene.seen.requests("SaslHandshake")} == {"PLAIN"}


def sasl_extensions(scene: Scene) -> None:
    scene.broker.call("kafka", "let_in", {}, ["abc"])
    scene.connect(token="abc", sasl_extensions={"logicalCluster": "lkc-1"}).admin().list_topics()
    (sent,) = scene.seen.requests("SaslAuthenticate")
    assert b"\x01logicalCluster=lkc-1\x01" in bytes(sent.message.auth_bytes)


def unknown_topic_timeout(scene: Scene) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        scene.connect(unknown_topic_timeout=0.0).reader("nobody-made-it")
    assert len(scene.seen.requests("Metadata")) == 1, "it is asked for once"


def auto_create(scene: Scene) -> None:
    name = f"{scene.topic}-new"
    with scene.connect().producer(name, auto_create=True) as producer:
        producer.send(b"x").position(SOON)
    assert name in scene.connect().admin().list_topics()


def metadata_max_age(scene: Scene) -> None:
    """A producer hears of partitions that were added; members of a group have a test of their own."""
    with scene.connect().producer(scene.topic, metadata_max_age=0.05) as producer:
        scene.broker.call("kafka", "grow", scene.topic, 3)
        deadline = time.monotonic() + SOON
        while True:
            assert time.monotonic() < deadline, "it never hears of the third partition"
            producer.send(b"x", partition=0).position(SOON)
            try:
                assert producer.send(b"y", partition=2).position(SOON).offset == 0
            except OptionError:
                continue
            break


# --- sending ---


def acks(scene: Scene) -> None:
    client = scene.connect()
    for given, number in (("all", -1), ("1", 1), ("0", 0), (-1, -1), (1, 1), (0, 0)):
        scene.seen.clear()
        with client.producer(scene.topic, acks=given) as producer:
            producer.send(b"x", partition=0)
        (sent,) = scene.seen.wait("Produce", timeout=SOON)
        assert sent.message.acks == number


def request_timeout(scene: Scene) -> None:
    scene.write(b"x", request_timeout=1.5)
    assert [seen.message.timeout_ms for seen in scene.seen.requests("Produce")] == [1500]
    scene.faults.drop("Produce")
    scene.seen.clear()
    scene.write(b"unanswered", request_timeout=0.3)
    one, other, *_ = scene.seen.requests("Produce")
    assert one.connection != other.connection
    assert one.at + 0.3 <= other.at <= one.at + 15.0


def idempotence(scene: Scene) -> None:
    scene.write(b"x")
    scene.write(b"x", idempotence=False)
    numbered, plain = scene.batches()
    assert numbered["producer_id"] >= 0
    assert plain["producer_id"] == -1
    assert len(scene.seen.requests("InitProducerId")) == 1


def linger(scene: Scene) -> None:
    with scene.connect().producer(scene.topic, linger=60.0) as patient:
        patient.send(b"one", partition=1)
        scene.faults.delay("Produce", 0.2)
        scene.write(b"another's, meanwhile")
        patient.send(b"two", partition=1)
    assert [facts["count"] for facts in scene.batches()] == [1, 2]


def batch_size(scene: Scene) -> None:
    with scene.connect().producer(scene.topic, batch_size=1000, linger=0.2) as producer:
        for _ in range(100):
            producer.send(b"x" * 100, partition=0)
    assert len(scene.batches()) >= 10
    assert max(facts["size"] for facts in scene.batches()) <= 1000 + 100


def compression(scene: Scene) -> None:
    """Of single records and of columns, in what was sent: that it reads back says nothing."""
    client = scene.connect()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        scene.seen.clear()
        with client.producer(scene.topic, compression=codec) as producer:
            producer.send(b"x" * 1000, partition=0).position(SOON)
            for receipt in producer.send_batch(Columns.from_rows([b"x" * 100] * 10), partition=0):
                receipt.position(SOON)
        assert [facts["codec"] for facts in scene.batches()] == [codec] * 2
        assert all((facts["size"] < 900) == (codec != "none") for facts in scene.batches())


def max_in_flight(scene: Scene) -> None:
    """What leaves behind requests that nobody answers; a record of the other partition shows that all of it has passed."""
    for limit in (1, 3, 5):
        with ExitStack() as ends:
            client = ends.enter_context(wireproto.connect(scene.broker.url("kafka")))
            producer = client.producer(scene.topic, max_in_flight=limit, linger=0.0)
            producer.send(b"proves the identity", partition=0).position(SOON)
            scene.seen.clear()
            silent = scene.faults.drop("Produce", times=-1)
            for number in range(9):
                producer.send(b"%d" % number, partition=0)
            producer.send(b"the end", partition=1)

            def to(seen: Seen) -> int:
                return int(seen.message.topic_data[0].partition_data[0].index)

            scene.seen.wait("Produce", timeout=SOON, when=lambda seen: to(seen) == 1)
            assert [to(seen) for seen in scene.seen.requests("Produce")] == [0] * limit + [1]
            silent.times = 0
            scene.broker.kick("kafka")
            producer.flush(SOON)


def delivery_timeout(scene: Scene) -> None:
    with scene.connect().producer(scene.topic, delivery_timeout=1.5, request_timeout=30.0) as producer:
        producer.send(b"first", partition=0).position(SOON)
        scene.faults.error("Produce", 6, times=-1)
        began = time.monotonic()
        receipt = producer.send(b"late", partition=0)
        with pytest.raises(TimedOut, match=r"not acknowledged within 1\.5 s"):
            receipt.position(SOON)
        assert 1.5 <= time.monotonic() - began < 10.0
        producer.flush(SOON)


def transaction_timeout(scene: Scene) -> None:
    """What the coordinator is told, and does: who does not end it in time finds it rolled back."""
    with scene.connect() as client, client.transactions("work", transaction_timeout=2.5) as work:
        (asked,) = scene.seen.requests("InitProducerId")
        assert (asked.message.transactional_id, asked.message.transaction_timeout_ms) == ("work", 2500)
        turn = work.begin()
        turn.send(b"late", topic=scene.topic)
        work.topics.flush()
        until(lambda: client.admin().describe_transactions("work")["work"].state == "CompleteAbort", "its time is never over")
        with pytest.raises(Aborted):
            turn.commit()


def max_request_size(scene: Scene) -> None:
    """The largest record; and batches for one node that are larger together go in requests of their own."""
    with scene.connect().producer(scene.topic, max_request_size=1000, batch_size=800, linger=0.3) as producer:
        with pytest.raises(ValueUnsupported, match="1000"):
            producer.send(b"x" * 1000, partition=0)
        for partition in (0, 1):
            producer.send(b"x" * 600, partition=partition)
    assert [len(heads(seen)) for seen in scene.seen.requests("Produce")] == [1, 1]


def partitioner(scene: Scene) -> None:
    with scene.connect().producer(scene.topic, partitioner=lambda key, count: len(key or b"") % count) as producer:
        places = [producer.send(b"x", key=b"k" * number).position(SOON).partition for number in range(8)]
    assert places == [0, 1] * 4


def message_format(scene: Scene) -> None:
    """Formats 0 and 1 are of Produce v0 to v2, which this broker does not have."""
    for number in (0, 1):
        with pytest.raises(UnsupportedVersion):
            scene.write(b"x", message_format=number)


# --- reading ---


def isolation(scene: Scene) -> None:
    """In every question that depends on it: fetches, ends, lag."""
    scene.write(b"x")
    client = scene.connect()
    for given, number in (("committed", 1), ("uncommitted", 0)):
        scene.seen.clear()
        with client.reader(scene.topic, stop=LATEST, isolation=given) as reader:
            assert [batch.values() for batch in reader] == [[b"x"]]
        with client.consumer(scene.topic, f"{scene.topic}-{given}", isolation=given) as consumer:
            first(consumer)
            consumer.lag()
            consumer.seek(LATEST)
        assert {message.isolation_level for message in scene.fetches()} == {number}
        asked = [seen.message.isolation_level for seen in scene.seen.requests("ListOffsets")]
        assert len(asked) >= 4
        assert set(asked) == {number}


def fetched(scene: Scene, **options: Any) -> list[Any]:
    """What a reader with these options asks, that is polled until it does: it has a connection to make first."""
    with scene.connect().reader(scene.topic, **options) as reader:
        until(lambda: reader.poll(0.05) is None and scene.fetches())
    return scene.fetches()


def max_wait(scene: Scene) -> None:
    assert {message.max_wait_ms for message in fetched(scene, max_wait=0.123)} == {123}


def min_bytes(scene: Scene) -> None:
    assert {message.min_bytes for message in fetched(scene, min_bytes=777)} == {777}


def max_bytes(scene: Scene) -> None:
    assert {message.max_bytes for message in fetched(scene, max_bytes=3 << 20)} == {3 << 20}


def partition_bytes(scene: Scene) -> None:
    fetches = fetched(scene, partition_bytes=12_345)
    assert {part.partition_max_bytes for message in fetches for topic in message.topics for part in topic.partitions} == {12_345}


def rack(scene: Scene) -> None:
    assert {message.rack_id for message in fetched(scene, rack="here")} == {"here"}


def damaged(scene: Scene, **options: Any) -> list[bytes]:
    """Two batches of which the second arrives with a byte changed; what is read of them."""
    scene.write(b"good" * 10, b"spoilt" * 10)
    scene.faults.corrupt("Fetch", at=-12)
    with scene.connect().reader(scene.topic, stop=LATEST, partitions=[0], **options) as reader:
        return [value for batch in reader for value in batch.values()]


def check_crc(scene: Scene) -> None:
    one, other = damaged(scene, check_crc=False)
    assert one == b"good" * 10
    assert len(other) == 60
    assert other != b"spoilt" * 10


def on_corrupt(scene: Scene) -> None:
    assert damaged(scene, on_corrupt="skip") == [b"good" * 10]


def reset(scene: Scene) -> None:
    """Of records that are gone; what each word means: test_kafka_resets.py."""
    for number in range(3):
        scene.write(b"%d" % number)
    scene.broker.call("kafka", "trim", scene.topic, 0, 1)
    start = LogOffset(scene.topic, 0, 0)
    with scene.connect().reader(scene.topic, start=start, stop=LATEST, reset="earliest") as reader:
        assert [value for batch in reader for value in batch.values()] == [b"1", b"2"]


def facts(scene: Scene) -> None:
    scene.write(b"x")
    with scene.connect().reader(scene.topic, stop=LATEST, facts=True) as reader:
        (batch,) = list(reader)
    assert [found["producer_id"] for found in batch.columns.facts] == [scene.batches()[0]["producer_id"]]


def columns(scene: Scene) -> None:
    scene.write(b"x")
    with scene.connect().reader(scene.topic, stop=LATEST, columns=("value", "sequence")) as reader:
        (batch,) = list(reader)
    assert set(pyarrow.record_batch(batch.columns).schema.names) == {"offset", "value", "sequence"}


def partitions(scene: Scene) -> None:
    with scene.connect().reader(scene.topic, partitions=[1]) as reader:
        assert set(reader.positions) == {(scene.topic, 1)}


# --- groups ---


def member(scene: Scene, **options: Any) -> Any:
    """A consumer that has its partitions, and one record of them."""
    scene.write(b"x")
    consumer = scene.ends.enter_context(scene.connect().consumer(scene.topic, f"g-{scene.topic}", **options))
    first(consumer)
    return consumer


def joins(scene: Scene) -> list[Any]:
    return [seen.message for seen in scene.seen.requests("JoinGroup")]


def session_timeout(scene: Scene) -> None:
    member(scene, session_timeout=12.5)
    assert {message.session_timeout_ms for message in joins(scene)} == {12_500}


def max_poll_interval(scene: Scene) -> None:
    """It is how long a rebalance waits, and a member that polls no more leaves after it, and not before."""
    member(scene, max_poll_interval=0.6, heartbeat_interval=0.05)
    began = scene.seen.requests("SyncGroup")[-1].at
    assert {message.rebalance_timeout_ms for message in joins(scene)} == {600}
    (left,) = scene.seen.wait("LeaveGroup", timeout=SOON)
    assert left.at - began >= 0.6
    assert scene.connect().admin().describe_group(f"g-{scene.topic}").state == "Empty"


def heartbeat_interval(scene: Scene) -> None:
    """The beats: each no sooner than so many intervals behind the sync, however late the broker sees one of them; and ten within the time
    that two of the default take."""
    member(scene, heartbeat_interval=0.1)
    beats = [seen.at for seen in scene.seen.wait("Heartbeat", 21, timeout=60.0)]
    synced = scene.seen.requests("SyncGroup")[0].at
    assert all(at - synced >= 0.1 * number - 0.05 for number, at in enumerate(beats, 1))
    assert min(last - first for first, last in zip(beats[:11], beats[10:21], strict=True)) < 6.0


def group_instance_id(scene: Scene) -> None:
    consumer = member(scene, group_instance_id="one", heartbeat_interval=0.05)
    scene.seen.wait("Heartbeat", timeout=SOON)
    consumer.commit()
    named = [seen for name in ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit") for seen in scene.seen.requests(name)]
    assert len(named) >= 4
    assert {seen.message.group_instance_id for seen in named} == {"one"}
    consumer.close()
    assert not scene.seen.requests("LeaveGroup"), "a static member does not leave"
    assert scene.connect().admin().describe_group(f"g-{scene.topic}").state == "Stable"


def on_assigned(scene: Scene) -> None:
    told: list[Any] = []
    member(scene, on_assigned=told.append)
    assert told == [{(scene.topic, 0), (scene.topic, 1)}]


def on_revoked(scene: Scene) -> None:
    """Told of a rebalance while a commit still counts."""
    told: list[Any] = []
    made: list[Any] = []

    def revoked(given: Any) -> None:
        made[0].commit()
        told.append(given)

    made.append(member(scene, on_revoked=revoked, heartbeat_interval=0.05))
    other = scene.ends.enter_context(scene.connect().consumer(scene.topic, f"g-{scene.topic}", heartbeat_interval=0.05))
    settle(made[0], other)
    assert told == [{(scene.topic, 0), (scene.topic, 1)}]
    assert sum(place.offset for place in scene.connect().admin().group_positions(f"g-{scene.topic}", scene.topic).values()) == 1


def on_lost(scene: Scene) -> None:
    """Told of what the coordinator takes for gone, in place of on_revoked."""
    told: list[Any] = []
    consumer = member(scene, on_lost=told.append, on_revoked=lambda parts: told.append("revoked"), heartbeat_interval=0.05)
    scene.faults.error("Heartbeat", UnknownMemberId.code)
    deadline = time.monotonic() + SOON
    while not told:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    assert told == [{(scene.topic, 0), (scene.topic, 1)}]


def settle(*members: Any) -> list[bytes]:
    """Poll until each has a partition; what they got meanwhile."""
    found: list[bytes] = []
    deadline = time.monotonic() + SOON
    while not all(len(member.assignment) == 1 for member in members):
        assert time.monotonic() < deadline, "they do not share"
        for member in members:
            batch = member.poll(0.1)
            found += batch.values() if batch is not None else []
    return found


def auto_commit(scene: Scene) -> None:
    """At a takeover what was handed out is committed, so nothing of it comes again; and at the end."""
    scene.write(*[b"%d" % number for number in range(10)])
    options = {"auto_commit": True, "auto_commit_interval": 3600.0, "heartbeat_interval": 0.05}
    group = f"g-{scene.topic}"
    one = scene.ends.enter_context(scene.connect().consumer(scene.topic, group, **options))
    got: list[bytes] = []
    while len(got) < 10:
        got += first(one).values()
    other = scene.ends.enter_context(scene.connect().consumer(scene.topic, group, **options))
    assert not scene.seen.requests("OffsetCommit")
    assert settle(one, other) == []
    scene.write(b"last")
    deadline = time.monotonic() + SOON
    while not any((batch := member.poll(0.1)) is not None and batch.values() == [b"last"] for member in (one, other)):
        assert time.monotonic() < deadline, "the last one does not come"
    one.close()
    other.close()
    assert sum(place.offset for place in scene.connect().admin().group_positions(group, scene.topic).values()) == 11


def auto_commit_interval(scene: Scene) -> None:
    """The first poll after the interval commits what was handed out: nobody has closed or revoked anything here."""
    consumer = member(scene, auto_commit=True, auto_commit_interval=0.0)
    consumer.poll(0.01)
    until(lambda: scene.seen.requests("OffsetCommit"), "nothing is committed")
    sent = scene.seen.requests("OffsetCommit")
    assert [[part.committed_offset for topic in seen.message.topics for part in topic.partitions] for seen in sent] == [[1]]


COMMON = frozenset(field.name for field in dataclasses.fields(CommonOptions))
NAMES = [field.name for field in dataclasses.fields(KafkaOptions) if field.name not in COMMON]
CHECKS: dict[str, Callable[[Scene], None]] = {
    name: found for name in (*NAMES, "client_id") if inspect.isfunction(found := getattr(sys.modules[__name__], name, None))
}


def test_each_option_has_a_check() -> None:
    assert [name for name in NAMES if name not in CHECKS] == []


@pytest.mark.parametrize("option", CHECKS)
def test_the_option_does_what_it_says(scene: Scene, option: str) -> None:
    CHECKS[option](scene)


def test_damage_is_raised_by_default(scene: Scene) -> None:
    with pytest.raises(ChecksumMismatch):
        damaged(scene)
