"""What the Pulsar process is told: standalone.conf, JVM flags and logging. One bookie, small caches, few threads, loopback only."""

from __future__ import annotations

from pathlib import Path

from .certs import Certificates

_AUTH = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_METADATA_DRIVER = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
_OPENS = [
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in (
            "java.io",
            "java.util.zip",
            "java.nio",
            "java.lang",
            "sun.net",
            "jdk.internal.misc",
            "jdk.internal.platform",
            "jdk.internal.loader",
        )
    ),
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
]
_UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Without the verification of classes that no archive holds (a quarter of them): a sixth of a boot."""
_COMMON = """
clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
metadataStoreUrl=
allowLoopback=true
allowEphemeralPorts=true
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
loadManagerClassName=org.apache.pulsar.broker.loadbalance.NoopLoadManager
loadBalancerEnabled=false
webSocketServiceEnabled=false
brokerDeleteInactiveTopicsEnabled=false
defaultRetentionTimeInMinutes=-1
defaultRetentionSizeInMB=-1
allowAutoTopicCreation=false
brokerShutdownTimeoutMs=0
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
enableBrokerTopicListWatcher=true
acknowledgmentAtBatchIndexLevelEnabled=true
subscriptionKeySharedEnable=true
isAllowAutoUpdateSchemaEnabled=true
delayedDeliveryEnabled=true
delayedDeliveryTickTimeMillis=100
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
nettyMaxFrameSizeBytes=5253120
journalSyncData=false
journalMaxGroupWaitMSec=0
listeningInterface=lo
journalMaxSizeMB=128
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
dbStorage_writeCacheMaxSizeMb=64
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=16777216
httpServerEnabled=false
managedLedgerCacheSizeMB=64
managedLedgerCacheEvictionIntervalMs=200
maxMessagePublishBufferSizeInMB=64
numIOThreads=2
numHttpServerThreads=6
numOrderedExecutorThreads=1
numExecutorThreadPoolSize=1
numCacheExecutorThreadPoolSize=1
bookkeeperClientNumWorkerThreads=1
bookkeeperClientNumIoThreads=1
managedLedgerNumSchedulerThreads=1
topicOrderedExecutorThreadNum=1
"""
_LOG4J = """<Configuration status="WARN"><Appenders><Console name="OUT" target="SYSTEM_OUT">
<PatternLayout pattern="%d %p [%c{{1}}] %m%n"/></Console></Appenders>
<Loggers><Root level="{level}"><AppenderRef ref="OUT"/></Root></Loggers></Configuration>
"""


def common(binary_port: int, http_port: int) -> dict[str, str]:
    """The lines that every flavour has."""
    lines = dict(line.split("=", 1) for line in _COMMON.strip().splitlines())
    return lines | {"brokerServicePort": str(binary_port), "webServicePort": str(http_port)}


def jobs(transactions: bool, entry_metadata: bool) -> dict[str, str]:
    """Transaction coordinator and broker entry metadata."""
    lines: dict[str, str] = {}
    if transactions:
        lines |= {"transactionCoordinatorEnabled": "true", "numTransactionReplayThreadPoolSize": "1"}
    if entry_metadata:
        kinds = ("AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")
        lines["brokerEntryMetadataInterceptors"] = ",".join(f"org.apache.pulsar.common.intercept.{kind}" for kind in kinds)
        lines["exposingBrokerEntryMetadataToClientEnabled"] = "true"
    return lines


def tls(certificates: Certificates, port: int, http_port: int) -> dict[str, str]:
    """The TLS ports."""
    return {
        "brokerServicePortTls": str(port),
        "webServicePortTls": str(http_port),
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.server_key),
        "tlsTrustCertsFilePath": str(certificates.ca),
    }


def tokens(key: Path, admin_token: str) -> dict[str, str]:
    """Authentication by token, and the token by which the broker calls itself."""
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": f"{_AUTH}Token,{_AUTH}Tls",
        "tokenSecretKey": f"file://{key}",
        "superUserRoles": "admin",
        "authenticationRefreshCheckSeconds": "4",  # a client that has not answered the challenge by the next check is cut off
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{admin_token}",
    }


def jvm_flags(folder: Path, heap: str) -> list[str]:
    """Flags of the JVM; writes the logging configuration into `folder`."""
    logging = folder / "log4j2.xml"
    logging.write_text(_LOG4J.format(level="WARN"))
    return [
        "-Xms128m",
        f"-Xmx{heap}",
        "-XX:MaxDirectMemorySize=384m",
        "-XX:+UseSerialGC",
        *_UNVERIFIED,
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.net.preferIPv4Stack=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dlog4j.shutdownHookEnabled=false",
        f"-Dlog4j.configurationFile={logging}",
        f"-Dbookkeeper.metadata.bookie.drivers={_METADATA_DRIVER}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={_METADATA_DRIVER}ClientDriver",
        *_OPENS,
    ]
