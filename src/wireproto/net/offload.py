"""Runs blocking calls in worker threads: name look-ups, key derivation, a token's HTTP request, callbacks of the user.

The process has one set of daemon threads. A job takes an idle thread, else a new one, so a job that hangs delays no other. An idle thread
ends after `IDLE` seconds. A forked child begins without threads and without the parent's jobs. What can be waited for without a thread
does not belong here.
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
    """The worker threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job]] = []

    def put(self, job: Job) -> None:
        """Have a thread run the job. Raises RuntimeError when the system has no more threads."""
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
                continue  # `put` has just taken this queue: a job is about to come
            if job is not None:
                _do(*job)
            job = None  # release what the job refers to
            with self._lock:
                self._idle.append(jobs)

    def forget(self) -> None:
        """Start without threads, in a forked child: the threads exist in the parent only."""
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
    """Call fn(*args) in a worker thread; the returned event has its result or its exception.

    `fn` may block, but must end by itself: nothing can interrupt it, and callers that wait for the event only give up at their deadline.

    Args:
        loop: the engine's loop whose threads wait for the event. fn, args: the function and its arguments.

    Raises:
        RuntimeError: the system has no more threads.
    """
    event = Event(loop)
    _workers.put((event, fn, args))
    return event
