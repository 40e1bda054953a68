"""Ends of kafka-wire's micro-batches committed to a group for lag tools: when, by what, and what is said where that fails."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from spark.embedded import filled, lines, source
from spark.logs import Driven, run
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError
from wireproto.position import LogOffset
from wireproto.spark.listener import Lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as found:
        yield found


def test_a_commit_that_is_refused_is_told_and_the_query_goes_on(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled(broker, "told-commit", 3)
    with Driven(source(broker, subscribe=topic, commitOffsetsToGroup="lag")) as query, wireproto.connect(broker.url("kafka")) as client:
        assert query.step() == [0, 1, 2]
        assert client.admin().group_positions("lag", topic) == {(topic, 0): wireproto.LogOffset(topic, 0, 3)}
        with client.producer(topic) as out:
            out.send(b"3")
        with client.consumer(topic, "lag", start=wireproto.EARLIEST) as member:
            while not member.assignment:
                member.poll(1.0)
            assert query.step() == [3]
            (line,) = lines(caplog)
            assert line.startswith("kafka-wire: the ends of a micro-batch were not committed: ")
            assert "lag" in line
            with pytest.raises(OptionError, match=r"the group lag has members \(.+\).*name a group without members"):
                Driven(source(broker, subscribe=topic, commitOffsetsToGroup="lag"))


def test_a_commit_for_a_topic_that_was_deleted_meanwhile_is_told(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled(broker, "told-late-commit", 3)
    with Driven(source(broker, subscribe=topic, commitOffsetsToGroup="late")) as query, wireproto.connect(broker.url("kafka")) as client:
        assert query.step() == [0, 1, 2]
        assert lines(caplog) == []
        client.admin().delete_topic(topic)
        query.stream.commit({topic: {"0": 2}})
        assert lines(caplog) == [f"kafka-wire: the ends of {topic}-0 were not committed: these partitions do not exist"]


class Report:
    """A progress report, as far as the listener looks at it."""

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


def test_lag_is_told_and_ends_are_committed_when_a_micro_batch_is_done(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled(broker, "told-lag", 3, 9)
    done = Report(endOffset=f'{{"{topic}": {{"0": 3, "1": 5.0}}}}', latestOffset=f'{{"{topic}": {{"0": 3, "1": 9}}}}', numInputRows=8)
    other = Report(endOffset='"12:3:-1"', latestOffset=None, numInputRows=1)
    progress = Report(name="orders", id="x", batchId=7, sources=[done, other])
    with caplog.at_level(logging.INFO, "wireproto.spark"), wireproto.connect(broker.url("kafka")) as client:
        Lag(client, "told-night").onQueryProgress(Report(progress=progress))
        assert client.admin().group_positions("told-night", topic) == {
            (topic, 0): wireproto.LogOffset(topic, 0, 3),
            (topic, 1): wireproto.LogOffset(topic, 1, 5),
        }
        Lag(client, "told-other", "another").onQueryProgress(Report(progress=progress))
        assert client.admin().group_positions("told-other", topic) == {}
    first, second = [json.loads(record.getMessage()) for record in caplog.records][:2]
    assert first == {"query": "orders", "batch": 7, "rows": 8, "behind": {"min": 0, "avg": 2.0, "max": 4}}
    assert second == {"query": "orders", "batch": 7, "rows": 1}
    with pytest.raises(OptionError, match="client and group go together: pass both, or neither"):
        Lag(None, "told-night")


class Waiting(Lag):
    """Sets an event when a micro-batch was told."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.told = threading.Event()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        super().onQueryProgress(event)
        self.told.set()


@pytest.mark.parametrize("version", ["4.2", "4.0"])
def test_a_micro_batch_is_committed_when_news_are_asked_for_though_there_are_none(
    broker: DevBroker, fresh: Callable[[str], str], version: str
) -> None:
    """Spark calls `commit` when it plans a micro-batch with rows: on a quiet topic never."""
    topic = filled(broker, fresh("told-quiet"), 3)

    with wireproto.connect(broker.url("kafka")) as client:

        def committed() -> Any:
            return [place.offset for place in client.admin().group_positions(topic, topic).values()]

        with Driven(source(broker, subscribe=topic, commitOffsetsToGroup=topic)) as query:
            end = query.asked(version)
            query.stream.partitions(query.at, end)
            assert committed() == []  # it may not be done yet
            query.at = end
            assert query.asked(version) == end
            assert committed() == [3]
            client.admin().commit(topic, {(topic, 0): LogOffset(topic, 0, 1)})
            query.asked(version)
            assert committed() == [1]  # once is enough
        with Driven(source(broker, subscribe=topic, commitOffsetsToGroup=topic), end) as query:
            if version == "4.0":
                query.stream.partitions(end, end)  # so it hears where the query goes on
            query.asked(version)
            assert committed() == [3]


def test_a_commit_that_failed_is_tried_again_when_news_are_asked_for(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh: Callable[[str], str]
) -> None:
    topic = filled(broker, fresh("told-tried"), 3)
    with Driven(source(broker, subscribe=topic, commitOffsetsToGroup=topic)) as query, wireproto.connect(broker.url("kafka")) as client:
        with client.consumer(topic, topic, start=wireproto.EARLIEST) as member:
            while not member.assignment:
                member.poll(1.0)
            monkeypatch.setattr(query.stream.log, "check_group", lambda client: None)
            query.step()
            query.step()
            assert len(lines(caplog)) == 1  # not each time that Spark asks
        query.stream._commit_again = 0.0  # its pause is over
        query.step()
        assert client.admin().group_positions(topic, topic) == {(topic, 0): LogOffset(topic, 0, 3)}
        assert len(lines(caplog)) == 1


def test_a_querys_last_micro_batch_is_committed_though_no_other_follows(
    broker: DevBroker, spark: SparkSession, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """By the option, and by a listener."""
    topic = filled(broker, fresh("told-last"), 4)  # another one where it is run once more (`late.py`)
    group, ours = f"{topic}-group", f"{topic}-option"
    options = {"kafka.bootstrap.servers": broker.address("kafka"), "subscribe": topic, "startingOffsets": "earliest"}
    options["commitOffsetsToGroup"] = ours
    with wireproto.connect(broker.url("kafka")) as client:
        listener = Waiting(client, group)
        spark.streams.addListener(listener)
        try:
            run(spark.readStream.format("kafka-wire").options(**options).load(), tmp_path)
            assert listener.told.wait(60.0)
        finally:
            spark.streams.removeListener(listener)
        for name in (group, ours):
            assert client.admin().group_positions(name, topic) == {(topic, 0): LogOffset(topic, 0, 4)}, name
