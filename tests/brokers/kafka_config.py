"""What a Kafka node is told: server.properties, JVM flags and logging, by version and mode.

Small everything: heaps, thread pools, internal topics. Retention is for ever (test records carry old timestamps), group heartbeats of
the new protocols are quick (their default of 5 s makes every rebalance step wait), old message versions stay on where they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .certs import Certificates

USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
_SECURITY = "org.apache.kafka.common.security"
_PACES = {
    "min.session.timeout.ms": "1000",
    "session.timeout.ms": "6000",
    "min.heartbeat.interval.ms": "200",
    "heartbeat.interval.ms": "500",
}


@dataclass(frozen=True)
class Plan:
    """What all nodes share. Ports per node: `listeners` by listener name, `controllers` for KRaft, `keeper` is ZooKeeper's."""

    version: str
    listeners: list[dict[str, int]]
    controllers: list[int]
    keeper: int | None
    certificates: Certificates | None
    client_auth: str
    acl: bool
    settings: Mapping[str, str]


def server_properties(plan: Plan, node: int, data: Path) -> str:
    """The text of server.properties for node number `node` (ids count from 1)."""
    lines = _common(plan, data) | _listeners(plan, node) | _mode(plan, node)
    if plan.version.startswith("3."):
        lines["log.message.downconversion.enable"] = "true"
        if plan.keeper is None:
            lines["group.coordinator.rebalance.protocols"] = "classic,consumer"
    else:
        lines |= {"share.coordinator.state.topic." + k: v for k, v in _internal(plan).items()}
        lines |= {f"group.{kind}.{k}": v for kind in ("share", "streams") for k, v in _PACES.items()}
    if plan.certificates:
        lines |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(plan.certificates.server_pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(plan.certificates.ca),
            "ssl.client.auth": plan.client_auth,
            "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        }
    lines |= _sasl(plan.listeners[node])
    if plan.acl:
        old = plan.keeper is not None
        lines |= {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"
            if old
            else "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "allow.everyone.if.no.acl.found": "true",
        }
    return "".join(f"{name}={value}\n" for name, value in (lines | dict(plan.settings)).items())


def _internal(plan: Plan) -> dict[str, str]:
    copies = min(3, len(plan.listeners))
    return {"replication.factor": str(copies), "min.isr": str(min(2, copies)), "num.partitions": "4"}


def _common(plan: Plan, data: Path) -> dict[str, str]:
    copies = min(3, len(plan.listeners))
    return {
        "log.dirs": str(data),
        "num.partitions": "1",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(min(2, copies)),
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "4",
        **{"transaction.state.log." + k: v for k, v in _internal(plan).items()},
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        "message.max.bytes": "10485760",
        "log.retention.hours": "-1",
        "log.cleaner.dedupe.buffer.size": "16777216",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "controlled.shutdown.max.retries": "1",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        **{f"group.consumer.{k}": v for k, v in _PACES.items()},
        "delegation.token.master.key" if plan.version.startswith("3.") else "delegation.token.secret.key": "wireproto-tests",
    }


def _listeners(plan: Plan, node: int) -> dict[str, str]:
    mine = plan.listeners[node]
    hosts = {name: "localhost" if name.endswith("SSL") else "127.0.0.1" for name in mine}
    bound = [f"{name}://{hosts[name]}:{port}" for name, port in mine.items()]
    inner = [] if plan.keeper is not None else [f"CONTROLLER://127.0.0.1:{plan.controllers[node]}"]
    names = {name: name for name in mine} | ({"CONTROLLER": "PLAINTEXT"} if inner else {})
    return {
        "listeners": ",".join([*bound, *inner]),
        "advertised.listeners": ",".join(bound),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in names.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "broker.rack": f"rack{node + 1}",
    }


def _mode(plan: Plan, node: int) -> dict[str, str]:
    if plan.keeper is not None:
        where = {"zookeeper.connect": f"127.0.0.1:{plan.keeper}", "zookeeper.session.timeout.ms": "4000"}
        return {"broker.id": str(node + 1)} | where
    return {
        "process.roles": "broker,controller",
        "node.id": str(node + 1),
        "controller.quorum.voters": ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(plan.controllers)),
        "controller.listener.names": "CONTROLLER",
        "metadata.max.idle.interval.ms": "5000",  # an idle controller's empty records: out of the box two a second, to every node
        "broker.session.timeout.ms": "4000",  # a killed broker can register again only when its old session has ended
        "broker.heartbeat.interval.ms": "500",
    }


def _sasl(listeners: Mapping[str, int]) -> dict[str, str]:
    known = [name.lower() for name in listeners if name.startswith("SASL")]
    if not known:
        return {}
    users = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    modules = {
        "plain": f'{_SECURITY}.plain.PlainLoginModule required username="admin" password="{USERS["admin"]}" {users};',
        "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
    }
    lines = {"sasl.enabled.mechanisms": ",".join(name.upper() for name in modules)}
    for listener in known:
        for mechanism, module in modules.items():
            lines[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = module
    return lines


def jvm_flags(version: str, folder: Path, heap: str) -> tuple[str, ...]:
    """Flags of the broker's JVM; writes its logging configuration into `folder`."""
    if version.startswith("3."):
        config = folder / "log4j.properties"
        layout = "log4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n\n"
        config.write_text(f"log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n{layout}")
        logging = f"-Dlog4j.configuration=file:{config}"
    else:
        config = folder / "log4j2.properties"  # the extension decides how it is read
        config.write_text(
            "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
            "appender.out.layout.pattern=%d %p %m (%c)%n\nrootLogger.level=WARN\nrootLogger.appenderRef.out.ref=out\n"
        )
        logging = f"-Dlog4j2.configurationFile={config}"
    return (f"-Xmx{heap}", "-Xms64m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", logging)
