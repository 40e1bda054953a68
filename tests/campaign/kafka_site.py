"""Kafka 4.3.1, three nodes: a topic with two in-sync copies, a weak one, one with a partition on each node alone, one that grows."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar

import confluent_kafka
import confluent_kafka.admin

import wireproto
from brokers import Broker, Kafka
from brokers.kafka_config import USERS
from patience import until
from wireproto.errors import BrokerError, WireprotoError
from wireproto.kafka.messages import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    IncrementalAlterConfigsRequest,
    LeaveGroupRequest,
    MemberIdentity,
    ReassignablePartition,
    ReassignableTopic,
)
from wireproto.kafka.messages.alter_client_quotas import AlterClientQuotasRequestEntryData, OpData
from wireproto.kafka.messages.common import EntityData
from wireproto.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsAlterableConfig, IncrementalAlterConfigsResource
from wireproto.position import LogOffset

from .faults import Sick
from .ledger import Ledger, Place, Promise, Role, Truth
from .plan import Round
from .site import OPEN, Site, Work, fleeting, logs_in

PATIENCE = 60.0  # delivery_timeout
EARLY = PATIENCE - 5.0  # a batch's time runs from its first record
MAIN, WEAK, SINGLE, GROWING, AGAIN, CUT, GUARDED = "main", "weak", "single", "growing", "again", "cut", "guarded"
GUEST, MECHANISM = "alice", "SCRAM-SHA-256"  # who logs in, and how
REFUSED = "SaslAuthenticationFailed"
LOST = ("DataLoss", "OffsetOutOfRange")  # what tells a reader that a log is not what it was
GONE = ("UnknownTopicOrPartition", "UnknownTopicId", "InconsistentTopicId")  # or that a topic is away
SCRAM: Any = confluent_kafka.admin  # it does not tell type checkers of these
READ = 60.0
QUOTAS = {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 50_000.0}  # bytes a second and node, of what takes ten times that
TOPIC = 2  # a topic, among the kinds of resources that have settings
POLICIES = (
    {"compression.type": "gzip"},
    {"compression.type": "uncompressed", "segment.bytes": str(1 << 20)},
    {"compression.type": "producer", "message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.type": "CreateTime", "index.interval.bytes": "0"},
)


class KafkaSite(Site):
    protocol = "kafka"
    version = "4.3.1"
    broker: Kafka
    faults: ClassVar = (
        "kill",
        "freeze",
        "restart",
        "roll",
        "black-hole",
        "swallow",
        "cut",
        "half-close",
        "refuse",
        "far",
        "narrow",
        "clock",
        "move",
        "grow",
        "quota",
        "policy",
        "reset",
        "anew",
        "unclean",
        "login",
    )

    def make(self) -> Broker:
        ahead = str((1 << 63) - 1)  # out of the box a record may be an hour ahead of its broker's clock, which jumps here
        settings = {"controller.quorum.fetch.timeout.ms": "2000", "log.message.timestamp.after.max.ms": ahead}
        return Kafka(self.version, nodes=3, heap="320m", sasl=True, settings=settings)

    def node_addresses(self) -> list[str]:
        return self.broker.addresses

    def guarded_addresses(self) -> list[str]:
        return [f"127.0.0.1:{ports['SASL_PLAINTEXT']}" for ports in self.broker.listeners]

    def options(self) -> dict[str, Any]:
        quick = {"request_timeout": 10.0 if self.short else 5.0, "connect_timeout": 5.0, "metadata_max_age": 5.0}
        return super().options() | quick | {"timeout": OPEN, "fetch_memory": 8 << 20}

    def prepare(self) -> None:
        self._admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ",".join(self.broker.addresses)})
        with wireproto.connect(self.broker.url) as client:
            admin: Any = client.admin()
            admin.create_topic(MAIN, partitions=6, replication=3, config={"min.insync.replicas": "2"}, timeout=60.0)
            admin.create_topic(WEAK, partitions=3, replication=3, config={"min.insync.replicas": "1"}, timeout=60.0)
            admin.create_topic(GUARDED, partitions=3, replication=3, config={"min.insync.replicas": "2"}, timeout=60.0)
            admin.create_topic(GROWING, partitions=2, replication=3, config={"min.insync.replicas": "2"}, timeout=60.0)
            places = tuple(CreatableReplicaAssignment(partition_index=n, broker_ids=(n + 1,)) for n in range(3))
            alone = CreatableTopicConfig(name="min.insync.replicas", value="1")
            wanted = CreatableTopic(name=SINGLE, num_partitions=-1, replication_factor=-1, assignments=places, configs=(alone,))
            reply = client.request(CreateTopicsRequest(topics=(wanted,), timeout_ms=30_000))
            assert reply.topics[0].error_code == 0, reply
            unclean = CreatableTopicConfig(name="unclean.leader.election.enable", value="true")
            pairs = tuple(CreatableReplicaAssignment(partition_index=n, broker_ids=(n + 1, (n + 1) % 3 + 1)) for n in range(3))
            wanted = CreatableTopic(name=CUT, num_partitions=-1, replication_factor=-1, assignments=pairs, configs=(alone, unclean))
            reply = client.request(CreateTopicsRequest(topics=(wanted,), timeout_ms=30_000))
            assert reply.topics[0].error_code == 0, reply
            self._make_again(admin)
        self._partitions = {MAIN: 6, WEAK: 3, SINGLE: 3, GROWING: 2, AGAIN: 3, CUT: 3, GUARDED: 3}

    @staticmethod
    def _make_again(admin: Any) -> None:
        admin.create_topic(AGAIN, partitions=3, replication=3, config={"min.insync.replicas": "2"}, timeout=60.0)

    def works(self) -> list[Work]:
        known: dict[str, Any] = {"door": "sasl", "options": {"user": GUEST, "password": USERS[GUEST], "sasl": MECHANISM}}
        guests = [Work("guest-senders", _guest_senders(), sends=True, **known), Work("guest-readers", _guest_readers(), **known)]
        return [Work("senders", _senders(), sends=True), Work("lonely", _lonely(), sends=True), Work("readers", _readers()), *guests]

    def streams(self) -> list[Work]:
        role = Role("spark", "reader", MAIN, steady=False)
        return [Work("spark", [(role, {"name": "spark", "topic": MAIN})], stream=True)]

    def control(self, told: Callable[[str, float], None], ended: threading.Event) -> None:
        """librdkafka, past the proxies, into the partitions that live on one node each."""
        producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(self.broker.addresses), "linger.ms": 0, "acks": "all"})
        began: dict[bytes, float] = {}

        def done(_: Any, message: Any) -> None:
            told(f"{SINGLE}/{message.partition()}", time.monotonic() - began.pop(message.value()))

        for number in itertools.count():
            value = b"control:%d" % number
            began[value] = time.monotonic()
            producer.produce(SINGLE, value, partition=number % 3, on_delivery=done)
            producer.poll(0)
            if ended.wait(0.04):
                break
        producer.flush(10.0)

    def comer(self, number: int) -> Work | None:
        """A member of each group, with a client of its own."""
        return Work(f"comer-{number}", [_member(f"{group}-comer-{number}", group, MAIN, comes=True) for group in ("exact", "blind")])

    def logs(self) -> dict[str, list[str]]:
        return {topic: [f"{topic}/{number}" for number in range(count)] for topic, count in self._partitions.items()}

    def homes(self) -> dict[str, int]:
        return {f"{SINGLE}/{number}": number for number in range(3)}

    def answers(self) -> bool:
        if not all(server._ready() for server in self.broker.servers):
            return False
        found = self._admin.list_topics(timeout=5.0)
        return len(found.brokers) == 3 and all(part.leader > 0 for topic in found.topics.values() for part in topic.partitions.values())

    def own_faults(self) -> dict[str, Callable[[Round], AbstractContextManager[Sick]]]:
        return {
            "move": self._move,
            "grow": self._grow,
            "quota": self._quota,
            "policy": self._policy,
            "reset": self._reset,
            "anew": self._anew,
            "unclean": self._unclean,
            "login": self._login,
        }

    @contextmanager
    def _move(self, round_: Round) -> Iterator[Sick]:
        """The first replica of every partition of the main topic becomes another one, and is elected."""
        order = [(round_.node + step) % 3 + 1 for step in range(3)]
        with wireproto.connect(self.broker.url) as client:
            parts = tuple(
                ReassignablePartition(partition_index=n, replicas=tuple(order[(n + step) % 3] for step in range(3))) for n in range(6)
            )
            moved = ReassignableTopic(name=MAIN, partitions=parts)
            client.request(AlterPartitionReassignmentsRequest(timeout_ms=20_000, topics=(moved,)))
            time.sleep(0.5)
            chosen = ElectLeadersTopicPartitions(topic=MAIN, partitions=tuple(range(6)))
            client.request(ElectLeadersRequest(election_type=0, topic_partitions=(chosen,), timeout_ms=20_000))
        yield None

    @contextmanager
    def _grow(self, _: Round) -> Iterator[Sick]:
        """Two more partitions for the topic that grows, twelve at most."""
        count = min(self._partitions[GROWING] + 2, 12)
        with wireproto.connect(self.broker.url) as client:

            def grown() -> bool:
                """Nodes hear of it one by one: were the old number taken for the truth, what the new logs have would be judged as lost."""
                with suppress(WireprotoError):
                    more = (CreatePartitionsTopic(name=GROWING, count=count, assignments=None),)
                    client.request(CreatePartitionsRequest(topics=more, timeout_ms=20_000, validate_only=False))
                return len(self._described(GROWING)) == count

            until(grown, f"{GROWING} does not come to have {count} partitions")
        self._partitions[GROWING] = count
        yield frozenset()

    def _described(self, topic: str) -> dict[int, Any]:
        """A topic's partitions, as the node knows them that is asked: none where it does not know the topic, or does not answer."""
        with suppress(confluent_kafka.KafkaException):
            return dict(self._admin.list_topics(topic=topic, timeout=5.0).topics[topic].partitions)
        return {}

    @contextmanager
    def _quota(self, _: Round) -> Iterator[Sick]:
        """Every client without a quota of its own is slowed down: answers are told late, and what is sent meanwhile is not read."""
        self._set_quotas(QUOTAS, remove=False)
        try:
            yield None
        finally:
            self._set_quotas(QUOTAS, remove=True)

    def _set_quotas(self, quotas: dict[str, float], *, remove: bool) -> None:
        changes = tuple(OpData(key=key, value=value, remove=remove) for key, value in quotas.items())
        entry = AlterClientQuotasRequestEntryData(entity=(EntityData(entity_type="client-id", entity_name=None),), ops=changes)
        with wireproto.connect(self.broker.url) as client:
            reply = client.request(AlterClientQuotasRequest(entries=(entry,), validate_only=False))
        assert not any(answer.error_code for answer in reply.entries), reply

    @contextmanager
    def _policy(self, round_: Round) -> Iterator[Sick]:
        """Other settings for the main topic: brokers compress anew, write times of their own, begin a segment every megabyte."""
        wanted = POLICIES[int(round_.amount * len(POLICIES)) % len(POLICIES)]
        changes = tuple(
            IncrementalAlterConfigsAlterableConfig(name=name, config_operation=0, value=value) for name, value in wanted.items()
        )
        topic = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=MAIN, configs=changes)
        with wireproto.connect(self.broker.url) as client:
            reply = client.request(IncrementalAlterConfigsRequest(resources=(topic,), validate_only=False))
        assert not any(answer.error_code for answer in reply.responses), reply
        yield frozenset()

    @contextmanager
    def _reset(self, _: Round) -> Iterator[Sick]:
        """An administrator throws a group's members out, and sets it back to the beginning before one of them is there again."""
        places = {(MAIN, number): LogOffset(MAIN, number, 0) for number in range(self._partitions[MAIN])}
        with wireproto.connect(self.broker.url) as client:
            admin: Any = client.admin()

            def set_back() -> bool:
                out = tuple(MemberIdentity(member_id=one.member) for one in admin.describe_group("exact").members)
                client.request(LeaveGroupRequest(group_id="exact", members=out))
                began = time.monotonic()
                with suppress(BrokerError):  # it has members: one was quicker
                    admin.commit("exact", places)
                    self.note("reset", "exact", {f"{topic}/{number}": [-1] for topic, number in places}, began)
                    return True
                return False

            until(set_back, "the group always has members")
        yield frozenset()

    @contextmanager
    def _anew(self, _: Round) -> Iterator[Sick]:
        """A topic is deleted, is away for a while, and is made again: other records stand at the same offsets."""
        with wireproto.connect(self.broker.url) as client:
            admin: Any = client.admin()
            admin.delete_topic(AGAIN, timeout=30.0)
            try:
                yield frozenset()
            finally:
                until(self._gone, "the topic does not go")
                self._make_again(admin)

    def _gone(self) -> bool:
        with suppress(confluent_kafka.KafkaException):  # a node that is late with its answer says nothing
            return AGAIN not in self._admin.list_topics(timeout=5.0).topics
        return False

    @contextmanager
    def _unclean(self, round_: Round) -> Iterator[Sick]:
        """The leader of a log of two copies goes on alone, then dies, and the copy that was away leads: what came meanwhile is cut."""
        number = round_.node
        pair = {number, (number + 1) % 3}
        leader = self._await_copies(number, pair)
        (other,) = pair - {leader}
        self.broker.kill(self.servers[other])
        self._await_copies(number, {leader})
        time.sleep(1.0 + round_.amount)  # records that only the leader has
        self.broker.kill(self.servers[leader])
        self.broker.start(self.servers[other])
        self._await_copies(number, {other})
        yield frozenset(pair)
        self.broker.start(self.servers[leader])

    @contextmanager
    def _login(self, _: Round) -> Iterator[Sick]:
        """The guests' password is gone, and all connections are reset, so that they log in again."""
        kind = SCRAM.ScramMechanism.SCRAM_SHA_256
        self._credentials(SCRAM.UserScramCredentialDeletion(GUEST, kind))
        try:
            time.sleep(0.5)  # until every broker has heard of it
            for proxy in self.proxies:
                proxy.cut()
            yield None
        finally:
            given = SCRAM.ScramCredentialInfo(kind, 4096)
            self._credentials(SCRAM.UserScramCredentialUpsertion(GUEST, given, USERS[GUEST].encode()))

    def _credentials(self, change: Any) -> None:
        for outcome in self._admin.alter_user_scram_credentials([change]).values():
            outcome.result(30.0)

    def _await_copies(self, number: int, nodes: set[int]) -> int:
        """Until these nodes, and no others, have all of a log of two copies; which of them leads it."""
        leaders: list[int] = []

        def so() -> bool:
            part = self._described(CUT).get(number)
            if part is None:
                return False
            leaders[:] = [part.leader - 1]
            return bool(part.leader > 0 and {node - 1 for node in part.isrs} == nodes)

        until(so, f"{CUT}/{number} is not in step on {nodes} alone")
        return leaders[0]

    def truth(self, ledger: Ledger) -> Truth:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ",".join(self.broker.addresses),
                "group.id": "the-truth",
                "enable.auto.commit": False,
                "check.crcs": True,
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": False,
            }
        )
        found: dict[str, list[tuple[Place, str]]] = {log: [] for logs in self.logs().values() for log in logs}
        try:
            left = {}
            for topic, count in self._partitions.items():
                for number in range(count):
                    _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), timeout=20.0)
                    if end:
                        left[topic, number] = end
            consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for topic, number in left])
            deadline = time.monotonic() + READ
            while left:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the judge's own reading does not end: {left}")
                for message in consumer.consume(5000, 1.0):
                    assert message.error() is None, message.error()
                    row: Any = message
                    key, offset = (row.topic(), row.partition()), row.offset()
                    found[f"{key[0]}/{key[1]}"].append(((offset,), row.value().decode().rstrip()))
                    if offset + 1 >= left.get(key, 0):
                        left.pop(key, None)
        finally:
            consumer.close()
        return {log: sorted(rows) for log, rows in found.items()}


def _producer(name: str, topic: str, promise: Promise, facts: dict[str, Any], **options: Any) -> tuple[Role, dict[str, Any]]:
    told = options.get("acks") != "0"  # else receipts name no log
    role = Role(name, "producer", topic, promise=promise, fixed="spread" in facts, steady=told)
    chosen = {"delivery_timeout": PATIENCE} | options
    return role, {"name": name, "kind": "producer", "topic": topic, "options": chosen, "patience": PATIENCE} | facts


def _senders() -> list[tuple[Role, dict[str, Any]]]:
    exact = Promise(patience=EARLY)
    lost = Promise(kept=False, once=False, ordered=False)
    return [
        _producer("keyed", MAIN, exact, {"keys": 50, "rate": 200}),
        _producer("keyless", MAIN, exact, {"rate": 100}, batch_size=1000),
        _producer("packed", MAIN, exact, {"keys": 50, "rate": 100}, compression="zstd", linger=0.02),
        _producer(
            "plain", WEAK, Promise(once=False, ordered=False, kept=False, patience=EARLY), {"keys": 20}, idempotence=False, max_in_flight=1
        ),
        _producer("one", WEAK, Promise(kept=False, once=False, ordered=False), {"keys": 20}, acks="1"),
        _producer("zero", WEAK, Promise(kept=False, once=False, ordered=False, heard=False), {"keys": 20, "unplaced": True}, acks="0"),
        fleeting(_producer("again", AGAIN, lost, {"keys": 20, "rate": 60})),
        fleeting(_producer("cut", CUT, lost, {"keys": 20, "rate": 60}, acks="1", idempotence=False, max_in_flight=1)),
        _producer("grower", GROWING, exact, {"keys": 50, "rate": 100}),
    ]


def _lonely() -> list[tuple[Role, dict[str, Any]]]:
    """A client of its own: a broker reads nothing more from a connection while a Produce of it waits for a sick follower."""
    return [_producer("lonely", SINGLE, Promise(patience=EARLY), {"spread": 3, "rate": 60})]


def _guest_senders() -> list[tuple[Role, dict[str, Any]]]:
    return [logs_in(_producer("guest", GUARDED, Promise(patience=EARLY), {"keys": 20, "rate": 60}), REFUSED)]


def _guest_readers() -> list[tuple[Role, dict[str, Any]]]:
    reader = Role("guest-reader", "reader", GUARDED), {"name": "guest-reader", "kind": "reader", "topic": GUARDED}
    return [logs_in(reader, REFUSED), logs_in(_member("guest-1", "guests", GUARDED), REFUSED)]


def _member(name: str, group: str, topic: str, *, comes: bool = False, **more: Any) -> tuple[Role, dict[str, Any]]:
    role = Role(name, "member", topic, group=group, steady=not comes)
    options = {"session_timeout": 6.0, "heartbeat_interval": 1.0} | more
    facts = {"name": name, "kind": "member", "topic": topic, "group": group, "options": options}
    return role, facts | {"blind": group == "blind", "hears": True, "comes_and_goes": comes}


def _readers() -> list[tuple[Role, dict[str, Any]]]:
    def reader(name: str, topic: str, steady: bool = True, **facts: Any) -> tuple[Role, dict[str, Any]]:
        return Role(name, "reader", topic, steady=steady), {"name": name, "kind": "reader", "topic": topic} | facts

    return [
        reader("follower", MAIN),
        reader("bounded", MAIN, steady=False, stop=True, from_end=True, options={"partition_bytes": 128 << 10}),
        reader("by-node", SINGLE),
        fleeting(reader("again-reader", AGAIN, told=(*LOST, *GONE))),
        fleeting(reader("cut-reader", CUT, told=LOST)),
        fleeting(_member("again-1", "again", AGAIN, reset="nearest")),
        fleeting(_member("cut-1", "cut", CUT, reset="nearest")),
        _member("exact-1", "exact", MAIN),
        _member("blind-1", "blind", MAIN),
        _member("growing-1", "growing", GROWING),
    ]
