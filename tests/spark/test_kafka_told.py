"""What kafka-wire says, and to whom: losses passed over, commits that fail, options that Java has otherwise. No JVM is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

import wireproto
from spark.embedded import filled, lines, source
from spark.logs import Driven, planned
from wireproto.devbroker import DevBroker
from wireproto.errors import DataLoss, OptionError, TransportError, ValueUnsupported
from wireproto.kafka.codes import UnknownTopicOrPartition
from wireproto.position import LogOffset
from wireproto.spark.kafka import KafkaWire
from wireproto.spark.kafka_options import client_config
from wireproto.spark.kafka_sink import KafkaSink
from wireproto.spark.sink import pairs

if TYPE_CHECKING:
    pass


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as found:
        yield found


def test_what_is_lost_is_told_where_it_does_not_fail_the_query(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    filled(broker, "told-gone", 3)
    filled(broker, "told-stays", 2)
    options = {"subscribePattern": "told-(gone|stays)"}
    with Driven(source(broker, **options, failOnDataLoss="false")) as lenient, Driven(source(broker, **options)) as strict:
        assert lenient.step() == strict.step() == [0, 0, 1, 1, 2]
        assert lines(caplog) == []
        with wireproto.connect(broker.url("kafka")) as client:
            client.admin().delete_topic("told-gone")
        with pytest.raises(DataLoss):
            strict.step()
        assert lines(caplog) == []  # an error is enough
        assert lenient.step() == []
    (line,) = lines(caplog)
    assert line.startswith("kafka-wire: some data may have been lost")
    assert line.endswith("partitions told-gone-0 have been deleted")


def test_a_gap_that_a_task_meets_is_told_where_it_does_not_fail_the_query(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Offsets are given: an end that is a word is asked for again, and shows no gap."""
    topic = filled(broker, "told-gap", 5, 5)
    ends = {"startingOffsets": f'{{"{topic}": {{"0": 0, "1": 0}}}}', "endingOffsets": f'{{"{topic}": {{"0": 5, "1": 5}}}}'}
    strict = planned(source(broker, subscribe=topic, **ends))
    lenient = planned(source(broker, subscribe=topic, **ends, failOnDataLoss="false"))
    broker.call("kafka", "trim", topic, 0, 3)  # the beginning is gone from the one
    broker.call("kafka", "elect", topic, 1, 0)  # and all of the other
    with pytest.raises(DataLoss, match=rf"{topic}-0 was to be read in \[0, 5\) and now holds \[3, 5\)"):
        strict()
    assert lines(caplog) == []  # an error is enough
    assert lenient() == [3, 4]
    begin, end = lines(caplog)
    assert begin.startswith("kafka-wire: some data may have been lost")
    assert begin.endswith(f"{topic}-0 was to be read in [0, 5) and now holds [3, 5)")
    assert end.endswith(f"{topic}-1 was to be read up to 5 and now ends at 0")


@pytest.mark.parametrize("tries", [1, 2])
def test_a_stream_outlives_an_outage_by_as_many_tries_as_it_has(
    fresh_dev_broker: DevBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tries: int
) -> None:
    """Each try has its own time, in which a late machine reads on: that of the first is over before the broker is back."""
    broker = fresh_dev_broker
    topic = filled(broker, "told-outage", 3)
    known = {"kafka.default.api.timeout.ms": "3000", "fetchOffset.retryIntervalMs": "0", "fetchOffset.numRetries": str(tries)}
    with Driven(source(broker, subscribe=topic, **known)) as query:
        assert query.step() == [0, 1, 2]
        real, failures = query.stream.log.partitions, []

        def back_when_it_failed(client: Any) -> Any:
            try:
                return real(client)
            except TransportError as why:
                failures.append(why)
                broker.resume("kafka")
                raise

        monkeypatch.setattr(query.stream.log, "partitions", back_when_it_failed)
        broker.pause("kafka")
        if tries == 1:
            with pytest.raises(TransportError):
                query.step()
        else:
            assert query.step() == []
            (line,) = lines(caplog)
            assert line.startswith("kafka-wire: brokers are asked again, 1 times more at most: ")
        assert len(failures) == 1


def test_a_micro_batch_waits_for_the_brokers_that_it_writes_to(fresh_dev_broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer is made anew, by a client that was never connected; a batch that is only starting is told at once."""
    broker = fresh_dev_broker
    filled(broker, "told-target", 0)
    schema = StructType([StructField("value", BinaryType())])
    to = KafkaWire({"kafka.bootstrap.servers": broker.address("kafka"), "topic": "told-target"})
    real, failures = KafkaSink.check, []

    def back_when_it_failed(sink: KafkaSink, client: Any, *, stream: bool) -> None:
        try:
            real(sink, client, stream=stream)
        except TransportError as why:
            failures.append(why)
            if len(failures) > 1:
                broker.resume("kafka")
            raise

    monkeypatch.setattr(KafkaSink, "check", back_when_it_failed)
    broker.pause("kafka")
    with pytest.raises(TransportError):
        to.writer(schema, overwrite=False)
    assert len(failures) == 1
    to.streamWriter(schema, overwrite=False)
    assert len(failures) == 2


def test_a_mistake_in_a_streams_sink_is_not_waited_for(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(KafkaSink, "open", lambda sink: calls.append(1) or wireproto.connect(sink.url, **sink.options))
    known = {"kafka.bootstrap.servers": broker.address("kafka"), "topic": "told-nowhere"}
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'told-nowhere': create it"):
        KafkaWire(known).streamWriter(StructType([StructField("value", BinaryType())]), overwrite=False)
    assert calls == [1]


def test_the_driver_waits_for_brokers_as_long_as_javas_client() -> None:
    known = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "x"}
    assert KafkaWire(known).settings().client["timeout"] == 60.0
    assert KafkaWire({**known, "kafka.default.api.timeout.ms": "500"}).settings().client["timeout"] == 0.5


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_first_micro_batch_runs_again_though_its_topic_has_grown(broker: DevBroker, fresh: Callable[[str], str], start: str) -> None:
    """Spark asks for the place to begin at again then, and the new partition is in it: that is no partition which was deleted."""
    topic = filled(broker, fresh("told-grown"), 3)
    with Driven(source(broker, subscribe=topic, startingOffsets=start)) as killed:
        end = json.loads(json.dumps(killed.stream.latestOffset(killed.at, killed.stream.getDefaultReadLimit())))
    broker.call("kafka", "grow", topic, 2)
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as out:
        out.send(b"7", partition=1)
    with Driven(source(broker, subscribe=topic, startingOffsets=start)) as again:
        parts = again.stream.partitions(again.at, end)
        found = [value for part in parts for batch in again.stream.read(part) for value in batch.column(0).to_pylist()]
        assert found == ([b"0", b"1", b"2"] if start == "earliest" else [])
        again.at = end
        assert again.step() == [7]


def test_assigned_partitions_that_are_not_there_are_told_and_the_others_read(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled(broker, "told-assign", 2, 1)
    assert planned(source(broker, assign=f'{{"{topic}": [0, 1, 7]}}'))() == [0, 0, 1]
    (line,) = lines(caplog)
    assert line == f"kafka-wire: option assign names {topic}-7, which the cluster does not have: the others are read"
    with pytest.raises(OptionError, match=f"assign names {topic}-7, {topic}-8, which the cluster does not have"):
        planned(source(broker, assign=f'{{"{topic}": [7, 8]}}'))


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
@pytest.mark.parametrize("nothing", ["{{}}", '{{"{topic}": {{}}}}'])
def test_offsets_that_name_no_partition_are_refused(broker: DevBroker, fresh: Callable[[str], str], option: str, nothing: str) -> None:
    """They were read as if nothing was given: a batch had all of the topic, and a stream began at its end."""
    topic = filled(broker, fresh("told-none"), 3)
    given = {option: nothing.format(topic=topic)}
    words = "" if option.endswith("ByTimestamp") else r" \(-1 is latest, -2 earliest\)"  # which no time may be
    with pytest.raises(
        OptionError, match=rf"{option} must name every partition that is read, and no other{words}: it.*there are {topic}-0"
    ):
        planned(KafkaWire({"kafka.bootstrap.servers": broker.address("kafka"), "subscribe": topic, **given}))
    if option.startswith("starting"):
        with pytest.raises(OptionError, match=f"{option} must name every partition"):
            Driven(KafkaWire({"kafka.bootstrap.servers": broker.address("kafka"), "subscribe": topic, **given}))


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"])
def test_a_time_that_no_record_reaches_names_the_option_that_gave_it(broker: DevBroker, fresh: Callable[[str], str], option: str) -> None:
    topic = filled(broker, fresh("told-late"), 3)
    late = {
        "startingTimestamp": str(1 << 50),
        "startingOffsetsByTimestamp": f'{{"{topic}": {{"0": {1 << 50}}}}}',
        "startingOffsets": f"@{1 << 50}",
    }
    made = KafkaWire({"kafka.bootstrap.servers": broker.address("kafka"), "subscribe": topic, option: late[option]})
    for begin in (planned, Driven):
        with pytest.raises(OptionError, match=rf"^{option}: No offset matched: no record of {topic}-0 .*TimestampStrategy=latest"):
            begin(made)


@pytest.mark.parametrize("columns", ["offset bigint, timestamp timestamp", "timestamp timestamp"])
def test_a_time_beyond_spark_s_is_told_with_its_record(broker: DevBroker, fresh: Callable[[str], str], columns: str) -> None:
    """Spark counts microseconds in what the records count milliseconds in."""
    kinds = {"bigint": LongType(), "timestamp": TimestampType()}
    schema = StructType([StructField(name, kinds[kind]) for name, kind in map(str.split, columns.split(", "))])
    topic = filled(broker, fresh("told-far"), 0)
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as out:
        for ms in (0, 9_223_372_036_854_775, 9_223_372_036_854_776):
            out.send(b"v", timestamp=ms, partition=0)
    reader = KafkaWire({"kafka.bootstrap.servers": broker.address("kafka"), "subscribe": topic}).reader(schema)
    (part,) = reader.partitions()
    with pytest.raises(ValueUnsupported, match=r"9223372036854776 ms.*without the column timestamp") as told:
        list(reader.read(part))
    assert (told.value.topic, told.value.partition, told.value.position) == (
        topic,
        0,
        LogOffset(topic, 0, 2) if "offset" in columns else None,
    )
    assert f"before {LogOffset(topic, 0, 3)}" in str(told.value)


@pytest.mark.parametrize("end", [{}, {"endingTimestamp": "1000"}, {"endingOffsets": "latest"}])
def test_a_batch_that_starts_behind_its_end_fails_or_is_told(
    broker: DevBroker, fresh: Callable[[str], str], caplog: pytest.LogCaptureFixture, end: dict[str, str]
) -> None:
    """An offset that was kept may lie behind the end of a topic that was made again: nothing was read there, and nothing said."""
    topic = filled(broker, fresh("told-behind"), 3, 3)
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1, "1": 9}}}}', **end}
    if "endingTimestamp" in end:
        with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as out:
            for partition in (0, 1):
                out.send(b"3", partition=partition, timestamp=1000)
    with pytest.raises(DataLoss, match=rf"{topic}-[01] starts at \d, behind its end \d"):
        planned(source(broker, **options))
    assert lines(caplog) == []
    assert planned(source(broker, **options, failOnDataLoss="false"))() == ([] if "endingTimestamp" in end else [1, 2])
    assert any(f"{topic}-1 starts at 9, behind its end" in line for line in lines(caplog))


def test_a_batch_whose_times_are_the_wrong_way_round_is_refused(broker: DevBroker) -> None:
    with pytest.raises(OptionError, match=r"startingTimestamp \(9\) is later than endingTimestamp \(8\)"):
        planned(
            KafkaWire(
                {"kafka.bootstrap.servers": broker.address("kafka"), "subscribe": "x", "startingTimestamp": "9", "endingTimestamp": "8"}
            )
        )


@pytest.mark.parametrize("moment", ["-1", "-2", "-3", "9223372036854775808"])
def test_times_that_no_record_has_are_refused(broker: DevBroker, fresh: Callable[[str], str], moment: str) -> None:
    """A broker takes -1 for the end of the log, and -2 for its beginning."""
    topic = filled(broker, fresh("told-time"), 3)
    for option in ("startingTimestamp", "endingTimestamp"):
        with pytest.raises(OptionError, match=f"option {option} is '{moment}'; it takes one number of milliseconds since 1970"):
            planned(source(broker, subscribe=topic, **{option: moment}))
    for option in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=f"option {option} is .*; it takes JSON like"):
            planned(source(broker, subscribe=topic, **{option: f'{{"{topic}": {{"0": {moment}}}}}'}))


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_SSL", "INTERNAL-1"])
def test_addresses_may_have_javas_listener_names_before_them(broker: DevBroker, listener: str) -> None:
    topic = filled(broker, f"told-{listener}", 1)
    servers = f"{listener}://{broker.address('kafka')}, {listener}://127.0.0.1:1"
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    assert planned(KafkaWire(options))() == [0]


def test_headers_may_come_in_sparks_large_types(broker: DevBroker) -> None:
    rows = [[("a", b"1"), ("b", None)], None, []]
    kind = pa.list_(pa.struct([pa.field("key", pa.large_string()), pa.field("value", pa.large_binary())]))
    found = pairs(pa.array(rows, kind))
    assert found.type == pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))
    assert found.to_pylist() == [[{"name": "a", "value": b"1"}, {"name": "b", "value": None}], None, []]


@pytest.mark.parametrize("row", [[("a", b"1"), None], [(None, b"1")]])
def test_a_header_that_is_null_is_the_tables_mistake(row: list[Any]) -> None:
    """It was told as bytes which are not what the protocol says."""
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    with pytest.raises(ValueUnsupported, match="the column headers has a header that is null, or one whose key is"):
        pairs(pa.array([None, row], kind))


@pytest.mark.parametrize(
    ("option", "value", "taken"),
    [
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", True),
        ("ssl.enabled.protocols", "TLSv1.1, TLSv1.2, TLSv1.3", True),
        ("ssl.enabled.protocols", "TLSv1.3", False),
        ("ssl.enabled.protocols", "TLSv1.2", False),
        ("ssl.protocol", "TLSv1.3", True),
        ("ssl.protocol", "SSLv3", False),
    ],
)
def test_versions_of_tls_are_what_is_asked_for_or_refused(option: str, value: str, taken: bool) -> None:
    if taken:
        assert client_config({"security.protocol": "SSL", option: value}) == {"tls": True}
    else:
        with pytest.raises(OptionError, match=r"kafka\.ssl\.protocol and kafka\.ssl\.enabled\.protocols: TLS 1\.2 and 1\.3 are spoken"):
            client_config({"security.protocol": "SSL", option: value})


def test_a_stream_that_cannot_be_made_says_why_where_spark_shows_it(broker: DevBroker) -> None:
    """PySpark calls `stop` of what streamReader gave, whatever happened: it hides an error raised there behind one of its own."""
    found = source(broker, subscribe="any", endingTimestamp="5").streamReader(None)  # type: ignore[arg-type]  # not looked at
    with pytest.raises(OptionError, match="endingTimestamp is not valid in a streaming query"):
        found.initialOffset()
    found.stop()
