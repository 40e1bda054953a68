"""Keeps a member of a producer group known to all masters, by heartbeats on connections on which the brokers send check-backs.

A broker sends the check-back of a half message (39) on any connection of the group that has sent it a heartbeat, so a process that is to
answer has one to every master of the cluster, whichever topics it sends to: the halves of a member that has died may lie anywhere.

    join      heartbeat (34) to each master; one that is away gets the next heartbeat with the others
    beat      each `heartbeat_interval`; a connection that was lost is made again at once, with growing waits where that fails
    leave     unregister (35), and the connections are closed; brokers forget a member with its connection, too

Where an unregister overtakes a heartbeat, a closed connection stays in a broker's list: it sends no check-back on such. The masters are
looked up at the name servers; while none answers, those known last are used.
What brokers send is handled by the owner, in the I/O thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from wireproto._net import REQUESTS, Mailbox
from wireproto.errors import BrokerError, Closed, TransportError, WireprotoError
from wireproto.net.retry import Policy, Waits
from wireproto.net.task import NEVER, Steps

from .bodies import HeartbeatData
from .errors import NoMaster
from .messages import HeartBeatRequest, UnregisterClientRequest
from .transient_errors import passes

if TYPE_CHECKING:
    from wireproto._net import Connection

    from .cluster import RocketCluster
    from .options import RocketOptions

ASK = 3.0
"""Seconds that one broker has to answer, so that one which does not answer delays no other; also the name servers', where masters are
known."""
AGAIN = Policy(first=1.0, factor=2.0, ceiling=1e9, jitter=0.2)
"""Waits until a heartbeat that failed is sent again, up to `heartbeat_interval`."""


class Presence:
    """Sends the heartbeats of one member of a producer group.

    Args:
        called: handles what brokers send on these connections; called in the I/O thread.
    """

    def __init__(self, cluster: RocketCluster, options: RocketOptions, group: str, called: Callable[[object], None]) -> None:
        self._cluster, self._options, self._group = cluster, options, group
        self.id = cluster.next_id()
        self._body = HeartbeatData(self.id, (group,)).encode()
        self._box = Mailbox(cluster.loop, handler=called)
        self._connections: dict[str, Connection] = {}
        self._masters: list[str] = []
        self._back = 0.0
        self._closed = False
        cluster.watch(self)

    def joining(self, until: float) -> Steps[None]:
        """Send the first heartbeats, to every master; raises when none of them answers in time."""
        everywhere = yield from self._cluster.retrying(lambda: self._beating(until), until)
        self._later()
        if not everywhere:
            self._cluster.tasks.shared(("back", self.id), self._coming_back, f"heartbeats of group {self._group}")

    def reaching(self, address: str, until: float) -> Steps[None]:
        """Send a heartbeat to this broker, unless it has had one on an open connection: a half is about to be sent to it.

        An error is ignored: the broker gets the next heartbeat with the others.
        """
        if self.calling(address) is None:
            with contextlib.suppress(BrokerError, TransportError):
                yield from self._beat(address, until)

    def calling(self, address: str) -> Connection | None:
        """Return the open connection on which this broker sends check-backs, or None."""
        conn = self._connections.get(address)
        return None if conn is None or conn.closed else conn

    # --- heartbeats ---

    def _current_masters(self, until: float) -> Steps[list[str]]:
        """Return the addresses of all masters, as far as known; raises NoMaster where there is none."""
        limit = min(until, time.monotonic() + ASK) if self._masters else until
        try:
            self._masters = yield from self._cluster.masters(limit)
        except WireprotoError as why:
            if not self._masters or not passes(why):
                raise
        if not self._masters:
            raise NoMaster("no broker of the cluster has a master")
        return self._masters

    def _beating(self, until: float) -> Steps[bool]:
        """Send a heartbeat to each master, concurrently; returns whether all of them took it. Raises when all of them failed."""
        problems: list[WireprotoError] = []

        def beat(address: str) -> Steps[None]:
            try:
                yield from self._beat(address, until)
            except WireprotoError as why:
                if not passes(why):
                    raise
                problems.append(why)
                self._cluster.log.info(("beat", self._group, address), "group %s: no heartbeat to %s: %s", self._group, address, why)

        masters = yield from self._current_masters(until)
        yield from self._cluster.tasks.every([(f"heartbeat to {address}", beat(address)) for address in masters], NEVER)
        gone = [address for address, conn in self._connections.items() if conn.closed and address not in masters]
        for address in gone:
            del self._connections[address]
        if len(problems) == len(masters):
            raise problems[0]
        return not problems

    def _beat(self, address: str, until: float) -> Steps[None]:
        until = min(until, time.monotonic() + ASK)
        conn = yield from self._cluster.connecting(address, until, self.id)
        conn.route(REQUESTS, self._box)
        self._connections[address] = conn
        if self._closed:  # meanwhile
            self._hang_up()
            return
        yield from self._cluster.asking(conn, HeartBeatRequest(), self._body, until=until)

    def _later(self) -> None:
        """Set the timer for the next heartbeats, in the I/O thread."""
        if not self._closed:
            self._cluster.loop.call_at(time.monotonic() + self._options.heartbeat_interval, self._now)

    def _now(self) -> None:
        if not self._closed:
            self._cluster.tasks.shared(("beat", self.id), self._beat_quietly, f"heartbeats of group {self._group}")
            self._later()

    def _beat_quietly(self) -> Steps[bool]:
        """Send heartbeats without raising; returns whether every master took one."""
        if self._closed:
            return True
        try:
            return (yield from self._beating(self._cluster.deadline(self._options.connect_timeout)))
        except (BrokerError, TransportError):  # the next one comes
            return False
        except Closed:
            return True

    def lost(self, conn: Connection) -> None:
        """Handle the loss of a connection of the client, in the I/O thread: if it is one of ours, that broker cannot ask here."""
        if not self._closed and any(conn is mine for mine in list(self._connections.values())):
            self._cluster.tasks.shared(("back", self.id), self._coming_back, f"heartbeats of group {self._group}")

    def _coming_back(self) -> Steps[None]:
        """Make lost connections again: at once, 1 s later where they are cut as they are made, with growing waits where that fails."""
        waits = Waits(AGAIN)
        if time.monotonic() < self._back + AGAIN.first:
            yield self._back + AGAIN.first
        self._back = time.monotonic()
        while not self._closed:
            known = yield from self._beat_quietly()
            wait = waits.next()
            if self._recovered(known) or wait >= self._options.heartbeat_interval:
                return
            yield time.monotonic() + wait

    def _recovered(self, known: bool) -> bool:
        """Return whether no call has to wait: all connections are open, or the role is closed."""
        return self._closed or (known and not any(conn.closed for conn in self._connections.values()))

    # --- the end ---

    def closing(self, until: float) -> Steps[None]:
        """Leave the group, and close the connections."""
        self._closed = True
        message = UnregisterClientRequest(client_id=self.id, producer_group=self._group)

        def leave(conn: Connection) -> Steps[None]:
            with contextlib.suppress(WireprotoError):
                yield from self._cluster.asking(conn, message, until=min(until, time.monotonic() + ASK))

        there = {address: conn for address, conn in self._connections.items() if not conn.closed}
        try:
            with contextlib.suppress(WireprotoError):
                leaving = [(f"leaving group {self._group} at {address}", leave(conn)) for address, conn in there.items()]
                yield from self._cluster.tasks.every(leaving, until)
        finally:
            self.end()

    def end(self) -> None:
        """Close the connections without leaving the group."""
        self._closed = True
        self._cluster.unwatch(self)
        self._hang_up()
        self._box.close()

    def _hang_up(self) -> None:
        for conn in list(self._connections.values()):
            self._cluster.pool.drop(conn, "the role was closed")
        self._cluster.pool.forget(self.id, "the role was closed")
