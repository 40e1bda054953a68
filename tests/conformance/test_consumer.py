"""The log consumer: commit and resume, members that share and rebalance, lag, pause, seek."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.helpers import eventually, poll_until, write
from conformance.seats import Seat
from wireproto import EARLIEST, LATEST
from wireproto.errors import OptionError, Revoked

SENT = [b"%03d" % number for number in range(40)]


@pytest.fixture(autouse=True)
def _has_the_role(seat: Seat) -> None:
    if not seat.features.consumer:
        pytest.skip("has no log consumer")


def seen(count: int) -> Any:
    return lambda found: len({record.value for record in found}) >= count


def test_commit_and_resume_after_a_new_client(dial: Any, client: Any, topic: str, group: str) -> None:
    write(client, topic, SENT)
    first = dial()
    with first.consumer(topic, group) as consumer:
        assert {record.value for record in poll_until(consumer, seen(40))} == set(SENT)
        consumer.commit()
    first.close(10.0)
    more = [b"more%d" % number for number in range(5)]
    write(client, topic, more)
    with dial().consumer(topic, group) as consumer:
        assert [record.value for record in poll_until(consumer, seen(5))] == more


def test_what_is_not_committed_comes_again(dial: Any, client: Any, topic: str, group: str) -> None:
    write(client, topic, SENT)
    with dial().consumer(topic, group) as consumer:
        poll_until(consumer, seen(40))
    with dial().consumer(topic, group) as consumer:
        assert [record.value for record in poll_until(consumer, seen(40))] == SENT


def test_commit_of_a_place_in_the_middle(dial: Any, client: Any, topic: str, group: str) -> None:
    positions = write(client, topic, SENT)
    with dial().consumer(topic, group) as consumer:
        poll_until(consumer, seen(40))
        place = positions[25]
        consumer.commit({(topic, place.partition): place})
    with dial().consumer(topic, group) as consumer:
        assert [record.value for record in poll_until(consumer, seen(15))] == SENT[25:], "in the middle of a batch, and exactly there"


def test_committed_and_lag(dial: Any, client: Any, topic: str, group: str) -> None:
    positions = write(client, topic, SENT)
    key = (topic, positions[0].partition)
    with dial().consumer(topic, group) as consumer:
        batch = None
        while batch is None:
            batch = consumer.poll(timeout=1.0)
        poll_until(consumer, lambda found: len(found) + len(batch) >= 40)
        consumer.commit()
        assert set(consumer.committed()) == {key}
        assert consumer.lag()[key] == 0
        committed = consumer.committed()[key]
        assert client.admin().group_positions(group, topic)[key] == committed
    assert group in client.admin().list_groups()


def test_start_holds_only_without_a_commit(dial: Any, client: Any, topic: str, group: str) -> None:
    write(client, topic, SENT)
    with dial().consumer(topic, group, start=LATEST) as consumer:
        eventually(lambda: consumer.poll(timeout=0.2) is None and bool(consumer.assignment), "an assignment")
        write(client, topic, [b"new"])
        assert [record.value for record in poll_until(consumer, seen(1))] == [b"new"]
        consumer.commit()
    write(client, topic, [b"newer"])
    with dial().consumer(topic, group, start=LATEST) as consumer:
        assert [record.value for record in poll_until(consumer, seen(1))] == [b"newer"]


def test_seek(dial: Any, client: Any, topic: str, group: str) -> None:
    positions = write(client, topic, SENT)
    with dial().consumer(topic, group) as consumer:
        poll_until(consumer, seen(40))
        consumer.seek(positions[30])
        assert [record.value for record in poll_until(consumer, seen(10))] == SENT[30:]


def test_pause_and_resume(dial: Any, client: Any, topic: str, group: str) -> None:
    write(client, topic, SENT)
    with dial().consumer(topic, group) as consumer:
        poll_until(consumer, seen(40))
        consumer.pause(consumer.assignment)
        write(client, topic, [b"while paused"])
        quiet = time.monotonic() + 1.0
        while time.monotonic() < quiet:
            assert not consumer.poll(timeout=0.2)
        consumer.resume(consumer.assignment)
        assert [record.value for record in poll_until(consumer, seen(1))] == [b"while paused"]


@pytest.mark.parametrize("wrong", ["of another partition", "of another topic"])
def test_a_commit_with_a_wrong_position_commits_nothing(dial: Any, client: Any, fresh: Any, group: str, wrong: str) -> None:
    topic, other = fresh(partitions=2), fresh(partitions=2)
    keys = [(topic, number) for number in range(2)]
    for name in (topic, other):
        for number in range(2):
            write(client, name, SENT, partition=number)
    with dial().consumer(topic, group) as consumer:
        poll_until(consumer, lambda found: len(found) >= 80)
        ends = client.admin().positions(topic, LATEST)
        places = {
            keys[0]: ends[keys[0]],
            keys[1]: ends[keys[0]] if wrong == "of another partition" else client.admin().positions(other, LATEST)[other, 1],
        }
        before = consumer.committed()
        with pytest.raises(OptionError):
            consumer.commit(places)
        assert consumer.committed() == before
        consumer.commit({key: ends[key] for key in keys})
        assert consumer.committed() == {key: ends[key] for key in keys}


def test_a_pause_of_a_partition_that_is_not_assigned_pauses_none(dial: Any, client: Any, topic: str, group: str) -> None:
    with dial().consumer(topic, group) as consumer:
        eventually(lambda: consumer.poll(timeout=0.2) is None and bool(consumer.assignment), "an assignment")
        (mine,) = consumer.assignment
        with pytest.raises(Revoked) as caught:
            consumer.pause([mine, (topic, 99), (topic, 98)])
        assert caught.value.partitions == ((topic, 98), (topic, 99))
        write(client, topic, [b"not paused"])
        assert [record.value for record in poll_until(consumer, seen(1))] == [b"not paused"]
        consumer.pause([mine])
        with pytest.raises(Revoked):
            consumer.resume([mine, (topic, 99)])
        write(client, topic, [b"paused"])
        assert consumer.poll(timeout=1.0) is None
        consumer.resume([mine])
        assert [record.value for record in poll_until(consumer, seen(1))] == [b"paused"]


def test_a_seek_moves_the_partitions_that_a_mapping_names(dial: Any, client: Any, fresh: Any, group: str) -> None:
    topic = fresh(partitions=3)
    for number in range(3):
        write(client, topic, [b"%d" % number] * 3, partition=number)
    with dial().consumer(topic, group) as consumer:
        found = poll_until(consumer, lambda found: len(found) >= 9)
        second = next(record.position for record in found if record.partition == 1)
        with pytest.raises(Revoked) as caught:
            consumer.seek({(topic, 0): EARLIEST, (topic, 99): EARLIEST})
        assert caught.value.partitions == ((topic, 99),)
        assert consumer.poll(timeout=1.0) is None, "nothing was moved"
        consumer.seek({(topic, 0): EARLIEST, (topic, 1): second, (topic, 2): LATEST})
        again = poll_until(consumer, lambda found: len(found) >= 6)
        assert sorted(record.value for record in again) == [b"0"] * 3 + [b"1"] * 3
        assert consumer.poll(timeout=1.0) is None


def test_two_members_share_and_the_one_left_takes_over(seat: Seat, dial: Any, client: Any, fresh: Any, group: str) -> None:
    topic = fresh(partitions=4)
    everything = {(topic, partition) for partition in range(4)}
    with dial().consumer(topic, group) as first:
        eventually(lambda: (first.poll(timeout=0.2), set(first.assignment) == everything)[1], "all partitions for the only member", 60)
        second = dial().consumer(topic, group)

        def shared() -> bool:
            first.poll(timeout=0.2)
            second.poll(timeout=0.2)
            one, two = set(first.assignment), set(second.assignment)
            return not one & two and one | two == everything and len(one) == len(two) == 2

        eventually(shared, "two partitions each", 90)
        for partition in range(4):
            write(client, topic, [b"%d" % partition], partition=partition)
        got: list[Any] = []
        deadline = time.monotonic() + 60
        while len(got) < 4 and time.monotonic() < deadline:
            for consumer in (first, second):
                batch = consumer.poll(timeout=0.2)
                if batch is not None:
                    assert (batch.topic, batch.partition) in consumer.assignment
                    got += batch.values()
        assert sorted(got) == [b"0", b"1", b"2", b"3"]
        first.commit()
        second.commit()
        second.close(10.0)
        eventually(lambda: (first.poll(timeout=0.2), set(first.assignment) == everything)[1], "all partitions again", 90)
        write(client, topic, [b"last"], partition=3)
        write(client, topic, [b"last"], partition=0)
        taken = poll_until(first, lambda found: [record.value for record in found].count(b"last") == 2)
        assert [record.value for record in taken] == [b"last", b"last"], "what was committed must not come again"


def test_commit_of_a_partition_lost_meanwhile_says_so(dial: Any, client: Any, fresh: Any, group: str) -> None:
    topic = fresh(partitions=2)
    for partition in range(2):
        write(client, topic, [b"v"], partition=partition)
    with dial().consumer(topic, group) as first:
        held: dict[Any, Any] = {}
        deadline = time.monotonic() + 60
        while len(held) < 2 and time.monotonic() < deadline:
            batch = first.poll(timeout=0.5)
            if batch is not None:
                held |= batch.next_positions
        assert len(held) == 2
        with dial().consumer(topic, group) as second:

            def moved() -> bool:
                """For both: a broker tells the one before the other."""
                first.poll(timeout=0.2)
                second.poll(timeout=0.2)
                return len(first.assignment) == len(second.assignment) == 1

            eventually(moved, "one partition moved", 90)
            with pytest.raises(Revoked) as caught:
                first.commit(held)
            assert set(caught.value.partitions) == set(held) - set(first.assignment)
