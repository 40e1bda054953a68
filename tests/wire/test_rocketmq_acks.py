"""A worker's acks, which it commits in groups: when they are sent, what is waited for, and what becomes of those that are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from patience import until
from wireproto.devbroker import Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import OptionError, Revoked, TimedOut, UsageError
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import NoPermission
from wireproto.rocketmq.messages import InvokeBrokerToResetOffsetRequest

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
COMMIT = "UpdateConsumerOffset"
BUSY, NO_PERMISSION = 2, 16
LONG = 600.0  # no timer ends within a test


def put(client: RocketClient, topic: str, count: int, partition: int | None = None) -> None:
    with client.producer(topic) as out:
        for number in range(count):
            out.send(b"%d" % number, partition=partition)


def taken(worker: Any) -> Any:
    delivery = worker.receive(30.0)
    assert delivery is not None
    return delivery


def offset(client: RocketClient, group: str, topic: str, partition: int = 0) -> int | None:
    at = client.admin().group_positions(group, topic).get((topic, partition))
    return None if at is None else int(at.offset)  # type: ignore[attr-defined]


def one_at_a_time(seen: Recording) -> bool:
    """Whether each commit was answered before the next one was sent."""
    ways = [frame.up for frame in seen.all() if frame.name == COMMIT]
    return ways == [True, False] * (len(ways) // 2)


def test_many_acks_are_one_commit(client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 50)
    with client.queue(topic, "g-many", ack_group_time=LONG) as worker:
        for _ in range(50):
            taken(worker).ack()
        assert seen.requests(COMMIT) == []
        worker.flush()
        assert offset(client, "g-many", topic) == 50
    assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [50], "nothing is left for the close"


def test_an_ack_is_committed_by_itself_when_its_time_is_over(client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 2)
    with client.queue(topic, "g-timer", ack_group_time=0.05) as worker:
        for done in (1, 2):
            taken(worker).ack()
            seen.wait(COMMIT, done, timeout=30.0)
            until(lambda done=done: offset(client, "g-timer", topic) == done)


def test_only_what_is_before_the_first_open_message_is_committed(client: RocketClient, topic: str) -> None:
    put(client, topic, 3)
    with client.queue(topic, "g-open", ack_group_time=LONG) as worker:
        first, second, third = taken(worker), taken(worker), taken(worker)
        first.ack()
        third.ack()
        worker.flush()
        assert offset(client, "g-open", topic) == 1
        second.ack()
        worker.flush()
        assert offset(client, "g-open", topic) == 3


def test_an_ack_that_waits_is_committed_when_it_returns(client: RocketClient, topic: str) -> None:
    put(client, topic, 1)
    with client.queue(topic, "g-wait", ack_group_time=LONG) as worker:
        taken(worker).ack(wait=True)
        assert offset(client, "g-wait", topic) == 1


def test_an_ack_that_waits_is_not_taken_back_by_a_group_before_it(
    client: RocketClient, topic: str, seen: Recording, faults: Faults
) -> None:
    """A broker may serve the commit that was sent first last."""
    put(client, topic, 3)
    with client.queue(topic, "g-order", ack_group_time=0.01) as worker:
        taken(worker).ack(wait=True)
        faults.delay(COMMIT, 0.5)
        taken(worker).ack()
        seen.wait(COMMIT, 2, timeout=30.0)
        taken(worker).ack(wait=True)
        assert one_at_a_time(seen)
        assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [1, 2, 3]
        assert offset(client, "g-order", topic) == 3


def test_without_groups_each_ack_is_a_commit(client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 3)
    with client.queue(topic, "g-alone", ack_group_time=0) as worker:
        for done in (1, 2, 3):
            taken(worker).ack()
            assert offset(client, "g-alone", topic) == done
    assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [1, 2, 3]


def test_a_close_commits_what_was_acked(client: RocketClient, topic: str) -> None:
    put(client, topic, 5)
    with client.queue(topic, "g-close", ack_group_time=LONG) as worker:
        for _ in range(4):
            taken(worker).ack()
    assert offset(client, "g-close", topic) == 4


def test_an_ack_is_made_once(client: RocketClient, topic: str) -> None:
    put(client, topic, 1)
    with client.queue(topic, "g-once", ack_group_time=LONG) as worker:
        delivery = taken(worker)
        delivery.ack()
        for wait in (False, True):
            with pytest.raises(UsageError, match="acknowledged before"):
                delivery.ack(wait=wait)
        with pytest.raises(OptionError):
            delivery.ack("soon")


def test_what_is_refused_for_good_is_raised_once_and_committed_later(
    client: RocketClient, topic: str, seen: Recording, faults: Faults
) -> None:
    put(client, topic, 3)
    with client.queue(topic, "g-refused", ack_group_time=0.01) as worker:
        taken(worker).ack(wait=True)
        faults.error(COMMIT, NO_PERMISSION)
        delivery = taken(worker)
        delivery.ack()
        with pytest.raises(NoPermission):
            until(lambda: worker.receive(0.05) is None and False)
        assert offset(client, "g-refused", topic) == 1
        worker.flush()
        assert offset(client, "g-refused", topic) == 2


def test_a_worker_that_waits_for_messages_meets_a_refusal_at_once(client: RocketClient, topic: str, faults: Faults) -> None:
    put(client, topic, 2)
    with client.queue(topic, "g-waiting", ack_group_time=0.2) as worker:
        taken(worker).ack(wait=True)
        faults.error(COMMIT, NO_PERMISSION)
        taken(worker).ack()
        with pytest.raises(NoPermission):
            worker.receive(300.0)


def test_what_is_refused_for_a_while_is_committed_again(client: RocketClient, topic: str, faults: Faults) -> None:
    put(client, topic, 2)
    with client.queue(topic, "g-busy", ack_group_time=0.01) as worker:
        taken(worker).ack(wait=True)
        faults.error(COMMIT, BUSY, times=3)
        taken(worker).ack()
        until(lambda: worker.receive(0.05) is None and offset(client, "g-busy", topic) == 2)


def test_a_flush_without_an_answer_says_so_and_may_be_repeated(client: RocketClient, topic: str, faults: Faults) -> None:
    put(client, topic, 2)
    with client.queue(topic, "g-silent", ack_group_time=LONG) as worker:
        taken(worker).ack(wait=True)
        taken(worker).ack()
        faults.drop(COMMIT)
        with pytest.raises(TimedOut):
            worker.flush(0.2)
        worker.flush()
        assert offset(client, "g-silent", topic) == 2


def test_a_queue_that_falls_to_another_member_is_committed_before(client: RocketClient, dial: Callable[..., RocketClient]) -> None:
    topic, group = "acks-moved", "g-moved"
    client.admin().create_topic(topic, partitions=2)
    for partition in (0, 1):
        put(client, topic, 3, partition)
    with client.queue(topic, group, ack_group_time=LONG, rebalance_interval=0.2) as worker:
        for _ in range(6):
            taken(worker).ack()
        with dial().queue(topic, group, ack_group_time=LONG, rebalance_interval=0.2):
            until(lambda: worker.receive(0.05) is None and len(worker._assignment.asked_for()) == 1)
            gone = ({0, 1} - {key[1] for key in worker._assignment.asked_for()}).pop()
            until(lambda: offset(client, group, topic, gone) == 3)
            kept = offset(client, group, topic, 1 - gone)
            assert kept in (None, 0), "what is still ours waits for its time"


def test_acks_of_a_queue_that_was_lost_are_reported(client: RocketClient, topic: str, seen: Recording, faults: Faults) -> None:
    """The worker was away for `max_poll_interval`: other members may have read on, so that nothing is committed any more."""
    put(client, topic, 2)
    worker = client.queue(topic, "g-away", ack_group_time=LONG, max_poll_interval=0.4)
    delivery = taken(worker)
    delivery.ack()
    seen.wait("UnregisterClient", timeout=30.0)
    with pytest.raises(Revoked, match="max_poll_interval"):
        worker.receive(0.0)
    assert seen.requests(COMMIT) == []
    worker.close()


def test_a_release_s_commit_waits_for_a_group_that_began_while_it_was_sent_back(
    client: RocketClient, topic: str, seen: Recording, faults: Faults
) -> None:
    """A broker may serve the commit that was sent first last, and the message that was given back would come twice."""
    put(client, topic, 3)
    with client.queue(topic, "g-back", ack_group_time=0.1) as worker:
        first, second, third = taken(worker), taken(worker), taken(worker)
        first.ack(wait=True)
        faults.delay("ConsumerSendMsgBack", 0.6)
        faults.delay(COMMIT, 1.2)
        second.ack()
        third.release()
        assert one_at_a_time(seen)
        assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [1, 2, 3]
        assert offset(client, "g-back", topic) == 3


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_flush_and_a_close_name_what_is_refused_raise_it_once_and_log_it(
    client: RocketClient, topic: str, faults: Faults, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(client, topic, 3)
    worker = client.queue(topic, f"g-named-{call}", ack_group_time=LONG)
    taken(worker).ack(wait=True)
    taken(worker).ack()
    faults.error(COMMIT, NO_PERMISSION)
    with pytest.raises(NoPermission, match=rf"not committed: {topic}\[0\] from offset 1 on"):
        getattr(worker, call)()
    assert any(
        f"{topic}[0]: acks are not committed, messages from offset 1 on" in record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING"
    )
    if call == "flush":
        assert taken(worker).value == b"2", "it is not raised again"
        worker.flush()
        assert offset(client, "g-named-flush", topic) == 2
    worker.close()


def test_a_flush_waits_out_a_refusal_that_passes(client: RocketClient, topic: str, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the broker is given for one answer."""
    monkeypatch.setattr("wireproto.rocketmq.member.ANSWER_TIMEOUT", 0.2)
    put(client, topic, 2)
    with client.queue(topic, "g-passing", ack_group_time=LONG) as worker:
        taken(worker).ack(wait=True)
        taken(worker).ack()
        faults.drop(COMMIT, times=2)
        worker.flush()
        assert offset(client, "g-passing", topic) == 2


def test_a_group_that_failed_is_committed_again_long_before_the_next_one(client: RocketClient, topic: str, faults: Faults) -> None:
    put(client, topic, 2)
    with client.queue(topic, "g-sooner", ack_group_time=LONG) as worker:
        taken(worker).ack(wait=True)
        taken(worker).ack()
        faults.drop(COMMIT)
        with pytest.raises(TimedOut, match=r"from offset 1 on"):
            worker.flush(0.2)
        until(lambda: offset(client, "g-sooner", topic) == 2)


def test_each_queue_whose_acks_were_lost_is_reported(client: RocketClient, seen: Recording) -> None:
    topic = "acks-lost"
    client.admin().create_topic(topic, partitions=2)
    for partition in (0, 1):
        put(client, topic, 1, partition)
    with client.queue(topic, "g-both", ack_group_time=LONG, max_poll_interval=0.4) as worker:
        for _ in range(2):
            taken(worker).ack()
        seen.wait("UnregisterClient", timeout=30.0)
        lost = []
        for call in (lambda: worker.receive(0.0), worker.flush):
            with pytest.raises(Revoked, match="may come again") as told:
                call()  # type: ignore[no-untyped-call]
            lost += told.value.partitions
        assert sorted(lost) == [(topic, 0), (topic, 1)]


def test_a_close_reports_the_acks_of_a_worker_that_had_left(client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 1)
    worker = client.queue(topic, "g-left", ack_group_time=LONG, max_poll_interval=0.4)
    taken(worker).ack()
    seen.wait("UnregisterClient", timeout=30.0)
    with pytest.raises(Revoked, match=rf"{topic}\[0\] from offset 0 on"):
        worker.close()
    assert seen.requests(COMMIT) == []


def test_a_commit_that_is_repeated_takes_nothing_back(
    client: RocketClient, dial: Callable[..., RocketClient], topic: str, seen: Recording, faults: Faults
) -> None:
    """Another member may have read on meanwhile; here an administrator commits as it would."""
    put(client, topic, 5)
    with client.queue(topic, "g-repeat", ack_group_time=LONG) as worker:
        taken(worker).ack(wait=True)
        taken(worker).ack()
        faults.drop(COMMIT)
        with pytest.raises(TimedOut):
            worker.flush(0.2)
        position = next(iter(client.admin().positions(topic, LATEST).values()))
        dial().admin().commit("g-repeat", {(topic, 0): position})
        worker.flush()
        assert offset(client, "g-repeat", topic) == 5


def test_a_flush_waits_for_the_last_commit_of_a_queue_that_falls_to_another_member(
    client: RocketClient, dial: Callable[..., RocketClient], faults: Faults
) -> None:
    topic, group = "acks-falling", "g-falling"
    client.admin().create_topic(topic, partitions=2)
    for partition in (0, 1):
        put(client, topic, 3, partition)
    with client.queue(topic, group, ack_group_time=LONG, rebalance_interval=0.2) as worker:
        held = [taken(worker) for _ in range(6)]
        for delivery in held:
            delivery.ack(wait=delivery.value == b"0")  # whichever queue falls to the other member, acks of it wait
        faults.delay(COMMIT, 1.5)
        with dial().queue(topic, group, ack_group_time=LONG, rebalance_interval=0.2):
            until(lambda: worker.receive(0.05) is None and bool(worker._assignment.last_commits()))
            with pytest.raises(TimedOut, match="fell to another member"):
                worker.flush(0.1)
            worker.flush()
            gone = ({0, 1} - {key[1] for key in worker._assignment.asked_for()}).pop()
            assert offset(client, group, topic, gone) == 3


# an administrator's reset beside them -------------------------------------------------------------------------------------------


def reset(client: RocketClient, topic: str, group: str, to: int) -> None:
    request = InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True, queue_id=0, offset=to)
    client.request(request, to=(topic, 0))


def test_a_group_in_flight_does_not_undo_a_reset(client: RocketClient, topic: str, seen: Recording, faults: Faults) -> None:
    """A broker may serve the commit that was sent first last."""
    put(client, topic, 6)
    with client.queue(topic, "g-reset", ack_group_time=0.01, pull_suspend=1.0) as worker:
        for _ in range(3):
            taken(worker).ack(wait=True)
        faults.delay(COMMIT, 1.5)
        taken(worker).ack()
        seen.wait(COMMIT, 4, timeout=30.0)
        reset(client, topic, "g-reset", 1)
        again = [taken(worker)]
        while again[-1].value != b"1":
            again.append(taken(worker))
        assert one_at_a_time(seen)
        assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [1, 2, 3, 4, 1]
        assert offset(client, "g-reset", topic) == 1


def test_an_automatic_commit_in_flight_does_not_undo_a_reset(client: RocketClient, topic: str, seen: Recording, faults: Faults) -> None:
    put(client, topic, 6)
    with client.consumer(topic, "g-auto", auto_commit=True, auto_commit_interval=0.0, pull_suspend=1.0, start=EARLIEST) as consumer:
        found = [consumer.poll(30.0)]
        assert found[0] is not None
        faults.delay(COMMIT, 1.5)
        consumer.poll(0.0)
        seen.wait(COMMIT, timeout=30.0)
        reset(client, topic, "g-auto", 1)
        until(lambda: (found.append(consumer.poll(0.2)), found[-1] is not None)[1])
        assert found[-1].values()[0] == b"1"  # type: ignore[union-attr]
        assert one_at_a_time(seen)
        assert [request.message.commit_offset for request in seen.requests(COMMIT)][-1] == 1
        assert offset(client, "g-auto", topic) == 1


@pytest.mark.parametrize("role", ["queue", "consumer"])
def test_a_close_commits_the_offset_that_a_broker_asked_a_member_to_set(client: RocketClient, topic: str, role: str) -> None:
    """A broker without `useServerSideResetOffset` keeps no such offset itself: it asks the members to commit it."""
    put(client, topic, 6)
    if role == "queue":
        made: Any = client.queue(topic, "g-asked-queue", ack_group_time=LONG)
        for _ in range(4):
            taken(made).ack()
    else:
        made = client.consumer(topic, "g-asked-consumer", auto_commit=True, auto_commit_interval=LONG, start=EARLIEST)
        assert made.poll(30.0) is not None
    (queue,) = (queue for key, queue in made._assignment.queues.items() if key[0] == topic)
    made._assignment.member.reset({(topic, queue.broker, queue.queue_id): 1})  # as a broker's request does, between two calls
    made.close()
    assert offset(client, f"g-asked-{role}", topic) == 1


def test_no_group_is_committed_once_a_broker_has_asked_to_set_the_offset(client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 6)
    with client.queue(topic, "g-between", ack_group_time=LONG) as worker:
        taken(worker).ack(wait=True)
        taken(worker).ack()
        (queue,) = (queue for key, queue in worker._assignment.queues.items() if key[0] == topic)
        worker._assignment.member.reset({(topic, queue.broker, queue.queue_id): 0})
        due = threading.Event()
        for step in (worker._begin_commits, due.set):  # as the timer does
            client.cluster.loop.call_at(time.monotonic(), step)
        assert due.wait(30.0)
        assert offset(client, "g-between", topic) == 1
        assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [1]
        assert taken(worker).value == b"0"
        assert [request.message.commit_offset for request in seen.requests(COMMIT)] == [1, 0]
