"""Starts and stops as users give them, partition by partition, with one set of errors."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto.errors import OptionError
from wireproto.flow.resolve import Resolver
from wireproto.position import EARLIEST, LATEST, AtTime, LogOffset, MessageId

LOG = Resolver(LogOffset)
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
ALL = [T0, T1, T2]


@pytest.mark.parametrize("where", [EARLIEST, LATEST, AtTime(5)])
def test_what_names_no_partition_is_asked_of_all(where: Any) -> None:
    assert LOG.requests(where, ALL) == dict.fromkeys(ALL, where)


def test_a_position_or_a_mapping_is_asked_of_the_partitions_that_it_names() -> None:
    assert LOG.requests(LogOffset("t", 1, 7), ALL) == {T1: LogOffset("t", 1, 7)}
    mixed: Any = {T2: LogOffset("t", 2, 0), T0: LATEST, T1: AtTime(9)}
    assert LOG.requests(mixed, ALL) == mixed
    assert LOG.requests({}, ALL) == {}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("earliest", "start is EARLIEST, LATEST, AtTime, a position or a mapping of positions, not 'earliest'"),
        (5, "start is EARLIEST, LATEST, AtTime, a position or a mapping of positions, not 5"),
        (LogOffset("t", 3, 1), r"start names t\[3\], which is not among the partitions here, t\[0\], t\[1\], t\[2\]"),
        (LogOffset("u", 0, 1), r"start names u\[0\], which is not among the partitions here"),
        ({T0: MessageId("t", 0, 1, 1)}, r"start of t\[0\] is a number or EARLIEST, LATEST, AtTime, not MessageId"),
        ({T0: 7}, r"start of t\[0\] is a number or EARLIEST, LATEST, AtTime, not 7"),
        ({T0: LogOffset("t", 1, 1)}, r"LogOffset\(topic='t', partition=1, offset=1\) is no position in t\[0\]"),
        (LogOffset("t", 0, -1), "is before the beginning"),
    ],
)
def test_what_is_no_place_here_is_refused(where: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        LOG.requests(where, ALL)
    assert caught.value.topic in (None, "t")


def test_a_partition_may_be_known_under_several_names() -> None:
    ids = Resolver(MessageId, lambda key: (key[0].removeprefix("persistent://"), -1))
    place = MessageId("persistent://t", 0, 3, 4)
    assert ids.requests(place, [("t", -1)]) == {("t", -1): place}
    with pytest.raises(OptionError, match=r"start of t\[-1\] is ledger:entry:index"):
        ids.requests({("t", 0): LogOffset("t", 0, 1)}, [("t", -1)])


def test_a_reader_reads_what_its_start_or_its_stop_names() -> None:
    one, two = LogOffset("t", 1, 3), LogOffset("t", 1, 5)
    assert LOG.ranges(EARLIEST, None, ALL) == (dict.fromkeys(ALL, EARLIEST), {})
    assert LOG.ranges(EARLIEST, LATEST, ALL) == (dict.fromkeys(ALL, EARLIEST), dict.fromkeys(ALL, LATEST))
    assert LOG.ranges(one, LATEST, ALL) == ({T1: one}, {T1: LATEST})
    assert LOG.ranges(EARLIEST, two, ALL) == ({T1: EARLIEST}, {T1: two})
    assert LOG.ranges(one, two, ALL) == ({T1: one}, {T1: two})


def test_a_start_and_a_stop_that_name_partitions_name_the_same() -> None:
    one, other = LogOffset("t", 0, 3), LogOffset("t", 1, 5)
    with pytest.raises(OptionError, match=r"t\[1\] has no stop: start and stop name the same partitions"):
        LOG.ranges({T0: one, T1: other}, one, ALL)
    with pytest.raises(OptionError, match=r"t\[1\] has no start"):
        LOG.ranges(one, {T0: one, T1: other}, ALL)
