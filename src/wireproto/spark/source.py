"""The data source that the three logs share: options in, readers and writers out.

What it is: `LogSource`, which each format derives with its `Log`, its `Sink` and its options. Spark makes one for each use: options are
read anew by schema, reader and writer, so a mistake shows at `load()` or `save()`.
Must not: know a protocol.
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
        """Spark makes a source anew to plan a micro-batch's tasks, and pickles one to end it, when it is too late for a check."""
        self.__dict__.update(state)
        self._pickled = True

    @classmethod
    def name(cls) -> str:
        return f"{cls.log.protocol}-wire"

    @abstractmethod
    def read_settings(self, options: Options) -> ReadSettings:
        """What reading needs; takes every option that it knows from the map."""

    def sink(self, options: Options, schema: StructType) -> Sink:
        """What writing needs; takes every option that it knows from the map."""
        raise OptionError(f"{self.name()} cannot be written to yet")

    def settings(self) -> ReadSettings:
        """The reader's options, checked."""
        options = Options(self.options)
        found = self.read_settings(options)
        options.finish()
        return found

    def writes(self, schema: StructType) -> Sink:
        """The writer's options, checked."""
        options = Options(self.options)
        found = self.sink(options, schema)
        options.finish()
        return found

    def schema(self) -> str:
        settings = self.settings()
        return self.log.form.ddl((*(("headers",) if settings.headers else ()), *settings.extra))

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(self.log(self.settings()), schema)

    def streamReader(self, schema: StructType) -> LogStream | Refused:  # noqa: N802
        try:
            return LogStream(self.log(self.settings()), schema)
        except WireprotoError as why:
            return Refused(why)

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        if overwrite:
            raise OptionError(f"{self.name()} only appends: mode('overwrite') would have to delete what is in the log; use mode('append')")
        return LogWriter(self.writes(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802
        sink = self.writes(schema)
        return LogStreamWriter(sink if self._pickled else checked(sink, stream=True))


def client_options(options: Options, prefix: str) -> dict[str, Any]:
    """Options of the client under the protocol's own prefix: ``pulsar.connect_timeout``, or ``pulsar.connect.timeout``."""
    return {name.replace(".", "_"): value for name, value in options.prefixed(prefix).items()}
