"""Types of the compiled codec core."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Self, final, overload

from typing_extensions import Buffer

from wireproto.errors import ProtocolError
from wireproto.message import Field
from wireproto.position import Position

# checksum
def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...

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

# --- columns.pyx, record.pyx ---

RowHeaders = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]] | None
PositionParts = int | tuple[int, int, int] | None

@final
class Columns:
    facts: Final[Any]
    skipped: Final[tuple[ProtocolError, ...]]
    @property
    def nbytes(self) -> int: ...
    @property
    def kind(self) -> str: ...
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
) -> tuple[Columns, int]: ...
def kafka_next_offset(records: Buffer | None) -> int: ...
def kafka_batches(records: Buffer | None) -> list[dict[str, Any]]: ...

# --- kafka_encode.pyx ---

@final
class KafkaBatchBuilder:
    def __init__(self, *, magic: int = 2, compression: str = "none", limit: int = 16384, level: int | None = None) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def append(
        self, value: Buffer | None, key: Buffer | None = None, headers: RowHeaders = None, timestamp: int | None = None
    ) -> bool: ...
    def append_columns(self, columns: Columns, start: int, stop: int, now: int) -> int: ...
    def finish(
        self, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1, *, transactional: bool = False
    ) -> bytes: ...

def kafka_partition(key: Buffer, partitions: int) -> int: ...

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
) -> tuple[Columns, list[PulsarEntry]]: ...

# --- pulsar_build.pyx ---

@final
class PulsarBatchBuilder:
    def __init__(
        self,
        producer_name: str,
        *,
        compression: str = "none",
        batched: bool = True,
        max_size: int = ...,
        max_records: int = 1000,
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
    def append_columns(self, columns: Columns, start: int, stop: int, event_times: Sequence[int | None] | None = None) -> int: ...
    def finish(self, producer_id: int, sequence_id: int, publish_time: int) -> list[bytes]: ...

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
) -> tuple[Columns, int]: ...
def decode_rocketmq_batch(body: Buffer) -> Columns: ...
@final
class RocketBatchBuilder:
    def __init__(self, limit: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(
        self, value: Buffer, key: Buffer | None = None, headers: RowHeaders = None, unique_id: str | None = None, flag: int = 0
    ) -> bool: ...
    def finish(self) -> bytes: ...
