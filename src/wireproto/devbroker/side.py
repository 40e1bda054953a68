"""Defines the server side of one protocol: the base class of the four sides.

A side owns its state and answers on connections; the broker (`broker.py`, `server.py`) owns threads, ports and life time. Every method runs
in the dev broker's event loop, so a side needs no locks. A subclass implements::

    class KafkaSide(Side):
        protocol = "kafka"
        async def start(self) -> None:
            await self.listen("main")                      # more than one where the protocol has more (name server, admin HTTP)
        async def serve(self, connection: Connection) -> None:
            async for frame in connection:                 # the bytes after the length prefix
                fault = await connection.fault("Fetch")    # None, or what to do to this request; delays are already served
                connection.send(reply, fault=fault)        # length prefix added; does what the fault says

When `serve` returns or raises, the connection is closed. `stopped` saves state that must be kept. A side must not block the loop, or touch
a socket itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from .server import DEFAULT_CAP, Connection, Listener, Streams

if TYPE_CHECKING:
    import ssl

    from .faults import Faults
    from .log import Store
    from .recording import Recording


class Side:
    """Server side of one protocol.

    Attributes:
        faults: the faults that tests injected into this protocol.
        store: partition logs and small facts; on disk when the dev broker has a data folder.
        listeners: by name; "main" is the one that `DevBroker.url` names.
        connections: those that are open now.
        listening: whether new connections are accepted.
        auto_create: whether a topic that does not exist is created at its first use, where the protocol has that.
        recordings: get each frame that passes.
        counts: number of nodes by kind.
    """

    protocol: ClassVar[str]
    cap: ClassVar[int] = DEFAULT_CAP
    framing: ClassVar[str] = "length"
    """How frames are cut: by a ``length`` before them, or as ``lines``."""
    kinds: ClassVar[Mapping[str, int]] = {}
    """Default number of nodes of each kind, for kinds whose number a user may choose."""

    def __init__(
        self,
        faults: Faults,
        store: Store,
        *,
        host: str,
        ports: dict[str, int],
        tls: ssl.SSLContext | None,
        nodes: Mapping[str, int] | None = None,
    ) -> None:
        self.faults = faults
        self.store = store
        self.host = host
        self.tls = tls
        self.counts = {**self.kinds, **(nodes or {})}
        self.listeners: dict[str, Listener] = {}
        self._away: dict[str, Listener] = {}  # closed by a pause; they hold their ports
        self.connections: set[Connection] = set()
        self._ports = dict(ports)
        self.listening = False
        self.auto_create = True
        self.recordings: list[Recording] = []

    async def start(self) -> None:
        """Open the listeners. Called again after `pause`, with the same ports."""
        await self.listen("main")

    async def serve(self, connection: Connection) -> None:
        """Speak the protocol on one connection until it ends."""
        raise NotImplementedError

    def word(self, first: bytes) -> bytes | None:
        """Return a plain answer to a connection that begins with these bytes, after which it is closed; None: they are frames."""
        return None

    async def stopped(self) -> None:
        """Save what must be kept; called when the listeners are closed and the connections gone."""

    async def listen(self, name: str, *, streams: Streams | None = None, port: int | None = None) -> Listener:
        """Open a listener on a free port (the same one again after a pause).

        Args:
            name: how `DevBroker.address(protocol, name)` finds it; `serve` finds it as `connection.listener`.
            streams: serves plain asyncio streams instead of frames (HTTP).
            port: ask for this port where the user gave none.
        """
        listener = self._away.pop(name, None) or Listener(self, name, streams)
        await listener.open(self.host, self._ports.get(name, port or 0), self.tls)
        self._ports[name] = listener.port
        self.listeners[name] = listener
        return listener

    def address(self, name: str = "main") -> str:
        """Return ``host:port`` of a listener."""
        return f"{self.host}:{self._ports[name]}"

    def place(self) -> str:
        """Return what a URL of this side names: ``host:port``, or several with commas between them."""
        return self.address()

    def query(self) -> str:
        """Return the options that a URL of this side needs for all features, as ``name=value&…``."""
        return ""

    # -- what the broker calls --------------------------------------------------------------------------------------------

    async def up(self) -> None:
        """Start listening with all nodes that do not listen yet."""
        if not self.listening:
            self.listening = True
            await self.start()
        for name in list(self._away):
            await self.node_up(name)

    async def node_up(self, name: str) -> None:
        """Open a listener again that `node_down` closed."""
        if self.listening and name in self._away:
            await self.listen(name)

    async def node_down(self, name: str, *, abruptly: bool = False) -> None:
        """Close one listener and its connections; its port is held for `node_up`."""
        listener = self.listeners.pop(name)
        await listener.close(hold=True)
        self._away[name] = listener
        await self._end([connection for connection in self.connections if connection.listener == name], abruptly=abruptly)

    async def down(self, *, abruptly: bool = False, hold: bool = False) -> None:
        """Close listeners and connections; state stays in memory.

        Args:
            abruptly: as in a crash. hold: keep the ports for `up`.
        """
        if not hold:
            for listener in self._away.values():
                listener.release()
            self._away.clear()
        if not self.listening:
            return
        self.listening = False
        for name, listener in self.listeners.items():
            await listener.close(hold=hold)
            if hold:
                self._away[name] = listener
        self.listeners.clear()
        await self._end(list(self.connections), abruptly=abruptly)
        await self.stopped()

    async def _end(self, connections: list[Connection], *, abruptly: bool) -> None:
        if connections:
            await asyncio.gather(*(connection.end(abruptly=abruptly) for connection in connections), return_exceptions=True)

    def kick(self, node: str | None = None) -> int:
        """Cut every connection at once, as a crash does, or those of one listener; returns how many there were."""
        cut = [connection for connection in self.connections if node in (None, connection.listener)]
        for connection in cut:
            connection.abort()
        return len(cut)
