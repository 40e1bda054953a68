"""Types of what the codec core has for flow.queue and flow.sender; it stands in `_codec`, as everything compiled."""

from collections import deque
from collections.abc import Hashable
from typing import Any, final

from wireproto._codec import Slice

class QueueCore:
    """The base of flow.queue.PartitionQueue."""

    open: Any
    error: Any
    gate: Any
    mark: Any
    held_until: float
    failures: int
    sent: int
    @property
    def key(self) -> Hashable: ...
    @property
    def stamp(self) -> Any: ...
    @property
    def ready(self) -> deque[Any]: ...
    @property
    def in_flight(self) -> deque[Any]: ...
    def __init__(self, key: Hashable, stamp: Any, ready: deque[Any], in_flight: deque[Any], gate: Any) -> None: ...
    def launch(self, now: float) -> bool:
        """Whether the open batch leaves at once."""
    def acked(self, batch: Any) -> None:
        """It is stored."""

@final
class Outlet:
    """A link's turn."""

    again: bool
    @property
    def link(self) -> Any: ...
    def __init__(self, link: Any) -> None: ...
    def try_take(self) -> bool: ...
    def release(self) -> None: ...

class SenderCore:
    """The base of flow.sender.Sender."""

    _wire: Any
    _make_batch: Any
    _clock: Any
    _lock: Any
    _queues: dict[Any, Any]
    _outlets: dict[int, Outlet]
    _due: dict[Any, Any]
    _unlinked: dict[Any, Any]
    _lingering: Any
    _alive: Any
    _armed: float
    _lifetime: float
    _serial: int
    def current(self, key: Hashable) -> Any:
        """The open batch of a key."""
    def set_off(self, batch: Any) -> None:
        """It does not wait for more records."""
    def stored(self, batch: Any, base: Any) -> None:
        """It is stored."""

class KafkaProduceForm:
    """A Produce of one batch, encoded but for token and records."""

    @property
    def version(self) -> int: ...
    def __init__(self, api: int, version: int, front: bytes, before: bytes, after: bytes) -> None: ...
    def head(self, token: int, size: int) -> bytes: ...
    def base(self, frame: bytes) -> int:
        """The offset of a stored batch's first record; -1: the answer is another one."""

class KafkaFetchForm:
    """A Fetch of one partition, encoded but for token, offset and the epoch before it."""

    @property
    def version(self) -> int: ...
    def __init__(self, api: int, version: int, front: bytes, back: bytes, before: bytes) -> None: ...
    def request(self, token: int, offset: int, epoch: int) -> bytes:
        """The request, without the frame's length."""
    def read(self, frame: bytes) -> tuple[int, int, Slice, int, int] | None:
        """(high watermark, last stable offset, records, the offset behind their last whole batch, its leader epoch) of a plain answer with
        records; None: it is another one."""
