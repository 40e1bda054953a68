"""rocketmq-wire on real brokers of both lines: offsets and times, micro-batches, and a sink whose repeated records can be known."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from brokers import RocketMQ, judge, plugin
from patience import until
from spark.logs import Driven, counts, ends, forget_last, kept, lags, planned, run, values, watched
from spark.peers import QUIET
from wireproto.errors import DataLoss, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = QUIET
FORM = "rocketmq-wire"
EARLIEST = {"startingOffsets": "earliest"}
Make = Callable[..., str]


@pytest.fixture(scope="module", params=["rocketmq-4.9.7", "rocketmq-5.5.0"])
def broker(request: pytest.FixtureRequest) -> RocketMQ:
    found = plugin.start(request.config, request.param)
    assert isinstance(found, RocketMQ)
    return found


@pytest.fixture
def topic(broker: RocketMQ, fresh: Callable[[str], str]) -> Make:
    """Makes a topic of so many queues."""

    def make(queues: int = 2) -> str:
        name = fresh("spark")
        with wireproto.connect(broker.url) as client:
            client.admin().create_topic(name, partitions=queues)
        return name

    return make


def put(broker: RocketMQ, topic: str, numbers: range, queues: int = 2) -> None:
    """A queue shows a record a moment after its receipt: it does when this returns."""
    with wireproto.connect(broker.url) as client:
        admin: Any = client.admin()

        def shown() -> int:
            return sum(place.offset for place in admin.positions(topic).values())

        before = shown()
        with client.producer(topic) as out:
            for n in numbers:
                out.send(b"%d" % n, key=b"k%d" % n, headers={"n": b"%d" % n}, partition=n % queues)
            out.flush()
        until(lambda: shown() >= before + len(numbers), "what was stored is not shown")


def servers(broker: RocketMQ) -> dict[str, str]:
    return {"nameServer": broker.name_server}


def frame(spark: SparkSession, broker: RocketMQ, topic: str, /, **options: Any) -> DataFrame:
    return spark.read.format(FORM).options(**{"topic": topic, **servers(broker), **options}).load()


def stream(spark: SparkSession, broker: RocketMQ, topic: str, /, **options: Any) -> DataFrame:
    return spark.readStream.format(FORM).options(**{"topic": topic, **servers(broker), **options}).load()


def test_offsets_and_times_bound_a_batch(spark: SparkSession, broker: RocketMQ, topic: Make) -> None:
    name = topic()
    put(broker, name, range(40))
    time.sleep(0.05)  # store times are the broker's milliseconds
    middle = int(time.time() * 1000)
    put(broker, name, range(40, 60))
    rows = frame(spark, broker, name, includeHeaders="true", minPartitions=5)
    assert rows.rdd.getNumPartitions() >= 5
    found = rows.collect()
    assert sorted(int(row.value) for row in found) == list(range(60))
    assert all(bytes(row.key) == b"k" + bytes(row.value) and row.headers[0].key == "n" for row in found)
    assert {(row.partition, row.offset) for row in found} == {(queue, offset) for queue in (0, 1) for offset in range(30)}
    bounds = {"startingOffsets": json.dumps({name: {"0": 5, "1": -2}}), "endingOffsets": json.dumps({name: {"0": 10, "1": 3}})}
    assert values(frame(spark, broker, name, **bounds)) == sorted([*range(10, 20, 2), 1, 3, 5])
    assert values(frame(spark, broker, name, startingTimestamp=middle)) == list(range(40, 60))
    assert values(frame(spark, broker, name, endingTimestamp=middle)) == list(range(40))


def test_a_stream_has_its_limit_and_goes_on_where_it_stood(spark: SparkSession, broker: RocketMQ, topic: Make, tmp_path: Path) -> None:
    name = topic()
    put(broker, name, range(40))
    reports = run(stream(spark, broker, name, maxOffsetsPerTrigger=16, **EARLIEST), tmp_path)
    assert counts(reports) == [16, 16, 8]
    assert lags(reports, name) == [({"broker-a/0": end, "broker-a/1": end}, {"broker-a/0": 20, "broker-a/1": 20}) for end in (8, 16, 20)]
    put(broker, name, range(40, 60))
    run(stream(spark, broker, name, **EARLIEST), tmp_path)
    forget_last(tmp_path)
    run(stream(spark, broker, name, **EARLIEST), tmp_path)
    assert kept(spark, tmp_path) == list(range(60))
    assert ends(tmp_path)[-1] == {name: {"broker-a/0": 30, "broker-a/1": 30}}


def test_a_stream_begins_at_a_time(spark: SparkSession, broker: RocketMQ, topic: Make, tmp_path: Path) -> None:
    name = topic()
    put(broker, name, range(20))
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    put(broker, name, range(20, 30))
    run(stream(spark, broker, name, startingTimestamp=middle), tmp_path)
    assert kept(spark, tmp_path) == list(range(20, 30))


def test_offsets_that_are_not_there_are_told(spark: SparkSession, broker: RocketMQ, topic: Make) -> None:
    name = topic(1)
    put(broker, name, range(10), queues=1)
    bounds = {"endingOffsets": json.dumps({name: {"0": 15}})}
    with pytest.raises(Exception, match="failOnDataLoss"):
        frame(spark, broker, name, **bounds).count()
    assert values(frame(spark, broker, name, failOnDataLoss="false", **bounds)) == list(range(10))


def widen(broker: RocketMQ, topic: str, queues: int) -> None:
    """Give the topic more queues, as its administrators do: it is made once more."""
    with wireproto.connect(broker.url) as client:
        admin = client.admin()
        (master,) = client.cluster.drive(client.cluster.masters(time.monotonic() + 30), time.monotonic() + 30)
        client.cluster.drive(admin._creating(master, topic, queues, {}, time.monotonic() + 30), time.monotonic() + 30)
        while len(admin.describe_topic(topic).partitions) < queues:
            pass


def source(broker: RocketMQ, topic: str, **options: str) -> Any:
    from wireproto.spark.rocketmq import RocketMQWire

    return RocketMQWire({"topic": topic, **servers(broker), **EARLIEST, **options})


def driven(broker: RocketMQ, topic: str, at: Any = None, **options: str) -> Driven:
    return Driven(source(broker, topic, **options), at)


def test_few_records_wait_for_more_or_for_their_time(broker: RocketMQ, topic: Make) -> None:
    name = topic()
    put(broker, name, range(10))
    with (
        driven(broker, name, minOffsetsPerTrigger="5", maxTriggerDelay="1h") as many,
        driven(broker, name, minOffsetsPerTrigger="5", maxTriggerDelay="300ms") as soon,
    ):
        assert many.step() == list(range(10))
        began = time.monotonic()  # before the step from whose planning the time counts
        assert soon.step() == list(range(10))
        put(broker, name, range(10, 13))
        assert many.step() == []
        while not (late := soon.step()):
            pass
        assert late == [10, 11, 12]
        assert time.monotonic() - began >= 0.25
        put(broker, name, range(13, 15))
        assert many.step() == list(range(10, 15))


def test_queues_added_to_a_running_query_are_read_and_all_is_committed_to_a_group(broker: RocketMQ, topic: Make) -> None:
    name = topic(1)
    put(broker, name, range(5), queues=1)
    group = f"GID-{name}"
    with driven(broker, name, commitOffsetsToGroup=group) as query:
        assert query.step() == list(range(5))
        widen(broker, name, 3)
        put(broker, name, range(5, 15), queues=3)
        assert query.step() == list(range(5, 15))
        assert set(query.at[name]) == {"broker-a/0", "broker-a/1", "broker-a/2"}
        assert query.step() == []
    with wireproto.connect(broker.url) as client:
        found = [place.text() for place in client.admin().group_positions(group, name).values()]
    assert found == [f"{queue}:{offset}" for queue, offset in sorted(query.at[name].items())]


def test_a_topic_made_again_fails_a_stream_or_is_passed_over_as_asked(broker: RocketMQ, topic: Make) -> None:
    name = topic(1)
    put(broker, name, range(10), queues=1)
    with driven(broker, name) as before:
        assert before.step() == list(range(10))
    soon = {"rocketmq.timeout": "3"}  # it asks so long whether the topic comes again
    task, lenient_task = (planned(source(broker, name, **soon, failOnDataLoss=text)) for text in ("true", "false"))
    with wireproto.connect(broker.url) as client:
        client.admin().delete_topic(name)
        with pytest.raises(DataLoss, match=rf"{name}-0 was to be read up to .* and is not there any more.*failOnDataLoss to false"):
            task()
        assert lenient_task() == []
        with driven(broker, name, before.at) as orphan, pytest.raises(Exception, match=f"no topic '{name}': create it"):
            orphan.step()
        client.admin().create_topic(name)
    put(broker, name, range(10, 13), queues=1)
    with driven(broker, name, before.at) as strict, driven(broker, name, before.at, failOnDataLoss="false") as lenient:
        with pytest.raises(Exception, match=f"{name}-0 went back from broker-a/0:10 to broker-a/0:3.*failOnDataLoss"):
            strict.step()
        assert lenient.step() == []
        put(broker, name, range(13, 15), queues=1)
        assert lenient.step() == [13, 14]


@pytest.mark.parametrize("offsets", [{"orders": {"0": "12:3:-1"}}, {"rate": 5}, {"orders": {"0": -1}}, 7])
def test_a_checkpoint_of_another_source_is_refused(broker: RocketMQ, topic: Make, offsets: Any) -> None:
    with (
        driven(broker, topic(1), offsets) as query,
        pytest.raises(OptionError, match=r"offsets of another source.*rocketmq-wire.*checkpointLocation of its own"),
    ):
        query.step()


def test_a_stream_into_a_missing_topic_is_refused_before_a_task_begins(
    spark: SparkSession, broker: RocketMQ, topic: Make, tmp_path: Path
) -> None:
    name, sign = topic(1), tmp_path / "sign"
    put(broker, name, range(4), queues=1)
    table = watched(stream(spark, broker, name, **EARLIEST).select("value"), sign)
    with pytest.raises(Exception, match="no topic 'nowhere': create it"):
        run(table, tmp_path, FORM, topic="nowhere", **servers(broker))
    assert not sign.exists()


def ids(broker: RocketMQ, topic: str) -> Counter[tuple[int, bytes | None]]:
    """(value, the property that tells a repeated record) of everything in a topic."""
    with wireproto.connect(broker.url) as client:
        reader = client.reader(topic, stop=wireproto.LATEST)
        return Counter((int(record.value), dict(record.headers).get("wireproto_id")) for batch in reader for record in batch)


def test_a_batch_is_written(spark: SparkSession, broker: RocketMQ, topic: Make) -> None:
    name = topic(3)
    table = spark.range(0, 250, 1, 2).selectExpr(
        "cast(id as string) as value", "concat('k', id % 7) as key", "array(struct('h' as key, cast('x' as binary) as value)) as headers"
    )
    table.write.format(FORM).options(topic=name, **servers(broker)).mode("append").save()
    rows = frame(spark, broker, name, includeHeaders="true").collect()
    assert sorted(int(row.value) for row in rows) == list(range(250))
    assert all(bytes(row.key) == b"k%d" % (int(row.value) % 7) for row in rows)
    assert all({one.key for one in row.headers} == {"h", "wireproto_id"} for row in rows)
    assert len(ids(broker, name)) == 250


def test_times_of_rows_are_written_and_read(spark: SparkSession, broker: RocketMQ, topic: Make) -> None:
    """Each row its own, in few commands: the first row of each has that one's time, and no property that tells it."""
    name = topic(1)
    table = spark.range(0, 4000, 1, 1).selectExpr("cast(id as string) as value", "timestamp_millis(1700000000000 + id * 7) as timestamp")
    table.write.format(FORM).options(topic=name, includeTimestamp="true", **servers(broker)).mode("append").save()
    rows = frame(spark, broker, name, includeHeaders="true").selectExpr("value", "unix_millis(timestamp) as ms", "headers").collect()
    assert sorted((int(row.value), row.ms) for row in rows) == [(n, 1_700_000_000_000 + 7 * n) for n in range(4000)]
    assert all([one.key for one in row.headers] == ["wireproto_id"] for row in rows)
    found = judge.ask(broker.version, "pull", broker.name_server, name)
    assert len({item["born"] for item in found}) == len([item for item in found if "BORN_TIMESTAMP" not in item["properties"]]) <= 20


def test_a_repeated_micro_batch_has_the_ids_of_the_first(spark: SparkSession, broker: RocketMQ, topic: Make, tmp_path: Path) -> None:
    source, target = topic(), topic()
    put(broker, source, range(30))
    table = stream(spark, broker, source, **EARLIEST).select("key", "value")
    for _ in range(2):
        run(table, tmp_path, FORM, topic=target, **servers(broker))
        forget_last(tmp_path)
    found = ids(broker, target)
    assert set(found.values()) == {2}
    assert sorted(value for value, _ in found) == list(range(30))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"topic": "nowhere"}, "no topic .*nowhere.*create it"),
        ({"topic": ""}, "option topic is missing"),
        ({"nameServer": ""}, "nameServer"),
    ],
)
def test_a_mistake_is_named_on_the_driver(spark: SparkSession, broker: RocketMQ, topic: Make, options: dict[str, str], said: str) -> None:
    name = topic()
    with pytest.raises(Exception, match=f"(?s){said}"):
        frame(spark, broker, name, **options).count()


def test_a_limit_by_bytes_is_refused(spark: SparkSession, broker: RocketMQ, topic: Make, tmp_path: Path) -> None:
    name = topic()
    put(broker, name, range(4))
    table = stream(spark, broker, name, maxBytesPerTrigger=5, **EARLIEST)
    with pytest.raises(Exception, match=r"maxBytesPerTrigger.*maxOffsetsPerTrigger"):
        run(table, tmp_path)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["key"], {}, "attribute 'value' not found"),
        (["value", "1 as key"], {}, "key is int"),
        (["value"], {"topic": "nowhere"}, "no topic .*nowhere.*create it"),
        (["cast(null as string) as value"], {}, "null value"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    spark: SparkSession, broker: RocketMQ, topic: Make, columns: list[str], options: dict[str, str], said: str
) -> None:
    table = spark.range(2).selectExpr("'k' as key", "'v' as value").selectExpr(*columns)
    with pytest.raises(Exception, match=f"(?s){said}"):
        table.write.format(FORM).options(**{**servers(broker), "topic": topic(1), **options}).mode("append").save()
