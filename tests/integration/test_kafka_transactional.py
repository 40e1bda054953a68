"""Our transactions on real brokers: what librdkafka's read_committed consumer sees of them, and what each call says.

Both protocols: level 2 (KIP-890), and level 1, where partitions and groups are added to a transaction before they take part.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from brokers import Broker
from interrupting import Signal
from kafka_committed import seen, settled
from patience import soon, until
from wireproto import LATEST
from wireproto.errors import Aborted, Closed, Fenced, OptionError, TimedOut, UsageError
from wireproto.kafka import codes

SECONDS = 30.0
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize(
    "broker", ["kafka-4.4.0-transactions", "kafka-4.3.1-transactions", "kafka-4.3.1-level-1", "kafka-3.9.2-transactions"], indirect=True
)


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"work-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Any, name: str) -> str:
    made = f"t-{name}"
    client.admin().create_topic(made, partitions=2)
    return made


def test_every_transaction_is_seen_as_a_whole(broker: Broker, client: Any, name: str, topic: str) -> None:
    """One after the other into the same partitions: what each sends is there when it commits, and not before."""
    with client.transactions(name) as work:
        expected: list[bytes] = []
        for number in range(5):
            with work.begin() as turn:
                receipts = [turn.send(b"%d-%d" % (number, n), topic=topic, partition=0) for n in range(3)]
                work.topics.flush()
                assert not any(receipt.done for receipt in receipts)
                settled(broker, topic, expected)
            expected += [b"%d-%d" % (number, n) for n in range(3)]
            places = [receipt.position(SECONDS).offset for receipt in receipts]
            assert places == list(range(places[0], places[0] + 3))
            assert all(receipt.done for receipt in receipts)
            settled(broker, topic, expected)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_and_records_go_into_one_transaction(broker: Broker, client: Any, name: str, topic: str, codec: str) -> None:
    rows = pa.table({"value": pa.array([b"row-%d" % n for n in range(500)], pa.binary())})
    with client.transactions(name, compression=codec) as work:
        for _ in range(2):
            with work.begin() as turn:
                turn.send_batch(rows, topic=topic, partition=1)
                turn.send(b"alone", topic=topic, partition=1)
    settled(broker, topic, ([b"row-%d" % n for n in range(500)] + [b"alone"]) * 2)


def test_an_exception_rolls_all_of_it_back(broker: Broker, client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work:
        for number in range(3):
            receipts: list[Any] = []
            with pytest.raises(ZeroDivisionError) as told:
                fail(work, topic, receipts)
            assert not hasattr(told.value, "__notes__")
            for receipt in receipts:
                with pytest.raises(Aborted):
                    receipt.position(SECONDS)
            with work.begin() as turn:
                turn.send(b"kept-%d" % number, topic=topic, partition=0)
    settled(broker, topic, [b"kept-0", b"kept-1", b"kept-2"])


def fail(work: Any, topic: str, receipts: list[Any]) -> None:
    with work.begin() as turn:
        receipts.append(turn.send(b"lost", topic=topic, partition=0))
        work.topics.flush()
        receipts.append(turn.send(b"lost, too", topic=topic, partition=1))
        raise ZeroDivisionError


def test_one_that_is_rolled_back_at_once_leaves_nothing_to_the_next_one(broker: Broker, client: Any, name: str, topic: str) -> None:
    """The coordinator is busy ending the one before: partitions wait to be part of a transaction that is over by then."""
    expected = []
    with client.transactions(name, linger=0.0, delivery_timeout=10.0) as work:
        for number in range(10):
            with work.begin() as turn:
                turn.send(b"before-%d" % number, topic=topic, partition=0)
            turn = work.begin()
            turn.send(b"lost", topic=topic, partition=0)
            turn.abort()
            with work.begin() as turn:
                turn.send(b"behind-%d" % number, topic=topic, partition=0)
            expected += [b"before-%d" % number, b"behind-%d" % number]
    settled(broker, topic, expected)


def test_nothing_is_sent_outside_of_a_transaction(broker: Broker, client: Any, name: str, topic: str) -> None:
    work = client.transactions(name)
    with work.begin() as turn:
        producer = turn.producer(topic)
        producer.send(b"first", partition=0)
    rows = pa.table({"value": pa.array([b"no"], pa.binary())})
    for send in (lambda: producer.send(b"no", partition=0), lambda: turn.send(b"no", topic=topic), lambda: producer.send_batch(rows)):
        with pytest.raises(UsageError):
            send()
    turn.commit()  # a second time is no other one
    with pytest.raises(UsageError):
        turn.abort()
    with work.begin() as turn:
        with pytest.raises(UsageError, match="open"):
            work.begin()
        producer.send(b"second", partition=0)
    with work.begin() as turn:
        turn.send(b"left open", topic=topic)
        work.close()
    assert turn.state.value == "rolled back"
    with pytest.raises(Closed):
        work.begin()
    settled(broker, topic, [b"first", b"second"])


def test_an_empty_transaction_asks_nobody(client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work:
        for _ in range(3):
            with work.begin():
                pass
            work.begin().abort()


def test_positions_move_with_what_was_made_of_them(broker: Broker, client: Any, name: str, topic: str) -> None:
    """Consume, process, produce: one transaction in three is rolled back, and worked on again."""
    source = f"in-{name}"
    client.admin().create_topic(source, partitions=2)
    with client.producer(source) as producer:
        for number in range(60):
            producer.send(b"%02d" % number, partition=number % 2)
    left, rounds = 60, 0
    with (
        client.consumer(source, name, partition_bytes=1) as log,
        client.transactions(name) as work,
    ):
        while left:
            batch = log.poll(5.0)
            if batch is None:
                continue
            rounds += 1
            try:
                with work.begin() as turn:
                    for value in batch.values():
                        turn.send(b"out-" + value, topic=topic, partition=batch.partition)
                    turn.commit_positions(log, batch.next_positions)
                    if rounds % 3 == 1:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                log.rewind()
            else:
                left -= len(batch)
        assert {place.offset for place in log.committed().values()} == {30}
        assert log.poll(0.5) is None
    with client.consumer(source, name) as log:
        assert log.poll(2.0) is None
    settled(broker, topic, [b"out-%02d" % number for number in range(60)], ordered=False)


def test_a_member_whose_place_another_took_commits_nothing(broker: Broker, client: Any, name: str, topic: str) -> None:
    """A static member's name goes to who joins with it last: the one before has no say in the group any more (KIP-345, KIP-447)."""
    source = f"in-{name}"
    client.admin().create_topic(source)
    with client.producer(source) as producer:
        producer.send(b"once")
    with client.transactions(name) as work, client.consumer(source, name, group_instance_id="one") as log:
        batch = first(log)
        with work.begin() as turn:
            turn.send(b"begun", topic=topic, partition=0)
            turn.abort()
        with client.consumer(source, name, group_instance_id="one") as other:
            first(other)
            turn = work.begin()
            turn.send(b"made of it", topic=topic, partition=0)
            with pytest.raises(Aborted) as told:
                turn.commit_positions(log, batch.next_positions)
            assert isinstance(told.value.__cause__, codes.FencedInstanceId | codes.UnknownMemberId)
            with pytest.raises(Aborted):
                turn.send(b"more", topic=topic)
            with pytest.raises(Aborted):
                turn.commit()
            assert turn.state.value == "rolled back"
            with work.begin() as turn:
                turn.send(b"made by the other", topic=topic, partition=0)
                turn.commit_positions(other)
            assert other.committed()[source, 0].offset == 1
    settled(broker, topic, [b"made by the other"])


def first(log: Any) -> Any:
    """What the first poll that has anything hands out."""
    deadline = soon()
    while (batch := log.poll(1.0)) is None:
        assert deadline > soon(0.0)
    return batch


def test_a_consumer_that_commits_by_itself_is_refused(client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work, client.consumer(topic, name, auto_commit=True) as log:
        turn = work.begin()
        with pytest.raises(UsageError, match="auto_commit"):
            turn.commit_positions(log)
        turn.commit()  # nothing stands in its way


def test_who_takes_the_name_fences_the_one_before(broker: Broker, client: Any, name: str, topic: str) -> None:
    zombie = client.transactions(name)
    turn = zombie.begin()
    turn.send(b"of the zombie", topic=topic, partition=0)
    zombie.topics.flush()
    with wireproto.connect(broker.url) as other, other.transactions(name) as work:
        with work.begin() as mine:
            mine.send(b"of the next", topic=topic, partition=0)
        with pytest.raises(Fenced):
            turn.commit()
        with pytest.raises(Fenced):
            zombie.begin()
        with work.begin() as mine:
            mine.send(b"and on", topic=topic, partition=0)
    zombie.close()
    settled(broker, topic, [b"of the next", b"and on"])


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_one_before_takes_nothing_from_who_has_the_name_now(broker: Broker, client: Any, name: str, topic: str, end: str) -> None:
    """It ends its transaction while the other one's is open. Brokers end that for whoever asks for the name's next epoch, before they look
    whether he has the newest; so who is refused asks for none."""
    zombie = client.transactions(name)
    turn = zombie.begin()
    turn.send(b"of the zombie", topic=topic, partition=0)
    zombie.topics.flush()
    with wireproto.connect(broker.url) as other, other.transactions(name) as work:
        for value in (b"of the next", b"and on"):
            with work.begin() as mine:
                mine.send(value, topic=topic, partition=0)
                work.topics.flush()
                if not turn.ended:
                    with pytest.raises(Fenced):
                        getattr(turn, end)()
        zombie.close()
    settled(broker, topic, [b"of the next", b"and on"])


def test_a_zombie_s_late_records_are_refused(broker: Broker, client: Any, name: str, topic: str) -> None:
    zombie = client.transactions(name)
    with zombie.begin() as turn:
        turn.send(b"in time", topic=topic, partition=0)
    turn = zombie.begin()
    with wireproto.connect(broker.url) as other, other.transactions(name) as work:
        late = turn.send(b"late", topic=topic, partition=0)
        with pytest.raises((Aborted, Fenced)):
            turn.commit()
        with pytest.raises((Aborted, Fenced, codes.InvalidProducerEpoch, codes.ProducerFenced)):
            late.position(SECONDS)
        with work.begin() as mine:
            mine.send(b"of the next", topic=topic, partition=0)
    settled(broker, topic, [b"in time", b"of the next"])


WRITER = """
import sys, time, wireproto
url, name, topic = sys.argv[1:]
client = wireproto.connect(url)
work = client.transactions(name)
turn = work.begin()
begun = time.monotonic()  # the machine's: it is the same in all of its programs
turn.send(b"of the dead", topic=topic, partition=0)
work.topics.flush()
print("there", begun, flush=True)
time.sleep(600)
"""


def test_what_a_killed_program_left_open_is_rolled_back_by_the_next_life(broker: Broker, client: Any, name: str, topic: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITER, broker.url, name, topic], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline().startswith(b"there ")
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with client.transactions(name) as work, work.begin() as turn:
        turn.send(b"of the living", topic=topic, partition=0)
    settled(broker, topic, [b"of the living"])


def stable(client: Any, topic: str) -> dict[int, int]:
    """How many offsets of each partition readers of committed records cannot reach."""
    last, reached = (client.admin().positions(topic, LATEST, committed=committed) for committed in (False, True))
    return {number: last[topic, number].offset - reached[topic, number].offset for number in range(2)}


def test_readers_are_let_past_a_commit_within_a_second(client: Any, name: str, topic: str) -> None:
    took: list[float] = []
    with client.transactions(name) as work:
        for _ in range(5):
            turn = work.begin()
            for partition in (0, 1):
                turn.send(b"v", topic=topic, partition=partition)
            work.topics.flush()
            assert stable(client, topic) == {0: 1, 1: 1}
            turn.commit()
            begun = soon(0.0)
            until(lambda: stable(client, topic) == {0: 0, 1: 0})
            took.append(soon(0.0) - begun)
    assert min(took) < 1.0, took


def test_readers_are_let_past_what_a_killed_program_left_when_its_time_is_over(broker: Broker, client: Any, name: str, topic: str) -> None:
    """Nobody takes its name again. Its time is 2 s, and the brokers of these tests look each half second; did they not know it, it would be
    a minute."""
    child = subprocess.Popen([sys.executable, "-c", WRITER, f"{broker.url}?transaction_timeout=2", name, topic], stdout=subprocess.PIPE)
    assert child.stdout is not None
    there, begun = child.stdout.readline().split()
    assert there == b"there"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    until(lambda: sum(stable(client, topic).values()) == 0, limit=20.0)
    assert soon(0.0) - float(begun) > 2.0, "it had its time"
    assert seen(broker, topic) == []


def test_a_transaction_that_took_too_long_is_told_and_the_next_one_works(broker: Broker, client: Any, name: str, topic: str) -> None:
    with client.transactions(name, transaction_timeout=1.0) as work:
        turn = work.begin()
        turn.send(b"slow", topic=topic, partition=0)
        work.topics.flush()
        # the coordinator has rolled it back when readers are let past it
        end = next(iter(client.admin().positions(topic, LATEST, partitions=[0]).values()))
        with client.reader(topic, start={(topic, 0): wireproto.LogOffset(topic, 0, 0)}, stop={(topic, 0): end}) as reader:
            until(lambda: reader.done or reader.poll(0.1) is not None or reader.done)
        with pytest.raises(Aborted, match="transaction_timeout"):
            turn.commit()
        with work.begin() as turn:
            turn.send(b"quick", topic=topic, partition=0)
    settled(broker, topic, [b"quick"])


def test_a_record_too_large_in_the_middle_has_all_of_it_rolled_back(broker: Broker, client: Any, name: str) -> None:
    topic = f"t-{name}"
    client.admin().create_topic(topic, partitions=2, config={"max.message.bytes": "2000"})
    with client.transactions(name, linger=0.0) as work:
        turn = work.begin()
        turn.send(b"before", topic=topic, partition=0)
        big = turn.send(b"x" * 5000, topic=topic, partition=1)
        with pytest.raises(Aborted) as told:
            turn.commit()
        assert isinstance(told.value.__cause__, codes.MessageTooLarge)
        with pytest.raises((Aborted, codes.MessageTooLarge)):
            big.position(SECONDS)
        with work.begin() as turn:
            turn.send(b"fits", topic=topic, partition=1)
    settled(broker, topic, [b"fits"])


def test_a_topic_that_is_deleted_in_between_has_it_rolled_back(broker: Broker, client: Any, name: str, topic: str) -> None:
    other = f"u-{name}"
    client.admin().create_topic(other)
    with client.transactions(name, delivery_timeout=6.0) as work:  # what is late is not stored in it at all
        turn = work.begin()
        turn.send(b"kept?", topic=topic, partition=0)
        turn.send(b"gone", topic=other, partition=0)
        work.topics.flush()
        client.admin().delete_topic(other)
        turn.send(b"gone, too", topic=other, partition=0)
        with pytest.raises(Aborted):
            turn.commit()
        with work.begin() as turn:
            turn.send(b"next", topic=topic, partition=0)
    settled(broker, topic, [b"next"])


def test_threads_may_send_in_one_transaction(broker: Broker, client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work, work.begin() as turn:
        threads = [
            threading.Thread(target=lambda n=n: [turn.send(b"%d-%03d" % (n, i), topic=topic, partition=n % 2) for i in range(200)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    settled(broker, topic, [b"%d-%03d" % (n, i) for n in range(4) for i in range(200)], ordered=False)


def test_a_receipt_that_is_asked_too_early_says_so(client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work, work.begin() as turn:
        receipt = turn.send(b"x", topic=topic)
        begin = soon(0.0)
        with pytest.raises(TimedOut, match="committed"):
            receipt.position(0.2)
        assert soon(0.0) - begin < 10.0  # and not the two minutes in which records have to be stored


@pytest.mark.parametrize(
    "options", [{"acks": "1"}, {"idempotence": False}, {"message_format": 1}, {"transaction_timeout": 0.0}, {"session_timeout": 10.0}]
)
def test_options_that_cannot_be_are_refused(client: Any, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        client.transactions(name, **options)


def test_a_time_above_the_cluster_s_is_refused(client: Any, name: str) -> None:
    with pytest.raises(codes.InvalidTransactionTimeout):
        client.transactions(name, transaction_timeout=3600.0)


def test_a_signal_anywhere_in_the_end_of_a_block_ends_its_transaction_and_the_next_one_works(
    broker: Broker, client: Any, name: str, topic: str
) -> None:
    """It is rolled back, unless its coordinator may have been asked to commit it; then how it ended is known when the next one begins."""
    expected: list[bytes] = []
    with client.transactions(name) as work:
        for number in itertools.count(1):
            turn = work.begin()
            turn.send(b"%d" % number, topic=topic, partition=0)
            signal = Signal(number)
            signal.within(lambda turn=turn: turn.__exit__(None, None, None))  # type: ignore[misc]
            if not turn.ended and "in __exit__" in signal.where:
                turn.abort()  # nothing was begun
            with work.begin() as following:
                following.send(b"behind %d" % number, topic=topic, partition=0)
            assert turn.ended, f"after a signal at {signal.where}"
            if turn.state.value == "committed":
                expected.append(b"%d" % number)
            expected.append(b"behind %d" % number)
            if not signal.came:
                break
    assert number > 50
    settled(broker, topic, expected)
