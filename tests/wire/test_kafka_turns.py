"""What a member of a Kafka group does at the turn of a generation, and where its coordinator keeps silent; on the embedded broker."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from wireproto import EARLIEST, LogOffset
from wireproto.devbroker import DevBroker, Faults
from wireproto.devbroker.kafka.groups import group_of
from wireproto.devbroker.recording import Recording
from wireproto.kafka import wire
from wireproto.kafka.codes import GroupAuthorizationFailed, RebalanceInProgress
from wireproto.kafka.group import STABLE

PROTOCOL, CLIENT = "kafka", {"timeout": 10.0, "max_wait": 0.05, "heartbeat_interval": 0.05}
SOON = 20.0
COMMITS = {"auto_commit": True, "auto_commit_interval": 3600.0}
_numbers = itertools.count()


@pytest.fixture
def topic(client: Any) -> str:
    """One partition with ten records."""
    name = f"turns-{next(_numbers)}"
    client.admin().create_topic(name)
    write(client, name, 10)
    return name


def write(client: Any, topic: str, count: int) -> None:
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%d" % number)


def until(happened: Callable[[], object], consumer: Any) -> list[bytes]:
    """Poll until that is so; what came meanwhile."""
    found: list[bytes] = []
    deadline = time.monotonic() + SOON
    while not happened():
        assert time.monotonic() < deadline
        batch = consumer.poll(0.01)
        found += batch.values() if batch is not None else []
    return found


def take(consumer: Any, count: int) -> None:
    """So many records."""
    deadline = time.monotonic() + SOON
    while count > 0:
        assert time.monotonic() < deadline
        batch = consumer.poll(1.0)
        count -= len(batch) if batch is not None else 0
    assert not count


def committed(client: Any, topic: str) -> int:
    """Where the group resumes; -1: nothing is committed."""
    found = client.admin().group_positions(f"g-{topic}", topic)
    return int(found[topic, 0].offset) if found else -1


def rebalance(faults: Faults) -> None:
    faults.error("Heartbeat", RebalanceInProgress.code)


@contextmanager
def answers(broker: DevBroker, key: int, change: Callable[[Any, Any], Awaitable[Any]]) -> Iterator[None]:
    """Meanwhile the broker answers a kind of request by `change(handler, context)`."""
    offered: Any = broker._sides["kafka"].offered  # type: ignore[attr-defined]
    plain = offered[key]
    offered[key] = (*plain[:3], partial(change, plain[3]))
    try:
        yield
    finally:
        offered[key] = plain


@contextmanager
def held_commits(broker: DevBroker) -> Iterator[threading.Event]:
    """Commits are served when the event is set."""
    go = threading.Event()

    async def wait(handler: Any, context: Any) -> Any:
        while not go.is_set():
            await asyncio.sleep(0.005)
        return await handler(context)

    with answers(broker, 8, wait):
        try:
            yield go
        finally:
            go.set()


def test_nothing_is_handed_out_while_the_last_commit_before_a_join_is_under_way(
    client: Any, broker: DevBroker, topic: str, faults: Faults, seen: Recording
) -> None:
    """It would not be in that commit, and come again to whoever goes on."""
    told: list[int] = []

    def revoked(partitions: Any) -> None:
        told.append(committed(client, topic))

    with client.consumer(topic, f"g-{topic}", on_revoked=revoked, **COMMITS) as consumer, held_commits(broker) as go:
        take(consumer, 10)
        rebalance(faults)
        until(lambda: seen.requests("OffsetCommit"), consumer)
        write(client, topic, 5)
        assert [consumer.poll(0.01) for _ in range(20)] == [None] * 20
        assert not told
        go.set()
        until(lambda: told, consumer)
        assert told == [10]


def test_what_was_handed_out_during_a_commit_is_committed_before_a_join_too(
    client: Any, broker: DevBroker, topic: str, seen: Recording
) -> None:
    """The commit of the interval is still under way when the group moves on."""
    told: list[int] = []
    how: dict[str, Any] = {"auto_commit": True, "auto_commit_interval": 0.0, "metadata_max_age": 0.05}

    def revoked(partitions: Any) -> None:
        told.append(committed(client, topic))

    with client.consumer(topic, f"g-{topic}", on_revoked=revoked, **how) as consumer, held_commits(broker) as go:
        take(consumer, 10)
        until(lambda: seen.requests("OffsetCommit"), consumer)
        write(client, topic, 5)
        take(consumer, 5)
        assert len(seen.requests("OffsetCommit")) == 1
        broker.call("kafka", "grow", topic, 2)
        until(lambda: consumer._coordinator.membership.state != STABLE, consumer)
        assert [consumer.poll(0.01) for _ in range(20)] == [None] * 20
        assert not told
        go.set()
        until(lambda: told, consumer)
        assert told == [15]


def test_each_join_has_a_commit_before_it(client: Any, topic: str, faults: Faults) -> None:
    told: list[int] = []
    with client.consumer(topic, f"g-{topic}", on_revoked=lambda parts: told.append(committed(client, topic)), **COMMITS) as consumer:
        for turn in range(1, 4):
            take(consumer, 10)
            rebalance(faults)
            until(lambda: len(told) == turn and consumer.assignment, consumer)  # noqa: B023
            write(client, topic, 10)
        assert told == [10, 20, 30]


def test_a_last_commit_that_is_refused_is_made_once(client: Any, broker: DevBroker, topic: str, faults: Faults, seen: Recording) -> None:
    """And takes longer than a poll: if each poll began another one, the member would not come to join again."""
    told: list[Any] = []

    async def refuse(handler: Any, context: Any) -> Any:
        await asyncio.sleep(0.1)
        reply = await handler(context)
        (topic,) = reply.topics
        refused = tuple(part.replace(error_code=GroupAuthorizationFailed.code) for part in topic.partitions)
        return reply.replace(topics=(topic.replace(partitions=refused),))

    with client.consumer(topic, f"g-{topic}", on_revoked=told.append, **COMMITS) as consumer, answers(broker, 8, refuse):
        take(consumer, 10)
        rebalance(faults)
        until(lambda: told, consumer)
        assert len(seen.requests("OffsetCommit")) == 1


@pytest.mark.parametrize("commits", [{}, COMMITS], ids=["by hand", "by itself"])
def test_a_member_that_resumes_has_nothing_to_commit(client: Any, topic: str, seen: Recording, commits: Any) -> None:
    client.admin().commit(f"g-{topic}", {(topic, 0): LogOffset(topic, 0, 10)})
    assert len(seen.requests("OffsetCommit")) == 1
    with client.consumer(topic, f"g-{topic}", **commits) as consumer:
        until(lambda: consumer.assignment, consumer)
        if not commits:
            consumer.commit()
    assert len(seen.requests("OffsetCommit")) == 1
    assert committed(client, topic) == 10


def test_what_was_sought_away_from_is_no_loss(client: Any, topic: str, faults: Faults) -> None:
    """Nothing has been handed out since the seek: a rebalance then takes nothing that a commit could tell of."""
    told: list[Any] = []
    with client.consumer(topic, f"g-{topic}", on_revoked=told.append) as consumer:
        take(consumer, 10)
        consumer.commit()
        consumer.seek(EARLIEST)
        consumer.pause([(topic, 0)])
        rebalance(faults)
        until(lambda: told, consumer)
        consumer.commit()


@pytest.mark.parametrize("commits", [{}, COMMITS], ids=["by hand", "by itself"])
def test_the_first_generation_may_be_0(client: Any, broker: DevBroker, topic: str, seen: Recording, commits: Any) -> None:
    side: Any = broker._sides["kafka"]
    group_of(side, f"g-{topic}").generation = -1
    with client.consumer(topic, f"g-{topic}", **commits) as consumer:
        take(consumer, 10)
        seen.wait("Heartbeat", timeout=SOON)
        if not commits:
            consumer.commit()
    assert [one.message.generation_id_or_member_epoch for one in seen.requests("OffsetCommit")] == [0]
    assert committed(client, topic) == 10
    assert [one.message.generation_id for one in seen.requests("SyncGroup")] == [0]


def test_a_member_that_closes_while_it_joins_leaves_by_another_connection(client: Any, topic: str, faults: Faults, seen: Recording) -> None:
    """Brokers serve a connection in order: behind the join that is held the leaving would not be seen."""
    with client.consumer(topic, f"g-{topic}") as consumer:
        take(consumer, 10)
        joins = len(seen.requests("JoinGroup"))
        faults.stall("JoinGroup")
        rebalance(faults)
        until(lambda: len(seen.requests("JoinGroup")) > joins, consumer)
    (left,) = seen.requests("LeaveGroup")
    assert left.connection != seen.requests("JoinGroup")[joins].connection


def test_a_heartbeat_that_nobody_answers_is_followed_by_one_on_another_connection(
    client: Any, topic: str, faults: Faults, seen: Recording
) -> None:
    with client.consumer(topic, f"g-{topic}", session_timeout=1.0) as consumer:
        take(consumer, 10)
        lost = seen.wait("Heartbeat", timeout=SOON)[-1].connection
        silent = faults.drop("Heartbeat")
        deadline = time.monotonic() + SOON
        while silent.times:
            assert time.monotonic() < deadline
            consumer.poll(0.01)
        seen.wait("Heartbeat", timeout=SOON, when=lambda one: one.connection != lost)


@pytest.mark.parametrize("trouble", ["nobody answers", "a refusal that does not pass"])
def test_a_coordinator_that_takes_its_time_is_waited_for_though_nobody_tells_who_it_is(
    client: Any, dial: Callable[..., Any], topic: str, faults: Faults, seen: Recording, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Doubt is no reason to give the request up: it is made once, and its answer counts."""
    slow = dial(request_timeout=1.0 if trouble == "nobody answers" else 30.0)
    with slow.consumer(topic, f"g-{topic}") as consumer:
        take(consumer, 10)
        monkeypatch.setattr(wire, "SILENT", 0.05)
        if trouble == "nobody answers":
            faults.drop("FindCoordinator", times=-1)
        else:
            faults.error("FindCoordinator", 30, times=-1)
        joins, looks = len(seen.requests("JoinGroup")), len(seen.requests("FindCoordinator"))
        faults.delay("JoinGroup", 2.0 if trouble == "nobody answers" else 0.5)
        rebalance(faults)
        until(lambda: len(seen.requests("SyncGroup")) == 2, consumer)
        assert len(seen.requests("FindCoordinator")) > looks
        assert len(seen.requests("JoinGroup")) == joins + 1
        until(lambda: consumer.assignment, consumer)


def test_how_long_nobody_was_reached_counts_anew_with_other_partitions(
    broker: DevBroker, dial: Callable[..., Any], topic: str, faults: Faults
) -> None:
    """A member that has no partitions for longer than `request_timeout` behind a failure asks nobody, and is not failing."""
    given: list[int] = []

    def assigned(parts: frozenset[Any]) -> None:
        given.append(len(parts))
        if len(given) == 2:
            broker.pause("kafka")

    short = dial(request_timeout=2.0)
    with short.consumer(topic, f"g-{topic}", session_timeout=30.0, auto_commit=False, on_assigned=assigned) as consumer:
        take(consumer, 10)
        broker.pause("kafka")
        try:
            for _ in range(5):
                consumer.poll(0.1)
            faults.drop("Fetch", times=-1)
            faults.delay("JoinGroup", 2.5)
            rebalance(faults)
        finally:
            broker.resume("kafka")
        try:
            until(lambda: len(given) == 2, consumer)
            for _ in range(5):
                consumer.poll(0.1)
        finally:
            broker.resume("kafka")


def test_a_join_that_its_coordinator_holds_back_is_no_failure_when_the_connection_ends(
    broker: DevBroker, dial: Callable[..., Any], topic: str, faults: Faults, seen: Recording
) -> None:
    """However often: somebody was reached each time, and waits for the other members."""
    short = dial(request_timeout=1.0)
    with short.consumer(topic, f"g-{topic}", session_timeout=30.0) as consumer:
        faults.delay("JoinGroup", 600.0, times=-1)
        for number in range(1, 5):
            until(lambda number=number: len(seen.requests("JoinGroup")) >= number, consumer)  # type: ignore[misc]
            assert consumer.poll(0.7) is None
            broker.kick("kafka")
        faults.clear()
        broker.kick("kafka")
        take(consumer, 10)
