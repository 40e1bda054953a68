"""Parses URLs like ``kafka://host:9092,host2:9092/topic?compression=zstd``.

There is one parser for all protocols; it resolves no names, and knows no default of a protocol but the port (`protocols`). Schemes are
``kafka``, ``pulsar``, ``rocketmq``, ``zookeeper``, those of other distributions, and their TLS forms ``kafka+tls``, ``pulsar+ssl`` … (also
``kafkas`` …). Userinfo in a URL is taken as credentials and never shown by `str()`. Option values stay text until the adapter's option type
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode

from .errors import OptionError
from .protocols import known

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL.

    Attributes:
        protocol: ``kafka``, ``pulsar``, ``rocketmq`` or ``zookeeper`` (or a scheme that an entry point names).
        tls: whether the TLS form was used.
        addresses: host and port pairs in the order given.
        path: what follows the hosts, unquoted, without the leading slash; a topic, or a ZooKeeper path.
        options: query parameters as text.
        user, password: userinfo, or None; kept out of repr and str.
    """

    protocol: str
    tls: bool
    addresses: tuple[Address, ...]
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses)
        shown = {k: v for k, v in self.options.items() if not _secret(k)}
        return (
            f"{self.protocol}{'+tls' if self.tls else ''}://{hosts}"
            + (f"/{self.path}" if self.path else "")
            + (f"?{urlencode(shown)}" if shown else "")
        )


def _secret(option: str) -> bool:
    return any(word in option.lower() for word in ("password", "secret", "token", "key_data"))


def parse(text: str) -> Url:
    """Parse a URL. Raises OptionError, which says what is wrong with it and does not repeat a password."""
    scheme, sep, rest = text.partition("://")
    if not sep:
        raise OptionError("not a URL: expected scheme://host[:port][,host…][/topic][?option=value], like kafka://localhost:9092")
    protocol, _, suffix = scheme.lower().partition("+")
    found = known(protocol)
    if found is None and protocol.endswith("s") and (found := known(protocol[:-1])) is not None:
        protocol, suffix = protocol[:-1], "tls"
    if suffix not in ("", "tls", "ssl"):
        raise OptionError(f"unknown scheme {scheme!r}: the only suffix is +tls")
    rest, _, query = rest.partition("?")
    hosts, _, path = rest.partition("/")
    userinfo, at, hosts = hosts.rpartition("@")
    user, colon, password = userinfo.partition(":")
    plain, secure = (1, 1) if found is None else found.ports  # an unknown protocol raises where it is looked up
    addresses = tuple(parse_address(host, secure if suffix else plain) for host in hosts.split(",") if host)
    if not addresses:
        raise OptionError(f"no host in the {protocol} URL")
    pairs = parse_qsl(query, keep_blank_values=True)
    if len({name for name, _ in pairs}) != len(pairs):
        raise OptionError("an option is given twice in the URL")
    return Url(
        protocol=protocol,
        tls=bool(suffix),
        addresses=addresses,
        path=unquote(path),
        options=dict(pairs),
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
    )


def parse_for(protocol: str, text: str, package: str = "wireproto") -> Url:
    """Parse a URL that must be of one protocol, for that protocol's own `connect`.

    Args:
        protocol: its name. text: the URL. package: where the `connect` of all protocols is, and beside it the protocol's.

    Raises:
        OptionError: see `parse`; or the URL is of another protocol.
    """
    url = parse(text)
    if url.protocol != protocol:
        raise OptionError(f"{package}.{protocol}.connect opens {protocol}:// URLs; for a {url.protocol}:// URL use {package}.connect")
    return url


def parse_address(text: str, default_port: int) -> Address:
    """Parse ``host``, ``host:port``, ``[v6]`` or ``[v6]:port`` into a pair. Raises OptionError."""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise OptionError(f"bad IPv6 address {text!r}")
        port = port[1:]
    elif text.count(":") > 1:
        raise OptionError(f"write the IPv6 address {text!r} in brackets")
    else:
        host, _, port = text.partition(":")
    if not port and default_port:
        return host, default_port
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise OptionError(f"bad host or port in {text!r}")
    return host, int(port)
