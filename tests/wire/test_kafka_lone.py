"""Who follows one partition: the short way from a plain answer to the next Fetch, and whatever comes between."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from chance import seed
from patience import until
from wireproto import EARLIEST, LATEST, LogOffset
from wireproto.devbroker import DevBroker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), max_wait=0.05, linger=0.0) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    name = f"lone-{next(_numbers)}"
    client.admin().create_topic(name, partitions=1)
    return name


def sent(producer: Any, *numbers: int, size: int = 0) -> None:
    for number in numbers:
        receipt = producer.send(b"%d" % number + b" " * size)
    receipt.position(20.0)


def test_who_follows_one_partition_goes_the_short_way(client: Any, topic: str) -> None:
    """From the second Fetch on; an answer without records is the long way's, and the short one is taken again behind it."""
    with client.producer(topic) as producer, client.reader(topic, start=EARLIEST) as reader:
        ways = []
        for number in range(6):
            sent(producer, number)
            batch = reader.poll(20.0)
            assert batch.values() == [b"%d" % number]
            assert batch.next_positions == {(topic, 0): LogOffset(topic, 0, number + 1)}
            ways.append(reader._fetcher._only_waits() > 0.0)
            if number == 3:
                assert reader.poll(0.2) is None
        assert ways[1:] == [True] * 5


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_whatever_comes_between_nothing_is_lost_or_read_again(broker: DevBroker, client: Any, topic: str, isolation: str) -> None:
    """Random lives: sends, polls, seeks, pauses, lost connections, other topics of the same reader's client, refusals."""
    chance = random.Random(f"{seed()} {isolation}")
    count = expected = 0
    with client.producer(topic) as producer, client.reader(topic, start=EARLIEST, isolation=isolation) as reader:
        for _ in range(200):
            what = chance.choice(["send", "send", "send", "poll", "poll", "poll", "poll", "seek", "pause", "cut", "refuse", "quiet"])
            if what == "send":
                more = chance.choice([1, 1, 1, 2, 30])
                sent(producer, *range(count, count + more), size=chance.choice([0, 0, 3000]))
                count += more
            elif what == "seek":
                expected = chance.randrange(max(0, count - 40), count + 1)
                reader.seek(LogOffset(topic, 0, expected))
            elif what == "cut":
                broker.faults("kafka").disconnect("Fetch")
            elif what == "refuse":
                broker.faults("kafka").error("Fetch", 6)
            elif what == "quiet" and expected == count:
                assert reader.poll(0.01) is None
            elif what == "poll" and expected < count:
                batch = reader.poll(20.0)
                assert batch is not None, (expected, count)
                assert [int(value) for value in batch.values()] == list(range(expected, expected + len(batch)))
                expected += len(batch)
                assert reader.positions == {(topic, 0): LogOffset(topic, 0, expected)}
        while expected < count:
            expected += len(reader.poll(20.0))
    assert expected == count


def test_the_stop_is_kept(client: Any, topic: str) -> None:
    with client.producer(topic) as producer:
        sent(producer, *range(3))
        with client.reader(topic, start=EARLIEST, stop=LogOffset(topic, 0, 7)) as reader:
            found = [int(value) for value in reader.poll(20.0).values()]
            for number in range(3, 12):
                sent(producer, number)
                batch = reader.poll(20.0) if len(found) < 7 else None
                found += [int(value) for value in batch.values()] if batch is not None else []
            assert found == list(range(7))
            assert reader.done


def test_what_was_reserved_is_given_back(client: Any, topic: str) -> None:
    with client.producer(topic) as producer:
        with client.reader(topic, start=LATEST) as reader:
            reader.poll(0.0)
            for number in range(5):
                sent(producer, number)
                assert reader.poll(20.0) is not None
                assert client.cluster.fetch_budget.held <= client.cluster.options.partition_bytes
        assert client.cluster.fetch_budget.held == 0


def test_a_member_whose_partition_goes_reads_no_more_of_it(client: Any, topic: str) -> None:
    often = {"start": EARLIEST, "heartbeat_interval": 0.1}
    with client.producer(topic) as producer, client.consumer(topic, "lone-group", **often) as member:
        for number in range(4):
            sent(producer, number)
            batch = member.poll(20.0)
            assert batch is not None
            assert batch.values() == [b"%d" % number]
        member.commit()
        with client.consumer(topic, "lone-group", **often) as second:
            members = (member, second)

            def shared() -> bool:
                """Both are in it, and one has the partition: until then what the first has in hand may come again to the second."""
                if any(each.poll(0.05) for each in members) or sum(len(each.assignment) for each in members) != 1:
                    return False
                group = client.admin().describe_group("lone-group")
                return group.state == "Stable" and len(group.members) == 2

            until(shared, "one has it")
            sent(producer, 4, 5)
            found: list[bytes] = []

            def both() -> bool:
                for each in members:
                    batch = each.poll(0.1)
                    found.extend(batch.values() if batch is not None else [])
                return len(found) >= 2

            until(both, "both have come")
            assert found == [b"4", b"5"]
