"""Which protocols the dev broker speaks, and where each one's server side is found.

What it is: what the descriptors say (`wireproto.protocols`), so that a side is imported only when it is asked for. A side is a class
derived from `side.Side`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OptionError
from ..protocols import find, known, names, ours

if TYPE_CHECKING:
    from .side import Side


def spoken() -> tuple[str, ...]:
    """Those that a dev broker speaks when none is named: ours that have a side. Those of other distributions want to be named."""
    return tuple(name for name in ours() if find(name).side is not None)


def side_class(protocol: str) -> type[Side]:
    """The class that serves a protocol; raises OptionError naming those there are."""
    found = known(protocol)
    if found is None or found.side is None:
        others = [name for name in names() if find(name).side is not None]
        raise OptionError(f"the dev broker does not speak {protocol!r}: it speaks {', '.join(others)}")
    side: type[Side] = found.side_class()
    return side
