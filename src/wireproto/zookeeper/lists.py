"""Encodes and decodes MultiRequest and MultiResponse, the two bodies that are lists, for ``client.request`` and `wireproto.wire`.

    request   ( MultiHeader type=op done=0 err=-1, the op's record )*            MultiHeader type=-1 done=1 err=-1
    reply     ( MultiHeader type=op done=0 err=0,  the op's result )*            MultiHeader type=-1 done=1 err=-1

A failed operation's result has type -1 and is an ErrorResponse; delete and check have none. What the operations mean is in `multi`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wireproto._codec import Message
from wireproto.errors import Malformed, ProtocolError, ValueUnsupported

from . import messages as m

# fmt: off
REQUESTS: Final[dict[int, type[Message] | None]] = {
    1: m.CreateRequest, 2: m.DeleteRequest, 4: m.GetDataRequest, 5: m.SetDataRequest, 8: m.GetChildrenRequest, 13: m.CheckVersionRequest,
    15: m.CreateRequest, 19: m.CreateRequest, 21: m.CreateTTLRequest,
}
RESULTS: Final[dict[int, type[Message] | None]] = {
    -1: m.ErrorResponse, 1: m.CreateResponse, 2: None, 4: m.GetDataResponse, 5: m.SetDataResponse, 8: m.GetChildrenResponse, 13: None,
    15: m.Create2Response, 19: m.Create2Response, 21: m.Create2Response,
}
# fmt: on
READS: Final = frozenset({4, 8})
_FAILED: Final = -1  # stands for the operation
_END: Final = m.MultiHeader(type=-1, done=True, err=-1)


@dataclass(frozen=True, slots=True)
class MultiRequest:
    """Operations of which all are done or none; or several reads.

    Args:
        operations: records (`CreateRequest`, `DeleteRequest`, `SetDataRequest`, `CheckVersionRequest`, …), each alone or as a pair of
            operation code and record, where another operation than the record's own is meant (15 create2, 19 createContainer).
    """

    operations: Sequence[Message | tuple[int, Message]]

    @property
    def reads(self) -> bool:
        """Return whether it has reads alone, which is an operation of its own (22)."""
        return bool(self.operations) and all(code in READS for code, _ in self._pairs())

    def encode(self) -> bytes:
        """Encode the body. Raises ValueUnsupported for an item that is no operation of a multi."""
        parts: list[bytes] = []
        for code, record in self._pairs():
            wanted = REQUESTS.get(code)
            if wanted is None or not isinstance(record, wanted):
                raise ValueUnsupported(f"{type(record).__name__} as operation {code} is not allowed in a multi", message="MultiRequest")
            parts += (m.MultiHeader(type=code, done=False, err=-1).encode(), record.encode())
        parts.append(_END.encode())
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, start: int = 0) -> MultiRequest:
        """Decode a body; raises Truncated, Malformed."""
        found = [(code, record) for code, record in _items(data, start, REQUESTS, cls.__name__) if record is not None]
        return cls(tuple(found))

    def _pairs(self) -> Iterator[tuple[int, Message]]:
        for item in self.operations:
            yield item if isinstance(item, tuple) else (getattr(item, "OP_CODE", 0), item)


@dataclass(frozen=True, slots=True)
class MultiResponse:
    """The results: pairs of operation code (-1: failed) and result (None: delete and check have none)."""

    results: tuple[tuple[int, Message | None], ...]

    @property
    def errors(self) -> tuple[int, ...]:
        """Return each operation's error code: 0 for success, -2 for one that was not tried."""
        return tuple(getattr(record, "err", 0) if kind == _FAILED else 0 for kind, record in self.results)

    def encode(self) -> bytes:
        """Encode the body."""
        parts: list[bytes] = []
        for kind, record in self.results:
            err = getattr(record, "err", 0) if kind == _FAILED else 0
            parts += (m.MultiHeader(type=kind, done=False, err=err).encode(), b"" if record is None else record.encode())
        parts.append(_END.encode())
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, start: int = 0) -> MultiResponse:
        """Decode a body; raises Truncated, Malformed."""
        return cls(tuple(_items(data, start, RESULTS, cls.__name__)))


def _items(data: bytes, at: int, records: dict[int, type[Message] | None], name: str) -> Iterator[tuple[int, Message | None]]:
    try:
        while True:
            header, at = m.MultiHeader.decode_from(data, start=at)
            if header.done:
                break
            if header.type not in records:
                raise Malformed(f"operation {header.type} is not allowed in a multi", offset=at)
            record: Any = records[header.type]
            if record is not None:
                record, at = record.decode_from(data, start=at)
            yield header.type, record
    except ProtocolError as why:
        why.message = name
        raise
    if at != len(data):
        raise Malformed(f"{len(data) - at} bytes left over", message=name, offset=at)
