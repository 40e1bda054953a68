"""Starts and stops the sides of the dev broker in an event loop of their own, and gives their addresses.

One thread runs one asyncio loop with every side in it; calls from other threads are passed to the loop. This module must not know a
protocol.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import Closed, OptionError, TimedOut
from .faults import Faults
from .log import Store
from .recording import Recording
from .sides import side_class, spoken

if TYPE_CHECKING:
    import ssl

    from .side import Side

T = TypeVar("T")


class DevBroker:
    """An embedded broker; a context manager that starts and stops it.

    Args:
        protocols: the ones to serve; None for all.
        data_dir: folder that keeps what was written; None keeps it in memory only.
        host: address to listen on.
        ports: fixed ports by protocol, or by ``protocol.listener``; others are free ones.
        tls: serve TLS with this context instead of plain TCP.
        auto_create: whether topics are created at their first use, as servers do by default.
        nodes: number of nodes of a kind, by ``protocol.kind``, where a protocol has more than one: ``kafka.nodes``,
            ``rocketmq.name_servers``, ``rocketmq.slaves``, ``zookeeper.members``.
    Raises:
        OptionError: a protocol is not served, or a port or kind of node is unknown.
    """

    def __init__(
        self,
        protocols: Sequence[str] | None = None,
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        ports: Mapping[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        auto_create: bool = True,
        nodes: Mapping[str, int] | None = None,
    ) -> None:
        self.protocols = tuple(spoken() if protocols is None else protocols)
        self.host = host
        self._classes = {protocol: side_class(protocol) for protocol in self.protocols}
        self._ports = self._read_ports(ports or {})
        self._nodes = self._read_nodes(nodes or {})
        self._tls = tls
        self._auto_create = auto_create
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._faults = {protocol: Faults() for protocol in self.protocols}
        self._sides: dict[str, Side] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    # -- life -------------------------------------------------------------------------------------------------------------

    def start(self, timeout: float = 30.0) -> Self:
        """Listen on every port; returns when clients can connect.

        Args:
            timeout: seconds.
        Raises:
            TimedOut: it did not start in time. Any error that a side raised, such as OSError for a port that is in use.
        """
        if self._thread is not None:
            return self
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._main, name="wireproto-devbroker", daemon=True)
        self._thread.start()
        if not self._ready.wait(timeout):
            raise TimedOut(f"the dev broker did not start within {timeout} s")
        failure: BaseException | None = getattr(self, "_failure", None)  # written by the thread meanwhile
        if failure is not None:
            self._thread.join(timeout)
            self._thread = None
            raise failure
        return self

    def stop(self, timeout: float = 30.0) -> None:
        """Close every connection and port; with a data folder, save what it keeps.

        Args:
            timeout: seconds.
        Raises:
            TimedOut: it did not stop in time.
        """
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join(timeout)
        if thread.is_alive():
            raise TimedOut(f"the dev broker did not stop within {timeout} s")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- where ------------------------------------------------------------------------------------------------------------

    def address(self, protocol: str, listener: str = "main") -> str:
        """Return ``host:port`` of a protocol's listener."""
        return self._side(protocol).address(listener)

    def url(self, protocol: str, path: str = "") -> str:
        """Return a URL for `wireproto.connect`; other clients take `address`. Pulsar's URL has its admin HTTP as an option.

        Args:
            protocol: the side. path: a topic or a ZooKeeper path, which may end with ``?options``.
        """
        tail = path if path.startswith(("?", "/")) or not path else f"/{path}"
        query = self._side(protocol).query()
        if query:
            tail += ("&" if "?" in tail else "?") + query
        return f"{protocol}{'+tls' if self._tls else ''}://{self._side(protocol).place()}{tail}"

    def listeners(self, protocol: str) -> dict[str, str]:
        """Return every listener's ``host:port`` by name (RocketMQ's name server and broker, Pulsar's admin HTTP …)."""
        side = self._side(protocol)
        return {name: side.address(name) for name in side.listeners}

    # -- misbehaving ------------------------------------------------------------------------------------------------------

    def faults(self, protocol: str) -> Faults:
        """Return the faults of one protocol, to add some; see `Faults`."""
        self._known(protocol)
        return self._faults[protocol]

    def record(self, protocol: str) -> Recording:
        """Record every frame of a protocol from now on; call it before the clients of interest connect. Not with `tls`."""
        side = self._side(protocol)

        async def begin() -> Recording:
            recording = Recording(protocol, side.connections)
            side.recordings.append(recording)
            return recording

        return self._run(begin)

    def pause(self, protocol: str, node: str | None = None, *, abruptly: bool = True) -> None:
        """Take the broker away: its ports refuse connections, and open ones are cut. Its data stays.

        Args:
            protocol: the side.
            node: name of one of its `listeners`: only that one goes away, with the state that is lost when such a node goes.
            abruptly: as in a crash; False: with the protocol's orderly end, where it has one.
        """
        if node is None:
            self._run(lambda: self._side(protocol).down(abruptly=abruptly, hold=True))
        else:
            self._listens(protocol, node)
            self._run(lambda: self._side(protocol).node_down(node, abruptly=abruptly))

    def resume(self, protocol: str, node: str | None = None) -> None:
        """Bring the broker back, on the same ports: one listener, or all of them where no node is named."""
        side = self._side(protocol)
        self._run(side.up if node is None else lambda: side.node_up(node))

    def kick(self, protocol: str, node: str | None = None) -> int:
        """Cut every connection of a protocol, or of one of its listeners; returns how many there were."""
        side = self._side(protocol)

        async def kick() -> int:
            return side.kick(node)

        return self._run(kick)

    def call(self, protocol: str, method: str, *args: Any, **named: Any) -> Any:
        """Run a method of the side in the broker's loop (``broker.call("kafka", "move_leader", "topic", 0)``), and return its result."""
        side = self._side(protocol)

        async def run() -> Any:
            outcome = getattr(side, method)(*args, **named)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return self._run(run)

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _known(self, protocol: str) -> None:
        if protocol not in self.protocols:
            raise OptionError(f"this dev broker does not serve {protocol!r}; it serves {', '.join(self.protocols)}")

    def _side(self, protocol: str) -> Side:
        self._known(protocol)
        if self._thread is None:
            raise Closed("the dev broker is not running")
        return self._sides[protocol]

    def _read_ports(self, ports: Mapping[str, int]) -> dict[str, dict[str, int]]:
        read: dict[str, dict[str, int]] = {protocol: {} for protocol in self.protocols}
        for name, port in ports.items():
            protocol, _, listener = name.partition(".")
            self._known(protocol)
            read[protocol][listener or "main"] = port
        return read

    def _read_nodes(self, nodes: Mapping[str, int]) -> dict[str, dict[str, int]]:
        read: dict[str, dict[str, int]] = {protocol: {} for protocol in self.protocols}
        for name, count in nodes.items():
            protocol, _, kind = name.partition(".")
            self._known(protocol)
            kinds = self._classes[protocol].kinds
            if kind not in kinds:
                raise OptionError(f"{protocol} has no nodes called {kind!r} here; it has {', '.join(kinds) or 'none to choose'}")
            if not min(kinds[kind], 1) <= count <= 9:
                raise OptionError(f"{name} is {min(kinds[kind], 1)} to 9, not {count}")
            read[protocol][kind] = count
        return read

    def _listens(self, protocol: str, node: str) -> None:
        if node not in self._side(protocol).listeners:
            raise OptionError(f"{protocol} has no listener {node!r} now; it has {', '.join(self._side(protocol).listeners) or 'none'}")

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float = 30.0) -> T:
        if self._loop is None or self._thread is None:
            raise Closed("the dev broker is not running")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(timeout)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as why:
            self._failure = why
        finally:
            self._loop = None
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        stores: list[Store] = []
        try:
            for protocol in self.protocols:
                store = Store(None if self._data_dir is None else self._data_dir / protocol)
                stores.append(store)
                where: dict[str, Any] = {"host": self.host, "ports": self._ports[protocol], "tls": self._tls}
                side = self._classes[protocol](self._faults[protocol], store, nodes=self._nodes[protocol], **where)
                side.auto_create = self._auto_create
                self._sides[protocol] = side
                await side.up()
            self._ready.set()
            await self._stop.wait()
        finally:
            for side in self._sides.values():
                await side.down()
            for store in stores:
                store.close()
