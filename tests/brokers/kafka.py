"""Kafka 3.9.2, 4.3.1 and 4.4.0 (KRaft), and 3.9.2 in ZooKeeper mode: one node or several; TLS, SASL and ACLs when asked for.

Ready means: every node answers ApiVersions v0, and Metadata v1 lists all that run. Configuration in kafka_config.py. Traps kept in
mind: a cluster id that begins with ``-`` breaks the format tool; Log4j 2 goes by the file's extension; ZooKeeper mode has no
``--add-scram``, so its users are made after boot.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from . import kafka_config
from .base import Broker, read_exactly
from .certs import certificates
from .errors import BootFailed
from .maven import classpath, java
from .process import BOOT_TIMEOUT, Server
from .zookeeper import ZooKeeper, word

VERSIONS = ("3.9.2", "4.3.1", "4.4.0")
USERS = kafka_config.USERS


_FORMATTED: dict[tuple[str, ...], dict[str, bytes]] = {}
"""Files that the format tool has written in a node's data, by class path and its own arguments; 4.4 writes a folder, too."""


def _new_id() -> str:
    """As Kafka makes them; never begins with "-"."""
    return "w" + base64.urlsafe_b64encode(os.urandom(16)).decode()[:21]


def ask(port: int, api_key: int, version: int, body: bytes = b"", timeout: float = 5.0) -> bytes:
    """One request with header v1; the reply after its correlation id."""
    request = struct.pack(">hhih", api_key, version, 7, 5) + b"ready" + body
    with socket.create_connection(("127.0.0.1", port), timeout) as sock:
        sock.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", read_exactly(sock, 4))
        return read_exactly(sock, length)[4:]


class Kafka(Broker):
    """Args:
    version: "3.9.2", "4.3.1" or "4.4.0".
    zookeeper: 3.9.2 only: run in ZooKeeper mode, beside a ZooKeeper of its own, which keeps running over `stop` and `kill`.
    nodes: brokers (each also a controller in KRaft mode).
    tls: an SSL listener; `client_auth` none, requested or required.
    sasl: a SASL_PLAINTEXT listener, and SASL_SSL with `tls`: PLAIN, SCRAM-SHA-256/512, OAUTHBEARER (unsecured tokens). Users: USERS.
    acl: an authorizer; admin and the plain listener are super users.
    settings: further lines of server.properties. features: levels to format the storage with (``{"transaction.version": 1}``).
    fast: C1 only: boots sooner, serves slower; not for benchmarks.
    """

    protocol: ClassVar[str] = "kafka"

    def __init__(
        self,
        version: str = "4.3.1",
        *,
        zookeeper: bool = False,
        nodes: int = 1,
        tls: bool = False,
        client_auth: str = "requested",
        sasl: bool = False,
        acl: bool = False,
        settings: dict[str, str] | None = None,
        features: dict[str, int] | None = None,
        heap: str = "512m",
        fast: bool = True,
        folder: Path | None = None,
    ) -> None:
        if zookeeper and not version.startswith("3."):
            raise ValueError("only Kafka 3.x has a ZooKeeper mode")
        super().__init__(folder)
        self.version, self.nodes, self._heap, self._fast = version, nodes, heap, fast
        self.features = features or {}
        words = ["zookeeper" if zookeeper else "kraft", *(word for word, on in (("tls", tls), ("sasl", sasl), ("acl", acl)) if on)]
        self.flavour = " ".join([*words, *([f"{nodes} nodes"] if nodes > 1 else [])])
        names = ["PLAINTEXT", *(["SSL"] if tls else []), *(["SASL_PLAINTEXT"] if sasl else []), *(["SASL_SSL"] if tls and sasl else [])]
        self.listeners = [{name: self.port() for name in names} for _ in range(nodes)]
        self._controllers = [self.port() for _ in range(nodes)]
        self.keeper = ZooKeeper(folder=self.folder / "zookeeper") if zookeeper else None
        self.certificates = certificates() if tls else None
        self._plan = kafka_config.Plan(
            version=version,
            listeners=self.listeners,
            controllers=self._controllers,
            keeper=self.keeper.client_ports[0] if self.keeper else None,
            certificates=self.certificates,
            client_auth=client_auth,
            acl=acl,
            settings=settings or {},
        )

    @property
    def urls(self) -> dict[str, str]:
        shapes = {
            "PLAINTEXT": ("plain", "kafka", "127.0.0.1"),
            "SSL": ("tls", "kafka+tls", "localhost"),
            "SASL_PLAINTEXT": ("sasl", "kafka", "127.0.0.1"),
            "SASL_SSL": ("sasl_tls", "kafka+tls", "localhost"),
        }
        found = {}
        for listener in self.listeners[0]:
            name, scheme, host = shapes[listener]
            found[name] = f"{scheme}://" + ",".join(f"{host}:{ports[listener]}" for ports in self.listeners)
        return found

    @property
    def bootstrap(self) -> str:
        """``host:port,…`` of the plain listeners, as other clients want it."""
        return ",".join(f"127.0.0.1:{ports['PLAINTEXT']}" for ports in self.listeners)

    @property
    def addresses(self) -> list[str]:
        return self.bootstrap.split(",")

    def info(self) -> dict[str, Any]:
        extra: dict[str, Any] = {"bootstrap": self.bootstrap}
        if "SASL_PLAINTEXT" in self.listeners[0]:
            extra["users"] = USERS
        if self.certificates:
            extra |= {name: str(getattr(self.certificates, name)) for name in ("ca", "client", "client_key")}
        return super().info() | extra

    def prepare(self) -> None:
        path = classpath(f"kafka-{self.version}")
        cluster = _new_id()
        for node in range(self.nodes):
            folder = self.folder / f"node-{node}"
            folder.mkdir(parents=True, exist_ok=True)
            properties = folder / "server.properties"
            properties.write_text(kafka_config.server_properties(self._plan, node, folder / "data"))
            flags = (*kafka_config.jvm_flags(self.version, folder, self._heap), *(["-XX:TieredStopAtLevel=1"] if self._fast else []))
            if not self.keeper and not (folder / "data" / "meta.properties").exists():
                self._format(path, flags, cluster, properties)
            command = java(path, "kafka.Kafka", str(properties), flags=flags)
            self.servers.append(Server(f"{self.name} node {node}", command, folder, partial(self._ready, node)))

    def _format(self, path: str, flags: tuple[str, ...], cluster: str, properties: Path) -> None:
        """The tool runs once for all nodes of this process that differ in ids alone: its JVM takes half as long as a node's boot."""
        users = [
            f"SCRAM-SHA-{bits}=[name={user},password={password}]"
            for user, password in USERS.items()
            for bits in ((256, 512) if "SASL_PLAINTEXT" in self.listeners[0] else ())
        ]
        more: list[str] = []
        for user in users:
            more += ["--add-scram", user]
        for feature, level in self.features.items():
            more += ["--feature", f"{feature}={level}"]
        data, key = properties.parent / "data", (path, *more)
        if key in _FORMATTED:
            data.mkdir(exist_ok=True)
            ids = {"node.id": str(1 + int(properties.parent.name.rpartition("-")[2])), "directory.id": _new_id(), "cluster.id": cluster}
            for name, content in _FORMATTED[key].items():
                (data / name).parent.mkdir(exist_ok=True)
                (data / name).write_bytes(content)
            lines = (data / "meta.properties").read_text().splitlines()
            known = [f"{name}={ids.get(name, value)}" for name, _, value in (line.partition("=") for line in lines if "=" in line)]
            (data / "meta.properties").write_text("\n".join(known) + "\n")
            return
        arguments = ["format", "-t", cluster, "-c", str(properties), *more]
        command = java(path, "kafka.tools.StorageTool", *arguments, flags=flags, as_main="kafka.Kafka")
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOOT_TIMEOUT, cwd=properties.parent)
        if run.returncode:
            raise BootFailed(f"{self.name}: formatting the storage failed\n{run.stdout}{run.stderr}"[-4000:])
        _FORMATTED[key] = {str(file.relative_to(data)): file.read_bytes() for file in data.rglob("*") if file.is_file()}

    def start(self, node: int | None = None, timeout: float = BOOT_TIMEOUT) -> Self:
        if self.keeper:
            if not self.keeper.servers:
                self.keeper.start(timeout=timeout)
            self._await_expiry(timeout)
        return super().start(node, timeout)

    def _await_expiry(self, timeout: float) -> None:
        """After a crash, ZooKeeper keeps the old broker's registration until its session expires; a start before that fails."""
        assert self.keeper
        deadline = time.monotonic() + timeout
        while not any(server.running for server in self.servers) and "/brokers/ids/" in word(self.keeper.client_ports[0], "dump"):
            if time.monotonic() > deadline:
                raise BootFailed(f"{self.name}: the session of the broker before did not expire")
            time.sleep(0.1)

    def close(self) -> None:
        super().close()
        if self.keeper:
            self.keeper.close()

    def _ready(self, node: int) -> bool:
        port = self.listeners[node]["PLAINTEXT"]
        (code,) = struct.unpack_from(">h", ask(port, 18, 0))
        (brokers,) = struct.unpack_from(">i", ask(port, 3, 1, struct.pack(">i", -1)))
        return bool(code == 0 and brokers >= sum(server.running for server in self.servers))

    def after_boot(self) -> None:
        if self.keeper and "SASL_PLAINTEXT" in self.listeners[0]:
            path = classpath(f"kafka-{self.version}")
            for user, password in USERS.items():
                config = f"SCRAM-SHA-256=[password={password}],SCRAM-SHA-512=[password={password}]"
                arguments = ["--bootstrap-server", self.bootstrap, "--alter", "--add-config", config]
                arguments += ["--entity-type", "users", "--entity-name", user]
                command = java(path, "kafka.admin.ConfigCommand", *arguments, flags=("-XX:TieredStopAtLevel=1",), as_main="kafka.Kafka")
                run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOOT_TIMEOUT)
                if run.returncode:
                    raise BootFailed(f"{self.name}: making user {user} failed\n{run.stdout}{run.stderr}"[-4000:])
