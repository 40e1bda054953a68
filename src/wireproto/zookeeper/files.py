"""Reads what a ZooKeeper server keeps on disk, transaction logs and snapshots, record by record.

    log        FileHeader magic "ZKLG" int32 version 2 int64 dbid · entry* · zeros (the server preallocates) or the end
    entry      int64 Adler-32 of the transaction · int32 length · transaction · 0x42            length 0 ends the log
    transaction  TxnHeader · the record of its type · TxnDigest (3.6)

    snapshot   FileHeader magic "ZKSN" int32 2 int64 -1
               int32 sessions { int64 id · int32 time-out ms }*
               int32 lists { int64 key · vector of ACL }*
               { ustring path · buffer data · int64 key of its list (-1: anyone) · StatPersisted }*   depth first, "" is the root
               ustring "/"
               seal · [int64 zxid · int32 version · int64 digest · seal]  (3.6) · [int64 last zxid · seal]  (3.9)
    seal       int64 Adler-32 of all bytes since the beginning · ustring "/"
    packed     a file named .gz is gzip, one named .snappy is snappy in xerial blocks; here the first bytes decide

`read_log` and `Snapshot` take a path or an open binary file, and raise typed errors that name the byte: Truncated, ChecksumMismatch,
Malformed, DecompressionError. Nothing is assumed of the bytes. Memory stays within one record (`LARGEST`) and one packed block, however
long the file. Log and snapshot are not put together here (a snapshot is fuzzy: replay the log from its zxid on).
"""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, Self, cast

from wireproto._codec import Message
from wireproto.compression import decompress
from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, ProtocolError, Truncated

from . import messages as m

LARGEST: Final = 64 << 20
"""Bytes that one transaction, or one node's data, may have. Servers accept requests of 1 MiB by default."""
VERSION: Final = 2
_BLOCK: Final = 64 << 10
_LOG, _SNAPSHOT = b"ZKLG", b"ZKSN"
_GZIP, _XERIAL = b"\x1f\x8b", b"\x82SNAPPY\0"
_END_OF_ENTRY: Final = b"B"

RECORDS: Final[dict[int, type[Message]]] = {
    -1: m.ErrorTxn,
    -10: m.CreateSessionTxn,
    -11: m.CloseSessionTxn,
    1: m.CreateTxn,
    2: m.DeleteTxn,
    5: m.SetDataTxn,
    7: m.SetACLTxn,
    13: m.CheckVersionTxn,
    14: m.MultiTxn,
    15: m.CreateTxn,
    16: m.SetDataTxn,
    19: m.CreateContainerTxn,
    20: m.DeleteTxn,
    21: m.CreateTTLTxn,
}
"""Transaction type to the record behind its header. An unknown type is kept as bytes."""


class Transaction(NamedTuple):
    """One entry of a log.

    Attributes:
        offset: of the entry in the file, in bytes.
        header: session, xid, zxid, time in ms and type (an operation code; -1 a failed request, -10 and -11 sessions).
        record: the record of its type; None for a type newer than this package, and for the end of a session before 3.6.
        parts: the records of a multi, in order: (type, record) pairs.
        digest: of the whole tree after it (servers from 3.6), else None.
        data: header, record and digest as they are in the file.
        end: offset of the next entry: the `start` to continue reading from.
    """

    offset: int
    header: m.TxnHeader
    record: Message | None
    parts: tuple[tuple[int, Message | None], ...]
    digest: m.TxnDigest | None
    data: bytes

    @property
    def end(self) -> int:
        """Return the offset of the next entry."""
        return self.offset + 12 + len(self.data) + 1


class Node(NamedTuple):
    """One node of a snapshot: path ("/" is the root), data (None is null), access list and stat."""

    path: str
    data: bytes | None
    acl: tuple[m.ACL, ...]
    stat: m.StatPersisted


class Readable(Protocol):
    """A source of bytes: an open file, decompressed or not."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


# ---- logs -------------------------------------------------------------------------------------------------------------------------


def read_log(source: str | os.PathLike[str] | BinaryIO, *, start: int = 0, largest: int = LARGEST) -> Iterator[Transaction]:
    """Yield the transactions of a log file, in order; also of one that a server is writing.

    Args:
        source: path or open binary file (seekable, with `start`).
        start: offset of the entry to begin at, in bytes: the `end` of the last one read, or the `offset` of an error.
        largest: bytes that one transaction may have.

    Raises:
        Truncated: the last entry is not whole: it is being written, or a crash left it so. All whole ones were yielded before.
        ChecksumMismatch, Malformed: as their names say; `offset` is the entry's.
    """
    with contextlib.ExitStack() as stack:
        file = _opened(source, stack)
        reader = _Reader(file, "FileTxnLog")
        first = file.tell() if file.seekable() else 0
        reader.header(_LOG)
        if start:
            file.seek(first + start)
            reader.at = start
        while True:
            offset = reader.at
            try:
                found = _entry(reader, largest)
            except ProtocolError:
                if not file.seekable():
                    raise
                found = _looked_at_again(file, first, offset, largest)
                reader.at = offset if found is None else found.end
            if found is None:
                return
            yield found


def _looked_at_again(file: BinaryIO, first: int, offset: int, largest: int) -> Transaction | None:
    """Read an entry again that was wrong: it may have been read in parts, or be followed by preallocated zeros, or really be wrong.

    An entry that does not change between two reads is really wrong; as long as it changes, a server is writing it.
    """
    before = b""
    while True:
        data = _again(file, first + offset, largest)
        reader = _Reader(io.BytesIO(data), "FileTxnLog")
        try:
            found = _entry(reader, largest)
        except ProtocolError as why:
            why.offset = offset + (why.offset or 0)
            if data.endswith(b"\0") and _nothing_more(file):
                raise reader.error(Truncated, f"an entry is not whole yet: {why.text}", offset) from why
            if data == before:
                raise
            before = data
            continue
        if found is not None:
            found = found._replace(offset=offset)
            file.seek(first + found.end)
        return found


def _again(file: BinaryIO, at: int, largest: int) -> bytes:
    """Return the bytes of one entry, as they are in the file now."""
    file.seek(0, os.SEEK_END)  # so that nothing read before is kept
    file.seek(at)
    head = file.read(12)
    return head + file.read(min(max(int.from_bytes(head[8:], "big", signed=True), 0), largest) + 1)


def _nothing_more(file: BinaryIO) -> bool:
    while block := file.read(_BLOCK):
        if block.strip(b"\0"):
            return False
    return True


def _entry(reader: _Reader, largest: int) -> Transaction | None:
    offset = reader.at
    head = reader.up_to(12)
    if not head.rstrip(b"\0"):
        return None  # the end, or preallocated zeros
    if len(head) < 12:
        raise reader.error(Truncated, f"the file ends {len(head)} bytes into an entry", offset)
    checksum, size = int.from_bytes(head[:8], "big"), int.from_bytes(head[8:], "big", signed=True)
    if size == 0:
        return None
    if not 0 < size <= largest:
        raise reader.error(Malformed, f"a transaction of {size} bytes; at most {largest}", offset)
    data = reader.take(size, offset)
    end = reader.take(1, offset)
    if (found := zlib.adler32(data)) != checksum:
        raise reader.error(ChecksumMismatch, f"Adler-32 {checksum:#x} announced, {found:#x} found", offset)
    if end != _END_OF_ENTRY:
        raise reader.error(Malformed, f"an entry ends with 0x42, not {end[0]:#04x}", offset)
    try:
        return _transaction(data, offset)
    except ProtocolError as why:
        why.offset = offset + 12 + (why.offset or 0)
        raise


def _transaction(data: bytes, offset: int) -> Transaction:
    header, at = m.TxnHeader.decode_from(data)
    record: Message | None = None
    kind = RECORDS.get(header.type)
    if kind is None:
        return Transaction(offset, header, None, (), None, data)
    if header.type == -11 and at == len(data):
        return Transaction(offset, header, None, (), None, data)  # before 3.6
    try:
        record, at = kind.decode_from(data, start=at)
    except Truncated:
        if kind is not m.CreateTxn:
            raise
        record, at = m.CreateTxnV0.decode_from(data, start=at)  # before 3.5
    digest = None
    if at < len(data):
        digest = m.TxnDigest.decode(data, start=at)
    parts = tuple(map(_part, record.txns or ())) if isinstance(record, m.MultiTxn) else ()
    return Transaction(offset, header, record, parts, digest, data)


def _part(txn: m.Txn) -> tuple[int, Message | None]:
    kind = RECORDS.get(txn.type)
    if kind is None or kind is m.MultiTxn:
        return txn.type, None
    data = bytes(txn.data or b"")
    try:
        return txn.type, kind.decode(data)
    except Truncated:
        if kind is not m.CreateTxn:
            raise
        return txn.type, m.CreateTxnV0.decode(data)


# ---- snapshots --------------------------------------------------------------------------------------------------------------------


class Snapshot:
    """A snapshot being read: ``with Snapshot(path) as snapshot: for node in snapshot: …``.

    Args:
        source: path or open binary file; gzip and snappy are recognized by their first bytes.
        largest: bytes that one node's data may have.

    Attributes:
        sessions: session id to timeout in ms.
        acls: the access lists by their key in the file.
        zxid, digest_version, digest: of the tree, once all nodes are read; None where the file has none (before 3.6, or switched off).
        last_zxid: the last transaction that the server had applied, once all nodes are read; None before 3.9.

    Raises:
        Truncated, ChecksumMismatch, Malformed, DecompressionError: when opened, or while nodes are read; `offset` counts unpacked bytes.
    """

    def __init__(self, source: str | os.PathLike[str] | BinaryIO, *, largest: int = LARGEST) -> None:
        self.sessions: dict[int, int] = {}
        self.acls: dict[int, tuple[m.ACL, ...]] = {}
        self.zxid: int | None = None
        self.digest_version: int | None = None
        self.digest: int | None = None
        self.last_zxid: int | None = None
        self._largest = largest
        self._stack = contextlib.ExitStack()
        try:
            file = _opened(source, self._stack)
            self._reader = _Reader(_unpacked(file), "FileSnap")
            self._reader.header(_SNAPSHOT)
            self._read_sessions()
            self._read_lists()
        except BaseException:
            self._stack.close()
            raise
        self._nodes = self._read_nodes()

    def __iter__(self) -> Iterator[Node]:
        """Iterate over every node, a parent before its children; possible once."""
        return self._nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if it was opened here."""
        self._stack.close()

    def _read_sessions(self) -> None:
        for _ in range(self._reader.count("sessions")):
            session = self._reader.number(8)
            self.sessions[session] = self._reader.number(4)

    def _read_lists(self) -> None:
        for _ in range(self._reader.count("access lists")):
            key = self._reader.number(8)
            found = []
            for _ in range(self._reader.count("entries")):
                perms = self._reader.number(4)
                scheme, who = self._reader.text(self._largest), self._reader.text(self._largest)
                found.append(m.ACL(perms=perms, id=m.Id(scheme=cast("str", scheme), id=cast("str", who))))
            self.acls[key] = tuple(found)

    def _read_nodes(self) -> Iterator[Node]:
        reader = self._reader
        while True:
            start = reader.at
            path = reader.text(self._largest)
            if path == "/":
                break
            if path is None or (path and not path.startswith("/")):
                raise reader.error(Malformed, f"{path!a} is no path", start)
            data = reader.buffer(self._largest)
            key = reader.number(8)
            acl = _ANYONE if key == -1 else self.acls.get(key)
            if acl is None:
                raise reader.error(Malformed, f"{path}: no access list {key}", start)
            yield Node(path or "/", data, acl, m.StatPersisted.decode(reader.take(60)))
        reader.seal()
        if not reader.ended():
            self.zxid, self.digest_version, self.digest = reader.number(8), reader.number(4), reader.number(8, signed=False)
            reader.seal()
        if not reader.ended():
            self.last_zxid = reader.number(8)
            reader.seal()
        if not reader.ended():
            raise reader.error(Malformed, "bytes after the last seal")


_ANYONE: Final = (m.ACL(perms=31, id=m.Id(scheme="world", id="anyone")),)


# ---- bytes ------------------------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads a bounded number of bytes at a time, and keeps the running checksum and the offset."""

    def __init__(self, source: Readable, message: str) -> None:
        self._source, self._message = source, message
        self._ahead = b""
        self.at = 0
        self._sum = 1

    def error(self, kind: type[ProtocolError], text: str, offset: int | None = None) -> ProtocolError:
        return kind(text, message=self._message, offset=self.at if offset is None else offset)

    def up_to(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end of the file."""
        parts, self._ahead = [self._ahead[:size]], self._ahead[size:]
        left = size - len(parts[0])
        while left and (part := self._source.read(min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        data = b"".join(parts)
        self.at += len(data)
        self._sum = zlib.adler32(data, self._sum)
        return data

    def take(self, size: int, offset: int | None = None) -> bytes:
        """Return exactly that many bytes; raises Truncated."""
        data = self.up_to(size)
        if len(data) < size:
            raise self.error(Truncated, f"{size} bytes needed, {len(data)} left", offset)
        return data

    def ended(self) -> bool:
        """Return whether nothing is left."""
        if not self._ahead:
            self._ahead = self._source.read(1)
        return not self._ahead

    def number(self, size: int, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def count(self, of: str) -> int:
        """Read how many items follow; what they allocate is bounded by the bytes that are there."""
        start = self.at
        found = self.number(4)
        if found < 0:
            raise self.error(Malformed, f"{found} {of}", start)
        return found

    def buffer(self, largest: int) -> bytes | None:
        start = self.at
        size = self.number(4)
        if size == -1:
            return None
        if not 0 <= size <= largest:
            raise self.error(Malformed, f"{size} bytes; at most {largest}", start)
        return self.take(size, start)

    def text(self, largest: int) -> str | None:
        start = self.at
        data = self.buffer(largest)
        if data is None:
            return None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            with contextlib.suppress(UnicodeDecodeError):  # as jute writes what is above U+FFFF
                return data.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            raise self.error(Malformed, "text is not UTF-8", start) from None

    def header(self, magic: bytes) -> None:
        """Read the FileHeader; raises Malformed for another kind of file."""
        found = self.up_to(4)
        if found != magic[: len(found)]:
            raise self.error(Malformed, f"begins with {found!r}, not {magic!r}", 0)
        if len(found) < 4:
            raise self.error(Truncated, f"a file of {len(found)} bytes", 0)
        version = self.number(4)
        if version != VERSION:
            raise self.error(Malformed, f"version {version} of the file format; {VERSION} is known", 4)
        self.number(8)

    def seal(self) -> None:
        """Compare the checksum of all bytes before it."""
        start, expected = self.at, self._sum
        found = self.number(8)
        if found != expected:
            raise self.error(ChecksumMismatch, f"Adler-32 {found:#x} announced, {expected:#x} found", start)
        if self.text(1) != "/":
            raise self.error(Malformed, "a seal ends with /", start)


def _opened(source: str | os.PathLike[str] | BinaryIO, stack: contextlib.ExitStack) -> BinaryIO:
    return stack.enter_context(Path(source).open("rb")) if isinstance(source, str | os.PathLike) else source


def _unpacked(source: Readable) -> Readable:
    head = source.read(8)
    again = _Prefixed(head, source)
    if head.startswith(_GZIP):
        return _Gzip(again)
    if head == _XERIAL:
        return _Xerial(again)
    return again


class _Prefixed:
    """A source some bytes of which were read before."""

    def __init__(self, head: bytes, source: Readable) -> None:
        self._head, self._source = head, source

    def read(self, size: int, /) -> bytes:
        if self._head:
            part, self._head = self._head[:size], self._head[size:]
            return part
        return self._source.read(size)


class _Gzip:
    """One gzip stream, unpacked as it is read."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._stream = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def read(self, size: int, /) -> bytes:
        while not self._stream.eof:
            packed = self._stream.unconsumed_tail or self._source.read(_BLOCK)
            try:
                plain = self._stream.decompress(packed, size)
            except zlib.error as why:
                raise DecompressionError(f"gzip: {why}") from None
            if plain:
                return plain
            if not packed and not self._stream.eof:
                raise Truncated("gzip: the stream ends before its trailer", message="FileSnap")
        return b""


class _Xerial:
    """Snappy blocks, each behind its length."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._plain = b""
        self._exactly(16)

    def read(self, size: int, /) -> bytes:
        while not self._plain:
            head = self._exactly(4)
            if not head:
                return b""
            length = int.from_bytes(head, "big")
            block = self._exactly(length) if len(head) == 4 and length <= 1 << 20 else b""
            if len(head) == 4 and not 0 < length <= 1 << 20:
                raise DecompressionError(f"snappy: a block of {length} bytes")
            if len(head) < 4 or len(block) < length:
                raise Truncated("snappy: the stream ends within a block", message="FileSnap")
            self._plain = decompress("snappy-raw", block, 1 << 20)
        part, self._plain = self._plain[:size], self._plain[size:]
        return part

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size and (part := self._source.read(size - len(parts))):
            parts += part
        return bytes(parts)
