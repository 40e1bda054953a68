"""A member of a group at work: polls, tells what it was given, and commits now and then, by positions or "what was handed out".

A life is one Consumer. What `commit` covers is told as the last record of each log; a commit that failed is told, too, since it may hold.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from wireproto.errors import WireprotoError

from .journal import Journal, log_of, place_of, said

POLL = 1.0
OPEN = 15.0
COMMIT = 10.0
EVERY = 0.7  # seconds between two commits
QUIET = 12.0  # seconds without a record behind which a member that was told to finish, ends: as a reader (reading.py)


class Grouping:
    """Args: a role of the plan: name, topic, group, options, blind (commits without naming positions), hears (of assignments)."""

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._client, self._journal, self._role, self._finish = client, journal, role, finish
        self._name: str = role["name"]
        self._life = 0
        self._had: dict[str, list[int]] = {}  # last record of each log that was had and not committed
        self._nexts: dict[Any, Any] = {}

    def run(self) -> None:
        while self._live() and not self._finish.wait(0.5):
            self._life += 1

    def _live(self) -> str:
        journal, name = self._journal, self._name
        journal.note("life", name, self._life, {})
        consumer = None
        options = dict(self._role.get("options", {}))
        if self._role.get("hears"):  # what was handed out before a rebalance comes again: later commits are not of that
            options |= dict.fromkeys(("on_assigned", "on_revoked", "on_lost"), self._forget)
        try:
            make = lambda: self._client.consumer(self._role["topic"], self._role["group"], **options)  # noqa: E731
            consumer = journal.timed(name, "consumer", OPEN, make)
            self._work(consumer)
            why = ""
        except WireprotoError as error:
            why = said(error)
        journal.note("ended", name, self._life, why)
        if consumer is not None:
            with contextlib.suppress(WireprotoError):
                journal.timed(name, "close", 10.0, lambda: consumer.close(10.0))
        return why

    def _forget(self, _: object) -> None:
        self._had.clear()
        self._nexts.clear()

    def _work(self, consumer: Any) -> None:
        self._forget(None)
        committed = quiet = time.monotonic()
        while True:
            batch = self._journal.timed(self._name, "poll", POLL, lambda: consumer.poll(POLL))
            now = time.monotonic()
            if batch is not None and len(batch):
                quiet = now
                rows = [[place_of(record.position), record.value.decode().rstrip()] for record in batch]
                log = log_of(next(iter(batch)).position)
                self._journal.note("got", self._name, self._life, log, rows)
                self._had[log] = rows[-1][0]
                self._nexts.update(batch.next_positions)
            ending = self._finish.is_set() and (now - quiet > QUIET or self._role.get("comes_and_goes"))
            if self._had and (now - committed > EVERY or ending):
                self._commit(consumer, dict(self._had))
                self._forget(None)
                committed = now
            if ending:
                return

    def _commit(self, consumer: Any, had: dict[str, list[int]]) -> None:
        began = time.monotonic()
        given = None if self._role.get("blind") else dict(self._nexts)
        done, why = True, ""
        self._journal.note("commit", self._name, self._life, began, had, False, "tried")  # it may hold though we are killed in it
        try:
            self._journal.timed(self._name, "commit", COMMIT, lambda: consumer.commit(given, timeout=COMMIT))
        except WireprotoError as error:  # Revoked names some; the others hold: told as a try
            done, why = False, said(error)
        self._journal.note("commit", self._name, self._life, began, had, done, why)
