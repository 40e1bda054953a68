"""The embedded RocketMQ beside real ones of both lines: the same random commands on both; codes, offsets and messages are compared.

A slave and two name servers are compared, too: first calls that change something on the masters, then, when the slaves have taken what
their masters know, calls that look at the slaves.

How: see alike.py. Commands are sent as they are, most of them to the broker itself: what a role of ours makes of an answer is another
test's. Not compared: remarks, message ids, and store times, which are each broker's own. WIREPROTO_SEED chooses the commands of the long
form; those of the short one are always the same.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

import wireproto
from brokers import RocketMQ
from chance import seed
from integration.alike import SECONDS, Calls, Kind, compare, outcome
from patience import until
from wireproto._codec import decode_rocketmq
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError
from wireproto.rocketmq import messages as m
from wireproto.rocketmq.client import RocketClient

LINES = ["rocketmq-4.9.7", "rocketmq-5.5.0"]
CLUSTERS = ["rocketmq-4.9.7-slave", pytest.param("rocketmq-5.5.0-slave", marks=pytest.mark.soak)]
"""With a slave and two name servers. A slave of 5.5.0 takes over a minute to hear of a topic."""
FUTURE = 1 << 42
BORN = 1_700_000_000_000
ODD = [-1, 0, 0, 1, 1, 2, 3, 7, 10**6]
"""Offsets asked for."""


@dataclass
class Half:
    """A cluster: its client, its master, its name servers, and the slave."""

    client: RocketClient
    broker: str
    names: tuple[str, ...]
    slave: str = ""

    @property
    def at_slave(self) -> Half:
        """The same for calls that go to the slave."""
        return replace(self, broker=self.slave)

    def ask(self, message: Any, body: Any = b"", *, names: int | None = None) -> Any:
        return self.client.request(message, body=body, to=self.broker if names is None else self.names[names], timeout=SECONDS)

    def code(self, message: Any, body: Any = b"", *, names: int | None = None) -> int:
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
    servers = 1

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
            return code, [half.code(m.DeleteTopicInNamesrvRequest(topic=topic), names=number) for number in range(self.servers)]

        return False, delete, repr(topic)

    def do_route(self) -> Kind:
        topic, server = self._topic(), self.chance.randrange(self.servers)

        def route(half: Half) -> Any:
            tree = half.ask(m.GetRouteInfoByTopicRequest(topic=topic), names=server).json()
            queues = [(queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) for queues in tree["queueDatas"]]
            return queues, [sorted(data["brokerAddrs"]) for data in tree["brokerDatas"]]

        return True, route, f"{topic!r}, {server}"

    def do_list(self) -> Kind:
        server = self.chance.randrange(self.servers)

        def names(half: Half) -> Any:
            found = half.ask(m.GetAllTopicListFromNameserverRequest(), names=server).json()["topicList"]
            return sorted(name for name in found if name.startswith(self.prefix))

        return True, names, f"{server}"

    def do_cluster(self) -> Kind:
        server = self.chance.randrange(self.servers)

        def cluster(half: Half) -> Any:
            tree = half.ask(m.GetBrokerClusterInfoRequest(), names=server).json()["brokerAddrTable"]
            return [sorted(int(number) for number in data["brokerAddrs"]) for data in tree.values()]

        return True, cluster, f"{server}"

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
        expression, flag = self.one_of("*", "*", "*", "a", "a || b", "none"), self.one_of(4, 4, 4, 4, 4, 0)  # 0: as its group subscribed
        message = m.PullMessageRequest(
            consumer_group=self._group(),
            topic=topic,
            queue_id=queue,
            queue_offset=offset,
            max_msg_nums=most,
            sys_flag=flag,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=expression,
            sub_version=0,
            expression_type="TAG",
        )

        def pull(half: Half) -> Any:
            reply = half.ask(message)
            told = reply.message
            told = (reply.code, told.suggest_which_broker_id, told.next_begin_offset, told.min_offset, told.max_offset)
            return told, records(reply.body, topic, queue) if reply.code == 0 else []

        return True, pull, f"{topic!r}, {queue}, {offset}, {most}, {expression!r}, {flag}"

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


class MasterCalls(RocketCalls):
    """What changes something, on the master of a cluster with a slave and two name servers, and what looks at the name servers.

    A topic that is deleted is never made again: a real slave mixes what it has of the old one with the new one's messages.
    """

    servers = 2
    KINDS = ("create", "create", "delete", "send", "send", "send", "commit", "route", "route", "list", "cluster", "pull")

    def __init__(self, chance: random.Random, prefix: str) -> None:
        super().__init__(chance, prefix)
        self._kinds = [f"do_{kind}" for kind in self.KINDS]
        self._made = len(self.names)

    def do_delete(self) -> Kind:
        if self.chance.random() < 0.7:
            return self.do_send()
        looks, call, shown = super().do_delete()
        for number, name in enumerate(self.names):
            if repr(name) == shown:
                self.names[number] = f"{self.prefix}-{self._made}"
                self._made += 1
        return looks, call, shown


class SlaveCalls(RocketCalls):
    """Calls to the slave: those that look, those that it refuses, and commits of a group that its master has none of."""

    def __init__(self, before: MasterCalls, *, old: bool) -> None:
        super().__init__(before.chance, before.prefix)
        self.names, self._keys, self._old = before.names, before._keys, old
        self._looks = [
            getattr(self, f"do_{kind}") for kind in ("pull", "pull", "pull", "ends", "search", "committed", "key", "members", "config")
        ]
        self._kinds = ["do_look", "do_look", "do_look", "do_wrong", "do_own"]

    def do_look(self) -> Kind:
        looks, call, shown = self.one_of(*self._looks)()
        return looks, lambda half: call(half.at_slave), shown

    def do_wrong(self) -> Kind:
        topic, queue = self._topic(), self.one_of(0, 1, 9)
        made = m.UpdateAndCreateTopicRequest(
            topic=f"{self.prefix}-slaves",
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        back = m.ConsumerSendMsgBackRequest(offset=0, group=self._group(), delay_level=0, origin_topic=topic, unit_mode=False)
        message, body = self.one_of(
            (m.SendMessageRequest(**self._fields(topic, queue)), b"x"),
            (m.SendMessageRequest(**self._fields("no such topic", 0)), b"x"),
            (m.SendMessageV2Request(**self._fields(topic, queue)), b"x"),
            (made, b""),
            (m.DeleteTopicInBrokerRequest(topic=f"{self.prefix}-none"), b""),
            (back.replace(origin_msg_id="", max_reconsume_times=3), b""),
            (m.InvokeBrokerToResetOffsetRequest(topic=topic, group=self._group(), timestamp=-1, is_force=True), b""),
            (
                m.EndTransactionRequest(
                    producer_group="g", tran_state_table_offset=0, commit_log_offset=0, commit_or_rollback=8, msg_id="x"
                ),
                b"",
            ),
        )
        return False, lambda half: half.at_slave.code(message, body), f"{type(message).__name__}, {topic!r}, {queue}"

    def do_own(self) -> Kind:
        offset, group = self.one_of(*ODD), f"{self.prefix}-slaves"
        queue: dict[str, Any] = {"topic": self._topic(), "queue_id": 0}

        def commit(half: Half) -> Any:
            done = half.at_slave.code(m.UpdateConsumerOffsetRequest(consumer_group=group, commit_offset=offset, **queue))
            return done, half.at_slave.ask(m.QueryConsumerOffsetRequest(consumer_group=group, **queue)).message.offset

        return False, commit, f"{queue}, {offset}"


def settle(real: Half, ours: Half, dev: DevBroker, group: str) -> None:
    """Return when the slaves have what their masters have: groups come last, and this one is new."""
    for half in (real, ours):
        assert half.code(m.UpdateAndCreateSubscriptionGroupRequest(), {"groupName": group, "consumeEnable": True}) == 0
    dev.call("rocketmq", "synchronise")
    until(lambda: group in real.at_slave.ask(m.GetAllSubscriptionGroupConfigRequest()).json()["subscriptionGroupTable"], limit=100.0)
    # what the masters stored is on its way all the time
    progress = [real.ask(m.GetBrokerRuntimeInfoRequest()).json()["table"]["commitLogMaxOffset"]]
    until(lambda: real.at_slave.ask(m.GetBrokerRuntimeInfoRequest()).json()["table"]["commitLogMaxOffset"] in progress)


@contextlib.contextmanager
def clusters(broker: RocketMQ, **nodes: int) -> Iterator[tuple[DevBroker, Half, Half]]:
    """An embedded cluster beside a real one: it, and both halves, the real one first."""
    with (
        DevBroker(["rocketmq"], auto_create=False, nodes={f"rocketmq.{kind}": count for kind, count in nodes.items()}) as dev,
        wireproto.connect(broker.url, timeout=SECONDS) as real,
        wireproto.connect(dev.url("rocketmq"), timeout=SECONDS) as ours,
    ):
        dev.call("rocketmq", "answer_as_old", broker.version.startswith("4."))
        places = dev.listeners("rocketmq")
        mine = Half(cast("RocketClient", ours), places["broker"], (places["main"], *[places[n] for n in places if n.startswith("names")]))
        ports = [f"127.0.0.1:{port}" for port in broker.name_server_ports]
        theirs = Half(cast("RocketClient", real), f"127.0.0.1:{broker.broker_ports[0]}", tuple(ports))
        if nodes:
            mine, theirs = replace(mine, slave=places["slave"]), replace(theirs, slave=f"127.0.0.1:{broker.broker_ports[-1]}")
        yield dev, theirs, mine


def beside(broker: RocketMQ, count: int, chance: random.Random, prefix: str) -> None:
    """So many commands on both."""
    with clusters(broker) as (_, theirs, mine):
        compare(theirs, mine, RocketCalls(chance, prefix), count)


def beside_slaves(broker: RocketMQ, rounds: int, count: int, chance: random.Random, prefix: str) -> None:
    """Rounds of so many commands on the masters and as many on the slaves; a slave that is read from, and not, in turns."""
    with clusters(broker, slaves=1, name_servers=2) as (dev, theirs, mine):
        calls = MasterCalls(chance, prefix)
        for group in ("a", "b", "c", "slaves"):
            for half in (theirs, mine):
                half.code(m.UpdateAndCreateSubscriptionGroupRequest(), {"groupName": f"{prefix}-{group}", "consumeEnable": True})
        for number in range(rounds):
            told = f"slaveReadEnable={'true' if number % 2 == 0 else 'false'}\naccessMessageInMemoryMaxRatio={chance.choice((0, 40))}\n"
            for half in (theirs, theirs.at_slave, mine, mine.at_slave):
                assert half.code(m.UpdateBrokerConfigRequest(), told.encode()) == 0
            compare(theirs, mine, calls, count)
            settle(theirs, mine, dev, f"{prefix}-settled-{number}")
            compare(theirs, mine, SlaveCalls(calls, old=broker.version.startswith("4.")), count)


NODES = {"main": 0, "broker": 1, "slave": 2, "names-2": 3}
"""Of an embedded cluster's nodes: which of a real one's servers they are."""


def seen(half: Half, topic: str, group: str, away: str | None) -> list[Any]:
    """What the nodes that are there tell: name servers of the route and of the members, the slave of messages and of an offset."""
    found: list[Any] = []
    for number in (n for n, name in enumerate(("main", "names-2")) if name != away):
        tree = half.ask(m.GetRouteInfoByTopicRequest(topic=topic), names=number).json()
        found.append([(sorted(data["brokerAddrs"]), data["cluster"] != "") for data in tree["brokerDatas"]])
        found.append([(queues["readQueueNums"], queues["perm"]) for queues in tree["queueDatas"]])
        known = half.ask(m.GetBrokerClusterInfoRequest(), names=number).json()["brokerAddrTable"]
        found.append([sorted(int(member) for member in data["brokerAddrs"]) for data in known.values()])
    for node in (node for node, name in ((half, "broker"), (half.at_slave, "slave")) if name != away):
        pull = m.PullMessageRequest(
            consumer_group=group, topic=topic, queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        reply = node.ask(pull)
        found.append((reply.code, reply.message.suggest_which_broker_id, records(reply.body, topic, 0)))
        found.append(node.ask(m.QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0)).message.offset)
    return found


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("broker", ["rocketmq-4.9.7-slave", "rocketmq-5.5.0-slave"], indirect=True)
def test_an_embedded_cluster_gets_over_the_loss_of_each_node_as_a_real_one_does(broker: RocketMQ) -> None:
    with clusters(broker, slaves=1, name_servers=2) as (dev, theirs, mine):
        topic, group = f"outages-{seed()}", f"outages-{seed()}"
        fields = RocketCalls(random.Random(0), topic)._fields(topic, 0)
        made = m.UpdateAndCreateTopicRequest(topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2)

        def change(number: int) -> None:
            """A message more, and an offset."""
            for half in (theirs, mine):
                assert half.code(m.SendMessageRequest(**fields), b"%d" % number) == 0
                offset = m.UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0, commit_offset=number)
                assert half.code(offset) == 0

        def alike(away: str | None) -> None:
            expected: list[Any] = []

            def same() -> bool:
                expected[:] = [outcome(lambda half: seen(half, topic, group, away), half) for half in (mine, theirs)]
                return expected[0] == expected[1]

            with contextlib.suppress(AssertionError):
                until(same, limit=30.0)
            assert expected[0] == expected[1], f"without {away}"
            assert isinstance(expected[0], list), f"without {away}: {expected[0]}"

        for half in (theirs, theirs.at_slave, mine, mine.at_slave):
            assert half.code(m.UpdateBrokerConfigRequest(), b"slaveReadEnable=true\n") == 0
        for half in (theirs, mine):
            assert half.code(made.replace(perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False)) == 0
            assert half.code(m.UpdateAndCreateSubscriptionGroupRequest(), {"groupName": group, "consumeEnable": True}) == 0
        for number, node in enumerate(NODES):
            change(2 * number)
            settle(theirs, mine, dev, f"{group}-{number}")
            alike(None)
            broker.kill(NODES[node])
            dev.pause("rocketmq", node)
            alike(node)
            if node != "broker":
                change(2 * number + 1)
            broker.start(NODES[node])
            dev.resume("rocketmq", node)
            dev.call("rocketmq", "announce")
            settle(theirs, mine, dev, f"{group}-{number}-again")
            alike(None)


@pytest.mark.parametrize("broker", LINES, indirect=True)
@pytest.mark.parametrize("chosen", [7])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: RocketMQ, chosen: int) -> None:
    beside(broker, 1_000, random.Random(chosen), f"alike-{chosen}")


@pytest.mark.parametrize("broker", CLUSTERS, indirect=True)
def test_the_embedded_slave_and_name_servers_answer_as_real_ones_do(broker: RocketMQ) -> None:
    beside_slaves(broker, 1, 250, random.Random(7), "slaves-7")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", LINES, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: RocketMQ) -> None:
    beside(broker, 10_000, random.Random(seed()), f"alike-long-{seed()}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", ["rocketmq-4.9.7-slave", "rocketmq-5.5.0-slave"], indirect=True)
def test_the_embedded_slave_and_name_servers_answer_as_real_ones_do_for_long(broker: RocketMQ) -> None:
    beside_slaves(broker, 10, 500, random.Random(seed()), f"slaves-long-{seed()}")
