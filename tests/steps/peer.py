"""Ports in front of a broker that mistreat those who connect: the faults of a connection, and of what a broker says unasked.

What it is: `Peer`, which does something else with its first connections than to pass them on, and `Relay`, which passes all on and
hurts what passes: frames of one name, or all bytes. May assume: a broker on loopback that speaks frames of four bytes of length. Must not:
judge.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence

from wireproto.protocols import known

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
PACE = 0.0002  # seconds between two slow pieces
PIECE = 4
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x28"


class Peer:
    """A port in front of a broker that mistreats the first connections.

    Args:
        fault: called with each such connection; None: all are passed on.
        times: how many; -1: every one.
    """

    def __init__(self, target: tuple[str, int], fault: Callable[[socket.socket], None], times: int) -> None:
        self._target, self._fault, self._left = target, fault, times
        self.mistreated = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                if self._left:
                    self._left -= 1
                    self.mistreated += 1
                    threading.Thread(target=self._mistreat, args=(sock,), daemon=True).start()
                else:
                    self._pass_on(sock)

    def _mistreat(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._fault(sock)

    def _pass_on(self, sock: socket.socket) -> None:
        server = socket.create_connection(self._target)
        self._open.append(server)
        for source, sink in ((sock, server), (server, sock)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def reset(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def end(sock: socket.socket) -> None:
    sock.recv(1 << 16)
    sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def silence(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def saying(data: bytes) -> Callable[[socket.socket], None]:
    def say(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(data)
        silence(sock)

    return say


HANDSHAKE: dict[str, Callable[[socket.socket], None]] = {
    "reset": reset,
    "end of stream": end,
    "silence": silence,
    "half a frame, then silence": saying(b"\x00\x00\x00\x20\x00\x00"),
    "a frame of zeros": saying(struct.pack(">i", 12) + bytes(12)),
    "an HTTP answer": saying(HTTP),
    "a TLS alert": saying(TLS_ALERT),
}
TLS: dict[str, Callable[[socket.socket], None]] = {
    "reset": reset,
    "end of stream": end,
    "silence": silence,
    "plain text": saying(HTTP),
}


class Relay:
    """Ports in front of a broker that pass all on, but hurt what the broker says; `at`: which port is before which target.

    Args:
        protocol: whose frames they are.
        targets: ``host:port`` of its listeners.
        name: of the frames to hurt, as a recording names them (a reply has its request's name); None: all that comes.
        what: "cut in the middle", "never comes", "a byte changed" (the sixth), "slow bytes" (four at a time), or "half-open": in place of
            the frame and for ever after nothing passes; the broker sees an end, the client does not.
        times: how often; -1: every time. Of "half-open" and "slow bytes": how many connections.
    """

    def __init__(self, protocol: str, targets: Sequence[str], name: str | None, what: str, times: int) -> None:
        self._protocol, self._name, self._what, self._left = protocol, name, what, times
        self.met = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.at = {target: self._listen(target) for target in targets}

    def _listen(self, target: str) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        self._open.append(listener)
        threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    def _accept(self, listener: socket.socket, target: str) -> None:
        host, _, port = target.rpartition(":")
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((host, int(port)))
                self._open += [client, server]
                line = _Line(self, client, server)
                for run in (line.up, line.down):
                    threading.Thread(target=run, daemon=True).start()

    def hurts(self, name: str) -> str:
        """What is to be done to a frame of this name; empty: nothing."""
        with self._lock:
            if self._name not in (None, name) or not self._left:
                return ""
            self._left -= 1
            self.met += 1
            return self._what

    def reader(self) -> Callable[[bool, bytes], tuple[str, int, object, object, bytes]]:
        found = known(self._protocol)
        assert found is not None
        return found.frame_reader()

    def close(self) -> None:
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class _Line:
    """One connection of a relay: two threads."""

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket) -> None:
        self._relay, self._client, self._server = relay, client, server
        self._reader = relay.reader()
        self._lock = threading.Lock()
        self._dark = threading.Event()
        self._slow = False

    def up(self) -> None:
        self._pass(self._client, self._server, up=True)

    def down(self) -> None:
        self._pass(self._server, self._client, up=False)

    def _pass(self, source: socket.socket, sink: socket.socket, *, up: bool) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(source)) is not None:
                with self._lock:
                    name = self._reader(up, frame[4:])[0]
                if self._dark.is_set():
                    continue
                self._send(sink, frame, "" if up else self._relay.hurts(name) if not self._slow else "slow bytes")
        if not self._dark.is_set():  # what is half-open stays so
            for sock in (sink, source):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _send(self, sink: socket.socket, frame: bytes, what: str) -> None:
        if what == "half-open":
            self._dark.set()
            self._server.shutdown(socket.SHUT_RDWR)
        elif what == "cut in the middle":
            sink.sendall(frame[: len(frame) // 2])
            raise OSError
        elif what == "a byte changed":
            sink.sendall(frame[:9] + bytes([frame[9] ^ 0xFF]) + frame[10:] if len(frame) > 10 else frame)
        elif what == "slow bytes":
            self._slow = True
            for at in range(0, len(frame), PIECE):
                sink.sendall(frame[at : at + PIECE])
                self._dark.wait(PACE)
        elif what != "never comes":
            sink.sendall(frame)


def read_frame(source: socket.socket) -> bytes | None:
    """A frame with its four bytes of length; None at the end."""
    whole = b""
    wanted = 4
    while len(whole) < wanted:
        data = source.recv(wanted - len(whole))
        if not data:
            return None
        whole += data
        if len(whole) == 4 and wanted == 4:
            wanted = 4 + int.from_bytes(whole, "big")
    return whole
