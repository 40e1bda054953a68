"""What a program does over again, as under the JVM's connector: patterns, a frame that is used twice, a first micro-batch cut short."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from spark.logs import forget_last
from spark.peers import QUIET
from spark.streams import JVM, WIRE, drain, expire, frame, kept, make, offsets, put, stream
from wireproto.errors import OptionError
from wireproto.spark.java_pattern import java_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from brokers import Kafka

pytestmark = [
    QUIET,
    pytest.mark.broker("kafka-4.3.1-transactions"),
]
Fresh = Callable[[str], str]
Filled = Callable[..., str]

SEED = int(time.time()) // 86_400
PIECES = r"""
a orders ^ $ . - .* a+ o? (a|b) (?:x) (?i) (?<n>o) \k<n> \1 \d \w \W \b \B \p{Alpha} \P{Alpha} \p{L} \p{Lu} \pL \p{Punct} \Q.o\E \Q- \x{6f}
\x6f \u006f \0157 \e \h \R \z \Z \A [a-c] [^a-c] []o] [-o] [o-] [\p{Lower}9] [\d_] [a~~] [a||b] [a--b] [.] a{2} a{1,} a{1,2}+ o*? o++ (?=o)
(?!o) (?<=-) (?<!-) (?>o) \. \- \_ ] } && #
"""
NAMES = ["orders", "my-orders", "orders.eu", "ORDERS", "a", "aa_b", "_x", "9", "o.o", "x-y-z", "abc", "a]", "c-1"]


def test_a_pattern_chooses_what_java_s_does_or_is_refused(jvm: SparkSession) -> None:
    """Each piece, and some of two beside each other: where ours takes a pattern that Java takes, it finds the same names."""
    java: Any = jvm._jvm.java.util  # type: ignore[union-attr]
    names = java.ArrayList()
    for name in NAMES:
        names.add(name)
    taken = refused = 0
    pairs = [one + two for one, two in itertools.product(PIECES.split(), repeat=2)]
    for text in [*PIECES.split(), *random.Random(SEED).sample(pairs, 500)]:
        try:
            ours = java_pattern(text)
        except OptionError:
            refused += 1
            continue
        try:
            theirs = java.regex.Pattern.compile(text)
        except Exception:  # py4j's error for PatternSyntaxException
            continue
        taken += 1
        found = names.stream().filter(theirs.asPredicate()).toList().toString()  # all at once: each call into the JVM costs a millisecond
        assert f"[{', '.join(name for name in NAMES if ours.search(name))}]" == found, f"{text!r}, seed {SEED}"
    assert taken > 300
    assert refused < 200


@pytest.mark.parametrize("pattern", ["PAT", "PAT$", "^PAT", "PAT-.*", "(?<n>PAT)-eu", "__consumer.*|PAT-eu"])
def test_a_pattern_reads_the_topics_that_the_connector_reads(jvm: SparkSession, kafka: Kafka, pattern: str) -> None:
    stem = "pat-orders"
    with wireproto.connect(kafka.url) as client:
        known = client.admin().list_topics()
    for topic in {stem, f"{stem}-eu", f"my-{stem}"} - set(known):
        make(kafka, topic)
        put(kafka, topic, [(None, topic.encode())])
    found = [
        sorted(row.topic for row in frame(jvm, kafka, form, subscribePattern=pattern.replace("PAT", stem)).select("topic").collect())
        for form in (JVM, WIRE)
    ]
    assert found[0] == found[1]
    assert found[0]


def count(table: DataFrame) -> int:
    return table.selectExpr("count(*) as n", "max(offset) as m").collect()[0].n


@pytest.mark.parametrize(
    "options", [{}, {"minPartitions": "5"}, {"startingOffsets": '{"TOPIC":{"0":-2,"1":3}}'}, {"startingTimestamp": "1"}]
)
def test_a_frame_shows_at_each_use_what_is_there_then(jvm: SparkSession, kafka: Kafka, filled: Filled, options: dict[str, str]) -> None:
    topic = filled("again", [(None, b"%d" % n, n % 2) for n in range(40)], partitions=2)
    named = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    frames = [frame(jvm, kafka, form, subscribe=topic, **named) for form in (JVM, WIRE)]
    first = [count(table) for table in frames]
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(40, 60)])
    second = [count(table) for table in frames]
    expire(kafka, topic, 0, 4)
    third = [count(table) for table in frames]
    assert first[0] == first[1]
    assert second[0] == second[1] == first[0] + 20
    assert third[0] == third[1] == second[0] - 4


def test_a_frame_of_empty_partitions_shows_what_comes(jvm: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("again-empty", partitions=3)
    table = frame(jvm, kafka, subscribe=topic)
    assert count(table) == 0
    put(kafka, topic, [(None, b"x", n % 3) for n in range(7)])
    assert count(table) == 7


def test_a_bound_that_is_an_offset_stays(jvm: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("again-fixed", [(None, b"%d" % n) for n in range(20)])
    table = frame(jvm, kafka, subscribe=topic, endingOffsets=json.dumps({topic: {"0": 15}}))
    assert count(table) == 15
    put(kafka, topic, [(None, b"x")])
    assert count(table) == 15
    expire(kafka, topic, 0, 18)
    with pytest.raises(Exception, match="some data may have been lost"):
        count(frame(jvm, kafka, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 2}})))


def cut_short(jvm: SparkSession, kafka: Kafka, form: str, topic: str, folder: Path) -> None:
    """A stream from latest whose first micro-batch held records and was not committed: start 10, end 30, 10 more behind it."""
    put(kafka, topic, [(None, b"%d" % n) for n in range(10)])
    drain(stream(jvm, kafka, form, subscribe=topic, startingOffsets="latest"), folder)
    assert offsets(folder) == [{topic: {"0": 10}}]
    forget_last(folder)
    (folder / "rows" / "_spark_metadata" / "0").unlink()  # the files know of the micro-batch no more than the checkpoint
    if form == JVM:
        path = folder / "checkpoint" / "offsets" / "0"
        path.write_text(path.read_text().replace('"0":10', '"0":30'))
    put(kafka, topic, [(None, b"%d" % n) for n in range(10, 40)])


def test_a_first_batch_of_the_connector_that_was_not_finished_is_not_passed_over(
    jvm: SparkSession, kafka: Kafka, tmp_path: Path, fresh: Fresh
) -> None:
    """Its start is where only the connector looks. Told as lost; with failOnDataLoss off the query goes on at its end."""
    topic = fresh("cut-short")
    make(kafka, topic)
    cut_short(jvm, kafka, JVM, topic, tmp_path)
    with pytest.raises(Exception, match="planned by another connector and not finished"):
        drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="latest"), tmp_path)
    drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="latest", failOnDataLoss="false"), tmp_path)
    assert sorted(int(row.value) for row in kept(jvm, tmp_path).collect()) == list(range(30, 40))


@pytest.mark.no_rerun
def test_a_first_batch_of_ours_that_was_not_finished_loses_nothing(jvm: SparkSession, kafka: Kafka, tmp_path: Path, fresh: Fresh) -> None:
    topic = fresh("cut-short")
    make(kafka, topic)
    cut_short(jvm, kafka, WIRE, topic, tmp_path)
    drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="latest"), tmp_path)
    assert sorted(int(row.value) for row in kept(jvm, tmp_path).collect()) == list(range(10, 40))


def test_the_connector_goes_on_from_a_place_that_ours_pinned(jvm: SparkSession, kafka: Kafka, tmp_path: Path, fresh: Fresh) -> None:
    topic = fresh("pinned")
    make(kafka, topic, 2)
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(10)])
    drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="latest"), tmp_path)
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(10, 30)])
    drain(stream(jvm, kafka, JVM, subscribe=topic, startingOffsets="latest"), tmp_path)
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(30, 40)])
    reports = drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="latest"), tmp_path)
    assert sorted(int(row.value) for row in kept(jvm, tmp_path).collect()) == list(range(10, 40))
    assert sum(report["numInputRows"] for report in reports) == 10


def test_a_pinned_place_without_news_makes_no_further_micro_batch(jvm: SparkSession, kafka: Kafka, tmp_path: Path, fresh: Fresh) -> None:
    topic = fresh("quiet")
    make(kafka, topic)
    put(kafka, topic, [(None, b"0")])
    for _ in range(2):
        drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="latest"), tmp_path)
    assert offsets(tmp_path) == [{topic: {"0": 1}}]
