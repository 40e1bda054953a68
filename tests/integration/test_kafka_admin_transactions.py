"""What the Admin says of transactions on real brokers, beside what Java's says; and transactions that hang, which either of them ends."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import confluent_kafka
import pytest

import wireproto
from brokers import Broker, java
from patience import soon, until
from wireproto import LATEST
from wireproto._codec import KafkaBatchBuilder
from wireproto.errors import Aborted, AuthError, OptionError, TimedOut, TransactionError, UnsupportedVersion, UsageError
from wireproto.kafka import codes
from wireproto.kafka.admin import ProducerInfo
from wireproto.kafka.messages import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

SECONDS = 60.0
OPEN = 600.0
"""Seconds that a transaction may stay open: more than a dozen runs of Java's tools take on a loaded machine."""
CLUSTER = "kafka-4.3.1-cluster"
ONE = ["kafka-4.3.1-transactions", "kafka-3.9.2-transactions", "kafka-4.4.0-transactions"]
_numbers = itertools.count()


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url, timeout=SECONDS) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"looked-at-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Any, name: str) -> str:
    made = f"t-{name}"
    client.admin().create_topic(made, partitions=2, timeout=SECONDS)
    return made


class Judge:
    """Java's AdminClient, of the broker's version: one JVM for all questions of this module."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._programs: dict[str, tuple[java.Program, Iterator[dict[str, Any]]]] = {}

    def __call__(self, broker: Broker, command: str, *arguments: object) -> list[dict[str, Any]]:
        """What it says; RuntimeError where it fails."""
        if broker.version not in self._programs:
            started = self._ends.enter_context(java.Program(f"kafka-{broker.version}", "KafkaTransactions"))
            self._programs[broker.version] = started, started.lines()
        program, lines = self._programs[broker.version]
        question = " ".join([command, ",".join(broker.addresses), *map(str, arguments)])
        program.send(question)
        said = []
        for line in lines:
            if "answered" not in line:
                said.append(line)
            elif "failed" in line:
                raise RuntimeError(f"{question}: {line['failed']}")
            else:
                return said
        raise RuntimeError(f"{question}: the program ended")

    def close(self) -> None:
        self._ends.close()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with closing(Judge()) as made:
        yield made


def theirs(broker: Broker, name: str) -> confluent_kafka.Producer:
    options: dict[str, Any] = {"bootstrap.servers": ",".join(broker.addresses), "transactional.id": name, "log_level": 0}
    made = confluent_kafka.Producer({**options, "transaction.timeout.ms": int(OPEN * 1000)})
    made.init_transactions(SECONDS)
    return made


def listed(found: list[Any], prefix: str) -> list[dict[str, Any]]:
    fields = ("name", "producer_id", "state", "coordinator")
    return [{field: getattr(one, field) for field in fields} for one in found if one.name.startswith(prefix)]


def described(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "state": one.state,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator": one.coordinator,
            "timeout": round(one.timeout * 1000),
            "started": -1 if one.started is None else one.started,
            "partitions": ",".join(f"{topic} {number}" for topic, number in one.partitions),
        }
        for name, one in sorted(found.items())
    ]


def producers(found: tuple[ProducerInfo, ...]) -> list[dict[str, Any]]:
    fields = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch", "transaction_start")
    return [{field: -1 if (value := getattr(one, field)) is None else value for field in fields} for one in found]


# --- beside Java's ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker", [CLUSTER], indirect=True)
def test_what_is_said_of_transactions_is_what_java_s_admin_says(
    broker: Broker, client: Any, name: str, topic: str, judge: Judge, oracle: Any
) -> None:
    """Some open, some over, ours and librdkafka's, coordinated by three nodes: lists with each filter, descriptions, producers."""
    names = [f"{name}-{number:02d}" for number in range(12)]
    admin, works, others = client.admin(), [], []
    for number, one in enumerate(names):
        if number % 2:
            work = client.transactions(one, transaction_timeout=OPEN, timeout=SECONDS)
            works.append(work)
            turn = work.begin(timeout=SECONDS)
            turn.send(b"ours", topic=topic, partition=number % 4 // 2, timeout=SECONDS)
            work.topics.flush(SECONDS)
            if number % 3 == 0:
                turn.commit(timeout=SECONDS)
        else:
            producer = theirs(broker, one)
            others.append(producer)
            producer.begin_transaction()
            producer.produce(topic, b"theirs", partition=number % 4 // 2)
            assert producer.flush(SECONDS) == 0
            if number % 3 == 0:
                producer.abort_transaction(SECONDS)
    still = ("CompleteCommit", "CompleteAbort", "Ongoing", "Empty")
    until(lambda: all(one.state in still for one in admin.list_transactions(timeout=SECONDS) if one.name.startswith(name)))

    every = admin.list_transactions(timeout=SECONDS)
    assert [one.name for one in every if one.name.startswith(name)] == names
    assert len({one.coordinator for one in every if one.name.startswith(name)}) > 1
    ids = [one.producer_id for one in every if one.name in names[:5]]
    asked: list[tuple[dict[str, Any], tuple[object, object, object]]] = [
        ({}, ("-", "-", "-")),
        ({"states": "Ongoing"}, ("Ongoing", "-", "-")),
        ({"states": ["CompleteAbort", "CompleteCommit"]}, ("CompleteAbort,CompleteCommit", "-", "-")),
        ({"producer_ids": ids}, ("-", ",".join(map(str, ids)), "-")),
        ({"producer_ids": [1 << 40]}, ("-", 1 << 40, "-")),
        ({"longer_than": 0.001}, ("-", "-", 1)),
        ({"longer_than": 3600.0}, ("-", "-", 3_600_000)),
        ({"states": "Ongoing", "producer_ids": ids, "longer_than": 0.001}, ("Ongoing", ",".join(map(str, ids)), 1)),
    ]
    lengths = []
    for filters, words in asked:
        ours = listed(admin.list_transactions(**filters, timeout=SECONDS), name)
        java_s = [one for one in judge(broker, "list", *words) if one["name"].startswith(name)]
        assert ours == sorted(java_s, key=lambda one: str(one["name"]))
        lengths.append(len(ours))
    assert lengths == [12, 8, 4, 5, 0, 12, 0, 3]
    few = admin.list_transactions(pattern=f"{name}-0[0-3]", timeout=SECONDS)
    assert [one.name for one in few] == names[:4]

    ours = described(admin.describe_transactions(names, timeout=SECONDS))
    assert ours == judge(broker, "describe", *names)
    assert {one["partitions"] for one in ours} == {"", f"{topic} 0", f"{topic} 1"}
    found = admin.describe_producers(topic, timeout=SECONDS)
    assert list(found) == [(topic, 0), (topic, 1)]
    for (of, number), some in found.items():
        said = judge(broker, "producers", of, number)
        assert producers(some) == sorted(said, key=lambda one: int(one["producer_id"]))
        assert len(some) == 6
    oracle("Java's Admin 4.3.1, transactions", lists=len(asked), listed=sum(lengths), described=len(ours), partitions=len(found))
    for work in works:
        work.close()
    for producer in others:
        with suppress(confluent_kafka.KafkaException):
            producer.abort_transaction(SECONDS)


@pytest.mark.parametrize("broker", [CLUSTER], indirect=True)
def test_a_list_is_whole_when_a_node_has_died(broker: Any, client: Any, name: str) -> None:
    """What it coordinated is another's then, who may have answered before."""
    admin = client.admin()
    names = [f"{name}-{number}" for number in range(12)]
    for one in names:
        client.transactions(one, timeout=SECONDS).close()
    before = {one.name: one.coordinator for one in admin.list_transactions(timeout=SECONDS)}
    gone = before[names[0]]
    broker.kill(gone - 1)
    try:
        after = {one.name: one.coordinator for one in admin.list_transactions(timeout=SECONDS)}
        assert after.keys() >= set(names)
        assert gone not in after.values()
        assert admin.describe_transactions(names, timeout=SECONDS).keys() == set(names)
    finally:
        broker.start(gone - 1)


# --- one that hangs ----------------------------------------------------------------------------------------------------------


def verify(client: Any, on: bool) -> None:
    """Whether brokers ask the coordinator before they take a transaction's records: those before 3.6 did not, and so it may hang."""
    setting = IncrementalAlterConfigsAlterableConfig(
        name="transaction.partition.verification.enable", config_operation=0, value="true" if on else "false"
    )
    reply = client.request(
        IncrementalAlterConfigsRequest(resources=(IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=(setting,)),))
    )
    assert [one.error_code for one in reply.responses] == [0]


def hang(client: Any, topic: str, value: bytes, transactional: str) -> int:
    """Records of a transaction that no coordinator has heard of; the producer's id."""
    verify(client, False)
    try:
        answers: list[Any] = []

        def identified() -> bool:
            answers[:] = [client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))]
            return not answers[0].error_code

        until(identified)  # a broker that has just started has no ids to give yet
        (identity,) = answers

        def sent() -> bool:
            builder = KafkaBatchBuilder()
            builder.append(value, timestamp=int(time.time() * 1000))
            records = builder.finish(identity.producer_id, identity.producer_epoch, 0, transactional=True)
            part = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(
                transactional_id=transactional, acks=-1, timeout_ms=5000, topic_data=(TopicProduceData(name=topic, partition_data=(part,)),)
            )
            reply = client.request(request, leader=(topic, 0), version=11)
            return int(reply.responses[0].partition_responses[0].error_code) == 0

        until(sent)  # the setting takes hold a moment later
        return int(identity.producer_id)
    finally:
        verify(client, True)


def kept(work: Any, value: bytes, topic: str) -> bool:
    """In a transaction of its own; False: rolled back, as where a broker begins to ask between a record's coming and its storing."""
    try:
        with work.begin() as turn:
            turn.send(value, topic=topic, partition=0)
    except Aborted:
        return False
    return True


def committed(client: Any, topic: str) -> list[bytes]:
    """What a reader of committed records comes to, up to the last stable offset of now."""
    with client.reader(topic, stop=LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


@pytest.mark.parametrize("as_committed", [False, True])
@pytest.mark.parametrize("broker", ONE, indirect=True)
def test_a_transaction_that_hangs_is_found_and_ended(
    broker: Broker, client: Any, name: str, topic: str, judge: Judge, as_committed: bool
) -> None:
    admin = client.admin()
    with client.transactions(name) as work:
        for value in (b"of the first", b"of the second"):
            with work.begin() as turn:
                turn.send(value, topic=topic, partition=0)
        until(lambda: committed(client, topic) == [b"of the first", b"of the second"])
        place = admin.positions(topic, committed=True)[topic, 0].offset
        hanging = hang(client, topic, b"of nobody", f"{name}-nobody")
        until(lambda: kept(work, b"behind it", topic))
        assert committed(client, topic) == [b"of the first", b"of the second"]

        def opened() -> list[ProducerInfo]:
            return [one for one in admin.describe_producers(topic)[topic, 0] if one.transaction_start is not None]

        until(lambda: len(opened()) == 1, "the marker of what was kept comes a moment after its commit was answered")
        (found,) = opened()
        assert (found.producer_id, found.transaction_start, found.coordinator_epoch) == (hanging, place, None)
        assert admin.list_transactions(producer_ids=[hanging]) == []
        (admin.commit_transaction if as_committed else admin.abort_transaction)((topic, 0), found)
        hung = [b"of nobody"] if as_committed else []
        until(lambda: committed(client, topic) == [b"of the first", b"of the second", *hung, b"behind it"])
        (ended,) = [one for one in judge(broker, "producers", topic, 0) if one["producer_id"] == hanging]
        assert ended["transaction_start"] == -1
        with work.begin() as turn:
            turn.send(b"and on", topic=topic, partition=0)
    until(lambda: committed(client, topic)[-1] == b"and on")


@pytest.mark.parametrize("broker", ONE[:1], indirect=True)
def test_java_s_admin_ends_one_as_ours_does(broker: Broker, client: Any, name: str, topic: str, judge: Judge) -> None:
    """Beside it in the other partition ours: both logs are the same then, marker by marker."""
    admin = client.admin()
    hanging = hang(client, topic, b"of nobody", f"{name}-nobody")
    (found,) = admin.describe_producers(topic, partitions=[0])[topic, 0]
    assert judge(broker, "abort", topic, 0, found.transaction_start) == [{"aborted": hanging}]
    (java_s,) = admin.describe_producers(topic, partitions=[0])[topic, 0]
    second = f"u-{name}"
    admin.create_topic(second)
    hang(client, second, b"of nobody", f"{name}-nobody")
    (found,) = admin.describe_producers(second)[second, 0]
    admin.abort_transaction((second, 0), found)
    (ours,) = admin.describe_producers(second)[second, 0]
    said = ("producer_epoch", "last_sequence", "coordinator_epoch", "transaction_start")
    assert [getattr(ours, field) for field in said] == [getattr(java_s, field) for field in said] == [0, 0, 0, None]
    assert admin.positions(second, committed=True)[second, 0].offset == admin.positions(topic, committed=True)[topic, 0].offset == 2


@pytest.mark.parametrize("broker", ONE, indirect=True)
def test_one_that_is_not_so_any_more_is_not_ended(broker: Broker, client: Any, name: str, topic: str) -> None:
    """The producer has gone on since in a newer epoch; and what has no transaction open is refused before anything is sent."""
    admin = client.admin()
    with client.transactions(name) as work:
        turn = work.begin()
        turn.send(b"before", topic=topic, partition=0)
        work.topics.flush()
        (before,) = admin.describe_producers(topic, partitions=[0])[topic, 0]
        assert before.transaction_start == 0
        turn.commit()
        (over,) = until_over(admin, topic)
        with pytest.raises(UsageError, match="no transaction open"):
            admin.abort_transaction((topic, 0), over)
    with client.transactions(name) as work, work.begin() as turn:
        turn.send(b"of a newer epoch", topic=topic, partition=0)
        work.topics.flush()
        with pytest.raises(codes.InvalidProducerEpoch):
            admin.abort_transaction((topic, 0), before)
    until(lambda: committed(client, topic) == [b"before", b"of a newer epoch"])


def until_over(admin: Any, topic: str) -> tuple[ProducerInfo, ...]:
    """What is said of partition 0 when the marker is there."""
    deadline = soon()
    while (found := admin.describe_producers(topic, partitions=[0])[topic, 0])[0].transaction_start is not None:
        assert deadline > time.monotonic()
    said: tuple[ProducerInfo, ...] = found
    return said


@pytest.mark.parametrize("broker", ONE[:1], indirect=True)
def test_a_live_one_that_is_ended_so_is_rolled_back_by_its_program(broker: Broker, client: Any, name: str, topic: str) -> None:
    """Who ends a transaction that does not hang takes from it what it has there: the next one works."""
    admin = client.admin()
    with client.transactions(name) as work:
        turn = work.begin()
        turn.send(b"taken", topic=topic, partition=0)
        work.topics.flush()
        (found,) = admin.describe_producers(topic, partitions=[0])[topic, 0]
        admin.abort_transaction((topic, 0), found)
        with suppress(TransactionError):
            turn.abort()
        with work.begin() as turn:
            turn.send(b"next", topic=topic, partition=0)
    until(lambda: committed(client, topic) == [b"next"])


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker", ONE, indirect=True)
def test_refusals_say_what_is_wrong(broker: Broker, client: Any, name: str, topic: str) -> None:
    admin = client.admin()
    assert admin.describe_transactions([]) == {}
    with client.transactions(name):
        assert admin.describe_transactions(name)[name].started is None
    with pytest.raises(codes.TransactionalIdNotFound, match="never was"):
        admin.describe_transactions([name, "never was"])
    with pytest.raises(OptionError, match="Onging"):
        admin.list_transactions(states=["Onging", "Ongoing"])
    begun = time.monotonic()
    with pytest.raises(codes.UnknownTopicOrPartition):
        admin.describe_producers("never-was")
    with pytest.raises(codes.UnknownTopicOrPartition):
        admin.abort_transaction((topic, 7), ProducerInfo(1, 0, 0, 0, 0, 0))
    assert time.monotonic() - begun < SECONDS / 2  # unknown_topic_timeout is 2 s; the call's own time would be SECONDS
    if broker.version == "3.9.2":
        with pytest.raises(UnsupportedVersion):
            admin.list_transactions(pattern="a.*")


def deny(client: Any, kind: int, name: str, operation: int) -> None:
    """Bob may not."""
    bob = {"principal": "User:bob", "host": "*", "permission_type": 2}
    rule = AclCreation(resource_type=kind, resource_name=name, resource_pattern_type=3, operation=operation, **bob)
    assert client.request(CreateAclsRequest(creations=(rule,))).results[0].error_code == 0


def refused(call: Callable[[], object]) -> AuthError:
    """What it is refused with; a rule holds a moment after it was made."""
    told: list[AuthError] = []

    def asked() -> bool:
        try:
            call()
        except AuthError as why:
            told.append(why)
        return bool(told)

    until(asked)
    return told[0]


@pytest.mark.parametrize("broker", ["kafka-4.3.1-secure"], indirect=True)
def test_who_may_not_is_told_which_right_he_lacks(broker: Any, client: Any, name: str, topic: str) -> None:
    """And of what he may not see he is told nothing."""
    other = f"u-{name}"
    client.admin().create_topic(other)
    with client.transactions(name) as work:
        with work.begin() as turn:
            turn.send(b"seen by others", topic=topic, partition=0)
        deny(client, 5, name, 8)
        deny(client, 2, topic, 3)
        deny(client, 4, "kafka-cluster", 7)
        deny(client, 4, "kafka-cluster", 9)
        with wireproto.connect(broker.urls["sasl"], user="bob", password="bob-secret") as bob:
            admin = bob.admin()
            assert refused(lambda: admin.describe_transactions(name)).name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
            assert refused(lambda: admin.describe_producers(topic)).name == "TOPIC_AUTHORIZATION_FAILED"
            found = ProducerInfo(1 << 40, 0, 0, 0, 0, 0)
            for end in (admin.abort_transaction, admin.commit_transaction):
                assert refused(lambda end=end: end((other, 0), found)).name == "CLUSTER_AUTHORIZATION_FAILED"
            assert name not in [one.name for one in admin.list_transactions()]
            assert name in [one.name for one in client.admin().list_transactions()]
    everything: dict[str, Any] = {"resource_name_filter": None, "pattern_type_filter": 1, "host_filter": None, "operation": 1}
    rules = DeleteAclsFilter(resource_type_filter=4, principal_filter="User:bob", permission_type=1, **everything)
    assert len(client.request(DeleteAclsRequest(filters=(rules,))).filter_results[0].matching_acls) == 2


@pytest.mark.parametrize("broker", ONE[:1], indirect=True)
def test_who_is_not_answered_is_told_in_time(broker: Broker, topic: str, fault_proxy: Any) -> None:
    with wireproto.connect(broker.url, address_map=fault_proxy.address_map(broker.addresses)) as client:
        admin = client.admin()
        admin.list_transactions()
        fault_proxy.stall()
        calls = (
            lambda: admin.list_transactions(timeout=0.3),
            lambda: admin.describe_transactions("any", timeout=0.3),
            lambda: admin.describe_producers(topic, timeout=0.3),
            lambda: admin.abort_transaction((topic, 0), ProducerInfo(1, 0, 0, 0, 0, 0), timeout=0.3),
        )
        for call in calls:
            begun = time.monotonic()
            with pytest.raises(TimedOut):
                call()
            assert 0.3 <= time.monotonic() - begun < 10.0  # and not the request's time-out, 30 s
