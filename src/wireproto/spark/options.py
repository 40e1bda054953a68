"""Reads the options of the Spark formats: turns Spark's case-insensitive text map into what readers and writers need.

`Options` hands out options one by one and refuses those that no reader or writer asked for, suggesting similar names; `ReadSettings` is
what a log's readers need on driver and in workers. A mistake is an error on the driver that names the option, before any task starts. The
names that all logs share are those of the JVM's Kafka connector:

    startingOffsets, endingOffsets      ``earliest``, ``latest`` or JSON ``{"topic": {"0": 23, "1": -1}}``: -2 is earliest, -1 latest; for
                                        Pulsar the text of a position takes the place of the offset, for RocketMQ a queue's name
                                        (``broker-a/0``) that of the partition
    startingTimestamp, endingTimestamp  milliseconds, for every partition; precede …OffsetsByTimestamp (JSON, per partition), which precede
                                        …Offsets
    startingOffsetsByTimestampStrategy  ``error`` or ``latest``: what to do in a partition without a record that late
    failOnDataLoss                      whether records that are gone before they were read fail the query
    minPartitions, maxRecordsPerPartition                                   how ranges are split into tasks
    maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay, maxBytesPerTrigger   how much a micro-batch takes

This module knows nothing of Spark but that options are a mapping of text, and must not open a connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from ..errors import OptionError
from ..position import EARLIEST, LATEST, AtTime, Earliest, Latest, Position, TopicPartition, parse_position, parse_queue, queue_name

Place = Earliest | Latest | AtTime | Position
Named = Mapping[tuple[str, int | str], Place]
"""By topic and partition number, or the name of a RocketMQ queue (`position.queue_name`)."""
Bound = Earliest | Latest | AtTime | dict[tuple[str, int | str], Place]

SPARKS_OWN = ("path", "checkpointLocation", "queryName", "mode", "outputMode")
SHARED = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "includeHeaders",
    "pushDownPredicate",
    "extraColumns",
)
TABLE = "option."  # prefix of the options in a table's properties
_LARGEST = (1 << 63) - 1
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Options:
    """The option map of one read or write. Each name is asked for once, in its spelling; `finish` refuses the rest."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._left = {name.lower(): value for name, value in given.items()}
        self._known: dict[str, str] = {name.lower(): name for name in SPARKS_OWN}

    def text(self, name: str, default: str | None = None) -> str | None:
        """Take the option's text, without white space around it; `default` where it is not given."""
        self._known[name.lower()] = name
        value = self._left.pop(name.lower(), None)
        return default if value is None else value.strip()

    def flag(self, name: str, default: bool = False) -> bool:
        """Take an option that is true or false; raises OptionError for anything else."""
        text = self.text(name, str(default))
        if text is None or text.lower() not in ("true", "false"):
            raise OptionError(f"option {name} is {text!r}; it takes true or false")
        return text.lower() == "true"

    def whole(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """Take a whole number; raises OptionError for anything else, or a number below `least`."""
        text = self.text(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"option {name} is {text!r}; it takes a whole number") from None
        if number < least:
            raise OptionError(f"{name} must be positive" if least == 1 else f"option {name} is {number}; it takes {least} or more")
        return number

    def seconds(self, name: str, default: float) -> float:
        """Take a duration as Spark writes it (``15m``, ``30s``, ``500ms``; a bare number is milliseconds).

        Args:
            default: seconds.
        Returns:
            seconds.
        Raises:
            OptionError: it is no such text.
        """
        text = self.text(name)
        if text is None:
            return default
        found = re.fullmatch(r"(\d+)\s*(us|ms|s|m|min|h|d)?", text.lower())
        if found is None:
            raise OptionError(f"option {name} is {text!r}; it takes a time such as 30s, 15m or 500ms")
        return int(found[1]) * UNITS[found[2] or "ms"]

    def names(self, name: str) -> tuple[str, ...]:
        """Take a list separated by commas."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Take every option that begins with the prefix; return them under the rest of their names (lower case)."""
        found = {name: self._left.pop(name) for name in list(self._left) if name.startswith(prefix.lower())}
        return {name[len(prefix) :]: value.strip() for name, value in found.items()}

    def accept(self, names: Iterable[str]) -> None:
        """Take options that are used elsewhere, such as the writer's in a reader, so that `finish` does not refuse them."""
        for name in names:
            self.text(name)

    def nearly(self, names: Iterable[str]) -> None:
        """Raise OptionError where a given option looks like one of these names, of which one is missing."""
        spelled = {name.lower(): name for name in names}
        for name in self._left:
            near = get_close_matches(name, spelled, 1)
            if near and name not in spelled:
                raise OptionError(f"unknown option {name!r}; did you mean {spelled[near[0]]}?")

    def finish(self) -> None:
        """Raise OptionError for options that were given and not taken."""
        if any(name.startswith(TABLE) for name in self._left):
            raise OptionError(
                "Spark hands the options of a CREATE TABLE to no Python source: CREATE TEMPORARY VIEW … USING … OPTIONS (…) instead"
            )
        for name in self._left.keys() - self._known.keys():
            near = get_close_matches(name, self._known, 1)
            raise OptionError(f"unknown option {name!r}" + (f"; did you mean {self._known[near[0]]}?" if near else ""))


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What reading needs on driver and worker; can be pickled, holds no connection.

    Attributes:
        url: for `wireproto.connect`. client: its keyword options, as text.
        topics: names of topics.
        pattern: instead of `topics`, a Java regular expression, searched anywhere in a name.
        assigned: instead of `topics`, (topic, partition) pairs.
        start, stop: bounds as the user gave them; None where none was given.
        late: what to do at a starting time without a record that late: "error" or "latest".
        fail_on_data_loss: the option failOnDataLoss.
        min_partitions: number of tasks, at least about. max_records: rows of a task, at most.
        max_rows, min_rows: rows of a micro-batch, at most and at least. max_bytes: bytes of a micro-batch, at most.
        max_delay: seconds for which `min_rows` may delay a micro-batch.
        poll_timeout: seconds that a task waits for a record that must be there.
        tries: how often the driver asks for offsets. pause: seconds between two tries.
        headers: read the column headers. extra: names of further columns.
        push_down: let filters decide what is read (`pushdown.py` explains what the program must do then).
        group: commit what was processed to this group. brokers: names of brokers that must be registered (RocketMQ).
        given: names of the shared options that were given, for checks of batch and stream.
    """

    url: str
    client: Mapping[str, Any]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: Bound | None = None
    stop: Bound | None = None
    late: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records: int | None = None
    max_rows: int | None = None
    min_rows: int | None = None
    max_bytes: int | None = None
    max_delay: float = 900.0
    poll_timeout: float = 120.0
    tries: int = 3
    pause: float = 1.0
    headers: bool = False
    extra: tuple[str, ...] = ()
    group: str | None = None
    brokers: tuple[str, ...] = ()
    push_down: bool = False
    given: frozenset[str] = field(default_factory=frozenset)

    def option(self, side: str) -> str:
        """Return the name of the option that gave a bound, for errors.

        Args:
            side: "starting" or "ending"; see `bound`.
        """
        names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
        return next((name for name in names if name in self.given), names[-1])


def read_settings(options: Options, *, url: str, client: Mapping[str, Any], topics: tuple[str, ...] = (), **more: Any) -> ReadSettings:
    """Take the options that all logs share.

    Args:
        url, client, topics: as in ReadSettings. more: further attributes of ReadSettings.
    Raises:
        OptionError: an option has a value that it cannot have, or minOffsetsPerTrigger is higher than maxOffsetsPerTrigger.
    """
    given = frozenset(name for name in SHARED if name.lower() in options._left)
    late = (options.text("startingOffsetsByTimestampStrategy", "error") or "").lower()
    if late not in ("error", "latest"):
        raise OptionError(f"option startingOffsetsByTimestampStrategy is {late!r}; it takes error or latest")
    found = ReadSettings(
        url=url,
        client=client,
        topics=topics,
        start=bound(options, "starting", topics),
        stop=bound(options, "ending", topics),
        late="latest" if late == "latest" else "error",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        min_partitions=options.whole("minPartitions"),
        max_records=options.whole("maxRecordsPerPartition"),
        max_rows=options.whole("maxOffsetsPerTrigger"),
        min_rows=options.whole("minOffsetsPerTrigger"),
        max_bytes=options.whole("maxBytesPerTrigger"),
        max_delay=options.seconds("maxTriggerDelay", 900.0),
        headers=options.flag("includeHeaders"),
        extra=options.names("extraColumns"),
        push_down=options.flag("pushDownPredicate"),
        given=given,
        **more,
    )
    if found.min_rows is not None and found.max_rows is not None and found.min_rows > found.max_rows:
        raise OptionError(f"minOffsetsPerTrigger ({found.min_rows}) is higher than maxOffsetsPerTrigger ({found.max_rows})")
    return found


def bound(options: Options, side: str, topics: tuple[str, ...]) -> Bound | None:
    """Take the bound of one side: a time, times of partitions, or offsets, the first of these that is given.

    Args:
        side: "starting" or "ending". topics: the topics that are read, if they are known by name.
    Returns:
        the bound; None where none is given.
    Raises:
        OptionError: the option's text is not of its form.
    """
    moment = options.text(f"{side}Timestamp")
    times = options.text(f"{side}OffsetsByTimestamp")
    offsets = options.text(f"{side}Offsets")
    if moment is not None:
        try:
            return AtTime(milliseconds(moment))
        except ValueError:
            raise OptionError(f"option {side}Timestamp is {moment!r}; it takes one number of milliseconds since 1970") from None
    if times is not None:
        return {key: AtTime(value) for key, value in timestamps(times, f"{side}OffsetsByTimestamp").items()}
    return None if offsets is None else parse_bound(offsets, f"{side}Offsets", topics)


def parse_bound(text: str, option: str, topics: tuple[str, ...] = ()) -> Bound:
    """Parse an offsets option: a word, ``@milliseconds`` or the JSON form.

    Args:
        option: its name, for errors. topics: the only topics that it may name; empty: any.
    Raises:
        OptionError: the text has none of these forms, or names other topics.
    """
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return EARLIEST if word.lower() == "earliest" else LATEST
    if word.startswith("@") and word[1:].isdecimal():
        return AtTime(int(word[1:]))
    try:
        tree = json.loads(word)
        pairs = [(topic, part(number), where) for topic, inner in tree.items() for number, where in inner.items()]
        if any(isinstance(where, bool) or not isinstance(where, int | str) for _, _, where in pairs):
            raise ValueError("neither a number nor the text of a position")
    except (ValueError, AttributeError) as why:
        example = 'JSON like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
        raise OptionError(f"option {option} is {text!r}; it takes earliest, latest or {example}") from why
    strange = sorted({topic for topic, _, _ in pairs} - set(topics)) if topics else []
    if strange:
        raise OptionError(f"option {option} names topics that are not read: {', '.join(strange)}")
    special: dict[str, Earliest | Latest] = {"-2": EARLIEST, "-1": LATEST}
    found: dict[tuple[str, int | str], Place] = {}
    for topic, number, where in pairs:
        text = str(where)
        if text in special:
            found[topic, number] = special[text]
        elif isinstance(number, int):
            found[topic, number] = parse_position(text, topic, number)
        else:
            found[topic, number] = parse_position(f"{number}:{text}", topic, -1)
    return found


def part(text: str) -> int | str:
    """Parse a partition as JSON has it: its number, or a queue's name; raises ValueError."""
    return queue_name(*parse_queue(text)) if "/" in text else int(text)


def milliseconds(text: Any) -> int:
    """Parse a time in milliseconds since 1970; raises ValueError.

    Brokers take negative times for words (-1 is the end of the log), so they are refused.
    """
    found = int(text)
    if not 0 <= found <= _LARGEST:
        raise ValueError("no time of a record")
    return found


def timestamps(text: str, option: str) -> dict[tuple[str, int | str], int]:
    """Parse ``{"topic": {"0": 1700000000000}}``; raises OptionError naming the option."""
    try:
        return {
            (topic, part(number)): milliseconds(moment) for topic, inner in json.loads(text).items() for number, moment in inner.items()
        }
    except (ValueError, AttributeError, TypeError) as why:
        example = '{"topicA": {"0": 123456789, "1": 123456789}}'
        raise OptionError(f"option {option} is {text!r}; it takes JSON like {example}, milliseconds for each partition") from why


def address(options: Options, name: str, scheme: str, *, between: str = ",") -> str:
    """Return the URL for `wireproto.connect` from the option that holds ``host:port[,host:port]`` or a URL.

    Args:
        name: of the option. scheme: of the URL. between: a separator that may be used instead of the comma, as RocketMQ's users write it.
    Raises:
        OptionError: the option is missing.
    """
    hosts = options.text(name)
    if not hosts:
        raise OptionError(f"option {name} is missing: host:port[,host:port]")
    if hosts.partition("://")[0].partition("+")[0].startswith(scheme) and "://" in hosts:
        return hosts
    return f"{scheme}://{hosts.replace(between, ',')}"


def check_batch(settings: ReadSettings) -> None:
    """Raise OptionError for bounds that a batch read cannot have: a start at latest, an end at earliest, a start behind its end."""
    if settings.start == LATEST:
        raise OptionError("startingOffsets cannot be latest in a batch query: nothing would be read; use earliest, offsets or a time")
    if settings.stop == EARLIEST:
        raise OptionError("endingOffsets cannot be earliest in a batch query: nothing would be read; use latest, offsets or a time")
    starting, ending = settings.option("starting"), settings.option("ending")
    for side, places, wrong in ((starting, settings.start, LATEST), (ending, settings.stop, EARLIEST)):
        if isinstance(places, dict):
            for (topic, number), place in places.items():
                if place == wrong:
                    word = "latest (-1)" if wrong == LATEST else "earliest (-2)"
                    raise OptionError(f"{side} for {topic}-{number} cannot be {word} in a batch query")
    if isinstance(settings.start, AtTime) and isinstance(settings.stop, AtTime) and settings.start.ms > settings.stop.ms:
        raise OptionError(f"startingTimestamp ({settings.start.ms}) is later than endingTimestamp ({settings.stop.ms})")
    if isinstance(settings.start, dict) and isinstance(settings.stop, dict):
        if settings.start.keys() != settings.stop.keys():
            only = sorted(f"{topic}-{number}" for topic, number in settings.start.keys() ^ settings.stop.keys())
            raise OptionError(f"{starting} and {ending} must name the same partitions; only one names {', '.join(only)}")
        for key, first in settings.start.items():
            last = settings.stop[key]
            if isinstance(first, AtTime) and isinstance(last, AtTime):
                wrong_way = first.ms > last.ms
            else:
                wrong_way = isinstance(first, Position) and isinstance(last, Position) and last < first
            if wrong_way:
                raise OptionError(f"the start {first} of {key[0]}-{key[1]} is beyond its end {last}")


def check_stream(settings: ReadSettings) -> None:
    """Raise OptionError for options that a stream cannot have: an end."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name in settings.given:
            raise OptionError(f"option {name} is not valid in a streaming query: it has no end; stop it, or read a batch")
