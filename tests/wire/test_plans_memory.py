"""Decoding and encoding, of good bytes and of broken ones, give back all the memory they took."""

import contextlib
import gc
import random
import sys
import tracemalloc

from wireproto._codec import RemotingCommand
from wireproto.errors import ProtocolError
from wireproto.kafka import messages as kafka

PART = kafka.MetadataResponsePartition(replica_nodes=[1, 2, 3], isr_nodes=[2, 3], leader_epoch=70_000)
TOPIC = kafka.MetadataResponseTopic(name="topic ü", topic_id=bytes(range(16)), partitions=[PART, PART])
BROKER = kafka.MetadataResponseBroker(node_id=1 << 20, host="host", port=9092)
DATA = kafka.MetadataResponse(brokers=[BROKER], topics=[TOPIC, TOPIC], cluster_id="c").encode(12)
TAGGED = kafka.ApiVersionsRequest(client_software_name="a").encode(3)[:-1] + b"\x02\x05\x01x\x09\x02yz"
COMMAND = b"".join(RemotingCommand(10, 7, remark="r", ext={"topic": "t", "n": "\n"}, body=b"b").encode())


def work(rounds, rng):
    for _ in range(rounds):
        kafka.MetadataResponse.decode(DATA, 12).encode_parts(12)
        kafka.ApiVersionsRequest.decode(TAGGED, 3).replace(client_software_name="b").encode(3)
        RemotingCommand.decode(COMMAND).encode()
        for cls, version, data in ((kafka.MetadataResponse, 12, DATA), (kafka.ApiVersionsRequest, 3, TAGGED)):
            mutant = bytearray(data)
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
            for frame in (mutant, data[: rng.randrange(len(data))]):
                with contextlib.suppress(ProtocolError):
                    cls.decode(frame, version)
        with contextlib.suppress(ProtocolError):
            RemotingCommand.decode(COMMAND[: rng.randrange(len(COMMAND))])
        with contextlib.suppress(ValueError):
            kafka.MetadataRequest(topics=[kafka.MetadataRequestTopic(name="x"), 3]).encode(12)


def test_no_growth():
    rng = random.Random(9)
    work(300, rng)
    gc.collect()
    blocks = sys.getallocatedblocks()
    tracemalloc.start()
    try:
        work(100, rng)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work(1500, rng)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 4096
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200


def test_reference_counts_of_shared_values_are_stable():
    kafka.MetadataResponse.decode(DATA, 12)
    watched = [None, True, (), kafka.MetadataResponseTopic]
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(1000):
        kafka.MetadataResponse.decode(DATA, 12)
    after = [sys.getrefcount(value) for value in watched]
    assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True)), (before, after)


def test_a_slice_keeps_its_frame_and_nothing_else():
    records = bytes(5000)
    part = kafka.PartitionProduceData(index=0, records=records)
    data = kafka.ProduceRequest(topic_data=[kafka.TopicProduceData(name="t", partition_data=[part])]).encode(9)
    before = sys.getrefcount(data)
    view = kafka.ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records
    assert sys.getrefcount(data) == before + 1
    assert bytes(view) == records
    del view
    assert sys.getrefcount(data) == before
