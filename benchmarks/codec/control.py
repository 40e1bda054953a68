"""Control messages: decode and encode against kafka-python and kazoo, in one process, alternating, thread CPU time.

Run: ``python benchmarks/codec/control.py``. Prints nanoseconds a message (median of rounds, collector off) and the peers' ratio.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

from kafka.protocol.metadata import MetadataResponse as TheirMetadata
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from wireproto.kafka import messages as kafka
from wireproto.zookeeper import messages as zk

ROUNDS = 5


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


def nanoseconds(run: Callable[[], object], seconds: float = 0.05) -> float:
    """CPU time of one call, from as many as fit into `seconds`."""
    count = 1
    while True:
        start = time.thread_time()
        for _ in range(count):
            run()
        spent = time.thread_time() - start
        if spent > seconds:
            return spent / count * 1e9
        count = max(count * 2, int(count * seconds / max(spent, 1e-6)))


def compare(title: str, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    pairs = [(nanoseconds(ours), nanoseconds(theirs)) for _ in range(ROUNDS)]
    mine, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{title:44} {mine:14,.0f} {peer:14,.0f} {peer / mine:8.1f}x")


def main() -> None:
    gc.disable()
    print(f"{'':44} {'wireproto ns':>14} {'peer ns':>14} {'ratio':>9}")
    for version, topics, partitions in ((1, 3, 3), (12, 3, 3), (1, 1000, 10), (12, 1000, 10)):
        data = metadata(topics, partitions).encode(version)
        ours = kafka.MetadataResponse.decode(data, version)
        theirs = TheirMetadata.decode(data, version)
        theirs._header = None
        assert theirs.encode(version) == data
        label = f"Metadata v{version} {topics}x{partitions} ({len(data):,} B)"
        decode, their_decode = kafka.MetadataResponse.decode, TheirMetadata.decode
        compare(f"{label} decode", lambda f=decode, d=data, v=version: f(d, v), lambda f=their_decode, d=data, v=version: f(d, v))
        compare(f"{label} encode", lambda m=ours, v=version: m.encode(v), lambda m=theirs, v=version: m.encode(v))
    zookeeper()


def zookeeper() -> None:
    stat = zk.Stat(czxid=1 << 40, mzxid=1 << 41, ctime=1 << 40, mtime=1 << 40, version=3, data_length=100)
    reply = zk.GetDataResponse(data=b"x" * 100, stat=stat).encode()
    compare("ZooKeeper GetData reply decode", lambda: zk.GetDataResponse.decode(reply), lambda: kazoo.GetData.deserialize(reply, 0))
    compare(
        "ZooKeeper GetData request make and encode",
        lambda: zk.GetDataRequest(path="/flights/airlines/UA", watch=False).encode(),
        lambda: kazoo.GetData("/flights/airlines/UA", None).serialize(),
    )
    acl = [zk.ACL(perms=31, id=zk.Id(scheme="world", id="anyone"))]
    compare(
        "ZooKeeper Create request make and encode",
        lambda: zk.CreateRequest(path="/flights/airlines/UA", data=b"x" * 100, acl=acl, flags=0).encode(),
        lambda: kazoo.Create("/flights/airlines/UA", b"x" * 100, OPEN_ACL_UNSAFE, 0).serialize(),
    )


if __name__ == "__main__":
    main()
