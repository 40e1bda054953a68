"""RocketMQ's brokers that are not ready yet, or will not tell: what is waited for, and what is taken as it is; on the embedded broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from patience import KEPT, soon
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut
from wireproto.net.task import Steps
from wireproto.rocketmq import dispatch


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["rocketmq"], auto_create=False) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("rocketmq"), timeout=5.0) as made:
        made.admin().create_topic("t")
        made.producer("t").send(b"x").position(5.0)
        yield made


@pytest.mark.parametrize("code", [16, 3, 1])
def test_a_broker_that_will_not_tell_how_far_it_is_is_taken_as_it_is(broker: DevBroker, client: Any, code: int) -> None:
    seen = broker.record("rocketmq")
    broker.faults("rocketmq").error("GetBrokerRuntimeInfo", code, times=-1)
    if code != 1:
        assert {place.offset for place in client.admin().positions("t", LATEST).values()} == {1}
        assert broker.faults("rocketmq").seen("GetBrokerRuntimeInfo") == 1, "what it does not know, or may not tell, it will not tell later"
    else:
        began = time.monotonic()
        assert {place.offset for place in client.admin().positions("t", LATEST).values()} == {1}
        assert time.monotonic() - began < dispatch.STARTING + KEPT
        assert broker.faults("rocketmq").seen("GetBrokerRuntimeInfo") > 1
    assert seen.requests("GetMaxOffset")


def test_a_broker_in_its_first_second_is_asked_again(broker: DevBroker, client: Any) -> None:
    broker.faults("rocketmq").error("GetBrokerRuntimeInfo", 1, times=2)
    assert {place.offset for place in client.admin().positions("t", LATEST).values()} == {1}
    assert broker.faults("rocketmq").seen("GetBrokerRuntimeInfo") == 3


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        ([{"commitLogMaxOffset": "10", "dispatchBehindBytes": "4"}, {"commitLogMaxOffset": "20", "dispatchBehindBytes": "10"}], 2),
        ([{"commitLogMaxOffset": "10", "dispatchBehindBytes": "0"}], 1),
        ([{"commitLogMaxOffset": "x", "dispatchBehindBytes": "0"}], 1),
        ([{"dispatchBehindBytes": "0"}], 1),
    ],
)
def test_the_goal_is_what_the_log_held_when_it_was_asked_first(
    client: Any, facts: list[dict[str, str]], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(facts)
    taken: list[Any] = []
    monkeypatch.setattr(dispatch, "runtime_info", lambda body: taken.append(body) or next(told))
    client.admin().positions("t", LATEST)
    assert len(taken) == asked


@pytest.mark.parametrize("silent", [False, True], ids=["and says so", "and falls silent"])
def test_a_broker_that_never_catches_up_holds_nobody_beyond_the_timeout(
    broker: DevBroker, client: Any, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever moment the time is up at, between two questions or within one: it was the log that was waited for."""

    def told(body: object) -> dict[str, str]:
        if silent:
            broker.faults("rocketmq").drop("GetBrokerRuntimeInfo", times=-1)
        return {"commitLogMaxOffset": "10", "dispatchBehindBytes": "4"}

    monkeypatch.setattr(dispatch, "runtime_info", told)
    began = time.monotonic()
    with pytest.raises(TimedOut, match="not yet put all of its commit log into its consume queues"):
        client.admin().positions("t", LATEST, timeout=1.0)
    assert time.monotonic() - began < 1.0 + KEPT


def test_a_topic_is_usable_when_every_queue_answers(broker: DevBroker, client: Any) -> None:
    broker.faults("rocketmq").error("GetRouteInfoByTopic", 17, times=3)  # the first asks whether it exists; then it is not told yet
    client.admin().create_topic("u", partitions=2)
    assert broker.faults("rocketmq").seen("GetRouteInfoByTopic") > 3
    broker.faults("rocketmq").clear()
    broker.faults("rocketmq").error("GetRouteInfoByTopic", 17, times=-1)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        client.admin().create_topic("v", timeout=0.4)
    assert time.monotonic() - began < 0.4 + KEPT


def test_a_topic_that_a_list_brought_back_is_taken_out_again(broker: DevBroker, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = client.admin()
    answers = iter([True, True, False])

    def exists(topic: str, until: float) -> Steps[bool]:
        return next(answers)
        yield 0.0

    monkeypatch.setattr(admin, "_exists", exists)
    seen = broker.record("rocketmq")
    admin.delete_topic("t")
    assert len(seen.requests("DeleteTopicInNamesrv")) >= 1
    assert next(answers, None) is None, "looked at until it was gone"


@pytest.fixture
def dear(broker: DevBroker, client: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many questions after a broker's state, which cost a 5.x broker with timers a tenth of a second, were seen since last asked."""
    seen = broker.record("rocketmq")
    asked = [0]
    monkeypatch.setattr(dispatch, "FIRST_5X", 0)  # the embedded broker gives 4.9's version

    def count() -> int:
        before, asked[0] = asked[0], len(seen.requests("GetBrokerRuntimeInfo"))
        return asked[0] - before

    return count


def test_a_broker_is_asked_for_its_state_once_where_its_queues_prove_the_rest(client: Any, dear: Callable[[], int]) -> None:
    admin = client.admin()
    with client.producer("t") as out:
        for count in range(1, 6):
            assert {place.offset for place in admin.positions("t", LATEST).values()} == {count}
            out.send(b"x").position(5.0)
    assert dear() == 1


def test_a_broker_of_the_4_9_line_is_asked_each_time(broker: DevBroker, client: Any) -> None:
    seen = broker.record("rocketmq")
    for _ in range(3):
        client.admin().positions("t", LATEST)
    assert len(seen.requests("GetBrokerRuntimeInfo")) == 3
    assert not seen.requests("GetBrokerHaStatus")


def test_records_of_other_topics_have_it_asked_again(client: Any, dear: Callable[[], int]) -> None:
    admin = client.admin()
    admin.create_topic("u")
    admin.positions("t", LATEST)
    assert dear() == 1
    client.producer("u").send(b"x").position(5.0)
    admin.positions("t", LATEST)
    assert dear() == 1, "the last record of t does not prove that the other is in its queue"
    admin.positions("t", LATEST)
    assert dear() == 0


@pytest.mark.parametrize("refused", ["GetBrokerHaStatus", "QueryConsumeQueue"])
def test_a_broker_that_refuses_the_cheap_questions_is_asked_the_dear_one(
    broker: DevBroker, client: Any, dear: Callable[[], int], refused: str
) -> None:
    broker.faults("rocketmq").error(refused, 16, times=-1)
    with client.producer("t") as out:
        for count in range(1, 4):
            assert {place.offset for place in client.admin().positions("t", LATEST).values()} == {count}
            out.send(b"x").position(5.0)
    assert dear() == 3


def test_what_was_proven_does_not_hold_for_another_connection(broker: DevBroker, client: Any, dear: Callable[[], int]) -> None:
    admin = client.admin()
    admin.positions("t", LATEST)
    (queue,) = client.cluster.route("t", soon()).queues
    client.cluster.let_go(client.cluster.peek(queue.address), "for a test")
    admin.positions("t", LATEST)
    assert dear() == 2


def test_a_log_that_is_shorter_than_before_proves_nothing(client: Any, dear: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    admin = client.admin()
    admin.positions("t", LATEST)
    monkeypatch.setattr(dispatch, "log_end", lambda body: 1)
    admin.positions("t", LATEST)
    assert dear() == 2


def test_the_end_of_a_queue_waits_for_what_is_acknowledged_also_where_nothing_was_behind_before(
    broker: DevBroker, client: Any, dear: Callable[[], int]
) -> None:
    admin = client.admin()
    admin.positions("t", LATEST)
    assert dear() == 1
    broker.call("rocketmq", "hold_queues")
    client.producer("t").send(b"x").position(5.0)
    with pytest.raises(TimedOut, match="not yet put all of its commit log into its consume queues"):
        admin.positions("t", LATEST, timeout=0.5)
    broker.call("rocketmq", "show_queues")
    assert {place.offset for place in admin.positions("t", LATEST).values()} == {2}
