"""Implements the data source that the three logs share: takes options, makes readers and writers.

Each format derives `LogSource` with its `Log`, its `Sink` and its options. Spark makes a source for each use: schema, reader and writer
each read the options, so a mistake shows at `load()` or `save()`. This module must not know a protocol.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from ..errors import OptionError, WireprotoError
from .batch import LogReader
from .options import Options
from .stream import LogStream, Refused
from .write import LogStreamWriter, LogWriter, Sink, checked

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .log import Log
    from .options import ReadSettings


class LogSource(DataSource):
    """A format over one log.

    Attributes:
        log: its `Log` class, whose protocol names the format.
    """

    log: ClassVar[type[Log]]
    _pickled = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Note that this source was pickled.

        Spark makes a new source to plan the tasks of a micro-batch, and pickles one to end it, when it is too late for a check.
        """
        self.__dict__.update(state)
        self._pickled = True

    @classmethod
    def name(cls) -> str:
        """Return the format's name, ``<protocol>-wire``."""
        return f"{cls.log.protocol}-wire"

    @abstractmethod
    def read_settings(self, options: Options) -> ReadSettings:
        """Return what reading needs; takes every option that it knows from `options`.

        Raises:
            OptionError: an option is missing or has a value that it cannot have.
        """

    def sink(self, options: Options, schema: StructType) -> Sink:
        """Return the sink; takes every option that it knows from `options`.

        Raises:
            OptionError: an option is missing or has a value that it cannot have, or the sink cannot write the schema.
        """
        raise OptionError(f"{self.name()} cannot be written to yet")

    def settings(self) -> ReadSettings:
        """Return the reader's options; raises OptionError for wrong or unknown ones."""
        options = Options(self.options)
        found = self.read_settings(options)
        options.finish()
        return found

    def writes(self, schema: StructType) -> Sink:
        """Return the sink of the writer's options; raises OptionError for wrong or unknown ones."""
        options = Options(self.options)
        found = self.sink(options, schema)
        options.finish()
        return found

    def schema(self) -> str:
        """Return the schema as DDL: the default columns, and those that the options includeHeaders and extraColumns add."""
        settings = self.settings()
        return self.log.form.ddl((*(("headers",) if settings.headers else ()), *settings.extra))

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a batch query."""
        return LogReader(self.log(self.settings()), schema)

    def streamReader(self, schema: StructType) -> LogStream | Refused:  # noqa: N802
        """Return the reader of a stream; for wrong options one whose methods raise the error, which PySpark shows."""
        try:
            return LogStream(self.log(self.settings()), schema)
        except WireprotoError as why:
            return Refused(why)

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        """Return the writer of a batch, after a check on the cluster.

        Raises:
            OptionError: the options are wrong, or the mode is overwrite.
        """
        if overwrite:
            raise OptionError(f"{self.name()} only appends: mode('overwrite') would have to delete what is in the log; use mode('append')")
        return LogWriter(self.writes(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802
        """Return the writer of a micro-batch, after a check on the cluster where it is made to plan tasks."""
        sink = self.writes(schema)
        return LogStreamWriter(sink if self._pickled else checked(sink, stream=True))


def client_options(options: Options, prefix: str) -> dict[str, Any]:
    """Take options of the client that have the protocol's prefix: ``pulsar.connect_timeout``, or ``pulsar.connect.timeout``."""
    return {name.replace(".", "_"): value for name, value in options.prefixed(prefix).items()}
