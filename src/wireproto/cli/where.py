"""Parses places on the command line (``earliest``, ``latest``, a time, or positions), and the topic of a URL.

Times are ISO 8601 (``2013-01-01``, ``2013-01-01T10:00:00+02:00``; without a zone they are UTC's) or ``@`` and milliseconds since 1970. A
bare number is an offset; one that looks like such milliseconds is refused, since it would be taken for an offset without any warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from wireproto.errors import OptionError
from wireproto.position import EARLIEST, LATEST, AtTime, Earliest, Latest, Position, TopicPartition, parse_positions
from wireproto.protocols import find
from wireproto.url import parse

LIKE_A_TIME = 10**12  # milliseconds: September 2001
Place = Earliest | Latest | AtTime | Mapping[TopicPartition, Position]


def parse_place(text: str, topic: str) -> Place:
    """Parse a place as typed, for positions of `topic`. Raises OptionError."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return EARLIEST if word.lower() == "earliest" else LATEST
    if word.startswith("@") and word[1:].isdecimal():
        return AtTime(int(word[1:]))
    if re.match(r"\d{4}-\d\d", word):
        try:
            moment = datetime.fromisoformat(word)
        except ValueError as why:
            raise OptionError(f"{text!r} is not a time: ISO 8601, like 2013-01-01 or 2013-01-01T10:00:00Z") from why
        return AtTime.of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if word.isdecimal() and int(word) >= LIKE_A_TIME:
        raise OptionError(f"{word} looks like milliseconds since 1970: write @{word} for a time, or 0={word} for an offset of partition 0")
    return parse_positions(word, topic)


def topic_of(url: str) -> str:
    """Return the topic that the URL's path names; for a protocol whose path is the root of names (ZooKeeper), the whole path.

    Raises:
        OptionError: the URL has no path.
    """
    found = parse(url)
    if not found.path:
        raise OptionError("no topic: add it to the URL, like kafka://localhost:9092/topic")
    return f"/{found.path}" if find(found.protocol).path == "root" else found.path


def server_of(url: str) -> str:
    """Return the URL to connect to: without the path, if that would become the root of all names (ZooKeeper)."""
    if find(parse(url).protocol).path != "root":
        return url
    server, query, options = url.partition("?")
    scheme, sep, rest = server.partition("://")
    return scheme + sep + rest.partition("/")[0] + query + options
