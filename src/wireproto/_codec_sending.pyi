"""Types of what the codec core has for flow.queue and flow.sender; it stands in `_codec`, as everything compiled."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, final

from wireproto._codec import Appender, OutBatch, RocketBatchBuilder, RocketIds, RocketSendHeader, Slice
from wireproto._net import Call, Connection
from wireproto.errors import WireprotoError
from wireproto.position import Position
from wireproto.records import Batch, Headers

@final
class BriefLock:
    """A lock for a few lines, which are not entered twice by one thread: a signal handler that comes into them gets UsageError.

    Must not be held while its holder waits for anything. Not to be kept over a fork.

    Args:
        again: one thread may enter twice, for the lines may be left anywhere.
    """

    def __init__(self, again: bool = False) -> None: ...
    def __enter__(self) -> BriefLock: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

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
    def sequencer(self) -> Any: ...
    @property
    def ready(self) -> deque[Any]: ...
    @property
    def in_flight(self) -> deque[Any]: ...
    def __init__(self, key: Hashable, sequencer: Any, ready: deque[Any], in_flight: deque[Any], gate: Any) -> None: ...
    def acked(self, batch: Any) -> None:
        """Settle a batch that is stored."""
    def set_out(self) -> Any:
        """Count the first ready batch as in flight."""
    def seal_open(self) -> bool:
        """No more records into the open batch, which is ready then; whether there are any in it."""

class SequencerCore:
    """A base of flow.queue.Sequencer."""

class UnnumberedCore(SequencerCore):
    """The base of flow.queue.UnnumberedSequencer."""

    def __init__(self, window: int = 1) -> None: ...
    def window(self, queue: Any) -> int: ...
    def admit(self, queue: Any, batch: Any, now: float) -> bool: ...
    def acked(self, queue: Any, batch: Any) -> None: ...

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
        """Release the memory of batches."""

class QuickWireCore(WireCore):
    """A base of a Wire that sends by itself in the core."""

    def target(self, key: Any) -> Connection | None:
        """Where a queue's batches go."""
    def congested(self, link: Any) -> bool:
        """Whether what is sent now would wait there."""
    def transmit(self, link: Any, batches: list[Any]) -> None:
        """Send a request with these batches."""

F = TypeVar("F", bound=Callable[..., Any])

def unbroken(method: F) -> F:
    """After what a signal handler breaks off in it the I/O thread mends."""

class SenderCore:
    """The base of flow.sender.Sender."""

    _wire: Any
    _make_batch: Any
    _clock: Any
    _lock: BriefLock
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
    _arm: Any
    @property
    def broken(self) -> list[tuple[list[Any], list[tuple[Any, int]]]]: ...
    def current(self, key: Hashable) -> Any:
        """Return the open batch of a key."""
    def opened(self, batch: Any) -> None:
        """Arm the timers of a batch that got its first record: its linger and its delivery timeout."""
    def hurry(self, batch: Any) -> None:
        """Somebody waits for it."""
    def set_off(self, batch: Any) -> None:
        """Send a batch without waiting for more records."""
    def stored(self, batch: Any, base: Any) -> None:
        """Settle a batch that is stored."""
    def send_request(self, link: Any, batches: list[Any]) -> None:
        """Have the wire send a request."""
    def _wake_at(self, when: float) -> None:
        """`tick` is to be called then, or sooner."""

class ProduceTemplateCore:
    """A Produce of one batch, encoded but for token and records."""

    @property
    def link(self) -> Connection: ...
    @property
    def topics(self) -> Mapping[str, Any]: ...
    @property
    def key(self) -> tuple[str, int]: ...
    @property
    def names(self) -> dict[Any, str]: ...
    @property
    def version(self) -> int: ...
    def __init__(
        self,
        link: Connection,
        topics: Mapping[str, Any],
        key: tuple[str, int],
        names: dict[Any, str],
        api: int,
        version: int,
        front: bytes,
        before: bytes,
        after: bytes,
    ) -> None: ...
    def request(self, token: int, records: Any) -> list[Any]:
        """Return the buffers of a request, without the frame's length."""
    def base(self, frame: bytes) -> int:
        """Return the offset of a stored batch's first record; -1: the response is not the plain one."""

class FetchTemplateBytes:
    """A Fetch of one partition, encoded but for token, offset and the epoch before it."""

    @property
    def version(self) -> int: ...
    def __init__(self, api: int, version: int, front: bytes, back: bytes, before: bytes) -> None: ...
    def request(self, token: int, offset: int, epoch: int) -> bytes:
        """Return the request, without the frame's length."""
    def read(self, frame: bytes) -> tuple[int, int, Slice, int, int] | None:
        """(high watermark, last stable offset, records, the offset behind their last whole batch, its leader epoch) of a plain answer with
        records; None: it is another one."""

@final
class Sent:
    """Context of a call under way: which reply to expect in which version, and the caller's own data."""

    @property
    def reply(self) -> Any: ...
    @property
    def version(self) -> int: ...
    @property
    def caller_data(self) -> Any: ...
    def __init__(self, reply: Any, version: int, caller_data: Any) -> None: ...

@final
class KafkaSequence:
    """What is kept of a partition's numbers."""

    identity: Any
    next: int
    confirmed: bool
    starting_over: bool
    def __init__(self, identity: Any) -> None: ...

class KafkaNumbers(SequencerCore):
    """The base of kafka.identity.ProducerState."""

    identity: Any
    at_once: bool
    strict: bool
    def __init__(self, identity: Any, in_flight: int) -> None: ...
    def window(self, queue: QueueCore) -> int: ...
    def admit(self, queue: QueueCore, batch: Any, now: float) -> bool: ...
    def acked(self, queue: QueueCore, batch: Any) -> None: ...

class KafkaSendCore(QuickWireCore):
    """The base of kafka.sending.KafkaSender."""

    core: Any
    _metadata: Any
    _unresponsive: Any
    _box: Any
    _reply: Any
    _loop: Any
    _make_builder: Any
    _no_identity: Any
    _event: Any
    _transactional: bool
    started: bool
    _template: dict[Any, Any]
    _unanswered: dict[Any, Any]
    _owners: dict[str, Any]
    _watching: bool
    _answered: bool
    _looked_at: float
    _reply_timeout: float
    _max_age: float
    _unsent_limit: int
    def _replied_well(self, call: Call) -> bool:
        """Take in an answer that all batches are stored."""
    def _make_batch(self, queue: QueueCore, serial: int, now: float) -> OutBatch:
        """Make an open batch."""

class BudgetCore:
    """The base of flow.budget.Budget."""

    limit: int
    used: int
    _lock: BriefLock
    _line: Any
    def __init__(self, limit: int, lock: BriefLock, line: Any) -> None: ...
    @property
    def waiting(self) -> bool:
        """Return whether a producer waits in line."""

class AccountCore:
    """The base of flow.budget.Account."""

    held: int
    @property
    def _budget(self) -> Any: ...
    def __init__(self, budget: BudgetCore) -> None: ...
    _refused: Any
    def try_take(self, size: int) -> bool:
        """Take bytes if they fit now and no producer waits in line."""
    def give(self, size: int) -> None:
        """Give bytes back; the first producer in line gets them."""

class ProducerCore:
    """The base of flow.producer.BatchProducer."""

    _sender: Any
    _appender: Appender
    _account: Any
    _lock: BriefLock
    _offsets: type[Position] | None
    _keys: dict[int, Any] | None
    _fixed: dict[Any, tuple[Any, ...]]
    _others: tuple[str, ...]
    _closed: bool
    def _begin(self, number: int) -> OutBatch:
        """Return the open batch of a partition."""
    def settled(self, size: int) -> None:
        """Note that a batch of that many bytes has its outcome."""
    def position_in(self, batch: Any, index: int, timeout: float | None) -> Any:
        """Return the position of a batch's record."""
    def _known_place(self, batch: Any, index: int) -> Any:
        """Return the position of a record whose outcome is known."""

class RocketOut(OutBatch):
    """The base of rocketmq.outgoing.RocketBatch."""

    anywhere: bool
    stamped: bool
    body: bytes | None
    link: Any
    single: tuple[bytes, bytes] | None
    rows: RocketBatchBuilder | None
    born: int
    sys_flag: int
    warning: int
    since: float
    def __init__(self, queue: Any, serial: int, created: float, outcome: Any, owner: Any) -> None: ...
    def join(self, body: bytes, properties: bytes, size: int, anywhere: bool, timestamp: int | None, now_ms: int) -> int: ...
    def batch(self) -> RocketBatchBuilder: ...
    def grown(self, size: int, anywhere: bool) -> int: ...
    def content(self) -> tuple[int, bytes, bytes]: ...
    def forget(self) -> None: ...

class RocketSendCore(QuickWireCore):
    """The base of rocketmq.sending.RocketSender."""

    core: Any
    routing: Any
    _box: Any
    _loop: Any
    _event: Any
    _producer: Any
    _batch_type: Any
    _links: dict[int, Connection]
    _problems: dict[int, Any]
    _header: RocketSendHeader | None
    _lifetime: float
    _reply_timeout: float
    _unsent_limit: int
    def _make_batch(self, queue: QueueCore, serial: int, now: float) -> RocketOut:
        """Make an open batch."""
    def _replied_well(self, call: Call) -> bool:
        """Take in a plain answer that the batch is stored."""

class RocketProducerCore(ProducerCore):
    """The base of rocketmq.producer.RocketProducer."""

    _needs_keys: bool | None
    _receipt: Any
    _check: Any
    _routing: Any
    _sending: Any
    _budget: Any
    _ids: RocketIds
    _ids_end: int
    _largest: int
    _batch_size: int
    _lingers: bool
    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Any:
        """See `wireproto.roles.Producer.send`."""
    def _put_in(
        self,
        body: bytes,
        key: bytes | None,
        properties: bytes,
        timestamp: int | None,
        now: int,
        sys_flag: int,
        partition: int | None,
        size: int,
    ) -> Any:
        """Take a record whose room is taken; its receipt."""
    def _batch(self, number: int, timestamp: int | None, now: int, size: int, limit: int, alone: bool) -> Any:
        """Return the open batch of a queue that takes a record, a new one if need be. Under the lock."""
    def _set_off(self, batch: Any, index: int) -> None:
        """Send what may be sent, after a record was added."""

class Chunk:
    """What an answer brought for one cursor: records from `start` up to, not including, `next`, or the error to raise in their place."""

    cursor: Any
    generation: int
    start: int
    next: int
    records: Any
    size: int
    error: WireprotoError | None
    def __init__(
        self,
        cursor: Any,
        generation: int,
        start: int,
        following: int,
        records: Any = None,
        size: int = 0,
        error: WireprotoError | None = None,
    ) -> None: ...

class KafkaChunk(Chunk):
    """One of a partition of Kafka, with the aborted transactions in it and the epoch of its last batch."""

    aborted: tuple[tuple[int, int], ...]
    epoch: int
    def __init__(
        self,
        cursor: Any,
        generation: int,
        start: int,
        following: int,
        records: Any = None,
        size: int = 0,
        error: WireprotoError | None = None,
        aborted: tuple[tuple[int, int], ...] = (),
        epoch: int = -1,
    ) -> None: ...
    def rest(self, start: int) -> KafkaChunk:
        """Return the part of it that begins there, as a chunk of its own."""

class FetchTemplateCore(FetchTemplateBytes):
    """The base of kafka.fetch_template.FetchTemplate."""

    link: Any
    topics: Any
    asked: Any
    ticket: Any
    cursor: Any
    call: Call | None
    sent: Any
    until: float
    def chunk(self, call: Call, committed: bool) -> KafkaChunk | None:
        """Return the chunk of a plain response; None: it is not a plain one."""

class KafkaFetcherCore:
    """The base of kafka.fetcher.Fetcher."""

    plan: Any
    asking: Any
    _cluster: Any
    _metadata: Any
    _box: Any
    _looking: Any
    _columns: Any
    _offsets: type[Position]
    _batches: type[Batch]
    _max_wait: float
    _request_timeout: float
    _silent: float
    _template: Any
    _calls: dict[Any, Call]
    _overdue: dict[Any, float]
    _follow_at: float
    _failing_since: float
    _committed: bool
    _check_crc: bool
    _skip: bool
    _facts: bool
    _nearest: bool
    def poll(self, deadline: float) -> Batch | None:
        """Return the next batch that has records; None when none came until `deadline`, or the plan is done."""
    def _only_waits(self) -> float:
        """Until when there is nothing to do but wait for one partition's Fetch; 0.0: there is more."""
    def _next_alone(self, call: Any) -> Batch | None:
        """Return the chunk of a plain response; None: the general code has to take it."""
    def _decode(self, chunk: KafkaChunk) -> Batch:
        """Return the chunk's records from the cursor on."""
