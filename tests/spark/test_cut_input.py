"""A task whose Spark died under it: what it got may not be all, and must not be taken for all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from wireproto.spark import worker


def within_a_worker(infile: Any, call: Callable[[], bool]) -> bool:
    """Run it below a function that looks as PySpark's does."""
    names: dict[str, Any] = {}
    exec(compile("def main(infile, call):\n    return call()", "pyspark/worker.py", "exec"), names)
    return bool(names["main"](infile, call))


def test_a_closed_connection_is_a_cut_and_an_open_one_is_not() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as infile:
        assert not within_a_worker(infile, worker.input_was_cut)
        theirs.sendall(b"rows")
        assert not within_a_worker(infile, worker.input_was_cut)
        theirs.close()
        assert within_a_worker(infile, worker.input_was_cut)
    assert not worker.input_was_cut(), "outside of a worker nothing is known"


def test_a_real_task_finds_its_input_and_finds_it_whole(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "found": [worker.spark_input() is not None], "cut": [worker.input_was_cut()]})

    found = spark.range(0, 1000, 1, 2).mapInArrow(look, "rows long, found boolean, cut boolean").collect()
    assert [tuple(row) for row in found] == [(500, True, False)] * 2
