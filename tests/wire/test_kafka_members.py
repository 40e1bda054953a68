"""Members of a Kafka group, and readers, on the embedded broker, where another thread does something at a bad moment."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

import patience
import wireproto
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.devbroker.faults import Faults
from wireproto.errors import BrokerError, ConnectError, DataLoss, Revoked, TimedOut
from wireproto.kafka import coordinator
from wireproto.kafka.codes import FencedInstanceId, MemberIdRequired, RebalanceInProgress, UnknownMemberId
from wireproto.kafka.messages import CreatePartitionsRequest, CreatePartitionsTopic
from wireproto.kafka.metadata import Metadata
from wireproto.net.retry import Policy
from wireproto.net.task import Steps
from wireproto.position import LogOffset

_numbers = itertools.count()
PROTOCOL, CLIENT = "kafka", {"timeout": 10.0}


@pytest.fixture
def topic(client: Any) -> str:
    name = f"members-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    with client.producer(name) as producer:
        for number in range(20):
            producer.send(b"%d" % number, partition=number % 2)
    return name


class Member:
    """A consumer, and what it was told of its partitions."""

    def __init__(self, client: Any, topic: str, **options: Any) -> None:
        self.told: list[str] = []
        self.consumer = client.consumer(
            topic,
            f"group-{topic}",
            on_assigned=lambda parts: self.told.append(f"+{len(parts)}"),
            on_revoked=lambda parts: self.told.append(f"-{len(parts)}"),
            **options,
        )

    def take(self, count: int) -> list[bytes]:
        """So many records."""
        found: list[bytes] = []
        deadline = time.monotonic() + 30.0
        while len(found) < count:
            assert time.monotonic() < deadline, found
            batch = self.consumer.poll(1.0)
            found += batch.values() if batch is not None else []
        return found


def test_a_poll_longer_than_max_poll_interval_is_no_member_that_stays_away(client: Any, topic: str) -> None:
    member = Member(client, topic, max_poll_interval=2.0, heartbeat_interval=0.1)
    with member.consumer as consumer:
        member.take(20)
        assert consumer.poll(5.0) is None
        consumer.commit()
        assert member.told == ["+2"]


@pytest.mark.parametrize("step", ["_asked", "_sent_back", "_beat"])
def test_a_fault_of_our_own_in_the_membership_is_raised_by_a_poll_and_the_next_one_goes_on(
    client: Any, topic: str, faults: Faults, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task has ended then: polls would wait for it for ever."""
    member = Member(client, topic, heartbeat_interval=0.1)
    if step == "_sent_back":
        faults.error("JoinGroup", 25)
    with member.consumer as consumer:
        if step == "_beat":
            member.take(20)

        def fails(*_: Any) -> Steps[None]:
            yield from ()
            raise RuntimeError("a slip")

        monkeypatch.setattr(coordinator.Coordinator, step, fails)
        with pytest.raises(RuntimeError, match="a slip"):
            patience.until(lambda: consumer.poll(0.2) is not None, "no poll raises")
        monkeypatch.undo()
        with client.producer(topic) as producer:
            producer.send(b"last", partition=0)
        assert b"last" in member.take(1 if step == "_beat" else 21)


def test_a_member_that_is_forgotten_while_it_joins_takes_nothing(client: Any, topic: str) -> None:
    """The I/O thread hears of it between the end of the join and the look at what it brought."""
    member = Member(client, topic, session_timeout=2.0, heartbeat_interval=0.2)
    with member.consumer as consumer:
        coordinator, forgotten = consumer._coordinator, []
        settling = coordinator.settling

        def and_forget(deadline: float) -> Steps[bool]:
            joined: bool = yield from settling(deadline)
            if joined and not forgotten:
                coordinator.membership.forget()
                forgotten.append(1)
            return joined

        coordinator.settling = and_forget
        member.take(20)
        assert forgotten
        assert member.told == ["+2"], "once, when it was a member"
        consumer.commit()


def until(happened: Callable[[], bool], consumer: Any, found: list[bytes] | None = None) -> None:
    """Poll until that is so; what comes meanwhile is put to `found`."""
    deadline = time.monotonic() + 20.0
    while not happened():
        assert time.monotonic() < deadline
        batch = consumer.poll(0.1)
        if found is not None and batch is not None:
            found += batch.values()


def test_lost_partitions_are_told_apart_from_revoked_ones(client: Any, broker: DevBroker, topic: str) -> None:
    """Nothing can be committed for them any more; who does not ask is told that they are revoked."""
    told: list[str] = []
    times = {"heartbeat_interval": 0.05, "session_timeout": 2.5}  # the broker waits for who it forgot only to us
    member = Member(client, topic, on_lost=lambda parts: told.append(f"!{len(parts)}"), **times)
    with member.consumer as consumer:
        member.take(20)
        broker.faults("kafka").error("Heartbeat", UnknownMemberId.code)
        until(lambda: member.told == ["+2", "+2"], consumer)
        assert told == ["!2"]
        broker.faults("kafka").error("Heartbeat", RebalanceInProgress.code)
        until(lambda: member.told == ["+2", "+2", "-2", "+2"], consumer)
        assert told == ["!2"]
    other = Member(client, topic, **times)
    with other.consumer as consumer:
        until(lambda: bool(other.told), consumer)
        broker.faults("kafka").error("Heartbeat", UnknownMemberId.code)
        until(lambda: other.told == ["+2", "-2", "+2"], consumer)


def moved_away(broker: DevBroker, member: Member) -> None:
    """Another generation: all that was held went back, and comes again from what is committed."""
    told = len(member.told)
    broker.faults("kafka").error("Heartbeat", RebalanceInProgress.code)
    until(lambda: member.told[told:] == ["-2", "+2"], member.consumer)


def test_what_was_handed_out_before_a_rebalance_is_not_committed_in_silence(client: Any, broker: DevBroker, topic: str) -> None:
    member = Member(client, topic, heartbeat_interval=0.05)
    with member.consumer as consumer:
        member.take(20)
        moved_away(broker, member)
        with pytest.raises(Revoked) as caught:
            consumer.commit()
        assert caught.value.partitions == ((topic, 0), (topic, 1))
        consumer.commit()  # told once
        assert consumer.committed() == {}
        assert len(member.take(20)) == 20, "it comes again"
        consumer.commit()
        assert {key[1]: place.offset for key, place in consumer.committed().items()} == {0: 10, 1: 10}
        moved_away(broker, member)
        consumer.commit()  # nothing was lost


def test_what_a_callback_commits_in_time_is_no_loss(client: Any, broker: DevBroker, topic: str) -> None:
    told: list[str] = []

    def revoked(parts: Any) -> None:
        told.append("-")
        consumer.commit()

    with client.consumer(topic, f"group-{topic}", heartbeat_interval=0.05, on_revoked=revoked) as consumer:
        found: list[bytes] = []
        until(lambda: len(found) == 20, consumer, found)
        broker.faults("kafka").error("Heartbeat", RebalanceInProgress.code)
        until(lambda: bool(told) and len(consumer.assignment) == 2, consumer)
        consumer.commit()
        assert {key[1]: place.offset for key, place in consumer.committed().items()} == {0: 10, 1: 10}


@pytest.mark.parametrize("told", ["by a commit", "it commits by itself", "by positions"])
def test_what_a_rebalance_took_is_told_once(client: Any, broker: DevBroker, topic: str, told: str) -> None:
    member = Member(client, topic, heartbeat_interval=0.05, auto_commit=told == "it commits by itself")
    with member.consumer as consumer:
        member.take(20)
        places = dict(consumer.positions)
        if told == "by a commit":
            broker.faults("kafka").error("OffsetCommit", RebalanceInProgress.code)
            with pytest.raises(Revoked):
                consumer.commit()
            until(lambda: member.told == ["+2", "-2", "+2"], consumer)
        else:
            moved_away(broker, member)
        if told == "by positions":
            consumer.commit(places)  # they are ours again, and these are where the user says
            assert dict(consumer.committed()) == places
        consumer.commit()


@pytest.mark.parametrize("name", ["Heartbeat", "JoinGroup", "SyncGroup"])
def test_a_static_member_whose_name_another_took_is_none_for_good(client: Any, broker: DevBroker, topic: str, name: str) -> None:
    """If it joined again, it would throw the other one out in its turn."""
    member = Member(client, topic, group_instance_id="one", heartbeat_interval=0.05)
    with member.consumer as consumer:
        member.take(20)
        broker.faults("kafka").error(name, FencedInstanceId.code)
        if name != "Heartbeat":
            broker.faults("kafka").error("Heartbeat", RebalanceInProgress.code)
        with pytest.raises(FencedInstanceId):
            until(lambda: False, consumer)
        seen = broker.record("kafka")
        for _ in range(3):
            with pytest.raises(FencedInstanceId):
                consumer.poll(0.2)
        assert consumer.assignment == frozenset()
        assert member.told == ["+2", "-2"]
        assert not seen.requests("JoinGroup")
        with pytest.raises(Revoked):
            consumer.commit({(topic, 0): LogOffset(topic, 0, 1)})
    assert not seen.requests("LeaveGroup")


def test_a_node_that_let_a_request_time_out_is_not_asked_next(broker: DevBroker) -> None:
    """Its connection stands, and nothing has come by it since."""
    port = broker.url("kafka").rpartition(":")[2]
    with wireproto.connect(f"kafka://localhost:{port}") as client:
        admin = client.admin()
        admin.list_topics()
        broker.faults("kafka").stall("Metadata")
        with pytest.raises(TimedOut):
            admin.list_topics(timeout=0.5)
        admin.list_topics(timeout=10.0)


def test_a_node_that_goes_from_the_metadata_while_it_is_asked_is_looked_up_again(client: Any, topic: str) -> None:
    """Another thread's look at the cluster does not list it just then."""
    with client.reader(topic, stop=LATEST) as reader:
        asking, gone = reader._fetcher.asking, []
        due = asking.due

        def and_lose(*arguments: Any) -> Any:
            found = due(*arguments)
            if found and not gone:
                gone.append(dict(client.cluster.metadata.nodes))
                client.cluster.metadata.nodes = {}
            return found

        asking.due = and_lose
        assert read_all(reader) == 20
        assert gone


def read_all(reader: Any) -> int:
    """How many records there are up to the stop, by iterating, which waits for as long as it takes."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(sum(len(batch) for batch in reader)), daemon=True)
    thread.start()
    thread.join(20.0)
    assert found, "it hangs"
    return found[0]


def test_a_leader_that_nobody_knows_yet_is_looked_up_until_there_is_one(client: Any, topic: str) -> None:
    """Between two leaders the metadata name none."""
    with client.reader(topic, stop=LATEST) as reader:
        asking, asked = reader._fetcher.asking, []
        leader = asking.leader

        def none_at_first(*key: Any) -> int | None:
            asked.append(key)
            return leader(*key) if len(asked) > 6 else None

        asking.leader = none_at_first
        assert read_all(reader) == 20


def test_a_node_that_stays_away_keeps_no_reader_busy(client: Any, topic: str) -> None:
    with client.reader(topic, start=LATEST) as reader:
        fetcher, looks = reader._fetcher, []
        fetcher._down[99] = time.monotonic()  # it was not reached once, and leads nothing any more
        send_ahead = fetcher._send_ahead

        def look(*arguments: Any, **more: Any) -> None:
            looks.append(1)
            send_ahead(*arguments, **more)

        fetcher._send_ahead = look
        assert reader.poll(2.0) is None
        assert len(looks) < 50


@pytest.mark.parametrize("code", [7, 14, 15, 16, 56])
def test_a_heartbeat_refused_for_the_moment_costs_no_membership(broker: DevBroker, client: Any, topic: str, code: int) -> None:
    """Whatever may pass: the coordinator is looked up again, and the member goes on in its generation."""
    seen = broker.record("kafka")
    member = Member(client, topic, heartbeat_interval=0.1)
    with member.consumer:
        member.take(20)
        joins = seen.requests("JoinGroup")
        looks = len(seen.requests("FindCoordinator"))
        beats = len(seen.requests("Heartbeat"))
        broker.faults("kafka").error("Heartbeat", code)
        seen.wait("Heartbeat", beats + 4, timeout=30.0)
        seen.wait("FindCoordinator", looks + 1, timeout=30.0)
        assert member.consumer.poll(0.1) is None
        assert seen.requests("JoinGroup") == joins
        assert member.told == ["+2"]


@pytest.mark.parametrize(("name", "code"), [("JoinGroup", 22), ("JoinGroup", 25), ("JoinGroup", 27), ("JoinGroup", 79), ("SyncGroup", 27)])
def test_a_member_that_is_told_to_join_again_and_again_does_so_at_a_pace(
    broker: DevBroker, client: Any, topic: str, faults: Faults, name: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As fast as answers come it is some thousands a second, and the coordinator has no time for whom it waits for."""
    seen = broker.record("kafka")
    faults.error(name, code, -1)
    with caplog.at_level(logging.INFO, "wireproto.kafka"), Member(client, topic).consumer as consumer:
        assert consumer.poll(2.0) is None
        assert 2 < len(seen.requests("JoinGroup")) < 15
        assert "tried again, while there is time" in caplog.text
        faults.clear()
        found: list[bytes] = []
        until(lambda: len(found) == 20, consumer, found)


def test_a_member_that_is_forgotten_joins_again_at_once(
    broker: DevBroker, client: Any, topic: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told so, then to come with the id that it is given: nothing is wrong with either."""
    monkeypatch.setattr(coordinator, "_LOST", Policy(first=patience.LONG, ceiling=patience.LONG))
    seen = broker.record("kafka")
    with Member(client, topic).consumer as consumer:
        faults.error("JoinGroup", UnknownMemberId.code)
        found: list[bytes] = []
        until(lambda: len(found) == 20, consumer, found)
    assert [reply.message.error_code for reply in seen.replies("JoinGroup")] == [UnknownMemberId.code, MemberIdRequired.code, 0]


def test_a_join_that_nobody_answers_is_made_again_on_another_connection(broker: DevBroker, topic: str) -> None:
    """The connection stands all the while; without an end to it the member would wait for ever."""
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka"), timeout=10.0, request_timeout=2.0) as other:
        broker.faults("kafka").drop("JoinGroup")
        with other.consumer(topic, f"silent-{topic}", max_poll_interval=0.7, session_timeout=1.0, heartbeat_interval=0.2) as consumer:
            found: list[bytes] = []
            deadline = time.monotonic() + 60
            while len(found) < 20:
                assert time.monotonic() < deadline, found
                batch = consumer.poll(0.2)
                found += batch.values() if batch is not None else []
    joins = seen.requests("JoinGroup")
    assert len(joins) >= 2
    assert 2.5 <= joins[1].at - joins[0].at < 15.0, "as long as a rebalance may take, and a request"
    assert joins[0].connection != joins[1].connection


@pytest.mark.parametrize("name", ["FindCoordinator", "Metadata", "SyncGroup"])
def test_a_step_of_joining_that_is_not_answered_is_tried_again(broker: DevBroker, topic: str, faults: Faults, name: str) -> None:
    """Once, by the only node there is. A share has as long as any request: only a join waits for others."""
    with wireproto.connect(broker.url("kafka"), timeout=10.0, request_timeout=1.0) as client:
        member = Member(client, topic)
        lost = faults.drop(name)
        with member.consumer:
            assert len(member.take(20)) == 20
        assert not lost.times


@pytest.mark.parametrize("name", ["JoinGroup", "SyncGroup"])
def test_a_commit_that_is_refused_while_a_member_joins_has_it_join_again(client: Any, topic: str, faults: Faults, name: str) -> None:
    """As by a handler that commits in the middle of a poll. The answer under way is one to what was asked, whatever the state is then."""
    slow = faults.delay(name, 1.5)
    member = Member(client, topic)
    with member.consumer as consumer:
        consumer.poll(0.0)
        deadline = patience.soon()
        while slow.times:
            assert time.monotonic() < deadline
        consumer._coordinator.refused_commit(RebalanceInProgress.code)
        assert len(member.take(20)) == 20
        assert member.told == ["+2"]
        consumer.commit()


@pytest.mark.parametrize("raises", ["a failure of its own", "the commit's Revoked"])
def test_a_callback_that_raises_leaves_no_partition_of_another_member_behind(
    client: Any, broker: DevBroker, topic: str, raises: str
) -> None:
    first = True

    def revoked(partitions: Any) -> None:
        nonlocal first
        if first:
            first = False
            raise RuntimeError("the database is away") if raises == "a failure of its own" else Revoked("gone", partitions=())

    group = f"group-{topic}"
    with client.consumer(topic, group, heartbeat_interval=0.1, on_revoked=revoked) as one:
        patience.until(lambda: (one.poll(0.05), len(one.assignment) == 2)[1])
        with wireproto.connect(broker.url("kafka")) as other, other.consumer(topic, group, heartbeat_interval=0.1) as two:
            with pytest.raises((RuntimeError, Revoked)):
                patience.until(lambda: (one.poll(0.05), two.poll(0.05), False)[2])
            patience.until(lambda: (one.poll(0.05), two.poll(0.05), len(two.assignment) == len(one.assignment) == 1)[2])
            assert one.assignment | two.assignment == {(topic, 0), (topic, 1)}
            assert not one.assignment & two.assignment
            assert set(one._fetcher.plan.cursors) == one.assignment, "nor is one of them read on"
            [theirs] = two.assignment
            with pytest.raises(Revoked):
                one.commit({theirs: LogOffset(*theirs, 10)})


@pytest.mark.parametrize("how", ["automatic", "commit", "moment"])
def test_where_a_group_begins_is_committed_though_nothing_was_handed_out(client: Any, topic: str, how: str) -> None:
    """As Java's client does: else each member that begins at the end would begin at another one."""
    start = wireproto.AtTime(int(time.time() * 1000) + 60_000) if how == "moment" else LATEST
    options = {} if how == "commit" else {"auto_commit": True}
    group = f"group-{topic}"
    with client.consumer(topic, group, start=start, **options) as consumer:
        patience.until(lambda: (consumer.poll(0.05), len(consumer.assignment) == 2)[1])
        if how == "commit":
            consumer.commit()
    with client.producer(topic) as producer:
        for number in range(20, 40):
            producer.send(b"%d" % number, partition=number % 2)
    with client.consumer(topic, group, start=start) as consumer:
        found: list[bytes] = []
        until(lambda: len(found) >= 20, consumer, found)
    assert sorted(found) == [b"%d" % number for number in range(20, 40)]


def test_a_connection_that_is_dialled_for_a_role_which_closes_is_not_kept(broker: DevBroker, client: Any, topic: str) -> None:
    faults = broker.faults("kafka")
    client.admin().describe_topic(topic)
    try:
        faults.delay("ApiVersions", 1.0, times=-1)
        for _ in range(5):
            reader = client.reader(topic, start={(topic, 0): LogOffset(topic, 0, 0)})
            assert reader.poll(0.05) is None
            assert any(key[0] == "dial" for key in list(client.cluster.tasks._shared))
            reader.close()
    finally:
        faults.clear()
    patience.until(lambda: not any(key[0] == "dial" for key in list(client.cluster.tasks._shared)))
    assert [purpose for _, purpose in client.cluster.pool._open if purpose.startswith("bulk")] == []


def test_a_leader_shares_out_partitions_that_a_topic_of_another_member_gets(client: Any, broker: DevBroker, topic: str) -> None:
    """Which that one would see no sooner than its own metadata is old: Java's members leave it to the leader altogether."""
    other = f"{topic}-other"
    client.admin().create_topic(other, partitions=1)
    group = f"group-{topic}"
    with (
        wireproto.connect(broker.url("kafka")) as away,
        client.consumer(topic, group, metadata_max_age=0.3, heartbeat_interval=0.1) as leader,
        ExitStack() as later,
    ):
        patience.until(lambda: (leader.poll(0.05), len(leader.assignment) == 2)[1])  # who joins first leads
        member = later.enter_context(away.consumer(other, group, metadata_max_age=600.0, heartbeat_interval=0.1))
        both = lambda: (leader.poll(0.05), member.poll(0.05))  # noqa: E731
        patience.until(lambda: (both(), len(leader.assignment) == 2 and len(member.assignment) == 1)[1])
        assert leader._coordinator.membership.leading
        client.request(CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=other, count=3, assignments=None),), timeout_ms=5000))
        patience.until(lambda: (both(), len(member.assignment) == 3)[1])


@pytest.mark.parametrize("begun", ["while it was there", "on a node that does not know it yet"])
def test_a_topic_that_is_there_again_is_read_soon(client: Any, topic: str, begun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """metadata_max_age is five minutes."""
    with client.consumer(topic, f"group-{topic}", heartbeat_interval=0.1) as one:
        if begun == "while it was there":
            with client.consumer(topic, f"group-{topic}", heartbeat_interval=0.1) as two:
                patience.until(lambda: (one.poll(0.05), two.poll(0.05), len(one.assignment) == len(two.assignment) == 1)[2])
                client.admin().delete_topic(topic)
            gone = lambda: (poll_through(one), not one.assignment)[1]  # noqa: E731
            patience.until(gone)
            client.admin().create_topic(topic, partitions=2)
        else:
            counts, asked = Metadata.counts, iter(range(2))
            monkeypatch.setattr(
                Metadata, "counts", lambda self, topics: {topic: 0} if next(asked, None) is not None else counts(self, topics)
            )
        patience.until(lambda: (poll_through(one), len(one.assignment) == 2)[1])


def poll_through(consumer: Any) -> None:
    with suppress(BrokerError, DataLoss):  # what it was reading is gone
        consumer.poll(0.05)


def test_a_poll_counts_from_its_end(client: Any, topic: str) -> None:
    """What is worked on from then on has all of max_poll_interval."""
    with client.consumer(topic, f"group-{topic}", start=LATEST) as consumer:
        until(lambda: bool(consumer.assignment), consumer)
        began = time.monotonic()
        assert consumer.poll(0.3) is None
        assert consumer._coordinator.polled_at >= began + 0.3


def test_a_member_that_closes_while_a_heartbeat_is_out_leaves_by_the_coordinator_that_it_knows(
    broker: DevBroker, client: Any, topic: str
) -> None:
    seen = broker.record("kafka")
    member = Member(client, topic, heartbeat_interval=0.05)
    with member.consumer:
        member.take(20)
        out = broker.faults("kafka").drop("Heartbeat")
        patience.until(lambda: not out.times)
        looks = len(seen.requests("FindCoordinator"))
        beating = member.consumer._coordinator._task
    assert beating.done
    assert len(seen.requests("LeaveGroup")) == 1
    assert len(seen.requests("FindCoordinator")) == looks


def test_a_member_that_closes_while_its_first_join_is_out_leaves(broker: DevBroker, client: Any, topic: str, faults: Faults) -> None:
    """By the member id in the reply: a real coordinator ends no rebalance before who got an id has joined, left, or been silent for the
    session timeout."""
    seen = broker.record("kafka")
    faults.delay("JoinGroup", 0.5)
    with client.consumer(topic, f"group-{topic}") as consumer:
        patience.until(lambda: consumer.poll(0.01) is None and faults.seen("JoinGroup"))
        assert not consumer._coordinator.membership.member
    assert len(seen.requests("JoinGroup")) == 1
    (left,) = seen.requests("LeaveGroup")
    assert left.message.members[0].member_id
    with Member(client, topic).consumer as other:
        until(lambda: len(other.assignment) == 2, other)


def test_a_member_whose_first_join_is_not_answered_closes_by_its_deadline(client: Any, topic: str, faults: Faults) -> None:
    consumer = client.consumer(topic, f"group-{topic}")
    lost = faults.drop("JoinGroup")
    patience.until(lambda: consumer.poll(0.01) is None and not lost.times)
    began = time.monotonic()
    consumer.close(timeout=0.3)
    assert time.monotonic() - began < 0.3 + patience.KEPT
    assert consumer._coordinator._task.done


def test_a_reader_looks_for_new_partitions_after_metadata_max_age(client: Any, topic: str) -> None:
    before = time.monotonic()
    with client.reader(topic, metadata_max_age=60.0) as reader:
        assert before + 60.0 <= reader._fetcher._follow_at <= time.monotonic() + 60.0


def test_a_leader_whose_look_up_fails_is_looked_up_again(client: Any, topic: str) -> None:
    """No leader is known, and whoever is asked for one is not there: the record waits, and goes when the next look-up succeeds."""
    with client.producer(topic) as producer:
        producer.send(b"first", partition=0).position(30.0)
        cluster, failed = client.cluster, []
        known = cluster.metadata.topics[topic]
        nobody = {number: replace(leader, node=-1) for number, leader in known.partitions.items()}
        look = cluster.look

        def fails() -> Steps[None]:
            yield from ()
            raise ConnectError("nobody is there")

        def once(*arguments: Any, **more: Any) -> Any:
            if failed:
                return look(*arguments, **more)
            failed.append(arguments)
            return cluster.tasks.spawn(fails(), "looking in vain")

        cluster.look = once
        cluster.metadata.topics = cluster.metadata.topics | {topic: replace(known, partitions=nobody, available=())}
        assert producer.send(b"second", partition=0).position(20.0) == LogOffset(topic, 0, 11)
        assert failed


def test_a_role_that_its_user_let_go_of_lives_no_longer(client: Any, topic: str) -> None:
    readers = weakref.WeakSet(client.reader(topic) for _ in range(3))
    gc.collect()
    assert not readers


@pytest.mark.parametrize("how", ["another member", "the same member"])
def test_a_group_that_began_at_the_end_goes_on_there_before_its_first_commit(client: Any, topic: str, how: str) -> None:
    """And not at the end of then, which would pass over what came in between, handed out or not."""
    options = {"start": LATEST, "auto_commit": False}
    with client.consumer(topic, f"group-{topic}", **options) as consumer, client.producer(topic) as producer:
        patience.until(lambda: consumer.poll(0.05) is None and len(consumer.assignment) == 2)
        assert {place.offset for place in consumer.committed().values()} == {10}
        for number in range(4):
            producer.send(b"new", partition=number % 2).position(10.0)
        handed: list[Any] = []
        patience.until(lambda: taken(consumer, handed) == 4)
        again: list[Any] = []
        if how == "the same member":
            consumer._coordinator.rejoin()
            patience.until(lambda: taken(consumer, again) == 4)
    if how == "another member":
        with client.consumer(topic, f"group-{topic}", **options) as other:
            patience.until(lambda: taken(other, again) == 4)
    assert set(again) == {b"new"}


def taken(consumer: Any, found: list[Any]) -> int:
    """How many values there are with those that came now."""
    batch = consumer.poll(0.05)
    found.extend(batch.values() if batch is not None else ())
    return len(found)
