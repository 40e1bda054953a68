"""Figures of several threads: wall time means something only while the cores are ours.

Where the system allows it (root, CAP_SYS_NICE) a measurement of some milliseconds runs ahead of everything else on the machine. What two
threads that only hash then gain tells whether the machine has two cores to give at all; without that nothing is to be concluded.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENOUGH = 1.8  # of 2.0


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """This thread, and the threads that it starts meanwhile, run before all ordinary ones; nothing happens where that is not allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def together(work: Callable[[], object], count: int) -> None:
    """Run `work` in so many threads; returns when the last one has ended."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def are_two() -> bool:
    """Whether two threads that hash, without the interpreter, get about twice as much done as one."""
    data = bytes(4 << 20)

    def seconds(threads: int) -> float:
        began = time.perf_counter()
        together(lambda: [hashlib.sha256(data) for _ in range(4 // threads)], threads)
        return time.perf_counter() - began

    with ahead_of_others():
        return min(seconds(1) for _ in range(5)) >= ENOUGH * min(seconds(2) for _ in range(5))
