"""Connects sockets under a deadline, in steps that wait without a thread.

After the look-up it connects to the addresses found, without blocking; the next attempt begins when one fails or is slow, and the first
connection that is made is taken. An error is one line with the cause: no such name, refused, unreachable, no answer. `dial` does the same
without a client. The module knows no protocol; `Loop.open` takes the socket over.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import sys
import time

from wireproto._net import Loop
from wireproto.errors import ConnectError, Disconnected, Unanswered, Unreachable, WireprotoError
from wireproto.url import Address

from .address import AddressMap, SocketAddress, resolving, translate, unresolved
from .task import Steps, Tasks, ready
from .tls import UNSHAKEN, TlsOptions, TlsStream, wrapping

HEAD_START = 0.25
"""Seconds after which the next address is tried while the one before has not answered yet."""
_RESET = (errno.ECONNRESET, errno.EPIPE)
_UNANSWERED = "no answer to the connection attempt in time"


class Progress:
    """How far a dialling is, for the error of a caller whose deadline comes before the dialling's own.

    Attributes:
        late: the text of an Unanswered that would be raised now.
        failed: the failure whose back-off is being waited for, or None.
    """

    __slots__ = ("failed", "late")

    def __init__(self) -> None:
        self.failed: WireprotoError | None = None
        self.late = _UNANSWERED


def peer_name(address: Address) -> str:
    """Return ``host:port``, with brackets round an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial(
    address: Address,
    deadline: float,
    *,
    address_map: AddressMap | None = None,
    tls: TlsOptions | None = None,
) -> socket.socket | TlsStream:
    """Run `dialling` in this thread, with a loop of its own, and return its result. Raises as `dialling`."""
    loop = Loop("dial")
    try:
        return Tasks(loop).drive(dialling(loop, address, deadline, Progress(), address_map=address_map, tls=tls), deadline)
    finally:
        loop.close()


def dialling(
    loop: Loop,
    address: Address,
    until: float,
    progress: Progress,
    *,
    address_map: AddressMap | None = None,
    tls: TlsOptions | None = None,
    context: ssl.SSLContext | None = None,
    places: list[SocketAddress] | None = None,
) -> Steps[socket.socket | TlsStream]:
    """Connect to `address`, and do the TLS handshake when `tls` is given.

    Args:
        loop: polls the sockets; the result is not opened on it.
        address: host and port, as advertised; `address_map` rewrites it first. TLS checks the name before the rewriting.
        until: `time.monotonic()` value.
        progress: updated as it proceeds.
        tls: options of the TLS handshake; None: no TLS.
        context: a context made from `tls` before, to be used again; None: made here.
        places: socket addresses to connect to, instead of looking the (rewritten) name up; see `connecting`.

    Returns:
        the connected socket, or the TLS stream after its handshake.

    Raises:
        ConnectError, TlsError, Unanswered, with the peer. Disconnected: the peer hung up during the TLS handshake.
    """
    target = translate(address, address_map)
    peer = peer_name(address) + ("" if target == address else f" (by way of {peer_name(target)})")
    try:
        if places is None:
            progress.late = unresolved(target[0])
            places = yield from resolving(loop, target, until)
        progress.late = _UNANSWERED
        sock = yield from connecting(loop, places, until)
        if tls is None:
            return sock
        progress.late = UNSHAKEN
        try:
            stream = yield from wrapping(loop, sock, address[0], tls, until, context)
        except BaseException:
            sock.close()
            raise
        return stream
    except WireprotoError as error:
        error.peer = peer
        raise


def connecting(loop: Loop, places: list[SocketAddress], until: float) -> Steps[socket.socket]:
    """Connect to the first address that answers; returns a non-blocking TCP socket with Nagle's algorithm off. Steps.

    Args:
        loop: polls the sockets. until: `time.monotonic()` value.
        places: socket addresses, best first. Those that were tried, with or without success, are removed: a host may accept the connection
            and not serve, and the caller then continues with the rest.

    Raises:
        Unreachable: every address refused. ConnectError: no address can be connected to. Unanswered: none answered in time.
    """
    begun: dict[int, tuple[socket.socket, SocketAddress]] = {}
    problem: OSError | None = None
    refused = True  # whether all addresses that were tried refused the connection
    next_at = 0.0
    try:
        while True:
            now = time.monotonic()
            if places and (now >= next_at or not begun):
                entry = places.pop(0)
                next_at = now + HEAD_START
                sock = _begin(entry)
                code = sock.connect_ex(entry[1])
                if code == 0:
                    return sock
                if code != errno.EINPROGRESS:
                    sock.close()
                    problem = OSError(code, os.strerror(code))
                    refused = refused and code == errno.ECONNREFUSED
                    continue
                begun[sock.fileno()] = sock, entry
            if not begun:
                reset = None
                if problem is not None and problem.errno in _RESET:
                    reset = Disconnected(_describe(problem), errno=problem.errno)
                raise (Unreachable if refused else ConnectError)(_describe(problem)) from reset
            if now >= until:
                raise Unanswered(_UNANSWERED)
            found = yield from ready(loop, begun, min(until, next_at) if places else until, writing=True)
            if found < 0:
                continue
            sock, entry = begun.pop(found)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                places[:0] = [place for _, place in begun.values()]
                return sock
            sock.close()
            problem = OSError(code, os.strerror(code))
            refused = refused and code == errno.ECONNREFUSED
            next_at = 0.0
    except WireprotoError:
        raise
    except OSError as error:
        raise ConnectError(_describe(error)) from None
    finally:
        for other, _ in begun.values():
            other.close()


def _begin(entry: SocketAddress) -> socket.socket:
    sock = socket.socket(entry[0], socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "darwin":
        sock.setsockopt(socket.SOL_SOCKET, 0x1022, 1)  # SO_NOSIGPIPE
    return sock


def was_reset(error: BaseException) -> bool:
    """Whether the peer accepted the connection and then reset it, while it was made or after the first request."""
    cause = error if isinstance(error, Disconnected) else error.__cause__
    return isinstance(cause, Disconnected) and cause.errno in _RESET


def _describe(problem: OSError | None) -> str:
    if problem is None:
        return "there is no address to connect to"
    if problem.errno == errno.ECONNREFUSED:
        return "connection refused: nothing listens there"
    if problem.errno in _RESET:
        return "the peer took the connection and reset it"
    if problem.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"unreachable: {problem.strerror}"
    if problem.errno == errno.ETIMEDOUT:
        return "no answer: the host does not reply"
    return f"cannot connect: {problem.strerror or problem}"
