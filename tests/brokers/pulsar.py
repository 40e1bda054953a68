"""Pulsar 4.2.4: broker, bookie and metadata store in one process; tokens and TLS when asked for.

Ready means: CONNECT on the binary port is answered by CONNECTED, and the admin interface says that the broker is, and lists public/default
(its first answers are 404). Traps kept in mind: with one bookie every quorum must be 1; ``journalMaxGroupWaitMSec`` above 0 adds a
millisecond to every send; the configuration takes no trailing comments; the bookie is known by its port, so that must stay the same for the
data to be kept; without ``allowEphemeralPorts`` it is another than asked for, and any outgoing connection may have it by the restart.
Booting costs about 9 seconds of CPU: share one among tests.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
import time
import urllib.request
from pathlib import Path
from typing import Any, ClassVar

from . import pulsar_config
from .base import Broker, read_exactly
from .certs import certificates
from .maven import classpath, java
from .process import Server

VERSIONS = ("4.2.4",)


def token(key: bytes, subject: str, expires_in: float | None = None) -> str:
    """A JSON web token, HS256."""

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims: dict[str, Any] = {"sub": subject}
    if expires_in is not None:
        claims["exp"] = int(time.time() + expires_in)
    signed = part(b'{"alg":"HS256"}') + b"." + part(json.dumps(claims).encode())
    return (signed + b"." + part(hmac.digest(key, signed, hashlib.sha256))).decode()


class Pulsar(Broker):
    """Args:
    tokens: authentication and authorization by token; `token("admin")` is the super user.
    tls: TLS ports beside the plain ones, binary and HTTP; a client certificate is asked for, not required.
    transactions: the transaction coordinator.
    entry_metadata: broker entry metadata (0x0e02), sent to clients that say they know it.
    settings: further lines of standalone.conf.
    """

    protocol: ClassVar[str] = "pulsar"

    def __init__(
        self,
        version: str = "4.2.4",
        *,
        tokens: bool = False,
        tls: bool = False,
        transactions: bool = False,
        entry_metadata: bool = False,
        settings: dict[str, str] | None = None,
        heap: str = "512m",
        fast: bool = True,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self.version, self._tokens, self._tls, self._heap, self._fast = version, tokens, tls, heap, fast
        named = (("tls", tls), ("tokens", tokens), ("transactions", transactions), ("entry metadata", entry_metadata))
        self.flavour = " ".join(word for word, on in named if on)
        self.binary_port, self.http_port, self._bookie_port = self.port(), self.port(), self.port()
        self.tls_port, self.https_port = (self.port(), self.port()) if tls else (0, 0)
        self.certificates = certificates() if tls else None
        self._key = os.urandom(32)
        self.transactions, self._entry_metadata, self._settings = transactions, entry_metadata, settings or {}

    def token(self, subject: str, expires_in: float | None = None) -> str:
        """A token that this broker accepts (unless `expires_in`, in seconds, is over)."""
        return token(self._key, subject, expires_in)

    @property
    def admin(self) -> str:
        """URL of the admin HTTP interface."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def urls(self) -> dict[str, str]:
        found = {"plain": f"pulsar://127.0.0.1:{self.binary_port}?admin={self.admin}"}
        if self._tls:
            found["tls"] = f"pulsar+ssl://localhost:{self.tls_port}?admin=https://localhost:{self.https_port}"
        return found

    @property
    def service(self) -> str:
        """The service URL, as other clients want it."""
        return f"pulsar://127.0.0.1:{self.binary_port}"

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{self.binary_port}"]

    def info(self) -> dict[str, Any]:
        extra: dict[str, Any] = {"service": self.service, "admin": self.admin}
        if self._tokens:
            extra |= {"token": self.token("admin"), "token_user": self.token("user"), "token_expired": self.token("admin", -60.0)}
        if self.certificates:
            extra |= {name: str(getattr(self.certificates, name)) for name in ("ca", "client", "client_key")}
        return super().info() | extra

    def prepare(self) -> None:
        path = classpath(f"pulsar-{self.version}")
        key = self.folder / "secret.key"
        if key.exists():
            self._key = key.read_bytes()
        key.write_bytes(self._key)
        lines = pulsar_config.common(self.binary_port, self.http_port) | pulsar_config.jobs(self.transactions, self._entry_metadata)
        if self.certificates:
            lines |= pulsar_config.tls(self.certificates, self.tls_port, self.https_port)
        if self._tokens:
            lines |= pulsar_config.tokens(key, self.token("admin"))
        conf = self.folder / "standalone.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in (lines | self._settings).items()))
        flags = pulsar_config.jvm_flags(self.folder, self._heap) + (["-XX:TieredStopAtLevel=1"] if self._fast else [])
        arguments = ["-c", str(conf), "-nfw", "-nss", "-a", "127.0.0.1", "--bookkeeper-port", str(self._bookie_port)]
        arguments += ["--metadata-dir", str(self.folder / "metadata"), "--bookkeeper-dir", str(self.folder / "bk")]
        command = java(path, "org.apache.pulsar.PulsarStandaloneStarter", *arguments, flags=tuple(flags))
        self.servers.append(Server(self.name, command, self.folder, self._ready))

    def _ready(self) -> bool:
        connect = b"\x0a\x05ready" + b"\x20\x13"  # client_version, protocol_version
        if self._tokens:
            secret = self.token("admin").encode()
            connect += b"\x1a" + _varint(len(secret)) + secret + b"\x2a\x05token"
        command = b"\x08\x02\x12" + _varint(len(connect)) + connect
        with socket.create_connection(("127.0.0.1", self.binary_port), 5.0) as sock:
            sock.sendall(struct.pack(">ii", 4 + len(command), len(command)) + command)
            (length,) = struct.unpack(">i", read_exactly(sock, 4))
            if read_exactly(sock, length)[4:6] != b"\x08\x03":
                return False
        self.get("/admin/v2/brokers/ready")  # raises while it starts: on data that is kept the namespaces are there before the broker is
        return "public/default" in self.get("/admin/v2/namespaces/public") and (
            not self.transactions or "{" in self.get("/admin/v3/transactions/coordinators")
        )

    def get(self, path: str) -> str:
        """GET from the admin interface, as the super user."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Any = None) -> str:
        """One request to the admin interface, as the super user; `body` goes as JSON."""
        headers = {"Content-Type": "application/json"}
        if self._tokens:
            headers["Authorization"] = f"Bearer {self.token('admin')}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.admin + path, data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60.0) as reply:
            return str(reply.read().decode())


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
