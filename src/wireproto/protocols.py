"""Finds protocols and their parts.

`Protocol` is the descriptor that a protocol's folder has (`protocol.py`, `PROTOCOL`). This module is the only one that finds descriptors:
those of the folders beside this file, and by name those that other distributions offer in the entry point group ``wireproto.protocols``.
URLs, `connect`, the engine's framing, `wire`, messages, the command line, the dev broker, docs and the conformance suite use it. Parts are
named as ``module:attribute``, and imported at their first use: no adapter is imported here. Entry points are read only for a name that no
folder has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from .errors import OptionError

GROUP = "wireproto.protocols"
Role = Literal["producer", "transactions", "transactional", "reader", "consumer", "queue", "admin", "tree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The descriptor of one protocol.

    Attributes:
        name: its URLs' scheme.
        ports: the servers' default ports: without TLS, and with TLS.
        framing: how the engine cuts and matches its frames, a name of `_net.Framing`. Those of four protocols begin with a length;
            frames of ``lines`` end with a line feed, and their replies come in order.
        position: the kind of its positions in `Columns`: a number (``offset``, ``sequence``), or a ``message_id``.
        roles: the roles that its clients have.
        path: what a URL's path names: a ``topic``, or the ``root`` of all names (the command line's topic is the whole path then).
        client: ``open_client(url, options) -> Client``, of a parsed URL.
        options: its options, a `CommonOptions`.
        forms: ``forms() -> {name: Form}``, its messages for `wireproto.wire`; None: there are none.
        messages: the module of its messages, where they come from the schema.
        side: its server side in the dev broker; None: it has none.
        frames: ``() -> Reader``, which reads the frames that a recording keeps.
        features: `features.Features` that the conformance suite tests, for a protocol that is not in the suite's own table.
    """

    name: str
    ports: tuple[int, int]
    framing: str
    position: Literal["offset", "sequence", "message_id"]
    roles: tuple[Role, ...]
    client: str
    options: str
    path: Literal["topic", "root"] = "topic"
    forms: str | None = None
    messages: str | None = None
    side: str | None = None
    frames: str | None = None
    features: str | None = field(default=None, repr=False)

    # The methods return types of modules that import this one, so their annotations are Any, and the docstrings name the types.

    def connect(self, url: Any, options: dict[str, Any]) -> Any:
        """Open a client (`roles.Client`) for a `Url`."""
        return part(self.client)(url, options)

    def make(self, url: Any, options: dict[str, Any]) -> Any:
        """Make a client that may not be connected yet: `ClientBase.beginning` connects it, in steps."""
        module = import_module(self.client.partition(":")[0])
        return getattr(module, "make", part(self.client))(url, options)

    def option_class(self) -> Any:
        """Return the class of its options, a `CommonOptions`."""
        return part(self.options)

    def side_class(self) -> Any:
        """Return the class of its server side, a `devbroker.side.Side`. Raises OptionError where the dev broker does not speak it."""
        if self.side is None:
            raise OptionError(f"the dev broker does not speak {self.name!r}")
        return part(self.side)

    def all_forms(self) -> dict[str, Any]:
        """Return its messages, a `Form` by name; empty where it has no schema."""
        found: dict[str, Any] = {} if self.forms is None else part(self.forms)()
        return found

    def frame_reader(self) -> Any:
        """Make a `devbroker.recording.Reader` of its frames. Raises OptionError where it has none."""
        if self.frames is None:
            raise OptionError(f"no frames of {self.name!r} can be read")
        return part(self.frames)()


def part(place: str) -> Any:
    """Import and return what ``module:attribute`` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def ours() -> tuple[str, ...]:
    """Return the protocols that have a folder here, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in Path(__file__).parent.glob("*/protocol.py")))


@cache
def _own(name: str) -> Protocol:
    return cast("Protocol", part(f"wireproto.{name}.protocol:PROTOCOL"))


def find(name: str) -> Protocol:
    """Return a protocol by name. Raises OptionError, which lists the protocols, for an unknown one."""
    found = known(name)
    if found is None:
        raise OptionError(f"no protocol {name!r}: there are {', '.join(names())}")
    return found


def known(name: str) -> Protocol | None:
    """Return a protocol by name, or None. Raises OptionError for an entry point that is no descriptor of that name."""
    if name in ours():
        return _own(name)
    return _offered(name) if name.isidentifier() else None


def _offered(name: str) -> Protocol | None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        found = point.load()
        if not isinstance(found, Protocol) or found.name != name:
            raise OptionError(f"the entry point {point.value!r} is no descriptor of a protocol {name!r}")
        return found
    return None


def names() -> tuple[str, ...]:
    """Return every protocol's name: those of this package first, then those of other distributions."""
    from importlib.metadata import entry_points

    return (*ours(), *sorted({point.name for point in entry_points(group=GROUP)} - set(ours())))


def every() -> tuple[Protocol, ...]:
    """Return every protocol. Raises OptionError as `known`."""
    return tuple(find(name) for name in names())
