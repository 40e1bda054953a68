"""RocketMQ's sans-IO parts behind the roles: what is done of a queue, what an answer's code means, options."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from wireproto._codec import RemotingCommand
from wireproto.errors import AuthError, BrokerError, OptionError, ProtocolError
from wireproto.rocketmq import broker_requests, codes, fastjson, remoting
from wireproto.rocketmq.bodies import SubscriptionData
from wireproto.rocketmq.fastjson import ObjectKey
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.queue import Prefix
from wireproto.rocketmq.route import Queue
from wireproto.url import parse


@pytest.mark.parametrize("seed", range(20))
def test_only_what_is_done_without_a_hole_counts(seed: int) -> None:
    chance = random.Random(seed)
    prefix = Prefix(5, 5, 5)
    offsets = sorted(chance.sample(range(5, 60), 40))
    prefix.fetch(offsets[:20], offsets[20])
    prefix.fetch(offsets[20:], 60)
    waiting = offsets[:]
    while waiting:
        assert prefix.done_to == waiting[0], "the first message in hand, gaps before it passed over"
        ended = chance.choice(waiting)
        waiting.remove(ended)
        prefix.finish(ended)
    assert prefix.done_to == 60
    assert not prefix.done


def test_offsets_that_were_passed_over_cost_nothing() -> None:
    """A group far behind what is kept goes on millions of offsets later."""
    prefix = Prefix(0, 0, 0)
    tracemalloc.start()
    try:
        prefix.fetch([2], 3_000_000)
        prefix.fetch([3_000_000, 6_000_000], 6_000_001)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    for offset, done_to in ((3_000_000, 2), (2, 6_000_000), (6_000_000, 6_000_001)):
        prefix.finish(offset)
        assert prefix.done_to == done_to


def test_refusals_of_both_lines_are_auth_errors() -> None:
    for code, remark in (
        (1, "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=a, x.java:1\nmore"),
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, y"),
        (16, "check signature failed."),
        (16, "no permission to send"),
    ):
        error = remoting.error_of(RemotingCommand(code, remark=remark, flag=1), peer="h:1")
        assert isinstance(error, AuthError)
        assert error.code == code
        assert "\n" not in str(error)


def test_code_1_passes_only_where_the_broker_sheds_load() -> None:
    busy = remoting.error_of(RemotingCommand(1, remark="[PC_SYNCHRONIZED]broker busy, start flow control for a while"))
    assert busy.retriable
    assert not remoting.error_of(RemotingCommand(1, remark="queueId[9] is illegal")).retriable
    assert not codes.ServerError.retriable


def test_a_code_that_nobody_knows_is_kept() -> None:
    error = remoting.error_of(RemotingCommand(4711, remark="new"))
    assert type(error) is BrokerError
    assert error.code == 4711


class MemberState:
    """A member of the group ``g`` that stands at 7 in one queue."""

    group, started = "g", 5.0

    def __init__(self) -> None:
        self.changes = 0
        self.offsets: broker_requests.Resets = {}

    def read_positions(self) -> broker_requests.ReadPositions:
        return {("t", 0): (Queue(0, "b", 3, "h:1", True, True), 7)}

    def subscriptions(self) -> list[SubscriptionData]:
        return [SubscriptionData("t")]

    def name_servers(self) -> list[str]:
        return ["n:1"]

    def members_changed(self) -> None:
        self.changes += 1

    def reset(self, offsets: broker_requests.Resets) -> None:
        self.offsets.update(offsets)


PLACE = {"brokerName": "b", "queueId": 3, "topic": "t"}


def test_a_request_that_we_do_not_serve_is_refused_in_its_own_header() -> None:
    for serializer in (remoting.JSON, remoting.BINARY):
        for code, expected in ((4711, 3), (309, 1)):
            reply = broker_requests.answer(RemotingCommand(code, 9, serializer=serializer), MemberState())
            assert reply is not None
            assert (reply.code, reply.opaque, reply.is_reply, reply.serializer) == (expected, 9, True, serializer)
        assert broker_requests.answer(RemotingCommand(4711, 9, flag=remoting.ONE_WAY), MemberState()) is None


def test_members_tell_where_they_stand() -> None:
    for code, field, value in ((221, "messageQueueTable", 7), (307, "mqTable", {"commitOffset": 7, "droped": False, "locked": False})):
        reply = broker_requests.answer(RemotingCommand(code, 9, ext={"topic": "t"}), MemberState())
        assert reply is not None
        assert fastjson.loads(bytes(reply.body))[field] == {ObjectKey(PLACE): value}
    reply = broker_requests.answer(RemotingCommand(221, 9, ext={"topic": "other"}), MemberState())
    assert reply is not None
    assert fastjson.loads(bytes(reply.body)) == {"messageQueueTable": {}}


def test_pushed_offsets_are_taken_in_both_forms() -> None:
    table = b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:5}}'
    for body in (table, b'[{"brokerName":"b","offset":5,"queueId":3,"topic":"t"}]'):
        member = MemberState()
        assert broker_requests.answer(RemotingCommand(220, 9, flag=2, ext={"group": "g"}, body=body), member) is None
        assert member.offsets == {("t", "b", 3): 5}
        broker_requests.answer(RemotingCommand(220, 9, flag=2, ext={"group": "strangers"}, body=body), member)
        assert len(member.offsets) == 1
    for body in (b"", b"{}x", b'[{"topic":1}]', b'{"offsetTable":{"a":5}}', b"[5]", table.replace(b":5}", b":true}")):
        with pytest.raises(ProtocolError):
            broker_requests.answer(RemotingCommand(220, 9, flag=2, ext={"group": "g"}, body=body), MemberState())


def test_a_call_of_another_group_is_passed_over() -> None:
    member = MemberState()
    for group in ("g", "other"):
        broker_requests.answer(RemotingCommand(40, 9, flag=2, ext={"consumerGroup": group}), member)
    assert member.changes == 1


def test_options_of_url_and_roles() -> None:
    options = RocketOptions.from_url(parse("rocketmq://me:hidden@h:9876/t?header=binary&linger=5ms&batch_size=64k"))
    assert (options.header, options.linger, options.batch_size, options.access_key) == ("binary", 0.005, 65536, "me")
    assert "hidden" not in repr(options)
    assert options.for_role("producer", {"compression": "zstd"}).compression == "zstd"
    for role, values in (("producer", {"pull_ahead": 2}), ("reader", {"linger": 1.0}), ("queue", {"auto_commit": True})):
        with pytest.raises(OptionError):
            options.for_role(role, values)
    with pytest.raises(OptionError):
        RocketOptions.from_url(parse("rocketmq://h"), access_key="only")
