"""Defines Pulsar's options: the client's, and those of roles, which default to the client's.

One frozen dataclass. URL parameters and keywords of `connect` set it; keywords of `client.producer(…)`, `reader(…)` and so on override what
`ROLES` lists for one role. It holds no state, and reads no secret before it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from wireproto.errors import OptionError
from wireproto.net.options import CommonOptions

from .peer_names import NAMES

SEQUENCES: Final = 1 << 63
"""Number of sequence ids: brokers read them as signed 64-bit numbers."""
_SENDING: Final = (
    *("compression", "batching", "batch_size", "batch_records", "linger", "hashing", "keyless", "producer_name"),
    *("delivery_timeout", "operation_timeout", "timeout"),
)
_READING: Final = ("create_topic", "check_crc", "on_corrupt", "receive_memory", "consumer_name", "timeout")


@dataclass(frozen=True, kw_only=True)
class PulsarOptions(CommonOptions):
    """Options of a Pulsar client and its roles, beside the common ones.

    Attributes:
        admin: URL of the admin HTTP interface of one host (``http://host:8080``), for what the binary protocol cannot do.
        listener: name of the advertised listener to look topics up by.
        operation_timeout: seconds for one attempt of an operation in the background.
        metadata_max_age: seconds between two look-ups of the number of partitions that a topic has.
        keep_alive: seconds of a broker's silence after which a PING is sent to it, and after as many again the connection closed.

        compression: codec of what producers send.
        batching: collect records into batches; a batch of one is a batch. ``key``: of one key each, for key-shared queues.
        batch_size, batch_records: bytes and records that close a batch.
        linger: seconds after its first record that close a batch.
        hashing: of keys to partitions: ``java`` (String.hashCode) or ``murmur3``.
        keyless: partition of records without a key: ``sticky`` (a batch to each in turn) or ``round-robin``.
        producer_name: a fixed name; with deduplication on the broker sequence ids continue after its last one. None: the broker names it.
        first_sequence: sequence id of a producer's first record in each partition; a broker that de-duplicates drops what it has under the
            producer's name from there on. None: ids continue after the last one.
        access_mode: of a producer: ``shared``; ``exclusive``: alone on its topic, or refused with ProducerFenced;
            ``exclusive-with-fencing``: alone, and producers that were there before are fenced.
        topic_epoch: of a producer that is alone on a topic without partitions: what `producer.topic_epochs` returned in an earlier run of
            the same program. It is refused with ProducerFenced if another producer was alone there since. None: it takes the next epoch.
        delivery_timeout: seconds after which an unacknowledged record fails.
        transaction_timeout: seconds after which a transaction that has not ended is rolled back by its coordinator.

        create_topic: reading may create the topic, where the broker allows that.
        read_compacted: read the compacted form of the topic.
        reset: what to do when the position to begin at is gone (its ledger was deleted): ``raise``, or continue at the ``earliest`` or
            ``latest`` record, or at the ``nearest`` of what was not read, which is the earliest.
        check_crc: verify the checksum of each entry.
        on_corrupt: what a role does at an entry that cannot be read: ``raise``, or ``skip`` it (`batch.columns.skipped` lists why).
        columns: names of the columns that a Reader or Consumer decodes; None: ledger, entry, index, timestamp, key, value, headers.
        receive_memory: bytes that one role reads ahead; permits are granted for that much.
        receive_messages: messages that a QueueConsumer has ahead of `receive` at most, which no other worker gets meanwhile: divided among
            the partitions, one each at least. A batch comes whole.
        ack_group_time: seconds for which a QueueConsumer's acks wait for others to go to the broker with them, up to 1,000 entries; 0: each
            goes alone, and `ack` waits for its answer.
        consumer_name: shown in statistics; decides which member of a failover subscription is active.
        mode: of a Consumer: ``failover`` or ``exclusive``; of a QueueConsumer: ``shared`` or ``key-shared``.
        priority: of a failover or shared consumer, 0 first.
        auto_commit: a Consumer commits by itself what earlier polls returned: in a later poll and on close.
        auto_commit_interval: seconds between such commits; 0: in every poll.
    """

    PEER_NAMES: ClassVar[Mapping[str, str]] = NAMES
    ROLES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "producer": (*_SENDING, "first_sequence", "access_mode", "topic_epoch"),
        "transactions": (*_SENDING, "transaction_timeout"),
        "reader": (*_READING, "read_compacted", "reset", "columns"),
        "consumer": (*_READING, "read_compacted", "reset", "columns", "mode", "priority", "auto_commit", "auto_commit_interval"),
        "queue": (*_READING, "receive_messages", "ack_group_time", "mode", "priority"),
    }

    admin: str | None = None
    listener: str | None = None
    operation_timeout: float = 30.0
    metadata_max_age: float = 60.0
    keep_alive: float = 30.0

    compression: Literal["none", "lz4", "zlib", "zstd", "snappy"] = "none"
    batching: bool | Literal["key"] = True
    batch_size: int = 128 << 10
    batch_records: int = 1000
    linger: float = 0.001
    hashing: Literal["java", "murmur3"] = "java"
    keyless: Literal["sticky", "round-robin"] = "sticky"
    producer_name: str | None = None
    first_sequence: int | None = None
    access_mode: Literal["shared", "exclusive", "exclusive-with-fencing"] = "shared"
    topic_epoch: int | None = None
    delivery_timeout: float = 120.0
    transaction_timeout: float = 60.0

    create_topic: bool = True
    read_compacted: bool = False
    reset: Literal["raise", "earliest", "latest", "nearest"] = "raise"
    check_crc: bool = True
    on_corrupt: Literal["raise", "skip"] = "raise"
    columns: tuple[str, ...] | None = None
    receive_memory: int = 16 << 20
    receive_messages: int = 1000
    ack_group_time: float = 0.1
    consumer_name: str | None = None
    mode: Literal["exclusive", "failover", "shared", "key-shared"] | None = None
    priority: int | None = None
    auto_commit: bool = False
    auto_commit_interval: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "batch_size",
            "batch_records",
            "operation_timeout",
            "metadata_max_age",
            "keep_alive",
            "delivery_timeout",
            "receive_memory",
            "receive_messages",
        ):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} must be above 0")
        if self.topic_epoch is not None and self.access_mode == "shared":
            raise OptionError("topic_epoch is for an exclusive producer: set access_mode to exclusive or exclusive-with-fencing")
        if self.first_sequence is not None and not 0 <= self.first_sequence < SEQUENCES:
            raise OptionError(f"first_sequence must be from 0 to 2**63 - 1: brokers know no other sequence ids, not {self.first_sequence}")
        if self.transaction_timeout < 0.001:
            raise OptionError("transaction_timeout must be above 0 seconds")
        for name in ("linger", "ack_group_time", "auto_commit_interval"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be negative")
        if self.admin is not None and not _is_admin(self.admin):
            raise OptionError(f"admin is the URL of the admin HTTP interface of one host, http://host:8080, not {self.admin!r}")


def _is_admin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(host) and "," not in parts.netloc and port != 0
