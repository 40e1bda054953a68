"""Transactions of Kafka on the embedded broker, where a group moves, a record is refused, or a commit is given up in the middle of one."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import patience
from wireproto import EARLIEST, LATEST, AtTime, LogOffset, aio
from wireproto.devbroker import DevBroker
from wireproto.devbroker.faults import Faults
from wireproto.errors import Aborted, Revoked, TimedOut
from wireproto.kafka.codes import InvalidProducerEpoch, InvalidRecord, NotEnoughReplicas, RebalanceInProgress, UnstableOffsetCommit

_numbers = itertools.count()
PROTOCOL, CLIENT = "kafka", {"timeout": 10.0}


@pytest.fixture
def name(client: Any) -> str:
    """Of the work; the topic that it writes is named so, too, and the one that it reads begins with ``in-``."""
    made = f"within-{next(_numbers)}"
    client.admin().create_topic(made)
    client.admin().create_topic(f"in-{made}", partitions=2)
    with client.producer(f"in-{made}") as producer:
        for number in range(20):
            producer.send(b"%02d" % number, partition=number % 2)
    return made


def stored(client: Any, topic: str) -> list[bytes]:
    """Values of the committed records."""
    with client.reader(topic, stop=LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


def send_from_poll(log: Any, turn: Any, topic: str, places: dict[Any, Any]) -> int:
    """Send what one poll returns in the transaction, and note its next positions in `places`; the number of records."""
    batch = log.poll(0.2)
    if batch is None:
        return 0
    for value in batch.values():
        turn.send(value, topic=topic)
    places.update(batch.next_positions)
    return len(batch)


def test_positions_of_before_a_rebalance_are_refused_and_the_transaction_with_them(client: Any, faults: Faults, name: str) -> None:
    """What was read of a partition comes again once it was given back, though it is ours again: to commit it would have it twice."""
    moves: list[str] = []
    told = {"on_assigned": lambda _: moves.append("+"), "on_revoked": lambda _: moves.append("-")}
    with client.transactions(name) as work, client.consumer(f"in-{name}", name, heartbeat_interval=0.05, **told) as log:
        places: dict[Any, Any] = {}

        turn = work.begin()
        patience.until(lambda: send_from_poll(log, turn, name, places) and len(places) == 2)
        faults.error("Heartbeat", RebalanceInProgress.code)
        patience.until(lambda: bool(send_from_poll(log, turn, name, places)) and moves == ["+", "-", "+"])
        for end in (lambda: turn.commit_positions(log, places), turn.commit):
            with pytest.raises(Aborted) as caught:
                end()
            assert isinstance(caught.value.__cause__, Revoked)
            assert caught.value.__cause__.partitions == ((f"in-{name}", 0), (f"in-{name}", 1))
        log.rewind()
        left = 20
        while left:
            with work.begin() as turn:
                left -= send_from_poll(log, turn, name, places)
                turn.commit_positions(log, places)
        assert sorted(stored(client, name)) == [b"%02d" % number for number in range(20)]
        assert {place.offset for place in log.committed().values()} == {10}


@pytest.mark.parametrize("given", [True, False], ids=["given", "not given"])
@pytest.mark.parametrize("more", [False, True], ids=["nothing behind them", "records behind them"])
def test_partitions_revoked_behind_committed_positions_keep_the_next_transaction_from_nothing(
    client: Any, faults: Faults, name: str, given: bool, more: bool
) -> None:
    """A rebalance between `commit_positions` and `commit`: what was committed is no loss, and what was returned behind it is one."""
    moves: list[str] = []
    callbacks = {"on_assigned": lambda _: moves.append("+"), "on_revoked": lambda _: moves.append("-")}
    source = f"in-{name}"
    with (
        client.transactions(name) as work,
        client.consumer(source, name, heartbeat_interval=0.05, partition_bytes=1, **callbacks) as log,
    ):
        places: dict[Any, Any] = {}

        def commit_positions(turn: Any) -> None:
            turn.commit_positions(log, *([places] if given else []))

        turn = work.begin()
        patience.until(lambda: send_from_poll(log, turn, name, places) and len(places) == 2)
        commit_positions(turn)
        if more:
            with client.producer(source) as producer:
                producer.send(b"20", partition=0)
            while (batch := log.poll(0.2)) is None:
                pass
            assert batch.values() == [b"20"]
        faults.error("Heartbeat", RebalanceInProgress.code)
        patience.until(lambda: log.poll(0.05) is None and "-" in moves)
        turn.commit()
        left = 1
        if more:
            turn = work.begin()
            patience.until(lambda: send_from_poll(log, turn, name, places))
            with pytest.raises(Aborted) as caught:
                commit_positions(turn)
            assert isinstance(caught.value.__cause__, Revoked)
            assert caught.value.__cause__.partitions == ((source, 0),)
            turn.abort()
            log.rewind()
        else:
            patience.until(lambda: log.poll(0.05) is None and moves == ["+", "-", "+"])
            with client.producer(source) as producer:
                producer.send(b"20", partition=0)
        with work.begin() as turn:
            while left:
                left -= send_from_poll(log, turn, name, places)
            commit_positions(turn)
        assert sorted(stored(client, name)) == [b"%02d" % number for number in range(21)]
        assert {place.offset for place in log.committed().values()} == {10, 11}


def test_positions_of_a_partition_that_is_not_ours_roll_back_what_is_awaited(broker: DevBroker, client: Any, name: str) -> None:
    """Under asyncio: who goes on all the same is not let commit what was made of them."""

    async def work() -> None:
        async with (
            aio.connect(broker.url("kafka"), timeout=10.0) as opened,
            opened.consumer(f"in-{name}", name) as log,
            opened.transactions(name) as work,
        ):
            while (batch := await log.poll(1.0)) is None:
                pass
            ((topic, number), place) = next(iter(batch.next_positions.items()))
            tx = await work.begin()
            await tx.send(b"made of it", topic=name)
            with pytest.raises(Aborted):
                await tx.commit_positions(log, {(topic, 7): LogOffset(topic, 7, place.offset), (topic, number): place})
            with pytest.raises(Aborted):
                await tx.commit()

    asyncio.run(work())
    assert stored(client, name) == []


@pytest.mark.parametrize("how", ["where it began", "where it was sought"])
def test_a_rewind_without_a_committed_position_goes_to_where_it_was_read_from(client: Any, name: str, how: str) -> None:
    """Not to the end of the log, though a group without a position starts there."""
    with client.consumer(f"in-{name}", name, start=LATEST) as log:
        patience.until(lambda: log.poll(0.05) is None and len(log.assignment) == 2)
        if how == "where it was sought":
            log.seek({(f"in-{name}", 0): LogOffset(f"in-{name}", 0, 5)})
        with client.producer(f"in-{name}") as producer:
            for number in range(7):
                producer.send(b"new %d" % number, partition=1)
        expected = [b"new %d" % number for number in range(7)]
        if how == "where it was sought":
            expected += [b"%02d" % number for number in range(10, 20, 2)]
        for _ in range(2):
            found: list[bytes] = []
            while len(found) < len(expected):
                batch = log.poll(patience.LONG)
                assert batch is not None, found
                found += batch.values()
            assert sorted(found) == sorted(expected)
            log.rewind()


def test_positions_that_a_transaction_holds_are_named_and_the_others_given(
    client: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log by the admin; the member's own `committed` raises, for who goes on without them begins elsewhere."""
    source = f"in-{name}"
    with client.transactions(name) as work, client.consumer(source, name) as log:
        places: dict[Any, Any] = {}
        patience.until(lambda: (batch := log.poll(1.0)) is not None and places.update(batch.next_positions) is None and len(places) == 2)
        log.commit({(source, 1): places[source, 1]})
        turn = work.begin()
        turn.send(b"made of it", topic=name)
        turn.commit_positions(log, {(source, 0): places[source, 0]})
        assert client.admin().group_positions(name, source) == {(source, 1): places[source, 1]}
        assert f"{source}[0]" in caplog.text
        assert f"{source}[1]" not in caplog.text
        with pytest.raises(UnstableOffsetCommit) as caught:
            log.committed(timeout=2.0)
        assert f"{source}[0]" in str(caught.value)
        assert f"{source}[1]" not in str(caught.value)
        turn.commit()
        assert client.admin().group_positions(name, source) == places
        assert dict(log.committed()) == places


def test_a_time_is_that_of_records_and_not_of_the_marker_between_them(client: Any, name: str) -> None:
    """The marker of the transaction bears the broker's time, which is later than those of records that were made before."""
    with client.transactions(name) as work, work.begin() as turn:
        turn.send(b"1000", topic=name, timestamp=1000)
    patience.until(lambda: client.admin().positions(name, LATEST, committed=True)[name, 0].offset == 2, "its marker is not there")
    with client.producer(name) as producer:
        for moment in (2000, 4000, 3000):
            producer.send(b"%d" % moment, timestamp=moment)
    found: dict[tuple[int | None, int | None], list[bytes]] = {}
    for start, stop in ((None, 2500), (2500, None), (1500, 4000), (5000, None), (1, 5000)):
        with client.reader(
            name, start=EARLIEST if start is None else AtTime(start), stop=LATEST if stop is None else AtTime(stop)
        ) as reader:
            found[start, stop] = [value for batch in reader for value in batch.values()]
    assert found == {
        (None, 2500): [b"1000", b"2000"],
        (2500, None): [b"4000", b"3000"],
        (1500, 4000): [b"2000"],
        (5000, None): [],
        (1, 5000): [b"1000", b"2000", b"4000", b"3000"],
    }
    assert client.admin().positions(name, AtTime(2500))[name, 0].offset == 3
    with client.consumer(name, f"g-{name}", start=AtTime(2500)) as log:
        while (batch := log.poll(1.0)) is None:
            pass
        assert batch.values()[0] == b"4000"


def given_up(client: Any, faults: Faults, work: Any, name: str) -> Any:
    """A transaction whose commit was given up while its record could not be stored."""
    client.producer(name).close()  # the topic is known
    refusals = faults.error("Produce", NotEnoughReplicas.code, times=-1)
    turn = work.begin()
    turn.send(b"of the first", topic=name)
    with pytest.raises(TimedOut):
        turn.commit(timeout=0.1)
    patience.until(lambda: faults.seen("Produce") > 0)
    assert refusals.times
    return turn


def test_the_next_transaction_waits_for_a_commit_that_was_given_up(client: Any, faults: Faults, name: str) -> None:
    with client.transactions(name) as work:
        turn = given_up(client, faults, work, name)
        with pytest.raises(TimedOut, match="the transaction before"):
            work.begin(timeout=0.1)
        faults.clear()
        with work.begin() as second:
            assert turn.state.value == "committed"
            second.send(b"of the second", topic=name)
    assert stored(client, name) == [b"of the first", b"of the second"]


def test_the_next_transaction_tells_that_one_whose_commit_was_given_up_is_rolled_back(client: Any, faults: Faults, name: str) -> None:
    with client.transactions(name) as work:
        turn = given_up(client, faults, work, name)
        faults.clear()
        faults.error("Produce", InvalidRecord.code)
        with pytest.raises(Aborted) as caught:
            work.begin()
        assert isinstance(caught.value.__cause__, InvalidRecord)
        assert turn.state.value == "rolled back"
        with work.begin() as second:
            second.send(b"of the second", topic=name)
    assert stored(client, name) == [b"of the second"]


def test_a_close_says_that_it_rolls_back_what_was_to_be_committed(
    client: Any, faults: Faults, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with client.transactions(name) as work:
        given_up(client, faults, work, name)
    assert any("rolled back" in record.getMessage() and name in record.getMessage() for record in caplog.records)
    faults.clear()
    assert stored(client, name) == []


def test_the_next_transaction_waits_for_an_awaited_commit_that_was_given_up(
    broker: DevBroker, client: Any, faults: Faults, name: str
) -> None:
    async def work() -> None:
        async with aio.connect(broker.url("kafka"), timeout=10.0) as opened, opened.transactions(name) as work:
            tx = await work.begin()
            await tx.send(b"made", topic=name)
            faults.error("Produce", NotEnoughReplicas.code, times=-1)
            with pytest.raises(TimedOut):
                await tx.commit(timeout=0.1)
            faults.clear()
            async with work.begin():
                assert tx.state.value == "committed"

    asyncio.run(work())
    assert stored(client, name) == [b"made"]


def test_a_refused_record_is_told_by_its_receipt_and_by_a_flush_before_the_end(client: Any, faults: Faults, name: str) -> None:
    """And by the receipts of the records beside it, which cannot be committed any more."""
    with client.transactions(name) as work:
        turn = work.begin()
        fine = turn.send(b"stored", topic=name)
        producer = turn.producer(name)
        producer.flush()
        faults.error("Produce", InvalidProducerEpoch.code)
        refused = turn.send(b"refused", topic=name)
        with pytest.raises(InvalidProducerEpoch):
            refused.position(patience.LONG)
        for flush in (producer.flush, work.topics.flush):
            with pytest.raises(Aborted) as caught:
                flush()
            assert isinstance(caught.value.__cause__, InvalidProducerEpoch)
        with pytest.raises(Aborted):
            fine.position(patience.LONG)
        assert fine.done
        assert refused.done
        turn.abort()
        work.topics.flush()  # its end has told it
        with work.begin() as turn:
            turn.send(b"behind it", topic=name)
            work.topics.flush()
    assert stored(client, name) == [b"behind it"]


def test_who_waits_for_a_receipt_hears_of_a_record_that_is_refused_meanwhile(client: Any, faults: Faults, name: str) -> None:
    with client.transactions(name) as work, ThreadPoolExecutor(1) as threads:
        turn = work.begin()
        fine = turn.send(b"stored", topic=name)
        work.topics.flush()
        waiting = threads.submit(fine.position, 10 * patience.LONG)
        faults.error("Produce", InvalidProducerEpoch.code)
        turn.send(b"refused", topic=name)
        with pytest.raises(Aborted):
            waiting.result(patience.LONG)
        turn.abort()


def test_a_refused_record_is_told_by_what_is_awaited_before_the_end(broker: DevBroker, client: Any, faults: Faults, name: str) -> None:
    async def work() -> None:
        async with aio.connect(broker.url("kafka"), timeout=10.0) as opened, opened.transactions(name) as work:
            tx = await work.begin()
            fine = await tx.send(b"stored", topic=name)
            await tx.producer(name).flush()
            waiting = asyncio.ensure_future(fine._known())
            faults.error("Produce", InvalidProducerEpoch.code)
            refused = await tx.send(b"refused", topic=name)
            with pytest.raises(InvalidProducerEpoch):
                await refused
            with pytest.raises(Aborted):
                await waiting
            with pytest.raises(Aborted):
                await tx.producer(name).flush()
            assert fine.done
            await tx.abort()
            await tx.producer(name).flush()

    asyncio.run(asyncio.wait_for(work(), patience.LONG))
