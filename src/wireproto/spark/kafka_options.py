"""Reads the options of ``kafka-wire``: the JVM connector's names, and Java's client configuration, converted to options of our client.

`read_options` and `write_options` sort one Spark option map; `client_config` converts the options that begin with ``kafka.``. Options that
change what is read, written or trusted are converted or refused; those that only tune Java's own client (buffers, metrics, group
membership) are accepted and have no effect.

    kafka.bootstrap.servers              host:port, separated by commas
    assign | subscribe | subscribePattern     one of them
    groupIdPrefix, kafka.group.id        accepted: ranges are read without a group. commitOffsetsToGroup names one for lag tools
    kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries, fetchOffset.retryIntervalMs
    topic                                the writer's, for rows without a column of that name

This module knows nothing of Spark. It must not open a connection, or put a password into an error.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import OptionError
from ..kafka.options import KafkaOptions
from ..position import AtTime, Earliest, Latest, LogOffset, TopicPartition
from .java_pattern import java_pattern
from .options import SHARED, Options, ReadSettings, read_settings

OWN = "kafka."
_TEN_YEARS = 315_360_000
_API_TIMEOUT = (
    60.0  # seconds: Java's default.api.timeout.ms, twice our client's: how long the driver of a stream waits for brokers that are away
)
SERVERS = "kafka.bootstrap.servers"
STRATEGIES = ("assign", "subscribe", "subscribePattern")
READERS = (
    *STRATEGIES,
    *SHARED,
    "groupIdPrefix",
    "commitOffsetsToGroup",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
WRITERS = ("topic", "includeTimestamp", "writeTimeout", "exactlyOnce", "transactionalIdPrefix", "decisionTopic", "onExpired")
DECISIONS = "__wireproto_sinks"
"""Default of the writer's option decisionTopic."""

REFUSED = {
    "auto.offset.reset": "set the source option startingOffsets to earliest or latest: Spark keeps the offsets, not a consumer",
    "key.deserializer": "keys are bytes; use DataFrame operations to deserialize them",
    "value.deserializer": "values are bytes; use DataFrame operations to deserialize them",
    "key.serializer": "keys are bytes; use DataFrame operations to serialize them",
    "value.serializer": "values are bytes; use DataFrame operations to serialize them",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint; commitOffsetsToGroup commits them to a group for lag tools",
    "interceptor.classes": "classes of Java cannot run here",
    "partitioner.class": "classes of Java cannot run here; give the rows a column named partition",
    "partitioner.ignore.keys": "drop the key, or give the rows a column named partition",
    "transactional.id": "with exactlyOnce=true each task has a name of its own, behind the transactionalIdPrefix",
    "ssl.engine.factory.class": "classes of Java cannot run here",
    "ssl.provider": "TLS is OpenSSL's here",
    "security.providers": "TLS is OpenSSL's here",
    "ssl.cipher.suites": "set them in OpenSSL's configuration",
    "ssl.keystore.key": "write the key to a PEM file and name it in kafka.ssl.keystore.location",
    "ssl.keystore.certificate.chain": "write the chain and the key to a PEM file and name it in kafka.ssl.keystore.location",
    "sasl.client.callback.handler.class": "classes of Java cannot run here; give a token by kafka.token (env:NAME or file:PATH)",
    "sasl.login.callback.handler.class": "classes of Java cannot run here; give a token by kafka.token (env:NAME or file:PATH)",
    "sasl.login.class": "classes of Java cannot run here",
    "sasl.oauthbearer.token.endpoint.url": "give a token by kafka.token (env:NAME or file:PATH, read again at each use)",
}
WITHOUT_EFFECT = re.compile(
    r"""group\.(id|instance\.id|protocol|remote\.assignor)|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\..*|partition\.assignment\.strategy
    |(receive|send)\.buffer\.bytes|connections\.max\.idle\.ms|(retry|reconnect)\.backoff\.(max\.)?ms|retries|metric(s|\.).*|auto\.include\.jmx.*
    |enable\.metrics\.push|client\.dns\.lookup|allow\.auto\.create\.topics|exclude\.internal\.topics|metadata\.(max\.idle\.ms|recovery\..*)
    |max\.block\.ms|compression\..*\.level|partitioner\.(adaptive|availability).*|socket\.connection\.setup\.timeout\.max\.ms
    |internal\..*|sasl\.(kerberos|login\.(refresh|retry|connect|read))\..*
    |ssl\.(keymanager|trustmanager)\.algorithm|ssl\.secure\.random\.implementation|ssl\.(truststore|keystore)\.(type|password)
    |sasl\.oauthbearer\.(scope|sub)\.claim\.name|low\.latency""",
    re.VERBOSE,
)


def milliseconds(text: str) -> float:
    """Convert text in milliseconds to seconds."""
    return int(text) / 1000


def choice(**names: Any) -> Callable[[str], Any]:
    """Make a converter that takes one of these words (in any case, with "-" for "_") and raises ValueError for others."""

    def find(text: str) -> Any:
        try:
            return names[text.lower().replace("-", "_")]
        except KeyError:
            raise ValueError(f"takes {', '.join(name.replace('_', '-').strip('-') for name in names)}") from None

    return find


PLAIN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "client.id": ("client_id", str),
    "client.rack": ("rack", str),
    "request.timeout.ms": ("request_timeout", milliseconds),
    "default.api.timeout.ms": ("timeout", milliseconds),
    "socket.connection.setup.timeout.ms": ("connect_timeout", milliseconds),
    "metadata.max.age.ms": ("metadata_max_age", milliseconds),
    "isolation.level": ("isolation", choice(read_committed="committed", read_uncommitted="uncommitted")),
    "fetch.min.bytes": ("min_bytes", int),
    "fetch.max.wait.ms": ("max_wait", milliseconds),
    "fetch.max.bytes": ("max_bytes", int),
    "max.partition.fetch.bytes": ("partition_bytes", int),
    "check.crcs": ("check_crc", choice(true=True, false=False)),
    "acks": ("acks", choice(all="all", _1="all", **{"1": "1", "0": "0"})),
    "linger.ms": ("linger", milliseconds),
    "batch.size": ("batch_size", lambda text: max(1, int(text))),
    "transaction.timeout.ms": ("transaction_timeout", milliseconds),
    "compression.type": ("compression", choice(none="none", gzip="gzip", snappy="snappy", lz4="lz4", zstd="zstd")),
    "enable.idempotence": ("idempotence", choice(true=True, false=False)),
    "max.in.flight.requests.per.connection": ("max_in_flight", lambda text: min(5, max(1, int(text)))),
    "max.request.size": ("max_request_size", int),
    "delivery.timeout.ms": ("delivery_timeout", milliseconds),
    "buffer.memory": ("buffer_memory", lambda text: max(1 << 16, int(text))),
    "ssl.truststore.certificates": ("tls_ca_data", str),
    "ssl.key.password": ("tls_key_password", str),
}
SECURITY = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.keystore.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.protocol",
    "ssl.enabled.protocols",
)
TLS_VERSIONS = {"TLSv1.2", "TLSv1.3"}
JAAS_VALUE = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def read_options(options: Options) -> ReadSettings:
    """Take what reading needs; the writer's own options are accepted and ignored.

    Raises:
        OptionError: an option is missing, unknown, or has a value that it cannot have.
    """
    given = {name: text for name in STRATEGIES if (text := options.text(name)) is not None}
    if len(given) != 1:
        options.nearly(STRATEGIES)
        few = "One of the following options must be specified" if not given else "Only one of the following options can be specified"
        raise OptionError(f"{few} for a Kafka source: {', '.join(STRATEGIES)}")
    ((strategy, text),) = given.items()
    servers = bootstrap(options)
    options.accept((*WRITERS, "groupIdPrefix"))
    group = options.text("commitOffsetsToGroup")
    topics, more = chosen(strategy, text)
    more["poll_timeout"] = (options.whole("kafkaConsumer.pollTimeoutMs", 120_000) or 0) / 1000
    more["tries"] = options.whole("fetchOffset.numRetries", 3)
    more["pause"] = (options.whole("fetchOffset.retryIntervalMs", 1000, least=0) or 0) / 1000
    client = {"isolation": "uncommitted", "timeout": _API_TIMEOUT, **client_config(options.prefixed(OWN))}
    found = read_settings(options, url=servers, client=client, topics=topics, group=group or None, **more)
    for side, places in ((found.option("starting"), found.start), (found.option("ending"), found.stop)):
        for key, place in places.items() if isinstance(places, dict) else ():
            if not isinstance(place, LogOffset | Earliest | Latest | AtTime) or (isinstance(place, LogOffset) and place.offset < 0):
                raise OptionError(f"option {side} has {place} for {key[0]}-{key[1]}; it takes an offset, -1 (latest) or -2 (earliest)")
    return found


def chosen(strategy: str, text: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return topics by name, and the other ReadSettings attributes that choose partitions.

    Args:
        strategy: "assign", "subscribe" or "subscribePattern". text: the option's text.
    Raises:
        OptionError: the text chooses nothing, or cannot be parsed.
    """
    if strategy == "assign":
        assigned = assignment(text)
        return (), {"assigned": assigned}
    if strategy == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError(f"No topics to subscribe to: option 'subscribe' is {text!r}; it takes names separated by commas")
        return topics, {}
    if not text:
        raise OptionError("Pattern to subscribe is empty: option 'subscribePattern' takes a regular expression")
    java_pattern(text)
    return (), {"pattern": text}


def assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"topicA":[0,1]}``; raises OptionError."""
    if not text.startswith("{"):
        raise OptionError(f"No topicpartitions to assign: option 'assign' is {text!r}; it takes JSON like {{\"topicA\":[0,1]}}")
    try:
        found = tuple((topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers)
    except (ValueError, TypeError, AttributeError) as why:
        raise OptionError(f'option assign is {text!r}; it takes JSON like {{"topicA":[0,1],"topicB":[0,1]}}') from why
    if not found:
        raise OptionError(f"No topicpartitions to assign: option 'assign' is {text!r}")
    return found


def bootstrap(options: Options) -> str:
    """Return the URL of the cluster from kafka.bootstrap.servers; raises OptionError where it is missing."""
    servers = options.text(SERVERS)
    if not servers:
        raise OptionError(f"Option '{SERVERS}' must be specified: host:port[,host:port]")
    if re.match(r"kafka(\+\w+)?://", servers):
        return servers
    # Java accepts a listener's name before an address, and ignores it
    return "kafka://" + ",".join(re.sub(r"^[\w%.-]*://", "", part.strip()) for part in servers.split(","))


def client_config(config: Mapping[str, str]) -> dict[str, Any]:
    """Convert Java's client configuration to options of our client.

    Args:
        config: options without their prefix ``kafka.``.
    Raises:
        OptionError: an option that is not supported here, with its remedy; one that neither client knows; a value that it cannot have.
    """
    ours = {field.name for field in dataclasses.fields(KafkaOptions)}
    found: dict[str, Any] = {}
    for name, text in config.items():
        if name in REFUSED:
            raise OptionError(f"Kafka option '{name}' is not supported: {REFUSED[name]}")
        if name in PLAIN:
            target, convert = PLAIN[name]
            try:
                found[target] = convert(text)
            except ValueError as why:
                said = str(why) if str(why).startswith("takes") else "takes a number"
                raise OptionError(f"option kafka.{name} is {text!r}; it {said}") from None
        elif name.replace(".", "_") in ours and name not in SECURITY:
            found[name.replace(".", "_")] = text
        elif name not in SECURITY and not WITHOUT_EFFECT.fullmatch(name):
            near = get_close_matches(name, [*PLAIN, *SECURITY, *REFUSED], 1)
            raise OptionError(f"unknown option kafka.{name}" + (f"; did you mean kafka.{near[0]}?" if near else ""))
    return {**found, **security(config)}


def security(config: Mapping[str, str]) -> dict[str, Any]:
    """Convert Java's TLS and SASL options to ours; raises OptionError."""
    found: dict[str, Any] = {}
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise OptionError(f"option kafka.security.protocol is {protocol!r}; it takes PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    if protocol.endswith("SSL"):
        found["tls"] = True
    for name, targets in (("ssl.truststore", ("tls_ca_file",)), ("ssl.keystore", ("tls_cert_file", "tls_key_file"))):
        if place := config.get(f"{name}.location"):
            kind = config.get(f"{name}.type", "JKS").upper()
            if kind != "PEM":
                raise OptionError(
                    f"option kafka.{name}.location is a {kind} store, which only Java reads: convert it (keytool -importkeystore to "
                    f"PKCS12, then openssl pkcs12 -out store.pem) and set kafka.{name}.type=PEM"
                )
            found.update(dict.fromkeys(targets, place))
    allowed = {part.strip() for part in config.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")}
    if config.get("ssl.protocol", "TLS") not in ("TLS", *TLS_VERSIONS) or not allowed >= TLS_VERSIONS:
        raise OptionError(
            "options kafka.ssl.protocol and kafka.ssl.enabled.protocols: TLS 1.2 and 1.3 are spoken here, whichever the broker likes best; "
            "leave them out, and set MinProtocol or MaxProtocol in OpenSSL's configuration (OPENSSL_CONF) to allow one alone"
        )
    if config.get("ssl.endpoint.identification.algorithm", "https") == "":
        found["tls_verify_host"] = False
    if protocol.startswith("SASL"):
        found.update(sasl(config))
    return found


def sasl(config: Mapping[str, str]) -> dict[str, Any]:
    """Convert the SASL mechanism and its credentials; raises OptionError."""
    mechanism = config.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise OptionError(f"option kafka.sasl.mechanism is {mechanism!r} (GSSAPI is Java's default); there are {', '.join(MECHANISMS)}")
    found: dict[str, Any] = {"sasl": mechanism}
    if text := config.get("sasl.jaas.config"):
        found.update(jaas(text, mechanism))
    return found


def jaas(text: str, mechanism: str) -> dict[str, Any]:
    """Parse the credentials of a JAAS string, ``…LoginModule required username="u" password="p";`` – raises OptionError.

    Args:
        mechanism: the SASL mechanism, whose login module the string must name.
    """
    head = re.match(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", text)
    if head is None:
        raise OptionError('option kafka.sasl.jaas.config does not read: …LoginModule required username="…" password="…";')
    values = {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in JAAS_VALUE.findall(text, head.end())}
    module = head[1].rpartition(".")[2]
    wanted = {"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}.get(mechanism, "ScramLoginModule")
    if module != wanted:
        raise OptionError(f"option kafka.sasl.jaas.config names {module}; kafka.sasl.mechanism {mechanism} goes with {wanted}")
    if mechanism != "OAUTHBEARER":
        if not values.get("username") or "password" not in values:
            raise OptionError("option kafka.sasl.jaas.config names no username and password")
        return {"user": values["username"], "password": f"value:{values['password']}"}
    claims = {name.removeprefix("unsecuredLoginStringClaim_"): value for name, value in values.items() if "StringClaim_" in name}
    if "sub" not in claims:
        raise OptionError("option kafka.sasl.jaas.config: give the token by kafka.token (env:NAME or file:PATH, read again at each use)")
    return {"token": unsecured_token(claims)}


def unsecured_token(claims: Mapping[str, str]) -> str:
    """Make an unsigned JSON web token, as Java's own login module makes one for tests.

    It is valid for ten years, since a query may run long.
    """
    now = int(time.time())
    parts = ({"alg": "none"}, {"iat": now, "exp": now + _TEN_YEARS, **claims})
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)
