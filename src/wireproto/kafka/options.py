"""Options of the Kafka adapter.

What it is: one frozen dataclass for the client and for its roles: what the URL or `connect` sets is the default of every role, and each
role takes the same names. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from ..errors import OptionError
from ..net.options import CommonOptions

Partitioner = Callable[[bytes | None, int], int]


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(CommonOptions):
    """Beside what all clients take:

    Attributes:
        sasl: mechanism; None goes by what is given: `user` means PLAIN, `token` OAUTHBEARER, SCRAM is never guessed.
        sasl_extensions: OAUTHBEARER: mapping of names and values sent beside the token.
        request_timeout: how long a request of a role in the background may take before its connection is given up.
        topic_patience: how long an unknown topic is looked for, since nodes learn of a new one one after the other.
        auto_create: let the broker create unknown topics that a producer names, if the broker is set so.
        metadata_max_age: leaders and partition counts are looked up again after so long.

        acks: all (every in-sync replica), 1 (the leader), 0 (nobody: receipts tell no position).
        idempotence: no record twice and none out of order, whatever is sent again; needs acks=all. None: on where the broker can.
        linger: how long a batch waits for more records. batch_size: bytes of a batch before compression.
        compression: none, gzip, snappy, lz4, zstd.
        max_in_flight: batches of one partition under way at a time, at most 5 with idempotence.
        delivery_timeout: how long a record may take before its receipt fails.
        max_request_size: largest record, and how much goes into one request.
        partitioner: called with key and number of partitions, in place of murmur2 and sticky.
        message_format: 2; or 1 or 0 for message sets of old brokers (Produce v2, v0-1), without headers or idempotence.

        isolation: committed leaves out records of open and aborted transactions.
        max_wait: how long the broker waits for records. min_bytes: how many bytes it waits for.
        max_bytes, partition_bytes: how much to ask for at a time, of a leader and of a partition.
        check_crc: verify checksums. on_bad: raise, or skip batches that cannot be read.
        facts: keep what each batch's head says (`batch.columns.facts`): timestamp type, producer, codec …
        columns: names of the columns to decode; None: offset, timestamp, key, value, headers. There are also leader_epoch, producer_id,
            producer_epoch, sequence, transactional, timestamp_type.
        partitions: read only these.
        rack: name of our rack, to read from a replica near by where the cluster offers it.

        session_timeout: a group member that does not beat for so long is out. heartbeat_interval: how often it beats.
        max_poll_interval: a member that does not poll for so long leaves; also how long a rebalance waits for it.
        group_instance_id: static name in the group, so that a restart within the session time-out needs no rebalance.
        on_assigned, on_revoked: called with a frozenset of (topic, partition) in the polling thread; on_revoked while commits still count.
        on_lost: called instead of on_revoked for partitions that others may have by now, so that no commit counts; else on_revoked is.
        auto_commit: commit what earlier polls handed out, every `auto_commit_interval`, at rebalances and on close.
    """

    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    sasl_extensions: Any = None
    request_timeout: float = 30.0
    topic_patience: float = 2.0
    auto_create: bool = False
    metadata_max_age: float = 300.0

    acks: Literal["all", "1", "0"] = "all"
    idempotence: bool | None = None
    linger: float = 0.005
    batch_size: int = 64 << 10
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    max_in_flight: int = 5
    delivery_timeout: float = 120.0
    max_request_size: int = 1 << 20
    partitioner: Any = dataclasses.field(default=None, metadata={"text": False})
    message_format: int = 2

    isolation: Literal["committed", "uncommitted"] = "committed"
    max_wait: float = 0.5
    min_bytes: int = 1
    max_bytes: int = 16 << 20
    partition_bytes: int = 2 << 20
    check_crc: bool = True
    on_bad: Literal["raise", "skip"] = "raise"
    facts: bool = False
    columns: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    rack: str = ""

    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0
    group_instance_id: str | None = None
    on_assigned: Any = dataclasses.field(default=None, metadata={"text": False})
    on_revoked: Any = dataclasses.field(default=None, metadata={"text": False})
    on_lost: Any = dataclasses.field(default=None, metadata={"text": False})
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
        if self.linger < 0:
            raise OptionError("linger cannot be negative")

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism to use."""
        if self.sasl is not None:
            return self.sasl
        if self.token is not None:
            return "OAUTHBEARER"
        return "PLAIN" if self.user is not None else None

    def replace(self, **changes: Any) -> Self:
        """These options with some changed, as keywords or text; unknown names raise OptionError."""
        if not changes:
            return self
        if isinstance(changes.get("acks"), int):
            changes["acks"] = "all" if changes["acks"] == -1 else str(changes["acks"])
        current = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return type(self).from_mapping(current, changes)
