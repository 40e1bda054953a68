"""The Kafka producer's way in, on the embedded broker: threads, receipts, limits, failures, forks, and ends."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
from patience import KEPT, soon
from wireproto import LATEST
from wireproto._codec import Columns, kafka_batches, kafka_partition
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import BufferFull, Closed, Disconnected, Forked, OptionError, TimedOut, UsageError, ValueUnsupported
from wireproto.kafka.codes import InvalidRecord, NotEnoughReplicas, UnknownTopicOrPartition
from wireproto.kafka.messages import ProduceResponse
from wireproto.kafka.metadata import Node
from wireproto.kafka.wire import Sent

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def faults(broker: DevBroker) -> Iterator[Faults]:
    given = broker.faults("kafka")
    given.clear()
    yield given
    given.clear()


@pytest.fixture
def client(broker: DevBroker, faults: Faults) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), timeout=10.0) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    name = f"sending-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    return name


def everything(client: Any, topic: str) -> dict[tuple[int, int], tuple[bytes | None, bytes | None]]:
    """Key and value by partition and offset."""
    found = {}
    for batch in client.reader(topic, stop=LATEST):
        for record in batch:
            found[record.partition, record.position.offset] = record.key, record.value
    return found


def test_threads_send_at_once_and_each_receipt_names_its_own_record(client: Any, topic: str) -> None:
    each, names = 3000, [b"thread-%d" % number for number in range(6)]
    receipts: dict[bytes, list[Any]] = {}

    def work(producer: Any, name: bytes) -> None:
        mine = receipts[name] = []
        for number in range(each):
            headers = {"n": b"%d" % number} if number % 7 == 0 else None
            key = name if number % 3 else None
            mine.append(producer.send(b"%s %d" % (name, number), key=key, headers=headers))

    with client.producer(topic, batch_size=1500, linger=0.001) as producer:
        threads = [threading.Thread(target=work, args=(producer, name)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(30.0)
    found = everything(client, topic)
    assert len(found) == each * len(names), "nothing lost, nothing twice"
    for name in names:
        kept = []
        for number, receipt in enumerate(receipts[name]):
            assert receipt.done
            place = receipt.position(0.0)
            key, value = found[place.partition, place.offset]
            assert value == b"%s %d" % (name, number)
            assert key == (name if number % 3 else None)
            if number % 3:
                assert place.partition == kafka_partition(name, 4)
                kept.append(place.offset)
        assert kept == sorted(kept), "a thread's records of one key keep their order"
    assert client.cluster.budget.used == 0


def test_single_records_and_columns_share_a_batch_from_two_threads(client: Any, topic: str) -> None:
    """Rows of columns are encoded without the interpreter's lock: single records wait for that meanwhile."""
    rows = [b"row %d" % number for number in range(4000)]
    columns = Columns.from_rows(rows)
    with client.producer(topic, batch_size=1 << 18, linger=0.001) as producer:

        def work() -> None:
            for _ in range(10):
                producer.send_batch(columns, partition=1)

        thread = threading.Thread(target=work)
        thread.start()
        singles = [producer.send(b"single %d" % number, partition=1) for number in range(4000)]
        thread.join()
        producer.flush(30.0)
    found = everything(client, topic)
    assert len(found) == 44_000
    for number, receipt in enumerate(singles):
        assert found[1, receipt.position(0.0).offset][1] == b"single %d" % number
    in_order = [value for place, (_, value) in sorted(found.items()) if value is not None and value.startswith(b"row")]
    assert in_order == rows * 10


def test_columns_go_where_single_records_of_the_same_keys_go(client: Any, topic: str) -> None:
    keys = [None if number % 5 == 0 else b"key %d" % (number % 61) for number in range(5000)]
    headers = [[("h", b"%d" % (number % 3))] if number % 2 else None for number in range(5000)]
    columns = Columns.from_rows([b"%d" % number for number in range(5000)], keys, headers)
    with client.producer(topic, batch_size=4000) as producer:
        producer.send_batch(columns[100:])
        producer.flush(30.0)
    order: dict[bytes, list[int]] = {}
    count = 0
    for batch in client.reader(topic, stop=LATEST):
        for record in batch:
            number = int(record.value)
            count += 1
            assert record.key == keys[number]
            assert record.headers == ((("h", b"%d" % (number % 3)),) if number % 2 else ())
            if record.key is not None:
                assert record.partition == kafka_partition(record.key, 4)
                order.setdefault(record.key, []).append(number)
    assert count == 4900
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_rows_name_their_partition_or_the_partitioner_does(client: Any, topic: str) -> None:
    values = [b"%d" % number for number in range(40)]
    with client.producer(topic) as producer:
        producer.send_batch(Columns.from_rows(values, partitions=[number % 4 for number in range(40)]))
        for wrong in (4, -1):
            with pytest.raises(OptionError, match="no partition"):
                producer.send_batch(Columns.from_rows([b"x"], partitions=[wrong]))
            with pytest.raises(OptionError, match="no partition"):
                producer.send(b"x", partition=wrong)
    with client.producer(topic, partitioner=lambda key, count: len(key or b"") % count) as producer:
        producer.send_batch(Columns.from_rows(values, [b"k" * (number % 4) for number in range(40)]))
        assert producer.send(b"one", key=b"kkk").position(10.0).partition == 3
    found = everything(client, topic)
    assert len(found) == 81
    assert all(int(value or b"") % 4 == partition for (partition, _), (_, value) in found.items() if value != b"one")


def test_records_without_a_key_fill_one_partition_after_the_other(client: Any, topic: str) -> None:
    with client.producer(topic, batch_size=2000, linger=0.05) as producer:
        receipts = [producer.send(b"x" * 64) for _ in range(2000)]
        producer.flush(30.0)
    places = [receipt.position(0.0).partition for receipt in receipts]
    runs = [len(list(run)) for _, run in itertools.groupby(places)]
    assert set(places) == {0, 1, 2, 3}
    assert min(runs[:-1]) >= 15
    assert max(runs) <= 25, "about a batch each"


def test_receipts_of_a_failed_batch_raise_each_a_fresh_error(client: Any, topic: str, faults: Faults) -> None:
    faults.error("Produce", InvalidRecord.code)
    with client.producer(topic, linger=30.0) as producer:  # `position` ends it
        receipts = [producer.send(b"%d" % number, partition=0) for number in range(3)]
        errors = []
        for receipt in receipts:
            with pytest.raises(InvalidRecord) as caught:
                receipt.position(10.0)
            errors.append(caught.value)
            assert receipt.done
        assert len({id(error) for error in errors}) == 3
        assert errors[0].topic == topic
        assert producer.send(b"next", partition=0).position(10.0).offset == 0
        producer.flush(10.0)
    assert client.cluster.budget.used == 0


def test_a_lost_reply_is_asked_for_again_and_nothing_is_there_twice(client: Any, topic: str, faults: Faults) -> None:
    faults.lose_reply("Produce")
    with client.producer(topic, request_timeout=1.0, linger=0.01) as producer:
        receipts = [producer.send(b"%d" % number, partition=2) for number in range(50)]
        assert [receipt.position(20.0).offset for receipt in receipts] == list(range(50))
    assert len(everything(client, topic)) == 50


def test_a_full_buffer_refuses_in_time_and_is_free_afterwards(broker: DevBroker, faults: Faults, topic: str) -> None:
    with wireproto.connect(broker.url("kafka"), buffer_memory=70_000) as client:
        producer = client.producer(topic, linger=5.0, batch_size=20_000)
        producer.send(b"first").position(10.0)
        stalled = faults.stall("Produce", times=100)
        began = time.monotonic()
        taken = 0

        def fill() -> None:
            nonlocal taken
            while taken < 100:
                producer.send(b"y" * 1000, timeout=0.3)
                taken += 1

        with pytest.raises(BufferFull):
            fill()
        assert 0.3 <= time.monotonic() - began < KEPT
        assert 60 <= taken <= 70
        assert client.cluster.budget.used <= 70_000
        with pytest.raises(BufferFull):
            producer.send_batch(Columns.from_rows([b"z" * 1000] * 90), timeout=0.2)
        assert stalled is not None
        with pytest.raises(TimedOut):
            producer.close(0.2)
        assert client.cluster.budget.used == 0, "what was given up takes no room"


@pytest.mark.parametrize("linger", [0.0, 0.01])
def test_a_send_batch_that_ends_in_the_middle_says_what_it_has_taken(broker: DevBroker, faults: Faults, topic: str, linger: float) -> None:
    """So that who sends the others has each row once."""
    rows = [b"%03d" % number + bytes(997) for number in range(300)]
    table = Columns.from_rows(rows, partitions=[0] * 40 + [1] * 260)
    with (
        wireproto.connect(broker.url("kafka"), buffer_memory=100_000) as client,
        client.producer(topic, batch_size=8000, linger=linger) as producer,
    ):
        faults.stall("Produce", times=-1)
        with pytest.raises(BufferFull, match=r"not taken; of the 300 rows") as full:
            producer.send_batch(table, timeout=0.3)
        taken = full.value.taken
        assert taken is not None
        assert taken[0] == 40
        assert 0 < taken[1] < 100
        assert f"{taken[1]} of partition 1" in str(full.value)
        with pytest.raises(BufferFull) as none:
            producer.send_batch(table, timeout=0.0)
        assert none.value.taken is None
        faults.clear()
        broker.kick("kafka")
        producer.send_batch(Columns.from_rows(rows[40 + taken[1] :]), partition=1, timeout=10.0)
        producer.flush(10.0)
        found = everything(client, topic)
    assert [value for (number, _), (_, value) in sorted(found.items()) if number == 0] == rows[:40]
    assert [value for (number, _), (_, value) in sorted(found.items()) if number == 1] == rows[40:]


def test_what_cannot_be_sent_is_refused_and_takes_no_room(client: Any, topic: str) -> None:
    with client.producer(topic, max_request_size=5000, linger=0.01) as producer:
        producer.send(b"opens the batch", partition=0)
        held = client.cluster.budget.used
        for wrong in ("text", 5, [b"list"]):
            with pytest.raises(TypeError):
                producer.send(wrong, partition=0)
            with pytest.raises(TypeError):
                producer.send(b"v", key=wrong, partition=0)
        with pytest.raises(TypeError):
            producer.send(b"v", headers={"name": "text"}, partition=0)
        with pytest.raises((TypeError, AttributeError)):
            producer.send(b"v", headers=[(b"name", b"value")], partition=0)
        with pytest.raises(ValueUnsupported, match="larger"):
            producer.send(b"x" * 5000, partition=0)
        with pytest.raises(ValueUnsupported, match="1970"):
            producer.send(b"v", timestamp=-1, partition=0)
        with pytest.raises(ValueUnsupported, match="larger"):
            producer.send_batch(Columns.from_rows([b"x" * 6000]), partition=1)
        assert client.cluster.budget.used == held
        view = bytearray(b"any buffer")
        producer.send(memoryview(view), key=view, partition=0)
        view.append(1)  # would raise if the buffer were still lent
    assert sorted(value or b"" for _, value in everything(client, topic).values()) == [b"any buffer", b"opens the batch"]


@pytest.mark.parametrize("way", ["short", "slow", "columns"])
def test_a_header_name_that_has_no_utf8_is_refused_by_name_and_nothing_else_is_lost(client: Any, topic: str, way: str) -> None:
    """Each way that headers are encoded by."""
    options = {"partitioner": lambda key, count: 0} if way == "slow" else {}
    wrong = {"good": b"1", "half \ud83d": b"2"}
    with client.producer(topic, linger=0.01, **options) as producer:
        first = producer.send(b"before", partition=0)
        held = client.cluster.budget.used

        def send() -> None:
            if way == "columns":
                producer.send_batch(Columns.from_rows([b"a", b"b"], headers=[None, wrong]), partition=0)
            else:
                producer.send(b"v", headers=wrong, partition=0)

        with pytest.raises(ValueUnsupported, match=r"header name 'half .ud83d' holds a lone surrogate"):
            send()
        assert client.cluster.budget.used <= held
        assert producer.send(b"after", partition=0).position(30.0).offset == first.position(30.0).offset + 1
    assert [value for _, value in everything(client, topic).values()] == [b"before", b"after"]


def test_producers_of_a_client_share_one_id_and_a_request_carries_many_topics(broker: DevBroker, client: Any, topic: str) -> None:
    seen = broker.record("kafka")
    names = [topic, f"{topic}-b", f"{topic}-c"]
    for name in names[1:]:
        client.admin().create_topic(name, partitions=2)
    producers = [client.producer(name, linger=30.0) for name in names]
    for name, producer in zip(names, producers, strict=True):
        for part in (0, 1):
            producer.send(b"for " + name.encode(), partition=part)
        producer.flush(10.0)  # the first flush finds the leader
        producer.send(b"more", partition=1)
    producers[0]._sender.hurry_all()
    for producer in producers:
        producer.flush(10.0)
    sent = seen.requests("Produce")
    assert max(len(request.message.topic_data) for request in sent) == 3
    ids = {
        (facts["producer_id"], facts["producer_epoch"])
        for request in sent
        for part in request.message.topic_data
        for data in part.partition_data
        for facts in kafka_batches(data.records)
    }
    assert len(ids) == 1
    assert len(seen.requests("InitProducerId")) == 1
    for name in names:
        assert sorted(value or b"" for _, value in everything(client, name).values()) == [b"for " + name.encode()] * 2 + [b"more"]
    again = client.producer(topic, linger=30.0)
    assert again.send(b"x", partition=0).position(10.0).offset == 1
    assert len(seen.requests("InitProducerId")) == 2, "a second producer of a topic is another one to the broker"


def test_a_producer_without_a_topic_sends_each_record_to_its_own(client: Any, topic: str) -> None:
    other = f"{topic}-other"
    client.admin().create_topic(other, partitions=1)
    with client.producer() as producer:
        receipts = {name: [producer.send(b"%d" % number, topic=name, key=b"k") for number in range(50)] for name in (topic, other)}
        producer.send_batch(Columns.from_rows([b"row"] * 3), topic=other)
        producer.flush(10.0)
        with pytest.raises(UnknownTopicOrPartition):
            producer.send(b"x", topic=f"{topic}-none")
    for name, kept in receipts.items():
        assert [receipt.position(0.0).offset for receipt in kept] == list(range(50))
        assert {receipt.position(0.0).topic for receipt in kept} == {name}
    assert (len(everything(client, topic)), len(everything(client, other))) == (50, 53)
    with pytest.raises(Closed):
        producer.send(b"late", topic=topic)
    with pytest.raises(Closed):
        producer.send(b"late", topic=f"{topic}-never-named")


def test_a_record_in_flight_fails_when_its_time_is_over_and_the_next_one_lands_once(client: Any, topic: str, faults: Faults) -> None:
    """Its request has half a minute more, and is answered late: what was in doubt is there, and what follows is behind it."""
    with client.producer(topic, delivery_timeout=2.0) as producer:
        producer.send(b"before", partition=0).position(10.0)
        faults.delay("Produce", 10.0)
        began = time.monotonic()
        with pytest.raises(TimedOut, match="it may still be in the log"):
            producer.send(b"in doubt", partition=0).position(30.0)
        assert 2.0 <= time.monotonic() - began < 2.0 + KEPT
        assert client.cluster.budget.used == producer._appender.credit, "it holds no room any more"
        time_over = time.monotonic() + 30.0
        while True:
            try:
                place = producer.send(b"after", partition=0).position(10.0)
                break
            except TimedOut:
                assert time.monotonic() < time_over
        producer.flush(30.0)
    found = [value for place, (_, value) in sorted(everything(client, topic).items())]
    assert found.count(b"in doubt") == 1
    assert found[:2] == [b"before", b"in doubt"]
    assert found[place.offset] == b"after"


def test_records_take_room_a_step_ahead_and_not_one_by_one(broker: DevBroker, topic: str) -> None:
    with (
        wireproto.connect(broker.url("kafka"), buffer_memory=256 << 10) as client,
        client.producer(topic, linger=30.0, batch_size=1 << 20) as producer,
    ):
        steps: list[int] = []
        take = producer._account.try_take
        producer._account.try_take = lambda size: bool(steps.append(size) or take(size))
        for _ in range(1000):
            producer.send(b"x" * 100, partition=0)
        assert steps == [4096] * 34, "136 bytes each"
        producer.send(b"x" * 9000, partition=0)
        assert steps[34:] == [9036], "one that is larger than a step takes its own"
        batch = producer._sender.queue((topic, 0)).open
        assert (batch.count, batch.size) == (1001, 136_000 + 9036)
        assert client.cluster.budget.used == batch.size + producer._appender.credit
        producer.relieve()
        assert producer._appender.credit == 0
        producer.flush(10.0)
        assert client.cluster.budget.used == 0


def test_a_leader_that_cannot_be_reached_is_looked_up_again(broker: DevBroker, client: Any, topic: str) -> None:
    """Metadata names a node that is gone; the cluster has elected another since."""
    with client.producer(topic, linger=0.01) as producer:
        producer.send(b"before", partition=0).position(10.0)
        known = client.cluster.metadata.topics[topic].partitions[0]
        with socket.socket() as nobody:  # bound, not listening
            nobody.bind(("127.0.0.1", 0))
            gone = Node(99, "127.0.0.1", nobody.getsockname()[1])
            assert client.cluster.hint(topic, 0, gone.id, known.epoch + 1, [gone])
            for _ in range(2):
                broker.call("kafka", "elect", topic, 0, 1)
            assert producer.send(b"after", partition=0).position(20.0).offset == 1
        assert client.cluster.metadata.leader(topic, 0).id == known.node


def test_acks_0_tells_no_position(client: Any, topic: str) -> None:
    with client.producer(topic, acks="0") as producer:
        receipt = producer.send(b"x", partition=0)
        with pytest.raises(UsageError, match="acks=0"):
            receipt.position(10.0)


def test_a_closed_producer_and_a_closed_client_take_nothing(broker: DevBroker, faults: Faults, topic: str) -> None:
    client = wireproto.connect(broker.url("kafka"))
    first, second = client.producer(topic, linger=1.0), client.producer(topic, linger=1.0)
    kept = [producer.send(b"open batch", partition=0) for producer in (first, second)]
    first.close(10.0)
    with pytest.raises(Closed):
        first.send(b"late", partition=0)
    client.close(10.0)
    for producer in (first, second):
        with pytest.raises(Closed):
            producer.send(b"late", partition=0)
        with pytest.raises(Closed):
            producer.send_batch(Columns.from_rows([b"late"]))
    assert all(receipt.position(0.0).partition == 0 for receipt in kept), "closing flushed"


def test_a_forked_child_may_not_send_into_the_open_batch(client: Any, topic: str) -> None:
    with client.producer(topic, linger=0.5) as producer:
        receipt = producer.send(b"parent", partition=0)
        pid = os.fork()
        if not pid:
            try:
                producer.send(b"child", partition=0)
            except Forked:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert receipt.position(10.0).offset == 0
    assert len(everything(client, topic)) == 1


@pytest.mark.parametrize("linger", [0.001, 30.0])
def test_an_interpreter_ends_with_unsent_records(broker: DevBroker, topic: str, linger: float) -> None:
    program = (
        "import sys, wireproto\n"
        f"client = wireproto.connect({broker.url('kafka')!r})\n"
        f"producer = client.producer({topic!r}, linger={linger})\n"
        "receipts = [producer.send(b'x' * 100) for _ in range(5000)]\n"
        "print('sent')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "sent\n"), ended.stderr
    told = [line for line in ended.stderr.splitlines() if not line.startswith(" ")]  # warnings show their line of code below
    assert len(told) <= 1, "some may have been answered by then, or all"
    assert all(f"records for {topic!r} had no answer" in line for line in told), ended.stderr


def test_unacknowledged_records_beyond_what_a_connection_holds_all_leave(broker: DevBroker, faults: Faults, topic: str) -> None:
    """Nothing answers them, so nothing but the connection itself tells that there is room again; and a flush is over when all have left."""
    rows = Columns.from_rows([b"x" * 10_000] * 1000)
    with wireproto.connect(broker.url("kafka"), timeout=10.0) as client, client.producer(topic, acks="0", batch_size=1 << 20) as producer:
        faults.delay("Produce", 0.5)
        for partition in range(4):
            producer.send_batch(rows, partition=partition)
        producer.flush(30.0)
    with wireproto.connect(broker.url("kafka"), timeout=10.0) as client:
        deadline = time.monotonic() + 30.0
        while sum(place.offset for place in client.admin().positions(topic, LATEST).values()) < 4000:
            assert time.monotonic() < deadline, "some never came"


def test_a_place_that_is_not_known_in_time_tells_what_was_met(client: Any, faults: Faults, topic: str) -> None:
    with client.producer(topic) as producer:
        faults.error("Produce", NotEnoughReplicas.code, times=1_000_000)
        late = producer.send(b"")
        until = soon()
        while "NOT_ENOUGH_REPLICAS" not in str(told_of(late)):
            assert time.monotonic() < until
        faults.clear()
        producer.flush(30.0)
        faults.delay("Produce", 2.0)  # the trouble was over when this one was sent
        assert "last trouble" not in str(told_of(producer.send(b"")))


def told_of(receipt: Any) -> TimedOut:
    with pytest.raises(TimedOut, match="no outcome in time") as told:
        receipt.position(0.2)
    return told.value


def test_what_becomes_of_an_older_sending_says_nothing_of_the_newer_one(broker: DevBroker, client: Any, faults: Faults, topic: str) -> None:
    """A signal broke into a transmit: the batch has gone out again, by another connection, before the first one's call fails."""
    seen = broker.record("kafka")
    with client.producer(topic, linger=0.0) as producer:
        producer.send(b"first", partition=0).position()
        faults.delay("Produce", 2.5)
        receipt = producer.send(b"second", partition=0)
        seen.wait("Produce", 2, timeout=20.0)
        (batch,) = producer._sending.core.queue((topic, 0)).in_flight
        older = SimpleNamespace(
            context=Sent(ProduceResponse, 0, ([batch], {}, None, [batch.attempts - 1])),
            error=Disconnected("the connection that it went by first"),
        )
        producer._sending._replied(older)
        assert [*producer._sending.core.queue((topic, 0)).in_flight] == [batch]
        assert receipt.position().offset == 1
    assert len(seen.requests("Produce")) == 2
