"""Defines the options of the RocketMQ client and its roles.

There is one frozen type. Each field may be given in the URL or to `connect`; the fields of a role may also be given where the role is made,
for that role only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from wireproto.auth.secrets import Secret
from wireproto.errors import OptionError
from wireproto.net.options import CommonOptions

from .peer_names import NAMES

_READING: Final = (
    *("pull_ahead", "pull_suspend", "batch_bytes", "min_bytes", "reset", "check_crc", "on_corrupt", "decompress_limit"),
    *("recovery_timeout", "timeout"),
)
_MEMBER: Final = ("rebalance_interval", "heartbeat_interval", "max_poll_interval")


@dataclass(frozen=True, kw_only=True)
class RocketOptions(CommonOptions):
    """Holds the options that RocketMQ's client takes beyond the common ones.

    Attributes:
        header: how commands are written: ``json`` or ``binary``; replies are read in whichever type they come.
        access_key, secret_key, security_token: ACL credentials; `user` and `password` mean the first two.
        route_age: seconds for which a topic's route is used without asking again.
        request_timeout: seconds for one command before it is tried again, where the role tries again.

        group: producer: name of its producer group. reader: the consumer group that pulls name (TOOLS_CONSUMER exists on every broker).
        compression: ``none``, ``zlib``, ``lz4``, ``zstd``: bodies of at least `compress_above` bytes, in single sends.
        max_message_size: bytes of a value above which sending is refused here; the brokers' own limit is 4 MiB by default.
        delivery_timeout: seconds that a record may take to be acknowledged, all attempts together; those before it that its queue stores
            meanwhile do not count.
        linger: seconds that a record may wait for others to share a command with; 0 sends each at once.
        batch_size: bytes of records that share a command.
        max_in_flight: commands of one queue on the wire at once; above 1 brokers may store its records out of order.

        check_after: whole seconds from its sending after which brokers may ask about a half message (CHECK_IMMUNITY_TIME_IN_SECONDS);
            5.x refuses ends that come later. None: the brokers' transactionTimeOut, 6 s by default, and no end is too late.

        pull_ahead: pulls of one queue that may be in flight or waiting; waiting ones count only beyond `min_bytes`.
        pull_suspend: seconds that a broker may hold a pull at the end of a queue (long polling), and up to five more, since it looks at
            held pulls each 5 s. For that long a reader may not notice that the topic was created again, or the group set back. Java's is
            15.
        batch_bytes: bytes of stored messages that one Batch is made of, at most (and at least one reply).
        min_bytes: bytes of stored messages that a Batch waits for, while more is known to be stored and `poll` may wait.
        reset: what to do when the records that come next are gone (deleted, or lost by the broker): ``raise``, or continue at the
            ``earliest`` or ``latest`` record, or at the ``nearest`` that was not read: the earliest, since it is not known what was read of
            a lost end.
        check_crc: check each body's CRC.
        on_corrupt: what a role does at a record that cannot be decoded: ``raise``, or ``skip`` it (see `batch.columns.skipped`).
        columns: names of the columns that a Reader or Consumer decodes; None: offset, timestamp, key, value, headers.
        decompress_limit: bytes one body may unpack to.
        recovery_timeout: seconds of failures without a success after which reading raises the last one.

        auto_commit: whether a Consumer itself commits what earlier polls returned: in a later poll, when another member gets a queue,
            and on close.
        auto_commit_interval: seconds between such commits; 0: in every poll.
        rebalance_interval: seconds after which members and routes are looked up even if no broker has notified the member.
        heartbeat_interval: seconds between heartbeats; brokers forget a member after 120.
        max_poll_interval: seconds without `poll` or `receive` after which a member leaves its group.

        retry_level: delay level with which a released message comes back. 0: the broker's choice, 3 + number of attempts (10 s, 30 s, 1 min
            … 2 h, by its default table), as Java's consumer asks; 1: 1 s, 2: 5 s …; -1: it goes to the dead-letter queue at once.
        max_attempts: how often a released message comes back; the next release puts it into the group's dead-letter queue.
        max_unacked: messages in hand and not ended, above which `receive` waits.
        ack_group_time: seconds after which a QueueConsumer commits what was acked, one commit a queue; 0: each ack is a commit, and waits
            for its answer.
    """

    PEER_NAMES: ClassVar[Mapping[str, str]] = NAMES
    ROLES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "producer": (
            *("group", "compression", "compress_above", "max_message_size", "delivery_timeout", "linger", "batch_size", "max_in_flight"),
            *("request_timeout", "timeout"),
        ),
        "transactional": (
            *("compression", "compress_above", "max_message_size", "request_timeout", "timeout", "heartbeat_interval", "check_after"),
            *("check_crc", "decompress_limit"),
        ),
        "reader": (*_READING, "columns", "group"),
        "consumer": (*_READING, *_MEMBER, "columns", "auto_commit", "auto_commit_interval"),
        "queue": (*_READING, *_MEMBER, "retry_level", "max_attempts", "max_unacked", "ack_group_time"),
    }

    header: Literal["json", "binary"] = "json"
    access_key: str | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    route_age: float = 30.0
    request_timeout: float = 10.0
    max_frame: int = 64 << 20

    group: str | None = None
    compression: Literal["none", "zlib", "lz4", "zstd"] = "none"
    compress_above: int = 4096
    max_message_size: int = 4 << 20
    delivery_timeout: float = 60.0
    linger: float = 0.0
    batch_size: int = 256 << 10
    max_in_flight: int = 1

    check_after: int | None = None

    pull_ahead: int = 8
    pull_suspend: float = 6.0
    batch_bytes: int = 1 << 20
    min_bytes: int = 1
    reset: Literal["raise", "earliest", "latest", "nearest"] = "raise"
    check_crc: bool = True
    on_corrupt: Literal["raise", "skip"] = "raise"
    columns: tuple[str, ...] | None = None
    decompress_limit: int = 64 << 20
    recovery_timeout: float = 60.0

    auto_commit: bool = False
    auto_commit_interval: float = 5.0
    rebalance_interval: float = 20.0
    heartbeat_interval: float = 30.0
    max_poll_interval: float = 300.0

    retry_level: int = 0
    max_attempts: int = 16
    max_unacked: int = 1000
    ack_group_time: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.access_key is None and self.user is not None:
            object.__setattr__(self, "access_key", self.user)
            object.__setattr__(self, "secret_key", self.secret_key or self.password)
        if (self.access_key is None) != (self.secret_key is None):
            raise OptionError("access_key and secret_key belong together")
        for name in ("pull_ahead", "batch_bytes", "min_bytes", "batch_size", "max_unacked", "max_message_size", "max_in_flight"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1")
        for name in ("linger", "auto_commit_interval", "ack_group_time"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be negative")
        if self.check_after is not None and self.check_after < 1:
            raise OptionError("check_after must be at least 1")
        if not 1 <= self.pull_suspend <= 60:
            raise OptionError("pull_suspend is between 1 and 60 seconds")
