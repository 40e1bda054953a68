"""Orders in, bills out: consume, process, produce, each order billed once whatever is killed in between. On Kafka or Pulsar, without Spark.

    python examples/once.py kafka://localhost:9092 orders bills billing-1
    python examples/once.py pulsar://localhost:6650 orders bills billing-1 --idle 10

Run as many beside each other as there are partitions, each under a name of its own (the last word), which it keeps when it is started
again. Who reads the bills reads committed records alone: on Kafka `isolation=committed`, as clients here do unless told otherwise; on
Pulsar all do.
"""

from __future__ import annotations

import argparse
import time

import wireproto
from wireproto.errors import Aborted, OutcomeUnknown


def bill(order: bytes) -> bytes:
    """What is made of an order."""
    return b"a bill for " + order


def run(url: str, source: str, target: str, name: str, idle: float | None) -> int:
    """Bill orders, until none has come for `idle` seconds; how many it were.

    What a transaction sent and where the group goes on happen together, or not at all. After `Aborted` nothing has happened, be it that
    another program has the partition, and after `OutcomeUnknown` (Pulsar) nobody can tell: in each case the group's own positions say where
    to go on.
    """
    billed = 0
    with wireproto.connect(url) as client, client.consumer(source, "billing") as log, client.transactions(name) as work:
        last = time.monotonic()
        while idle is None or time.monotonic() < last + idle:
            batch = log.poll(timeout=1.0)
            if batch is None:
                continue
            last = time.monotonic()
            try:
                with work.begin() as tx:
                    for record in batch:
                        tx.send(bill(record.value or b""), topic=target, key=record.key)
                    tx.commit_positions(log, batch.next_positions)
            except (Aborted, OutcomeUnknown):
                log.rewind()
            else:
                billed += len(batch)
    return billed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("source", help="topic of the orders")
    parser.add_argument("target", help="topic of the bills")
    parser.add_argument("name", help="of this program's transactions")
    parser.add_argument("--idle", type=float, help="seconds without orders after which it ends")
    given = parser.parse_args()
    print(f"{run(given.url, given.source, given.target, given.name, given.idle)} orders billed")


if __name__ == "__main__":
    main()
