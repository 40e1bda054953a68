"""Control messages beside kafka-python, kio, kazoo and the json module, on the same bytes.

Kafka: MetadataResponse v12 of 1,000 topics of 10 partitions on 12 brokers, and of 3 x 3; a JoinGroup reply of 20 members; heads of a Fetch
reply of 50 partitions, whose records stay bytes for all. Encoding is of an object that exists. ZooKeeper: a request is made and encoded, as
for each call. RocketMQ: the JSON header that a client and a broker send; the json module gives and gets a dict of the same members.
All contenders' bytes are asserted to be equal.
"""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka.protocol.consumer import FetchResponse as TheirFetch
from kafka.protocol.consumer import JoinGroupResponse as TheirJoinGroup
from kafka.protocol.metadata import MetadataResponse as TheirMetadata
from kazoo.protocol.serialization import Create, GetData
from kazoo.security import OPEN_ACL_UNSAFE
from kio.schema.metadata.v12.response import MetadataResponse as KioMetadata
from kio.serial import entity_reader, entity_writer

from wireproto._codec import RemotingCommand
from wireproto.kafka import messages as kafka
from wireproto.zookeeper import messages as zk
from wireproto.zookeeper.messages import CreateRequest, GetDataRequest

from .harness import Bench, Stretch

OTHERS = 300_000
KEPT = 10


def metadata(topics: int, partitions: int) -> kafka.MetadataResponse:
    """A cluster of 12 brokers; every partition has three replicas, all in sync."""
    brokers = [kafka.MetadataResponseBroker(node_id=i, host=f"broker-{i}.example", port=9092, rack=f"r{i % 3}") for i in range(12)]
    return kafka.MetadataResponse(
        brokers=brokers,
        cluster_id="cluster",
        controller_id=1,
        topics=[
            kafka.MetadataResponseTopic(
                name=f"topic-{t:05}",
                topic_id=t.to_bytes(16, "big"),
                partitions=[
                    kafka.MetadataResponsePartition(
                        partition_index=p,
                        leader_id=(t + p) % 12,
                        leader_epoch=5,
                        replica_nodes=[(t + p + i) % 12 for i in range(3)],
                        isr_nodes=[(t + p + i) % 12 for i in range(3)],
                    )
                    for p in range(partitions)
                ],
            )
            for t in range(topics)
        ],
    )


def join_group(members: int) -> kafka.JoinGroupResponse:
    return kafka.JoinGroupResponse(
        generation_id=7,
        protocol_name="range",
        leader="member-00",
        member_id="member-03",
        members=[
            kafka.JoinGroupResponseMember(member_id=f"member-{i:02}-7f3c1e52-8f6b-4c3e", group_instance_id=None, metadata=b"m" * 60)
            for i in range(members)
        ],
    )


def fetch(partitions: int) -> kafka.FetchResponse:
    return kafka.FetchResponse(
        session_id=77,
        responses=[
            kafka.FetchableTopicResponse(
                topic="flights",
                partitions=[
                    kafka.FetchPartitionData(
                        partition_index=p, high_watermark=1 << 40, last_stable_offset=1 << 40, log_start_offset=5, records=b"r" * 200
                    )
                    for p in range(partitions)
                ],
            )
        ],
    )


def tasks(bench: Bench) -> None:
    kafka_rows(bench)
    collector(bench)
    zookeeper_rows(bench)
    rocketmq_rows(bench)


def times(count: int, run: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(count):
            run()

    return repeat


def compare(bench: Bench, task: str, size: int, ours: Callable[[], object], **theirs: Callable[[], object]) -> None:
    """`size`: roughly the bytes of the message, to choose how many times it is done in a round."""
    count = max(2 if bench.quick else 6, (400_000 if bench.quick else 1_200_000) // size)
    jobs = {"wireproto": times(count, ours), **{name.replace("_", "-"): times(count, job) for name, job in theirs.items()}}
    bench.compare(task, count, jobs, unit="message", rounds=9)


# ---- Kafka ------------------------------------------------------------------------------------------------------------------------


def kafka_rows(bench: Bench) -> None:
    read, write = entity_reader(KioMetadata), entity_writer(KioMetadata)

    def kio_write(message: Any) -> bytes:
        out = io.BytesIO()
        write(out, message)
        return out.getvalue()

    for topics, partitions in ((1000, 10), (3, 3)):
        data = metadata(topics, partitions).encode(12)
        mine, theirs, kios = kafka.MetadataResponse.decode(data, 12), TheirMetadata.decode(data, 12), read(data, 0)[0]
        theirs._header = None
        assert mine.encode(12) == theirs.encode(12) == kio_write(kios) == data
        label = f"MetadataResponse v12, {topics:,} topics x {partitions} ({len(data):,} B)"
        compare(
            bench, f"{label}: decode", len(data),
            partial(kafka.MetadataResponse.decode, data, 12),
            kafka_python=partial(TheirMetadata.decode, data, 12), kio=partial(read, data, 0),
        )  # fmt: skip
        compare(
            bench, f"{label}: encode", len(data),
            partial(mine.encode, 12), kafka_python=partial(theirs.encode, 12), kio=partial(kio_write, kios),
        )  # fmt: skip
    for cls, other, version, made in (
        (kafka.JoinGroupResponse, TheirJoinGroup, 5, join_group(20)),
        (kafka.FetchResponse, TheirFetch, 12, fetch(50)),
    ):
        data = made.encode(version)
        theirs = other.decode(data, version)
        theirs._header = None
        assert theirs.encode(version) == data
        what = f"{cls.NAME} v{version} ({len(data):,} B)"
        compare(bench, f"{what}: decode", len(data) * 4,
                partial(cls.decode, data, version), kafka_python=partial(other.decode, data, version))  # fmt: skip
        compare(bench, f"{what}: encode", len(data) * 4,
                partial(cls.decode(data, version).encode, version), kafka_python=partial(theirs.encode, version))  # fmt: skip


def collector(bench: Bench) -> None:
    """The big decode with results kept, the collector on and many other objects alive, beside the same with it off."""
    data = metadata(1000, 10).encode(12)
    others = [[i] for i in range(OTHERS)]

    def decode(*, collect: bool) -> Stretch:
        gc.collect()
        (gc.enable if collect else gc.disable)()
        with Stretch() as stretch:
            kept = [kafka.MetadataResponse.decode(data, 12) for _ in range(KEPT)]
        del kept
        return stretch

    jobs = {"wireproto, collector on": partial(decode, collect=True), "collector off": partial(decode, collect=False)}
    task = f"MetadataResponse v12, 1,000 topics x 10: decode, {KEPT} results kept, {OTHERS:,} other objects alive"
    bench.compare(task, KEPT, jobs, unit="message", rounds=9, ours="wireproto, collector on", ahead=("collector off",))
    del others


# ---- ZooKeeper --------------------------------------------------------------------------------------------------------------------


def zookeeper_rows(bench: Bench) -> None:
    stat = zk.Stat(czxid=1 << 40, mzxid=1 << 41, ctime=1 << 40, mtime=1 << 40, version=3, data_length=100)
    reply = zk.GetDataResponse(data=b"x" * 100, stat=stat).encode()
    data, node = GetData.deserialize(reply, 0)
    assert (data, node.mzxid) == (b"x" * 100, 1 << 41)
    compare(bench, "ZooKeeper GetData reply: decode", 300,
            partial(zk.GetDataResponse.decode, reply), kazoo=partial(GetData.deserialize, reply, 0))  # fmt: skip
    path, value = "/flights/airlines/UA", b"x" * 100
    acl = (zk.ACL(perms=31, id=zk.Id(scheme="world", id="anyone")),)

    def our_create(count: int = 1) -> object:
        for _ in range(count):
            made = CreateRequest(path=path, data=value, acl=acl, flags=0).encode()
        return made

    def their_create(count: int = 1) -> object:
        for _ in range(count):
            made = Create(path, value, OPEN_ACL_UNSAFE, 0).serialize()
        return made

    def our_get(count: int = 1) -> object:
        for _ in range(count):
            made = GetDataRequest(path=path, watch=False).encode()
        return made

    def their_get(count: int = 1) -> object:
        for _ in range(count):
            made = GetData(path, None).serialize()
        return made

    assert our_create() == their_create()
    assert our_get() == their_get()
    count = 4_000
    for task, ours, theirs in (
        ("ZooKeeper Create request: make and encode", our_create, their_create),
        ("ZooKeeper GetData request: make and encode", our_get, their_get),
    ):
        jobs = {"wireproto": partial(ours, count), "kazoo": partial(theirs, count)}
        bench.compare(task, count, jobs, unit="message", rounds=9)


# ---- RocketMQ ---------------------------------------------------------------------------------------------------------------------

_SEND = {
    "a": "producers", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\u0001AC11000100002A9F00000000000003E8\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002", "j": "0", "k": "false", "l": "16",
    "m": "false",
}  # fmt: skip
_PULL = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1532", "minOffset": "0", "maxOffset": "1532", "topicSysFlag": "0"}


def rocketmq_rows(bench: Bench) -> None:
    compact = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for each message
    for name, code, flag, ext in (("send request", 310, 0, _SEND), ("pull reply", 0, 1, _PULL)):
        fields = {"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": 1234}
        fields |= {"serializeTypeCurrentRPC": "JSON", "version": 409}
        text = compact(fields).encode()
        command = RemotingCommand(code, 1234, flag=flag, ext=ext, language=0)
        frame = command.encode()[0]
        assert json.loads(frame[4:]) == fields == json.loads(text)
        assert RemotingCommand.decode(frame).ext == ext
        what = f"RocketMQ JSON header of a {name} ({len(ext)} fields, {len(frame) - 4} B)"

        def dump(fields: dict[str, Any] = fields) -> bytes:
            return compact(fields).encode()

        compare(bench, f"{what}: encode", 400, command.encode, json=dump)
        compare(bench, f"{what}: decode", 400, partial(RemotingCommand.decode, frame), json=partial(json.loads, text))
        binary = RemotingCommand(code, 1234, flag=flag, ext=ext, language=0, serializer=1)
        packed = binary.encode()[0]
        what = what.replace("JSON", "binary")
        compare(bench, f"{what}: encode", 400, binary.encode, json=dump)
        compare(bench, f"{what}: decode", 400, partial(RemotingCommand.decode, packed), json=partial(json.loads, text))
