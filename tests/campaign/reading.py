"""Readers at work: one that follows the log for ever, and one that reads up to what is there, again and again.

Each opening is a life; what ends one by an error is told, and the next one begins where it stood, by the reader's own positions.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from wireproto import EARLIEST, LATEST
from wireproto.errors import BrokerError, DataLoss, WireprotoError

from .journal import Journal, log_of, place_of, said

POLL = 1.0
OPEN = 15.0
REST = 1.0  # seconds between two bounded reads
WHOLE = 60.0  # seconds from one read of the whole log to the next
QUIET = 12.0  # seconds without a record behind which a follower that was told to finish, ends: RocketMQ may hold a pull 5 s too long


class Reading:
    """Reads.

    Args:
        role: of the plan: name, topic, options, stop (bounded), from_end (each bounded read begins where the last one ended), fleeting
            (begins anew where a log was cut or made again), told (kinds of errors, by one of which it must be told of that: offsets begin
            anew).
    """

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._client, self._journal, self._role, self._finish = client, journal, role, finish
        self._name: str = role["name"]
        self._life = 0
        self._last: dict[str, list[int]] = {}  # log to the last record had in the life before
        self._where: Any = EARLIEST
        self._whole_at = time.monotonic()

    def run(self) -> None:
        bounded = bool(self._role.get("stop"))
        while True:
            last = self._finish.is_set()
            why = self._live(bounded)
            if not why and (not bounded or last):
                return
            if bounded and not why and (not self._role.get("from_end") or time.monotonic() - self._whole_at > WHOLE):
                self._where, self._last, self._whole_at = EARLIEST, {}, time.monotonic()
            self._life += 1
            if self._finish.wait(REST) and why:
                threading.Event().wait(REST)

    def _live(self, bounded: bool) -> str:
        """One life; why it ended, empty when it was to."""
        journal, name = self._journal, self._name
        began, reader, lost = time.monotonic(), None, False
        start: Any = "earliest" if self._where is EARLIEST else dict(self._last)
        facts: dict[str, Any] = {"start": start, "stop": bounded, "told": self._role.get("told", ())}
        journal.note("life", name, self._life, facts, at=began)
        try:
            make = lambda: self._client.reader(  # noqa: E731
                self._role["topic"], start=self._where, stop=LATEST if bounded else None, **self._role.get("options", {})
            )
            reader = journal.timed(name, "reader", OPEN, make)
            if stops := getattr(reader, "stops", None):  # Kafka's tells them
                journal.note("stops", name, self._life, {log_of(stop): [stop.offset - 1] for stop in stops.values()})
            self._follow(reader, bounded)
            why = ""
        except WireprotoError as error:
            why, lost = said(error), isinstance(error, DataLoss | BrokerError)
        journal.note("ended", name, self._life, why)
        if reader is not None:
            self._where = dict(reader.positions) or self._where
            if lost and self._role.get("fleeting"):
                self._where, self._last = EARLIEST, {}
            journal.timed(name, "close", 5.0, lambda: reader.close(5.0))
        return why

    def _follow(self, reader: Any, bounded: bool) -> None:
        quiet = time.monotonic()
        while not reader.done:
            batch = self._journal.timed(self._name, "poll", POLL, lambda: reader.poll(POLL))
            now = time.monotonic()
            if batch is not None and len(batch):
                quiet = now
                self._tell(batch)
            elif not bounded and self._finish.is_set() and now - quiet > QUIET:
                return

    def _tell(self, batch: Any) -> None:
        rows = [[place_of(record.position), record.value.decode().rstrip()] for record in batch]
        log = log_of(next(iter(batch)).position)
        self._journal.note("got", self._name, self._life, log, rows)
        self._last[log] = rows[-1][0]
