"""Control messages: decode and encode beside kafka-python's and kazoo's, on the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafka.protocol.metadata import MetadataResponse as TheirMetadata
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from wireproto.kafka import messages as kafka
from wireproto.zookeeper import messages as zk

from ..harness import Bench


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


def times(count: int, run: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(count):
            run()

    return repeat


def compare(bench: Bench, title: str, peer: str, size: int, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    """`size`: bytes of the message, to choose how many times it is done in a round."""
    count = max(1, (100_000 if bench.quick else 400_000) // size)
    jobs = {"wireproto": times(count, ours), peer: times(count, theirs)}
    bench.compare(title, count, jobs, unit="message", rounds=3 if bench.quick else 7)


def suite(bench: Bench) -> None:
    for version, topics, partitions in ((1, 3, 3), (12, 3, 3), (1, 1000, 10), (12, 1000, 10)):
        data = metadata(topics, partitions).encode(version)
        ours = kafka.MetadataResponse.decode(data, version)
        theirs = TheirMetadata.decode(data, version)
        theirs._header = None
        assert theirs.encode(version) == data
        label = f"Metadata v{version} {topics}x{partitions} ({len(data):,} B)"
        mine, peers = kafka.MetadataResponse.decode, TheirMetadata.decode
        size = len(data)
        compare(bench, f"{label} decode", "kafka-python", size, partial(mine, data, version), partial(peers, data, version))
        compare(bench, f"{label} encode", "kafka-python", size, partial(ours.encode, version), partial(theirs.encode, version))
    zookeeper(bench)


def zookeeper(bench: Bench) -> None:
    stat = zk.Stat(czxid=1 << 40, mzxid=1 << 41, ctime=1 << 40, mtime=1 << 40, version=3, data_length=100)
    reply = zk.GetDataResponse(data=b"x" * 100, stat=stat).encode()
    compare(
        bench,
        "ZooKeeper GetData reply decode",
        "kazoo",
        300,
        lambda: zk.GetDataResponse.decode(reply),
        lambda: kazoo.GetData.deserialize(reply, 0),
    )
    compare(
        bench,
        "ZooKeeper GetData request make and encode",
        "kazoo",
        300,
        lambda: zk.GetDataRequest(path="/flights/airlines/UA", watch=False).encode(),
        lambda: kazoo.GetData("/flights/airlines/UA", None).serialize(),
    )
    acl = [zk.ACL(perms=31, id=zk.Id(scheme="world", id="anyone"))]
    compare(
        bench,
        "ZooKeeper Create request make and encode",
        "kazoo",
        300,
        lambda: zk.CreateRequest(path="/flights/airlines/UA", data=b"x" * 100, acl=acl, flags=0).encode(),
        lambda: kazoo.Create("/flights/airlines/UA", b"x" * 100, OPEN_ACL_UNSAFE, 0).serialize(),
    )
