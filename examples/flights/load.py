"""Load the data set through our own clients: one topic of four partitions on each log, and a tree of nodes.

What it is: ordinary use of `wireproto.connect`, a Producer and a Tree, with a progress bar a system.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

import wireproto

from .dataset import Flight

TOPIC, PARTITIONS = "flights", 4
CONFIG = {"kafka": {"retention.ms": "-1"}}  # the records' timestamps are from 2013: never expire them


def load_log(url: str, records: Sequence[Flight]) -> float:
    """Create the topic and send every record; returns the seconds until the broker had acknowledged all of them."""
    protocol = url.partition(":")[0]
    with wireproto.connect(url) as client:
        client.admin().create_topic(TOPIC, partitions=PARTITIONS, config=CONFIG.get(protocol))
        with bar(protocol, len(records)) as progress, client.producer(TOPIC) as out:
            begin = time.perf_counter()
            for number, (key, value, timestamp) in enumerate(records, 1):
                out.send(value, key=key, timestamp=timestamp)
                if number % 4096 == 0:
                    progress.update(4096)
            out.flush(timeout=120.0)
            seconds = time.perf_counter() - begin
            progress.update(len(records) % 4096)
    return seconds


def load_tree(url: str, nodes: Sequence[tuple[str, bytes]]) -> float:
    """Create every node, in order; returns the seconds it took."""
    with wireproto.connect(url) as client, bar("zookeeper", len(nodes)) as progress:
        tree = client.tree()
        begin = time.perf_counter()
        for path, data in nodes:
            tree.create(path, data)
            progress.update(1)
        return time.perf_counter() - begin


def bar(name: str, total: int) -> Any:
    """A progress bar that leaves its last state on the screen."""
    return tqdm(total=total, desc=f"load {name:<9}", unit=" records", unit_scale=True, mininterval=0.2, dynamic_ncols=True)
