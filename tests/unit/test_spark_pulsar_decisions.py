"""What the log of an exactly-once sink's decisions says, by the order of its records."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto.errors import Malformed
from wireproto.position import MessageId
from wireproto.pulsar.transactions import TransactionId
from wireproto.spark.pulsar_decisions import Decision, Found, Handed, Leader, Places, judged, read

HANDED = (Handed(0, TransactionId(0, 1), 5.0), Handed(3, TransactionId(2, 7), 6.0))


def decision(number: str, batch: int = 0) -> Decision:
    return Decision(number, "q", batch, HANDED, others={"r": 4}, rest=True, places=Places("1:2:-1", "3:4:-1+"))


def record(kind: str, epoch: int, who: str = "a", **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "leader": Leader(epoch, who), **facts}


def decided(epoch: int, number: str = "d", batch: int = 0, who: str = "a") -> dict[str, Any]:
    return record("decided", epoch, who, **decision(number, batch).to_facts())


def says(*records: dict[str, Any]) -> Found:
    return judged((MessageId("t", -1, 7, count), one) for count, one in enumerate(records))


def test_a_decision_is_what_it_was_made_of() -> None:
    found = says(record("taken", 0), decided(0))
    assert (found.decision, found.at, found.leader) == (decision("d"), MessageId("t", -1, 7, 1), (0, "a"))


def test_the_last_one_counts_and_its_own_note() -> None:
    found = says(decided(0, "a"), record("ended", 0, id="a"), decided(0, "b", 1), record("taken", 1))
    assert found.decision == decision("b", 1)
    found = says(decided(0, "a"), decided(0, "b", 1), record("ended", 0, id="b"))
    assert found.decision is not None
    assert (found.decision.number, found.decision.ended) == ("b", True)


@pytest.mark.parametrize("late", [decided(1, "late", 1), record("ended", 1, id="d"), record("dropped", 1)])
def test_what_an_older_driver_stores_behind_a_newer_one_is_void(late: dict[str, Any]) -> None:
    found = says(decided(1), record("taken", 2), late)
    assert found.decision is not None
    assert (found.decision.number, found.decision.ended, found.leader) == ("d", False, (2, "a"))


def test_of_two_that_were_given_one_epoch_the_later_one_decides() -> None:
    """A broker gives it to both when they come while it is stored."""
    both = record("taken", 3, "old"), record("taken", 3, "new")
    assert says(*both, decided(3, who="old")).decision is None
    found = says(*both, decided(3, "late", who="old"), decided(3, "d", who="new"), record("ended", 3, "old", id="d"))
    assert found.decision is not None
    assert (found.decision.number, found.decision.ended, found.leader) == ("d", False, (3, "new"))


@pytest.mark.parametrize("before", [(), (record("taken", 1, "late"),)])
def test_who_came_before_what_is_read_is_known_by_what_he_wrote(before: tuple[dict[str, Any], ...]) -> None:
    found = says(*before, decided(2, who="b"), decided(2, "void", who="c"), record("taken", 1, "late"), record("dropped", 1, "late"))
    assert (found.decision, found.leader, found.sure) == (decision("d"), (2, "b"), False)


def test_what_a_driver_stores_behind_his_own_late_record_is_his() -> None:
    assert says(record("taken", 2), record("taken", 1), decided(2)).decision == decision("d")


def test_a_prefix_that_was_dropped_has_no_decision() -> None:
    found = says(decided(0), record("dropped", 1), record("taken", 2))
    assert (found.decision, found.at) == (None, None)


@pytest.mark.parametrize(("before", "sure"), [(15, False), (16, True)])
def test_a_decision_without_much_before_it_may_be_void(before: int, sure: bool) -> None:
    assert says(*[record("taken", 0)] * before, decided(0)).sure is sure


def test_a_decision_whose_driver_was_not_seen_to_come_may_be_void() -> None:
    assert not says(*[record("ended", 0, id="")] * 30, decided(0)).sure


@pytest.mark.parametrize(
    "text", [None, b"", b"[]", b"{}", b'{"kind":"taken","epoch":"x","who":"a"}', b'{"epoch":1,"who":"a"}', b'{"kind":"taken","epoch":1}']
)
def test_what_is_no_record_is_told(text: bytes | None) -> None:
    with pytest.raises(Malformed, match="cannot be read"):
        read(text)


def test_a_decision_that_is_none_is_told() -> None:
    with pytest.raises(Malformed, match="cannot be read"):
        says(record("decided", 0, id="d"))
