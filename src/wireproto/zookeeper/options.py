"""Options of a ZooKeeper client. Must not: know a connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import OptionError
from ..net.options import CommonOptions


@dataclass(frozen=True, kw_only=True)
class ZooKeeperOptions(CommonOptions):
    """See `CommonOptions`; `user` and `password` are given to the servers as a ``digest`` identity.

    Attributes:
        session_timeout: seconds without a sign of this client after which the servers end its session; they clamp it to 2 … 20 of
            their ticks.
        read_only: be content with a server that has no quorum; writes raise NotReadOnly there.
        session: id and password of a session to go on with (``tree.session``).
        shuffle: try the servers in random order, so that clients spread over them.
        max_frame: bytes of the largest request that the servers take (their ``jute.maxbuffer``).
    """

    session_timeout: float = 10.0
    read_only: bool = False
    session: Any = field(default=None, metadata={"text": False})
    shuffle: bool = True
    max_frame: int = 0xFFFFF

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.session_timeout < 2_000_000:
            raise OptionError("session_timeout must be above 0 seconds")
        if self.max_frame < 1024:
            raise OptionError("max_frame must be at least 1024 bytes")
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
