"""A Kafka node for tests that tells its versions, and then hangs up, or keeps silent: what a broker does that wants SASL, or is stopped."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

API_VERSIONS = b"\0\x12"


class Relay:
    """Passes the handshake on to a broker, and nothing else.

    Args:
        to: ``host:port`` of the broker. silent: take what comes and never answer, rather than hang up.

    Attributes:
        port: where it listens. met: connections so far. swallowed: set when something else than the handshake has come.
    """

    def __init__(self, to: str, *, silent: bool) -> None:
        self._host, _, port = to.rpartition(":")
        self._port, self._silent = int(port), silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.met = 0
        self.swallowed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.met += 1
            threading.Thread(target=self._pass_on, args=(sock,), daemon=True).start()

    def _pass_on(self, sock: socket.socket) -> None:
        with suppress(OSError), sock, socket.create_connection((self._host, self._port)) as there:
            while (asked := sock.recv(65536))[4:6] == API_VERSIONS:
                there.sendall(asked)
                sock.sendall(there.recv(65536))
            if asked:
                self.swallowed.set()
            while self._silent and asked:
                asked = sock.recv(65536)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else accept() waits on
        self._listener.close()
