"""A plugin of pytest for kazoo's own tests: gives them the embedded ensemble as their cluster, or a real one.

    python -m pytest -p conformance.kazoo_cluster --pyargs kazoo.tests        WIREPROTO_KAZOO_ON=real: three nodes of ZooKeeper

What it is: what kazoo's harness takes from `kazoo.testing.common`, which boots a ZooKeeper that is unpacked somewhere and wants OpenSSL and
jks for its key stores. This module stands in that one's place. Members stop and run as its processes do; when most of them are away the
others are read-only, as servers with ``readonlymode.enabled`` are.
May assume: a process of its own, for it changes `sys.modules` and the environment. Must not: touch what kazoo's tests hold to be right.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import certificates
from brokers import ZooKeeper
from wireproto.devbroker import DevBroker

SIZE = 3
ZOOKEEPER = "3.9.5"


class Ensemble(Protocol):
    """Several servers that are one ZooKeeper, numbered from 0; all of them run at first."""

    def address(self, number: int) -> str: ...
    def secure_address(self, number: int) -> str: ...
    def pems(self) -> dict[str, Path]: ...
    def stop(self, number: int) -> None: ...
    def run(self, number: int) -> None: ...
    def close(self) -> None: ...


class Embedded:
    """Of the dev broker. Its TLS is a second one, with a tree of its own, begun when somebody asks for it."""

    def __init__(self) -> None:
        self._away: set[int] = set()
        self._read_only = False
        self._folder = tempfile.TemporaryDirectory(prefix="wireproto-kazoo-")
        self._pems: certificates.Certificates | None = None
        self._secure: DevBroker | None = None
        self._broker = DevBroker(["zookeeper"], nodes={"zookeeper.members": SIZE}).start()
        self._names = list(self._broker.listeners("zookeeper"))

    def address(self, number: int) -> str:
        return self._broker.address("zookeeper", self._names[number])

    def secure_address(self, number: int) -> str:
        if self._secure is None:
            made = self._made()
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made.ca)
            context.load_cert_chain(made.server, made.server_key)
            context.verify_mode = ssl.CERT_REQUIRED
            self._secure = DevBroker(["zookeeper"], nodes={"zookeeper.members": SIZE}, tls=context).start()
        return self._secure.address("zookeeper", self._names[number])

    def pems(self) -> dict[str, Path]:
        made = self._made()
        return {"client_key": Path(made.client_key), "client_cert": Path(made.client), "ca_cert": Path(made.ca)}

    def _made(self) -> certificates.Certificates:
        self._pems = self._pems or certificates.make(Path(self._folder.name))
        return self._pems

    def stop(self, number: int) -> None:
        self._broker.pause("zookeeper", self._names[number])
        self._away.add(number)
        self._vote()

    def run(self, number: int) -> None:
        self._broker.resume("zookeeper", self._names[number])
        self._away.discard(number)
        self._vote()

    def _vote(self) -> None:
        """Have the members be read-only while most of them are away. Whoever is connected is sent away at a change."""
        without = len(self._away) * 2 > SIZE
        if without is not self._read_only:
            self._read_only = without
            self._broker.call("zookeeper", "restrict", read_only=without)

    def close(self) -> None:
        for broker in (self._broker, self._secure):
            if broker is not None:
                broker.stop()
        self._folder.cleanup()


class Real:
    """Of three processes."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._broker = ZooKeeper(nodes=SIZE, tls=True, settings=settings).start()

    def address(self, number: int) -> str:
        return self._broker.addresses[number]

    def secure_address(self, number: int) -> str:
        return f"127.0.0.1:{self._broker.tls_ports[number]}"

    def pems(self) -> dict[str, Path]:
        made = self._broker.certificates
        assert made is not None
        return {"client_key": made.client_key, "client_cert": made.client, "ca_cert": made.ca}

    def stop(self, number: int) -> None:
        self._broker.stop(number)

    def run(self, number: int) -> None:
        self._broker.start(number)

    def close(self) -> None:
        self._broker.close()


class Member:
    """One server, as kazoo's tests handle it."""

    def __init__(self, cluster: ZookeeperCluster, number: int) -> None:
        self._cluster, self._number = cluster, number
        self.running = False

    @property
    def address(self) -> str:
        return self._cluster.ensemble().address(self._number)

    @property
    def secure_address(self) -> str:
        return self._cluster.ensemble().secure_address(self._number)

    def run(self) -> None:
        with self._cluster.lock:
            if not self.running:
                self._cluster.ensemble().run(self._number)
                self.running = True

    def stop(self) -> None:
        with self._cluster.lock:
            if self.running:
                self._cluster.ensemble().stop(self._number)
                self.running = False

    def get_logs(self, num_lines: int = 100) -> list[str]:
        return []


class ZookeeperCluster:
    """What the harness makes once, and again when the environment names other settings."""

    def __init__(self, configuration_entries: tuple[str, ...] | list[str] = (), **_: Any) -> None:
        self.lock = threading.RLock()
        self._settings = dict(entry.split("=", 1) for entry in configuration_entries)
        self._ensemble: Ensemble | None = None
        self._members = [Member(self, number) for number in range(SIZE)]

    def ensemble(self) -> Ensemble:
        with self.lock:
            if self._ensemble is None:
                real = os.environ.get("WIREPROTO_KAZOO_ON") == "real"
                self._ensemble = Real(self._settings) if real else Embedded()
            return self._ensemble

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __getitem__(self, number: int) -> Member:
        return self._members[number]

    def start(self) -> None:
        for member in self:
            member.run()

    def terminate(self) -> None:
        """What a member kept goes with it."""
        with self.lock:
            for member in self:
                member.running = False
            if self._ensemble is not None:
                self._ensemble.close()
                self._ensemble = None

    def get_logs(self) -> list[str]:
        return []

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        return {name: path.read_bytes() for name, path in self.ensemble().pems().items()}


def _stand_in() -> None:
    module: Any = types.ModuleType("kazoo.testing.common", __doc__)
    module.ZookeeperCluster = ZookeeperCluster
    sys.modules[module.__name__] = module
    os.environ["ZOOKEEPER_VERSION"] = ZOOKEEPER
    os.environ.pop("CI", None)  # with it kazoo's tests wait longer, and ask for a version instead of the server


_stand_in()
