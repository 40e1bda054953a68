"""Random commands to RocketMQ brokers of which an embedded one and a real one are asked beside each other: see alike.py.

What it is: `RocketCalls`, with what topics, queues, messages and offsets are; `ClientCalls`, with what clients of ours and Java's send
beyond that: sends as they make them, heartbeats, members, locks, messages given back, resets, and what plain brokers refuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from integration.alike import SECONDS, Calls, Kind
from patience import until
from wireproto._codec import RocketBatchBuilder, decode_rocketmq
from wireproto.errors import BrokerError
from wireproto.rocketmq import fastjson
from wireproto.rocketmq import messages as m
from wireproto.rocketmq.bodies import HeartbeatData, SubscriptionData
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import ServerError
from wireproto.rocketmq.remoting import PULL_ANSWERS

FUTURE = 1 << 42
BORN = 1_700_000_000_000
ODD = [-1, 0, 0, 1, 1, 2, 3, 7, 10**6]
"""Offsets asked for."""


@dataclass
class Half:
    """A cluster: its client, its master, its name servers, the slave, and its broker's name."""

    client: RocketClient
    broker: str
    names: tuple[str, ...]
    slave: str = ""
    name: str = ""

    @property
    def at_slave(self) -> Half:
        """The same for calls that go to the slave."""
        return replace(self, broker=self.slave)

    def ask(self, message: Any, body: Any = b"", *, names: int | None = None) -> Any:
        return self.client.request(message, body=body, to=self.broker if names is None else self.names[names], timeout=SECONDS)

    def begin(self, who: str, message: Any, body: bytes = b"") -> Callable[[], Any]:
        """The same on a connection of its own, as another client's; what waits for the answer."""
        cluster = self.client.cluster
        late = cluster.deadline(SECONDS)
        task = cluster.tasks.spawn(cluster.invoking(self.broker, message, body, until=late, purpose=who, accept=PULL_ANSWERS), who)

        def wait() -> Any:
            task.wait(late)
            return task.result()

        return wait

    def ask_as(self, who: str, message: Any, body: bytes = b"") -> Any:
        return self.begin(who, message, body)()

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


def shown(half: Half) -> bool:
    """Whether the queues hold all of its log. 5.5.0 cannot tell in the first moments of its life."""
    try:
        return str(half.ask(m.GetBrokerRuntimeInfoRequest()).json()["table"]["dispatchBehindBytes"]) == "0"
    except ServerError:
        return False


class RocketCalls(Calls):
    servers = 1

    def __init__(self, chance: random.Random, prefix: str) -> None:
        super().__init__(chance, prefix)
        self._sent = 0
        self._gone: set[str] = set()  # topics that were deleted and not made again
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
        self._gone.discard(topic)
        return False, lambda half: half.code(message), f"{topic!r}, {queues}, {perm}"

    def do_delete(self) -> Kind:
        topic = self.one_of(*self.names) if self.chance.random() < 0.3 else f"{self.prefix}-none"

        self._keys = [kept for kept in self._keys if kept[0] != topic]
        self._gone |= {topic} & {*self.names}

        def delete(half: Half) -> Any:
            code = half.code(m.DeleteTopicInBrokerRequest(topic=topic))
            return code, [half.code(m.DeleteTopicInNamesrvRequest(topic=topic), names=number) for number in range(self.servers)]

        return False, delete, repr(topic)

    def _delete_again(self, half: Half, topics: set[str], server: int) -> None:
        """A registration that crossed their deletion has brought these back here, for good: the next look is without them."""
        for topic in topics:
            half.code(m.DeleteTopicInNamesrvRequest(topic=topic), names=server)

    def do_route(self) -> Kind:
        topic, server = self._topic(), self.chance.randrange(self.servers)
        gone = {topic} & self._gone

        def route(half: Half) -> Any:
            tree = half.ask(m.GetRouteInfoByTopicRequest(topic=topic), names=server).json()
            self._delete_again(half, gone, server)
            queues = [(queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) for queues in tree["queueDatas"]]
            return queues, [sorted(data["brokerAddrs"]) for data in tree["brokerDatas"]]

        return True, route, f"{topic!r}, {server}"

    def do_list(self) -> Kind:
        server, gone = self.chance.randrange(self.servers), {*self._gone}

        def names(half: Half) -> Any:
            found = half.ask(m.GetAllTopicListFromNameserverRequest(), names=server).json()["topicList"]
            self._delete_again(half, gone & {*found}, server)
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


class ClientCalls(RocketCalls):
    """What clients send beyond plain sends and looks. Members have a connection each, as real clients do.

    Messages that show later (delayed ones, and those given back) go to topics of their own: when they show is each broker's.
    """

    def __init__(self, chance: random.Random, prefix: str, *, old: bool) -> None:
        super().__init__(chance, prefix)
        self._old = old
        self._later = f"{prefix}-later"
        if old:  # members reset themselves there: the embedded broker does not call them
            self._kinds.remove("do_reset")

    # sends -------------------------------------------------------------------------------------------------------------------------

    def do_send_v2(self) -> Kind:
        topic, queue, tag = self._topic(), self.one_of(-1, 0, 0, 0, 1, 2, 9), self.one_of("", "TAGS\x01a\x02")
        self._sent += 1
        key = f"v{self._sent}"
        self._keys.append((topic, key))
        text = f"KEYS\x01{key}\x02UNIQ_KEY\x01{self.prefix}{self._sent:08X}\x02{tag}"
        message = m.SendMessageV2Request(**self._fields(topic, queue, properties=text))

        def send(half: Half) -> Any:
            reply = half.ask(message, b"v2")
            told = reply.message
            anywhere = queue < 0  # which one then is each broker's chance
            return reply.code, None if anywhere else (told.queue_id, told.queue_offset), told.transaction_id, bool(told.msg_id)

        # a queue that the broker chooses would make them differ for good
        return (False, send, f"{topic!r}, {queue}, {tag!r}") if queue >= 0 else self.do_send_v2()

    def do_batch(self) -> Kind:
        topic, queue, count = self._topic(), self.one_of(0, 0, 0, 1, 9), self.one_of(1, 2, 5)
        kind = self.one_of("plain", "plain", "plain", "plain", "unique", "broken", "retry", "delayed")
        if kind == "retry" and self._old:  # it takes them, among what was given back, which shows when it likes
            kind = "plain"
        builder = RocketBatchBuilder(1 << 20)
        for _ in range(count):
            self._sent += 1
            self._keys.append((topic, f"b{self._sent}"))
            late = "DELAY\x013\x02" if kind == "delayed" else ""
            assert builder.add(b"in a batch", f"KEYS\x01b{self._sent}\x02UNIQ_KEY\x01{self.prefix}{self._sent:08X}\x02{late}".encode())
        body = builder.finish()
        if kind == "broken":
            body, topic = body[:-3], f"{self.prefix}-none"
        if kind == "retry":
            topic = f"%RETRY%{self._group()}"
        properties = f"UNIQ_KEY\x01{self.prefix}{self._sent:08X}\x02" if kind == "unique" else ""
        message = m.SendBatchMessageRequest(**self._fields(topic, queue, properties=properties, batch=True))

        def send(half: Half) -> Any:
            reply = half.ask(message, body)
            return reply.code, reply.message.queue_id, reply.message.queue_offset, len(reply.message.msg_id.split(","))

        return False, send, f"{topic!r}, {queue}, {count}, {kind}"

    def do_delayed(self) -> Kind:
        level = self.one_of("1", "3", "18", "99", "0")
        message = m.SendMessageV2Request(**self._fields(self._later, 0, properties=f"DELAY\x01{level}\x02UNIQ_KEY\x01L{self._sent}\x02"))

        def send(half: Half) -> Any:
            half.code(self._creation(self._later))
            return half.code(message, b"later")

        return False, send, level

    def do_refused(self) -> Kind:
        """What brokers refuse that have it turned off; those of 4.9 know no timers and store such a message as any other."""
        name = self.one_of("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG")
        value = "true" if name == "TRAN_MSG" else "1000"
        topic = self._later if self._old and name != "TRAN_MSG" else self.one_of(*self.names)
        message = m.SendMessageV2Request(**self._fields(topic, 0, properties=f"{name}\x01{value}\x02UNIQ_KEY\x01R{self._sent}\x02"))

        def send(half: Half) -> Any:
            half.code(self._creation(self._later))
            return half.code(message, b"x")

        return False, send, f"{topic!r}, {name}"

    def _creation(self, topic: str) -> Any:
        return m.UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6, topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0, order=False,
        )  # fmt: skip

    # members -----------------------------------------------------------------------------------------------------------------------

    def _member(self) -> str:
        return f"{self.prefix}-member-{self.one_of(1, 2, 3)}"

    def do_beat(self) -> Kind:
        member, group, topic, expression = self._member(), self._group(), self.one_of(*self.names), self.one_of("*", "a", "a || b")
        self._sent += 1
        told = SubscriptionData(topic, expression, self._sent)
        body = HeartbeatData(member, (), {group: [told, SubscriptionData(f"%RETRY%{group}", version=self._sent)]}).encode()
        return False, lambda half: half.ask_as(member, m.HeartBeatRequest(), body).code, f"{member}, {group}, {topic!r}, {expression!r}"

    def do_leave(self) -> Kind:
        member, group = self._member(), self._group()
        message = m.UnregisterClientRequest(client_id=member, consumer_group=group)
        return False, lambda half: half.ask_as(member, message).code, f"{member}, {group}"

    def do_listed(self) -> Kind:
        group = self._group()

        def listed(half: Half) -> Any:
            return sorted(half.ask(m.GetConsumerListByGroupRequest(consumer_group=group)).json()["consumerIdList"])

        return True, listed, group

    def do_connections(self) -> Kind:
        group = self._group()

        def connections(half: Half) -> Any:
            tree = half.ask(m.GetConsumerConnectionListRequest(consumer_group=group)).json()
            table = {topic: one["subString"] for topic, one in tree["subscriptionTable"].items()}
            members = sorted(one["clientId"] for one in tree["connectionSet"])
            return members, table, tree["consumeType"], tree["messageModel"], tree["consumeFromWhere"]

        return True, connections, group

    def do_groups(self) -> Kind:
        def groups(half: Half) -> Any:
            table = half.ask(m.GetAllSubscriptionGroupConfigRequest()).json()["subscriptionGroupTable"]
            return sorted(name for name in table if name.startswith(self.prefix))

        return True, groups, ""

    def do_lock(self) -> Kind:
        return self._locking(m.LockBatchMqRequest())

    def do_unlock(self) -> Kind:
        return self._locking(m.UnlockBatchMqRequest())

    def _locking(self, message: Any) -> Kind:
        topic, group, member = self.one_of(*self.names), self._group(), self._member()
        queues = sorted({self.one_of(0, 1, 2) for _ in range(2)})

        def lock(half: Half) -> Any:
            wanted = [{"topic": topic, "brokerName": half.name, "queueId": queue} for queue in queues]
            reply = half.ask(message, fastjson.dumps({"consumerGroup": group, "clientId": member, "mqSet": wanted}))
            return reply.code, sorted(one["queueId"] for one in (reply.json() or {}).get("lockOKMQSet", []))

        return False, lock, f"{topic!r}, {group}, {member}, {queues}"

    # offsets -----------------------------------------------------------------------------------------------------------------------

    def do_offsets(self) -> Kind:
        """The table of all groups, of which ours."""

        def offsets(half: Half) -> Any:
            table = half.ask(m.GetAllConsumerOffsetRequest()).json()["offsetTable"]
            ours = sorted(key for key in table if key.startswith(self.prefix) and table[key])
            return {key: {int(queue): offset for queue, offset in table[key].items()} for key in ours}

        return True, offsets, ""

    def do_strictly_committed(self) -> Kind:
        """As our members ask: no 0 where there is none."""
        queue: dict[str, Any] = {"topic": self._topic(), "queue_id": self._queue()}
        message = m.QueryConsumerOffsetRequest(consumer_group=self._group(), set_zero_if_not_found=False, **queue)
        return True, lambda half: half.ask(message).message.offset, f"{message.consumer_group}, {queue}"

    def do_reset(self) -> Kind:
        topic, group = self._topic(), self._group()
        queue, offset = self.one_of((None, None), (0, 0), (0, 1), (1, 0), (7, 0), (7, 1), (0, -1), (0, -2), (0, 10**6))
        at = self.one_of(-1, 0, FUTURE)
        message = m.InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=at, is_force=True, queue_id=queue, offset=offset)

        def reset(half: Half) -> int:
            until(lambda: shown(half))  # so that an end is one
            return half.code(message)

        return False, reset, f"{topic!r}, {group}, {queue}, {offset}, {at}"

    # messages ----------------------------------------------------------------------------------------------------------------------

    def _stored(self, half: Half, topic: str, offset: int) -> tuple[int, Any]:
        """Where the message lies in the commit log, and its value; -1: there is none."""
        pull = m.PullMessageRequest(
            consumer_group=f"{self.prefix}-looks", topic=topic, queue_id=0, queue_offset=offset, max_msg_nums=1, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        reply = half.ask(pull)
        if reply.code:
            return -1, None
        columns = decode_rocketmq([reply.body], topic=topic, partition=0)[0]
        return columns.facts["commit_log_offset"][0], columns.values()[0]

    def do_view(self) -> Kind:
        topic, offset = self.one_of(*self.names), self.one_of(0, 1, 2)

        def view(half: Half) -> Any:
            place, value = self._stored(half, topic, offset)
            return value, records(half.ask(m.ViewMessageByIdRequest(offset=place)).body, topic, 0)

        return True, view, f"{topic!r}, {offset}"

    def do_give_back(self) -> Kind:
        """Level -1 is the group's dead letters, at once; any other comes back later."""
        topic, offset, group, level = self.one_of(*self.names), self.one_of(0, 1, 2), self._group(), self.one_of(0, 1, 3, -1)

        def give(half: Half) -> Any:
            until(lambda: shown(half))  # it may have been sent just now
            place, value = self._stored(half, topic, offset)
            message = m.ConsumerSendMsgBackRequest(
                offset=place, group=group, delay_level=level, origin_msg_id="", origin_topic=topic, unit_mode=False, max_reconsume_times=3
            )
            return value, half.code(message)

        return False, give, f"{topic!r}, {offset}, {group}, {level}"

    def do_dead(self) -> Kind:
        """How many dead letters a group has."""
        message = m.GetMaxOffsetRequest(topic=f"%DLQ%{self._group()}", queue_id=0)
        return True, lambda half: half.ask(message).message.offset, message.topic

    def do_pull_held(self) -> Kind:
        """One that waits at the end, until a message comes."""
        topic, tag = self.one_of(*self.names), self.one_of("*", "*", "a")
        self._sent += 1
        send = m.SendMessageV2Request(**self._fields(topic, 0, properties=f"UNIQ_KEY\x01{self.prefix}{self._sent:08X}\x02TAGS\x01a\x02"))

        def pull(half: Half) -> Any:
            first = half.ask(send, b"first")
            if first.code:
                return None  # nothing could come, and it would be held for long
            end = first.message.queue_offset + 1
            until(lambda: half.ask(m.GetMaxOffsetRequest(topic=topic, queue_id=0)).message.offset == end)
            message = m.PullMessageRequest(
                consumer_group=f"{self.prefix}-looks", topic=topic, queue_id=0, queue_offset=end, max_msg_nums=32, sys_flag=4 | 2,
                commit_offset=0, suspend_timeout_millis=20_000, subscription=tag, sub_version=0, expression_type="TAG",
            )  # fmt: skip
            waiting = half.begin("puller", message)
            sent = half.code(send, b"held")
            reply = waiting()
            found = reply.code, reply.message.next_begin_offset, records(reply.body, topic, 0) if reply.code == 0 else []
            return end, sent, found

        return False, pull, f"{topic!r}, {tag!r}"

    def do_sql(self) -> Kind:
        """Refused: brokers have it turned off."""
        topic = self.one_of(*self.names)
        pull = m.PullMessageRequest(
            consumer_group=self._group(), topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, subscription="a > 1", sub_version=0, expression_type="SQL92",
        )  # fmt: skip
        return True, lambda half: half.code(pull), repr(topic)

    def do_check(self) -> Kind:
        kind, expression = self.one_of(("TAG", "a"), ("TAG", "*"), ("SQL92", "a > 1"), ("SQL92", "a >"))
        data = {"topic": self.names[0], "subString": expression, "expressionType": kind, "subVersion": 1}
        body = fastjson.dumps({"clientId": "c", "group": self._group(), "subscriptionData": data})
        return True, lambda half: half.code(m.CheckClientConfigRequest(), body), f"{kind}, {expression!r}"
