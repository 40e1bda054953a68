"""Look-ups and dialling: what is shared, what is closed, what the failures say; and the corners of the mechanisms."""

from __future__ import annotations

import base64
import errno
import gc
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patience import until
from wireproto._net import Loop
from wireproto.auth.oauth import OAuthBearer
from wireproto.auth.plain import Plain
from wireproto.auth.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Scram
from wireproto.auth.secrets import Secret
from wireproto.auth.token import Basic, Token
from wireproto.errors import AuthError, ConnectError, OptionError, TimedOut, Unreachable
from wireproto.net import address, dial
from wireproto.net.task import Steps, Tasks
from wireproto.url import Address

IN_TIME = 10.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen(8)
        yield made


def resolve(where: Address, seconds: float = IN_TIME) -> list[address.SocketAddress]:
    """Look a name up, in this thread."""
    loop = Loop("look-up")
    try:
        until = time.monotonic() + seconds
        return Tasks(loop).drive(address.resolving(loop, where, until), until)
    finally:
        loop.close()


def finds(places: list[address.SocketAddress]) -> Any:
    """A look-up that finds these."""

    def steps(*_: Any) -> Steps[list[address.SocketAddress]]:
        yield from ()
        return list(places)

    return steps


def closed_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("host", "family", "found"),
    [
        ("127.0.0.1", socket.AF_INET, ("127.0.0.1", 5)),
        ("::1", socket.AF_INET6, ("::1", 5, 0, 0)),
    ],
)
def test_an_address_in_text_is_not_looked_up(host: str, family: int, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("asked"))
    assert resolve((host, 5)) == [(family, found)]
    assert address.literal("fe80::1%eth0", 5) is None, "the system knows what a scope is"
    assert address.literal("localhost", 5) is None


def test_look_ups_of_one_name_at_once_are_one_and_the_next_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    go = threading.Event()

    def getaddrinfo(host: str, port: int, type: int) -> Any:  # noqa: A002
        asked.append(host)
        assert type == socket.SOCK_STREAM
        go.wait(IN_TIME)
        return [(socket.AF_INET, type, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(resolve(("h.test", 7)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: ("h.test", 7) in address._running and len(address._running["h.test", 7].waiting) == 4, "not all have joined it")
    with pytest.raises(TimedOut, match=r"h\.test was not resolved in time") as late:
        resolve(("h.test", 7), 0.05)
    assert late.value.peer == "h.test:7"
    go.set()
    for thread in threads:
        thread.join(IN_TIME)
    assert found == [[(socket.AF_INET, ("127.0.0.1", 7))]] * 4
    assert asked == ["h.test"]
    assert ("h.test", 7) not in address._running, "what was found is kept for good"
    resolve(("h.test", 7))
    assert asked == ["h.test"] * 2


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (socket.gaierror(-2, "Name or service not known"), "does not resolve: Name or service not known"),
        (UnicodeError("label too long"), "does not resolve: label too long"),
        (OSError("odd"), "does not resolve: odd"),
        (None, "does not resolve: no address"),
    ],
)
def test_a_name_without_an_address_says_why(failure: Exception | None, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        if failure is not None:
            raise failure
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(ConnectError, match=text) as refused:
        resolve(("nobody.test", 7))
    assert refused.value.peer == "nobody.test:7"


def test_only_where_all_have_refused_is_it_of_no_use_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be connected to by the address of everybody: that fails at once, and not by a refusal."""
    nobody, everybody = (socket.AF_INET, ("127.0.0.1", closed_port())), (socket.AF_INET, ("255.255.255.255", 9))
    for ways, hopeless in (([nobody], True), ([everybody], False), ([nobody, everybody], False), ([everybody, nobody], False)):
        monkeypatch.setattr(dial, "resolving", finds(ways))
        with pytest.raises(ConnectError) as failed:
            dial.dial(("h", 1), time.monotonic() + IN_TIME)
        assert isinstance(failed.value, Unreachable) == hopeless


ZERO = """
import os, sys, time
from wireproto._net import Loop
from wireproto.net.dial import Progress, dialling
from wireproto.net.task import Tasks
loop, until = Loop("zero"), time.monotonic() + 20.0
os.close(0)
sock = Tasks(loop).drive(dialling(loop, ("127.0.0.1", int(sys.argv[1])), until, Progress()), until)
assert sock.detach() == 0
"""


def test_a_program_without_standard_input_dials_too(listener: socket.socket) -> None:
    """The connection may get the number zero."""
    done = subprocess.run([sys.executable, "-c", ZERO, str(listener.getsockname()[1])], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_was_begun_and_not_used_is_closed(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    port = listener.getsockname()[1]
    ways = [(socket.AF_INET, ("127.0.0.1", closed_port())), (socket.AF_INET, ("127.0.0.1", port))]
    monkeypatch.setattr(dial, "resolving", finds(ways))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        sock = dial.dial(("h", 1), time.monotonic() + IN_TIME)
        assert sock.getpeername()[1] == port
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not sock.getblocking()
        sock.close()
        gc.collect()
    monkeypatch.setattr(dial, "resolving", finds(ways[:1]))
    with pytest.raises(ConnectError, match="connection refused: nothing listens there"):
        dial.dial(("h", 1), time.monotonic() + IN_TIME)
    monkeypatch.setattr(dial, "resolving", finds([]))
    with pytest.raises(ConnectError, match="there is no address to connect to"):
        dial.dial(("h", 1), time.monotonic() + IN_TIME)


class Failing(socket.socket):
    """A socket whose connection fails at once."""

    code = 0

    def connect_ex(self, where: Any) -> int:
        return self.code


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.EHOSTUNREACH, "unreachable: No route to host"),
        (errno.ENETUNREACH, "unreachable: Network is unreachable"),
        (errno.ETIMEDOUT, "no answer: the host does not reply"),
        (errno.ECONNREFUSED, "connection refused"),
        (errno.EACCES, "cannot connect: Permission denied"),
    ],
)
def test_each_failure_is_told_in_words_and_the_next_address_is_tried(
    code: int, text: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(entry: Any) -> socket.socket:
        if entry[1][1] != 1:
            return plain(entry)
        sock = Failing(socket.AF_INET, socket.SOCK_STREAM)
        sock.code = code
        return sock

    plain = dial._begin
    monkeypatch.setattr(dial, "_begin", begin)
    bad, good = (socket.AF_INET, ("127.0.0.1", 1)), (socket.AF_INET, listener.getsockname())
    monkeypatch.setattr(dial, "resolving", finds([bad]))
    with pytest.raises(ConnectError, match=text):
        dial.dial(("h", 1), time.monotonic() + IN_TIME)
    monkeypatch.setattr(dial, "resolving", finds([bad, good]))
    began = time.monotonic()
    dial.dial(("h", 1), began + IN_TIME).close()
    assert time.monotonic() - began < dial.HEAD_START * 20


def test_a_socket_that_the_system_will_not_give_is_a_connect_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(entry: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(dial, "_begin", begin)
    with pytest.raises(ConnectError, match="cannot connect: Too many open files") as refused:
        dial.dial(("127.0.0.1", 1), time.monotonic() + IN_TIME)
    assert refused.value.peer == "127.0.0.1:1"


# mechanisms


def test_plain_is_one_message() -> None:
    plain = Plain("u", Secret("p"), "other")
    assert not plain.done
    assert plain.start() == b"other\0u\0p"
    assert plain.done
    assert plain.step(b"") == b""
    with pytest.raises(AuthError, match="a further challenge, which PLAIN"):
        plain.step(b"?")
    for user, password, other in (("u\0", "p", ""), ("u", "p\0", ""), ("u", "p", "\0")):
        with pytest.raises(OptionError, match="NUL"):
            Plain(user, Secret(password), other).start()


def test_basic_and_token_say_the_same_again_when_asked() -> None:
    basic, token = Basic("u", Secret("p:q")), Token(Secret("abc"))
    assert basic.start() == basic.step(b"?") == b"u:p:q"
    assert token.start() == token.step(b"?") == b"abc"
    assert basic.done
    assert token.done
    with pytest.raises(OptionError, match="colon"):
        Basic("u:v", Secret("p"))


def test_a_token_that_is_none_is_not_sent() -> None:
    assert OAuthBearer(Secret("a-._~+/b=="), {"x": "y z"}, "a,b=c").start() == b"n,a=a=2Cb=3Dc,\x01auth=Bearer a-._~+/b==\x01x=y z\x01\x01"
    for wrong in ("", "a b", "ü", "a=b"):
        with pytest.raises(OptionError, match="empty or holds characters"):
            OAuthBearer(Secret(wrong)).start()
    for pairs in ({"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "\x01"}):
        with pytest.raises(OptionError, match="cannot be sent"):
            OAuthBearer(Secret("abc"), pairs)


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b'{"status": "a", "scope": "s", "openid-configuration": "u", "else": 1}', "status a, scope s, openid-configuration u"),
        (b'{"scope": "", "status": "x"}', "status x"),
        (b"no json", "no json"),
        (b'["a"]', r'\["a"\]'),
        (b"\xff" + b"x" * 300, "\ufffdx{199}$"),
    ],
)
def test_a_servers_refusal_of_a_token_is_one_line(challenge: bytes, said: str) -> None:
    bearer = OAuthBearer(Secret("abc"))
    bearer.start()
    assert bearer.step(b"") == b""
    with pytest.raises(AuthError, match=f"the server refused the token: {said}"):
        bearer.step(challenge)


def first_of(rounds: Any, nonce: str = "abcdef", salt: bytes = b"salt") -> bytes:
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={rounds}".encode()


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (first_of(LEAST_ITERATIONS - 1), "iterations"),
        (first_of(MOST_ITERATIONS + 1), "iterations"),
        (first_of("٤٠٩٦"), "has no salt or no number of iterations"),
        (first_of(4096, salt=b""), "has no salt or no number of iterations"),
        (first_of(4096, nonce="abc"), "does not begin with the client's"),
        (b"r=abcdef,s=%%,i=4096", "bad base64"),
        (b"e=other-error", "the server refused: other-error"),
        (b"m=x,r=abcdef", "an extension|extension that is not known"),
        (b"r", "malformed"),
        (b"rr=abcdef", "malformed"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_servers_first_scram_message_that_cannot_be(challenge: bytes, text: str) -> None:
    scram = Scram("sha256", "u", Secret("p"), "abc")
    scram.start()
    with pytest.raises(AuthError, match=text):
        scram.step(challenge)


def test_scrams_limits_are_within() -> None:
    scram = Scram("sha256", "u", Secret("p"), "abc")
    assert scram.step(first_of(LEAST_ITERATIONS)).startswith(b"c=biws,r=abcdef,p=")
    with pytest.raises(AuthError, match="refused: invalid-proof"):
        scram.step(b"e=invalid-proof")
    with pytest.raises(AuthError, match="signature is wrong"):
        scram.step(b"v=AAAA")
    for wrong in ("", "a,b", "ü", "a\n"):
        with pytest.raises(OptionError, match="nonce"):
            Scram("sha256", "u", Secret("p"), wrong)
    with pytest.raises(OptionError, match="sha256 and sha512, not 'sha1'"):
        Scram("sha1", "u", Secret("p"), "abc")
    assert [Scram(one, "u", Secret("p"), "abc").name for one in ("sha256", "sha512")] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_where_secrets_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S", "from env")
    (tmp_path / "s").write_bytes(b"from file\r\n")
    assert Secret("env:S").text() == "from env"
    assert Secret(f"file:{tmp_path / 's'}").reveal() == b"from file"
    assert Secret("value:env:S").text() == "env:S"
    assert Secret("value").text() == "value"
    assert Secret(lambda: b"called").text() == "called"
    assert Secret(b"\xff").reveal() == b"\xff"
    assert Secret(Secret("x")) == Secret("x")
    assert hash(Secret("x")) == hash(Secret("x"))
    assert Secret("x") != "x"
    assert [repr(Secret(one)) for one in ("env:S", "x", len)] == ["Secret('env:S')", "Secret(…)", "Secret(callable)"]
    with pytest.raises(OptionError, match="no variable 'NONE'"):
        Secret("env:NONE").text()
    with pytest.raises(OptionError, match="cannot read a secret from the file '/none': FileNotFoundError"):
        Secret("file:/none").text()
    (tmp_path / "bad").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(OptionError, match="UnicodeDecodeError"):
        Secret(f"file:{tmp_path / 'bad'}").text()
