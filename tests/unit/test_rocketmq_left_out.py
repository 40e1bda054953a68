"""Queues that a topic has lost, or that may not be read for a while: whether they are to be read, a fresh route says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wireproto._codec import ReadBudget, RemotingCommand, Slice
from wireproto.errors import Disconnected, WireprotoError
from wireproto.rocketmq import codes, remoting
from wireproto.rocketmq.bodies import TopicRouteData
from wireproto.rocketmq.errors import ConsumeDisabled, NoQueue, NotReadable
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.pulls import LEFT_OUT, Cursor, Pulls
from wireproto.rocketmq.route import Route

NOW = 100.0
REFUSALS = [NoQueue("queueId[1] is illegal"), NotReadable("the topic[t] pulling message is forbidden")]


def route(queues: int, perm: int = 6) -> Route:
    told = {
        "queueDatas": [{"brokerName": "b", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm}],
        "brokerDatas": [{"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": "h:1"}}],
    }
    return Route.build("t", TopicRouteData.decode(json.dumps(told).encode()), Route.build("t", BOTH) if queues < 2 else None)


BOTH = TopicRouteData.decode(
    b'{"queueDatas":[{"brokerName":"b","readQueueNums":2,"writeQueueNums":2,"perm":6}],'
    b'"brokerDatas":[{"cluster":"c","brokerName":"b","brokerAddrs":{"0":"h:1"}}]}'
)


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, about: object, text: str, *words: object) -> None:
        self.lines.append(text % words)

    info = warning


def two(stop: int | None = None) -> tuple[Pulls, Cursor, Cursor, Log]:
    log: Any = Log()
    pulls = Pulls(RocketOptions(pull_ahead=1, recovery_timeout=60.0), ReadBudget(), log)
    pulls.plan.memory.bound(1 << 20)  # type: ignore[attr-defined]
    first, second = (pulls.add("t", queue, 10, stop) for queue in route(2).queues)
    return pulls, first, second, log


def asked(pulls: Pulls, now: float) -> list[Cursor]:
    return [ticket.cursor for ask in pulls.plan.due(pulls, now) for ticket in ask.tickets]


def fail(pulls: Pulls, cursor: Cursor, why: WireprotoError, now: float) -> None:
    pulls.failed(cursor.out[10], why, now)


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.parametrize("now", [route(1), route(2, perm=2)])
def test_it_is_left_out_while_the_route_says_so_and_read_from_where_it_stood(why: WireprotoError, now: Route) -> None:
    pulls, first, second, log = two()
    assert asked(pulls, NOW) == [first, second]
    fail(pulls, second, why, NOW)
    for at in (NOW + 2.0, NOW + 2.0 + LEFT_OUT, NOW + 3600.0):
        assert asked(pulls, at) == []
        assert pulls.stale == {"t"}, "its route is looked up"
        pulls.looked("t", now, at)
        assert pulls.wakeup(at) == at + LEFT_OUT
        assert asked(pulls, at + LEFT_OUT - 0.1) == []
        assert pulls.stale == set(), "not before so long"
    assert log.lines == ["t[1] is left out at offset 10: the topic's route says that it is not to be read"], "told once"
    assert not second.chunks
    asked(pulls, NOW + 4000.0)
    pulls.looked("t", route(2), NOW + 4000.0)
    assert asked(pulls, NOW + 4000.0 + LEFT_OUT) == [second]
    assert 10 in second.out, "nothing was passed over"
    assert log.lines[1:] == ["t[1] is read again"]
    fail(pulls, second, Disconnected("gone"), NOW + 4010.0)
    assert not second.chunks, "the time in which it was left out is no time of trouble"


@pytest.mark.parametrize("why", REFUSALS)
def test_who_reads_up_to_a_stop_is_told(why: WireprotoError) -> None:
    pulls, _, second, _ = two(stop=20)
    asked(pulls, NOW)
    fail(pulls, second, why, NOW)
    for at in (NOW + 2.0, NOW + 20.0):
        asked(pulls, at)
        pulls.looked("t", route(1), at)
        (chunk,) = pulls.plan.take(1000)
        assert isinstance(chunk.error, NoQueue)
        assert (chunk.error.topic, chunk.error.partition) == ("t", 1)
        assert "no queue 1 at b" in str(chunk.error)
        pulls.plan.moved(chunk, chunk.next)
        assert not second.done


@pytest.mark.parametrize("why", REFUSALS)
def test_a_route_that_does_not_say_so_yet_is_believed_for_recovery_timeout(why: WireprotoError) -> None:
    """Brokers tell name servers a little later, or with their next registration. What a route never says is raised."""
    pulls, first, second, _ = two()
    asked(pulls, NOW)
    first.paused = True
    at = NOW
    while at < NOW + 59.0:
        fail(pulls, second, why, at)
        assert not second.chunks
        at += 2.0
        asked(pulls, at)
        pulls.looked("t", route(2), at)
        assert asked(pulls, at) == [second]
    fail(pulls, second, why, NOW + 61.0)
    assert type(second.chunks[-1].error) is type(why)


def test_others_that_fail_have_failed_for_as_long() -> None:
    pulls, first, second, _ = two()
    asked(pulls, NOW)
    fail(pulls, first, Disconnected("gone"), NOW)
    fail(pulls, second, NoQueue("queueId[1] is illegal"), NOW)
    asked(pulls, NOW + 2.0)
    pulls.looked("t", route(1), NOW + 2.0)
    first.look = False
    assert asked(pulls, NOW + 61.0) == [first]
    fail(pulls, first, Disconnected("gone"), NOW + 61.0)
    assert isinstance(first.chunks[-1].error, Disconnected)


def test_a_queue_that_was_left_out_is_read_on_when_it_answers() -> None:
    pulls, _, second, _ = two()
    asked(pulls, NOW)
    fail(pulls, second, NoQueue("queueId[1] is illegal"), NOW)
    asked(pulls, NOW + 2.0)
    pulls.looked("t", route(1), NOW + 2.0)
    pulls.looked("t", route(2), NOW + 3.0)
    asked(pulls, NOW + 10.0)
    pulls.answer(second.out[10], (0, 12, 0, 12, Slice(b"x")))
    assert [(chunk.start, chunk.next) for chunk in pulls.plan.take(1000)] == [(10, 12)]


@pytest.mark.parametrize(
    ("code", "remark", "kinds"),
    [
        (29, "queueId[3] is illegal, topic:[t] topicConfig.readQueueNums:[1] consumer:[/h:1]", (NoQueue, codes.InvalidParameter)),
        (1, "queueId[3] is illegal, topic:[t] topicConfig.readQueueNums:[1] consumer:[/h:1]", (NoQueue, codes.ServerError)),
        (29, "request queueId[3] is illegal, TopicConfig [topicName=t] Producer: h:1", (NoQueue, codes.InvalidParameter)),
        (16, "the topic[t] pulling message is forbidden", (NotReadable, codes.NoPermission)),
        (16, "the broker[h] pulling message is forbidden", (NotReadable, codes.NoPermission)),
    ],
)
def test_what_refuses_a_queue_is_told_by_its_remark(code: int, remark: str, kinds: tuple[type, ...]) -> None:
    error = remoting.error_of(RemotingCommand(code, remark=remark, flag=1), peer="h:1")
    assert error.code == code
    assert error.refresh
    assert not error.retriable
    assert all(isinstance(error, kind) for kind in kinds)


@pytest.mark.parametrize(
    ("code", "remark"),
    [(29, "The specified topic contains illegal characters"), (1, "no such"), (16, "subscription group no permission, g")],
)
def test_no_other_refusal_is_taken_for_one(code: int, remark: str) -> None:
    error = remoting.error_of(RemotingCommand(code, remark=remark, flag=1), peer="h:1")
    assert not isinstance(error, NoQueue | NotReadable)


def test_a_group_that_is_stopped_is_one_that_may_go_on() -> None:
    error = remoting.error_of(RemotingCommand(16, remark="subscription group no permission, g", flag=1), peer="h:1")
    assert isinstance(error, ConsumeDisabled)
    assert error.retriable
    assert "subscription group no permission, g: its consumeEnable is false" in str(error)
