"""Defines the options that every client has, and converts text to their types.

`CommonOptions` is a frozen dataclass from which each adapter's options derive; `from_url` reads URL parameters and keywords into it by the
fields' types; `for_role` replaces values by a role's keywords. Unknown names raise OptionError with near matches. Text forms:
true/false/yes/no/1/0, numbers with k, M, G (1024) or ms, s, m, h, comma-separated lists, ``env:NAME`` and ``file:PATH`` for secrets. No
secret is ever shown.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin

from wireproto.auth.secrets import Secret
from wireproto.errors import OptionError
from wireproto.url import Url

from .address import AddressMap, parse_map
from .tls import TlsOptions

SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_hints: dict[type[Any], Mapping[str, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """The options that all clients take.

    Attributes:
        timeout: seconds that making a client or a role may take, where that waits; calls have a `timeout` of their own.
        connect_timeout: seconds for one connection: look-up, TCP, TLS and the protocol's handshake.
        client_id: the name of the client's threads, and given to brokers whose protocol has one (Kafka, RocketMQ).
        tls: use TLS; the TLS form of the URL sets it.
        tls_ca_file, tls_ca_data: trusted certificates (PEM); without either: the system's.
        tls_cert_file, tls_key_file, tls_key_password: the client's certificate, its key (PEM), and the key's password.
        tls_verify: check the server's certificate.
        tls_verify_host: check that the certificate names the host.
        tls_server_name: the name to ask for and check instead of the host dialled.
        tls_context: an `ssl.SSLContext` to use as it is.
        address_map: rewrites advertised addresses before dialling: ``from=to`` pairs in text, a mapping, or a callable.
        fetch_memory: bytes read ahead and not yet returned to the user, for the whole client.
        buffer_memory: bytes of records taken by `send` and not yet acknowledged, for the whole client.
        user, password: credentials (also from the URL's userinfo).
        token: bearer or JSON web token.
    """

    ROLES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The options that each role takes, by the name of the client's method that makes it; the others are the client's alone."""
    PEER_NAMES: ClassVar[Mapping[str, str]] = {}
    """What to use in place of an option of another client of the protocol, by that client's name for it, as `plain_name` writes it."""

    timeout: float = 30.0
    connect_timeout: float = 10.0
    client_id: str = "wireproto"
    tls: bool = False
    tls_ca_file: str | None = None
    tls_ca_data: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: Secret | None = None
    tls_verify: bool = True
    tls_verify_host: bool = True
    tls_server_name: str | None = None
    tls_context: Any = dataclasses.field(default=None, metadata={"text": False})
    address_map: AddressMap | None = None
    fetch_memory: int = 64 << 20
    buffer_memory: int = 32 << 20
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "connect_timeout"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} must be above 0 seconds")
        for name in ("fetch_memory", "buffer_memory"):
            if getattr(self, name) < 1 << 16:
                raise OptionError(f"{name} must be at least 64 kB")

    @classmethod
    def from_url(cls, url: Url, /, **keywords: Any) -> Self:
        """Make options from a URL and keywords; keywords win over the URL.

        Args:
            url: its parameters, userinfo and TLS form are read. keywords: option values, typed or as text.

        Raises:
            OptionError: an unknown name (the text says what to use in place of another client's option, or names near matches), or a value
                of the wrong type.
        """
        values: dict[str, Any] = {}
        if url.tls:
            values["tls"] = True
        if url.user is not None:
            values["user"] = url.user
        if url.password is not None:
            values["password"] = Secret(url.password)
        return cls.from_mapping(url.options, values, keywords)

    @classmethod
    def from_mapping(cls, *layers: Mapping[str, Any]) -> Self:
        """Make options from mappings of names to values; later mappings win, and names may have hyphens. Raises OptionError."""
        wanted = hints(cls)
        values: dict[str, Any] = {}
        for layer in layers:
            for name, value in layer.items():
                name = name.replace("-", "_")
                if name not in wanted:
                    raise OptionError(f"there is no option {name!r}{cls._instead(name, wanted)}")
                values[name] = convert(name, value, wanted[name])
        return cls(**values)

    def for_role(self, role: str, given: Mapping[str, Any]) -> Self:
        """Return these options with one role's keywords in place of the client's values.

        Args:
            role: the client's method that makes it: ``producer``, ``reader``, ``consumer`` or ``queue``.
            given: the role's keywords.

        Raises:
            OptionError: a name that is no option of that role (of another role, another protocol, or of none), or a wrong value.
        """
        if not given:
            return self
        kinds, known = hints(type(self)), self.ROLES.get(role, ())
        values: dict[str, Any] = {}
        for written, value in given.items():
            name = written.replace("-", "_")
            if name not in known:
                others = [other for other, names in self.ROLES.items() if name in names]
                owner = f"; it is an option of a {' or '.join(others)}" if others else "; it is the client's" if name in kinds else ""
                raise OptionError(f"a {role} has no option {written!r}{owner or self._instead(name, known)}")
            values[name] = convert(name, value, kinds[name])
        return dataclasses.replace(self, **values)

    @classmethod
    def _instead(cls, name: str, known: Iterable[str]) -> str:
        """Return the end of an error's text: what to use in place of an unknown option."""
        advice = cls.PEER_NAMES.get(plain_name(name))
        if advice:
            return f": {advice}"
        near = difflib.get_close_matches(name, list(known), 3, 0.6)
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def tls_options(self) -> TlsOptions | None:
        """Return the options of TLS, or None when TLS is off."""
        return self.tls_settings() if self.tls else None

    def tls_settings(self) -> TlsOptions:
        """Return the options of a TLS connection, whether or not `tls` is on: also for another protocol of the client, such as HTTP."""
        return TlsOptions(
            ca_file=self.tls_ca_file,
            ca_data=self.tls_ca_data,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            verify=self.tls_verify,
            verify_host=self.tls_verify_host,
            server_name=self.tls_server_name,
            context=self.tls_context,
        )


def plain_name(name: str) -> str:
    """Write an option's name as keys of `PEER_NAMES` are written: ``session.timeout.ms`` and ``sessionTimeoutMs`` as session_timeout_ms."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace(".", "_").replace("-", "_").lower()


def hints(cls: type[Any]) -> Mapping[str, Any]:
    """Return the field names and types of an options class, kept after the first call: resolving type hints is slow."""
    known = _hints.get(cls)
    if known is None:
        found = typing.get_type_hints(cls)
        known = _hints[cls] = {field.name: found[field.name] for field in dataclasses.fields(cls) if field.init}
    return known


def convert(name: str, value: Any, kind: Any) -> Any:
    """Convert an option's value, or its text, to the type of its field.

    Args:
        name: the option's name, for errors. value: what was given. kind: the field's type.

    Raises:
        OptionError: it cannot be converted; the text names the option and shows no secret.
    """
    if kind is Any:
        return value
    if kind is AddressMap or kind == AddressMap | None:
        return parse_map(value) if isinstance(value, str) else value
    if get_origin(kind) in (Union, types.UnionType):
        choices = get_args(kind)
        if value is None or (value == "none" and type(None) in choices):
            if type(None) in choices:
                return None
            raise OptionError(f"{name} cannot be None")
        if Secret in choices:
            return Secret(value)
        problem: OptionError | None = None
        for choice in choices:
            if choice is type(None):
                continue
            try:
                return convert(name, value, choice)
            except OptionError as error:
                problem = problem or error
        raise problem or OptionError(f"{name} has a wrong value")
    if kind is Secret:
        return Secret(value)
    if get_origin(kind) is Literal:
        value = str(value) if type(value) is int else value  # 1 for "1"
        if value in get_args(kind):
            return value
        raise OptionError(f"{name} is one of {', '.join(map(str, get_args(kind)))}, not {value!r}")
    if get_origin(kind) is Callable:
        if callable(value):
            return value
        raise OptionError(f"{name} is a function, not {value!r}")
    if get_origin(kind) in (tuple, list):
        items = [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else list(value)
        return tuple(convert(name, item, get_args(kind)[0]) for item in items)
    return _scalar(name, value, kind)


def _scalar(name: str, value: Any, kind: Any) -> Any:
    if kind is bool:
        truth = BOOLEANS.get(value.lower()) if isinstance(value, str) else value
        if isinstance(truth, bool):
            return truth
        raise OptionError(f"{name} is true or false, not {value!r}")
    if kind in (int, float) and isinstance(value, str):
        units: Mapping[str, float] = SIZES if kind is int else SECONDS
        number = value.strip().lower().removesuffix("b") if kind is int else value.strip().lower()
        digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
        try:
            return kind(kind(digits) * units[number[len(digits) :]]) if number != digits else kind(digits)
        except (ValueError, KeyError, OverflowError):
            raise OptionError(f"{name} is a number{' of seconds' if kind is float else ''}, not {value!r}") from None
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type):
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        raise OptionError(f"{name} is {kind.__name__}, not {type(value).__name__}")
    return value
