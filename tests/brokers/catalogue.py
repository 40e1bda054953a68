"""The brokers that tests name, and the pool that starts each at first use and ends it after the last test that needs it.

A name is ``<protocol>-<version>[-<flavour>]``. "secure" has TLS and every authentication; its plain listener is open where the server
allows that (Kafka, ZooKeeper), not on Pulsar and RocketMQ.
"""

from __future__ import annotations

from collections.abc import Callable

from .base import Broker
from .errors import BootFailed, Unavailable
from .kafka import Kafka
from .pulsar import Pulsar
from .rocketmq import RocketMQ
from .zookeeper import ZooKeeper

PLAIN = {"enablePropertyFilter": "false", "rejectTransactionMessage": "true"}
"""Of RocketMQ, "plain": with what the embedded broker has turned off turned off, too, and else as out of the box."""
SOONER = {"messageDelayLevel": "1s 1s 2s 3s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"}
"""Of RocketMQ: what is given back without a level, which makes it the third one, comes again after 2 s, and when it is given back once more
after 3; out of the box after 10 and 30."""
CURT = {"keepAliveIntervalSeconds": "4", "activeConsumerFailoverDelayTimeMillis": "0", "acknowledgmentAtBatchIndexLevelEnabled": "false"}
"""Of Pulsar, "curt": it waits less than out of the box, and takes no part of a batch for acknowledged, as before 4.1. Its keepalive is
longer than a loaded broker stands still: behind that it asks and gives up in one breath, for its timer catches up on what it missed."""
TIGHT = {
    "managedLedgerMaxEntriesPerLedger": "2",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "10",
    "defaultRetentionSizeInMB": "10",
    "backlogQuotaDefaultLimitBytes": "1000000",
    "backlogQuotaCheckIntervalInSeconds": "5",
    "ttlDurationDefaultInSeconds": "120",
    "messageExpiryCheckIntervalInMinutes": "1",
}
"""Of Pulsar, "tight": a new ledger each two entries, and small policies: what is kept, how long it may be unread, and how much of it."""
SWEEPING = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
"""Of Kafka: transactions that took too long are looked for each half second; out of the box each ten."""
CLASSIC = SWEEPING | {"group.coordinator.rebalance.protocols": "classic"}
"""Of Kafka 3.9: without the preview of KIP-848, whose coordinator now and then leaves a transaction in PrepareCommit for ever."""
CURT_MEMBERS = {"group.min.session.timeout.ms": "500"}
"""Of Kafka: members that were killed may be known as such sooner than out of the box."""
CATALOGUE: dict[str, Callable[[], Broker]] = {
    "kafka-3.9.2": lambda: Kafka("3.9.2"),
    "kafka-3.9.2-zookeeper": lambda: Kafka("3.9.2", zookeeper=True),
    "kafka-4.3.1": lambda: Kafka("4.3.1"),
    "kafka-4.4.0": lambda: Kafka("4.4.0"),
    "kafka-3.9.2-secure": lambda: Kafka("3.9.2", tls=True, sasl=True, acl=True),
    "kafka-4.3.1-secure": lambda: Kafka("4.3.1", tls=True, sasl=True, acl=True),
    "kafka-4.3.1-cluster": lambda: Kafka("4.3.1", nodes=3),
    "kafka-3.9.2-transactions": lambda: Kafka("3.9.2", settings=CLASSIC),
    "kafka-4.3.1-transactions": lambda: Kafka("4.3.1", settings=SWEEPING),
    "kafka-4.4.0-transactions": lambda: Kafka("4.4.0", settings=SWEEPING),
    "kafka-4.3.1-level-1": lambda: Kafka("4.3.1", settings=SWEEPING, features={"transaction.version": 1}),
    "kafka-3.9.2-cluster-transactions": lambda: Kafka("3.9.2", nodes=3, settings=CLASSIC | CURT_MEMBERS),
    "kafka-4.3.1-cluster-transactions": lambda: Kafka("4.3.1", nodes=3, settings=SWEEPING | CURT_MEMBERS),
    "kafka-4.3.1-cluster-level-1": lambda: Kafka("4.3.1", nodes=3, settings=SWEEPING | CURT_MEMBERS, features={"transaction.version": 1}),
    "pulsar-4.2.4": lambda: Pulsar("4.2.4"),
    "pulsar-4.2.4-transactions": lambda: Pulsar("4.2.4", transactions=True, entry_metadata=True),
    "pulsar-4.2.4-secure": lambda: Pulsar("4.2.4", tokens=True, tls=True),
    "pulsar-4.2.4-curt": lambda: Pulsar("4.2.4", settings=CURT),
    "pulsar-4.2.4-tight": lambda: Pulsar("4.2.4", settings=TIGHT),
    "rocketmq-4.9.7": lambda: RocketMQ("4.9.7", settings=SOONER),
    "rocketmq-4.9.7-binary": lambda: RocketMQ("4.9.7", binary=True),
    "rocketmq-4.9.7-secure": lambda: RocketMQ("4.9.7", acl=True, tls=True),
    "rocketmq-5.5.0": lambda: RocketMQ("5.5.0", settings=SOONER),
    "rocketmq-5.5.0-binary": lambda: RocketMQ("5.5.0", binary=True),
    "rocketmq-5.5.0-secure": lambda: RocketMQ("5.5.0", acl=True, tls=True),
    "rocketmq-5.5.0-cluster": lambda: RocketMQ(
        "5.5.0", nodes=2, name_servers=2, settings=SOONER | {"useServerSideResetOffset": "true"}
    ),  # the latter as out of the box
    "rocketmq-5.5.0-cluster-old-reset": lambda: RocketMQ("5.5.0", nodes=2, name_servers=2),
    "rocketmq-4.9.7-slave": lambda: RocketMQ("4.9.7", slave=True, name_servers=2),
    "rocketmq-5.5.0-slave": lambda: RocketMQ("5.5.0", slave=True, name_servers=2, settings={"useServerSideResetOffset": "true"}),
    "rocketmq-4.9.7-plain": lambda: RocketMQ("4.9.7", settings=PLAIN),
    "rocketmq-5.5.0-plain": lambda: RocketMQ("5.5.0", settings=PLAIN | {"useServerSideResetOffset": "true"}),
    "zookeeper-3.8.6": lambda: ZooKeeper("3.8.6"),
    "zookeeper-3.9.5": lambda: ZooKeeper("3.9.5"),
    "zookeeper-3.9.5-ensemble": lambda: ZooKeeper("3.9.5", nodes=3),
    "zookeeper-3.9.5-sasl": lambda: ZooKeeper("3.9.5", sasl=True),
    "zookeeper-3.9.5-secure": lambda: ZooKeeper("3.9.5", tls=True),
}

AT_NIGHT = frozenset(
    (
        *("kafka-3.9.2", "kafka-3.9.2-zookeeper", "kafka-3.9.2-secure", "kafka-3.9.2-transactions", "kafka-3.9.2-cluster-transactions"),
        *("kafka-4.3.1-level-1", "kafka-4.3.1-cluster-level-1", "kafka-4.4.0", "kafka-4.4.0-transactions"),
        "pulsar-4.2.4-tight",
        *("rocketmq-4.9.7", "rocketmq-4.9.7-binary", "rocketmq-4.9.7-secure", "rocketmq-4.9.7-plain"),
        *("rocketmq-5.5.0-binary", "rocketmq-5.5.0-cluster-old-reset"),
        "zookeeper-3.8.6",
    )
)
"""Older, odd and newly released brokers: their tests run in `make nightly PIECES=matrix`. `make test` has the same tests on the broker
that it knows best, and of these the files of `SMOKE`."""
SMOKE = {
    "kafka-3.9.2": (
        *("conformance/test_producer.py", "conformance/test_consumer.py", "conformance/test_records.py", "integration/test_brokers.py"),
        "integration/test_kafka_interop.py::test_old_message_sets_are_written_and_read",
        "integration/test_kafka_versions.py::test_without_zookeeper_version_0_of_offsets_is_refused_by_code",
    ),
    "kafka-4.3.1-level-1": ("integration/test_kafka_handed_over.py",),
    "rocketmq-4.9.7": (
        *("conformance/test_producer.py", "conformance/test_queue.py", "conformance/test_records.py", "integration/test_brokers.py"),
    ),
    "rocketmq-5.5.0-binary": ("integration/test_rocketmq_interop.py",),
    "zookeeper-3.8.6": ("integration/test_zookeeper_watch_modes.py", "integration/test_brokers.py"),
}
"""Of a broker at night, the files and tests that `make test` runs all the same: a smoke of each older line, and what no newer one has."""


def at_night(broker: str, test: str) -> bool:
    """Whether the test with this node id is left to `make nightly` on this broker."""
    kept = {f"tests/{place}" for place in SMOKE.get(broker, ())}
    return broker in AT_NIGHT and test.partition("[")[0] not in kept and test.partition("::")[0] not in kept


ATTEMPTS = 3
"""How often a broker is set up from nothing before its boot counts as failed: a port that is taken, a machine that stands still."""


class Pool:
    """Brokers by name, started on demand. A broker that failed to start `ATTEMPTS` times fails at once the next time.

    Attributes:
        boot_seconds: of each broker's last boot.
        boots_again: brokers that did not boot at once, with what each failed attempt said.
    """

    def __init__(self) -> None:
        self._running: dict[str, Broker] = {}
        self._failed: dict[str, Exception] = {}
        self.boot_seconds: dict[str, float] = {}
        self.boots_again: dict[str, list[str]] = {}

    def get(self, name: str) -> Broker:
        """The broker of that name, running; one that a test left stopped is started again.

        Raises:
            Unavailable: this machine cannot run it.
            BootFailed: it did not become ready.
        """
        if name in self._failed:
            raise self._failed[name]
        broker = self._running.get(name)
        try:
            if broker is None:
                broker = self._booted(name)
            elif not all(server.running for server in broker.servers):
                broker.start()
        except Exception as why:
            self._failed[name] = why
            self.end(name)
            raise
        return broker

    def _booted(self, name: str) -> Broker:
        """A new broker with a folder and ports of its own; another one where it did not become ready."""
        for attempt in range(ATTEMPTS):
            broker = self._running[name] = CATALOGUE[name]()
            try:
                broker.start()
            except BootFailed as why:
                self.end(name)
                self.boots_again.setdefault(name, []).append(str(why))
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                break
        self.boot_seconds[name] = broker.boot_seconds
        return broker

    def end(self, name: str) -> None:
        """Stop it and remove its data."""
        broker = self._running.pop(name, None)
        if broker is not None:
            broker.close()

    def close(self) -> None:
        for name in list(self._running):
            self.end(name)


__all__ = ["CATALOGUE", "Pool", "Unavailable"]
