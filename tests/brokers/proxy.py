"""A small TCP proxy that misbehaves on command, between a client and a real broker.

    with FaultProxy() as proxy:
        url = proxy.url(broker.url)                        # the same URL with every address led through the proxy
        client = connect(url, address_map=proxy.address_map(broker.addresses))
        proxy.stall()          # sockets stay open, nothing passes in either direction, nothing is read: a silent peer
        proxy.stall("down")    # only from broker to client; the broker still gets requests
        proxy.drop("up")       # bytes are read and thrown away
        proxy.delay(0.2)       # every chunk arrives that much later, in order
    proxy.slow(20_000)     # so many bytes a second in each direction, in small pieces
        proxy.cut()            # reset every open connection now; new ones pass
        proxy.half_close()     # end of stream to the client; its own bytes still pass
        proxy.refuse()         # the port is closed: connections are refused, open ones are reset
        proxy.cut_after(100)   # reset as soon as so many more bytes went down to the client
        proxy.heal()           # all passes again, delayed bytes too
        seen = proxy.record("kafka")    # frames of connections made from now on, decoded: wireproto.devbroker.recording

One thread over all connections. Directions: "up" is client to broker, "down" broker to client. Works with whatever protocol; TLS too.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

from wireproto._codec import Framer
from wireproto.devbroker.recording import Recording

from . import ports

_CHUNK = 1 << 16
_FRAME = 256 << 20  # bytes of a frame that is recorded
_ROOM = 1 << 18  # bytes held for one direction before its source is no longer read
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends RST


class _Flow:
    """One direction of one connection: what was read and is not yet written."""

    def __init__(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        self.source, self.sink, self.name = source, sink, name
        self.chunks: collections.deque[tuple[float, bytes]] = collections.deque()
        self.held = 0
        self.due = 0.0  # when the last piece of a slow line is through
        self.ended = False  # the source sent its end
        self.finished = False  # and the sink was told
        self.framers: list[tuple[Recording, Framer]] = []  # who is told of the frames that pass


def _all_moved(outcomes: Iterable[bool]) -> bool:
    """Whether all are true, having looked at each: one direction's end must not keep the other from moving."""
    return list(outcomes).count(False) == 0


class _Link:
    def __init__(self, client: socket.socket, server: socket.socket, recordings: Iterable[Recording] = ()) -> None:
        self.client, self.server = client, server
        self.flows = (_Flow(client, server, "up"), _Flow(server, client, "down"))
        for flow in self.flows:
            flow.framers = [(recording, Framer(_FRAME)) for recording in recordings]

    def passed(self, flow: _Flow, data: bytes) -> None:
        """Tell the recordings of the frames that these bytes complete."""
        for recording, framer in flow.framers:
            framer.feed(data)
            while (frame := framer.next()) is not None:
                recording.note(self, flow.name == "up", frame)

    def close(self, reset: bool) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.close()


class FaultProxy:
    """See the module. Attributes: `connections` accepted so far, `passed` and `dropped` bytes by direction."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, int], int] = {}  # target -> our port
        self._listeners: dict[socket.socket, tuple[str, int]] = {}
        self._links: list[_Link] = []
        self._mode = {"up": "pass", "down": "pass"}
        self._delay = 0.0
        self._rate: float | None = None
        self._left: int | None = None
        self._refusing = self._ended = False
        self.connections = 0
        self.passed = {"up": 0, "down": 0}
        self.dropped = {"up": 0, "down": 0}
        self._recordings: list[Recording] = []
        self._lock = threading.Lock()
        self._jobs: collections.deque[Callable[[], None]] = collections.deque()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._thread = threading.Thread(target=self._loop, name="fault-proxy", daemon=True)
        self._thread.start()

    # What tests call.

    def through(self, address: str) -> str:
        """Our ``host:port`` for the broker's ``host:port``; a listener is opened at the first ask."""
        host, _, port = address.rpartition(":")
        target = (host.strip("[]"), int(port))
        with self._lock:
            if target not in self._routes:
                self._routes[target] = ports.take()
                self._do(lambda: self._listen(target))
        return f"127.0.0.1:{self._routes[target]}"

    def address_map(self, addresses: Iterable[str]) -> dict[str, str]:
        """``{advertised: ours}`` for a client's `address_map` option."""
        return {address: self.through(address) for address in addresses}

    def url(self, url: str) -> str:
        """The URL with each of its addresses led through here (names in options, like admin=, stay)."""
        head, _, query = url.partition("?")
        led = re.sub(r"(?<=[/,])[^/,]+:\d+", lambda found: self.through(found.group()), head)
        return led + ("?" + query if query else "")

    def record(self, protocol: str) -> Recording:
        """Keep the frames of connections that are made from now on; plain ones, not TLS."""
        recording = Recording(protocol)
        self._do(lambda: self._recordings.append(recording))
        return recording

    def stall(self, direction: str = "both") -> None:
        self._set("stall", direction)

    def drop(self, direction: str = "both") -> None:
        self._set("drop", direction)

    def delay(self, seconds: float) -> None:
        self._do(lambda: setattr(self, "_delay", seconds))

    def slow(self, rate: float) -> None:
        self._do(lambda: setattr(self, "_rate", rate))

    def cut(self) -> None:
        self._do(self._cut)

    def cut_after(self, count: int) -> None:
        self._do(lambda: setattr(self, "_left", count))

    def half_close(self) -> None:
        def shut() -> None:
            for link in self._links:
                with contextlib.suppress(OSError):
                    link.client.shutdown(socket.SHUT_WR)
                link.flows[1].finished = True

        self._do(shut)

    def refuse(self) -> None:
        def close() -> None:
            self._refusing = True
            for listener in self._listeners:
                listener.close()
            self._listeners.clear()
            self._cut()

        self._do(close)

    def heal(self) -> None:
        def mend() -> None:
            self._mode = {"up": "pass", "down": "pass"}
            self._delay, self._left, self._rate = 0.0, None, None
            if self._refusing:
                self._refusing = False
                for target in self._routes:
                    self._listen(target)

        self._do(mend)

    def close(self) -> None:
        def end() -> None:
            self._ended = True

        if self._thread.is_alive():
            self._do(end)
            self._thread.join(10)
        ports.release(*self._routes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set(self, mode: str, direction: str) -> None:
        chosen = ("up", "down") if direction == "both" else (direction,)
        self._do(lambda: self._mode.update(dict.fromkeys(chosen, mode)))

    def _do(self, job: Callable[[], None]) -> None:
        """Run in the proxy's thread; returns when it has been run."""
        done = threading.Event()

        def run() -> None:
            job()
            done.set()

        self._jobs.append(run)
        os.write(self._wake_out, b"x")
        if not done.wait(10):
            raise TimeoutError("the proxy's thread does not answer")

    # What its thread does.

    def _listen(self, target: tuple[str, int]) -> None:
        listener = socket.create_server(("127.0.0.1", self._routes[target]), backlog=64)
        listener.setblocking(False)
        self._listeners[listener] = target

    def _cut(self) -> None:
        for link in self._links:
            link.close(reset=True)
        self._links.clear()

    def _loop(self) -> None:
        try:
            while not self._ended:
                self._step()
        finally:
            self._cut()
            for listener in self._listeners:
                listener.close()
            os.close(self._wake_in)
            os.close(self._wake_out)

    def _step(self) -> None:
        now = time.monotonic()
        reads: list[int | socket.socket] = [self._wake_in, *self._listeners]
        writes: list[socket.socket] = []
        due: list[float] = []
        for flow in (flow for link in self._links for flow in link.flows):
            if self._mode[flow.name] == "stall" or flow.finished:
                continue
            if not flow.ended and flow.held < _ROOM:
                reads.append(flow.source)
            if flow.chunks:
                when = flow.chunks[0][0]
                writes.append(flow.sink) if when <= now else due.append(when)
        poller = select.poll()
        wanted: dict[int, int] = {}
        for item in reads:
            number = item if isinstance(item, int) else item.fileno()
            wanted[number] = wanted.get(number, 0) | select.POLLIN
        for sock in writes:
            wanted[sock.fileno()] = wanted.get(sock.fileno(), 0) | select.POLLOUT
        for number, mask in wanted.items():
            poller.register(number, mask)
        limit = None if not due else max(0.0, (min(due) - now) * 1000 + 1)
        events = dict(poller.poll(limit))
        if self._wake_in in events:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_in, 4096)
            while self._jobs:
                self._jobs.popleft()()
            return  # jobs may have closed what the events are about
        for listener, target in list(self._listeners.items()):
            if listener.fileno() in events:
                self._accept(listener, target)
        for link in list(self._links):
            try:
                alive = _all_moved(self._move(link, flow, events) for flow in link.flows)
            except OSError:
                alive = False
            if link in self._links and (not alive or all(flow.finished for flow in link.flows)):
                link.close(reset=not alive)
                self._links.remove(link)

    def _pieces(self, data: bytes) -> list[bytes]:
        """What goes over a slow line in a twentieth of a second each; else all at once."""
        step = max(int(self._rate / 20), 1) if self._rate else len(data)
        return [data[start : start + step] for start in range(0, len(data), step)]

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        self.connections += 1
        try:
            server = socket.create_connection(target, 5.0)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links.append(_Link(client, server, self._recordings))

    def _move(self, link: _Link, flow: _Flow, events: dict[int, int]) -> bool:
        """Read and write what is ready; False when the connection is to be reset."""
        if flow.finished or self._mode[flow.name] == "stall":
            return True
        bad = select.POLLERR | select.POLLNVAL
        if events.get(flow.source.fileno(), 0) & (select.POLLIN | select.POLLHUP | bad) and not flow.ended and flow.held < _ROOM:
            data = flow.source.recv(_CHUNK)
            if not data:
                flow.ended = True
            elif self._mode[flow.name] == "drop":
                self.dropped[flow.name] += len(data)
            else:
                for piece in self._pieces(data):
                    flow.due = max(flow.due, time.monotonic()) + (len(piece) / self._rate if self._rate else 0.0)
                    flow.chunks.append((flow.due + self._delay, piece))
                flow.held += len(data)
        while flow.chunks and flow.chunks[0][0] <= time.monotonic():
            when, data = flow.chunks[0]
            if flow.name == "down" and self._left is not None:
                data = data[: self._left]
            self.passed[flow.name] += len(data)  # before they are sent: who has received them may ask at once
            sent = 0
            try:
                sent = flow.sink.send(data) if data else 0
            except BlockingIOError:
                break
            finally:
                self.passed[flow.name] -= len(data) - sent
            if flow.framers and sent:
                link.passed(flow, data[:sent])
            flow.held -= sent
            if flow.name == "down" and self._left is not None:
                self._left -= sent
                if self._left <= 0:
                    self._left = None
                    return False
            rest = flow.chunks[0][1][sent:]
            if rest:
                flow.chunks[0] = (when, rest)
                break
            flow.chunks.popleft()
        if flow.ended and not flow.chunks:
            with contextlib.suppress(OSError):
                flow.sink.shutdown(socket.SHUT_WR)
            flow.finished = True
        return True
