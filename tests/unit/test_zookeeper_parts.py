"""ZooKeeper's sans-IO parts: paths and chroot, the session's handshake, the book of watches, the queue's names, multi's frame."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from wireproto._codec import ReplyFields, reply_error
from wireproto.errors import Malformed, OptionError, ProtocolError, Truncated, UsageError, ValueUnsupported
from wireproto.position import EARLIEST, LATEST, AtTime, LogOffset
from wireproto.zookeeper import layout, multi, operations
from wireproto.zookeeper.acl import digest_id
from wireproto.zookeeper.codes import BadVersion, EventType, NotReadOnly, SessionExpired
from wireproto.zookeeper.messages import ConnectRequest, GetDataResponse, SetDataRequest, SetWatches, SetWatches2, Stat
from wireproto.zookeeper.paths import Chroot, check, parents, sequence_of
from wireproto.zookeeper.session import Session, State
from wireproto.zookeeper.watch import CHILD, DATA, EXIST, PACKET, PERSISTENT, RECURSIVE, WatchTable

# -- requests and replies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, b"", b"value", bytearray(b"value")])
@pytest.mark.parametrize("version", [-1, 0, 2**31 - 1])
@pytest.mark.parametrize("path", ["/", "/größe", "/\U0001f600"])
def test_a_write_is_put_together_as_its_message_is(path: str, data: bytes | None, version: int) -> None:
    request = operations.set_data(operations.written(path, path), path, data, version)
    wanted = SetDataRequest(path=path, data=None if data is None else bytes(data), version=version).encode()
    assert (request.code, request.body, request.path, request.repeats) == (5, wanted, path, False)


def test_a_write_refuses_what_the_wire_cannot_carry() -> None:
    for data, version in (("text", -1), (b"", 2**31), (b"", 1.5)):
        with pytest.raises(ValueUnsupported):
            operations.set_data(b"", "/a", data, version)  # type: ignore[arg-type]


def test_the_error_of_a_reply() -> None:
    assert [reply_error(struct.pack(">iqi", 1, zxid, err)) for zxid, err in ((7, 0), (5, -101), (-1, -4))] == [0, -101, -4]
    for cut in range(16):
        with pytest.raises(Truncated):
            reply_error(bytes(cut))


def test_reply_fields_are_those_of_the_message() -> None:
    answer = GetDataResponse(data=b"value", stat=Stat(czxid=1, version=3, pzxid=9))
    frame = bytes(16) + answer.encode()
    assert ReplyFields(GetDataResponse, "data", "stat").read(frame) == (b"value", answer.stat)
    assert ReplyFields(GetDataResponse, "stat").read(frame) == answer.stat
    for cut in range(len(frame)):
        with pytest.raises(Truncated):
            ReplyFields(GetDataResponse, "stat").read(frame[:cut])
    with pytest.raises(Malformed):
        ReplyFields(GetDataResponse, "stat").read(frame + b"\0")


def test_a_node_lives_as_long_as_its_version_can_tell() -> None:
    most = (1 << 40) - 1
    assert operations.create_record("/a", b"", ttl=most / 1000)[1].ttl == most
    for ttl in ((most + 1) / 1000, 0.0, -1.0):
        with pytest.raises(ValueUnsupported):
            operations.create_record("/a", b"", ttl=ttl)


# -- paths ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/.a/b..", "/a b", "/größe", "/中", "/…", "/zookeeper/config"])
def test_legal_paths(path: str) -> None:
    assert check(path) == path


ILLEGAL = ["", "a", "/a/", "//", "/a//b", "/.", "/..", "/a/./b", "/a/../b", "/a/.."]
ILLEGAL += ["/\0", "/\x1f", "/\x7f", "/\x9f", "/\ud800", "/\uf8ff", "/\uffff"]


@pytest.mark.parametrize("path", [*ILLEGAL, None, b"/a", 7])
def test_illegal_paths(path: Any) -> None:
    with pytest.raises(ValueUnsupported):
        check(path)


def test_a_sequential_name_may_be_all_digits() -> None:
    assert check("/a/", sequence=True) == "/a/"


def test_a_chroot_goes_on_and_comes_off() -> None:
    root = Chroot("/a")
    assert [root.out(path) for path in ("/", "/b", "/zookeeper", "/zookeeper/quota", "/zookeepers")] == [
        "/a",
        "/a/b",
        "/a/zookeeper",
        "/a/zookeeper/quota",
        "/a/zookeepers",
    ]
    assert [root.back(path) for path in ("/a", "/a/b", "/ab", "/zookeeper/quota", "/c")] == ["/", "/b", "/ab", "/zookeeper/quota", "/c"]
    assert Chroot("/").out("/b") == "/b" == Chroot("").back("/b")


def test_parents_and_sequences() -> None:
    assert parents("/a/b/c") == ["/a", "/a/b"]
    assert parents("/a") == []
    assert sequence_of("entry-100-0000000042", "entry-100-") == 42
    assert sequence_of("entry-100--2147483648", "entry-100-") == -2147483648
    assert sequence_of("entry-100-", "entry-100-") is None


def test_digest_identity_as_servers_compute_it() -> None:
    assert digest_id("super", "test").id == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
    with pytest.raises(ValueUnsupported):
        digest_id("a:b", "c")


# -- session --------------------------------------------------------------------------------------------------------------

FRESH = bytes.fromhex("00000000 00001388 0100000000000001 00000010 000102030405060708090a0b0c0d0e0f 00")


def connected() -> Session:
    session = Session(10.0)
    assert not session.connected(FRESH)
    return session


def test_the_first_frame_asks_for_a_new_session() -> None:
    frame = Session(10.0, read_only=True).connect_request()
    assert len(frame) == 45
    asked = ConnectRequest.decode(frame)
    assert (asked.time_out, asked.session_id, asked.passwd, asked.read_only) == (10_000, 0, bytes(16), True)


def test_a_new_session_takes_the_servers_timeout() -> None:
    session = connected()
    assert (session.state, session.session_id, session.timeout) == (State.CONNECTED, 0x0100000000000001, 5.0)
    assert session.dead_after < 5.0
    assert session.ping_every < session.dead_after / 2


def test_the_next_handshake_goes_on_with_it() -> None:
    session = connected()
    session.note_zxid(7)
    session.note_zxid(5)
    asked = ConnectRequest.decode(session.connect_request())
    assert (asked.session_id, asked.passwd, asked.last_zxid_seen) == (session.session_id, FRESH[20:36], 7)
    assert session.connected(FRESH)


def test_a_server_before_3_4_sends_no_flag() -> None:
    assert not Session(10.0).connected(FRESH[:36])


def test_time_out_0_is_an_expired_session() -> None:
    session = connected()
    with pytest.raises(SessionExpired):
        session.connected(bytes.fromhex("00000000 00000000 0000000000000000 00000010") + bytes(17))
    assert session.state is State.EXPIRED
    ended, session = session, session.next()
    assert (ended.state, ended.session_id) == (State.EXPIRED, 0x0100000000000001)
    assert ConnectRequest.decode(session.connect_request()).session_id == 0
    assert not session.connected(FRESH[:-1] + b"\1")
    assert session.state is State.CONNECTED_READ_ONLY
    assert ConnectRequest.decode(session.connect_request()).session_id == 0, "it never was at a server with a quorum"


def test_another_session_than_ours_is_an_expired_session() -> None:
    session = connected()
    other = FRESH.replace(bytes.fromhex("0100000000000001"), bytes.fromhex("0100000000000002"))
    with pytest.raises(SessionExpired):
        session.connected(other)


def test_a_read_only_server_refuses_with_a_reply_header() -> None:
    with pytest.raises(NotReadOnly):
        Session(10.0).connected(bytes.fromhex("00000000 0000000000000000 ffffff89"))


@pytest.mark.parametrize("size", [0, 1, 15, 17, 35, 38, 100])
def test_other_sizes_are_no_answer(size: int) -> None:
    with pytest.raises(Malformed):
        Session(10.0).connected(bytes(size))


# -- watches --------------------------------------------------------------------------------------------------------------


def test_an_event_calls_whom_it_concerns_once() -> None:
    table = WatchTable()
    called: dict[str, Any] = {name: (lambda event, name=name: name) for name in "abcdefg"}
    table.add(DATA, "/n", called["a"])
    table.add(DATA, "/n", called["a"])
    table.add(EXIST, "/n", called["b"])
    table.add(CHILD, "/n", called["c"])
    table.add(PERSISTENT, "/n", called["d"])
    table.add(RECURSIVE, "/", called["e"])
    table.add(RECURSIVE, "/n", called["f"])
    table.add(DATA, "/n/below", called["g"])

    def fire(kind: int, path: str) -> str:
        return "".join(sorted(callback(None) for callback in table.fire(kind, path)))

    assert fire(4, "/n") == "cd"
    assert fire(3, "/n") == "abdef"
    assert fire(3, "/n") == "def"
    assert fire(2, "/n/below") == "efg"
    assert fire(1, "/nothing") == "e"
    assert fire(7, "/n") == "df"
    assert fire(2, "/n") == "e"
    assert [callback(None) for callback in table.clear()] == ["e"]
    assert not table.clear()


def test_watches_are_armed_again_in_packets_below_the_limit() -> None:
    table = WatchTable()
    paths = [f"/{number:04d}" + "x" * 200 for number in range(2000)]
    for number, path in enumerate(paths):
        table.add((DATA, EXIST, CHILD)[number % 3], path, print)
    packets = list(table.rearm(99))
    assert all(type(packet) is SetWatches and packet.relative_zxid == 99 and len(packet.encode()) <= PACKET + 100 for packet in packets)
    sent = [path for packet in packets for path in (*packet.data_watches, *packet.exist_watches, *packet.child_watches)]
    assert sorted(sent) == paths
    assert len(packets) == 4
    table.add(RECURSIVE, "/all", print)
    newer = list(table.rearm(99))
    assert all(type(packet) is SetWatches2 for packet in newer)
    assert newer[-1].persistent_recursive_watches == ("/all",)
    assert list(WatchTable().rearm(0)) == []


@pytest.mark.parametrize(("size", "packets"), [(16, 1), (15, 2)])
def test_a_packet_of_watches_may_be_full(size: int, packets: int) -> None:
    """A path counts as if each of its characters took three bytes until it is in the packet."""
    table = WatchTable()
    for path in ("/a", "/b"):
        table.add(DATA, path, print)
    assert len(list(table.rearm(0, size))) == packets


# -- queue ----------------------------------------------------------------------------------------------------------------


def test_names_of_messages() -> None:
    names = ["entry-100-0000000002", "entry-001-0000000003", "entry-100-0000000001", "lock", "entry-1-0000000001", "entry-100--2147483648"]
    assert [entry.sequence for entry in layout.by_sequence(names)] == [1, 2, 3, 1 << 31]
    assert [entry.sequence for entry in layout.by_priority(names)] == [3, 1, 2, 1 << 31]
    assert layout.queue_path("jobs") == "/jobs" == layout.queue_path("/jobs")
    with pytest.raises(OptionError):
        layout.entry_prefix(1000)


def test_where_a_queue_ends() -> None:
    assert layout.next_sequence(Stat(cversion=0, num_children=0)) == 0
    assert layout.next_sequence(Stat(cversion=5, num_children=5)) == 5
    assert layout.next_sequence(Stat(cversion=8, num_children=2)) == 5  # five came, three went


def test_positions_resolve() -> None:
    here = LogOffset("jobs", 0, 3)
    assert [layout.resolve(where, "jobs", 9) for where in (EARLIEST, LATEST, here, {("jobs", 0): here}, {})] == [0, 9, 3, 3, 0]
    assert layout.resolve(AtTime(5), "jobs", 9) == AtTime(5)
    for wrong in (LogOffset("jobs", 1, 3), LogOffset("other", 0, 3), {("other", 0): here}):
        with pytest.raises(UsageError):
            layout.resolve(wrong, "jobs", 9)


# -- multi ----------------------------------------------------------------------------------------------------------------


def test_a_failed_multi_names_its_culprit() -> None:
    items = [multi.Set("/a", b""), multi.Delete("/b", 3), multi.Create("/c")]
    request = multi.request(items, Chroot())
    part = "ffffffff 00 {0} {0}"
    reply = bytes(16) + bytes.fromhex(part.format("00000000") + part.format("ffffff99") + part.format("fffffffe") + "ffffffff 01 ffffffff")
    with pytest.raises(BadVersion) as failed:
        request.read(reply)
    assert (failed.value.index, failed.value.node) == (1, "/b")
    assert [getattr(result, "code", None) for result in failed.value.results] == [None, -103, -2]
    for end in range(16, len(reply)):
        with pytest.raises((ProtocolError, BadVersion)) as cut:
            request.read(reply[:end])
        assert isinstance(cut.value, ProtocolError)


def test_more_or_fewer_results_than_operations_are_refused() -> None:
    end = bytes.fromhex("ffffffff 01 ffffffff")
    one = bytes.fromhex("00000002 00 00000000")
    request = multi.request([multi.Delete("/a")], Chroot())
    assert request.read(bytes(16) + one + end) == [None]
    for wrong in (end, one * 2 + end, one, one + end + b"\0"):
        with pytest.raises(ProtocolError):
            request.read(bytes(16) + wrong)


def test_reads_and_writes_do_not_mix() -> None:
    with pytest.raises(ValueUnsupported):
        multi.request([multi.Get("/a"), multi.Delete("/a")], Chroot())


def test_kinds_of_node_that_exclude_each_other() -> None:
    kinds = ({"ephemeral": True, "ttl": 1.0}, {"container": True, "sequence": True}, {"ephemeral": True, "container": True}, {"ttl": 0.0})
    for kind in kinds:
        with pytest.raises(ValueUnsupported):
            operations.create_record("/a", b"", **kind)  # type: ignore[arg-type]
    with pytest.raises(ValueUnsupported):
        operations.create_record("/a", "text")  # type: ignore[arg-type]
    with pytest.raises(ValueUnsupported):
        operations.create_record("/a", b"", acl=[])


EVERY = (DATA, EXIST, CHILD, PERSISTENT, RECURSIVE)


@pytest.mark.parametrize(
    ("event", "told", "left"),
    [
        (EventType.NODE_CREATED, (DATA, EXIST, PERSISTENT, RECURSIVE), (CHILD, PERSISTENT, RECURSIVE)),
        (EventType.NODE_DATA_CHANGED, (DATA, EXIST, PERSISTENT, RECURSIVE), (CHILD, PERSISTENT, RECURSIVE)),
        (EventType.NODE_DELETED, EVERY, (PERSISTENT, RECURSIVE)),
        (EventType.NODE_CHILDREN_CHANGED, (CHILD, PERSISTENT), (DATA, EXIST, PERSISTENT, RECURSIVE)),
        (EventType.DATA_WATCH_REMOVED, (DATA, EXIST), (CHILD, PERSISTENT, RECURSIVE)),
        (EventType.CHILD_WATCH_REMOVED, (CHILD,), (DATA, EXIST, PERSISTENT, RECURSIVE)),
        (EventType.PERSISTENT_WATCH_REMOVED, (PERSISTENT, RECURSIVE), (DATA, EXIST, CHILD)),
    ],
)
def test_an_event_concerns_the_watches_of_its_kinds(event: EventType, told: tuple[str, ...], left: tuple[str, ...]) -> None:
    table = WatchTable()
    for kind in EVERY:
        table.add(kind, "/n", lambda _, kind=kind: kind)  # type: ignore[misc]
    assert sorted(callback(None) for callback in table.fire(int(event), "/n")) == sorted(told)  # type: ignore[arg-type]
    assert tuple(kind for kind in EVERY if table.has("/n", (kind,))) == left
