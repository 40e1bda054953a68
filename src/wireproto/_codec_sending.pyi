"""Types of what the codec core has for flow.queue and flow.sender; it stands in `_codec`, as everything compiled."""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, final

from wireproto._codec import Appender, OutBatch, Slice
from wireproto._net import Call, Connection

class QueueCore:
    """The base of flow.queue.PartitionQueue."""

    open: Any
    error: Any
    gate: Any
    mark: Any
    beside: dict[Hashable, Any]
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

class WireCore:
    """A base of flow.verdicts.Wire."""

    def settled(self, batches: list[Any]) -> None:
        """What they hold is free."""

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
    _linger: float
    _serial: int
    def current(self, key: Hashable) -> Any:
        """The open batch of a key."""
    def opened(self, batch: Any) -> None:
        """It has its first record: see that its linger ends, and its time."""
    def hurry(self, batch: Any) -> None:
        """Somebody waits for it."""
    def set_off(self, batch: Any) -> None:
        """It does not wait for more records."""
    def stored(self, batch: Any, base: Any) -> None:
        """It is stored."""

class KafkaProduceForm:
    """A Produce of one batch, encoded but for token and records."""

    @property
    def link(self) -> Connection: ...
    @property
    def topics(self) -> Mapping[str, Any]: ...
    @property
    def names(self) -> dict[Any, str]: ...
    @property
    def version(self) -> int: ...
    def __init__(
        self,
        link: Connection,
        topics: Mapping[str, Any],
        names: dict[Any, str],
        api: int,
        version: int,
        front: bytes,
        before: bytes,
        after: bytes,
    ) -> None: ...
    def request(self, token: int, records: Any) -> list[Any]:
        """The buffers of a request, without the frame's length."""
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

@final
class Sent:
    """Context of a call under way: which reply to expect in which version, and the caller's own matter."""

    @property
    def reply(self) -> Any: ...
    @property
    def version(self) -> int: ...
    @property
    def matter(self) -> Any: ...
    def __init__(self, reply: Any, version: int, matter: Any) -> None: ...

@final
class KafkaSequence:
    """What is kept of a partition's numbers."""

    identity: Any
    next: int
    proven: bool
    starting_over: bool
    def __init__(self, identity: Any) -> None: ...

class KafkaNumbers:
    """The base of kafka.identity.ProducerState."""

    identity: Any
    def __init__(self, identity: Any, in_flight: int) -> None: ...
    def window(self, queue: QueueCore) -> int: ...
    def admit(self, queue: QueueCore, batch: Any, now: float) -> bool: ...
    def acked(self, queue: QueueCore, batch: Any) -> None: ...

class KafkaSendCore(WireCore):
    """The base of kafka.sending.KafkaSender."""

    core: Any
    _metadata: Any
    _owing: Any
    _box: Any
    _reply: Any
    _loop: Any
    _make_builder: Any
    _nobody: Any
    _event: Any
    _prepared: dict[Any, Any]
    _owed: dict[Any, Any]
    _owners: dict[str, Any]
    _watching: bool
    _answered: bool
    _looked_at: float
    _patience: float
    _max_age: float
    _unsent_limit: int
    def target(self, key: Any) -> Connection | None:
        """Where a partition's batches go."""
    def crowded(self, link: Any) -> bool:
        """Whether what is sent now would wait there."""
    def transmit(self, link: Any, batches: list[Any]) -> None:
        """Send a request with these batches."""
    def _replied_well(self, call: Call) -> bool:
        """Take in an answer that all batches are stored."""
    def _make_batch(self, queue: QueueCore, serial: int, now: float) -> OutBatch:
        """An open batch."""

class BudgetCore:
    """The base of flow.budget.Budget."""

    limit: int
    used: int
    _lock: Any
    _line: Any
    def __init__(self, limit: int, lock: Any, line: Any) -> None: ...
    @property
    def waiting(self) -> bool:
        """Whether somebody is in line."""

class AccountCore:
    """The base of flow.budget.Account."""

    held: int
    @property
    def _budget(self) -> Any: ...
    def __init__(self, budget: BudgetCore) -> None: ...
    def give(self, size: int) -> None:
        """Give bytes back; who is first in line gets them."""

class ProducerCore:
    """The base of flow.producer.BatchProducer."""

    _sender: Any
    _appender: Appender
    _account: Any
    _lock: Any
    _offsets: type | None
    _keys: dict[int, Any] | None
    _closed: bool
    def _begin(self, number: int) -> OutBatch:
        """The open batch of a partition."""
    def settled(self, size: int) -> None:
        """A batch that held so many bytes has its outcome."""
    def position_in(self, batch: Any, index: int, timeout: float | None) -> Any:
        """The place of a batch's record."""
    def _known_place(self, batch: Any, index: int) -> Any:
        """The place of a record whose outcome is known."""
