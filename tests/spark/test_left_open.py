"""Tasks that fail, are cut short or end leave nothing open: Spark's processes have no connections but those that they keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from patience import LONG, until
from spark.kills import processes
from spark.peers import QUIET
from spark.streams import WIRE, frame, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from brokers import Kafka

pytestmark = [
    QUIET,
    pytest.mark.broker("kafka-4.3.1-transactions"),
]
KEPT = 3  # connections of a client to one broker: for questions, fetches and records
ENDS = 50.0  # seconds in which processes end that were told to; those that Spark keeps idle end after sixty, by themselves
MORE = 2 * KEPT  # what workers may open that did not read, or did not write, before; they keep a client for each set of options


def held(port: int) -> Counter[int]:
    """Open connections to a port of this machine, by process of PySpark's."""
    ours = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[2].rpartition(":")[2], 16) == port and fields[3] in ("01", "08"):  # established, or left by the broker alone
                ours.add(f"socket:[{fields[9]}]")
    found: Counter[int] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ends meanwhile
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                found[int(process.name)] += sum(str(link.readlink()) in ours for link in (process / "fd").iterdir())
    return +found


def test_tasks_that_fail_or_are_cut_short_keep_no_connection_but_the_worker_s_own(
    spark: SparkSession, kafka: Kafka, filled: Callable[..., str]
) -> None:
    source = filled("left", [(None, b"%d" % n, n % 2) for n in range(4000)], partitions=2)
    target = filled("left", partitions=2)
    port = int(kafka.bootstrap.rpartition(":")[2])

    def dies(batches: Any) -> Any:  # here, so that it travels by its code: workers cannot import this module
        yield next(batches)
        raise RuntimeError("the task dies here")

    broken = frame(spark, kafka, subscribe=source).select("value").mapInArrow(dies, "value binary")
    into = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target}
    totals = []
    for _ in range(5):
        with pytest.raises(Exception, match="dies here"):
            broken.count()
        with pytest.raises(Exception, match="dies here"):
            broken.write.format(WIRE).options(**into).mode("append").save()
        assert len(frame(spark, kafka, subscribe=source).limit(1).collect()) == 1
        assert frame(spark, kafka, subscribe=source).count() == 4000
        totals.append(held(port).total())
        if len(totals) > 2:  # workers that Spark has given up end a moment later
            most = max(totals[:2]) + MORE
            until(lambda: held(port).total() <= most, f"connections after each round of tasks that failed: {totals}", ENDS)  # noqa: B023
    assert any(totals), "no worker was seen: what this test looks at is elsewhere"


def test_a_task_that_is_killed_takes_its_connections_with_it(
    spark: SparkSession, kafka: Kafka, filled: Callable[..., str], tmp_path: Path
) -> None:
    """A query is stopped while its tasks read and write; one of them would have gone on for an hour."""
    source, target = filled("killed", [(None, b"%d" % n) for n in range(4000)]), filled("killed")
    port, sign = int(kafka.bootstrap.rpartition(":")[2]), tmp_path / "sign"
    path = str(sign)

    def lingers(batches: Any) -> Any:
        import os
        import time
        from pathlib import Path

        for batch in batches:
            yield batch
            part = Path(path + ".part")
            part.write_text(str(os.getpid()))
            part.rename(path)
            time.sleep(3600)

    before = held(port).total()
    table = stream(spark, kafka, subscribe=source, startingOffsets="earliest").select("value").mapInArrow(lingers, "value binary")
    into = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "checkpointLocation": str(tmp_path / "checkpoint")}
    query = table.writeStream.format(WIRE).options(**into).start()
    try:
        while not sign.exists():
            assert query.exception() is None
    finally:
        query.stop()
    killed = int(sign.read_text())
    assert processes.Watch(processes.Process(killed, 0, "")).ended(LONG), "the task's process goes on"
    assert killed not in held(port)
    until(lambda: held(port).total() <= before + MORE, "its neighbours' connections are still there", ENDS)
