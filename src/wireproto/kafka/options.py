"""Defines the options of the Kafka adapter.

One frozen dataclass for the client and for its roles: what the URL or `connect` sets is the default of every role, and each role takes
those of `ROLES` for itself. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

from ..errors import OptionError
from ..net.options import CommonOptions
from ..position import TopicPartition
from .peer_names import NAMES

Partitioner = Callable[[bytes | None, int], int]

_SENDING: Final = (
    *("acks", "idempotence", "linger", "batch_size", "compression", "max_in_flight", "delivery_timeout", "max_request_size", "partitioner"),
    *("message_format", "auto_create", "request_timeout", "metadata_max_age", "timeout"),
)
_READING: Final = (
    *("isolation", "max_wait", "min_bytes", "max_bytes", "partition_bytes", "check_crc", "on_corrupt", "reset", "facts", "columns", "rack"),
    *("request_timeout", "unknown_topic_timeout", "metadata_max_age", "timeout"),
)
_MEMBER: Final = (
    *("session_timeout", "heartbeat_interval", "max_poll_interval", "group_instance_id", "on_assigned", "on_revoked", "on_lost"),
    *("auto_commit", "auto_commit_interval"),
)


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(CommonOptions):
    """Options of Kafka clients and roles, beside those of `CommonOptions`.

    Attributes:
        sasl: mechanism; None goes by what is given: `user` means PLAIN, `token` OAUTHBEARER, SCRAM is never guessed.
        sasl_extensions: OAUTHBEARER: mapping of names and values sent beside the token.
        request_timeout: how long a request may go unanswered before its connection is given up and it is tried on another one.
        unknown_topic_timeout: how long an unknown topic is looked for, since nodes learn of a new one one after the other.
        auto_create: let the broker create unknown topics that a producer names, if the broker is set so.
        metadata_max_age: how long until leaders and partition counts are looked up again.

        acks: all (every in-sync replica), 1 (the leader), 0 (none: receipts have no position).
        idempotence: no record is stored twice or out of order, whatever is retried; needs acks=all. None: on where the broker can.
        linger: how long a batch waits for more records. batch_size: bytes of a batch before compression.
        compression: none, gzip, snappy, lz4, zstd.
        max_in_flight: batches of one partition in flight at a time, at most 5 with idempotence.
        delivery_timeout: how long a record may take before its receipt fails.
        max_request_size: largest record, and how much goes into one request.
        partitioner: called with key and number of partitions, in place of murmur2 and sticky.
        transaction_timeout: how long a transaction may take before its coordinator rolls it back; the cluster has a limit (15 minutes).
        message_format: 2; or 1 or 0 for message sets of old brokers (Produce v2, v0-1), without headers or idempotence.

        isolation: committed leaves out records of open and aborted transactions.
        max_wait: how long the broker waits for records. min_bytes: how many bytes it waits for.
        max_bytes, partition_bytes: how much to ask for at a time, of a leader and of a partition.
        check_crc: verify checksums.
        on_corrupt: what a role does at a batch that cannot be read: ``raise``, or ``skip`` it (`batch.columns.skipped` lists it).
        reset: what to do when the records that come next are gone (deleted, or cut off by an election): ``raise``, or continue at the log's
            ``earliest`` or ``latest`` record, or at the ``nearest`` of what was not read. After a cut whose place is known reading
            continues there.
        facts: keep what each batch's head says (`batch.columns.facts`): timestamp type, producer, codec …
        columns: names of the columns to decode; None: offset, timestamp, key, value, headers. There are also leader_epoch, producer_id,
            producer_epoch, sequence, transactional, timestamp_type.
        partitions: read only these.
        rack: name of our rack, to read from a replica near by where the cluster offers it.

        session_timeout: how long a group member may send no heartbeat before it is removed. heartbeat_interval: time between heartbeats.
        max_poll_interval: how long a member may not poll before it leaves; also how long a rebalance waits for it.
        group_instance_id: static name in the group, so that a restart within the session timeout needs no rebalance.
        on_assigned, on_revoked: called with a frozenset of (topic, partition) in the polling thread; on_revoked while commits still count.
        on_lost: called in place of on_revoked for partitions that other members may have by now, where no commit counts; None: on_revoked
            is called.
        auto_commit: a Consumer commits automatically what earlier polls returned: in a later poll, at rebalances and on close.
        auto_commit_interval: seconds between such commits; 0: in every poll.
    """

    PEER_NAMES: ClassVar[Mapping[str, str]] = NAMES
    ROLES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "producer": _SENDING,
        "reader": (*_READING, "partitions"),
        "consumer": (*_READING, *_MEMBER),
        "transactions": (*_SENDING, "transaction_timeout"),
    }

    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    sasl_extensions: Any = None
    request_timeout: float = 30.0
    unknown_topic_timeout: float = 2.0
    auto_create: bool = False
    metadata_max_age: float = 300.0

    acks: Literal["all", "1", "0"] = dataclasses.field(default="all", metadata={"also": "Literal[-1, 0, 1]"})
    idempotence: bool | None = None
    linger: float = 0.005
    batch_size: int = 64 << 10
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    max_in_flight: int = 5
    delivery_timeout: float = 120.0
    max_request_size: int = 1 << 20
    partitioner: Partitioner | None = None
    message_format: int = 2
    transaction_timeout: float = 60.0

    isolation: Literal["committed", "uncommitted"] = "committed"
    max_wait: float = 0.5
    min_bytes: int = 1
    max_bytes: int = 16 << 20
    partition_bytes: int = 2 << 20
    check_crc: bool = True
    on_corrupt: Literal["raise", "skip"] = "raise"
    reset: Literal["raise", "earliest", "latest", "nearest"] = "raise"
    facts: bool = False
    columns: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    rack: str = ""

    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0
    group_instance_id: str | None = None
    on_assigned: Callable[[frozenset[TopicPartition]], object] | None = None
    on_revoked: Callable[[frozenset[TopicPartition]], object] | None = None
    on_lost: Callable[[frozenset[TopicPartition]], object] | None = None
    auto_commit: bool = False
    auto_commit_interval: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.idempotence and self.acks != "all":
            raise OptionError("idempotence needs acks=all")
        if self.idempotence and self.message_format != 2:
            raise OptionError("idempotence needs message_format=2")
        if not 1 <= self.max_in_flight <= 5:
            raise OptionError("max_in_flight is 1 to 5: brokers remember five batches of a producer")
        if self.message_format not in (0, 1, 2):
            raise OptionError("message_format is 0, 1 or 2")
        if self.heartbeat_interval * 2 > self.session_timeout:
            raise OptionError("heartbeat_interval must be at most half of session_timeout")
        if self.partitioner is not None and not callable(self.partitioner):
            raise OptionError("partitioner is a function of key and number of partitions")
        for name in ("batch_size", "max_request_size", "max_bytes", "partition_bytes", "min_bytes"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be above 0")
        if self.transaction_timeout < 0.001:
            raise OptionError("transaction_timeout must be above 0 seconds")
        for name in ("linger", "auto_commit_interval"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be negative")

    @property
    def mechanism(self) -> str | None:
        """Return the SASL mechanism to use; None: no authentication."""
        if self.sasl is not None:
            return self.sasl
        if self.token is not None:
            return "OAUTHBEARER"
        return "PLAIN" if self.user is not None else None

    @classmethod
    def from_mapping(cls, *layers: Mapping[str, Any]) -> Self:
        """Make options as `CommonOptions` does; acks=-1 means all."""
        return super().from_mapping(*map(_words, layers))

    def for_role(self, role: str, given: Mapping[str, Any]) -> Self:
        """Make a role's options as `CommonOptions` does; acks=-1 means all."""
        return super().for_role(role, _words(given))


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace acks=-1 by its name."""
    return {**given, "acks": "all"} if given.get("acks") in (-1, "-1") else given
