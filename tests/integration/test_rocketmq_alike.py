"""The embedded RocketMQ beside real ones of both lines: the same random commands on both; codes, offsets and messages are compared.

How: see alike.py. Commands are sent as they are, most of them to the broker itself: what a role of ours makes of an answer is another
test's. Not compared: remarks, message ids, and store times, which are each broker's own. WIREPROTO_SEED chooses the commands of the long
form; those of the short one are always the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, cast

import pytest

import wireproto
from brokers import RocketMQ
from chance import seed
from integration.alike import SECONDS, Calls, Kind, compare
from wireproto._codec import decode_rocketmq
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError
from wireproto.rocketmq import messages as m
from wireproto.rocketmq.client import RocketClient

LINES = ["rocketmq-4.9.7", "rocketmq-5.5.0"]
FUTURE = 1 << 42
BORN = 1_700_000_000_000
ODD = [-1, 0, 0, 1, 1, 2, 3, 7, 10**6]
"""Offsets asked for."""


@dataclass
class Half:
    """A cluster: its client, and its one broker."""

    client: RocketClient
    broker: str

    def ask(self, message: Any, body: Any = b"", *, names: bool = False) -> Any:
        return self.client.request(message, body=body, to="names" if names else self.broker, timeout=SECONDS)

    def code(self, message: Any, body: Any = b"", *, names: bool = False) -> int:
        """The answer's code alone."""
        try:
            return int(self.ask(message, body, names=names).code)
        except BrokerError as why:
            return int(why.code or 0)


def records(body: Any, topic: str, queue: int) -> list[tuple[int, Any, Any]]:
    """Stored messages: queue offset, key, value."""
    columns = decode_rocketmq([body], topic=topic, partition=queue)[0]
    return [(record.position.offset, record.key, record.value) for record in columns.records(topic, queue)]


class RocketCalls(Calls):
    def __init__(self, chance: random.Random, prefix: str) -> None:
        super().__init__(chance, prefix)
        self._sent = 0
        self._keys: list[tuple[str, str]] = []  # topic and key of what was sent, but to topics that were deleted since: those differ

    def _topic(self) -> str:
        return self.one_of(f"{self.prefix}-none", "x" * 128, "") if self.chance.random() < 0.06 else self.one_of(*self.names)

    def _queue(self) -> int:
        return self.one_of(0, 0, 0, 1, 1, 2, 5)

    def _group(self) -> str:
        return f"{self.prefix}-{self.one_of('a', 'b', 'c')}"

    def _fields(self, topic: str, queue: int, **more: Any) -> dict[str, Any]:
        fields = {"producer_group": "senders", "topic": topic, "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": queue}
        return fields | {"sys_flag": 0, "born_timestamp": BORN + self._sent, "flag": 0, "properties": ""} | more

    def do_create(self) -> Kind:
        topic, queues, perm = self._topic(), self.one_of(1, 2, 3), self.one_of(6, 6, 6, 6, 4, 2)
        message = m.UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_filter_type="SINGLE_TAG"
        )
        message = message.replace(topic_sys_flag=0, order=False)
        return False, lambda half: half.code(message), f"{topic!r}, {queues}, {perm}"

    def do_delete(self) -> Kind:
        topic = self.one_of(*self.names) if self.chance.random() < 0.3 else f"{self.prefix}-none"

        self._keys = [kept for kept in self._keys if kept[0] != topic]

        def delete(half: Half) -> Any:
            code = half.code(m.DeleteTopicInBrokerRequest(topic=topic))
            return code, half.code(m.DeleteTopicInNamesrvRequest(topic=topic), names=True)

        return False, delete, repr(topic)

    def do_route(self) -> Kind:
        topic = self._topic()

        def route(half: Half) -> Any:
            tree = half.ask(m.GetRouteInfoByTopicRequest(topic=topic), names=True).json()
            return [(queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) for queues in tree["queueDatas"]]

        return True, route, repr(topic)

    def do_list(self) -> Kind:
        def names(half: Half) -> Any:
            found = half.ask(m.GetAllTopicListFromNameserverRequest(), names=True).json()["topicList"]
            return sorted(name for name in found if name.startswith(self.prefix))

        return True, names, ""

    def do_send(self) -> Kind:
        topic, queue, count = self._topic(), self.one_of(0, 0, 0, 1, 2, 9), self.one_of(1, 1, 3)
        self._sent += count
        numbers = range(self._sent - count, self._sent)
        properties = [f"KEYS\x01k{number}\x02UNIQ_KEY\x01{self.prefix}{number:08X}\x02" for number in numbers]
        self._keys += [(topic, f"k{number}") for number in numbers]
        tag, body = self.one_of("", "TAGS\x01a\x02", "TAGS\x01b\x02"), self.one_of(b"", b"body", b"\x00" * 300)

        def send(half: Half) -> Any:
            found = []
            for text in properties:
                reply = half.ask(m.SendMessageRequest(**self._fields(topic, queue, properties=text + tag)), body or b"x")
                found.append((reply.code, reply.message.queue_id, reply.message.queue_offset))
            return found

        return False, send, f"{topic!r}, {queue}, {count}, {tag!r}"

    def do_send_wrong(self) -> Kind:
        topic, number = self.one_of(*self.names), self.one_of(0, 1, 2, 3)
        message, body = [
            (m.SendMessageRequest(**self._fields(topic, 0)), b"x" * ((4 << 20) + 1)),
            (m.SendMessageRequest(**self._fields("no such topic", 0)), b"x"),
            (m.SendMessageRequest(**self._fields("x" * 200, 0)), b"x"),
            (m.SendMessageRequest(**self._fields("", 0)), b"x"),
        ][number]
        return False, lambda half: half.code(message, body), f"{number}, {topic!r}"

    def do_pull(self) -> Kind:
        topic, queue, offset, most = self._topic(), self._queue(), self.one_of(*ODD), self.one_of(1, 4, 32)
        expression = self.one_of("*", "*", "*", "a", "a || b", "none")
        message = m.PullMessageRequest(
            consumer_group=self._group(),
            topic=topic,
            queue_id=queue,
            queue_offset=offset,
            max_msg_nums=most,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=expression,
            sub_version=0,
            expression_type="TAG",
        )

        def pull(half: Half) -> Any:
            reply = half.ask(message)
            told = (reply.code, reply.message.next_begin_offset, reply.message.min_offset, reply.message.max_offset)
            return told, records(reply.body, topic, queue) if reply.code == 0 else []

        return True, pull, f"{topic!r}, {queue}, {offset}, {most}, {expression!r}"

    def do_ends(self) -> Kind:
        queue: dict[str, Any] = {"topic": self._topic(), "queue_id": self._queue()}
        ask: Any = self.one_of(m.GetMinOffsetRequest, m.GetMaxOffsetRequest)
        return True, lambda half: half.ask(ask(**queue)).message.offset, f"{ask.__name__}, {queue}"

    def do_search(self) -> Kind:
        queue: dict[str, Any] = {"topic": self._topic(), "queue_id": self._queue()}
        at = self.one_of(0, 1, FUTURE)
        return True, lambda half: half.ask(m.SearchOffsetByTimestampRequest(timestamp=at, **queue)).message.offset, f"{queue}, {at}"

    def do_commit(self) -> Kind:
        queue: dict[str, Any] = {"topic": self._topic(), "queue_id": self._queue()}
        offset = self.one_of(*ODD)
        message = m.UpdateConsumerOffsetRequest(consumer_group=self._group(), commit_offset=offset, **queue)
        return False, lambda half: half.code(message), f"{message.consumer_group}, {queue}, {offset}"

    def do_committed(self) -> Kind:
        queue: dict[str, Any] = {"topic": self._topic(), "queue_id": self._queue()}
        message = m.QueryConsumerOffsetRequest(consumer_group=self._group(), **queue)
        return True, lambda half: half.ask(message).message.offset, f"{message.consumer_group}, {queue}"

    def do_key(self) -> Kind:
        topic, key = self.one_of(*self._keys[-50:], (self._topic(), "none"))
        message = m.QueryMessageRequest(topic=topic, key=key, max_num=10, begin_timestamp=0, end_timestamp=FUTURE)

        def search(half: Half) -> Any:
            return sorted(records(half.ask(message).body, topic, 0))

        return True, search, f"{topic!r}, {key!r}"

    def do_members(self) -> Kind:
        group = self._group()
        return True, lambda half: half.code(m.GetConsumerListByGroupRequest(consumer_group=group)), group

    def do_config(self) -> Kind:
        topic = self._topic()

        def config(half: Half) -> Any:
            tree = half.ask(m.GetTopicConfigRequest(topic=topic)).json()
            return tree["readQueueNums"], tree["writeQueueNums"], tree["perm"]

        return True, config, repr(topic)


def beside(broker: RocketMQ, count: int, chance: random.Random, prefix: str) -> None:
    """So many commands on both."""
    with (
        DevBroker(["rocketmq"], auto_create=False) as dev,
        wireproto.connect(broker.url, timeout=SECONDS) as real,
        wireproto.connect(dev.url("rocketmq"), timeout=SECONDS) as ours,
    ):
        dev.call("rocketmq", "answer_as_old", broker.version.startswith("4."))
        theirs = Half(cast("RocketClient", real), f"127.0.0.1:{broker.broker_ports[0]}")
        mine = Half(cast("RocketClient", ours), dev.address("rocketmq", "broker"))
        compare(theirs, mine, RocketCalls(chance, prefix), count)


@pytest.mark.parametrize("broker", LINES, indirect=True)
@pytest.mark.parametrize("chosen", [7])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: RocketMQ, chosen: int) -> None:
    beside(broker, 1_000, random.Random(chosen), f"alike-{chosen}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", LINES, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: RocketMQ) -> None:
    beside(broker, 10_000, random.Random(seed()), f"alike-long-{seed()}")
