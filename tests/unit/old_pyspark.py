"""Run by a test in a process of its own: the API of PySpark 4.0, made from a newer one by taking away what 4.0 lacks.

4.0 lacks   pyspark.sql.streaming.datasource (limits, AvailableNow), DataSourceStreamArrowWriter, pushFilters, the filters
and calls   latestOffset() bare; partitions(offset, offset) when a query goes on from its checkpoint; write() with rows
"""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from datetime import UTC, datetime
from typing import Any

warnings.simplefilter("ignore")

import pyspark.sql.datasource as api  # noqa: E402
from pyspark.sql import Row  # noqa: E402
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType  # noqa: E402

ABSENT = "pyspark.sql.streaming.datasource"


class Absent(importlib.abc.MetaPathFinder):
    """Whatever imports the module finds that it is not there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.modules.pop(ABSENT, None)
sys.meta_path.insert(0, Absent())
for name in ("DataSourceStreamArrowWriter", "EqualTo", "GreaterThan", "In", "Not", "IsNotNull"):
    if hasattr(api, name):
        delattr(api, name)
if hasattr(api.DataSourceReader, "pushFilters"):
    del api.DataSourceReader.pushFilters

import wireproto  # noqa: E402
from wireproto.devbroker import DevBroker  # noqa: E402
from wireproto.spark import KafkaWire, PulsarWire, RocketMQWire, ZooKeeperWire  # noqa: E402

READ = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
WRITE = StructType([StructField("value", StringType()), StructField("timestamp", TimestampType())])
WHEN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def reader(source: Any) -> list[int]:
    """Ends of micro-batches of at most 16 rows, the query going on from its checkpoint between the second and the third."""
    first = source.streamReader(READ)
    place = first.initialOffset()
    ends = []
    for _ in range(2):
        end = first.latestOffset()
        tasks = first.partitions(place, end)
        rows = [row["offset"] for task in tasks for batch in first.read(task) for row in batch.to_pylist()]
        assert rows == list(range(place["t"]["0"], end["t"]["0"]))
        ends.append(end["t"]["0"])
        place = end
    first.stop()
    again = source.streamReader(READ)
    assert again.partitions(place, place) == []
    ends.append(again.latestOffset()["t"]["0"])
    again.stop()
    return ends


def main() -> None:
    assert "DataSourceStreamArrowWriter" not in vars(api)
    assert all(source.name().endswith("-wire") for source in (KafkaWire, PulsarWire, RocketMQWire, ZooKeeperWire))
    with DevBroker(["kafka"]) as broker, wireproto.connect(broker.url("kafka")) as client:
        for topic in ("t", "out"):
            client.admin().create_topic(topic)
        with client.producer("t") as out:
            for n in range(60):
                out.send(b"%d" % n)
        servers = {"kafka.bootstrap.servers": broker.address("kafka")}
        source = KafkaWire({**servers, "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "16"})
        assert reader(source) == [16, 32, 48]
        batch = KafkaWire({**servers, "subscribe": "t"}).reader(READ)
        assert sum(rows.num_rows for task in batch.partitions() for rows in batch.read(task)) == 60
        writer = KafkaWire({**servers, "topic": "out", "includeTimestamp": "true"}).streamWriter(WRITE, False)
        local = WHEN.astimezone().replace(tzinfo=None)  # as Spark gives it to a writer of rows
        writer.commit([writer.write(iter([Row(value="a", timestamp=local), Row(value="b", timestamp=None)]))], 0)
        found = [record for part in client.reader("out", stop=wireproto.LATEST) for record in part]
        assert [record.value for record in found] == [b"a", b"b"]
        assert found[0].timestamp == int(WHEN.timestamp() * 1000)


if __name__ == "__main__":
    main()
    print("as it must be")
