"""Addresses of Kafka nodes that lose what is asked of them, by what it is: a proxy before a whole cluster.

    fate          what the client sees        what the broker sees
    passed        its answer                  it
    lost          a connection that is cut    nothing
    unanswered    a connection that is cut    it
    held          a connection that is cut    it, behind the next requests that pass

Each connection has a thread; requests of a connection are passed on one at a time, in their order.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from kafka_unruly import exchange, read_frame, write_frame


class Losing:
    """Args:
    to: ``host:port`` of each node. fate: asked, with the number of its API, what becomes of a request; any thread.

    Attributes:
        address_map: what a client's option of that name wants. fates: how often which API met what.
    """

    def __init__(self, to: Iterable[str], fate: Callable[[int], str]) -> None:
        self._fate = fate
        self._lock = threading.Lock()
        self._held: list[tuple[tuple[str, int], bytes]] = []
        self._listeners: list[socket.socket] = []
        self.fates: Counter[tuple[int, str]] = Counter()
        self.address_map: Mapping[str, str] = {address: f"127.0.0.1:{self._listen(address)}" for address in to}

    def _listen(self, address: str) -> int:
        host, _, port = address.rpartition(":")
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, (host, int(port))), daemon=True).start()
        found: int = listener.getsockname()[1]
        return found

    def _accept(self, listener: socket.socket, to: tuple[str, int]) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock, to), daemon=True).start()

    def _serve(self, sock: socket.socket, to: tuple[str, int]) -> None:
        with suppress(OSError), sock, socket.create_connection(to) as there:
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (frame := read_frame(sock)) is not None:
                (key,) = struct.unpack_from(">h", frame)
                with self._lock:
                    fate = self._fate(key)
                    self.fates[key, fate] += 1
                    if fate == "held":
                        self._held.append((to, frame))
                if fate in ("lost", "held"):
                    return
                answer = exchange(there, frame)
                if fate == "unanswered":
                    return
                write_frame(sock, answer)
                self.release()

    def release(self) -> None:
        """Deliver what is held; nobody hears of the answer."""
        with self._lock:
            held, self._held = self._held, []
        for to, frame in held:
            with suppress(OSError), socket.create_connection(to) as there:
                exchange(there, frame)

    def close(self) -> None:
        """Deliver what is held, and listen no more."""
        self.release()
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
