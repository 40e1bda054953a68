"""Finds the server side of each protocol that the dev broker speaks.

The protocols' descriptors (`wireproto.protocols`) name them, so that a side is imported only when it is used. A side is a class derived
from `side.Side`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OptionError
from ..protocols import find, known, names, ours

if TYPE_CHECKING:
    from .side import Side


def spoken() -> tuple[str, ...]:
    """Return the protocols that a dev broker serves when none is named: our own ones that have a side.

    Those of other distributions are served only when they are named.
    """
    return tuple(name for name in ours() if find(name).side is not None)


def side_class(protocol: str) -> type[Side]:
    """Return the class that serves a protocol; raises OptionError, which names the protocols there are."""
    found = known(protocol)
    if found is None or found.side is None:
        others = [name for name in names() if find(name).side is not None]
        raise OptionError(f"the dev broker does not speak {protocol!r}: it speaks {', '.join(others)}")
    side: type[Side] = found.side_class()
    return side
