"""pulsar-wire on a real broker: ranges of ids, micro-batches, what is held and lost, and a sink that stores a repeated micro-batch once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pulsar
import wireproto
from brokers import Pulsar, plugin
from patience import until
from spark.logs import Driven, counts, ends, foreign, forget_last, kept, lags, planned, run, values, watched
from spark.peers import QUIET
from wireproto.errors import DataLoss

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    QUIET,
    pytest.mark.broker("pulsar-4.2.4"),
]
FORM = "pulsar-wire"
WHEN = 1_700_000_000_000
EARLIEST = {"startingOffsets": "earliest"}
Make = Callable[..., str]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Pulsar:
    found = plugin.start(request.config, "pulsar-4.2.4")
    assert isinstance(found, Pulsar)
    if "public/once" not in found.call("GET", "/admin/v2/namespaces/public"):
        found.call("PUT", "/admin/v2/namespaces/public/once")
        found.call("POST", "/admin/v2/namespaces/public/once/deduplication", True)
    return found


@pytest.fixture(scope="module")
def theirs(broker: Pulsar) -> Iterator[Any]:
    client = pulsar.Client(broker.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def topic(broker: Pulsar, fresh: Callable[[str], str]) -> Make:
    """Makes a topic: of so many partitions (0: none), in a namespace."""

    def make(partitions: int = 2, namespace: str = "default") -> str:
        name = f"persistent://public/{namespace}/{fresh('spark')}"
        path = "/admin/v2/" + name.replace("://", "/")
        broker.call("PUT", path + ("/partitions" if partitions else ""), partitions or None)
        return name

    return make


def put(theirs: Any, topic: str, numbers: range, *, batch: int = 10, partition: int | None = None) -> None:
    """Records by the official client, in stored batches of `batch`."""
    name = topic if partition is None else f"{topic}-partition-{partition}"
    producer = theirs.create_producer(
        name,
        batching_enabled=batch > 1,
        batching_max_messages=max(2, batch),
        batching_max_publish_delay_ms=10_000,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for n in numbers:
        producer.send_async(b"%d" % n, lambda *_: None, partition_key=f"k{n}", event_timestamp=WHEN + n, properties={"n": str(n)})
        if batch > 1 and (n + 1) % batch == 0:
            producer.flush()
    producer.flush()
    producer.close()


def take(theirs: Any, topic: str) -> list[bytes]:
    """Everything in a topic, by the official client, in the order of each partition."""
    reader = theirs.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(60_000).data())
    reader.close()
    return found


def frame(spark: SparkSession, broker: Pulsar, topic: str, /, **options: Any) -> DataFrame:
    return spark.read.format(FORM).options(**{"service.url": broker.service, "topic": topic, **options}).load()


def stream(spark: SparkSession, broker: Pulsar, topic: str, /, **options: Any) -> DataFrame:
    return spark.readStream.format(FORM).options(**{"service.url": broker.service, "topic": topic, **options}).load()


def marks(broker: Pulsar, topic: str, subscription: str) -> list[str]:
    """Up to where each partition is acknowledged, as the broker has it."""
    paths = [f"/admin/v2/{topic.replace('://', '/')}-partition-{part}/internalStats" for part in range(2)]
    return [json.loads(broker.call("GET", path))["cursors"][subscription]["markDeletePosition"] for path in paths]


def nobody_attached(broker: Pulsar, topic: str) -> None:
    """Wait until the broker has no producer and no subscription on the topic's two partitions."""
    paths = [f"/admin/v2/{topic.replace('://', '/')}-partition-{part}/stats" for part in range(2)]
    deadline = time.monotonic() + 60
    while any(stats["publishers"] or stats["subscriptions"] for stats in (json.loads(broker.call("GET", path)) for path in paths)):
        assert time.monotonic() < deadline, f"somebody is still attached to {topic}"


# --- batch ---


def test_a_batch_has_every_record_once_with_its_facts(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make) -> None:
    name = topic(3)
    put(theirs, name, range(90))
    rows = frame(spark, broker, name, includeHeaders="true").collect()
    assert sorted(int(row.value) for row in rows) == list(range(90))
    for row in rows:
        n = int(row.value)
        assert (bytes(row.key), row.timestamp.timestamp() * 1000) == (b"k%d" % n, WHEN + n)
        assert [(one.key, bytes(one.value)) for one in row.headers] == [("n", b"%d" % n)]
    assert {row.partition for row in rows} == {0, 1, 2}
    places = [(row.partition, row.ledger, row.entry, row["index"]) for row in rows]
    assert len(set(places)) == 90


def test_ids_bound_a_batch(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make) -> None:
    name = topic(1)
    put(theirs, name, range(50))
    places = {int(row.value): row for row in frame(spark, broker, name).collect()}

    def text(n: int, after: str = "") -> str:
        return f"{places[n].ledger}:{places[n].entry}:{places[n]['index']}{after}"

    def between(start: Any, stop: Any) -> list[int]:
        bounds = {"startingOffsets": json.dumps({name: {"0": start}}), "endingOffsets": json.dumps({name: {"0": stop}})}
        return values(frame(spark, broker, name, **bounds))

    assert between(text(7), text(31)) == list(range(7, 31))
    assert between(text(7, "+"), text(31, "+")) == list(range(8, 32))
    assert between(-2, text(10)) == list(range(10))
    assert between(text(49, "+"), -1) == []


@pytest.mark.parametrize("admin", [True, False])
def test_ranges_are_split(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, admin: bool) -> None:
    name = topic(2)
    for part in range(4):
        put(theirs, name, range(part * 100, part * 100 + 100), batch=5)
        time.sleep(0.1)  # brokers find places by the time of publishing
    more = {"admin.url": broker.admin} if admin else {}
    table = frame(spark, broker, name, minPartitions=6, **more)
    assert values(table) == list(range(400))
    found = table.rdd.getNumPartitions()
    assert found >= 6 if admin else found > 2


def test_a_topic_without_partitions_and_an_empty_one(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make) -> None:
    plain, empty = topic(0), topic(2)
    put(theirs, plain, range(20))
    rows = frame(spark, broker, f"{plain},{empty}").collect()
    assert sorted(int(row.value) for row in rows) == list(range(20))
    assert {row.partition for row in rows} == {-1}


def test_a_time_bounds_a_batch(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make) -> None:
    name = topic(2)
    put(theirs, name, range(20))
    time.sleep(0.05)  # publish times are the brokers' milliseconds
    middle = int(time.time() * 1000)
    put(theirs, name, range(20, 40))
    assert values(frame(spark, broker, name, startingTimestamp=middle, startingOffsetsByTimestampStrategy="latest")) == list(range(20, 40))
    assert values(frame(spark, broker, name, endingTimestamp=middle)) == list(range(20))


# --- stream ---


def test_a_stream_goes_on_where_it_stood(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path) -> None:
    name = topic(2)
    put(theirs, name, range(40))
    table = stream(spark, broker, name, **EARLIEST)
    run(table, tmp_path)
    assert len(frame(spark, broker, name).limit(1).collect()) == 1
    nobody_attached(broker, name)
    put(theirs, name, range(40, 70))
    run(stream(spark, broker, name, **EARLIEST), tmp_path)
    forget_last(tmp_path)
    run(stream(spark, broker, name, **EARLIEST), tmp_path)
    assert kept(spark, tmp_path) == list(range(70))
    assert set(ends(tmp_path)[-1][name]) == {"0", "1"}


def test_rows_and_bytes_bound_a_micro_batch(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path) -> None:
    name = topic(2)
    put(theirs, name, range(100), batch=5)
    reports = run(stream(spark, broker, name, maxOffsetsPerTrigger=30, **EARLIEST), tmp_path / "rows")
    last = json.loads(reports[-1]["sources"][0]["endOffset"])[name]
    told = lags(reports, name)
    assert [ends for _, ends in told] == [last] * len(told)
    assert told[0][0] != last
    found = counts(reports)
    assert sum(found) == 100
    assert max(found) <= 30
    assert len(found) <= 5
    assert kept(spark, tmp_path / "rows") == list(range(100))
    found = counts(run(stream(spark, broker, name, maxBytesPerTrigger=300, **EARLIEST), tmp_path / "bytes"))
    assert kept(spark, tmp_path / "bytes") == list(range(100))
    assert len(found) > 3


def test_an_entry_larger_than_the_limit_is_taken_whole(
    spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    put(theirs, name, range(40), batch=20)
    assert counts(run(stream(spark, broker, name, maxOffsetsPerTrigger=7, **EARLIEST), tmp_path)) == [20, 20]
    assert kept(spark, tmp_path) == list(range(40))


def test_a_subscription_holds_what_is_not_read(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path) -> None:
    name = topic(2)
    put(theirs, name, range(40))
    options = {"subscription": "spark-holds", **EARLIEST}
    run(stream(spark, broker, name, **options), tmp_path)
    put(theirs, name, range(40, 60))
    assert [mark.partition(":")[2] for mark in marks(broker, name, "spark-holds")] == ["-1", "-1"]  # Spark commits with the next batch
    run(stream(spark, broker, name, **options), tmp_path)
    first = ends(tmp_path)[0][name]
    read = [tuple(map(int, first[part].split(":")[:2])) for part in ("0", "1")]
    assert marks(broker, name, "spark-holds") == [f"{ledger}:{entry - 1}" for ledger, entry in read]
    assert kept(spark, tmp_path) == list(range(60))


def test_a_start_that_is_gone_is_told(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make) -> None:
    name = topic(1)
    put(theirs, name, range(40))
    place = min((row.ledger, row.entry) for row in frame(spark, broker, name).collect())
    path = f"/admin/v2/{name.replace('://', '/')}-partition-0"
    broker.call("PUT", path + "/unload")  # the next record goes to another ledger
    put(theirs, name, range(40, 60))
    broker.call("DELETE", path + "/truncate")
    start = {"startingOffsets": json.dumps({name: {"0": f"{place[0]}:{place[1]}:-1"}})}
    rows = values(frame(spark, broker, name, failOnDataLoss="false", **start))
    assert rows == list(range(40, 60))
    with pytest.raises(Exception, match=r"failOnDataLoss"):
        frame(spark, broker, name, **start).count()


def source(broker: Pulsar, topic: str, **options: str) -> Any:
    from wireproto.spark.pulsar import PulsarWire

    return PulsarWire({"topic": topic, "service.url": broker.service, **EARLIEST, **options})


def driven(broker: Pulsar, topic: str, at: Any = None, **options: str) -> Driven:
    return Driven(source(broker, topic, **options), at)


def test_few_records_wait_for_more_or_for_their_time(broker: Pulsar, theirs: Any, topic: Make) -> None:
    name = topic(2)
    put(theirs, name, range(10))
    with (
        driven(broker, name, minOffsetsPerTrigger="5", maxTriggerDelay="1h") as many,
        driven(broker, name, minOffsetsPerTrigger="5", maxTriggerDelay="300ms") as soon,
    ):
        assert many.step() == list(range(10))
        began = time.monotonic()  # before the step from whose planning the time counts
        assert soon.step() == list(range(10))
        put(theirs, name, range(10, 13), batch=1)
        assert many.step() == []
        while not (late := soon.step()):
            pass
        assert late == [10, 11, 12]
        assert time.monotonic() - began >= 0.25
        put(theirs, name, range(13, 15), batch=1)
        assert many.step() == list(range(10, 15))


def test_partitions_added_to_a_running_query_are_read_from_their_beginning(broker: Pulsar, theirs: Any, topic: Make) -> None:
    name = topic(1)
    put(theirs, name, range(5))
    with driven(broker, name) as query:
        assert query.step() == list(range(5))
        broker.call("POST", f"/admin/v2/{name.replace('://', '/')}/partitions", 3)
        for part in range(3):
            put(theirs, name, range(5 + part * 5, 10 + part * 5), partition=part)
        assert query.step() == list(range(5, 20))
        assert set(query.at[name]) == {"0", "1", "2"}
        assert query.step() == []


def read_by(stream: Driven) -> dict[str, str]:
    """What a stream has read in its first micro-batch, as bounds of a batch: places, which mean the same whenever a task runs."""
    start = json.dumps(stream.at)
    assert stream.step()
    return {"startingOffsets": start, "endingOffsets": json.dumps(stream.at)}


def test_a_ledger_that_goes_between_plan_and_task_is_told(
    broker: Pulsar, theirs: Any, topic: Make, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    put(theirs, name, range(10))
    path = f"/admin/v2/{name.replace('://', '/')}-partition-0"
    broker.call("PUT", path + "/unload")  # the next record goes to another ledger
    put(theirs, name, range(10, 15))
    with driven(broker, name) as stream:
        bounds = read_by(stream)
    task, lenient = planned(source(broker, name, **bounds)), planned(source(broker, name, **bounds, failOnDataLoss="false"))
    assert task() == lenient() == list(range(15))
    broker.call("PUT", path + "/unload")
    put(theirs, name, range(15, 16))
    broker.call("DELETE", path + "/truncate")
    with pytest.raises(DataLoss, match=r"was to be read from .* and now begins at .*failOnDataLoss to false"):
        task()
    assert lenient() == []
    assert any("was to be read from" in line and "and now begins at" in line for line in caplog.messages)


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_topic_made_again_fails_a_stream_or_is_passed_over_as_asked(broker: Pulsar, theirs: Any, topic: Make, partitions: int) -> None:
    name = topic(partitions)
    put(theirs, name, range(5))
    with driven(broker, name) as before:
        bounds = read_by(before)
        task, lenient_task = planned(source(broker, name, **bounds)), planned(source(broker, name, **bounds, failOnDataLoss="false"))
        assert task() == list(range(5))
        path = "/admin/v2/" + name.replace("://", "/")
        rest = "/partitions" if partitions else ""
        broker.call("DELETE", f"{path}{rest}?force=true")
        with driven(broker, name, before.at) as orphan, pytest.raises(Exception, match=f"no topic '{name}': create it"):
            orphan.step()
        with pytest.raises(DataLoss, match=r"was to be read up to .* and is not there any more.*failOnDataLoss to false"):
            task()
        assert lenient_task() == []
        broker.call("PUT", path + rest, partitions or None)
        put(theirs, name, range(10, 13))
        with pytest.raises(DataLoss, match=r"was to be read from .* and now begins at .*failOnDataLoss to false"):
            task()
        assert lenient_task() == []
        with driven(broker, name, before.at) as strict, driven(broker, name, before.at, failOnDataLoss="false") as lenient:
            with pytest.raises(Exception, match=r"spark.* was to be read from .* and now begins at .*failOnDataLoss"):
                strict.step()
            assert lenient.step() == [10, 11, 12]


# --- write ---


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id as string) as value", "concat('k', id % 7) as key")


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_batch_is_written_with_keys_and_headers(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, partitions: int) -> None:
    name = topic(partitions)
    table = numbers(spark, 250).selectExpr("*", "array(struct('h' as key, cast(value as binary) as value)) as headers")
    table.write.format(FORM).options(**{"service.url": broker.service, "topic": name, "batchRows": 40}).mode("append").save()
    reader = theirs.create_reader(name, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(60_000)
        n = int(message.data())
        assert (message.partition_key(), message.properties()) == (f"k{n % 7}", {"h": str(n)})
        found.append(n)
    reader.close()
    assert sorted(found) == list(range(250))


@pytest.mark.parametrize("batch_rows", [pytest.param(1, marks=pytest.mark.soak), 7, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_micro_batch_run_again_is_stored_once(
    spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path, batch_rows: int
) -> None:
    source, target = topic(2), topic(3, "once")
    put(theirs, source, range(100))
    options = {"service.url": broker.service, "admin.url": broker.admin, "topic": target, "batchRows": batch_rows}
    for round_ in range(3):
        table = stream(spark, broker, source, maxOffsetsPerTrigger=60, **EARLIEST).select("key", "value")
        run(table, tmp_path, FORM, **options)
        assert sorted(int(value) for value in take(theirs, target)) == list(range(100)), f"round {round_}"
        forget_last(tmp_path)
    put(theirs, source, range(100, 130))
    run(stream(spark, broker, source, **EARLIEST).select("key", "value"), tmp_path, FORM, **options)
    assert sorted(int(value) for value in take(theirs, target)) == list(range(130))


def test_half_a_micro_batch_run_again_is_completed(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path) -> None:
    """The first run dies at a row in the middle, when whole batches of the task are stored."""
    source, target = topic(1), topic(2, "once")
    put(theirs, source, range(200), batch=50)
    options = {"service.url": broker.service, "admin.url": broker.admin, "topic": target, "batchRows": 20}
    switch = tmp_path / "broken"
    switch.write_text("")
    path = str(switch)

    def passed(batches: Any) -> Any:
        from pathlib import Path

        import pyarrow as pa

        for batch in batches:
            for start in range(0, batch.num_rows, 10):
                part = batch.slice(start, 10)
                if Path(path).exists() and b"150" in part.column("value").to_pylist():
                    raise RuntimeError("the task dies here")
                yield pa.RecordBatch.from_arrays(part.columns, schema=part.schema)

    def table() -> DataFrame:
        return stream(spark, broker, source, **EARLIEST).select("key", "value").mapInArrow(passed, "key binary, value binary")

    with pytest.raises(Exception, match="dies here"):
        run(table(), tmp_path, FORM, **options)
    nobody_attached(broker, target)
    some = len(take(theirs, target))
    switch.unlink()
    run(table(), tmp_path, FORM, **options)
    found = [int(value) for value in take(theirs, target)]
    assert sorted(found) == list(range(200))
    assert some <= 150


def test_deduplication_switched_off_between_two_queries_of_a_session_is_noticed(
    spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """The worker that checks has found it on before; the micro-batch that runs again would be stored twice."""
    switched = fresh("switched")  # another one where it is run once more (`late.py`)
    namespace = f"/admin/v2/namespaces/public/{switched}"
    broker.call("PUT", namespace)
    broker.call("POST", f"{namespace}/deduplication", True)
    source, target = topic(1), topic(2, switched)
    put(theirs, source, range(25))
    options = {"service.url": broker.service, "admin.url": broker.admin, "topic": target}

    def again() -> None:
        run(stream(spark, broker, source, **EARLIEST).select("key", "value"), tmp_path, FORM, **options)

    again()
    forget_last(tmp_path)
    again()
    broker.call("POST", f"{namespace}/deduplication", False)
    with wireproto.connect(broker.service, admin=broker.admin) as client:
        until(lambda: client.admin().deduplication(f"{target}-partition-0") != "Enabled", "the broker has switched it off")
    forget_last(tmp_path)
    with pytest.raises(Exception, match=r"not de-duplicated.*atLeastOnce=true"):
        again()
    assert sorted(int(value) for value in take(theirs, target)) == list(range(25))


def test_a_broker_that_repeats_is_refused_unless_asked_for(
    spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path
) -> None:
    source, target = topic(1), topic(1)
    put(theirs, source, range(10))
    options = {"service.url": broker.service, "topic": target}
    sign = tmp_path / "sign"
    table = watched(stream(spark, broker, source, **EARLIEST).select("value"), sign)
    with pytest.raises(Exception, match=r"admin\.url.*atLeastOnce=true"):
        run(table, tmp_path / "a", FORM, **options)
    with pytest.raises(Exception, match=r"not de-duplicated.*atLeastOnce=true"):
        run(table, tmp_path / "a", FORM, **options, **{"admin.url": broker.admin})
    with pytest.raises(Exception, match=r"there is no topic '.*nowhere': create it"):
        run(table, tmp_path / "a", FORM, **{**options, "topic": "persistent://public/default/nowhere"})
    assert not sign.exists(), "a task began"
    assert take(theirs, target) == []
    for _ in range(2):
        run(table, tmp_path / "a", FORM, atLeastOnce="true", **options)
        forget_last(tmp_path / "a")
    assert sorted(int(value) for value in take(theirs, target)) == sorted([*range(10)] * 2)


# --- mistakes ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"startingOffsets": '{"TOPIC": {"0": 23, "1": -2}}'}, "startingOffsets.*no message id"),
        ({"startingOffsets": '{"TOPIC": {"0": -2}}'}, "startingOffsets must name every partition"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"maxRecordsPerPartition": "5"}, "maxRecordsPerPartition.*minPartitions"),
        ({"topic": "persistent://public/default/nowhere"}, "no topic .*nowhere.*create it"),
        ({"topic": ""}, "option topic is missing"),
        ({"service.url": ""}, "service.url"),
        ({"pulsar.conect_timeout": "5"}, "connect_timeout"),
    ],
)
def test_a_mistake_is_named_on_the_driver(spark: SparkSession, broker: Pulsar, topic: Make, options: dict[str, str], said: str) -> None:
    name = topic(2)
    given = {key: value.replace("TOPIC", name) for key, value in options.items()}
    with pytest.raises(Exception, match=f"(?s){said}"):
        frame(spark, broker, name, **given).count()


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["key"], {}, "attribute 'value' not found"),
        (["id as value"], {}, "value is bigint.*cast"),
        (["value", "1 as key"], {}, "key is int"),
        (["value", "1 as more", "2 as more"], {}, "more more than once.*rename"),
        (["value"], {"topic": "persistent://public/default/nowhere"}, "no topic .*nowhere.*create it"),
        (["value"], {"pulsar.linger": "1"}, "pulsar.linger"),
        (["value"], {"batchRows": "0"}, "batchRows"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    spark: SparkSession, broker: Pulsar, topic: Make, columns: list[str], options: dict[str, str], said: str
) -> None:
    table = spark.range(2).selectExpr("id", "'k' as key", "'v' as value").selectExpr(*columns)
    with pytest.raises(Exception, match=f"(?s){said}"):
        table.write.format(FORM).options(**{"service.url": broker.service, "topic": topic(1), **options}).mode("append").save()


def test_a_checkpoint_of_another_source_is_refused(spark: SparkSession, broker: Pulsar, theirs: Any, topic: Make, tmp_path: Path) -> None:
    name = topic(1)
    put(theirs, name, range(10))
    run(stream(spark, broker, name, **EARLIEST), tmp_path)
    foreign(tmp_path, '{"orders":{"0":23}}')
    put(theirs, name, range(10, 20))
    with pytest.raises(Exception, match=r"(?s)offsets of another source.*checkpointLocation of its own"):
        run(stream(spark, broker, name, **EARLIEST), tmp_path)
