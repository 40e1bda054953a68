"""ZooKeeper 3.9.5 and 3.8.6, one node or an ensemble; Netty and a TLS port when asked for.

Traps kept in mind: the server rewrites its configuration, so every node has its own copy; the TCP port opens before it serves, so
ready means that the word ``srvr`` names a mode; TLS needs the Netty connection factory; logback's ``%c`` must not stand in brackets
``()``, which group.
"""

from __future__ import annotations

import contextlib
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from .base import Broker
from .certs import Certificates, certificates
from .maven import classpath, java
from .process import Server

VERSIONS = ("3.8.6", "3.9.5")
SUPER = "super:test"
SASL_USER = ("bob", "bob-secret")
_SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="  # base64(sha1(b"super:test"))
_NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
_LOGBACK = """<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %p [%c] %m%n</pattern></encoder></appender><root level="{level}"><appender-ref ref="OUT"/></root></configuration>
"""
_JAAS = """Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{0}="{1}"; }};
"""


def listens(port: int) -> bool:
    """Whether somebody takes connections there: the port for TLS opens behind the plain one."""
    try:
        socket.create_connection(("127.0.0.1", port), 5.0).close()
    except OSError:
        return False
    return True


def word(port: int, name: str, timeout: float = 5.0) -> str:
    """Answer of a four-letter word."""
    with socket.create_connection(("127.0.0.1", port), timeout) as sock:
        sock.sendall(name.encode())
        got = b""
        while part := sock.recv(65536):
            got += part
        return got.decode(errors="replace")


class ZooKeeper(Broker):
    """Args:
    nodes: 1, or 3 and more for an ensemble (then `leader`, `kill(n)` and `start(n)` are of use).
    netty: Netty instead of NIO connections; implied by `tls`.
    tls: a second, TLS port that asks for a client certificate (and takes none, unless client_auth is "need").
    sasl: DIGEST-MD5 for `SASL_USER`.
    settings: further lines of zoo.cfg.
    """

    protocol: ClassVar[str] = "zookeeper"

    def __init__(
        self,
        version: str = "3.9.5",
        *,
        nodes: int = 1,
        netty: bool = False,
        tls: bool = False,
        client_auth: str = "want",
        sasl: bool = False,
        settings: dict[str, str] | None = None,
        heap: str = "128m",
        fast: bool = True,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self.version, self.nodes = version, nodes
        self.flavour = f"{nodes} nodes" if nodes > 1 else ("tls" if tls else "netty" if netty else "")
        self._netty, self._tls, self._client_auth = netty or tls, tls, client_auth
        self._settings, self._heap, self._fast, self._sasl = settings or {}, heap, fast, sasl
        self.client_ports = [self.port() for _ in range(nodes)]
        self.tls_ports = [self.port() for _ in range(nodes)] if tls else []
        self._peer_ports = [(self.port(), self.port()) for _ in range(nodes)] if nodes > 1 else []
        self.certificates: Certificates | None = certificates() if tls else None

    @property
    def urls(self) -> dict[str, str]:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.client_ports)
        found = {"plain": f"zookeeper://{hosts}"}
        if self.tls_ports:
            found["tls"] = "zookeeper+tls://" + ",".join(f"localhost:{port}" for port in self.tls_ports)
        return found

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.client_ports]

    def info(self) -> dict[str, Any]:
        extra: dict[str, Any] = {"super": SUPER}
        if self.certificates:
            extra |= {name: str(getattr(self.certificates, name)) for name in ("ca", "client", "client_key")}
        return super().info() | extra

    def prepare(self) -> None:
        path = classpath(f"zookeeper-{self.version}")
        for node in range(self.nodes):
            folder = self.folder / f"node-{node}"
            data = folder / "data"
            data.mkdir(parents=True, exist_ok=True)
            (folder / "zoo.cfg").write_text("".join(f"{k}={v}\n" for k, v in self._configuration(node, data).items()))
            (folder / "logback.xml").write_text(_LOGBACK.format(level="WARN"))
            if self.nodes > 1:
                (data / "myid").write_text(str(node + 1))
            (folder / "jaas.conf").write_text(_JAAS.format(*SASL_USER))
            flags = [
                f"-Xmx{self._heap}",
                "-XX:+UseSerialGC",
                "-Djava.net.preferIPv4Stack=true",
                f"-Dlogback.configurationFile={folder / 'logback.xml'}",
                f"-Dzookeeper.DigestAuthenticationProvider.superDigest={_SUPER_DIGEST}",
                "-Dzookeeper.extendedTypesEnabled=true",
                "-Dzookeeper.preAllocSize=4096",
                "-Dreadonlymode.enabled=true",
                "-Dznode.container.checkIntervalMs=2000",
                *(["-XX:TieredStopAtLevel=1"] if self._fast else []),
                *([f"-Djava.security.auth.login.config={folder / 'jaas.conf'}"] if self._sasl else []),
                *([f"-Dzookeeper.serverCnxnFactory={_NETTY}"] if self._netty else []),
            ]
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            command = java(path, main, str(folder / "zoo.cfg"), flags=tuple(flags))
            self.servers.append(Server(f"{self.name} node {node}", command, folder, partial(self._ready, node)))

    def _configuration(self, node: int, data: Path) -> dict[str, str]:
        lines = {
            "tickTime": "500",
            "dataDir": str(data),
            "clientPort": str(self.client_ports[node]),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "60000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "reconfigEnabled": "true",
        }
        if self._sasl:
            lines["authProvider.1"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        if self.nodes > 1:
            lines |= {"initLimit": "20", "syncLimit": "10", "standaloneEnabled": "false"}
            lines |= {f"server.{i + 1}": f"127.0.0.1:{quorum}:{vote}" for i, (quorum, vote) in enumerate(self._peer_ports)}
        if self.certificates:
            lines |= {
                "secureClientPort": str(self.tls_ports[node]),
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": str(self.certificates.server_pem),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(self.certificates.ca),
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": self._client_auth,
            }
        return lines | self._settings

    def mode(self, node: int = 0) -> str:
        """``standalone``, ``leader``, ``follower``, or nothing while it does not serve."""
        with contextlib.suppress(OSError):
            for line in word(self.client_ports[node], "srvr").splitlines():
                if line.startswith("Mode: "):
                    return line[6:].strip()
        return ""

    def _ready(self, node: int) -> bool:
        return self.mode(node) != "" and all(listens(port) for port in self.tls_ports[node : node + 1])

    def leader(self, timeout: float = 30.0) -> int:
        """Number of the node that leads."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for node in range(self.nodes):
                if self.mode(node) == "leader":
                    return node
            time.sleep(0.05)
        raise TimeoutError("no leader")
