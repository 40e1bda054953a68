"""Load the data set through our own clients: one topic of four partitions on each log, and a tree of nodes.

What it is: ordinary use of `wireproto.connect`, a Producer and a Tree, with a progress bar a system, which shows what is acknowledged.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import wireproto

from .dataset import Flight
from .steps import bar

TOPIC, PARTITIONS = "flights", 4
STEP = 512  # records from one receipt that is looked at to the next
AHEAD = 64  # so many of those receipts may be open: sending waits for the broker, and none of its records waits long
PATIENCE = 120.0  # seconds without any progress, after which a broker is given up
CONFIG = {"kafka": {"retention.ms": "-1"}}  # the records' timestamps are from 2013: never expire them


def load_log(url: str, records: Sequence[Flight]) -> float:
    """Create the topic and send every record; returns the seconds until the broker had acknowledged all of them."""
    protocol = url.partition(":")[0]
    with wireproto.connect(url) as client:
        client.admin().create_topic(TOPIC, partitions=PARTITIONS, config=CONFIG.get(protocol))
        with bar(protocol, len(records)) as progress, client.producer(TOPIC) as out:
            begin = time.perf_counter()
            open_receipts: deque[Any] = deque()
            for number, (key, value, timestamp) in enumerate(records, 1):
                receipt = out.send(value, key=key, timestamp=timestamp, timeout=PATIENCE)
                if number % STEP == 0:
                    open_receipts.append(receipt)
                    settle(open_receipts, progress, AHEAD)
            settle(open_receipts, progress, 0)
            out.flush(timeout=PATIENCE)  # of the last records of each partition: the others are stored
            progress.update(len(records) % STEP)
            return time.perf_counter() - begin


def settle(receipts: deque[Any], progress: Any, left: int) -> None:
    """Take the receipts that are done from the front, and wait for more until `left` are open; each has `PATIENCE` of its own."""
    while receipts and (len(receipts) > left or receipts[0].done):
        receipts.popleft().position(timeout=PATIENCE)
        progress.update(STEP)


def load_tree(url: str, nodes: Sequence[tuple[str, bytes]]) -> float:
    """Create every node, in order; returns the seconds it took."""
    with wireproto.connect(url) as client, bar("zookeeper", len(nodes)) as progress:
        tree = client.tree()
        begin = time.perf_counter()
        for path, data in nodes:
            tree.create(path, data)
            progress.update(1)
        return time.perf_counter() - begin
