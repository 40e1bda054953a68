"""Worker threads for what blocks: name look-ups, key derivation, a token's HTTP request, callbacks of the user.

What it is: one set of daemon threads for the process; a job takes one that idles, else a new one, so that one that hangs holds up no other.
An idle thread ends after `IDLE` seconds. In a forked child there are none, and the jobs of the parent are the parent's.
Must not: be used for what can be waited for without a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from wireproto._net import Event, Loop

IDLE = 5.0
"""Seconds for which a thread waits for its next job."""

Job = tuple[Event, Callable[..., Any], tuple[Any, ...]]


class Workers:
    """The threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job]] = []

    def put(self, job: Job) -> None:
        """Do it soon; raises RuntimeError when the system gives no more threads."""
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is None:
            jobs = SimpleQueue()
            threading.Thread(target=self._work, args=(jobs,), name="wireproto-offload", daemon=True).start()
        jobs.put(job)

    def _work(self, jobs: SimpleQueue[Job]) -> None:
        while True:
            try:
                job: Job | None = jobs.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                continue  # taken off already: its job is about to come
            if job is not None:
                _do(*job)
            job = None  # what it holds is not ours any more
            with self._lock:
                self._idle.append(jobs)

    def forget(self) -> None:
        """In a forked child: the threads stayed with the parent."""
        self._lock = threading.Lock()
        self._idle = []


def _do(event: Event, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        value = fn(*args)
    except BaseException as why:
        event.fail(why)
    else:
        event.set(value)


_workers = Workers()
os.register_at_fork(after_in_child=_workers.forget)


def offload(loop: Loop, fn: Callable[..., Any], *args: Any) -> Event:
    """Call fn(*args) in a worker thread; the event is its outcome.

    It may block, but not for ever: nothing can end it, and whoever waits for the event has a deadline of its own.
    """
    event = Event(loop)
    _workers.put((event, fn, args))
    return event
