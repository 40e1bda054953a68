"""Look-up, dialling, pool and client base on real sockets: every failure one line, within its time."""

from __future__ import annotations

import errno
import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from patience import KEPT, soon, until
from wireproto import _net
from wireproto._net import Connection, Event, Loop, Mailbox
from wireproto.errors import AuthError, Closed, ConnectError, Disconnected, TimedOut
from wireproto.net import address as address_module
from wireproto.net import debug
from wireproto.net.dial import Progress, dial, dialling, was_reset
from wireproto.net.options import CommonOptions
from wireproto.net.pool import Pool
from wireproto.net.retry import Policy
from wireproto.net.runtime import Runtime
from wireproto.net.task import Steps, Tasks, reply
from wireproto.url import Address


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ask(conn: Connection, verb: bytes, payload: bytes = b"", timeout: float = 20.0) -> bytes:
    token = conn.next_token()
    return conn.call(token, [struct.pack(">i", token), verb, payload], soon(timeout))[4:]


def test_refused_is_one_line_naming_the_peer() -> None:
    port = unused_port()
    with pytest.raises(ConnectError, match=rf"connection refused: nothing listens there \(peer 127\.0\.0\.1:{port}\)"):
        dial(("127.0.0.1", port), soon())


@pytest.mark.parametrize("how", ["reset", "closed"])
def test_an_error_has_the_systems_number_for_what_befell_the_connection(loop: Loop, listener: socket.socket, how: str) -> None:
    conn = loop.open(plain(("127.0.0.1", listener.getsockname()[1]), soon()), "peer", "kafka", 1 << 20)
    peer, _ = listener.accept()
    lost = Event(loop)
    conn.on_lost(lost.set)
    if how == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    lost.wait(soon())
    with pytest.raises(Disconnected) as caught:
        ask(conn, b"e")
    assert (caught.value.errno, was_reset(caught.value)) == ((errno.ECONNRESET, True) if how == "reset" else (None, False))
    assert not was_reset(Disconnected(os.strerror(errno.ECONNRESET))), "a text is no fact"


def test_the_map_is_shown_when_it_was_used() -> None:
    port = unused_port()
    with pytest.raises(ConnectError, match=rf"peer broker-1:9092 \(by way of 127\.0\.0\.1:{port}\)"):
        dial(("broker-1", 9092), soon(), address_map={"broker-1": f"127.0.0.1:{port}"})


def test_a_look_up_that_hangs_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    lookups: list[str] = []

    def hang(host: str, *rest: object, **more: object) -> list[object]:
        lookups.append(host)
        release.wait(10)
        raise OSError("released")

    monkeypatch.setattr(address_module.socket, "getaddrinfo", hang)
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimedOut, match=r"the name slow\.example was not resolved in time"):
            dial(("slow.example", 1), soon(0.1))
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT
    assert lookups == ["slow.example"], "one thread for one name, however often it is asked"
    release.set()


def finds(monkeypatch: pytest.MonkeyPatch, places: list[address_module.SocketAddress]) -> None:
    """Have every name resolve to these."""

    def steps(*_: object) -> Steps[list[address_module.SocketAddress]]:
        yield from ()
        return list(places)

    monkeypatch.setattr("wireproto.net.dial.resolving", steps)


def plain(where: Address, deadline: float) -> socket.socket:
    sock = dial(where, deadline)
    assert isinstance(sock, socket.socket)
    return sock


def test_a_dead_address_does_not_keep_from_the_next(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    dead = ("127.0.0.1", unused_port())
    found = [(socket.AF_INET, dead), (socket.AF_INET, ("127.0.0.1", port))]
    finds(monkeypatch, found)
    plain(("two.example", 1), soon()).close()


def test_a_silent_address_does_not_keep_from_the_next(monkeypatch: pytest.MonkeyPatch, port: int, listener: socket.socket) -> None:
    listener.listen(0)
    fillers = []
    for _ in range(3):  # fill its queue: further attempts are not answered
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    silent = listener.getsockname()
    finds(monkeypatch, [(socket.AF_INET, silent), (socket.AF_INET, ("127.0.0.1", port))])
    begin = time.monotonic()
    plain(("two.example", 1), soon()).close()
    assert time.monotonic() - begin < 0.5 + KEPT
    finds(monkeypatch, [(socket.AF_INET, silent)])
    begin = time.monotonic()
    with pytest.raises(TimedOut, match="no answer to the connection attempt"):
        plain(("one.example", 1), soon(0.2))
    assert 0.2 <= time.monotonic() - begin < 0.2 + KEPT
    for filler in fillers:
        filler.close()


Handshake = Callable[[Connection, float], Steps[object]]


class Opener:
    """Steps that open a real connection, and then a handshake for which there are 20 seconds. Counts its work."""

    def __init__(self, loop: Loop, port: int, handshake: Handshake | None = None) -> None:
        self.loop, self.port, self.handshake = loop, port, handshake
        self.dialled: list[Address] = []

    def __call__(self, address: Address, progress: Progress) -> Steps[Connection]:
        self.dialled.append(address)
        stream = yield from dialling(self.loop, ("127.0.0.1", self.port), soon(), progress)
        conn = self.loop.open(stream, f"{address[0]}:{address[1]}", "kafka", 1 << 20)
        progress.late = "the handshake is not over"
        if self.handshake is not None:
            try:
                yield from self.handshake(conn, soon())
            except BaseException:
                conn.close()
                raise
        return conn


def asking(conn: Connection, verb: bytes, payload: bytes = b"") -> Steps[bytes]:
    """`ask`, as steps."""
    token = conn.next_token()
    frame = yield from reply(conn.submit(token, [struct.pack(">i", token), verb, payload], timeout_at=soon()), soon())
    return frame[4:]


def test_the_pool_keeps_one_connection_for_each_purpose(loop: Loop, port: int) -> None:
    dialler = Opener(loop, port)
    pool = Pool(Tasks(loop), dialler)
    one = pool.get(("a", 1), "main", soon())
    assert pool.get(("a", 1), "main", soon()) is one
    assert pool.get(("a", 1), "bulk", soon()) is not one
    assert pool.get(("b", 1), "main", soon()) is not one
    assert len(dialler.dialled) == 3
    pool.drop(one)
    assert one.closed
    assert pool.peek(("a", 1)) is None
    assert pool.get(("a", 1), "main", soon()) is not one


def test_who_wants_to_dial_what_has_just_been_dialled_gets_that_connection(loop: Loop, port: int) -> None:
    opener = Opener(loop, port)
    pool = Pool(Tasks(loop), opener)
    conn = pool.get(("a", 1), "main", soon())
    assert pool.dial(("a", 1)).wait(soon()) is conn
    assert len(opener.dialled) == 1
    assert loop.connections == [conn]


def test_a_connection_that_is_lost_at_once_is_given_out_as_it_is(loop: Loop, port: int) -> None:
    """And not dialled again and again within the call, however long its time."""

    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        yield from asking(conn, b"e")
        conn.close("gone")

    opener = Opener(loop, port, handshake)
    assert Pool(Tasks(loop), opener).get(("a", 1), "main", soon()).closed
    assert len(opener.dialled) == 1


def test_a_worn_connection_is_given_to_nobody_and_closed_when_nothing_is_under_way_on_it(loop: Loop, port: int) -> None:
    expiring: set[Connection] = set()
    pool = Pool(Tasks(loop), Opener(loop, port), expiring=expiring.__contains__)
    first = pool.get(("a", 1), "main", soon())
    token = first.next_token()
    call = first.submit(token, [struct.pack(">i", token), b"d", struct.pack(">I", 1000)])  # answered in a second
    expiring.add(first)
    assert pool.peek(("a", 1)) is None
    second = pool.get(("a", 1), "main", soon())
    assert second is not first
    assert call.wait(soon()), "who has something under way there keeps it until then"
    assert call.error is None
    until(lambda: loop.connections == [second], "it is closed")


def test_a_connection_that_is_made_while_its_purpose_is_forgotten_is_closed(loop: Loop, port: int) -> None:
    """The dialling is through its last wait by then, so that no cancellation reaches it."""

    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        yield from asking(conn, b"e")
        pool.forget("bulk 1", "the role was closed")

    pool = Pool(Tasks(loop), Opener(loop, port, handshake))
    main = pool.get(("a", 1), "bulk 2", soon())  # forgets the other one's
    pool.dial(("a", 1), "bulk 1").ready_by(soon())
    until(lambda: loop.connections == [main], "a connection of a purpose that is forgotten stays")
    assert pool.peek(("a", 1), "bulk 1") is None
    assert not main.closed


def test_threads_share_one_dialling(loop: Loop, port: int) -> None:
    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        assert (yield from asking(conn, b"d", struct.pack(">I", 50))) != b""

    dialler = Opener(loop, port, handshake)
    pool = Pool(Tasks(loop), dialler)
    got: list[Connection] = []
    threads = [threading.Thread(target=lambda: got.append(pool.get(("a", 1), "main", soon()))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(got) == 6
    assert len(set(map(id, got))) == 1
    assert len(dialler.dialled) == 1


def test_a_refused_handshake_closes_and_is_not_given_out(loop: Loop, port: int) -> None:
    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        yield from ()
        raise AuthError("no", code=58, name="SASL_AUTHENTICATION_FAILED")

    pool = Pool(Tasks(loop), Opener(loop, port, handshake))
    with pytest.raises(AuthError):
        pool.get(("a", 1), "main", soon())
    assert loop.connections == []


def test_the_pool_backs_off_an_address_that_fails(loop: Loop) -> None:
    begun: list[float] = []

    class Begun(Opener):
        def __call__(self, address: Address, progress: Progress) -> Steps[Connection]:
            begun.append(time.monotonic())
            return super().__call__(address, progress)

    def fail(pool: Pool, seconds: float) -> float:
        begin = time.monotonic()
        with pytest.raises((ConnectError, TimedOut)):
            pool.get(("a", 1), "main", begin + seconds)
        return begin

    pool = Pool(Tasks(loop), Begun(loop, unused_port()))
    begin = fail(pool, 20.0)
    for _ in range(3):
        fail(pool, 20.0)
    assert time.monotonic() - begin > 0.2
    patient = Pool(Tasks(loop), Begun(loop, unused_port()), policy=Policy(first=60.0, ceiling=60.0))
    fail(patient, 20.0)
    begun.clear()
    begin = fail(patient, 3.0)
    assert len(begun) == 1
    assert begin + 1.5 <= begun[0], "a pause that does not fit into the deadline is not sat out: the attempt has half of the time"
    with pytest.raises(ConnectError, match=r"connection refused: nothing listens there \(peer 127\.0\.0\.1:\d+\)"):
        patient.get(("a", 1), "main", soon(0.2))  # time for the I/O thread to begin, and less than `BRIEF`
    assert patient.dialling(("a", 1)), "callers in a hurry do not bring the next attempt on"


def unanswered(conn: Connection, asked: list[Connection]) -> Steps[None]:
    """A handshake that waits for `answer_all`; `asked` has its connection from when that has something to answer."""
    token = conn.next_token()
    call = conn.submit(token, [struct.pack(">i", token), b"q"], timeout_at=soon())
    asked.append(conn)
    yield from reply(call, soon())


def answer_all(conn: Connection) -> None:
    """Have what the server remembers answered."""
    token = conn.next_token()
    conn.submit(token, [struct.pack(">i", token), b"a"])


def test_a_waiter_outlives_the_short_deadline_of_who_began_the_dialling(loop: Loop, port: int) -> None:
    begun = threading.Event()
    asked: list[Connection] = []

    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        begun.set()
        yield from unanswered(conn, asked)

    pool = Pool(Tasks(loop), Opener(loop, port, handshake))
    failed: list[BaseException] = []

    def impatient() -> None:
        try:
            pool.get(("a", 1), "main", soon(1.5))
        except TimedOut as error:
            failed.append(error)
        answer_all(asked[0])

    thread = threading.Thread(target=impatient)
    thread.start()
    assert begun.wait(20)
    assert not pool.get(("a", 1), "main", soon()).closed
    thread.join(20)
    assert [str(one) for one in failed] == ["the handshake is not over (peer a:1)"]


def test_a_dialling_goes_on_behind_short_calls(loop: Loop, port: int) -> None:
    begun: list[float] = []
    asked: list[Connection] = []

    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        begun.append(deadline - time.monotonic())
        yield from unanswered(conn, asked)

    pool = Pool(Tasks(loop), Opener(loop, port, handshake))
    tries, deadline = 0, soon()
    while True:
        tries += 1
        try:
            conn = pool.get(("a", 1), "main", soon(0.05))
        except TimedOut:
            assert time.monotonic() < deadline
            assert pool.dialling(("a", 1)) or pool.peek(("a", 1)) is not None
            if tries >= 3 and asked:
                answer_all(asked.pop())
            continue
        break
    assert not conn.closed
    until(lambda: not pool.dialling(("a", 1)))  # it is there a moment before its task has ended
    assert tries > 1
    assert len(begun) == 1, "one dialling served them all"
    assert begun[0] > 10.0


def test_a_dialling_that_fails_behind_short_calls_is_told(loop: Loop, port: int) -> None:
    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        yield from asking(conn, b"d", struct.pack(">I", 100))
        raise AuthError("no", code=58, name="SASL_AUTHENTICATION_FAILED")

    pool = Pool(Tasks(loop), Opener(loop, port, handshake))
    for _ in range(500):
        try:
            pool.get(("a", 1), "main", soon(0.03))
        except TimedOut:
            continue
        except AuthError:
            break
    else:
        pytest.fail("nobody was told")
    assert loop.connections == []


def test_dialling_takes_no_thread_but_the_io_thread(loop: Loop, port: int) -> None:
    threads: set[str] = set()

    def handshake(conn: Connection, deadline: float) -> Steps[None]:
        yield from asking(conn, b"d", struct.pack(">I", 50))
        threads.update(thread.name for thread in threading.enumerate() if thread.name.startswith("wireproto"))

    before = {thread.name for thread in threading.enumerate()}
    pool = Pool(Tasks(loop), Opener(loop, port, handshake))
    dials = [pool.dial(("a", number)) for number in range(1, 21)]
    conns = [one.wait(soon()) for one in dials]
    assert len({id(conn) for conn in conns}) == 20
    assert threads - before == {"wireproto-io test"}


def test_a_client_that_is_closed_while_it_dials_leaves_no_socket_and_tells_who_waits(port: int, listener: socket.socket) -> None:
    listener.listen(0)
    fillers = []
    for _ in range(3):  # fill its queue: further attempts are not answered
        fillers.append(socket.socket())
        fillers[-1].setblocking(False)
        fillers[-1].connect_ex(listener.getsockname())
    loop = Loop("closing")
    pool = Pool(Tasks(loop), Opener(loop, listener.getsockname()[1]))
    task = pool.dial(("a", 1))
    closing_ = threading.Timer(0.1, loop.close)
    closing_.start()
    begin = time.monotonic()
    with pytest.raises(Closed):
        pool.get(("a", 1), "main", soon())
    assert time.monotonic() - begin < KEPT
    closing_.join(20)
    assert task.done
    gc.collect()  # a socket that was forgotten is a ResourceWarning, and that an error
    for filler in fillers:
        filler.close()


class Client(Runtime[CommonOptions]):
    protocol = "kafka"

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        token = conn.next_token()
        yield from reply(conn.submit(token, struct.pack(">i", token) + b"e", timeout_at=until), until)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", r"dropped the connection at the first request: is this a kafka port or does it want TLS\?"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a kafka port: .*an HTTP server answers"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "not a kafka port: .*the peer speaks TLS"),
        (b"SSH-2.0-OpenSSH_9\r\n", "an SSH server answers"),
    ],
)
def test_another_protocols_port_is_named(listener: socket.socket, answer: bytes, text: str) -> None:
    def serve() -> None:
        peer, _ = listener.accept()
        peer.recv(100)
        peer.sendall(answer)
        peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with closing(Client(CommonOptions())) as client, pytest.raises(ConnectError, match=text):
        client.pool.get(listener.getsockname(), "main", soon())
    thread.join(5)


def test_a_port_that_never_answers_is_named_in_time(listener: socket.socket) -> None:
    with closing(Client(CommonOptions(connect_timeout=0.5))) as client:
        begin = time.monotonic()
        with pytest.raises(TimedOut, match="not answered in time: is this a kafka port"):
            client.pool.get(listener.getsockname(), "main", soon())
        assert time.monotonic() - begin < 0.5 + KEPT


def test_a_server_that_answers_no_more_is_not_taken_for_another_protocols(listener: socket.socket) -> None:
    def serve() -> None:
        peer, _ = listener.accept()
        peer.sendall(peer.recv(100))
        peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with closing(Client(CommonOptions(connect_timeout=1.5))) as client:  # in which `serve` is to answer, too
        gone = client.pool.get(listener.getsockname(), "main", soon())
        thread.join(5)
        until(lambda: gone.closed)
        with pytest.raises(TimedOut, match="not answered in time: the server answered before, and hangs now"):
            client.pool.get(listener.getsockname(), "main", soon())


def test_a_client_retries_reads_meanwhile_and_ends_when_closed(port: int) -> None:
    client = Client(CommonOptions())
    tries: list[int] = []

    def attempt() -> bytes:
        tries.append(1)
        if len(tries) < 3:
            raise Disconnected("again")
        return ask(client.pool.get(("127.0.0.1", port), "main", soon()), b"e", b"third")

    assert client.retry(attempt, soon()) == b"third"
    threading.Timer(0.05, client.close).start()
    begin = time.monotonic()
    with pytest.raises(Closed):
        client.pause(10)
    assert time.monotonic() - begin < KEPT
    with pytest.raises(Closed):
        client.pool.get(("127.0.0.1", port), "main", soon())


def test_the_wire_log_shows_frames_and_hides_secrets(loop: Loop, port: int) -> None:
    lines: list[str] = []
    done = Event(loop)

    def write(text: str) -> None:
        lines.append(text)
        if b"last".hex(" ") in text and " < " in text:
            done.set()

    debug.watch(loop, write)
    conn = loop.open(dial(("127.0.0.1", port), soon()), "the-peer", "kafka", 1 << 20)
    conn.call(1, struct.pack(">i", 1) + b"ehunter2", soon(), secret=True)
    ask(conn, b"e", b"last")
    done.wait(soon())
    assert any("> the-peer 12 bytes, secret" in line for line in lines)
    assert any("< the-peer 11 bytes, secret" in line for line in lines)  # a session's password comes in a reply
    assert not any("hunter2" in line for line in lines)
    assert any("> the-peer" in line and "....elast" in line for line in lines)


PING = bytes.fromhex("00000009 00000005 0812 920100")
PONG = bytes.fromhex("00000009 00000005 0813 9a0100")


def test_pulsars_ping_is_answered_while_nobody_calls(loop: Loop, listener: socket.socket) -> None:
    conn = loop.open(dial(listener.getsockname(), soon()), "p", "pulsar", 1 << 20)
    peer, _ = listener.accept()
    peer.settimeout(20)
    for _ in range(3):
        peer.sendall(PING)
        assert peer.recv(100) == PONG
    box = Mailbox(loop)
    conn.route(_net.SERVICE, box)
    command = bytes.fromhex("0803 1a03 0a0178")  # CONNECTED, server_version "x"
    peer.sendall(struct.pack(">II", 4 + len(command), len(command)) + command + PING)
    push = box.get(soon())
    assert push.channel == _net.SERVICE
    assert push.frame == struct.pack(">I", len(command)) + command
    assert push.conn is conn
    assert peer.recv(100) == PONG
    peer.close()


def test_an_unroutable_push_and_an_unreadable_frame(loop: Loop, listener: socket.socket) -> None:
    conn = loop.open(dial(listener.getsockname(), soon()), "p", "rocketmq", 1 << 20)
    peer, _ = listener.accept()
    lost = Event(loop)
    conn.on_lost(lost.set)
    header = b'{"code":40,"flag":0,"opaque":1}'
    peer.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)  # nobody wants it
    peer.sendall(struct.pack(">II", 4, 99))
    assert "no message of this protocol" in str(lost.wait(soon()))
    peer.close()
