"""RocketMQ 4.9.7 and 5.5.0: name servers, master brokers, a slave of the first; ACL, TLS and either header type when asked for.

Ready means: the name server's answer to GET_BROKER_CLUSTER_INFO (106) names every broker. A 5.x that has not found its name server by the
time it registers, which is a race of two of its threads, does so again only 10 s later: it is asked to at once. Traps kept in mind: commit
log, queue, index and timer files are mapped whole, so their sizes are cut down; a 5.5.0 broker burns a core for ever after the first
transaction unless two intervals are raised; asked for its runtime information, as by each look at the end of a queue, one with timers goes
over the 1.2 million slots of its wheel, a tenth of a second of a core, and one that was started without them fails when a topic is deleted,
so they are switched off once it is ready; 4.9 binds every interface whatever it is told, and needs logging files in ROCKETMQ_HOME; an
ordered stop of 5.x takes up to 17 s, during which the port is held.
"""

from __future__ import annotations

import base64
import hmac
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from . import ports
from .base import Broker, read_exactly
from .certs import certificates
from .maven import classpath, java
from .process import BOOT_TIMEOUT, Server

VERSIONS = ("4.9.7", "5.5.0")
USERS = {"RocketMQ": "12345678", "appuser1": "87654321"}
"""Access key to secret key: an administrator, and (4.9) one that may use TopicA, TopicPub (publish only) and GroupA."""
_SLACK = 0.004
"""Seconds that a broker's threads may oversleep. A dozen of them sleep for one to twenty milliseconds for ever, which no setting changes:
one that asks each millisecond for new messages costs as much as all that the others do."""

_OPENS = [
    *(f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in ("sun.nio.ch", "jdk.internal.ref")),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("sun.nio.ch", "java.nio", "java.lang", "java.util")),
]
_LOGBACK = """<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %p [%c] %m%n</pattern></encoder></appender><root level="WARN"><appender-ref ref="OUT"/></root></configuration>
"""
_PLAIN_ACL = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: true
- accessKey: appuser1
  secretKey: 87654321
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - TopicA=PUB|SUB
  - TopicPub=PUB
  groupPerms:
  - GroupA=PUB|SUB
"""


def ask(port: int, code: int, timeout: float = 5.0, body: bytes = b"", fields: dict[str, str] | None = None) -> bytes:
    """One request with a JSON header; the whole reply frame after its length."""
    words = {"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": 401}
    header = json.dumps(words | {"extFields": fields or {}}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout) as sock:
        sock.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        (length,) = struct.unpack(">i", read_exactly(sock, 4))
        return read_exactly(sock, length)


class RocketMQ(Broker):
    """Args:
    version: "4.9.7" or "5.5.0".
    nodes: master brokers: broker-a, broker-b, … In `servers`, number 0 is the name server; the masters follow.
    slave: broker-a has a slave, too, which is ready when it has registered: the next of `servers`.
    name_servers: how many; the second and later ones come last in `servers`.
    binary: the servers' own header type is ROCKETMQ instead of JSON (5.x answers in its own, 4.9 in the request's).
    acl: 4.9 plain_acl.yml, 5.x authentication and authorization; users: USERS (5.x: the administrator).
    tls: the same ports take TLS too (permissive mode).
    settings: further lines of broker.conf.
    """

    protocol: ClassVar[str] = "rocketmq"
    one_by_one: ClassVar[bool] = True

    def __init__(
        self,
        version: str = "5.5.0",
        *,
        nodes: int = 1,
        slave: bool = False,
        name_servers: int = 1,
        binary: bool = False,
        acl: bool = False,
        tls: bool = False,
        settings: dict[str, str] | None = None,
        heap: str = "384m",
        fast: bool = True,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self.version, self.nodes, self._slave, self._binary, self._acl, self._tls = version, nodes, slave, binary, acl, tls
        words = ["binary" if binary else "json", *(["acl"] if acl else []), *(["tls"] if tls else [])]
        words += [*([f"{nodes} brokers"] if nodes > 1 else []), *(["slave"] if slave else [])]
        self.flavour = " ".join([*words, *([f"{name_servers} name servers"] if name_servers > 1 else [])])
        self._settings, self._heap, self._fast = settings or {}, heap, fast
        self.name_server_ports = [self.port() for _ in range(name_servers)]
        self.name_server_port = self.name_server_ports[0]
        blocks = [ports.take_block(4) for _ in range(nodes + slave)]  # listen - 2, -, listen, listen + 1
        self._ports += [port for block in blocks for port in block]
        self.broker_ports = [block[2] for block in blocks]  # the slave's last
        self.certificates = certificates() if tls else None

    @property
    def urls(self) -> dict[str, str]:
        found = {"plain": "rocketmq://" + ",".join(f"127.0.0.1:{port}" for port in self.name_server_ports)}
        if self._tls:
            found["tls"] = "rocketmq+tls://" + ",".join(f"localhost:{port}" for port in self.name_server_ports)
        return found

    @property
    def name_server(self) -> str:
        """``host:port``, as other clients want it."""
        return ";".join(f"127.0.0.1:{port}" for port in self.name_server_ports)

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in (*self.name_server_ports, *self.broker_ports)]

    def info(self) -> dict[str, Any]:
        extra: dict[str, Any] = {"name_server": self.name_server, "brokers": [f"127.0.0.1:{port}" for port in self.broker_ports]}
        if self._acl:
            extra["users"] = USERS if self.version.startswith("4.") else {"RocketMQ": USERS["RocketMQ"]}
        if self.certificates:
            extra |= {name: str(getattr(self.certificates, name)) for name in ("ca", "client", "client_key")}
        return super().info() | extra

    def start(self, node: int | None = None, timeout: float = BOOT_TIMEOUT) -> Self:
        for server in self.servers if node is None else [self.servers[node]]:
            file = server.log.with_suffix(".conf")
            if not server.running and file.exists():  # as brokers write it anew whenever a setting of theirs changes
                file.write_text(file.read_text().replace("timerWheelEnable=false", "timerWheelEnable=true"))
        return super().start(node, timeout)

    @contextmanager
    def timers(self) -> Iterator[None]:
        """Have the masters of 5.x take messages with a time of delivery, and requests to pop, which need timers, for a while."""
        masters = self.broker_ports[: self.nodes] if self.version.startswith("5.") else []
        for port in masters:
            self._set(port, "timerWheelEnable=true")
        try:
            yield
        finally:
            for port in masters:
                self._set(port, "timerWheelEnable=false")

    def prepare(self) -> None:
        path = classpath(f"rocketmq-{self.version}")
        conf = self.folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for kind in ("namesrv", "broker", "tools"):
            (conf / f"logback_{kind}.xml").write_text(_LOGBACK)
        if self._acl and self.version.startswith("4."):
            (conf / "plain_acl.yml").write_text(_PLAIN_ACL)
        env = {"ROCKETMQ_HOME": str(self.folder)}
        brokers = [(node, f"broker-{'abcdefgh'[node]}", 0) for node in range(self.nodes)]
        if self._slave:
            brokers.append((self.nodes, "broker-a", 1))
        self.servers.append(self._name_server(0, path, env))
        for number, name, broker_id in brokers:
            label = f"{name}-slave" if broker_id else name
            conf_file = self.folder / f"{label}.conf"
            conf_file.write_text("".join(f"{k}={v}\n" for k, v in self._broker_conf(number, name, label, broker_id).items()))
            flags = ("-Xms128m", f"-Xmx{self._heap}", "-XX:MaxDirectMemorySize=512m", *self._flags())
            command = java(path, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf_file), flags=flags)
            ready = partial(self._broker_ready, self.broker_ports[number], len(self.servers))
            slack = _SLACK if self._fast else 0.0
            self.servers.append(Server(f"{self.name} {label}", command, self.folder, ready, label=label, env=env, slack=slack))
        self.servers += [self._name_server(number, path, env) for number in range(1, len(self.name_server_ports))]

    def _name_server(self, number: int, path: str, env: dict[str, str]) -> Server:
        port, label = self.name_server_ports[number], f"namesrv{number or ''}"
        properties = self.folder / f"{label}.properties"
        lines = {"listenPort": str(port), "bindAddress": "127.0.0.1", "kvConfigPath": str(self.folder / f"kv{number or ''}.json")}
        properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        flags = ("-Xms32m", "-Xmx128m", "-XX:MaxDirectMemorySize=64m", *self._flags())
        command = java(path, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(properties), flags=flags)
        return Server(f"{self.name} {label}", command, self.folder, partial(self._name_server_ready, port), label=label, env=env)

    def _flags(self) -> list[str]:
        flags = [
            "-XX:+UseSerialGC",
            "-Djava.net.preferIPv4Stack=true",
            f"-Duser.home={self.folder}",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
            f"-Drmq.logback.configurationFile={self.folder / 'conf' / 'logback_broker.xml'}",  # 5.x; its own writes a dozen files
            f"-Drocketmq.serialize.type={'ROCKETMQ' if self._binary else 'JSON'}",
            *_OPENS,
        ]
        if self._fast:
            flags.append("-XX:TieredStopAtLevel=1")
        if self.certificates:
            file = self.folder / "tls.properties"
            lines = {
                "tls.test.mode.enable": "false",
                "tls.server.need.client.auth": "optional",
                "tls.server.keyPath": str(self.certificates.server_key),
                "tls.server.certPath": str(self.certificates.server),
                "tls.server.authClient": "false",
                "tls.server.trustCertPath": str(self.certificates.ca),
            }
            file.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
            flags += ["-Dtls.server.mode=permissive", "-Dtls.test.mode.enable=false", f"-Dtls.config.file={file}"]
        else:
            flags.append("-Dtls.server.mode=disabled")
        return flags

    def _broker_conf(self, node: int, name: str, label: str, broker_id: int) -> dict[str, str]:
        store = self.folder / f"store-{label}"
        lines = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": str(broker_id),
            "namesrvAddr": self.name_server,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(self.broker_ports[node]),
            "haListenPort": str(self.broker_ports[node] + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mappedFileSizeCommitLog": "67108864",
            "mappedFileSizeConsumeQueue": "600000",
            "maxHashSlotNum": "10000",
            "maxIndexNum": "40000",
            "autoCreateTopicEnable": "false",
            "autoCreateSubscriptionGroup": "true",
            "enablePropertyFilter": "true",
            "traceTopicEnable": "true",
            "diskMaxUsedSpaceRatio": "98",
            "fileReservedTime": "480000",  # records of tests carry old times; nothing is ever old enough to go
            "brokerFastFailureEnable": "false",
            "registerNameServerPeriod": "10000",  # the least: a name server forgets a broker with its connection, until it registers again
            "transactionTimeOut": "1000",
            "transactionCheckInterval": "1000",
            "transactionCheckMax": "450",  # so that a half that nobody answers for is there as long as out of the box
            "flushDiskType": "ASYNC_FLUSH",
            "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
        }
        if self.version.startswith("4."):
            lines["aclEnable"] = str(self._acl).lower()
        else:
            lines |= {
                "timerWheelEnable": "true",
                "mappedFileSizeTimerLog": "1048576",
                "timerPrecisionMs": "1000",
                "timerFlushIntervalMs": "300000",  # each goes over the 39 MB of the wheel, byte by byte: half a second of a core
                "timerPutMessageThreadNum": "1",  # of 3, each of which wakes a hundred times a second
                "timerGetMessageThreadNum": "1",
                "recallMessageEnable": "true",
                "useServerSideResetOffset": "false",
                "transactionMetricFlushInterval": "200",  # it also spins so long after a boot, until the first
                "transactionOpBatchInterval": "86400000",
                "transactionOpMsgMaxSize": "1",
            }
            if self._acl:
                lines |= _auth_5(store)
        settings = {name: value for name, value in self._settings.items() if not (broker_id and name == "brokerRole")}
        return lines | settings

    def _name_server_ready(self, port: int) -> bool:
        return bool(ask(port, 106))

    def _broker_ready(self, port: int, number: int) -> bool:
        """Whether the first name server knows the broker that listens there, which is `number` of `servers`."""
        with socket.create_connection(("127.0.0.1", port), 5.0):
            pass
        if f'"127.0.0.1:{port}"'.encode() in ask(self.name_server_port, 106):
            if self.version.startswith("5."):
                self._set(port, "timerWheelEnable=false")
            return True
        if self.version.startswith("5.") and self.servers[number].said(b"boot success"):
            self._set(port, f"brokerPermission={self._settings.get('brokerPermission', '6')}")  # at which a broker registers
        return False

    def _set(self, port: int, line: str) -> None:
        """Change one setting of the broker that listens there (UPDATE_BROKER_CONFIG, 25), which writes its file anew."""
        body, key = f"{line}\n".encode(), "RocketMQ"
        signature = base64.b64encode(hmac.digest(USERS[key].encode(), key.encode() + body, "sha1")).decode()
        ask(port, 25, body=body, fields={"AccessKey": key, "Signature": signature} if self._acl else {})


def _auth_5(store: Path) -> dict[str, str]:
    auth = "org.apache.rocketmq.auth"
    user, password = "RocketMQ", USERS["RocketMQ"]
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": f"{auth}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{auth}.authorization.provider.LocalAuthorizationMetadataProvider",
        "authConfigPath": str(store / "auth"),
        "initAuthenticationUser": json.dumps({"username": user, "password": password}, separators=(",", ":")),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": user, "secretKey": password}, separators=(",", ":")),
    }
