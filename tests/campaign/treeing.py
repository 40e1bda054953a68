"""Roles on ZooKeeper's tree: one that sets a node on and on, one that watches it, one that holds an ephemeral node.

The setter's numbers are told as a producer's, with the node's version as their place; the watcher tells what it read behind each event as
deliveries. What a role sees that cannot be, it tells as ``tree`` events; judge_trees.py has the rest.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from wireproto.errors import WireprotoError
from wireproto.zookeeper.codes import NodeExists, NoNode, SessionExpired

from .journal import Journal, said

PACE = 0.2
TAKE = 5.0
QUIET = 9.0  # seconds without an event behind which a watcher that was told to finish, ends: its server may stand still, or lag


class Setting:
    """Args: a role of the plan: name, topic (the node's path without its slash)."""

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._tree, self._journal, self._role, self._finish = client.tree(), journal, role, finish
        self._name: str = role["name"]
        self._path, self._log = f"/{role['topic']}", f"{role['topic']}/0"
        self._version, self._held = 0, -1

    def run(self) -> None:
        number = 0
        while not self._finish.wait(PACE):
            self._journal.note("sent", self._name, number, 1)
            began = time.monotonic()
            try:
                value, version = f"{self._name}:{number}".encode(), self._version
                set_ = lambda: self._tree.set(self._path, value, version=version, timeout=TAKE)  # noqa: E731, B023
                stat = self._journal.timed(self._name, "set", TAKE, set_)
                self._version, self._held = stat.version, number
                self._journal.note("acked", self._name, [[number, self._log, [stat.version], round(time.monotonic() - began, 4)]])
            except WireprotoError as why:
                self._journal.note("failed", self._name, number, said(why), round(time.monotonic() - began, 2))
                self._look(number, bool(getattr(why, "doubtful", False)))
            number += 1

    def _look(self, number: int, doubtful: bool) -> None:
        """What the node holds behind a set that failed: that value or the one before it, and the former only if there was doubt."""
        while True:
            try:
                data, stat = self._journal.timed(self._name, "get", TAKE, lambda: self._tree.get(self._path, timeout=TAKE))
            except WireprotoError:
                if self._finish.wait(PACE):
                    return
                continue
            found = int(data.decode().rpartition(":")[2]) if data else -1
            if found not in (number, self._held) or (found == number and not doubtful):
                self._journal.note("tree", self._name, f"holds {found} (version {stat.version}), {self._held} was set and {number} failed")
            self._version, self._held = stat.version, found
            return


class Watching:
    """Reads the node, with a watch, behind each event of the watch before."""

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._tree, self._journal, self._role, self._finish = client.tree(), journal, role, finish
        self._name: str = role["name"]
        self._path, self._log = f"/{role['topic']}", f"{role['topic']}/0"

    def run(self) -> None:
        self._journal.note("life", self._name, 0, {})
        changed = threading.Event()
        changed.set()
        quiet = time.monotonic()
        while not (self._finish.is_set() and time.monotonic() - quiet > QUIET):
            if not changed.wait(0.5):
                continue
            changed.clear()
            quiet = time.monotonic()
            try:
                get = lambda: self._tree.get(self._path, watch=lambda _: changed.set(), timeout=TAKE)  # noqa: E731
                data, stat = self._journal.timed(self._name, "get", TAKE, get)
            except WireprotoError:
                self._finish.wait(PACE)
                changed.set()
                continue
            if data:
                self._journal.note("got", self._name, 0, self._log, [[[stat.version], data.decode()]])
        self._journal.note("ended", self._name, 0, "")


class Holding:
    """Holds an ephemeral node and looks whether it is there; makes it again when its session has ended."""

    def __init__(self, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
        self._tree, self._journal, self._role, self._finish = client.tree(), journal, role, finish
        self._name: str = role["name"]
        self._path = f"/{role['topic']}/{self._name}"

    def run(self) -> None:
        held, ended = False, threading.Event()
        stop = self._tree.on_state(lambda event: ended.set() if "EXPIRED" in str(event.state).upper() else None)
        while not self._finish.wait(PACE * 5):
            try:
                if held and not ended.is_set():
                    there = self._journal.timed(self._name, "exists", TAKE, lambda: self._tree.exists(self._path, timeout=TAKE))
                    if there is None and not ended.wait(2.0):
                        self._journal.note("tree", self._name, f"{self._path} is gone, and its session is not")
                        held = False
                    continue
                ended.clear()
                make = lambda: self._tree.create(self._path, b"", ephemeral=True, parents=True, timeout=TAKE)  # noqa: E731
                self._journal.timed(self._name, "create", TAKE, make)
                held = True
            except SessionExpired:
                held = False
            except NodeExists:  # the session before has it yet, or a create that was in doubt was done
                held = False
                with contextlib.suppress(WireprotoError):
                    self._tree.delete(self._path, timeout=TAKE)
            except (NoNode, WireprotoError):
                continue
        stop()
