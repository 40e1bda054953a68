"""RocketMQ's sans-IO parts behind the roles: what is done of a queue, what an answer's code means, options."""

from __future__ import annotations

import random

import pytest

from wireproto._codec import RemotingCommand
from wireproto.errors import AuthError, BrokerError, OptionError
from wireproto.rocketmq import codes, remoting
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.queue import Prefix
from wireproto.url import parse


@pytest.mark.parametrize("seed", range(20))
def test_only_what_is_done_without_a_hole_counts(seed: int) -> None:
    chance = random.Random(seed)
    prefix = Prefix(5, 5, 5)
    offsets = sorted(chance.sample(range(5, 60), 40))
    prefix.fetch(5, offsets[:20], offsets[20])
    prefix.fetch(offsets[20], offsets[20:], 60)
    waiting = offsets[:]
    while waiting:
        assert prefix.done_to == waiting[0], "the first message in hand, gaps before it passed over"
        ended = chance.choice(waiting)
        waiting.remove(ended)
        prefix.finish(ended)
    assert prefix.done_to == 60
    assert not prefix.done


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


def test_a_request_that_we_do_not_serve_is_refused_in_its_own_header() -> None:
    for serializer in (remoting.JSON, remoting.BINARY):
        reply = RemotingCommand.decode(b"".join(map(bytes, remoting.refusal(RemotingCommand(307, 9, serializer=serializer)))))
        assert (reply.code, reply.opaque, reply.is_reply, reply.serializer) == (3, 9, True, serializer)


def test_options_of_url_and_roles() -> None:
    options = RocketOptions.from_url(parse("rocketmq://me:hidden@h:9876/t?header=binary&linger=5ms&batch_size=64k"))
    assert (options.header, options.linger, options.batch_size, options.access_key) == ("binary", 0.005, 65536, "me")
    assert "hidden" not in repr(options)
    assert options.for_role("producer", {"compression": "zstd"}).compression == "zstd"
    for role, values in (("producer", {"pull_ahead": 2}), ("reader", {"linger": 1.0}), ("queue", {"auto_commit": 1.0})):
        with pytest.raises(OptionError):
            options.for_role(role, values)
    with pytest.raises(OptionError):
        RocketOptions.from_url(parse("rocketmq://h"), access_key="only")
