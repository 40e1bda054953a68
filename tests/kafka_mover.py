"""A program that moves money, to be killed: ``python -m kafka_mover URL SOURCE TARGET NAME SEED``.

It consumes orders (``from:to:amount:number``) as a member of a group, and for each writes two records, what one account loses and what
the other gains, into the partitions of these accounts; the group's positions are in the same transaction. Some transactions it rolls back.
It ends when standard input does, and tells each end on standard output: ``committed COUNT``,
``aborted``, ``fenced``; and ``unreached`` where no leader was, for as long as a request may take.
"""

from __future__ import annotations

import random
import select
import sys
from typing import Any

import wireproto
from wireproto.errors import Aborted, Fenced, TransportError

PARTITIONS = 3
LONG = 60.0


def main(url: str, source: str, target: str, name: str, seed: str) -> int:
    chance = random.Random(seed)
    options = {"session_timeout": 1.5, "heartbeat_interval": 0.3, "timeout": LONG}
    # A transaction may take longer than a loaded cluster takes for another coordinator: one that was rolled back for its time before its
    # first partition was answered for is told as Fenced at level 1, which is the end of this program.
    with wireproto.connect(url, **options) as client, client.transactions(name, transaction_timeout=30.0) as work:
        print("ready", flush=True)
        with client.consumer(source, source, partition_bytes=200) as log:
            try:
                while not ended():
                    try:
                        batch = log.poll(0.05)
                    except TransportError:  # a node that is killed may be back later than `request_timeout`
                        print("unreached", flush=True)
                        continue
                    if batch is not None:
                        print(moved(work, log, batch, target, abort=chance.random() < 0.2), flush=True)
            except Fenced:
                print("fenced", flush=True)
    return 0


def moved(work: Any, log: Any, batch: Any, target: str, *, abort: bool) -> str:
    """One transaction; what became of it. Raises Fenced."""
    turn = work.begin(timeout=LONG)
    try:
        for order in batch.values():
            loser, winner, amount, number = order.split(b":")
            turn.send(b"%s:-%s" % (number, amount), topic=target, key=loser, partition=int(loser) % PARTITIONS)
            turn.send(b"%s:+%s" % (number, amount), topic=target, key=winner, partition=int(winner) % PARTITIONS)
        turn.commit_positions(log, batch.next_positions, timeout=LONG)
        if not abort:
            turn.commit(timeout=LONG)
            return f"committed {len(batch)}"
    except Aborted:
        pass
    if not turn.ended:
        turn.abort(timeout=LONG)
    log.rewind()
    return "aborted"


def ended() -> bool:
    """Whether who started this program wants its end."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
