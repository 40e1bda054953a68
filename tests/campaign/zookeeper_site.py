"""ZooKeeper 3.9.5, an ensemble of three: a queue with workers, one that is only read, a node that is set and watched, ephemeral nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from brokers import Broker, ZooKeeper
from patience import LONG

from .faults import Sick
from .ledger import Finding, Ledger, Promise, Role, Truth
from .plan import Round
from .site import OPEN, READY, Site, Work

JOBS, KEPT, COUNTER, HOLDERS = "jobs", "kept", "counter", "holders"
SESSION = 6.0
ELECTED = 45.0  # seconds in which an ensemble of three finds a leader, on a machine that has other work


class ZooKeeperSite(Site):
    protocol = "zookeeper"
    version = "3.9.5"
    session = SESSION
    faked = True
    faults: ClassVar = (
        "kill",
        "freeze",
        "restart",
        "roll",
        "black-hole",
        "swallow",
        "cut",
        "half-close",
        "refuse",
        "far",
        "narrow",
        "clock",
        "dethrone",
    )

    broker: ZooKeeper

    def make(self) -> Broker:
        return ZooKeeper(nodes=3)

    def node_addresses(self) -> list[str]:
        return self.broker.addresses

    def options(self) -> dict[str, Any]:
        return {"timeout": OPEN, "session_timeout": SESSION, "connect_timeout": 3.0}

    def prepare(self) -> None:
        again = {"max_tries": 20, "max_delay": 5.0}  # of what the judge reads: its own connection may end, too
        self._kazoo = KazooClient(hosts=",".join(self.broker.addresses), timeout=SESSION, command_retry=again)
        self._kazoo.start(30.0)
        for path in (f"{JOBS}/entries", f"{JOBS}/taken", f"{KEPT}/entries", f"{KEPT}/taken", COUNTER, HOLDERS):
            self._kazoo.ensure_path(f"/{path}")

    def works(self) -> list[Work]:
        once = Promise(once=False)
        doubt = Promise(ordered=False)  # what is in doubt fails
        senders: list[tuple[Role, dict[str, Any]]] = [
            _producer("tasks", JOBS, once, rate=10),
            _producer("doubtful", JOBS, doubt, rate=10, repeat=False),
            _producer("keeper", KEPT, once, rate=10),
            (Role("setter", "setter", COUNTER), {"name": "setter", "kind": "setter", "topic": COUNTER}),
        ]
        readers: list[tuple[Role, dict[str, Any]]] = [
            (Role("follower", "reader", KEPT), {"name": "follower", "kind": "reader", "topic": KEPT}),
            (
                Role("bounded", "reader", KEPT, steady=False),
                {"name": "bounded", "kind": "reader", "topic": KEPT, "stop": True, "from_end": True},
            ),
            (Role("watcher", "watcher", COUNTER), {"name": "watcher", "kind": "watcher", "topic": COUNTER}),
            _holder("holder-1"),
        ]
        return [Work("senders", senders, sends=True), Work("readers", readers), Work("workers", [_worker("worker-1"), _worker("worker-2")])]

    def comer(self, number: int) -> Work | None:
        return Work(f"comer-{number}", [_worker(f"worker-comer-{number}", comes=True), _holder(f"holder-comer-{number}", comes=True)])

    def logs(self) -> dict[str, list[str]]:
        return {topic: [f"{topic}/0"] for topic in (JOBS, KEPT, COUNTER)}

    def answers(self) -> bool:
        return sorted(self.broker.mode(node) for node in range(3)) == ["follower", "follower", "leader"]

    def await_answers(self, timeout: float = READY) -> None:
        """A member whose election's executor was shut down in a restart (QuorumCnxManager, RejectedExecutionException) refuses the others'
        connections for good, and two that have just begun find no leader without it: it is started again, as an operator would."""
        with suppress(TimeoutError):
            super().await_answers(min(timeout, ELECTED))
            return
        for number, server in enumerate(self.broker.servers):
            if "RejectedExecutionException" in server.tail(200):
                self.note("count", "ensemble", "members that had shut their election", 1)
                self.broker.kill(number)
                self.broker.start(number)
        super().await_answers(timeout)

    def own_faults(self) -> dict[str, Callable[[Round], AbstractContextManager[Sick]]]:
        return {"dethrone": self._dethrone}

    @contextmanager
    def _dethrone(self, _: Round) -> Iterator[Sick]:
        """The leader is killed: nobody serves until another one is elected, and what it had proposed may hold or not."""
        leader = next(node for node in range(3) if self.broker.mode(node) == "leader")
        self.broker.kill(leader)
        yield None
        self.broker.start(leader)

    def truth(self, ledger: Ledger) -> Truth:
        """By kazoo; of the queue that workers empty: what they were given, and what is left."""
        found = {}
        for topic in (JOBS, KEPT):
            rows = {((taken.place), taken.name) for taken in ledger.taken if taken.log == f"{topic}/0"}
            for name in self._kazoo.retry(self._kazoo.get_children, f"/{topic}/entries"):
                data, _ = self._kazoo.retry(self._kazoo.get, f"/{topic}/entries/{name}")
                rows.add(((int(name.rpartition("-")[2]),), data.decode().rstrip()))
            found[f"{topic}/0"] = sorted(rows)
        return found

    def last_words(self) -> Iterator[Finding]:
        """Ephemeral nodes go with their sessions."""
        deadline = time.monotonic() + SESSION + LONG
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            yield Finding("ephemeral nodes go", f"left behind their sessions: {', '.join(left)}")

    def _left(self) -> list[str]:
        try:
            paths = (f"/{HOLDERS}", f"/{JOBS}/taken")
            return [f"{path}/{name}" for path in paths for name in self._kazoo.retry(self._kazoo.get_children, path)]
        except NoNodeError:
            return []

    def close(self) -> None:
        if hasattr(self, "_kazoo"):
            self._kazoo.stop()
            self._kazoo.close()
        super().close()


def _producer(name: str, topic: str, promise: Promise, *, rate: int, **options: Any) -> tuple[Role, dict[str, Any]]:
    facts = {"name": name, "kind": "producer", "topic": topic, "options": options, "patience": 30.0, "rate": rate}
    return Role(name, "producer", topic, promise=promise), facts


def _worker(name: str, *, comes: bool = False) -> tuple[Role, dict[str, Any]]:
    role = Role(name, "worker", JOBS, group="workers", steady=not comes)
    facts = {"name": name, "kind": "worker", "topic": JOBS, "group": "workers", "comes_and_goes": comes, "quiet": SESSION + 3.0}
    return role, facts


def _holder(name: str, *, comes: bool = False) -> tuple[Role, dict[str, Any]]:
    return Role(name, "holder", HOLDERS, steady=not comes), {"name": name, "kind": "holder", "topic": HOLDERS}
