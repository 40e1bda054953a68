"""``python -m flights [--brokers dev|real] [--out FOLDER]``: load, prove, report, stream. Ends with 0 only when all proofs hold.

Ctrl-C at any point leaves no process behind: brokers and Spark are stopped on the way out.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import time
from pathlib import Path

from . import dataset
from .brokers import running

LOGS = ("kafka", "pulsar", "rocketmq")


def main() -> int:
    """Run the whole demo."""
    parser = argparse.ArgumentParser(prog="flights", description=__doc__)
    parser.add_argument("--brokers", choices=("dev", "real"), default="dev")
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    parser.add_argument("--cache", type=Path, default=Path(".cache"))
    parser.add_argument("--limit", type=int, help="only so many flights")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.perf_counter()
    archive = dataset.fetch(arguments.cache)
    records = list(itertools.islice(dataset.flights(archive), arguments.limit))
    nodes = list(dataset.nodes(archive))
    expected = dataset.fingerprint((record.key, record.value) for record in records)
    assert arguments.limit or expected[0] == dataset.FLIGHTS, f"{expected[0]} flights in the archive"
    print(f"data set: {len(records):,} flights, {len(nodes):,} nodes, hash {expected[1]:x}", flush=True)
    with running(arguments.brokers) as urls:
        good = run(urls, records, nodes, expected, arguments.out)
    print(f"all of it: {time.perf_counter() - begin:.0f} s")
    return 0 if good else 1


def run(urls: dict[str, str], records: list[dataset.Flight], nodes: list[tuple[str, bytes]], expected: tuple[int, int], out: Path) -> bool:
    """Load, then the Spark job; prints every step's rate. True when all proofs hold."""
    from . import load, picture, report, stream

    steps = [(f"load {protocol}", len(records), load.load_log(urls[protocol], records)) for protocol in LOGS]
    steps.append(("load zookeeper", len(nodes), load.load_tree(urls["zookeeper"], nodes)))

    spark = report.session()
    try:
        import wireproto.spark

        wireproto.spark.register(spark)
        good = True
        servers = {protocol: url.partition("://")[2] for protocol, url in urls.items()}
        for protocol in LOGS:
            log = report.log(spark, protocol, servers[protocol])
            tasks = report.partitions_used(log)
            count, total, seconds = report.fingerprint(log)
            equal = (count, total) == expected
            good = good and equal
            verdict = "equal" if equal else "NOT EQUAL"
            print(f"proof {protocol:<9} {count:>8,} records, hash {total:x}, {tasks} tasks: {verdict}", flush=True)
            steps.append((f"spark reads {protocol}", count, seconds))
        begin = time.perf_counter()
        tree = report.tree(spark, servers["zookeeper"]).cache()
        count = tree.count()
        steps.append(("spark reads zookeeper", count, time.perf_counter() - begin))
        print(f"proof {'zookeeper':<9} {count:>8,} nodes: {'equal' if count == len(nodes) else 'NOT EQUAL'}")
        good = good and count == len(nodes)
        out.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        rows = report.write(report.delays(report.log(spark, "kafka", servers["kafka"]), tree), out)
        steps.append(("spark joins and writes", len(records), time.perf_counter() - begin))
        equal, more = stream.whole(spark, urls, stream.expected(records), out)
        good = good and equal
        steps += more
    finally:
        report.close(spark)
    picture.draw(rows, out / "delay-by-hour")
    print("\n" + picture.table(rows) + "\n")
    for name, count, seconds in steps:
        print(f"{name:<24} {count:>8,} in {seconds:6.2f} s  {count / seconds:>10,.0f} records/s")
    print(f"\nParquet: {out / 'delays.parquet'}\npicture: {out / 'delay-by-hour.png'} and .svg")
    return good


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
