"""Ours and RocketMQ's own Java client on real brokers of both lines: what one writes the other reads, byte for byte."""

from __future__ import annotations

import base64
import itertools
import os
import threading
import time
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ, java, judge
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import SendMessageV2Request
from wireproto.rocketmq.record import RESERVED

_numbers = itertools.count()


def seats(*, headers: bool) -> Any:
    """Both lines, the servers' own header type and the other one; `headers`: a client's on each of them. Not all of it each time."""
    few = {("rocketmq-4.9.7", "json"), ("rocketmq-5.5.0-binary", "binary"), ("rocketmq-4.9.7-binary", "json")}
    if not headers:
        few = {("rocketmq-4.9.7",), ("rocketmq-5.5.0-binary",)}
    brokers = ("rocketmq-4.9.7", "rocketmq-4.9.7-binary", "rocketmq-5.5.0", "rocketmq-5.5.0-binary")
    rows = [(broker, header) for broker in brokers for header in ("json", "binary")] if headers else [(broker,) for broker in brokers]
    names = ["broker", "header"] if headers else ["broker"]
    params = [pytest.param(*row, marks=() if row in few else pytest.mark.soak) for row in rows]
    return pytest.mark.parametrize(names, params, indirect=["broker"])


both_headers = seats(headers=True)
both_lines = seats(headers=False)


def java_does(broker: RocketMQ, mode: str, topic: str, **more: Any) -> list[dict[str, Any]]:
    """Have the Java client of the broker's own version send or read."""
    return judge.ask(broker.version, mode, broker.name_server, topic, **more)


def connect(broker: RocketMQ, header: str = "json", **options: Any) -> RocketClient:
    client = wireproto.connect(broker.url, header=header, **options)
    assert isinstance(client, RocketClient)
    return client


@pytest.fixture
def topic(broker: RocketMQ) -> str:
    name = f"Interop-{os.getpid()}-{next(_numbers)}"
    with connect(broker) as client:
        client.admin().create_topic(name, partitions=4)
    return name


def user_properties(found: dict[str, Any]) -> dict[str, str]:
    """Properties of a message that Java read, without the brokers' and clients' own."""
    return {name: value for name, value in found["properties"].items() if name not in RESERVED}


def own_time(found: dict[str, Any]) -> int:
    """When a message was made, in ms, as RocketMQ's proxy wants it read: its BORN_TIMESTAMP, else its command's time."""
    return int(found["properties"].get("BORN_TIMESTAMP", found["born"]))


def read_all(client: RocketClient, topic: str) -> list[Any]:
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        return [record for batch in reader for record in batch]


def compare(ours: list[Any], javas: list[dict[str, Any]]) -> None:
    """The same messages at the same places, field by field."""
    by_place = {(found["queue"], found["offset"]): found for found in javas}
    assert len(by_place) == len(javas) == len(ours)
    for record in ours:
        found = by_place[record.partition, record.position.offset]
        assert base64.b64decode(found["body"]) == record.value
        assert found.get("keys") == (None if record.key is None else record.key.decode())
        assert own_time(found) == record.timestamp
        assert user_properties(found) == {name: value.decode() for name, value in record.headers}


@both_headers
def test_what_we_write_java_reads(broker: RocketMQ, topic: str, header: str) -> None:
    sent: dict[tuple[int, int], tuple[bytes, bytes | None, dict[str, bytes], int]] = {}
    with connect(broker, header) as client:
        for compression in ("none", "zlib", "lz4", "zstd"):
            with client.producer(topic, compression=compression, compress_above=64) as producer:
                for number in range(24):
                    value = [b"", b"x", bytes(range(256)), b"many words " * 3000][number % 4] + compression.encode() * (number % 4)
                    key = None if number % 3 == 0 else f"{compression}-ключ-{number}".encode()
                    headers = {"TAGS": f"tag{number % 5}".encode(), "who": "日本".encode()} if number % 2 else {}
                    stamp = 1_357_000_000_000 + number // 6
                    receipt = producer.send(value, key=key, headers=headers, timestamp=stamp)
                    place = receipt.position(30)
                    sent[place.partition, place.offset] = value, key, headers, stamp
        ours = read_all(client, topic)
    found = java_does(broker, "pull", topic)
    assert len(found) == len(sent) == 96
    for item in found:
        value, key, headers, stamp = sent[item["queue"], item["offset"]]
        assert base64.b64decode(item["body"]) == value
        assert item.get("keys") == (None if key is None else key.decode())
        assert item.get("tag") == (headers["TAGS"].decode() if headers else None)
        assert item["born"] == stamp
        assert user_properties(item) == {name: data.decode() for name, data in headers.items()}
    compare(ours, found)


@both_headers
def test_batches_that_we_write_java_reads(broker: RocketMQ, topic: str, header: str) -> None:
    with connect(broker, header) as client:
        with client.producer(topic, linger=30.0) as producer:  # far longer than a thread may be delayed
            receipts = [producer.send(b"v%d" % n, key=b"k%d" % n, headers={"n": b"%d" % n}, timestamp=5_000 + n) for n in range(400)]
            producer.flush()
            places = [receipt.position() for receipt in receipts]
        commands = len({receipt.sequence for receipt in receipts})
        ours = read_all(client, topic)
    assert 4 <= commands < 40, "four queues, and what waited when one was answered; ten records each at least"
    found = {(item["queue"], item["offset"]): item for item in java_does(broker, "pull", topic)}
    assert len(found) == 400
    for number, place in enumerate(places):
        item = found[place.partition, place.offset]
        assert (base64.b64decode(item["body"]), item["keys"], own_time(item)) == (b"v%d" % number, f"k{number}", 5_000 + number)
        assert user_properties(item) == {"n": str(number)}
    firsts = [item for item in found.values() if "BORN_TIMESTAMP" not in item["properties"]]
    assert len(firsts) == commands, "the first record of a command is of its time, the others tell theirs"
    assert {item["born"] for item in found.values()} == {item["born"] for item in firsts}
    compare(ours, list(found.values()))


@both_lines
def test_a_time_that_another_client_tells_is_read(broker: RocketMQ, topic: str) -> None:
    """As RocketMQ's own proxy tells it. What is no number leaves the born time."""
    with connect(broker) as client:
        fields: dict[str, Any] = {"default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 0, "sys_flag": 0, "flag": 0}
        for number, text in enumerate(("7", "-7", "soon", "9" * 30)):
            properties = f"UNIQ_KEY\x01own{number}\x02BORN_TIMESTAMP\x01{text}\x02"
            message = SendMessageV2Request(producer_group="g", topic=topic, born_timestamp=1_000 + number, properties=properties, **fields)
            client.request(message, body=b"%d" % number, to=(topic, 0))
        ours = read_all(client, topic)
    assert [record.timestamp for record in ours] == [7, -7, 1_002, 1_003]
    assert not any(record.headers for record in ours)


@both_lines
def test_java_hash_picks_the_same_queue(broker: RocketMQ, topic: str) -> None:
    with connect(broker) as client, client.producer(topic) as producer:
        for key, code in ((b"TagA", 2598919), ("标签".encode(), 857175), (b"polygenelubricants", 0)):
            assert producer.send(b"x", key=key).position(30).partition == code % 4


@both_headers
def test_what_java_writes_we_read(broker: RocketMQ, topic: str, header: str) -> None:
    lines = [
        {
            "body": base64.b64encode(bytes([number]) * (number * 700 + 1)).decode(),
            **({"keys": f"key-{number}", "tag": "标签"} if number % 2 else {}),
            "properties": {"a": str(number), "länge": "ü" * number} if number else {},
            "queue": number % 4,
        }
        for number in range(12)
    ]
    for codec in ("ZLIB", "LZ4", "ZSTD"):
        assert len(java_does(broker, "send", topic, input=lines, properties={"rocketmq.message.compressType": codec})) == 12
    small = [{"body": base64.b64encode(b"b%d" % number).decode(), "keys": f"b{number}", "properties": {"p": "q"}} for number in range(50)]
    java_does(broker, "batch", topic, input=small)
    with connect(broker, header) as client:
        ours = read_all(client, topic)
    assert len(ours) == 36 + 50
    expected = [base64.b64decode(line["body"]) for line in lines] * 3 + [base64.b64decode(line["body"]) for line in small]
    assert sorted(record.value for record in ours) == sorted(expected)
    found = java_does(broker, "pull", topic)
    compare(ours, found)
    assert {item["sysFlag"] >> 8 & 7 for item in found if len(base64.b64decode(item["body"])) > 4096} == {1, 2, 3}, "LZ4, ZSTD, ZLIB"


@both_lines
def test_a_java_push_consumer_and_our_consumer_share_a_group(broker: RocketMQ, topic: str) -> None:
    group = f"shared-{topic}"
    javas: list[bytes] = []
    with (
        connect(broker) as client,
        java.Program(f"rocketmq-{broker.version}", "RocketJudge", "push", broker.name_server, topic, group, "100000") as program,
        client.producer(topic) as producer,
        client.consumer(topic, group) as consumer,
    ):
        listener = threading.Thread(target=lambda: javas.extend(base64.b64decode(line["body"]) for line in program.lines()), daemon=True)
        listener.start()
        deadline = time.monotonic() + 200  # 5.x's Java client may look at its queues 40 s after it was called
        while len(consumer.assignment) != 2:
            assert time.monotonic() < deadline, f"no rebalance: we hold {sorted(consumer.assignment)}"
            consumer.poll(0.5)
        ours: list[bytes] = []
        number = 0
        while not (len(javas) >= 20 and len(ours) >= 20):
            assert time.monotonic() < deadline, f"ours {len(ours)}, Java's {len(javas)} of {number}"
            for _ in range(4):
                producer.send(b"%d" % number)
                number += 1
            producer.flush()
            batch = consumer.poll(0.1)
            if batch is not None:
                ours += [value for value in batch.values() if value is not None]
                consumer.commit()
        everything = {b"%d" % n for n in range(number)}
        while set(ours) | set(javas) != everything:
            assert time.monotonic() < deadline, f"missing {sorted(everything - set(ours) - set(javas))[:5]}"
            batch = consumer.poll(0.5)
            ours += [value for value in batch.values() if value is not None] if batch is not None else []
        held = sorted(consumer.assignment)
        assert len(held) == 2
        program.child.kill()
        while len(consumer.assignment) != 4:
            assert time.monotonic() < deadline, "Java's queues did not come to us"
            consumer.poll(0.5)
    listener.join(10)


@both_lines
def test_released_messages_come_back_and_end_as_dead_letters(broker: RocketMQ, topic: str) -> None:
    group = f"jobs-{topic}"
    with connect(broker) as client:
        with client.producer(topic) as producer:
            for number in range(8):
                producer.send(b"%d" % number, key=b"k%d" % number, headers={"h": b"v"})
        attempts: dict[bytes, list[int]] = {}
        with client.queue(topic, group, max_attempts=2, retry_level=1) as queue:
            deadline = time.monotonic() + 90
            while sum(map(len, attempts.values())) < 8 + 1 + 2:
                assert time.monotonic() < deadline, attempts
                message = queue.receive(1.0)
                if message is None:
                    continue
                attempts.setdefault(message.value, []).append(message.attempt)
                assert message.key == b"k" + message.value
                assert dict(message.headers) == {"h": b"v"}
                if (message.value == b"3" and message.attempt < 2) or message.value == b"5":
                    message.release()
                else:
                    message.ack()
        assert attempts.pop(b"3") == [1, 2]
        assert attempts.pop(b"5") == [1, 2, 3]
        assert all(count == [1] for count in attempts.values())
        dead = f"%DLQ%{group}"
        while True:
            assert time.monotonic() < deadline, "no dead letter"
            try:
                with client.reader(dead, stop=LATEST) as reader:
                    values = [record.value for batch in reader for record in batch]
            except wireproto.WireprotoError:
                values = []
            if values:
                break
            client.cluster.pause(0.5)
        assert values == [b"5"]
        ends = client.admin().positions(topic)
        assert client.admin().group_positions(group, topic) == ends, "everything is done"
