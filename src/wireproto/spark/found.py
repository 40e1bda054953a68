"""What Spark finds of a format before anybody uses it: its name alone.

What it is: `Found`, which the modules ``pyspark_wireproto_*`` derive. At a session's first use of any source, Spark's own ones included, it
starts a process that imports all of them, only to ask for their names; the formats themselves, with Arrow, NumPy and what four clients
need, take half a second there. Must not: import any of that.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource


class Found(DataSource):
    """A format by its name; making one makes the source itself.

    Attributes:
        format: its name. source: the class in `wireproto.spark`.
    """

    format: ClassVar[str]
    source: ClassVar[str]

    def __new__(cls, options: dict[str, str]) -> Any:
        """Make the source; raises ImportError where something is missing that it needs."""
        return getattr(import_module("wireproto.spark"), cls.source)(options)

    @classmethod
    def name(cls) -> str:
        return cls.format
