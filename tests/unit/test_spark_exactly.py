"""What exactly-once sinks of all protocols make of a decision, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto.errors import Aborted, UsageError
from wireproto.spark.exactly import Decided, Plan
from wireproto.spark.write import Task


def decision(query: str | None, **more: Any) -> Decided[int]:
    return Decided("d", query, None if query is None else 4, (0, 1, 2), **more)


def task(query: str | None, number: int, batch: int | None = 4) -> Task:
    return Task(number, 0, query, batch, "run", 0)


def test_lost_tasks_are_written_again_and_the_others_are_not() -> None:
    plan = Plan.after(None, decision("q"), (1,), (1,))
    assert [plan.skips(task("q", number)) for number in range(3)] == [True, False, True]


@pytest.mark.parametrize(("query", "batch"), [("other", 0), (None, None)])
def test_another_query_of_the_prefix_waits_for_tasks_that_have_to_be_written_again(query: str | None, batch: int | None) -> None:
    """Its decision would be the last one then, and the lost rows passed over for good."""
    plan = Plan.after(None, decision("q"), (1,), (1,))
    with pytest.raises(
        UsageError, match="the tasks 1 of the query q, which has the same transactionalIdPrefix, have to be written again first"
    ):
        plan.skips(task(query, 0, batch))


def test_of_what_nothing_is_seen_nobody_waits() -> None:
    plan = Plan.after(None, decision("q", others={"r": 3}), (0, 1, 2), (0, 1, 2))
    assert not plan.skips(task("q", 0))
    assert not plan.skips(task("other", 0, 0))
    assert plan.known == {"r": 3}


@pytest.mark.parametrize(("query", "again", "raises"), [("q", False, True), ("q", True, False), (None, False, True), (None, True, True)])
def test_what_was_lost_of_a_batch_write_is_never_written_again_by_another_one(query: str | None, again: bool, raises: bool) -> None:
    made = decision(query)
    if not raises:
        made.judged((1,), (1,), "setting", "here", again=again)
        return
    with pytest.raises(Aborted, match="the others are committed" + ("" if query else r"\. To discard them: wireproto sinks drop")):
        made.judged((1,), (1,), "setting", "here", again=again)


@pytest.mark.parametrize("query", ["q", None])
def test_of_what_nothing_is_seen_all_is_written_again(query: str | None) -> None:
    decision(query).judged((0, 1, 2), (0, 1, 2), "setting", "here", again=False)
