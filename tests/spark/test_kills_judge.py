"""The judge of the killed jobs sees each fault that it is there for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from spark.kills.harness import cuts, plan
from spark.kills.records import KEYS, Judge, key, transformed, value

TOTAL = 3 * KEYS
RIGHT = list(range(TOTAL))


def judged(numbers: Iterable[int], *, once: bool = True, ordered: bool = True) -> list[str]:
    judge = Judge(TOTAL, ordered=ordered)
    for place, number in enumerate(numbers):
        judge.take(0, str(place), key(number), transformed(number))
    return judge.verdict(once=once)


def test_what_is_right_is_called_right() -> None:
    assert judged(RIGHT) == []
    assert judged([*range(10), *RIGHT], once=False) == []
    assert judged(sorted(RIGHT, key=lambda number: number % KEYS)) == []


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (RIGHT[:-1], "lost: 1 of"),
        (RIGHT[1:], "lost: 1 of"),
        ([*RIGHT, 5], "repeated: 1 records, of the numbers [5]"),
        ([KEYS, 0, *range(1, KEYS), *range(KEYS + 1, TOTAL)], "disorder: 0"),
        (RIGHT[: KEYS // 2] + RIGHT[KEYS // 2 + 1 :] + [KEYS // 2], "disorder"),
        ([*RIGHT, TOTAL], "strange"),
    ],
)
def test_faults_are_named(numbers: list[int], said: str) -> None:
    assert any(said in line for line in judged(numbers)), judged(numbers)


def test_order_is_judged_where_there_is_one() -> None:
    backwards = [*RIGHT[KEYS:], *RIGHT[:KEYS]]
    assert any("disorder" in line for line in judged(backwards))
    assert judged(backwards, ordered=False) == []
    assert any("lost: 1 of" in line for line in judged(backwards[:-1], ordered=False))


def test_a_changed_value_and_a_key_in_two_partitions_are_named() -> None:
    judge = Judge(2 * KEYS)
    judge.take(0, "0", key(0), value(0))
    judge.take(1, "1", key(KEYS), transformed(KEYS))
    kinds = {line.partition(":")[0] for line in judge.verdict(once=True)}
    assert kinds == {"changed", "scattered", "lost"}


def test_a_seed_chooses_the_same_points_each_time_and_every_kind_as_often() -> None:
    kinds = ("driver", "worker", "kafka")
    kills = plan(7, kinds, 20, 1_000_000, 10_000)
    assert kills == plan(7, kinds, 20, 1_000_000, 10_000) != plan(8, kinds, 20, 1_000_000, 10_000)
    assert [sum(kill.whom == kind for kill in kills) for kind in kinds] == [20, 20, 20]
    assert [kill.point for kill in kills] == sorted(kill.point for kill in kills)
    assert kills[-1].point < 980_000


@pytest.mark.parametrize("tasks", [False, True])
def test_each_start_cuts_otherwise_and_a_seed_the_same_way_each_time(tasks: bool) -> None:
    found = list(itertools.islice(cuts(7, 5_000, tasks=tasks), 40))
    assert found == list(itertools.islice(cuts(7, 5_000, tasks=tasks), 40)) != list(itertools.islice(cuts(8, 5_000, tasks=tasks), 40))
    for one, other in itertools.pairwise(found):
        assert all(one[name] != other[name] for name in one)
    assert all(2_500 <= int(one["maxOffsetsPerTrigger"]) <= 5_000 for one in found)
    assert all(("minPartitions" in one) == tasks for one in found)
