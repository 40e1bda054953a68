"""The job that is killed: Kafka → transform → Kafka or Pulsar, from a checkpoint, until all that is there is through.

    python -m spark.kills.job '{"source": {…}, "format": "kafka-wire", "sink": {…}, "checkpoint": "…"}'

Exit code 0: all is through. 1: the query failed; its error is on standard output.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from .records import TRANSFORM

CONF = {
    "spark.master": "local[2,4]",  # two cores, a task may fail three times
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "WARN",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",  # many to a micro-batch, so that a kill may fall between them
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",  # a driver lives for seconds: programs for its rows cost more than they save
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.cleaner.referenceTracking": "false",
}


MARKERS = "markers"
"""The format of a sink that is wrong, for the judge."""


def main(task: dict[str, Any]) -> int:
    """Run the query to its end."""
    warnings.simplefilter("ignore")  # PySpark's own imports warn on new library versions
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if task["format"] == MARKERS:
        from .markers import MarkersSource

        spark.dataSource.register(MarkersSource)
    rows = spark.readStream.format("kafka-wire").options(**task["source"]).load()
    query = (
        rows.selectExpr("key", f"{TRANSFORM} AS value")
        .writeStream.format(task["format"])
        .options(**task["sink"], checkpointLocation=task["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as why:
        print(f"the query failed: {why}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
