"""Lets Spark find a format by its name without importing what reads and writes it.

The modules ``pyspark_wireproto_*`` derive `Found`. At a session's first use of any source, Spark's own ones included, Spark starts a
process that imports all of these modules, only to ask for their names; the formats themselves, with Arrow, NumPy and what four clients
need, take half a second to import. This module must not import any of that.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource


class Found(DataSource):
    """A format's name; making an instance makes the data source itself.

    Attributes:
        format: its name. source: name of the class in `wireproto.spark`.
    """

    format: ClassVar[str]
    source: ClassVar[str]

    def __new__(cls, options: dict[str, str]) -> Any:
        """Make the data source; raises ImportError where one of its dependencies is missing."""
        return getattr(import_module("wireproto.spark"), cls.source)(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return cls.format
