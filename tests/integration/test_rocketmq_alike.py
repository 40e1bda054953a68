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
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

import wireproto
from brokers import RocketMQ
from chance import seed
from integration.alike import SECONDS, Kind, compare, outcome
from integration.rocketmq_calls import ODD, ClientCalls, Half, RocketCalls, records
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.rocketmq import messages as m
from wireproto.rocketmq.client import RocketClient

PLAIN = ["rocketmq-4.9.7-plain", "rocketmq-5.5.0-plain"]
"""With what the embedded broker has turned off turned off."""
CLUSTERS = ["rocketmq-4.9.7-slave", pytest.param("rocketmq-5.5.0-slave", marks=pytest.mark.soak)]
"""With a slave and two name servers. A slave of 5.5.0 takes over a minute to hear of a topic."""


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
        if repr(f"{self.prefix}-none") == shown:  # it may be there by now, and be made again
            return self.do_send()
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


def name_of(half: Half) -> str:
    """Its broker's."""
    (name,) = half.ask(m.GetBrokerClusterInfoRequest(), names=0).json()["brokerAddrTable"]
    return str(name)


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
        mine, theirs = (replace(half, name=name_of(half)) for half in (mine, theirs))
        if nodes:
            mine, theirs = replace(mine, slave=places["slave"]), replace(theirs, slave=f"127.0.0.1:{broker.broker_ports[-1]}")
        yield dev, theirs, mine


def beside(broker: RocketMQ, count: int, chance: random.Random, prefix: str) -> None:
    """So many commands on both."""
    with clusters(broker) as (_, theirs, mine):
        compare(theirs, mine, ClientCalls(chance, prefix, old=broker.version.startswith("4.")), count)


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


def kept(broker: RocketMQ, topic: str, group: str) -> int | None:
    """The group's offset in queue 0 as the real master has it on its disk."""
    path = broker.folder / "store-broker-a" / "config" / "consumerOffset.json"
    text = path.read_text() if path.exists() else ""  # keys are bare numbers, which is no JSON
    found = re.search(rf'"{topic}@{group}":{{\s*"?0"?:\s*(\d+)', text)
    return None if found is None else int(found[1])


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
            if node == "broker":  # offsets go to its disk each 5 s, and what is not there dies with it
                until(lambda done=2 * number: kept(broker, topic, group) == done)
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


@pytest.mark.parametrize("broker", PLAIN, indirect=True)
@pytest.mark.parametrize("chosen", [7])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: RocketMQ, chosen: int) -> None:
    beside(broker, 1_000, random.Random(chosen), f"alike-{chosen}")


@pytest.mark.parametrize("broker", CLUSTERS, indirect=True)
def test_the_embedded_slave_and_name_servers_answer_as_real_ones_do(broker: RocketMQ) -> None:
    beside_slaves(broker, 1, 250, random.Random(7), "slaves-7")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", PLAIN, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: RocketMQ) -> None:
    beside(broker, 10_000, random.Random(seed()), f"alike-long-{seed()}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", ["rocketmq-4.9.7-slave", "rocketmq-5.5.0-slave"], indirect=True)
def test_the_embedded_slave_and_name_servers_answer_as_real_ones_do_for_long(broker: RocketMQ) -> None:
    beside_slaves(broker, 10, 500, random.Random(seed()), f"slaves-long-{seed()}")
