"""A connected socket, under a deadline.

What it is: look-up, then non-blocking connects to the addresses found, the next one begun when one fails or is slow; the first that
answers is taken. Failures are one line that says which: no such name, refused, unreachable, no answer.
Must not: know a protocol, or open connections for the engine (that is `Loop.open`).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import sys
import time

from wireproto.errors import ConnectError, TimedOut, WireprotoError
from wireproto.url import Address

from .address import AddressMap, SocketAddress, resolve, translate
from .tls import TlsOptions, TlsStream, wrap

HEAD_START = 0.25
"""Seconds that an address has before the next one is tried beside it."""


def peer_name(address: Address) -> str:
    """``host:port``, with brackets round an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial(
    address: Address,
    deadline: float,
    *,
    address_map: AddressMap | None = None,
    tls: TlsOptions | None = None,
    context: ssl.SSLContext | None = None,
    places: list[SocketAddress] | None = None,
) -> socket.socket | TlsStream:
    """Connect to `address`, and do the TLS handshake when `tls` is given.

    Args:
        address: host and port, as advertised; `address_map` rewrites it first. TLS checks the name before the rewriting.
        deadline: `time.monotonic()` value.
        places: what the (rewritten) host's name resolved to; see `connect`.
    Raises:
        ConnectError, TlsError, TimedOut, with the peer. Disconnected: the peer hung up during the TLS handshake.
    """
    target = translate(address, address_map)
    peer = peer_name(address) + ("" if target == address else f" (by way of {peer_name(target)})")
    try:
        sock = connect(target, deadline, places)
        if tls is None:
            return sock
        try:
            return wrap(sock, address[0], tls, deadline, context)
        except BaseException:
            sock.close()
            raise
    except WireprotoError as error:
        error.peer = peer
        raise


def connect(address: Address, deadline: float, places: list[SocketAddress] | None = None) -> socket.socket:
    """A connected, non-blocking TCP socket with Nagle's algorithm off.

    Args:
        places: where to connect to instead of looking the name up, best first. What was tried, in vain or not, is taken off: a host
            may answer and yet not serve, and who finds that out goes on with the rest.
    """
    waiting = list(resolve(address, deadline)) if places is None else places
    begun: dict[int, tuple[socket.socket, SocketAddress]] = {}
    poller = select.poll()
    problem: OSError | None = None
    next_at = 0.0
    try:
        while True:
            now = time.monotonic()
            if waiting and (now >= next_at or not begun):
                entry = waiting.pop(0)
                next_at = now + HEAD_START
                sock = _begin(entry)
                code = sock.connect_ex(entry[1])
                if code == 0:
                    return sock
                if code != errno.EINPROGRESS:
                    sock.close()
                    problem = OSError(code, os.strerror(code))
                    continue
                begun[sock.fileno()] = sock, entry
                poller.register(sock, select.POLLOUT)
            if not begun:
                raise ConnectError(_say(problem)) from None
            if now >= deadline:
                raise TimedOut("no answer to the connection attempt in time")
            until = min(deadline, next_at) if waiting else deadline
            for fd, _ in poller.poll(max(0.0, until - now) * 1000 + 1):
                sock, entry = begun.pop(fd)
                poller.unregister(fd)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code == 0:
                    waiting[:0] = [place for _, place in begun.values()]
                    return sock
                sock.close()
                problem = OSError(code, os.strerror(code))
                next_at = 0.0
    except WireprotoError:
        raise
    except OSError as error:
        raise ConnectError(_say(error)) from None
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


def _say(problem: OSError | None) -> str:
    if problem is None:
        return "there is no address to connect to"
    if problem.errno == errno.ECONNREFUSED:
        return "connection refused: nothing listens there"
    if problem.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"unreachable: {problem.strerror}"
    if problem.errno == errno.ETIMEDOUT:
        return "no answer: the host does not reply"
    return f"cannot connect: {problem.strerror or problem}"
