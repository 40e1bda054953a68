"""The dev broker's slave has what its master stored, and does for clients what slaves of 4.9.7 and 5.5.0 do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.devbroker.rocketmq import replica
from wireproto.errors import BrokerError, Disconnected
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import QueryNotFound
from wireproto.rocketmq.messages import (
    GetMaxOffsetRequest,
    InvokeBrokerToResetOffsetRequest,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    SendMessageRequest,
    UpdateAndCreateSubscriptionGroupRequest,
    UpdateAndCreateTopicRequest,
    UpdateBrokerConfigRequest,
    UpdateConsumerOffsetRequest,
    ViewMessageByIdRequest,
)

NODES = {"rocketmq.slaves": 1}


class Pair:
    """A master with one topic, and its slave."""

    def __init__(self, broker: DevBroker, client: RocketClient) -> None:
        self.broker, self.client = broker, client

    def ask(self, message: Any, body: bytes = b"", to: str = "slave") -> Any:
        try:
            return self.client.request(message, body=body, to=self.broker.address("rocketmq", to))
        except Disconnected:  # of a connection that a pause has cut
            return self.ask(message, body, to)

    def code(self, message: Any, body: bytes = b"", to: str = "slave") -> int:
        try:
            return int(self.ask(message, body, to).code)
        except BrokerError as why:
            return int(why.code or 0)

    def send(self, body: bytes, to: str = "broker", properties: str = "", topic: str = "t") -> Any:
        message = SendMessageRequest(
            producer_group="g", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0, born_timestamp=1,
            flag=0, properties=properties,
        )  # fmt: skip
        return self.ask(message, body, to)

    def pull(self, offset: int, to: str = "slave", *, flag: int = 4, hold: int = 0, commit: int = 0) -> Any:
        message = PullMessageRequest(
            consumer_group="g", topic="t", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=flag, commit_offset=commit,
            suspend_timeout_millis=hold, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        return self.ask(message, to=to)

    def commit(self, offset: int, to: str) -> int:
        return self.code(UpdateConsumerOffsetRequest(consumer_group="g", topic="t", queue_id=0, commit_offset=offset), to=to)

    def committed(self, to: str = "slave") -> int:
        return int(self.ask(QueryConsumerOffsetRequest(consumer_group="g", topic="t", queue_id=0), to=to).message.offset)

    def end(self, to: str = "slave") -> int:
        return int(self.ask(GetMaxOffsetRequest(topic="t", queue_id=0), to=to).message.offset)

    def config(self, text: str, to: str = "broker") -> int:
        return self.code(UpdateBrokerConfigRequest(), text.encode(), to)


@pytest.fixture(params=[True, False], ids=["4.9", "5.x"])
def old(request: Any) -> bool:
    return bool(request.param)


@pytest.fixture
def pair(old: bool) -> Iterator[Pair]:
    with DevBroker(["rocketmq"], auto_create=False, nodes=NODES) as broker, wireproto.connect(broker.url("rocketmq")) as client:
        broker.call("rocketmq", "answer_as_old", old)
        client.admin().create_topic("t")
        broker.call("rocketmq", "synchronise")
        yield Pair(broker, client)


def test_a_slave_has_the_very_bytes_that_its_master_has(pair: Pair) -> None:
    pair.broker.call("rocketmq", "read_from_slaves")
    sent = pair.send(b"one", properties="KEYS\x01k\x02")
    pair.send(b"two")
    until(lambda: pair.end() == 2)
    assert bytes(pair.pull(0).body) == bytes(pair.pull(0, "broker").body)
    assert sent.message.msg_id.endswith("0" * 16)
    assert b"one" in bytes(pair.ask(ViewMessageByIdRequest(offset=0)).body)


def test_a_slave_catches_up_when_it_is_back(pair: Pair) -> None:
    pair.send(b"one")
    until(lambda: pair.end() == 1)
    pair.broker.pause("rocketmq", "slave")
    pair.send(b"two")
    pair.broker.resume("rocketmq", "slave")
    until(lambda: pair.end() == 2)


def test_a_slave_of_4_9_is_read_from_without_its_master_and_one_of_5_x_where_it_may(pair: Pair, old: bool) -> None:
    pair.send(b"one")
    until(lambda: pair.end() == 1)
    pair.broker.pause("rocketmq", "broker")
    if not old:
        with pytest.raises(BrokerError, match="REJECTREQUEST") as refused:
            pair.pull(0)
        assert refused.value.code == 2
        pair.broker.call("rocketmq", "read_from_slaves")
    assert (pair.pull(0).code, b"one" in bytes(pair.pull(0).body)) == (0, True)


def test_a_slave_corrects_no_offset(pair: Pair) -> None:
    """It may be behind: what is beyond its end is asked for again."""
    pair.broker.call("rocketmq", "read_from_slaves")
    pair.send(b"one")
    until(lambda: pair.end() == 1)
    for offset in (-1, 2, 100):
        found = pair.pull(offset)
        assert (found.code, found.message.next_begin_offset) == (20, offset)
        assert pair.pull(offset, "broker").code == 21
    assert pair.pull(1).code == 19


def test_a_slave_refuses_what_would_be_stored(pair: Pair, old: bool) -> None:
    for sent in (lambda: pair.send(b"x", "slave"), lambda: pair.send(b"x", "slave", topic="none")):
        with pytest.raises(BrokerError) as refused:
            sent()
        assert refused.value.code in ((14, 17) if old else (2,))
    made = UpdateAndCreateTopicRequest(
        topic="own", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6, topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0, order=False,
    )  # fmt: skip
    assert pair.code(made) == (1 if old else 0)


def test_offsets_come_from_the_master_over_those_that_a_slave_was_told(pair: Pair) -> None:
    for place in ("broker", "slave"):
        pair.ask(UpdateAndCreateSubscriptionGroupRequest(), b'{"groupName":"g"}', "broker")
        pair.broker.call("rocketmq", "synchronise")
        assert pair.commit({"broker": 7, "slave": 3}[place], place) == 0
    assert (pair.committed("broker"), pair.committed()) == (7, 3)
    pair.broker.call("rocketmq", "synchronise")
    assert pair.committed() == 7


def test_a_slave_of_5_x_takes_no_offsets_once_its_master_was_pulled_from(pair: Pair, old: bool) -> None:
    """5.5.0's slave cannot read the master's list then, until the master starts again: its offsets stay as they are."""
    pair.send(b"one")
    pair.pull(0, "broker", flag=5, commit=1)
    pair.broker.call("rocketmq", "synchronise")
    assert pair.committed() == (1 if old else 0)
    pair.broker.pause("rocketmq", "broker")
    pair.broker.resume("rocketmq", "broker")
    pair.broker.call("rocketmq", "synchronise")
    assert pair.committed() == 1


def test_commits_with_a_pull_are_kept_by_slaves_of_5_x_alone(pair: Pair, old: bool) -> None:
    pair.broker.call("rocketmq", "read_from_slaves")
    pair.send(b"one")
    until(lambda: pair.end() == 1)
    pair.pull(0, flag=5, commit=1)
    assert pair.committed() == (0 if old else 1)


def test_a_pull_that_a_slave_of_5_x_holds_is_answered_when_a_message_comes(pair: Pair, old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.9.7's looks again every five seconds."""
    monkeypatch.setattr("wireproto.devbroker.rocketmq.queues.SLAVE_LOOKS", 0.3)
    pair.broker.call("rocketmq", "read_from_slaves")
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(pair.pull, 0, flag=6, hold=15_000)
        until(lambda: pair.broker.call("rocketmq", "waiting") == 1)
        pair.send(b"one")
        assert held.result(30.0).code == 0
    assert time.monotonic() - begun >= (0.3 if old else 0.0)


def test_readers_are_sent_to_a_slave_where_they_may_read_there_and_are_behind(pair: Pair) -> None:
    pair.send(b"one")
    assert pair.pull(0, "broker").message.suggest_which_broker_id == 0
    assert pair.config("accessMessageInMemoryMaxRatio=0\n") == 0
    assert pair.pull(0, "broker").message.suggest_which_broker_id == 0
    assert pair.config("slaveReadEnable=true\n") == 0
    assert pair.pull(0, "broker").message.suggest_which_broker_id == 1
    assert pair.pull(1, "broker").message.suggest_which_broker_id == 0


def test_what_counts_as_read_from_the_disk_comes_eight_at_a_time(pair: Pair) -> None:
    for number in range(10):
        pair.send(b"%d" % number)
    assert pair.pull(0, "broker").message.next_begin_offset == 10
    assert pair.config("accessMessageInMemoryMaxRatio=0\n") == 0
    assert pair.pull(0, "broker").message.next_begin_offset == 8


def test_a_queue_that_counts_as_on_the_disk_has_no_offset_for_a_new_group_of_4_9(pair: Pair, old: bool) -> None:
    """5.5.0 asks whether the page is in memory."""
    pair.send(b"one")
    pair.pull(0, "broker")
    assert pair.committed("broker") == 0
    assert pair.config("accessMessageInMemoryMaxRatio=0\n") == 0
    with pytest.raises(QueryNotFound) if old else contextlib.nullcontext():
        assert pair.committed("broker") == 0


def test_resets_are_refused_by_4_9_where_nobody_could_carry_them_out(pair: Pair, old: bool) -> None:
    reset = InvokeBrokerToResetOffsetRequest(topic="t", group="g", timestamp=-1, is_force=True)
    assert pair.code(reset, to="slave") == 1
    assert pair.code(reset, to="broker") == (1 if old else 26), "no such topic, or group"
    pair.ask(UpdateAndCreateSubscriptionGroupRequest(), b'{"groupName":"g"}', "broker")
    for offset, refused in ((-1, 1), (0, 206)):
        assert pair.commit(offset, "broker") == 0
        assert pair.code(reset, to="broker") == (refused if old else 0)
        pair.pull(0, "broker")  # 5.x takes no commit until a pull was told of the reset


def test_a_synchronous_master_tells_whether_a_slave_has_it(pair: Pair, old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """5.5.0 is content with itself: inSyncReplicas is 1."""
    monkeypatch.setattr(replica, "FLUSH_SECONDS", 0.05)
    assert pair.config("brokerRole=SYNC_MASTER\n") == 0
    assert pair.send(b"there").code == 0
    pair.broker.call("rocketmq", "freeze_slaves")
    assert pair.send(b"frozen").code == (12 if old else 0)
    assert pair.send(b"not waited for", properties="WAIT\x01false\x02").code == 0
    pair.broker.call("rocketmq", "freeze_slaves", False)
    assert pair.send(b"there again").code == 0
    pair.broker.pause("rocketmq", "slave")
    assert pair.send(b"gone").code == (11 if old else 0)


def test_settings_that_are_not_followed_are_refused(pair: Pair) -> None:
    for text in ("noSuch=1", "brokerRole=SLAVE", "slaveReadEnable=perhaps", "slaveReadEnable=true\nbrokerPermission=4"):
        assert pair.config(text) == 1
    assert pair.config("brokerRole=SYNC_MASTER", "slave") == 1


def test_both_keep_what_they_have_and_where_it_lay_over_a_restart(tmp_path: Path) -> None:
    def run(look: Any) -> Any:
        with DevBroker(["rocketmq"], data_dir=tmp_path, nodes=NODES) as broker, wireproto.connect(broker.url("rocketmq")) as client:
            broker.call("rocketmq", "answer_as_old", True)
            return look(Pair(broker, client))

    def fill(pair: Pair) -> list[int]:
        for topic in ("t", "a"):
            pair.client.admin().create_topic(topic)
        ids = [pair.send(b"%d" % n, topic=topic).message.msg_id for n, topic in enumerate(("t", "a", "t"))]
        pair.broker.call("rocketmq", "synchronise")
        until(lambda: pair.end() == 2)
        return [int(text[-16:], 16) for text in ids]

    def look(pair: Pair) -> list[bytes]:
        pair.send(b"more")
        until(lambda: pair.end() == 3)
        return [bytes(pair.ask(ViewMessageByIdRequest(offset=place), to=to).body) for to in ("broker", "slave") for place in places]

    places = run(fill)
    found = run(look)
    assert found[:3] == found[3:]
    assert [b"%d" % n in data[88:90] for n, data in enumerate(found[:3])] == [True] * 3
