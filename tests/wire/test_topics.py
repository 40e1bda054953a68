"""Rows of many topics in one batch: each goes to the topic that its column names, whatever the protocol."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pyarrow as pa
import pytest

from wireproto import LATEST
from wireproto._codec import Columns, topic_shares
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, TimedOut, UsageError, ValueUnsupported

PROTOCOLS = ("kafka", "pulsar", "rocketmq")
_numbers = itertools.count()


@pytest.fixture(scope="module", params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topics(client: Any) -> tuple[str, str]:
    """Two of two partitions each."""
    made = f"rows-{next(_numbers)}", f"rows-{next(_numbers)}"
    for name in made:
        client.admin().create_topic(name, partitions=2)
    return made


def read(client: Any, topic: str) -> dict[bytes, int]:
    """Values, and their partitions, in order within each."""
    with client.reader(topic, stop=LATEST) as reader:
        return {record.value: record.partition for batch in reader for record in batch}


def rows(names: list[str], **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"topic": names, "value": [b"%d" % number for number in range(len(names))], **columns})


def test_each_row_goes_to_the_topic_that_it_names(client: Any, topics: tuple[str, str]) -> None:
    one, two = topics
    with client.producer() as out:
        receipts = out.send_batch(rows([one, two, one, two, two], partition=pa.array([0, 1, 1, 0, 1], pa.int32())))
        out.flush(30.0)
        assert {receipt.position(0.0).topic for receipt in receipts} == {one, two}
    assert read(client, one) == {b"0": 0, b"2": 1}
    found = read(client, two)
    assert found == {b"1": 1, b"3": 0, b"4": 1}
    assert [value for value in found if found[value] == 1] == [b"1", b"4"], "rows of a partition keep their order"


def test_a_table_of_chunks_has_its_topics_too_and_one_for_all_goes_before_the_column(client: Any, topics: tuple[str, str]) -> None:
    one, two = topics
    table = pa.Table.from_batches([rows([one, two]).slice(1), rows([one])])
    with client.producer() as out:
        out.send_batch(table, partition=0)
        out.send_batch(table, topic=one, partition=1)
        out.flush(30.0)
    assert sorted(read(client, one)) == [b"0", b"1"]
    assert sorted(read(client, two)) == [b"1"]


def test_rows_without_a_topic_are_refused_and_none_is_taken(client: Any, topics: tuple[str, str]) -> None:
    with client.producer() as out:
        for batch in (Columns.from_rows([b"x"]), pa.RecordBatch.from_pydict({"value": [b"x"]})):
            with pytest.raises(ValueUnsupported, match="no column 'topic'"):
                out.send_batch(batch)
        for names in (pa.array([topics[0], None]), pa.array([topics[0].encode(), b"\xff"])):
            with pytest.raises(ValueUnsupported, match="'topic'"):
                out.send_batch(pa.RecordBatch.from_pydict({"value": [b"x", b"y"], "topic": names}))
        with pytest.raises(ValueUnsupported, match="'topic' is 'l'"):
            out.send_batch(pa.RecordBatch.from_pydict({"value": [b"x"], "topic": [7]}))
        out.flush(30.0)
    assert read(client, topics[0]) == {}
    with pytest.raises((Closed, UsageError)):
        out.send_batch(rows([topics[0]]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_the_column_may_be_text_of_any_width(kind: pa.DataType) -> None:
    names = ["a", "b", "b", "", "a topic with a longer name than a view holds", "a"]
    batch = pa.RecordBatch.from_pydict({"value": [b"0", b"1", b"2", b"3", b"4", b"5"], "topic": pa.array(names, pa.string()).cast(kind)})
    shares = [(name, part.values()) for name, part in topic_shares(batch.slice(1))]
    assert shares == [("b", [b"1", b"2"]), ("", [b"3"]), (names[4], [b"4"]), ("a", [b"5"])]


def test_no_rows_go_nowhere() -> None:
    assert topic_shares(rows([])) == topic_shares(Columns.from_rows([])) == []


def test_the_first_record_of_a_topic_keeps_its_time(
    dial: Any, topics: tuple[str, str], faults: Any, protocol: str, broker: DevBroker
) -> None:
    """Though nobody says where the topic is; the client's own time is 30 s."""
    with dial().producer() as out:
        faults.drop({"kafka": "Metadata", "pulsar": "partitionMetadata", "rocketmq": "GetRouteInfoByTopic"}[protocol], times=-1)
        began = time.monotonic()
        with pytest.raises(TimedOut):
            out.send(b"x", topic=topics[0], timeout=0.5)
        assert time.monotonic() - began < 15.0
        faults.clear()
        broker.kick(protocol)  # what was never answered is not waited for
        assert out.send(b"x", topic=topics[0]).position(30.0).topic == topics[0]
