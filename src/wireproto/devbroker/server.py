"""Accepts the dev broker's connections: asyncio TCP, cut into frames.

Everything that touches a socket in the dev broker is here. Most protocols' frames start with a 4-byte big-endian length, which the
framer checks against a cap before anything is allocated (others are lines); a bad one closes the connection.

    +--------------+-----------------------+
    | int32 length | length bytes of frame |
    +--------------+-----------------------+

This module must not know a protocol. It runs in the dev broker's event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from .._codec import Framer
from ..errors import FrameTooLarge, WireprotoError
from .faults import ACCEPT, Fault

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Buffer

    from .faults import Faults
    from .recording import Recording

DEFAULT_CAP = 128 << 20
HIGH_WATER = 8 << 20
"""Bytes of frames that may wait for the side; above that the socket is not read."""

log = logging.getLogger("wireproto.devbroker")

Streams = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Served(Protocol):
    """The side that a connection belongs to, as far as connections and listeners know it; see `side.Side`."""

    faults: Faults
    connections: set[Connection]
    listening: bool
    recordings: list[Recording]

    @property
    def protocol(self) -> str:
        """Return the protocol's name."""

    @property
    def cap(self) -> int:
        """Return the largest frame that is accepted, in bytes."""

    @property
    def framing(self) -> str:
        """Return how frames are cut: "length" or "lines"."""

    async def serve(self, connection: Connection) -> None:
        """Speak the protocol on one connection until it ends."""

    def word(self, first: bytes) -> bytes | None:
        """Return a plain answer to a connection that begins with these bytes; None: they are frames."""


class Hangup(Exception):
    """A fault asked for the connection to be cut: unwinds `serve`."""


class Lines:
    """Cuts lines, for protocols whose frames end with a line feed; `Framer` cuts those that begin with a length."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes that were received."""
        self._data += data

    def next(self) -> bytes | None:
        """Return the next line without its end, or None; raises FrameTooLarge."""
        line, feed, rest = self._data.partition(b"\n")
        if len(line) > self._cap:
            raise FrameTooLarge(f"a line of {len(line)} bytes, the most accepted is {self._cap}")
        if not feed:
            return None
        self._data = rest
        return bytes(line)


class Connection(asyncio.Protocol):
    """One client's connection. Iterate it for frames; `send` answers.

    Attributes:
        peer: ``host:port`` of the client.
        listener: name of the listener that accepted it.
        state: the side's own object, None at first.
        heard: number of frames received.
    """

    def __init__(self, side: Served, listener: str) -> None:
        self.side = side
        self.listener = listener
        self.peer = "?"
        self.state: Any = None
        self.heard = 0
        self._lines = side.framing == "lines"
        self._framer = Lines(side.cap) if self._lines else Framer(side.cap)
        self._frames: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._stalled = False
        self._greeted = False
        self._waiter: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    # -- for the side -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Connection:
        return self

    async def __anext__(self) -> bytes:
        frame = await self.next()
        if frame is None:
            raise StopAsyncIteration
        return frame

    async def next(self) -> bytes | None:
        """Return the next frame without its length prefix, or None when the client is gone."""
        while not self._frames:
            if self._closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        frame = self._frames.popleft()
        self._waiting_bytes -= len(frame)
        if self._paused and not self._stalled and self._waiting_bytes < HIGH_WATER // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return frame

    async def fault(self, message: str, **facts: Any) -> Fault | None:
        """Take the fault that applies to this request, or None; delays are served here, and the connection is cut or stalled here.

        Args:
            message: the vendor's name of the request.
            facts: what a test's `when` may look at (topic=…, partition=…).
        Raises:
            Hangup: the connection is to be cut.
        """
        fault = self.side.faults.take(message, **facts)
        if fault is None:
            return None
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
            return None
        if fault.kind == "disconnect":
            raise Hangup
        if fault.kind == "stall":
            self._stalled = True
            if self._transport is not None:
                self._transport.pause_reading()
            await asyncio.get_running_loop().create_future()  # until the connection's task is cancelled
        return fault

    def send(self, *parts: Buffer, fault: Fault | None = None) -> None:
        """Write one frame made of `parts`, length prefix added; `fault` may drop, corrupt or cut it."""
        size = sum(memoryview(part).nbytes for part in parts)
        if self.side.recordings:
            frame = b"".join(parts)
            for recording in self.side.recordings:
                recording.note(self, False, frame)
        if self._lines:
            self.write(*parts, b"\n", fault=fault)
        else:
            self.write(size.to_bytes(4, "big"), *parts, fault=fault)

    def write(self, *parts: Buffer, fault: Fault | None = None) -> None:
        """Write bytes as they are (a frame with its prefix)."""
        if self._transport is None or self._transport.is_closing():
            return
        if fault is None or fault.kind not in {"drop", "lose_reply", "corrupt", "truncate"}:
            self._transport.write(b"".join(parts))
        elif fault.kind == "lose_reply":
            self.abort()
        elif fault.kind != "drop":
            whole = bytearray(b"".join(parts))
            if fault.kind == "corrupt":
                whole[fault.at if fault.at < 0 else 4 + fault.at] ^= fault.mask
                self._transport.write(whole)
            else:
                self._transport.write(whole[: 4 + fault.at])
                self._transport.close()

    async def drain(self) -> None:
        """Wait while the client reads too slowly."""
        await self._writable.wait()

    def close(self) -> None:
        """Close when what was written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def closed(self) -> bool:
        """Return whether the client is gone."""
        return self._closed

    @property
    def reading(self) -> bool:
        """Return whether the socket is being read."""
        return not self._paused

    @property
    def stalled(self) -> bool:
        """Return whether a fault has stopped this connection for good."""
        return self._stalled

    # -- asyncio.Protocol -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving, unless the side is going down or a fault refuses the connection (called by asyncio)."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        if not self.side.listening or self.side.faults.take(ACCEPT) is not None:  # accepted while the side went down
            transport.abort()
            return
        self.side.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into frames; pause reading while too many wait for the side (called by asyncio)."""
        if not self._greeted:
            self._greeted = True
            word = self.side.word(data)
            if word is not None:
                self.write(word)
                self.close()
                return
        try:
            self._framer.feed(data)
            while (frame := self._framer.next()) is not None:
                self._frames.append(frame)
                self.heard += 1
                self._waiting_bytes += len(frame)
                for recording in self.side.recordings:
                    recording.note(self, True, frame)
        except WireprotoError as why:
            log.info("%s: %s: %s", self.side.protocol, self.peer, why)
            self.abort()
            return
        if self._waiting_bytes > HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake up the side, which finds the connection closed (called by asyncio)."""
        self._closed = True
        self._writable.set()
        self._wake()
        if self._stalled and self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Make `drain` wait (called by asyncio)."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let `drain` return (called by asyncio)."""
        self._writable.set()

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _run(self) -> None:
        try:
            await self.side.serve(self)
        except Hangup:
            self.abort()
        except WireprotoError as why:
            log.info("%s: %s: closing: %s", self.side.protocol, self.peer, why)
        except asyncio.CancelledError:
            self.abort()
        except Exception:
            log.exception("%s: %s: the dev broker failed", self.side.protocol, self.peer)
        finally:
            self.close()
            self.side.connections.discard(self)

    async def end(self, *, abruptly: bool) -> None:
        """Close from outside and wait until `serve` has ended.

        Args:
            abruptly: cut it, instead of sending first what was written.
        """
        if abruptly:
            self.abort()
        else:
            self.close()
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=0.5)
            if not done:
                self._task.cancel()
                await asyncio.wait([self._task], timeout=0.5)
        self.abort()


class Listener:
    """One listening port of a side."""

    def __init__(self, side: Served, name: str, streams: Streams | None) -> None:
        self.side = side
        self.name = name
        self.port = 0
        self._streams = streams
        self._server: asyncio.Server | None = None
        self._held: socket.socket | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Listen; port 0 takes a free one, and a port that was held is used again."""
        held, self._held = self._held, None
        where: dict[str, Any] = {"host": host, "port": port} if held is None else {"sock": held}
        if self._streams is not None:
            self._server = await asyncio.start_server(self._streams, ssl=tls, **where)
        else:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: Connection(self.side, self.name), ssl=tls, backlog=256, **where)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self, *, hold: bool = False) -> None:
        """Stop listening; the side closes the open connections.

        Args:
            hold: keep the port, which refuses connections then. A port that is released may be given to any outgoing connection of the
                machine: the broker could not come back, and a client that dials it meanwhile may even be connected to itself.
        """
        for _ in range(4):  # an accepted socket becomes a connection a few turns later; asyncio leaks it if its server is closed before
            await asyncio.sleep(0)
        if self._server is not None:
            for sock in self._server.sockets:
                asyncio.get_running_loop().remove_reader(sock.fileno())
            await asyncio.sleep(0)  # lets sockets accepted just now get their transports: after the close they would stay open for ever
            await asyncio.sleep(0)
            places = [(sock.family, sock.getsockname()) for sock in self._server.sockets]
            self._server.close()
            if hold and len(places) == 1:
                self._held = _bound(*places[0])

    def release(self) -> None:
        """Release a port that is held."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _bound(family: int, place: Any) -> socket.socket | None:
    """Return a socket that is bound to the address and does not listen; None where the address is in use."""
    sock = socket.socket(family)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that were cut may be in TIME_WAIT
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(place)
    except OSError:
        sock.close()
        return None
    return sock
