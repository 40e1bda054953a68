"""A queue worker at work: receives, acks most, gives some back, tells all of it."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import Any

from wireproto.errors import Revoked, TimedOut, WireprotoError

from .journal import Journal, log_of, place_of, said

POLL = 1.0
OPEN = 15.0
END = 10.0
TOGETHER = 20  # acks that are flushed together, where they are not answered one by one
BACK = 17  # every so many-th message is given back at its first time


class Queueing:
    """Args: a role of the plan: name, topic, group, options, quiet (seconds without a message behind which it ends when told to)."""

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._client, self._journal, self._role, self._finish = client, journal, role, finish
        self._name: str = role["name"]
        self._life = 0
        self._seen = 0
        self._flush: Any = None
        self._unanswered: list[tuple[Any, ...]] = []  # acked, and the broker has not answered that yet

    def run(self) -> None:
        while self._live() and not self._finish.wait(0.5):
            self._life += 1

    def _live(self) -> str:
        journal, name = self._journal, self._name
        journal.note("life", name, self._life, {})
        queue = None
        try:
            make = lambda: self._client.queue(self._role["topic"], self._role["group"], **self._role.get("options", {}))  # noqa: E731
            queue = journal.timed(name, "queue", OPEN, make)
            self._work(queue)
            why = ""
        except WireprotoError as error:
            why = said(error)
        journal.note("ended", name, self._life, why)
        if queue is not None:
            with contextlib.suppress(WireprotoError):
                journal.timed(name, "close", 10.0, lambda: queue.close(10.0))
        return why

    def _work(self, queue: Any) -> None:
        quiet = time.monotonic()
        self._flush = getattr(queue, "flush", None)
        self._unanswered.clear()
        unsure: list[Any] = []  # whose ack failed: they stay with this worker until it is made again
        while True:
            unsure = [delivery for delivery in unsure if not self._acked(delivery, again=True)]
            delivery = self._journal.timed(self._name, "receive", POLL, lambda: queue.receive(POLL))
            if delivery is None or len(self._unanswered) >= TOGETHER:
                self._answered()
            now = time.monotonic()
            if delivery is not None:
                quiet = now
                if not self._ended(delivery):
                    unsure.append(delivery)
            elif self._finish.is_set() and now - quiet > self._role.get("quiet", 15.0):
                return
            if self._finish.is_set() and self._role.get("comes_and_goes"):
                return

    def _ended(self, delivery: Any) -> bool:
        """Whether this message needs nothing more of us."""
        name = delivery.value.decode().rstrip()
        log, place = log_of(delivery.position), place_of(delivery.position)
        self._journal.note("taken", self._name, self._life, log, place, name, delivery.attempt)
        self._seen += 1
        if self._seen % BACK or delivery.attempt > 1 or self._finish.is_set():
            return self._acked(delivery)
        with contextlib.suppress(WireprotoError):  # told as a call; it comes again
            self._journal.timed(self._name, "release", END, lambda: delivery.release(END))
            self._journal.note("count", self._name, "gave back", 1)
        return True

    def _acked(self, delivery: Any, *, again: bool = False) -> bool:
        """Whether it is acked, or no longer ours. Of one that was tried before (`again`), that may be the first try's work."""
        log, place = log_of(delivery.position), place_of(delivery.position)
        began = time.monotonic()
        self._journal.note("tried", self._name, log, place, True)  # it may hold though it fails, or we are killed in it
        try:
            self._journal.timed(self._name, "ack", END, lambda: delivery.ack(END))
        except Revoked:  # the message comes again
            if not again:
                self._journal.note("tried", self._name, log, place, False)
            return True
        except WireprotoError:
            return False
        done = self._name, self._life, log, place, round(began, 4)
        if self._flush is None:
            self._journal.note("done", *done)
        else:
            self._unanswered.append(done)
        return True

    def _answered(self) -> None:
        """Have the broker answer the acks that were not waited for; what fails of them may hold, or comes again."""
        if self._flush is None or not self._unanswered:
            return
        try:
            self._journal.timed(self._name, "flush", END, partial(self._flush, END))
        except TimedOut:
            return  # they are owed still
        except WireprotoError:  # told as a call
            self._unanswered.clear()
            return
        for done in self._unanswered:
            self._journal.note("done", *done)
        self._unanswered.clear()
