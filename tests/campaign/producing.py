"""A producer at work: sends at a steady pace, tells what it sent, and what became of each record.

What it writes is ``role:number`` and padding. A number is never sent again by us: what stands in a log twice was repeated by the client.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import Any

from wireproto.errors import BrokerError, UsageError, WireprotoError

from .journal import Journal, log_of, place_of, said
from .ledger import key_of

RATE = 100  # records a second
PACE = 0.05  # seconds between two bursts
TAKE = 5.0  # timeout of a send
OPEN = 15.0
FLUSH = 20.0
MOST = 10.0  # seconds of records without an outcome; a burst waits beyond, so that what a fault held up is soon through
CHUNK = 200  # acknowledgements a line


class Producing:
    """Sends.

    Args:
        role: of the plan: name, topic, options, rate (records a second), keys, spread (partitions named in turn), size, unplaced, fleeting
            (opens its producer anew where the broker refuses it: the topic is gone).
    """

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._client, self._journal, self._role, self._finish = client, journal, role, finish
        self._name: str = role["name"]
        self._number = 0
        self._open: collections.deque[tuple[int, float, Any]] = collections.deque()
        self._ended = threading.Event()
        self._pause = threading.Event()  # never set: waits by it hold under a clock that is faked, which `time.sleep` does not
        self._gone = False  # the producer, with its topic

    def _made(self) -> Any:
        """A producer; None where all is over."""
        while not self._finish.is_set():
            with contextlib.suppress(WireprotoError):
                make = lambda: self._client.producer(self._role["topic"], **self._role.get("options", {}))  # noqa: E731
                return self._journal.timed(self._name, "producer", OPEN, make)
            self._finish.wait(PACE)
        return None

    def run(self) -> None:
        producer = self._made()
        if producer is None:
            return
        gatherer = threading.Thread(target=self._gathering, name=f"{self._name} gathers")
        gatherer.start()
        try:
            while not self._finish.is_set():
                due = time.monotonic() + PACE
                self._burst(producer)
                if self._gone and not self._finish.is_set():
                    self._gone = False
                    with contextlib.suppress(WireprotoError):  # what was on its way to it is told by its receipts
                        producer.close(0.5)
                    producer = self._made() or producer
                self._finish.wait(max(0.0, due - time.monotonic()))
            with contextlib.suppress(WireprotoError):
                self._journal.timed(self._name, "flush", FLUSH, lambda: producer.flush(FLUSH))
        finally:
            self._ended.set()
            gatherer.join()
            producer.close(5.0)

    def _burst(self, producer: Any) -> None:
        if len(self._open) > MOST * max(self._role["rate"], 1 / PACE):
            return
        count = max(1, int(self._role["rate"] * PACE))
        first, self._number = self._number, self._number + count
        self._journal.note("sent", self._name, first, count)
        for number in range(first, first + count):
            self._send(producer, number)

    def _send(self, producer: Any, number: int) -> None:
        role = self._role
        options: dict[str, Any] = {"timeout": TAKE}
        if role.get("keys"):
            options["key"] = b"key-%d" % key_of(number, role["keys"])
        if role.get("spread"):
            options["partition"] = number % role["spread"]
        value = f"{self._name}:{number}".encode().ljust(role.get("size", 100), b" ")
        began = time.monotonic()
        try:
            receipt = self._journal.timed(self._name, "send", TAKE, lambda: producer.send(value, **options))
        except WireprotoError as why:
            self._journal.note("refused", self._name, number, said(why))
            self._gone = bool(role.get("fleeting")) and isinstance(why, BrokerError)
            return
        self._open.append((number, began, receipt))

    def _gathering(self) -> None:
        """In a thread of its own, since a send may wait; goes on until all has an outcome, or the producer's own patience is over."""
        until = None
        while until is None or (self._open and time.monotonic() < until):
            self._gather()
            if until is None and self._ended.wait(PACE):
                until = time.monotonic() + self._role.get("patience", 60.0) + 5.0
            elif until is not None:
                self._pause.wait(PACE)

    def _gather(self) -> None:
        """Tell of those that have an outcome; any may be done before an earlier one of another partition.

        The moment told is one by which they had it: who opens behind it must find them, and this thread may stand still between two lines.
        """
        done: list[tuple[int, float, Any]] = []
        for _ in range(len(self._open)):
            entry = self._open.popleft()
            (done if entry[2].done else self._open).append(entry)
        now = time.monotonic()
        rows = [row for entry in done if (row := self._outcome(entry, now)) is not None]
        for start in range(0, len(rows), CHUNK):
            self._journal.note("acked", self._name, rows[start : start + CHUNK], at=now)

    def _outcome(self, entry: tuple[int, float, Any], now: float) -> list[Any] | None:
        number, began, receipt = entry
        try:
            position = receipt.position(1.0)
        except WireprotoError as why:
            if isinstance(why, UsageError) and self._role.get("unplaced"):  # acks=0: done, and nobody tells where
                return [number, self._role["topic"], [], round(now - began, 4)]
            self._journal.note("failed", self._name, number, said(why), round(now - began, 2))
            return None
        return [number, log_of(position), place_of(position), round(now - began, 4)]
