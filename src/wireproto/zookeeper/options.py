"""Defines the options of a ZooKeeper client and its roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..errors import OptionError
from ..net.options import CommonOptions
from .acl import NAMED
from .messages import ACL
from .peer_names import NAMES


@dataclass(frozen=True, kw_only=True)
class ZooKeeperOptions(CommonOptions):
    """Options of a client; see `CommonOptions`. `user` and `password` are given to the servers as a ``digest`` identity.

    Attributes:
        session_timeout: seconds without a sign of this client after which the servers end its session; they clamp it to 2 … 20 of
            their ticks.
        read_only: accept a server that has no quorum; writes raise NotReadOnly there.
        session: id and password of a session to resume (``tree.session``).
        shuffle: try the servers in random order, so that clients spread over them.
        acl: access list of what is created without one of its own, queues' nodes included: ``open`` (anyone may do anything),
            ``creator`` (this client's identities alone), or a sequence of `ACL`.
        max_frame: bytes of the largest request that the servers take (their ``jute.maxbuffer``).

        priority: of a producer's messages: 0 … 999, lower is taken first.
        delivery_timeout: seconds that `Receipt.position` waits by default.
        repeat: send again what a lost connection left unanswered, so that it may be in the queue twice.
    """

    PEER_NAMES: ClassVar[Mapping[str, str]] = NAMES
    ROLES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "producer": ("priority", "delivery_timeout", "repeat", "acl", "timeout"),
        "reader": ("timeout",),
        "queue": ("acl",),
    }

    session_timeout: float = 10.0
    read_only: bool = False
    session: Any = field(default=None, metadata={"text": False})
    shuffle: bool = True
    acl: Any = "open"
    max_frame: int = 0xFFFFF

    priority: int = 100
    delivery_timeout: float = 120.0
    repeat: bool = True

    @property
    def access(self) -> tuple[ACL, ...]:
        """Return the default access list."""
        return NAMED[self.acl] if isinstance(self.acl, str) else tuple(self.acl)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.session_timeout < 2_000_000:
            raise OptionError("session_timeout must be above 0 seconds")
        if not self.delivery_timeout > 0:
            raise OptionError("delivery_timeout must be above 0")
        if self.max_frame < 1024:
            raise OptionError("max_frame must be at least 1024 bytes")
        if isinstance(self.acl, str) and self.acl not in NAMED:
            raise OptionError(f"acl is one of {', '.join(NAMED)}, or a sequence of access list entries, not {self.acl!r}")
        if not isinstance(self.acl, str) and not (self.acl and all(isinstance(item, ACL) for item in self.acl)):
            raise OptionError("acl is a sequence of access list entries, and not empty")
        if self.session is not None:
            try:
                session_id, password = self.session
                fits = -(1 << 63) <= session_id < 1 << 63 and isinstance(password, bytes)
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise OptionError("session is a pair of a session's id (int) and password (bytes)")
        if (self.user is None) != (self.password is None):
            raise OptionError("user and password go together")
