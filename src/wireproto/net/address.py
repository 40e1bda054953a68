"""Resolves host names under a deadline, and rewrites advertised addresses.

`resolving` runs the system's blocking look-up in a worker thread and waits until its deadline; look-ups of the same name at the same time
are one, whichever clients ask. `AddressMap` rewrites what brokers advertise (tunnels, NAT, fault proxies) before dialling. The module opens
no connection.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from wireproto._net import Event, Loop
from wireproto.errors import ConnectError, OptionError, Unanswered, Unreachable
from wireproto.url import Address, parse_address

from .offload import offload
from .task import Steps

_NO_NAME = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}
SocketAddress = tuple[socket.AddressFamily, Any]
AddressMap = Mapping[str, str] | Callable[[Address], Address]


class _Lookup:
    """One look-up under way, for all that wait for it.

    Attributes:
        waiting: events to set at its end.
        found: the addresses, best first. error: the system's text where it failed.
        unknown: whether it failed because there is no such name, as far as the name servers know.
    """

    def __init__(self, host: str, port: int) -> None:
        self.waiting: list[Event] = []
        self.found: list[SocketAddress] = []
        self.error: str | None = None
        self.unknown = False
        self.host, self.port = host, port

    def run(self) -> None:
        """Look the name up, in a worker thread, and wake what waits."""
        try:
            entries = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self.found = interleave([(entry[0], entry[4]) for entry in entries])
        except (OSError, UnicodeError) as error:
            self.unknown = isinstance(error, UnicodeError) or error.errno in _NO_NAME
            self.error = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        finally:
            with _lock:  # before the events are set, so that a caller that asks again after a failure begins a new look-up
                if _running.get((self.host, self.port)) is self:
                    del _running[self.host, self.port]
            for event in self.waiting:
                event.set()


_lock = threading.Lock()
_running: dict[Address, _Lookup] = {}


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forget)


def interleave(found: list[SocketAddress]) -> list[SocketAddress]:
    """Return addresses in the resolver's order with the families (IPv6, IPv4) alternating, each address once.

    So a family that does not work costs one connection attempt before the other family is tried.
    """
    first = [entry for entry in found if entry[0] == found[0][0]]
    other = [entry for entry in found if entry[0] != found[0][0]]
    mixed: list[SocketAddress] = []
    while first or other:
        for queue in (first, other):
            if queue:
                entry = queue.pop(0)
                if entry not in mixed:
                    mixed.append(entry)
    return mixed


def literal(host: str, port: int) -> SocketAddress | None:
    """Return the socket address if `host` is an IP address in text, else None; nothing is looked up."""
    bare, _, scope = host.partition("%")
    try:
        version = ipaddress.ip_address(bare).version
    except ValueError:
        return None
    if version == 4:
        return socket.AF_INET, (host, port)
    if scope:
        return None
    return socket.AF_INET6, (host, port, 0, 0)


def _join(loop: Loop, address: Address) -> tuple[_Lookup, Event]:
    """Return the look-up of this name that is under way, or a new one, and an event of its end."""
    event = Event(loop)
    with _lock:
        lookup = _running.get(address)
        if lookup is not None:
            lookup.waiting.append(event)
            return lookup, event
        lookup = _running[address] = _Lookup(*address)
        lookup.waiting.append(event)
    try:
        offload(loop, lookup.run)
    except BaseException:
        with _lock:
            _running.pop(address, None)
        raise
    return lookup, event


def unresolved(host: str) -> str:
    """Return the error text for a look-up that was not answered in time."""
    return f"the name {host} was not resolved in time"


def resolving(loop: Loop, address: Address, until: float) -> Steps[list[SocketAddress]]:
    """Return the socket addresses of a host, best first. Steps.

    Args:
        loop: the engine's loop that waits. address: host name or IP address, and port.
        until: `time.monotonic()` value.

    Raises:
        Unreachable: there is no such name. ConnectError: the look-up failed otherwise. Unanswered: no answer in time.
    """
    host, port = address
    known = literal(host, port)
    if known is not None:
        return [known]
    lookup, found = _join(loop, address)
    if not (yield found, until):
        raise Unanswered(unresolved(host), peer=f"{host}:{port}")
    if lookup.error is not None or not lookup.found:
        kind = Unreachable if lookup.unknown else ConnectError
        raise kind(f"the name {host} does not resolve: {lookup.error or 'no address'}", peer=f"{host}:{port}")
    return list(lookup.found)


def parse_map(text: str) -> dict[str, str]:
    """Parse ``a:9092=127.0.0.1:19092,b=c`` into a map. Raises OptionError."""
    pairs: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        source, sep, target = item.partition("=")
        if not sep or not source or not target:
            raise OptionError(f"address_map wants from=to pairs, not {item!r}")
        pairs[source.strip()] = target.strip()
    return pairs


def translate(address: Address, address_map: AddressMap | None) -> Address:
    """Return the address to dial for `address`: mapped by ``host:port``, else by ``host``, else unchanged.

    A target without a port keeps the port of `address`.
    """
    if not address_map:
        return address
    if callable(address_map):
        host, port = address_map(address)
        return str(host), int(port)
    host, port = address
    for source in (f"{host}:{port}", f"[{host}]:{port}", host):
        if source in address_map:
            return parse_address(address_map[source], port)
    return address
