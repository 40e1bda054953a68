"""Where a subscription that does not exist yet begins, on a real broker: at the place that is given, in each partition."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import new_topic
from patience import LONG
from wireproto import EARLIEST, LATEST, AtTime, MessageId
from wireproto.errors import OptionError

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)
_groups = itertools.count()
SIZE = 4
"""Records of a batch."""


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


def batch_of(client: Any, topic: str, partition: int, number: int, *, batching: bool = True) -> list[MessageId]:
    """Send the records "<partition>-<number>-<index>", in one batch if `batching`; their positions."""
    with client.producer(topic, linger=LONG, batching=batching) as producer:
        receipts = [producer.send(b"%d-%d-%d" % (partition, number, index), partition=partition) for index in range(SIZE)]
        producer.flush()
        return [receipt.position(LONG) for receipt in receipts]


@pytest.fixture
def written(broker: Pulsar, client: Any) -> tuple[str, dict[int, list[MessageId]], int]:
    """A topic with two partitions, each of two batches and then four single records; the positions, and a time behind the first batch."""
    topic = new_topic(broker, partitions=2)
    places: dict[int, list[MessageId]] = {0: [], 1: []}
    for partition in (0, 1):
        places[partition] += batch_of(client, topic, partition, 0)
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    for partition in (0, 1):
        places[partition] += batch_of(client, topic, partition, 1)
        places[partition] += batch_of(client, topic, partition, 2, batching=False)
    return topic, places, between


def behind(partition: int, first: int) -> list[bytes]:
    """Values of a partition from the record with this number on."""
    return [b"%d-%d-%d" % (partition, number // SIZE, number % SIZE) for number in range(first, 3 * SIZE)]


def first_polled(client: Any, topic: str, expected: int, *, group: str | None = None, **options: Any) -> tuple[str, list[bytes]]:
    """Values that a member of a new group is handed out until there are enough, and in a moment behind them, sorted; the group."""
    name = group or f"g-{next(_groups)}"
    found: list[bytes] = []
    with client.consumer(topic, name, **options) as log:
        while len(found) < expected:
            batch = log.poll(20.0)
            assert batch is not None, sorted(found)
            found += batch.values()
        more = log.poll(0.5)
        found += [] if more is None else more.values()
    return name, sorted(found)


def test_a_new_group_begins_at_one_place_of_all_partitions(client: Any, written: Any) -> None:
    topic, _, between = written
    for start, first in ((EARLIEST, 0), (AtTime(between), SIZE), (AtTime(0), 0)):
        expected = sorted(behind(0, first) + behind(1, first))
        assert first_polled(client, topic, len(expected), start=start)[1] == expected, start


@pytest.mark.parametrize("start", [LATEST, AtTime(2**42)], ids=["latest", "a time to come"])
def test_a_new_group_begins_at_the_end(client: Any, written: Any, start: Any) -> None:
    topic, _, _ = written
    with client.consumer(topic, f"g-{next(_groups)}", start=start) as log:
        assert log.poll(1.0) is None
        for partition in (0, 1):
            batch_of(client, topic, partition, 3)
        found: list[bytes] = []
        while len(found) < 2 * SIZE:
            batch = log.poll(20.0)
            assert batch is not None, found
            found += batch.values()
        assert sorted(found) == sorted(b"%d-3-%d" % (partition, index) for partition in (0, 1) for index in range(SIZE))


@pytest.mark.parametrize("after", [False, True], ids=["at", "behind"])
@pytest.mark.parametrize("first", [0, 1, SIZE - 1, SIZE, SIZE + 2, 2 * SIZE - 1, 2 * SIZE, 2 * SIZE + 1, 3 * SIZE - 1])
def test_a_new_group_begins_at_the_position_given_in_each_partition(client: Any, written: Any, first: int, after: bool) -> None:
    """In the other partition at another one. Also within a batch, and behind a record; and there it resumes, for another member.

    Behind the last record of a batch the broker resumes with that batch, whose size nobody has told it, until something is committed.
    """
    topic, places, _ = written
    here, there = places[0][first], places[1][SIZE + 1]
    if after:
        here = MessageId(topic, 0, here.ledger, here.entry, here.index, after=True)
    start = {(topic, 0): here, (topic, 1): there}
    expected = sorted(behind(0, first + after) + behind(1, SIZE + 1))
    group, found = first_polled(client, topic, len(expected), start=start)
    assert found == expected
    if after and first in (SIZE - 1, 2 * SIZE - 1):
        expected = sorted(behind(0, first + 1 - SIZE) + behind(1, SIZE + 1))
    assert first_polled(client, topic, len(expected), start=LATEST, group=group)[1] == expected, "it resumes elsewhere"


def test_a_position_given_for_one_partition_leaves_the_other_at_its_beginning(client: Any, written: Any) -> None:
    topic, places, _ = written
    expected = sorted(behind(0, 5) + behind(1, 0))
    assert first_polled(client, topic, len(expected), start={(topic, 0): places[0][5]})[1] == expected


def test_a_group_that_exists_goes_on_where_it_is_whatever_start_is_given(client: Any, written: Any) -> None:
    topic, places, between = written
    with client.consumer(topic, "there", start=EARLIEST) as log:
        log.commit({(topic, partition): places[partition][SIZE] for partition in (0, 1)})
    expected = sorted(behind(0, SIZE) + behind(1, SIZE))
    for start in (EARLIEST, LATEST, AtTime(0), AtTime(between), {(topic, partition): places[partition][9] for partition in (0, 1)}):
        assert first_polled(client, topic, len(expected), start=start, group="there")[1] == expected, start


@pytest.mark.parametrize("place", [EARLIEST, LATEST, AtTime(1)], ids=["earliest", "latest", "time"])
def test_a_mapping_of_other_places_than_positions_is_refused_and_makes_no_group(client: Any, written: Any, place: Any) -> None:
    topic, places, _ = written
    name = f"refused-{next(_groups)}"
    with pytest.raises(OptionError, match="begins"):
        client.consumer(topic, name, start={(topic, 0): places[0][1], (topic, 1): place})
    assert name not in client.admin().list_groups()
