"""What all four kinds of real broker share: a folder for data, servers in it, start, stop, kill, restart with the data kept.

A `Broker` may be a cluster of several servers; `stop` and `start` without a number mean all of them. Ports stay the same over a
restart, since clients know them. `close` (or leaving the `with`) also removes the data.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar, Self

from . import ports
from .process import BOOT_TIMEOUT, Server

_PREFIX = "wireproto-broker-"


def _new_folder(name: str) -> Path:
    """A temporary folder marked with our pid; folders of dead owners are swept first."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int((old / "owner.pid").read_text())
            try:
                os.kill(owner, 0)
            except ProcessLookupError:
                shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-", dir=root))
    (folder / "owner.pid").write_text(str(os.getpid()))
    return folder


class Broker:
    """A real broker, or a cluster of them.

    Attributes:
        protocol: scheme of its URLs.
        version: release of the server.
        flavour: what else tells it apart in reports, like ``kraft`` or ``binary``.
        folder: its data and logs.
        urls: name of a listener to URL (``plain`` is always there, except where only TLS is served).
    """

    protocol: ClassVar[str]
    version: str
    flavour: str = ""

    def __init__(self, folder: Path | None = None) -> None:
        self._own_folder = folder is None
        self._closed = False
        self.folder = folder if folder is not None else _new_folder(self.protocol)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.servers: list[Server] = []
        self._ports: list[int] = []
        self.boot_seconds = 0.0
        if self._own_folder:
            atexit.register(self._remove)

    def port(self) -> int:
        """A new port of this broker's own."""
        port = ports.take()
        self._ports.append(port)
        return port

    @property
    def urls(self) -> dict[str, str]:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return self.urls["plain"]

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of every plain listener, as the broker advertises it (for a proxy's address map)."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return f"{self.protocol} {self.version}" + (f" {self.flavour}" if self.flavour else "")

    def info(self) -> dict[str, Any]:
        """Addresses, pids and credentials, as `python -m brokers start` prints them."""
        return {
            "protocol": self.protocol,
            "version": self.version,
            "flavour": self.flavour,
            "url": self.url,
            "urls": self.urls,
            "pids": [server.pid for server in self.servers],
            "folder": str(self.folder),
            "boot_seconds": round(self.boot_seconds, 2),
        }

    def prepare(self) -> None:
        """Whatever must be done once, before the first start (formatting, certificates)."""

    def after_boot(self) -> None:
        """Whatever must be done once, after the first start (users)."""

    def start(self, node: int | None = None, timeout: float = BOOT_TIMEOUT) -> Self:
        """Start every server, or number `node` (from 0); returns when they are ready."""
        began = time.monotonic()
        first = not self.servers
        if first:
            self.prepare()
        chosen = self.servers if node is None else [self.servers[node]]
        try:
            for server in chosen:
                server.launch()
                if self.one_by_one:
                    server.await_ready(timeout)
            if not self.one_by_one:
                for server in chosen:
                    server.await_ready(timeout)
            if first:
                self.after_boot()
        except BaseException:
            self.kill()
            raise
        self.boot_seconds = time.monotonic() - began
        return self

    one_by_one: ClassVar[bool] = False
    """Whether each server needs the one before it."""

    def stop(self, node: int | None = None) -> None:
        """Ordered stop; the data stays for `start`."""
        for server in reversed(self.servers) if node is None else [self.servers[node]]:
            server.stop()

    def kill(self, node: int | None = None) -> None:
        """SIGKILL: as a crash. The data stays for `start`."""
        for server in reversed(self.servers) if node is None else [self.servers[node]]:
            server.kill()

    def restart(self, timeout: float = BOOT_TIMEOUT) -> None:
        self.stop()
        self.start(timeout=timeout)

    def pause(self) -> None:
        """SIGSTOP all: sockets stay open, nothing answers."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        for server in self.servers:
            server.resume()

    def close(self) -> None:
        """End every process and remove the data."""
        if self._closed:
            return
        self._closed = True
        for server in self.servers:
            server.keep_classes()
        self.kill()
        ports.release(*self._ports)
        self._remove()

    def _remove(self) -> None:
        if self._own_folder:
            for server in self.servers:
                server.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def tail(self, lines: int = 40) -> str:
        return "\n".join(server.tail(lines) for server in self.servers)


def read_exactly(sock: Any, count: int) -> bytes:
    """`count` bytes from a blocking socket; EOFError when it ends before."""
    got = bytearray()
    while len(got) < count:
        part = sock.recv(count - len(got))
        if not part:
            raise EOFError(f"connection closed after {len(got)} of {count} bytes")
        got += part
    return bytes(got)
