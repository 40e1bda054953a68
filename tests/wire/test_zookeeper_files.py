"""Logs and snapshots (tests/wire/zookeeper/, written by ZooKeeper 3.9.5) whole, cut at every byte, changed, and longer than they may be."""

from __future__ import annotations

import io
import random
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from wireproto import cli
from wireproto.compression import decompress
from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, ProtocolError, Truncated, WireprotoError
from wireproto.zookeeper import messages as m
from wireproto.zookeeper.files import Node, Snapshot, Transaction, read_log

FOLDER = Path(__file__).parent / "zookeeper"
LOG = (FOLDER / "log").read_bytes()
SNAPSHOT = (FOLDER / "snapshot").read_bytes()


def log(data: bytes) -> list[Transaction]:
    return list(read_log(io.BytesIO(data)))


def until_it_breaks(data: bytes) -> tuple[list[Transaction], ProtocolError | None]:
    found: list[Transaction] = []
    try:
        found.extend(read_log(io.BytesIO(data)))
    except ProtocolError as why:
        return found, why
    return found, None


def nodes(data: bytes) -> dict[str, Node]:
    with Snapshot(io.BytesIO(data)) as snapshot:
        return {node.path: node for node in snapshot}


def entry(body: bytes) -> bytes:
    return zlib.adler32(body).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body + b"B"


HEAD = LOG[:16]


def test_a_log_has_every_transaction_in_order() -> None:
    found = log(LOG)
    kinds = [type(item.record).__name__ for item in found]
    assert kinds[0] == "CreateSessionTxn"
    assert {"CreateTxn", "CreateTTLTxn", "CreateContainerTxn", "SetDataTxn", "MultiTxn", "ErrorTxn", "CloseSessionTxn"} <= set(kinds)
    assert [item.header.zxid for item in found] == list(range(1, len(found) + 1))
    multi = next(item for item in found if isinstance(item.record, m.MultiTxn))
    assert [type(record) for _, record in multi.parts] == [m.CreateTxn, m.SetDataTxn, m.CheckVersionTxn, m.DeleteTxn]
    assert all(item.digest is not None for item in found if not isinstance(item.record, m.ErrorTxn))
    assert b"".join(entry(item.data) for item in found) == LOG[16:].rstrip(b"\0")


def test_a_snapshot_has_every_node_with_its_access_list() -> None:
    with Snapshot(FOLDER / "snapshot") as snapshot:
        found = {node.path: node for node in snapshot}
    assert next(iter(found)) == "/"
    assert {"/a", "/a/b", "/null", "/ünï", "/aged", "/box", "/guarded", "/zookeeper/quota"} <= set(found)
    assert (found["/null"].data, found["/a/b"].data) == (None, b"data")
    assert found["/a"].acl == (m.ACL(perms=31, id=m.Id(scheme="world", id="anyone")),)
    assert found["/guarded"].acl[0].id.scheme == "digest"
    assert found["/a"].stat.version == 1
    assert snapshot.zxid == snapshot.last_zxid == len(log(LOG))
    last = next(item.digest for item in reversed(log(LOG)) if item.digest)
    assert snapshot.digest == last.tree_digest & (1 << 64) - 1


@pytest.mark.parametrize("name", ["snapshot.gz", "snapshot.snappy"])
def test_packed_snapshots_are_told_by_their_first_bytes(name: str) -> None:
    packed = (FOLDER / name).read_bytes()
    found = nodes(packed)
    assert set(found) == set(nodes(SNAPSHOT))
    assert nodes(decompress(name.rpartition(".")[2].replace("gz", "gzip"), packed)) == found
    for end in range(len(packed)):
        with pytest.raises((Truncated, Malformed, DecompressionError)):
            nodes(packed[:end])
    rng = random.Random(4)
    for _ in range(400):
        mutant = bytearray(packed)
        mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
        try:
            nodes(bytes(mutant))
        except ProtocolError:
            continue


def test_a_cut_log_gives_what_is_whole_and_then_says_where_it_ends() -> None:
    whole = log(LOG)
    edges = [item.offset for item in whole] + [len(LOG.rstrip(b"\0"))]
    for end in range(len(LOG.rstrip(b"\0")) + 1):
        found, error = until_it_breaks(LOG[:end])
        edge = max((edge for edge in edges if edge <= end), default=0)
        if error is None:  # the first bytes of a checksum are zeros, as what the server puts ahead is
            assert not LOG[edge:end].strip(b"\0")
        else:
            assert isinstance(error, Truncated)
            assert error.offset == edge or end < 16
            assert end not in edges
        assert found == whole[: len(found)]
        assert len(found) == sum(edge <= end for edge in edges[1:])


@pytest.mark.parametrize("kept", [20, 40, -2, -1])
def test_a_torn_end_in_room_made_ahead_is_an_entry_that_is_not_whole(kept: int) -> None:
    """What a crash leaves, and what a server is writing just now: a part of an entry, and zeros behind it."""
    whole = log(LOG)
    last = whole[-1]
    torn = LOG[: (last.offset if kept > 0 else last.end) + kept] + bytes(4096)
    found, error = until_it_breaks(torn)
    assert found == whole[:-1]
    assert isinstance(error, Truncated)
    assert error.offset == last.offset
    assert "not whole yet" in error.text


def test_a_wrong_entry_that_is_whole_or_has_others_behind_it_is_wrong() -> None:
    whole = log(LOG)
    for place, size in ((-1, 4096), (-3, 0)):
        at = whole[place].end - 1
        for wrong, kind in ((b"\0", Malformed), (b"X", Malformed)):
            data = LOG[:at] + wrong + LOG[at + 1 :] + bytes(size)
            if place == -1 and wrong == b"\0":
                continue  # an entry without its last byte is not whole
            found, error = until_it_breaks(data)
            assert found == whole[:place]
            assert isinstance(error, kind)
    data = bytearray(LOG[: whole[-1].end])
    data[whole[-1].offset + 20] ^= 1
    assert isinstance(until_it_breaks(bytes(data) + bytes(4096))[1], ChecksumMismatch)


def test_reading_goes_on_where_it_ended() -> None:
    whole = log(LOG)
    assert [item.end for item in whole[:-1]] == [item.offset for item in whole[1:]]
    for place, item in enumerate(whole):
        assert list(read_log(io.BytesIO(LOG), start=item.end)) == whole[place + 1 :]
        assert list(read_log(io.BytesIO(LOG), start=item.offset)) == whole[place:]
    behind = io.BytesIO(b"before" + LOG)
    behind.seek(6)
    assert list(read_log(behind, start=whole[2].end)) == whole[3:]


class Growing(io.RawIOBase):
    """A log that a server writes while it is read: what was read ahead is from before."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self.data, self.after, self.at = before, after, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0 if whence == 0 else self.at if whence == 1 else len(self.data))
        return self.at

    def readinto(self, buffer: Any) -> int:
        part = self.data[self.at : self.at + len(buffer)]
        buffer[: len(part)] = part
        self.at += len(part)
        self.data = self.after
        return len(part)


def test_an_entry_that_was_half_written_when_it_was_read_is_looked_at_again() -> None:
    """One block of the file from before, the next from after: a mixture that was never there."""
    whole = log(LOG)
    body = LOG[: whole[-1].end]
    cut = whole[-1].offset + 30
    before, after = body[:cut] + bytes(len(body) - cut) + bytes(4096), body + bytes(4096)
    found = list(read_log(io.BufferedReader(Growing(before, after), cut + 10)))
    assert found == whole


def test_every_changed_byte_of_an_entry_is_found() -> None:
    whole = log(LOG)
    end = len(LOG.rstrip(b"\0"))
    for at in range(16, end):
        mutant = bytearray(LOG)
        mutant[at] ^= 0x10
        with pytest.raises((ChecksumMismatch, Malformed, Truncated)) as caught:
            log(bytes(mutant))
        assert caught.value.offset == max(item.offset for item in whole if item.offset <= at)


def test_every_changed_byte_of_a_snapshot_is_found() -> None:
    for at in range(8, len(SNAPSHOT)):
        mutant = bytearray(SNAPSHOT)
        mutant[at] ^= 0x10
        with pytest.raises((ChecksumMismatch, Malformed, Truncated)):
            nodes(bytes(mutant))
    seals = (len(SNAPSHOT), len(SNAPSHOT) - 21, len(SNAPSHOT) - 54)  # 3.9, 3.6 and older ones end there
    for end in range(len(SNAPSHOT)):
        if end in seals:
            nodes(SNAPSHOT[:end])
        else:
            with pytest.raises(Truncated):
                nodes(SNAPSHOT[:end])
    with pytest.raises(Malformed, match="after the last seal"):
        nodes(SNAPSHOT + b"\0")


def test_older_transactions_are_read() -> None:
    header = m.TxnHeader(client_id=1, cxid=2, zxid=3, time=4, type=1)
    old = m.CreateTxnV0(path="/a", data=b"x", acl=(), ephemeral=False)
    ended = m.TxnHeader(client_id=1, cxid=3, zxid=4, time=5, type=-11).encode()
    newer = m.TxnHeader(client_id=1, cxid=4, zxid=5, time=6, type=77).encode() + b"what it may hold"
    found = log(HEAD + entry(header.encode() + old.encode()) + entry(ended) + entry(newer))
    assert [item.record for item in found] == [old, None, None]
    assert [item.digest for item in found] == [None] * 3
    assert found[2].data == newer


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", Truncated),
        (b"ZKL", Truncated),
        (b"PK\3\4" + bytes(100), Malformed),
        (b"ZKLG\0\0\0\3" + bytes(100), Malformed),
        (HEAD + bytes(7) + b"\1\x7f\xff\xff\xff", Malformed),
        (HEAD + bytes(7) + b"\1\xff\xff\xff\xff", Malformed),
        (HEAD + entry(b"short"), Truncated),
        (HEAD + entry(m.TxnHeader(type=2).encode() + m.DeleteTxn(path="/a").encode() + b"\0"), Truncated),
        (HEAD + entry(bytes(32))[:-1] + b"C", Malformed),
    ],
)
def test_what_is_no_log_is_refused(data: bytes, kind: Any) -> None:
    with pytest.raises(kind):
        log(data)


def test_a_digest_is_a_number_without_a_sign() -> None:
    data = bytearray(SNAPSHOT)
    data[-42:-34] = b"\xff" + bytes(7)
    for seal in (-34, -13):
        data[seal : seal + 8] = zlib.adler32(data[:seal]).to_bytes(8, "big")
    with Snapshot(io.BytesIO(bytes(data))) as snapshot:
        assert list(snapshot)
        assert snapshot.digest == 0xFF << 56


def test_a_small_file_that_promises_much_takes_little_memory() -> None:
    head = b"ZKSN\0\0\0\2" + b"\xff" * 8
    lies = [
        head + b"\x7f\xff\xff\xff",
        head + bytes(4) + b"\x7f\xff\xff\xff",
        head + bytes(8) + b"\0\0\0\0\x03\xff\xff\xff",
        head + bytes(4) + b"\0\0\0\1" + bytes(8) + b"\x7f\xff\xff\xff",
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\x06\xff\xff\xff\xff\x0f\0",
    ]
    tracemalloc.start()
    try:
        for lie in lies:
            with pytest.raises(ProtocolError):
                nodes(lie)
        with pytest.raises(ProtocolError):
            log(HEAD + bytes(7) + b"\1\x03\xff\xff\xff")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_the_command_prints_what_is_whole_and_then_the_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cut = tmp_path / "log.1"
    cut.write_bytes(LOG[: log(LOG)[3].offset + 30])
    assert cli.main(["zookeeper", "log", str(cut)]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 3
    assert "Truncated" in shown.err
    assert cli.main(["zookeeper", "snapshot", str(FOLDER / "snapshot.gz")]) == 0
    assert '"path": "/a/b"' in capsys.readouterr().out


def test_a_snapshot_that_cannot_be_read_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.1"
    path.write_bytes(b"nothing like it, for as long as a header would be")
    with pytest.raises(WireprotoError) as caught:
        Snapshot(path)
    opened = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # another thread's, closed meanwhile
            opened.add(descriptor.readlink())
    assert path not in opened, caught.value
