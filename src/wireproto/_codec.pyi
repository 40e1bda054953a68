"""Types of the compiled codec core."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from typing import Any, ClassVar, Final, Literal, Self, final, overload

from typing_extensions import Buffer

from wireproto._codec_sending import AccountCore as AccountCore
from wireproto._codec_sending import BriefLock as BriefLock
from wireproto._codec_sending import BudgetCore as BudgetCore
from wireproto._codec_sending import Chunk as Chunk
from wireproto._codec_sending import FetchTemplateBytes as FetchTemplateBytes
from wireproto._codec_sending import FetchTemplateCore as FetchTemplateCore
from wireproto._codec_sending import KafkaChunk as KafkaChunk
from wireproto._codec_sending import KafkaFetcherCore as KafkaFetcherCore
from wireproto._codec_sending import KafkaNumbers as KafkaNumbers
from wireproto._codec_sending import KafkaSendCore as KafkaSendCore
from wireproto._codec_sending import KafkaSequence as KafkaSequence
from wireproto._codec_sending import Outlet as Outlet
from wireproto._codec_sending import ProducerCore as ProducerCore
from wireproto._codec_sending import ProduceTemplateCore as ProduceTemplateCore
from wireproto._codec_sending import QueueCore as QueueCore
from wireproto._codec_sending import QuickWireCore as QuickWireCore
from wireproto._codec_sending import RocketOut as RocketOut
from wireproto._codec_sending import RocketProducerCore as RocketProducerCore
from wireproto._codec_sending import RocketSendCore as RocketSendCore
from wireproto._codec_sending import SenderCore as SenderCore
from wireproto._codec_sending import Sent as Sent
from wireproto._codec_sending import SequencerCore as SequencerCore
from wireproto._codec_sending import UnnumberedCore as UnnumberedCore
from wireproto._codec_sending import WireCore as WireCore
from wireproto._codec_sending import unbroken as unbroken
from wireproto.errors import ProtocolError
from wireproto.message import Field
from wireproto.position import Position
from wireproto.records import Headers

# checksum
def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...
def lz4_frame(data: Buffer, over_magic: bool = False) -> bytes: ...
def lz4_block(data: Buffer) -> bytes: ...

# room
@final
class ScratchBuffer:
    def __init__(self, size: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def filled(self, size: int) -> Self: ...

# framer
@final
class Framer:
    def __init__(self, cap: int) -> None: ...
    @property
    def cap(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def feed(self, data: Buffer) -> None: ...
    def next(self) -> bytes | None: ...
    def __iter__(self) -> Framer: ...
    def __next__(self) -> bytes: ...

# slice
@final
class Slice:
    def __init__(self, data: Buffer, start: int = 0, stop: int | None = None) -> None: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    def tobytes(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @overload
    def __getitem__(self, key: slice, /) -> Slice: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    def __hash__(self) -> int: ...

# plan_encode
@overload
def encode_frame(pairs: Iterable[tuple[Message | bytes, int]], *, gather: Literal[False] = False) -> bytes: ...
@overload
def encode_frame(pairs: Iterable[tuple[Message | bytes, int]], *, gather: Literal[True]) -> list[Buffer]: ...

# message_base
class Message:
    _plans: ClassVar[str]
    NAME: ClassVar[str]
    FIELDS: ClassVar[tuple[Field, ...]]
    def __init__(self, **fields: Any) -> None: ...
    @classmethod
    def decode(cls, frame: Buffer, version: int = 0, start: int = 0) -> Self: ...
    @classmethod
    def decode_from(cls, frame: Buffer, version: int = 0, start: int = 0) -> tuple[Self, int]: ...
    def encode(self, version: int = 0) -> bytes: ...
    def encode_parts(self, version: int = 0) -> list[Buffer]: ...
    def replace(self, **fields: Any) -> Self: ...
    @property
    def frozen(self) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

def message_spec(cls: type[Message]) -> tuple[str, int, int, int, tuple[tuple[Any, ...], ...]]: ...

# zookeeper_reply
def reply_error(frame: bytes) -> int:
    """Return the error code in a ZooKeeper reply's header; 0: none. Raises Truncated."""

class ReplyFields:
    """Reads chosen fields of a ZooKeeper reply.

    Args:
        cls: class of the message behind the header.
        names: its fields to return: one is returned as it is, several as a tuple.
    """

    cls: type[Message]
    names: tuple[str, ...]
    def __init__(self, cls: type[Message], *names: str) -> None: ...
    def read(self, frame: bytes) -> Any:
        """Decode the fields. Raises Truncated, Malformed."""

# ext_message
class ExtMessage(Message):
    CODE: ClassVar[int]
    def to_ext(self) -> dict[str, str]: ...
    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self: ...

# rocketmq_header
@final
class RemotingCommand:
    code: int
    opaque: int
    flag: int
    version: int
    language: int
    serializer: int
    remark: str | None
    ext: dict[str, str]
    body: Buffer
    def __init__(
        self,
        code: int,
        opaque: int = 0,
        *,
        flag: int = 0,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        body: Buffer = b"",
        version: int = 409,
        language: int = 3,
        serializer: int = 0,
    ) -> None: ...
    @property
    def is_reply(self) -> bool: ...
    @property
    def is_one_way(self) -> bool: ...
    def encode(self) -> list[Buffer]: ...
    @staticmethod
    def decode(frame: Buffer) -> RemotingCommand: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

# --- rocketmq_pull.pyx ---

@final
class RepeatedCommand:
    """A RocketMQ command that is sent again and again, with other numbers in two of its fields.

    Args:
        code, ext, serializer: as RemotingCommand has them.
        first, second: names of the fields that change; what `ext` has for them is left out.
    """
    def __init__(self, code: int, ext: dict[str, str], first: str, second: str, serializer: int = 0) -> None: ...
    def encode(self, opaque: int, first: int, second: int) -> bytes:
        """Return the frame, without its length.

        Raises:
            ValueUnsupported: the header is too long.
        """

def rocket_pull_reply(frame: bytes) -> tuple[int, int, int, int, Slice] | None:
    """Code (0, 19, 20, 21), next offset, first offset and end of the queue, and the body of a pull's reply (without its length).

    None: any other reply, a broken one, or one written in an unusual way; see RemotingCommand.decode.
    """

def rocket_send_reply(frame: bytes | None) -> int:
    """Return the queue offset in a plain reply (without its length) to a send, whose code is 0. Negative: another reply or none."""

# --- columns.pyx, record.pyx ---

RowHeaders = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]] | None
PositionParts = int | tuple[int, int, int] | None

# --- pool.pyx ---

def memory_pool(limit: int | None = None) -> dict[str, int]: ...

@final
class Columns:
    facts: Final[Any]
    skipped: Final[tuple[ProtocolError, ...]]
    home: Final[tuple[str, int] | None]
    @property
    def nbytes(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    def column(self, name: str) -> list[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: slice) -> Columns: ...
    def values(self) -> list[bytes | None]: ...
    def keys(self) -> list[bytes | None]: ...
    def timestamps(self) -> list[int | None]: ...
    def headers(self) -> list[tuple[tuple[str, bytes | None], ...]]: ...
    def positions(self) -> list[Any]: ...
    def partitions(self) -> list[int] | None: ...
    def records(self, topic: str, partition: int) -> Iterator[Record]: ...
    def record(self, index: int, topic: str, partition: int) -> Record: ...
    @staticmethod
    def from_rows(
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[RowHeaders] | None = None,
        timestamps: Sequence[int | None] | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Columns: ...
    @staticmethod
    def from_arrow(source: object) -> Columns: ...
    @staticmethod
    def concat(parts: Iterable[Columns]) -> Columns: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

@final
class ColumnsBuilder:
    def __init__(self, kind: str = "none") -> None: ...
    def __len__(self) -> int: ...
    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: RowHeaders = None,
        timestamp: int | None = None,
        position: PositionParts = None,
        partition: int | None = None,
    ) -> None: ...
    def finish(self) -> Columns: ...

@final
class Record:
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def position(self) -> Position: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

# --- kafka_records.pyx ---

def decode_kafka(
    records: Buffer | None,
    *,
    topic: str,
    partition: int,
    fetch_offset: int,
    aborted: Iterable[Any] | None = (),
    isolation_committed: bool = False,
    check_crc: bool = True,
    stop: int | None = None,
    on_corrupt: str = "raise",
    limit: int = ...,
    facts: bool = False,
    columns: Iterable[str] | None = None,
) -> tuple[Columns, int]: ...
def kafka_section_end(records: Buffer | None) -> tuple[int, int]: ...
def kafka_batches(records: Buffer | None) -> list[dict[str, Any]]: ...

# --- kafka_encode.pyx ---

class RecordBuilder:
    """What an OutBatch fills."""

@final
class KafkaBatchBuilder(RecordBuilder):
    def __init__(self, *, magic: int = 2, compression: str = "none", limit: int = 16384, level: int | None = None) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def append(self, value: Buffer | None, key: Buffer | None = None, headers: RowHeaders = None, timestamp: int | None = None) -> bool: ...
    def append_lists(
        self,
        values: list[Buffer | None],
        keys: list[Buffer | None] | None = None,
        *,
        start: int = 0,
        timestamps: list[int | None] | None = None,
        now: int = -1,
    ) -> int: ...
    def append_columns(self, columns: Columns, start: int, stop: int, now: int) -> int: ...
    def finish(self, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1, *, transactional: bool = False) -> bytes: ...
    def seal(self, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1, *, transactional: bool = False) -> Slice: ...

class ReadBudget:
    """A count of bytes with a bound; one record larger than it is let in alone."""

    @property
    def limit(self) -> int: ...
    @property
    def held(self) -> int: ...
    def bound(self, limit: int) -> None: ...
    def try_take(self, size: int) -> bool: ...
    def put_back(self, size: int) -> None: ...
    def add(self, size: int) -> None: ...

@final
class KafkaRows:
    """Numbers of the rows of one partition, in their order."""

    def __len__(self) -> int: ...

def kafka_shares(columns: Columns, partitions: int, chosen: Sequence[int] | None = None) -> list[tuple[int, KafkaRows | None]]: ...

class OutBatch:
    """A batch on its way out; takes records until it is sealed."""

    queue: Any
    outcome: Any
    owner: Any
    waiters: list[SendFuture] | None
    identity: Any
    sequence: int
    serial: int
    number: int
    attempts: int
    attempts_sent: int
    created: float
    doubtful: bool
    over: bool
    @property
    def key(self) -> Any: ...
    @property
    def builder(self) -> Any: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def sealed(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    @property
    def done(self) -> bool: ...
    def __init__(
        self, queue: Any, serial: int, created: float, builder: RecordBuilder, outcome: Any, owner: Any, identity: Any
    ) -> None: ...
    def seal(self) -> None: ...
    def free(self) -> int: ...
    def grow(self, count: int, size: int) -> int:
        """Set the index of the last record, after records were added past the builder."""
    def position(self, index: int, timeout: float | None) -> Any: ...
    def describe(self, index: int) -> str: ...
    def add(self, value: Buffer | None, key: Buffer | None, headers: bytes | None, timestamp: int, size: int) -> int:
        """Add a record and return its index; -1: it does not fit."""
    def add_rows(self, columns: Columns, rows: KafkaRows | None, start: int, stop: int, now: int) -> tuple[int, int, int]:
        """Rows taken, the bytes that they hold, index of the last one."""

@final
class Changes:
    """A count that goes up whenever something is learnt."""

    @property
    def count(self) -> int: ...
    def note(self) -> None: ...

class KeyRouter:
    """Chooses partitions."""

    def __init__(self, hashing: str = "murmur2", share: int = 0) -> None: ...
    @property
    def partitions(self) -> int: ...
    @property
    def sticky(self) -> int: ...
    def know(self, partitions: int, keep_sticky: bool) -> None: ...
    def stick(self, partition: int, room: int) -> None: ...
    def sticky_for(self, size: int) -> int: ...
    def of(self, key: Buffer | None) -> int: ...
    def in_turn(self, wanted: int) -> tuple[int, int]: ...

def key_hash(hashing: str, key: Buffer) -> int: ...

class Appender:
    """A producer's way in: `send` in one call of the core. What that cannot do, `slow` does."""

    def __init__(
        self,
        router: KeyRouter,
        account: Any,
        slow: Callable[..., Receipt],
        usable: Callable[[], object],
        changes: Changes,
        learn: Callable[[], object],
        *,
        largest: int,
        step: int,
        direct: bool,
        headers: Callable[[Any], bytes | None] | None = None,
        dated: bool = True,
        begin: Callable[[int], OutBatch] | None = None,
        begun: Callable[[OutBatch], None] | None = None,
    ) -> None: ...
    @property
    def credit(self) -> int: ...
    def await_by(self, intake: Any) -> Callable[..., Any]: ...
    def hold(self, on: bool) -> None: ...
    def lend(self, size: int) -> None: ...
    def receipt(self, batch: OutBatch, index: int) -> Receipt: ...
    def close(self) -> None: ...
    def opened(self, partition: int, batch: OutBatch) -> None: ...
    def recall(self) -> int: ...
    def charge(self, size: int) -> bool: ...
    def send(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Receipt: ...

def kafka_earliest(columns: Columns) -> int | None: ...
def kafka_partition(key: Buffer, partitions: int) -> int: ...

# --- times.pyx ---

def timestamp_ms(timestamp: int) -> int:
    """Return a timestamp as it is sent. Raises ValueUnsupported for what is no int64 of milliseconds since 1970."""

# --- pulsar_batch.pyx ---

@final
class PulsarEntry:
    ledger: Final[int]
    entry: Final[int]
    redelivery_count: Final[int]
    permits: Final[int]
    batch_size: Final[int]
    publish_time: Final[int]
    broker_timestamp: Final[int]
    broker_index: Final[int]
    start: Final[int]
    stop: Final[int]
    error: Final[ProtocolError | None]

def decode_pulsar(
    frames: Iterable[Buffer],
    *,
    topic: str,
    partition: int,
    check_crc: bool = True,
    limit: int = ...,
    after: tuple[int, int, int] | None = None,
    before: tuple[int, int, int] | None = None,
    columns: Iterable[str] | None = None,
) -> tuple[Columns, list[PulsarEntry]]: ...

# --- split.pyx ---

def split_columns(columns: Columns, numbers: list[int], partitions: int, placed: bool = False) -> list[tuple[int, Columns]]: ...
def topic_shares(source: object) -> list[tuple[str, Columns]]: ...

# --- receipt.pyx ---

class Receipt:
    batch: Final[Any]
    index: Final[int]
    def __init__(self, batch: Any, index: int) -> None: ...
    @property
    def done(self) -> bool: ...
    def position(self, timeout: float | None = None) -> Any: ...

# --- send_future.pyx ---

@final
class SendFuture:
    """What `send` of the asyncio face gives: asyncio takes it for a future, whose result is the record's place."""

    _asyncio_future_blocking: bool
    def __init__(self, intake: Any) -> None: ...
    @property
    def intake(self) -> Any: ...
    def get_loop(self) -> asyncio.AbstractEventLoop: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def result(self) -> Any: ...
    def exception(self) -> BaseException | None: ...
    def cancel(self, msg: Any = None) -> bool:
        """Wait no longer. A record that waits for room is not sent; one that was taken may be stored all the same."""
    def fail(self, error: BaseException) -> None: ...
    def bind(self, batch: OutBatch, index: int) -> None: ...
    def follow(self, other: SendFuture) -> None: ...
    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None: ...
    def remove_done_callback(self, fn: Callable[[Any], object]) -> int: ...
    def __await__(self) -> Generator[Any, None, Any]: ...
    def __iter__(self) -> Generator[Any, None, Any]: ...

def settle_futures(batch: OutBatch) -> None: ...

# --- pulsar_build.pyx ---

@final
class PulsarBatchBuilder(RecordBuilder):
    def __init__(
        self,
        producer_name: str,
        *,
        compression: str = "none",
        batched: bool = True,
        max_size: int = ...,
        max_records: int = 1000,
        limit: int = ...,
        level: int | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        properties: Mapping[str, Buffer] | Iterable[tuple[str, Buffer]] = (),
        event_time: int = 0,
    ) -> bool: ...
    def check_columns(self, columns: Columns) -> None: ...
    def append_columns(self, columns: Columns, start: int, stop: int, limit: int = ...) -> int: ...
    def finish(self, producer_id: int, sequence_id: int, publish_time: int) -> list[bytes]: ...
    def seal(self, producer_id: int, sequence_id: int, publish_time: int) -> list[bytes]: ...
    def drop(self) -> None: ...

def pulsar_properties(batched: bool, headers: Headers) -> bytes | None: ...
def pulsar_receipt(frame: bytes) -> tuple[int, int, int, int] | None: ...

# --- rocketmq_message.pyx ---

ROCKETMQ_RESERVED: frozenset[str]

def decode_rocketmq(
    bodies: Buffer | Sequence[Buffer],
    *,
    topic: str,
    partition: int,
    start: int = 0,
    limit: int = ...,
    check_crc: bool = True,
    facts: bool = True,
    on_corrupt: str = "raise",
    columns: Iterable[str] | None = None,
    home: tuple[str, int] | None = None,
) -> tuple[Columns, int]: ...
def decode_rocketmq_batch(body: Buffer) -> Columns: ...

# --- rocketmq_send.pyx ---

def java_hash(text: bytes) -> int: ...
def java_place(key: bytes, keyed: tuple[int, ...]) -> int: ...
def java_hashes(columns: Columns) -> list[int | None]: ...

class RocketIds:
    def __init__(self, prefix: bytes, epoch_ms: int) -> None: ...
    def next(self, now_ms: int) -> str: ...

def rocket_plain_properties(key: bytes | None, ids: RocketIds, now_ms: int) -> bytes | None: ...
def check_rocket_columns(columns: Columns, most: int) -> None: ...

@final
class RocketSendHeader:
    def __init__(self, group: str, topic: str) -> None: ...
    def encode(self, code: int, opaque: int, queue_id: int, sys_flag: int, born: int, properties: bytes) -> bytes: ...

# --- rocketmq_build.pyx ---

@final
class RocketBatchBuilder:
    def __init__(self, limit: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(
        self, value: Buffer, key: Buffer | None = None, headers: RowHeaders = None, unique_id: str | None = None, flag: int = 0
    ) -> bool: ...
    def add(self, value: Buffer, properties: bytes, flag: int = 0) -> bool: ...
    def append_columns(
        self, columns: Columns, start: int, stop: int, ids: RocketIds, now_ms: int, most: int, born: int | None = None
    ) -> int: ...
    def finish(self) -> bytes: ...
