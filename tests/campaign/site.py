"""A protocol's cluster as the campaign knows it: nodes that can be hurt, a proxy before each, topics, roles, and what the logs hold.

What it is: the base that *_site.py fill in. May assume: tests/brokers. Must not: know what the faults are for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from brokers import Broker
from brokers.proxy import FaultProxy

from .clocks import Clocks
from .ledger import Finding, Ledger, Role, Truth
from .plan import Round

OPEN = 15.0  # the clients' own timeout: for opening a role
READY = 120.0  # seconds for a cluster to answer again, on a machine that has other work


@dataclass
class Work:
    """A process of the workload: its name, its roles, as the ledger has them and as the process wants them; `sends`: ends first; `door`:
    which of the broker's `urls` it connects to; `options`: of `connect`, beside the site's; `stream`: a Spark stream, streaming.py's."""

    name: str
    roles: list[tuple[Role, dict[str, Any]]] = field(default_factory=list)
    sends: bool = False
    door: str = "plain"
    options: dict[str, Any] = field(default_factory=dict)
    stream: bool = False


def logs_in(made: tuple[Role, dict[str, Any]], error: str) -> tuple[Role, dict[str, Any]]:
    """The same role, told by this error at once when its login is refused; empty: it goes on trying."""
    return replace(made[0], login=error), made[1]


def fleeting(made: tuple[Role, dict[str, Any]]) -> tuple[Role, dict[str, Any]]:
    """The same role, of a topic that is cut short or made again."""
    return replace(made[0], fleeting=True), made[1] | {"fleeting": True}


class Site:
    """See the module.

    Attributes:
        broker, proxies: one proxy a node. servers: each node's number.
        note: into the journal.
        short: whether it is the short form, beside other work. seed: what a site may choose by, too.
        clocks: of nodes and clients, where they are to jump; to be set before `start`.
    """

    protocol: ClassVar[str]
    version: ClassVar[str]
    faults: ClassVar[Sequence[str]] = ()  # those of faults.py that can be had here
    flowing: float = 10.0  # seconds from healing until all flows
    learning: float = 10.0  # seconds in which clients learn of a log that is new
    faked: bool = False  # whether its brokers' clocks jump, too, beside the clients'
    session: float = 6.0  # seconds for which a killed member holds what it had

    def __init__(self) -> None:
        self.broker: Broker = self.make()
        self.servers: list[int] = []
        self.proxies: list[FaultProxy] = []
        self.note: Callable[..., None] = lambda *_: None
        self.clocks: Clocks | None = None
        self.short = False
        self.seed = 0
        self._first_seen: dict[str, float] = {}

    def make(self) -> Broker:
        raise NotImplementedError

    def node_addresses(self) -> list[str]:
        """``host:port`` of each node, as it is advertised."""
        raise NotImplementedError

    def start(self) -> None:
        if self.clocks is not None and self.faked:
            self.broker.prepare()
            for number, server in enumerate(self.broker.servers):
                server.command = self.clocks.command(f"node-{number}", server.command)
        self.broker.start()
        self.servers = self.servers or list(range(len(self.broker.servers)))
        self.proxies = [FaultProxy() for _ in self.servers]

    @property
    def nodes(self) -> int:
        return len(self.servers)

    def url(self, door: str = "plain") -> str:
        """What clients of the workload connect to: every address behind its proxy."""
        found = self.broker.urls[door]
        for old, new in self.address_map().items():
            found = found.replace(old, new)
        return found

    def guarded_addresses(self) -> list[str]:
        """Those of each node that ask for a login, where other ones do not."""
        return []

    def address_map(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for addresses in filter(None, (self.node_addresses(), self.guarded_addresses())):
            found |= {address: proxy.through(address) for address, proxy in zip(addresses, self.proxies, strict=True)}
        return found

    def options(self) -> dict[str, Any]:
        """Of `connect`, in the processes of the workload."""
        return {"address_map": self.address_map()}

    def prepare(self) -> None:
        """Make the topics."""

    def works(self) -> list[Work]:
        raise NotImplementedError

    def streams(self) -> list[Work]:
        """Spark streams, of the long form alone."""
        return []

    def comer(self, number: int) -> Work | None:
        """A process with members that come and go."""
        return None

    def control(self, told: Callable[[str, float], None], ended: threading.Event) -> None:
        """Write to `homes` by a client that is not ours, until `ended`; `told(log, seconds)` is called for each acknowledgement."""

    def logs(self) -> dict[str, list[str]]:
        """Topic to the names of its logs, as they are now."""
        raise NotImplementedError

    def known_logs(self) -> dict[str, list[str]]:
        """Those that clients must have learned of by now."""
        now = time.monotonic()
        first = not self._first_seen
        found = self.logs()
        for log in (log for logs in found.values() for log in logs):
            self._first_seen.setdefault(log, 0.0 if first else now)
        return {topic: [log for log in logs if self._first_seen[log] + self.learning < now] for topic, logs in found.items()}

    def homes(self) -> dict[str, int]:
        """Logs that live on one node alone."""
        return {}

    def own_faults(self) -> dict[str, Callable[[Round], AbstractContextManager[frozenset[int] | None]]]:
        """Faults of this protocol alone, as `faults.py` has them."""
        return {}

    def answers(self) -> bool:
        """Whether every node serves, and every log has a leader; raising is no."""
        raise NotImplementedError

    def await_answers(self, timeout: float = READY) -> None:
        deadline = time.monotonic() + timeout
        why: object = "no"
        while True:
            try:
                if self.answers():
                    return
            except Exception as error:  # of whatever client asks
                why = error
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.broker.name} does not answer after {timeout:.0f} s: {why}\n{self.broker.tail(10)}")
            time.sleep(0.1)

    def truth(self, ledger: Ledger) -> Truth:
        """What the logs hold, as a client reads them that we did not write."""
        raise NotImplementedError

    def last_words(self) -> Iterable[Finding]:
        """What else the brokers show when all clients have gone."""
        return ()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.broker.close()
