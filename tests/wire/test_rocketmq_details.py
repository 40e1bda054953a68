"""What RocketMQ's commands say in full, what their failures name, and who is woken by what; on the embedded broker."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from patience import until
from wireproto.devbroker.faults import Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import ConcurrentUse, TimedOut, Truncated
from wireproto.net.task import Steps
from wireproto.position import EARLIEST, LATEST, AtTime
from wireproto.rocketmq import fetch
from wireproto.rocketmq.admin import ready
from wireproto.rocketmq.bodies import TopicRouteData
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import GetMaxOffsetRequest
from wireproto.rocketmq.offset_lookup import store_time
from wireproto.rocketmq.route import RouteCache

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}


def test_a_pull_says_all_that_brokers_go_by(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.producer(topic) as out:
        out.send(b"x").position(30.0)
    common = {"topic": topic, "queueId": "0", "commitOffset": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    client.admin().positions(topic, AtTime(1))
    (one,) = seen.requests("PullMessage")
    here = {"consumerGroup": "TOOLS_CONSUMER", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "suspendTimeoutMillis": "0"}
    assert one.header.ext == common | here
    with client.reader(topic, group="readers", pull_suspend=2.5) as reader:
        until(lambda: (reader.poll(0.05), len(seen.requests("PullMessage")) > 2)[1])
        assert reader._fetcher._reply_timeouts == (10.0, 2.5 + fetch.GRACE), "for a pull, and one that is held"
        assert fetch.GRACE == 15.0, "brokers look at held pulls each 5 s"
    first, held = [request.header.ext for request in seen.requests("PullMessage")[1:3]]
    said = common | {"consumerGroup": "readers", "maxMsgNums": "32"}
    assert first == said | {"queueOffset": "0", "sysFlag": "4", "suspendTimeoutMillis": "0"}
    assert held == said | {"queueOffset": "1", "sysFlag": "6", "suspendTimeoutMillis": "2500"}


def test_a_command_that_gets_no_answer_tells_which_and_of_whom(client: RocketClient, topic: str, faults: Faults) -> None:
    faults.drop("GetMaxOffset")
    with pytest.raises(TimedOut) as caught:
        client.request(GetMaxOffsetRequest(topic=topic, queue_id=0), timeout=2.0)
    (address,) = client.cluster.drive(client.cluster.masters(client.deadline(10.0)), client.deadline(10.0))
    assert (caught.value.message, caught.value.peer) == ("GetMaxOffsetRequest", address)


def busy(role: Any) -> bool:
    """Whether another thread is inside a call."""
    try:
        role.pause([])
    except ConcurrentUse:
        return True
    return False


def test_a_member_in_the_middle_of_a_poll_hears_of_another_one(client: RocketClient, dial: Callable[..., RocketClient], topic: str) -> None:
    """The broker calls; neither the poll's end nor the next look at the group is waited for."""
    group = f"g-{topic}"
    first = client.consumer(topic, group, rebalance_interval=600.0)
    assert first.assignment == {(topic, 0)}
    ended = threading.Event()

    def poll() -> None:
        first.poll(50.0)
        ended.set()

    threading.Thread(target=poll, daemon=True).start()
    until(lambda: busy(first))
    looked = first._assignment.member.member_count
    with dial().consumer(topic, group, rebalance_interval=600.0):
        until(lambda: first._assignment.member.member_count == 2, "the first member has not looked at its group", 20.0)
        assert looked == 1
    client.producer(topic).send(b"x", partition=0)
    assert ended.wait(50.0)
    first.close()


def test_a_worker_commits_what_is_new_and_no_more(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.producer(topic) as out:
        for number in range(4):
            out.send(b"%d" % number)
    with client.queue(topic, f"g-{topic}") as worker:
        held = [worker.receive(30.0) for _ in range(4)]
        commits: list[list[int]] = []
        for at in (0, 2, 1, 3):
            delivery = held[at]
            assert delivery is not None
            assert delivery.value == b"%d" % at
            delivery.ack(wait=True)
            commits.append([one.message.commit_offset for one in seen.requests("UpdateConsumerOffset") if one.message.topic == topic])
    assert commits == [[1], [1], [1, 3], [1, 3, 4]]


# without a broker -----------------------------------------------------------------------------------------------------------------------


def waits(answers: Iterable[bool], until: float) -> list[float]:
    """For how long an administrator waits between looks that have these answers."""
    left = iter(answers)

    def look() -> Steps[bool]:
        return next(left)
        yield 0.0

    return [wait - 100.0 for wait in ready(look, until, "not ready") if isinstance(wait, float)]


def test_an_administrator_s_looks_come_at_waits_that_grow_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wireproto.rocketmq.admin.time", SimpleNamespace(monotonic=lambda: 100.0))
    bases = [min(0.02 * 1.5**number, 0.5) for number in range(12)]
    found = waits([False] * 12 + [True], 1000.0)
    assert all(0.8 * base <= wait <= 1.2 * base for base, wait in zip(bases, found, strict=True)), found
    with pytest.raises(TimedOut, match="not ready"):
        waits([False], 100.015)
    assert len(waits([False, True], 100.05)) == 1, "for this one there is time"


def test_what_was_known_of_a_topic_goes_with_it() -> None:
    cache = RouteCache(30.0)
    data = TopicRouteData.decode(b'{"queueDatas":[],"brokerDatas":[]}')
    for trouble in (lambda: cache.stale("t"), lambda: cache.put_off("t", 50.0), lambda: cache.missed("t", 10.0, 50.0)):
        cache.learn("t", data, 10.0)
        trouble()
        cache.forget("t")
        assert (cache.known("t"), cache.missing("t"), cache.fresh("t", 11.0)) == (None, None, None)
        cache._routes["t"] = cache.learn("other", data, 10.0), 10.0
        assert cache.fresh("t", 11.0) is not None, "nothing says that it is stale"
        assert cache.fresh("t", 41.0) is None, "nor that it need not be asked for"
        cache.forget("t")


@pytest.mark.parametrize(("flag", "least"), [(0, 64), (0x10, 76)])
def test_the_store_time_of_a_message_is_found_behind_either_kind_of_address(flag: int, least: int) -> None:
    stored = bytearray(91)
    struct.pack_into(">i", stored, 36, flag)
    struct.pack_into(">q", stored, least - 8, 1234567)
    assert store_time(bytes(stored)) == 1234567
    assert store_time(bytes(stored[:76])) == 1234567
    for size in (0, 40, 75):
        with pytest.raises(Truncated):
            store_time(bytes(stored[:size]))


def test_each_queue_is_asked_for_its_own_ends(client: RocketClient, seen: Recording) -> None:
    client.admin().create_topic("three-queues", partitions=3)
    with client.producer("three-queues") as out:
        for partition in (0, 2, 2):
            out.send(b"x", partition=partition).position(30.0)
    for place, offsets in ((EARLIEST, [0, 0, 0]), (LATEST, [1, 0, 2]), (AtTime(1), [0, 0, 0])):
        found = client.admin().positions("three-queues", place)
        assert [found["three-queues", number].offset for number in range(3)] == offsets
    for name in ("GetMinOffset", "GetMaxOffset", "SearchOffsetByTimestamp"):
        asked = [request.header.ext for request in seen.requests(name)]
        assert {(ext["topic"], ext["queueId"]) for ext in asked} == {("three-queues", number) for number in "012"}, name
