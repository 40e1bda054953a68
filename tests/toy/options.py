"""Options of the toy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from wireproto.net.options import CommonOptions


@dataclass(frozen=True, kw_only=True)
class ToyOptions(CommonOptions):
    """Beside what all clients take:

    Attributes:
        pace: records of one batch.
    """

    ROLES: ClassVar[Mapping[str, tuple[str, ...]]] = {"producer": (), "reader": ("pace",)}

    pace: int = 100
