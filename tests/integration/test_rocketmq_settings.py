"""What an operator sets of a group at its brokers, and what becomes of its members then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from patience import soon, until
from wireproto.errors import UsageError
from wireproto.position import EARLIEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import NoPermission
from wireproto.rocketmq.errors import NotRetried
from wireproto.rocketmq.messages import UpdateAndCreateSubscriptionGroupRequest, UpdateAndCreateTopicRequest

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
_numbers = itertools.count()


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"settings-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


def put(client: RocketClient, topic: str, count: int) -> None:
    producer = client.producer(topic)
    for number in range(count):
        producer.send(b"%d" % number).position(30.0)


def configure(broker: RocketMQ, client: RocketClient, group: str, **settings: Any) -> None:
    body = {"groupName": group, "consumeEnable": True, "retryQueueNums": 1} | settings
    client.request(UpdateAndCreateSubscriptionGroupRequest(), body=body, to=broker.addresses[1])


def widen(broker: RocketMQ, client: RocketClient, topic: str, queues: int) -> None:
    """Set how many queues a topic has, as an operator would, and wait until its route says so."""
    common = {"default_topic": "TBW102", "perm": 6, "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False}
    message = UpdateAndCreateTopicRequest(topic=topic, read_queue_nums=queues, write_queue_nums=queues, **common)
    client.request(message, to=broker.addresses[1])
    until(lambda: len(client.cluster.route(topic, soon(), fresh=True).readable()) == queues)


def test_a_message_is_not_given_back_to_a_broker_that_would_drop_it(
    broker: RocketMQ, client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose setting for the group is 0 answers with success, and keeps nothing; the retry topic that it makes has no queues."""
    monkeypatch.setattr("wireproto.rocketmq.retries.AGE", 0.0)
    group = f"g-{topic}"
    configure(broker, client, group, retryQueueNums=0)
    put(client, topic, 1)
    with client.queue(topic, group, retry_level=1, rebalance_interval=0.3) as worker:
        delivery = worker.receive(30.0)
        assert delivery is not None
        with pytest.raises(NotRetried, match=rf"retryQueueNums of group {group} is 0") as refused:
            delivery.release()
        assert (refused.value.topic, refused.value.partition, refused.value.peer) == (topic, 0, broker.addresses[1])
        assert refused.value.position.offset == 0
        configure(broker, client, group)
        with pytest.raises(NotRetried, match=f"is 1, but its retry topic has 0 readable queues.*readQueueNums of %RETRY%{group} to 1"):
            delivery.release()
        widen(broker, client, f"%RETRY%{group}", 1)
        delivery.release()
        again = worker.receive(60.0)
        assert again is not None
        assert again.record.value == b"0"
        again.ack()


def test_a_message_is_not_given_back_where_it_may_lie_in_a_queue_that_nobody_reads(
    broker: RocketMQ, client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting was raised when the retry topic was there, with the queues that it had before."""
    monkeypatch.setattr("wireproto.rocketmq.retries.AGE", 0.0)
    group = f"g-{topic}"
    put(client, topic, 2)
    with client.queue(topic, group) as worker:
        first, second = worker.receive(30.0), worker.receive(30.0)
        assert first is not None
        assert second is not None
        first.release()
        configure(broker, client, group, retryQueueNums=2)
        with pytest.raises(NotRetried, match=f"is 2, but its retry topic has 1 readable queues.*readQueueNums of %RETRY%{group} to 2"):
            second.release()
        widen(broker, client, f"%RETRY%{group}", 2)
        second.release()


def test_a_group_that_is_stopped_is_waited_for_as_long_as_was_asked_for(
    broker: RocketMQ, client: RocketClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"g-{topic}"
    with client.consumer(topic, group, start=EARLIEST) as member, client.consumer(topic, f"{group}-2", recovery_timeout=1.0) as other:
        for name in (group, f"{group}-2"):
            configure(broker, client, name, consumeEnable=False)
        put(client, topic, 3)
        until(lambda: member.poll(0.2) or "has not been read for" in caplog.text)
        assert "consumeEnable is false at the broker" in caplog.text
        began = time.monotonic()
        with pytest.raises(NoPermission, match=rf"subscription group no permission, {group}-2: its consumeEnable is false") as refused:
            other.poll(60.0)
        assert time.monotonic() - began >= 1.0
        assert refused.value.topic in (topic, f"%RETRY%{group}-2"), "whichever was refused last"
        assert (refused.value.partition, refused.value.peer) == (0, broker.addresses[1])
        configure(broker, client, group)
        found: list[bytes | None] = []
        until(lambda: found.extend([*batch.values()] if (batch := member.poll(1.0)) is not None else []) or len(found) == 3)
        assert found == [b"0", b"1", b"2"]


# members that read other topics ---------------------------------------------------------------------------------------------------------


def test_members_that_read_other_topics_are_warned_of_once(
    broker: RocketMQ, client: RocketClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each gets a share of both topics' queues. The newcomer hears so before it beats, the others when it has."""
    group, second = f"g-{topic}", f"{topic}-b"
    client.admin().create_topic(second)
    with wireproto.connect(broker.url, rebalance_interval=0.3) as elsewhere, client.consumer(topic, group, rebalance_interval=0.3) as first:
        assert not told(caplog, group)
        with elsewhere.consumer(second, group) as newcomer:
            until(lambda: first.poll(0.2) or len(told(caplog, group)) == 2)
            lines = sorted(told(caplog, group))
            assert f"one member subscribes to {topic} and this one to {second}: the group's queues are shared" in lines[0]
            assert first.member_id in lines[0]
            assert f"one member subscribes to {second} and this one to {topic}: the group's queues are shared" in lines[1]
            assert newcomer.member_id in lines[1]
            for _ in range(5):
                first.poll(0.2)
                newcomer.poll(0.2)
            assert len(told(caplog, group)) == 2


def told(caplog: pytest.LogCaptureFixture, group: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"group {group}: one member subscribes to")]


def test_members_of_one_client_that_would_read_other_topics_are_refused(client: RocketClient, topic: str) -> None:
    group, second = f"g-{topic}", f"{topic}-b"
    client.admin().create_topic(second)
    refused = pytest.raises(UsageError, match=f"a member of group {group} that reads {topic}, and this one is to read {second}")
    with client.consumer(topic, group), client.queue(topic, group):
        with refused:
            client.consumer(second, group)
        with refused:
            client.queue(second, group)
        client.consumer(second, f"{group}-b").close()
    client.consumer(second, group).close()
