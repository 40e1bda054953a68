"""Positions: their own place, round trips, start, stop, seek, by time, and the end as it stood at open."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.helpers import records, values, write
from conformance.seats import Seat
from wireproto import EARLIEST, LATEST, AtTime
from wireproto.position import format_positions, parse_position, parse_positions, positions_from_json, positions_to_json

SENT = [b"%d" % number for number in range(10)]


def test_a_start_at_a_position_reads_that_record_again(client: Any, topic: str) -> None:
    positions = write(client, topic, SENT)
    for number in (0, 4, 9):
        assert values(client, topic, start=positions[number]) == SENT[number:]
        key = (topic, positions[number].partition)
        assert values(client, topic, start={key: positions[number]}) == SENT[number:]


def test_text_and_json_round_trip(client: Any, topic: str) -> None:
    position = write(client, topic, SENT)[3]
    assert parse_position(position.text(), topic, position.partition) == position
    mapping = {(topic, position.partition): position}
    assert parse_positions(format_positions(mapping), topic) == mapping
    assert positions_from_json(positions_to_json(mapping)) == mapping
    assert values(client, topic, start=parse_positions(format_positions(mapping), topic)) == SENT[3:]
    assert values(client, topic, start=positions_from_json(positions_to_json(mapping))) == SENT[3:]


def test_a_stop_is_the_first_position_not_read(client: Any, topic: str) -> None:
    positions = write(client, topic, SENT)
    assert values(client, topic, stop=positions[4]) == SENT[:4]
    assert values(client, topic, start=positions[2], stop=positions[7]) == SENT[2:7]
    assert values(client, topic, start=positions[5], stop=positions[5]) == []


def test_next_positions_resume_without_gap_or_repeat(client: Any, topic: str) -> None:
    write(client, topic, SENT)
    first: list[bytes | None] = []
    resume: dict[Any, Any] = {}
    with client.reader(topic, stop=LATEST) as reader:
        for batch in reader:
            first += batch.values()
            resume |= batch.next_positions
    assert first == SENT
    more = [b"more%d" % number for number in range(5)]
    write(client, topic, more)
    assert values(client, topic, start=resume) == more
    again = positions_from_json(positions_to_json(resume))
    assert again == resume
    assert values(client, topic, start=again) == more


def test_seek_in_an_open_reader(client: Any, topic: str) -> None:
    positions = write(client, topic, SENT)
    with client.reader(topic, stop=LATEST) as reader:
        assert [value for batch in reader for value in batch.values()] == SENT
        assert reader.done
        reader.seek(positions[6])
        assert not reader.done
        assert [value for batch in reader for value in batch.values()] == SENT[6:]
        reader.seek(EARLIEST)
        assert [value for batch in reader for value in batch.values()] == SENT


def test_latest_as_a_stop_is_fixed_when_the_reader_opens(client: Any, topic: str) -> None:
    write(client, topic, SENT)
    with client.reader(topic, stop=LATEST) as reader:
        assert not reader.done
        write(client, topic, [b"later"])
        assert [value for batch in reader for value in batch.values()] == SENT
        assert reader.done
        assert reader.poll(timeout=0.1) is None


def test_latest_as_a_start_reads_only_what_comes_then(client: Any, topic: str) -> None:
    write(client, topic, SENT)
    with client.reader(topic, start=LATEST) as reader:
        assert reader.poll(timeout=0.3) is None
        write(client, topic, [b"new"])
        deadline = time.monotonic() + 30
        batch = None
        while batch is None:
            assert time.monotonic() < deadline
            batch = reader.poll(timeout=1.0)
        assert batch.values() == [b"new"]


def test_an_empty_topic_ends_at_once(client: Any, topic: str) -> None:
    began = time.monotonic()
    assert records(client, topic, limit=10.0) == []
    assert time.monotonic() - began < 10.0


def test_empty_partitions_reach_their_end_too(seat: Seat, client: Any, fresh: Any) -> None:
    if not seat.features.partitions:
        pytest.skip("has no partitions")
    topic = fresh(partitions=3)
    write(client, topic, SENT, partition=1)
    read = records(client, topic, limit=20.0)
    assert [record.value for record in read] == SENT
    assert {record.partition for record in read} == {1}
    with client.reader(topic, start=LATEST, stop=LATEST) as reader:
        assert list(reader) == []
        assert reader.done


def test_a_mapping_picks_partitions(seat: Seat, client: Any, fresh: Any) -> None:
    if not seat.features.partitions:
        pytest.skip("has no partitions")
    topic = fresh(partitions=3)
    for partition in range(3):
        write(client, topic, [b"%d-%d" % (partition, number) for number in range(4)], partition=partition)
    starts = client.admin().positions(topic, EARLIEST)
    assert sorted(partition for _, partition in starts) == [0, 1, 2]
    picked = {(topic, 2): starts[topic, 2]}
    assert values(client, topic, start=picked) == [b"2-0", b"2-1", b"2-2", b"2-3"]


def test_admin_positions_bound_what_is_read(client: Any, topic: str) -> None:
    positions = write(client, topic, SENT)
    admin = client.admin()
    begin, end = admin.positions(topic, EARLIEST), admin.positions(topic, LATEST)
    assert list(begin) == list(end) == [(topic, positions[0].partition)]
    assert values(client, topic, start=begin, stop=end) == SENT
    write(client, topic, [b"later"])
    assert values(client, topic, start=begin, stop=end) == SENT
    assert values(client, topic, start=end) == [b"later"]


def test_start_and_stop_by_time(seat: Seat, client: Any, topic: str) -> None:
    if seat.features.time_of == "record":
        with client.producer(topic) as producer:
            for number in range(10):
                producer.send(b"%d" % number, timestamp=1_600_000_000_000 + number * 1000)
            producer.flush(30.0)
        middle = 1_600_000_000_000 + 4_500
    else:
        write(client, topic, SENT[:5])
        time.sleep(0.3)  # clocks of both sides are this machine's; records must fall into different milliseconds
        middle = int(time.time() * 1000)
        time.sleep(0.3)
        write(client, topic, SENT[5:])
    assert values(client, topic, start=AtTime(middle)) == SENT[5:]
    assert values(client, topic, stop=AtTime(middle)) == SENT[:5]
    assert values(client, topic, start=AtTime(0)) == SENT
    assert values(client, topic, start=AtTime(int(time.time() * 1000) + 3_600_000)) == []
    with client.reader(topic, stop=LATEST) as reader:
        list(reader)
        reader.seek(AtTime(middle))
        assert [value for batch in reader for value in batch.values()] == SENT[5:]
