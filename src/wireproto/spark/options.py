"""Options of the Spark formats: Spark's case-insensitive text map to what the sources need.

What it is: one reader for all four formats; an unknown option is an error on the driver that names it, before any task starts.
Offsets are given as ``earliest``, ``latest``, a time (``@1700000000000``, milliseconds) or JSON ``{"topic": {"0": 23, "1": -1}}``, where -2
is earliest and -1 latest, as the JVM's Kafka connector has it; other protocols write the text of their positions.
May assume nothing of Spark but that options are a mapping of text. Must not open a connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from ..errors import OptionError
from ..position import EARLIEST, LATEST, AtTime, Earliest, Latest, Position, TopicPartition, parse_position

Bound = Earliest | Latest | AtTime | dict[TopicPartition, Earliest | Latest | Position]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source needs on driver and worker; picklable, holds no connection.

    Attributes:
        url: for `wireproto.connect`, without credentials in its path.
        client: keyword options for `wireproto.connect`.
        topics: topics to read.
        start, stop: bounds as the user gave them.
        flags: the remaining options of the format, lower-case names.
    """

    url: str
    client: Mapping[str, str]
    topics: tuple[str, ...] = ()
    start: Bound = EARLIEST
    stop: Bound = LATEST
    flags: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str, default: bool = False) -> bool:
        """A true/false option; anything else raises OptionError naming it."""
        text = self.flags.get(name.lower(), str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f"option {name} is {text!r}; it takes true or false")
        return text == "true"


def read_options(
    given: Mapping[str, str], *, scheme: str, servers: str, topic: str | None, known: Iterable[str], prefix: str
) -> SourceOptions:
    """Sort a Spark option map.

    Args:
        given: the options as Spark hands them over.
        scheme: URL scheme of the protocol.
        servers: name of the option that holds ``host:port[,host:port]``.
        topic: name of the option that lists topics, or None where the format has none.
        known: further option names of the format.
        prefix: options that start with it go to the client under the rest of their name.
    Raises:
        OptionError: a required option is missing, one is unknown, or a value does not parse.
    """
    options = {name.lower(): value for name, value in given.items()}
    names = {servers, "startingOffsets", "endingOffsets", *known} | ({topic} if topic else set())
    folded = {name.lower(): name for name in names}
    client: dict[str, str] = {}
    flags: dict[str, str] = {}
    for name, value in options.items():
        if name in folded:
            flags[name] = value
        elif name.startswith(prefix):
            client[name[len(prefix) :].replace(".", "_")] = value
        elif name != "path":
            near = get_close_matches(name, folded, 1)
            raise OptionError(f"unknown option {name!r}" + (f"; did you mean {folded[near[0]]}?" if near else ""))
    hosts = flags.pop(servers.lower(), "")
    if not hosts:
        raise OptionError(f"option {servers} is missing: host:port[,host:port]")
    url = hosts if hosts.partition("://")[0].partition("+")[0].startswith(scheme) else f"{scheme}://{hosts}"
    topics: tuple[str, ...] = ()
    if topic:
        topics = tuple(name.strip() for name in flags.pop(topic.lower(), "").split(",") if name.strip())
        if not topics:
            raise OptionError(f"option {topic} is missing: the topics to read, separated by commas")
    start = parse_bound(flags.pop("startingoffsets", "earliest"), "startingOffsets", topics)
    stop = parse_bound(flags.pop("endingoffsets", "latest"), "endingOffsets", topics)
    if isinstance(stop, Earliest):
        raise OptionError("option endingOffsets cannot be earliest")
    return SourceOptions(url, client, topics, start, stop, flags)


def parse_bound(text: str, option: str, topics: tuple[str, ...]) -> Bound:
    """Read an offsets option: a word, ``@milliseconds`` or the JSON form."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return EARLIEST if word.lower() == "earliest" else LATEST
    if word.startswith("@") and word[1:].isdecimal():
        return AtTime(int(word[1:]))
    try:
        tree = json.loads(word)
        pairs = [(topic, int(number), str(where)) for topic, inner in tree.items() for number, where in inner.items()]
    except (ValueError, AttributeError) as why:
        raise OptionError(f'option {option} is {text!r}; it takes earliest, latest or JSON like {{"topic": {{"0": 23}}}}') from why
    strange = sorted({topic for topic, _, _ in pairs} - set(topics))
    if strange:
        raise OptionError(f"option {option} names topics that are not read: {', '.join(strange)}")
    special: dict[str, Earliest | Latest] = {"-2": EARLIEST, "-1": LATEST}
    return {
        (topic, number): special[where] if where in special else parse_position(where, topic, number)
        for topic, number, where in pairs
    }
