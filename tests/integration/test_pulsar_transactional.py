"""Our transactions on a real broker: what the official client's readers see of them, what goes over the wire and when, and what each call
says."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, new_topic, pulsar, theirs
from interrupting import Signal
from patience import LATE, LONG, soon, until
from wireproto.errors import Aborted, Closed, OptionError, TimedOut, UsageError
from wireproto.pulsar import codes

SECONDS = 30.0
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


@pytest.fixture
def judge(broker: Pulsar) -> Iterator[Any]:
    with theirs(broker) as official:
        yield official


def settled(judge: Any, topic: str, expected: list[bytes], partitions: int = 0) -> None:
    """That this is what the official client's reader gets in front of a plain record that is sent now: nothing else was there, and nothing
    keeps readers from going on."""
    end, found = b"end-%d" % next(_numbers), []
    for name in [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]:
        producer = judge.create_producer(PREFIX + name)
        producer.send(end)
        producer.close()
        reader = judge.create_reader(PREFIX + name, pulsar.MessageId.earliest)
        while (value := reader.read_next(int(LONG * 1000)).data()) != end:
            found += [] if value.startswith(b"end-") else [value]
        reader.close()
    assert (sorted(found) if partitions else found) == expected


def seen(client: Any, topic: str) -> list[bytes]:
    """What there is to be read now."""
    found: list[bytes] = []
    with client.reader(topic, stop=wireproto.LATEST) as reader:
        while not reader.done:
            found += [record.value for record in reader.poll(SECONDS) or ()]
    return found


def test_every_transaction_is_seen_as_a_whole(client: Any, judge: Any, topic: str) -> None:
    """One after the other into the same topic: what each sends is there when it commits, and not before."""
    expected: list[bytes] = []
    with client.transactions("work") as work:
        for number in range(5):
            with work.begin() as turn:
                receipts = [turn.send(b"%d-%d" % (number, n), topic=topic) for n in range(3)]
                work.topics.flush()
                assert not any(receipt.done for receipt in receipts)
                assert seen(client, topic) == expected
            expected += [b"%d-%d" % (number, n) for n in range(3)]
            places = [receipt.position(SECONDS) for receipt in receipts]
            assert places == sorted(places)
            assert all(receipt.done for receipt in receipts)
    settled(judge, topic, expected)


@pytest.mark.parametrize("options", [{"compression": "lz4"}, {"compression": "zstd"}, {"batching": False}, {"batching": "key"}])
def test_rows_and_records_go_into_one_transaction(broker: Pulsar, client: Any, judge: Any, options: dict[str, Any]) -> None:
    topic, other = new_topic(broker, 2), new_topic(broker)
    rows = pa.table({"value": pa.array([b"row-%03d" % n for n in range(500)], pa.binary())})
    with client.transactions("work", **options) as work:
        for _ in range(2):
            with work.begin() as turn:
                turn.send_batch(rows, topic=topic)
                turn.send(b"alone", topic=topic, key=b"k", headers={"h": b"1"})
                turn.producer(other).send(b"elsewhere")
    settled(judge, topic, sorted(([b"row-%03d" % n for n in range(500)] + [b"alone"]) * 2), 2)
    settled(judge, other, [b"elsewhere"] * 2)


def fail(work: Any, topic: str, receipts: list[Any]) -> None:
    with work.begin() as turn:
        receipts.append(turn.send(b"lost", topic=topic))
        work.topics.flush()
        receipts.append(turn.send(b"lost, too", topic=topic))
        raise ZeroDivisionError


def test_an_exception_rolls_all_of_it_back(client: Any, judge: Any, topic: str) -> None:
    with client.transactions("work") as work:
        for number in range(3):
            receipts: list[Any] = []
            with pytest.raises(ZeroDivisionError) as told:
                fail(work, topic, receipts)
            assert not hasattr(told.value, "__notes__")
            for receipt in receipts:
                with pytest.raises(Aborted):
                    receipt.position(SECONDS)
            with work.begin() as turn:
                turn.send(b"kept-%d" % number, topic=topic)
    settled(judge, topic, [b"kept-0", b"kept-1", b"kept-2"])


def test_one_that_is_rolled_back_at_once_leaves_nothing_to_the_next_one(client: Any, judge: Any, topic: str) -> None:
    expected = []
    with client.transactions("work", linger=0.0) as work:
        for number in range(10):
            with work.begin() as turn:
                turn.send(b"before-%d" % number, topic=topic)
            turn = work.begin()
            turn.send(b"lost", topic=topic)
            turn.abort()
            with work.begin() as turn:
                turn.send(b"behind-%d" % number, topic=topic)
            expected += [b"before-%d" % number, b"behind-%d" % number]
    settled(judge, topic, expected)


def test_nothing_is_sent_outside_of_a_transaction(client: Any, judge: Any, topic: str) -> None:
    work = client.transactions("work")
    with work.begin() as turn:
        producer = turn.producer(topic)
        producer.send(b"first")
    rows = pa.table({"value": pa.array([b"no"], pa.binary())})
    for send in (lambda: producer.send(b"no"), lambda: turn.send(b"no", topic=topic), lambda: producer.send_batch(rows)):
        with pytest.raises(UsageError):
            send()
    turn.commit()  # a second time is no other one
    with pytest.raises(UsageError):
        turn.abort()
    with work.begin() as turn:
        with pytest.raises(UsageError, match="open"):
            work.begin()
        producer.send(b"second")
    with work.begin() as turn:
        turn.send(b"left open", topic=topic)
        work.close()
    assert turn.state.value == "rolled back"
    with pytest.raises(Closed):
        work.begin()
    settled(judge, topic, [b"first", b"second"])


def test_threads_may_send_in_one_transaction(broker: Pulsar, client: Any, judge: Any) -> None:
    topic = new_topic(broker, 2)
    with client.transactions("work") as work, work.begin() as turn:
        threads = [
            threading.Thread(target=lambda n=n: [turn.send(b"%d-%03d" % (n, i), topic=topic, partition=n % 2) for i in range(200)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    settled(judge, topic, [b"%d-%03d" % (n, i) for n in range(4) for i in range(200)], 2)


def test_two_of_one_name_are_two(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    """A name is for people: it fences nobody."""
    with wireproto.connect(broker.url) as second, client.transactions("work") as work, second.transactions("work") as other:
        mine, theirs = work.begin(), other.begin()
        assert mine.id != theirs.id
        mine.send(b"of one", topic=topic)
        theirs.send(b"of the other", topic=topic)
        mine.commit()
        theirs.abort()
    settled(judge, topic, [b"of one"])


def test_a_receipt_that_is_asked_too_early_says_so(client: Any, topic: str) -> None:
    with client.transactions("work") as work, work.begin() as turn:
        receipt = turn.send(b"x", topic=topic)
        begin = soon(0.0)
        with pytest.raises(TimedOut, match="committed"):
            receipt.position(0.2)
        assert soon(0.0) - begin < 0.2 + LATE


@pytest.mark.parametrize("options", [{"transaction_timeout": 0.0}, {"first_sequence": 1}, {"mode": "shared"}])
def test_options_that_cannot_be_are_refused(client: Any, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        client.transactions("work", **options)
    with pytest.raises(OptionError, match="name"):
        client.transactions("")


# --- what goes over the wire, and when ---


def number_of(message: Any) -> tuple[int, int]:
    """The transaction that a command is part of."""
    assert message.HasField("txnid_least_bits")
    return message.txnid_most_bits, message.txnid_least_bits


def check_order(frames: list[Any]) -> tuple[int, int]:
    """That each SEND of a transaction lies between the answer to its partition's registration and END_TXN, and that this leaves when each
    SEND is answered. How many SENDs there were, and how many ends."""
    partitions: dict[int, str] = {}
    asked: dict[Any, set[Any]] = {}
    registered: set[Any] = set()
    unanswered: dict[Any, Any] = {}
    ended: set[Any] = set()
    sends = 0
    for frame in frames:
        said = frame.message
        if frame.name == "producer":
            assert said.txn_enabled
            partitions[said.producer_id] = said.topic
        elif frame.name == "addPartitionToTxn":
            joins = {(number_of(said), partition) for partition in said.partitions}
            assert not registered & joins, "each once"
            asked[said.request_id] = joins
        elif frame.name == "addPartitionToTxnResponse":
            registered |= asked.pop(said.request_id)
        elif frame.name == "send":
            sends += 1
            number = number_of(said)
            assert number not in ended
            assert (number, partitions[said.producer_id]) in registered
            unanswered[said.producer_id, said.sequence_id] = number
        elif frame.name == "send_receipt":
            del unanswered[said.producer_id, said.sequence_id]
        elif frame.name == "endTxn":
            assert number_of(said) not in unanswered.values()
            ended.add(number_of(said))
    return sends, len(ended)


def test_nothing_of_a_transaction_leaves_before_it_is_registered_or_behind_its_end(broker: Pulsar, judge: Any, fault_proxy: Any) -> None:
    """Threads send as fast as they can until the transaction takes no more, while one commits and aborts."""
    topic = new_topic(broker, 2)
    frames = fault_proxy.record("pulsar")
    taken: list[tuple[bytes, Any]] = []
    over = threading.Event()
    values = itertools.count()
    with wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as client:
        work = client.transactions("work", linger=0.0)

        def sends() -> None:
            while not over.is_set():
                value = b"%06d" % next(values)
                try:
                    taken.append((value, work.now.send(value, topic=topic)))
                except (UsageError, Aborted):
                    over.wait(0.001)  # it ends, and the next one is not begun yet

        work.begin()
        threads = [threading.Thread(target=sends) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(20):
            most = len(taken) + 20
            until(lambda most=most: len(taken) > most)
            if number % 3 == 2:
                work.now.abort()
            else:
                work.now.commit()
            work.begin()
        over.set()
        for thread in threads:
            thread.join()
        work.now.commit()
        kept = [value for value, receipt in taken if stored(receipt)]
    assert 0 < len(kept) < len(taken)
    settled(judge, topic, sorted(kept), 2)
    sent, ends = check_order(frames.all())
    assert ends == 21
    assert sent >= 14, "each committed one has records, in one batch or more"


def stored(receipt: Any) -> bool:
    try:
        receipt.position(SECONDS)
    except Aborted:
        return False
    return True


# --- what can go wrong ---


WRITER = """
import sys, time, wireproto
url, topic = sys.argv[1:]
client = wireproto.connect(url)
work = client.transactions("work", transaction_timeout=8.0)
work.topics.to(topic)
turn = work.begin()
turn.send(b"of the dead", topic=topic)
work.topics.flush()
print("there", flush=True)
time.sleep(600)
"""


def test_what_a_killed_program_left_open_is_rolled_back_when_its_time_is_over(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITER, broker.url, topic], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"there\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with client.transactions("work") as work, work.begin() as turn:
        turn.send(b"of the living", topic=topic)
    settled(judge, topic, [b"of the living"])


def test_a_transaction_that_took_too_long_is_told_and_the_next_one_works(client: Any, judge: Any, topic: str) -> None:
    with client.transactions("work", transaction_timeout=6.0) as work:  # what a late broker takes for all but its end
        work.topics.to(topic)
        turn = work.begin()
        turn.send(b"slow", topic=topic)
        work.topics.flush()
        until(lambda: turn.problem is not None)
        with pytest.raises(Aborted, match="transaction_timeout"):
            turn.send(b"late", topic=topic)
        with pytest.raises(Aborted, match="transaction_timeout"):
            turn.commit()
        with work.begin() as turn:
            turn.send(b"quick", topic=topic)
    settled(judge, topic, [b"quick"])


def test_one_that_an_operator_aborts_is_told_and_the_next_one_works(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    """Its coordinator knows nothing of it any more: who committed nothing knows that it was not committed."""
    with client.transactions("work") as work:
        turn = work.begin()
        turn.send(b"aborted", topic=topic)
        work.topics.flush()
        broker.call("POST", f"/admin/v3/transactions/abortTransaction/{turn.id.most}/{turn.id.least}")
        with pytest.raises(Aborted) as told:
            turn.commit()
        assert isinstance(told.value.__cause__, codes.TransactionNotFound | codes.InvalidTxnStatus)
        turn = work.begin()
        turn.send(b"aborted, too", topic=topic)
        work.topics.flush()
        broker.call("POST", f"/admin/v3/transactions/abortTransaction/{turn.id.most}/{turn.id.least}")
        turn.abort()
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    settled(judge, topic, [b"next"])


def test_a_partition_that_joins_too_late_has_it_rolled_back(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    with client.transactions("work") as work:
        work.topics.to(topic)
        turn = work.begin()
        broker.call("POST", f"/admin/v3/transactions/abortTransaction/{turn.id.most}/{turn.id.least}")
        turn.send(b"late", topic=topic)
        with pytest.raises(Aborted) as told:
            turn.commit()
        assert isinstance(told.value.__cause__, codes.TransactionNotFound | codes.InvalidTxnStatus)
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    settled(judge, topic, [b"next"])


def test_a_record_too_large_in_the_middle_has_all_of_it_rolled_back(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    other = new_topic(broker)
    broker.call("POST", f"/admin/v2/persistent/public/default/{other}/maxMessageSize", 2000)
    with client.producer(other) as plain:
        until(lambda: refuses(plain), "the policy holds")
    with client.transactions("work", linger=0.0) as work:
        turn = work.begin()
        turn.send(b"before", topic=topic)
        big = turn.send(b"x" * 5000, topic=other)
        with pytest.raises(Aborted) as told:
            turn.commit()
        assert isinstance(told.value.__cause__, codes.NotAllowedError)
        with pytest.raises((Aborted, codes.NotAllowedError)):
            big.position(SECONDS)
        with work.begin() as turn:
            turn.send(b"fits", topic=topic)
    settled(judge, topic, [b"fits"])


def refuses(producer: Any) -> bool:
    try:
        producer.send(b"x" * 5000).position(SECONDS)
    except codes.NotAllowedError:
        return True
    return False


def test_a_topic_that_is_deleted_in_between_has_it_rolled_back(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    other = new_topic(broker)
    with client.transactions("work", delivery_timeout=15.0) as work:
        turn = work.begin()
        turn.send(b"kept?", topic=topic)
        turn.send(b"gone", topic=other)
        work.topics.flush()
        broker.call("DELETE", f"/admin/v2/persistent/public/default/{other}?force=true")
        turn.send(b"gone, too", topic=other)
        with pytest.raises(Aborted):
            turn.commit()
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    settled(judge, topic, [b"next"])


def test_a_topic_that_is_deleted_before_the_commit_takes_its_part_with_it(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    other = new_topic(broker)
    with client.transactions("work") as work:
        with work.begin() as turn:
            turn.send(b"kept", topic=topic)
            turn.send(b"gone", topic=other)
            work.topics.flush()
            broker.call("DELETE", f"/admin/v2/persistent/public/default/{other}?force=true")
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    settled(judge, topic, [b"kept", b"next"])


def test_a_topic_that_is_unloaded_between_records_is_written_on(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    with client.transactions("work") as work, work.begin() as turn:
        for number in range(3):
            turn.send(b"%d" % number, topic=topic)
            work.topics.flush()
            broker.call("PUT", f"/admin/v2/persistent/public/default/{topic}/unload")
    settled(judge, topic, [b"0", b"1", b"2"])


# --- coordinators ---


def test_a_coordinator_that_moves_is_found_again_at_every_step(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    def move() -> None:
        broker.call("PUT", "/admin/v2/namespaces/pulsar/system/unload")

    with client.transactions("work") as work:
        for number in range(2):
            move()
            turn = work.begin(timeout=LONG)
            move()
            turn.send(b"%d" % number, topic=topic)
            work.topics.flush(LONG)
            move()
            turn.commit(timeout=LONG)
        turn = work.begin(timeout=LONG)
        turn.send(b"no", topic=topic)
        move()
        turn.abort(timeout=LONG)
    settled(judge, topic, [b"0", b"1"])


def coordinator(work: Any) -> int:
    """Of a transaction in which nothing is done."""
    with work.begin(timeout=LONG) as turn:
        return int(turn.id.most)


def test_new_transactions_go_to_the_coordinators_in_turn(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    broker.call("POST", "/admin/v3/transactions/transactionCoordinator/replicas", 3)
    numbers: list[int] = []
    ready: set[int] = set()
    with client.transactions("work") as work:
        until(lambda: ready.add(coordinator(work)) or ready == {0, 1, 2})  # one that starts is passed over
        for number in range(6):
            with work.begin() as turn:
                numbers.append(turn.id.most)
                turn.send(b"%d" % number, topic=topic)
    assert sorted(numbers[:3]) == [0, 1, 2]
    assert numbers[3:] == numbers[:3]
    settled(judge, topic, [b"%d" % number for number in range(6)])


def test_a_signal_anywhere_in_the_end_of_a_block_ends_its_transaction_and_the_next_one_works(client: Any, judge: Any, topic: str) -> None:
    """It is rolled back, unless its coordinator may have been asked to commit it; then how it ended is known when the next one begins."""
    expected: list[bytes] = []
    with client.transactions("work") as work:
        for number in itertools.count(1):
            turn = work.begin()
            turn.send(b"%d" % number, topic=topic)
            broken = Signal(number)
            broken.within(lambda turn=turn: turn.__exit__(None, None, None))  # type: ignore[misc]
            if not turn.ended and "in __exit__" in broken.where:
                turn.abort()  # nothing was begun
            with work.begin() as following:
                following.send(b"behind %d" % number, topic=topic)
            assert turn.ended, f"after a signal at {broken.where}"
            if turn.state.value == "committed":
                expected.append(b"%d" % number)
            expected.append(b"behind %d" % number)
            if not broken.came:
                break
    assert number > 50
    settled(judge, topic, expected)


@pytest.mark.parametrize("end", ["abort", "rollback"])
def test_a_signal_anywhere_while_it_is_rolled_back_leaves_nothing_of_it(client: Any, judge: Any, topic: str, end: str) -> None:
    expected: list[bytes] = []
    failure = ZeroDivisionError()
    with client.transactions("work", linger=0.0) as work:
        for number in itertools.count(1):
            turn = work.begin()
            turn.send(b"lost", topic=topic)
            broken = Signal(number)
            broken.within(turn.abort if end == "abort" else lambda turn=turn: turn.__exit__(type(failure), failure, None))  # type: ignore[misc]
            if not turn.ended:
                turn.abort()
            with work.begin() as following:
                following.send(b"behind %d" % number, topic=topic)
            expected.append(b"behind %d" % number)
            assert turn.state.value == "rolled back", broken.where
            if not broken.came:
                break
    assert number > 20
    settled(judge, topic, expected)


def test_a_begin_that_a_signal_broke_off_leaves_nothing_to_the_next_one(client: Any, judge: Any, topic: str) -> None:
    """Each has a number and a time of its own: nothing of what the one that was broken off had got."""
    expected: list[bytes] = []
    with client.transactions("work", transaction_timeout=600.0) as work:
        for number in itertools.count(1):
            broken = Signal(number)
            broken.within(work.begin)
            began = soon(0.0)
            if work.now is None or work.now.ended:
                with work.begin() as turn:
                    turn.send(b"%d" % number, topic=topic)
                assert turn.expires >= began + 600.0, broken.where
            else:
                with work.now as turn:  # it was begun, and was not told
                    turn.send(b"%d" % number, topic=topic)
            expected.append(b"%d" % number)
            if not broken.came:
                break
    assert number > 20
    settled(judge, topic, expected)
