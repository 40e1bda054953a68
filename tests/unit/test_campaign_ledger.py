"""The campaign's judges on histories made by hand: what must be caught is caught, what is allowed is let pass.

Each history is a good one (`good`) with one fault in it, as a client with that fault would have left it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaign import judge_calls, judge_clocks, judge_flow, judge_groups, judge_logins, judge_queues, judge_reads, judge_sends, streaming
from campaign.ledger import Finding, Ledger, Promise, Role, Truth, Window

LOG = "main/0"
ROLES = {
    "sure": Role("sure", "producer", "main", promise=Promise(patience=60.0), fixed=True),
    "loose": Role("loose", "producer", "weak", promise=Promise(kept=False, once=False, ordered=False)),
    "reader": Role("reader", "reader", "main"),
    "first": Role("first", "member", "main", group="g"),
    "second": Role("second", "member", "main", group="g"),
    "worker": Role("worker", "worker", "main", group="q"),
    "helper": Role("helper", "worker", "main", group="q"),
}
COUNT = 10


def alone(_begin: float, _end: float) -> float:
    """A machine without other work."""
    return 1.0


def faults(found: Iterable[Finding]) -> set[str]:
    return {finding.check for finding in found if finding.fault}


def ledger(events: Iterable[list[Any]]) -> Ledger:
    found = Ledger(ROLES)
    for event in events:
        found.take(event)
    return found


def rows(*numbers: int, source: str = "sure") -> list[tuple[tuple[int, ...], str]]:
    return [((place,), f"{source}:{number}") for place, number in enumerate(numbers)]


def delivered(*places: int) -> list[Any]:
    return [[[place], f"sure:{place}"] for place in places]


TRUTH: Truth = {LOG: rows(*range(COUNT))}
SENT: list[list[Any]] = [
    [1.0, "sent", "sure", 0, COUNT],
    [2.0, "acked", "sure", [[number, LOG, [number], 0.5] for number in range(COUNT)]],
]


# Sends.


@pytest.mark.parametrize(("log", "told"), [((0, 2, 1, 3), False), ((2, 0, 1, 3), True)], ids=["of other keys", "of one key"])
def test_order_by_key_is_judged_by_key(log: tuple[int, ...], told: bool) -> None:
    found = Ledger(ROLES | {"sure": Role("sure", "producer", "main", keys=2)})
    for event in ([1.0, "sent", "sure", 0, 4], [2.0, "acked", "sure", [[number, LOG, [log.index(number)], 0.5] for number in range(4)]]):
        found.take(event)
    assert faults(judge_sends.judge(found, {LOG: rows(*log)})) == ({"order"} if told else set())


def test_a_log_that_holds_what_was_acknowledged_has_no_fault() -> None:
    assert faults(judge_sends.judge(ledger(SENT), TRUTH)) == set()


@pytest.mark.parametrize(
    ("log", "check"),
    [
        (rows(0, 1, 2, 3, 4, 5, 6, 7, 8), "acknowledged is kept"),
        (rows(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4), "no repeat on sending"),
        (rows(0, 1, 3, 2, 4, 5, 6, 7, 8, 9), "order"),
        (rows(0, 1, 3, 2, 4, 5, 6, 7, 8, 9), "place as told"),
        (rows(*range(11)), "only what was sent"),
    ],
    ids=["a batch dropped", "sent again without its sequence", "overtaken", "another place", "never sent"],
)
def test_a_log_with_a_fault_is_told(log: list[tuple[tuple[int, ...], str]], check: str) -> None:
    assert check in faults(judge_sends.judge(ledger(SENT), {LOG: log}))


def test_a_repeat_behind_later_records_is_a_repeat_and_no_disorder() -> None:
    assert faults(judge_sends.judge(ledger(SENT), {LOG: rows(*range(COUNT), 3, 4)})) == {"no repeat on sending"}


def test_a_send_without_an_outcome_is_told() -> None:
    assert faults(judge_sends.judge(ledger(SENT[:1]), TRUTH)) == {"each send has an outcome"}


@pytest.mark.parametrize(("seconds", "told"), [(3.0, {"sends go on trying"}), (60.5, set())])
def test_a_record_given_up_too_early_is_told(seconds: float, told: set[str]) -> None:
    events = [[1.0, "sent", "sure", 0, 1], [1.0 + seconds, "failed", "sure", 0, "Disconnected", seconds]]
    assert faults(judge_sends.judge(ledger(events), {LOG: []})) == told


def test_a_record_that_send_refused_and_the_log_holds_is_told() -> None:
    events = [[1.0, "sent", "sure", 0, 1], [1.1, "refused", "sure", 0, "BufferFull"]]
    assert faults(judge_sends.judge(ledger(events), {LOG: rows(0)})) == {"only what was taken"}


@pytest.mark.parametrize(("windows", "told"), [([Window("kill", 1.5, frozenset({0}), 3.0)], set()), ([], {"acknowledged is kept"})])
def test_what_was_not_promised_may_go_only_where_a_fault_explains_it(windows: list[Window], told: set[str]) -> None:
    events = [[1.0, "sent", "loose", 0, 2], [2.0, "acked", "loose", [[0, "weak/0", [], 0.1], [1, "weak/0", [], 0.1]]]]
    found = ledger(events)
    found.windows = windows
    assert faults(judge_sends.judge(found, {"weak/0": rows(1, source="loose")})) == told


@pytest.mark.parametrize(("seconds", "told"), [(4.5, set()), (0.5, {"acknowledged is kept"})])
def test_what_was_not_promised_may_go_where_a_broker_stood_still_by_itself(seconds: float, told: set[str]) -> None:
    """Another one leads then, and what this one acknowledges before it hears of that goes."""
    events = [[1.0, "sent", "loose", 0, 1], [2.0, "acked", "loose", [[0, "weak/0", [], 0.1]]], [6.0, "control", "single/1", seconds]]
    assert faults(judge_sends.judge(ledger(events), {"weak/0": []})) == told


@pytest.mark.parametrize(
    ("heard", "seconds", "told"),
    [(False, 5.0, set()), (False, 1.0, {"acknowledged is kept"}), (True, 5.0, {"acknowledged is kept"})],
    ids=["its connection may have ended", "all was well", "answered"],
)
def test_what_nobody_answers_may_go_where_a_request_beside_it_went_unanswered(heard: bool, seconds: float, told: set[str]) -> None:
    promise = Promise(kept=False, once=False, ordered=False, heard=heard)
    found = Ledger(ROLES | {"loose": Role("loose", "producer", "weak", promise=promise)})
    for event in (
        [1.0, "sent", "loose", 0, 1],
        [1.1, "acked", "loose", [[0, "weak/0", [], 0.1]]],
        [1.0, "sent", "sure", 0, 1],
        [1.0 + seconds, "acked", "sure", [[0, LOG, [0], seconds]]],
    ):
        found.take(event)
    assert faults(judge_sends.judge(found, {LOG: rows(0), "weak/0": []})) == told


# Readers.


def reading(*groups: list[Any], start: Any = "earliest", stop: bool = False, why: str = "") -> list[list[Any]]:
    got = [[4.0 + step, "got", "reader", 0, LOG, group] for step, group in enumerate(groups)]
    return [*SENT, [3.0, "life", "reader", 0, {"start": start, "stop": stop}], *got, [9.0, "ended", "reader", 0, why]]


@pytest.mark.parametrize("stop", [False, True])
def test_a_reader_that_sees_each_record_once_has_no_fault(stop: bool) -> None:
    events = reading(delivered(0, 1, 2), delivered(*range(3, COUNT)), stop=stop)
    assert faults(judge_reads.judge(ledger(events), TRUTH)) == set()


def test_a_reader_that_goes_on_behind_a_place_has_no_fault() -> None:
    assert faults(judge_reads.judge(ledger(reading(delivered(*range(4, COUNT)), start={LOG: [3]})), TRUTH)) == set()


@pytest.mark.parametrize(
    ("groups", "check"),
    [
        ([delivered(0, 1, 2), delivered(4, 5, 6, 7, 8, 9)], "no gap"),
        ([delivered(0, 1, 2), delivered(2, 3, 4, 5, 6, 7, 8, 9)], "no repeat on reading"),
        ([delivered(1, 2, 3, 4, 5, 6, 7, 8, 9)], "no gap"),
        ([[[[0], "sure:7"]]], "reads what is there"),
        ([[[[12], "sure:7"]]], "reads what is there"),
        ([delivered(0, 1, 2)], "reads to the end"),
    ],
    ids=["a batch dropped", "a record twice", "begins late", "another record", "a place that is not", "stuck"],
)
def test_a_reader_with_a_fault_is_told(groups: list[list[Any]], check: str) -> None:
    assert check in faults(judge_reads.judge(ledger(reading(*groups)), TRUTH))


def test_a_bounded_read_that_ends_before_what_was_acknowledged_is_told() -> None:
    assert faults(judge_reads.judge(ledger(reading(delivered(0, 1, 2), stop=True)), TRUTH)) == {"reads to its stop"}


@pytest.mark.parametrize(
    ("stop", "hurt", "fault"),
    [(9, True, True), (2, False, True), (2, True, False)],
    ids=["before its own stop", "a stop too early", "a stop told by a broker that was hurt"],
)
def test_a_bounded_read_has_to_reach_the_stop_that_it_names(stop: int, hurt: bool, fault: bool) -> None:
    events = reading(delivered(0, 1, 2), stop=True)
    events.insert(3, [3.1, "stops", "reader", 0, {LOG: [stop]}])
    found = ledger(events)
    if hurt:
        found.windows.append(Window("kill", 2.5, None))
    told = list(judge_reads.judge(found, TRUTH))
    assert [(finding.check, finding.fault) for finding in told] == [("reads to its stop", fault)]


def test_a_life_that_ended_by_an_error_owes_nothing_behind_it() -> None:
    assert faults(judge_reads.judge(ledger(reading(delivered(0, 1, 2), why="Disconnected")), TRUTH)) == set()


@pytest.mark.parametrize(
    ("got", "why", "told"),
    [
        (delivered(0, 1, 2), "", set()),
        (delivered(5, 6), "", set()),
        ([[[7], "sure:70"]], "DataLoss: the log was cut", set()),
        ([[[7], "sure:70"]], "", {"reads what is there"}),
        ([[[7], "sure:70"]], "TimedOut: DataLoss it is not", {"reads what is there"}),
        (delivered(0, 1, 1), "DataLoss", {"no repeat on reading"}),
        ([*delivered(3), [[2], "sure:9"]], "DataLoss", {"no repeat on reading"}),
    ],
    ids=["all there", "begins later", "cut, and told", "cut in silence", "cut, and another error", "twice", "back"],
)
def test_who_reads_a_log_that_is_cut_goes_forward_or_ends(got: list[Any], why: str, told: set[str]) -> None:
    found = Ledger(ROLES | {"reader": Role("reader", "reader", "main", fleeting=True)})
    for event in (
        *SENT,
        [3.0, "life", "reader", 0, {"start": "earliest", "told": ["DataLoss"]}],
        [4.0, "got", "reader", 0, LOG, got],
        [5.0, "ended", "reader", 0, why],
    ):
        found.take(event)
    assert faults(judge_reads.judge(found, TRUTH)) == told


@pytest.mark.parametrize(
    ("start", "why", "told"),
    [({LOG: [7]}, "DataLoss", set()), ({LOG: [7]}, "", {"reads what is there"}), ("earliest", "DataLoss", {"reads what is there"})],
    ids=["gone on with, and told", "gone on with in silence", "begun anew"],
)
def test_a_life_that_other_trouble_ended_is_told_by_the_one_that_goes_on_with_it(start: object, why: str, told: set[str]) -> None:
    found = Ledger(ROLES | {"reader": Role("reader", "reader", "main", fleeting=True)})
    for event in (
        *SENT,
        [3.0, "life", "reader", 0, {"start": "earliest", "told": ["DataLoss"]}],
        [4.0, "got", "reader", 0, LOG, [[[7], "sure:70"]]],
        [5.0, "ended", "reader", 0, "ConnectError: refused"],
        [6.0, "life", "reader", 1, {"start": start, "told": ["DataLoss"]}],
        [7.0, "ended", "reader", 1, why],
    ):
        found.take(event)
    assert faults(judge_reads.judge(found, TRUTH)) == told


def test_what_stood_in_an_earlier_life_of_a_topic_may_be_gone() -> None:
    found = Ledger(ROLES | {"sure": Role("sure", "producer", "main", promise=Promise(kept=False), fleeting=True)})
    for event in SENT:
        found.take(event)
    assert faults(judge_sends.judge(found, {LOG: []})) == set()


@pytest.mark.parametrize(
    ("batches", "check"),
    [
        ([[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]], None),
        ([[0, 1, 2], [7, 8, 9]], "no gap"),
        ([[0, 1, 2], [2, 3, 4, 5, 6, 7, 8, 9]], "no repeat on reading"),
        ([[0, 1, 2], [3, 4, 5, 6]], "reads to the end"),
    ],
    ids=["each once", "a micro-batch lost", "a record in two", "stuck"],
)
def test_what_a_spark_stream_wrote_is_judged_as_a_reader(tmp_path: Path, batches: list[list[int]], check: str | None) -> None:
    for number, offsets in enumerate(batches):
        (tmp_path / f"{number:09}.json").write_text(json.dumps([[0, offset, f"sure:{offset}"] for offset in offsets]))
    (tmp_path / f"{len(batches):09}.new").write_text("[[0,")  # its driver was killed
    found = ledger([*SENT, *streaming.told("reader", "main", tmp_path, 0.5, 20.0)])
    assert faults(judge_reads.judge(found, TRUTH)) == ({check} if check else set())


# Groups.


def got(at: float, member: str, *places: int) -> list[Any]:
    return [at, "got", member, 0, LOG, delivered(*places)]


def commit(at: float, member: str, place: int, done: bool = True) -> list[Any]:
    return [at, "commit", member, 0, at - 0.1, {LOG: [place]}, done, "" if done else "TimedOut"]


def group(*events: list[Any]) -> list[list[Any]]:
    return [*SENT, [3.0, "life", "first", 0, {}], [3.0, "life", "second", 0, {}], *events]


@pytest.mark.parametrize(("last", "told"), [(COUNT - 1, set()), (COUNT - 2, {"a group goes on"})])
def test_a_group_of_a_log_that_was_cut_comes_to_its_last_record(last: int, told: set[str]) -> None:
    found = Ledger(ROLES | {name: Role(name, "member", "main", group="g", fleeting=True) for name in ("first", "second")})
    for event in group([4.0, "got", "first", 0, LOG, [[[5], "sure:50"], *delivered(*range(3, last + 1))]]):
        found.take(event)
    assert faults(judge_groups.judge(found, TRUTH)) == told


def test_the_next_owner_that_begins_at_the_commit_has_no_fault() -> None:
    events = group(got(4, "first", 0, 1, 2, 3), commit(5, "first", 3), got(6, "second", *range(4, COUNT)))
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == set()


def test_what_was_not_committed_may_come_again() -> None:
    events = group(got(4, "first", 0, 1, 2, 3), commit(5, "first", 1), got(6, "second", *range(2, COUNT)))
    found = list(judge_groups.judge(ledger(events), TRUTH))
    assert faults(found) == set()
    assert [finding.text for finding in found] == [f"g in {LOG}: 2, in 2 stints"]


def test_a_commit_in_doubt_lets_the_next_owner_begin_on_either_side_of_it() -> None:
    for first in (2, 3, 4):
        events = group(got(4, "first", 0, 1, 2, 3), commit(4.5, "first", 1), commit(5, "first", 3, done=False))
        events.append(got(6, "second", *range(first, COUNT)))
        assert faults(judge_groups.judge(ledger(events), TRUTH)) == set()


def test_a_member_that_is_killed_in_a_commit_may_have_made_it() -> None:
    events = group(got(4, "first", 0, 1, 2, 3), [5.0, "commit", "first", 0, 5.0, {LOG: [3]}, False, "tried"])
    for first in (0, 4):
        assert faults(judge_groups.judge(ledger([*events, got(6, "second", *range(first, COUNT))]), TRUTH)) == set()


def test_a_commit_of_records_that_were_not_handed_out_is_told() -> None:
    """The client commits what it has fetched: the next owner begins behind records that nobody saw."""
    events = group(got(4, "first", 0, 1, 2), commit(5, "first", 2), got(6, "second", 5, 6, 7, 8, 9))
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == {"no gap", "a group sees every record"}


def test_a_dropped_batch_is_told_though_another_member_saw_it() -> None:
    events = group(got(4, "first", 0, 1, 2, 3, 4), commit(5, "first", 2), got(6, "second", *range(5, COUNT)))
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == {"no gap"}


def test_records_behind_the_commit_that_come_again_are_told() -> None:
    events = group(got(4, "first", 0, 1, 2, 3), commit(5, "first", 3), got(6, "second", *range(1, COUNT)))
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == {"resumes at the commit"}


@pytest.mark.parametrize(("ended", "told"), [(5.8, set()), (5.4, {"no gap"})])
def test_a_commit_under_way_when_a_group_is_reset_may_hold(ended: float, told: set[str]) -> None:
    events = group(got(4, "first", 0, 1, 2, 3), [ended, "commit", "first", 0, 5.3, {LOG: [3]}, False, "Revoked"])
    events += [[5.5, "reset", "g", {LOG: []}], got(6, "second", *range(4, COUNT))]
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == told


@pytest.mark.parametrize(("first", "told"), [(1, set()), (5, {"no gap"})])
def test_a_reset_from_outside_is_where_the_next_one_begins(first: int, told: set[str]) -> None:
    events = group(got(4, "first", *range(COUNT)), commit(5, "first", COUNT - 1))
    events += [[5.5, "reset", "g", {LOG: [0]}], got(6, "second", *range(first, COUNT))]
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == told


@pytest.mark.parametrize("first", [0, 4])
def test_while_a_group_is_reset_the_next_one_begins_before_or_behind_that(first: int) -> None:
    events = group(got(4, "first", 0, 1, 2, 3), commit(5, "first", 3), [6.5, "reset", "g", {LOG: []}, 5.5])
    assert faults(judge_groups.judge(ledger([*events, got(6, "second", *range(first, COUNT))]), TRUTH)) == set()


def test_a_commit_behind_a_reset_counts_though_it_was_told_later() -> None:
    events = group(got(4, "first", 0, 1, 2, 3), commit(5, "first", 3), got(5.8, "first", 0, 1, 2, 3), commit(6, "first", 3))
    events += [[7.0, "reset", "g", {LOG: []}, 5.5], got(8, "second", *range(4, COUNT))]
    assert faults(judge_groups.judge(ledger(events), TRUTH)) == set()


# Queues.


def taken(at: float, worker: str, number: int, attempt: int = 0) -> list[Any]:
    return [at, "taken", worker, 0, LOG, [number], f"sure:{number}", attempt]


def done(at: float, worker: str, number: int) -> list[Any]:
    return [at, "done", worker, 0, LOG, [number], at - 0.1]


def queue(*events: list[Any], but: int | None = None) -> list[list[Any]]:
    whole = [*SENT]
    for number in range(COUNT):
        if number != but:
            whole += [taken(3 + number, "worker", number), done(3.5 + number, "worker", number)]
    return sorted([*whole, *events], key=lambda event: event[0])


@pytest.mark.parametrize(
    ("events", "check"),
    [
        (queue(), None),
        (queue(taken(20, "worker", 4), taken(30, "helper", 4, 1), done(31, "helper", 4), but=4), None),
        (queue(taken(20, "worker", 4), [20.1, "tried", "worker", LOG, [4], True], but=4), None),
        (
            queue(taken(20, "worker", 4), [20.1, "tried", "worker", LOG, [4], True], [20.2, "tried", "worker", LOG, [4], False], but=4),
            "what is not acked comes again",
        ),
        (queue(but=4), "a queue hands out every message"),
        (queue(taken(20, "worker", 4), but=4), "what is not acked comes again"),
        (queue(taken(40, "helper", 4, 1)), "acked is done"),
    ],
    ids=[
        "all acked",
        "came again",
        "killed in its ack",
        "its ack was refused",
        "never handed out",
        "never came again",
        "came again behind its ack",
    ],
)
def test_queues_are_judged(events: list[list[Any]], check: str | None) -> None:
    assert faults(judge_queues.judge(ledger(events))) == ({check} if check else set())


# Logins.

GUEST = Role("sure", "producer", "main", promise=Promise(patience=60.0), login="Refused")
BARRED = [[11.0, "sent", "sure", 0, 1], [12.0, "failed", "sure", 0, "Refused: who are you?", 1.0]]


@pytest.mark.parametrize(
    ("window", "told"),
    [
        (Window("login", 10.0, None, 20.0), set()),
        (Window("kill", 10.0, None, 20.0), {"sends go on trying"}),
        (None, {"sends go on trying"}),
    ],
    ids=["while logins are refused", "in another fault", "in calm"],
)
def test_a_record_may_be_given_up_at_once_where_its_login_is_refused(window: Window | None, told: set[str]) -> None:
    found = Ledger(ROLES | {"sure": GUEST})
    found.windows = [window] if window else []
    for event in BARRED:
        found.take(event)
    assert faults(judge_sends.judge(found, {LOG: []})) == told


def test_another_error_is_no_excuse_while_logins_are_refused() -> None:
    found = Ledger(ROLES | {"sure": GUEST})
    found.windows = [Window("login", 10.0, None, 20.0)]
    for event in ([11.0, "sent", "sure", 0, 1], [12.0, "failed", "sure", 0, "Disconnected: gone", 1.0]):
        found.take(event)
    assert faults(judge_sends.judge(found, {LOG: []})) == {"sends go on trying"}


@pytest.mark.parametrize(
    ("events", "healed", "told"),
    [
        (BARRED, 20.0, set()),
        ([[12.0, "call", "sure", "poll", 1.0, 0.1, "Refused: who are you?"]], 20.0, set()),
        ([], 12.0, set()),
        ([], 20.0, {"a refused login is told"}),
        ([[12.0, "call", "sure", "poll", 1.0, 0.1, "Disconnected: gone"]], 20.0, {"a refused login is told"}),
        ([[25.0, "call", "sure", "poll", 1.0, 0.1, "Refused: who are you?"]], 20.0, {"a refused login is told"}),
    ],
    ids=["a record told", "a call told", "too short to tell", "in silence", "as another error", "too late"],
)
def test_who_is_refused_a_login_must_be_told_so(events: list[list[Any]], healed: float, told: set[str]) -> None:
    found = Ledger({"sure": GUEST})
    found.windows = [Window("login", 10.0, None, healed, ended=healed)]
    for event in events:
        found.take(event)
    assert faults(judge_logins.judge(found, alone)) == told


@pytest.mark.parametrize(
    ("sent", "acked", "told"),
    [(14.0, 14.2, {"who is refused stays out"}), (10.1, 10.3, set()), (14.0, 20.5, set())],
    ids=["in", "before", "behind"],
)
def test_who_is_refused_must_not_get_through(sent: float, acked: float, told: set[str]) -> None:
    found = Ledger({"sure": replace(GUEST, login="")})
    found.windows = [Window("login", 10.0, None, 20.2, ended=20.0)]
    for event in ([sent, "sent", "sure", 0, 1], [acked, "acked", "sure", [[0, LOG, [0], round(acked - sent, 1)]]]):
        found.take(event)
    assert faults(judge_logins.judge(found, alone)) == told


@pytest.mark.parametrize(
    ("jump", "told"), [(11.0, set()), (30.0, {"clocks jump"}), (None, {"clocks jump"})], ids=["seen", "later", "never"]
)
def test_a_clock_that_was_to_jump_and_did_not_is_told(jump: float | None, told: set[str]) -> None:
    events: list[list[Any]] = [[at, "memory", "senders", 90_000] for at in (1.0, 40.0)]
    found = ledger(events if jump is None else [*events, [jump, "jumped", "senders", 3600]])
    found.windows = [Window("clock", 10.0, None, 15.0)]
    assert faults(judge_clocks.judge(found)) == told


# Calls, flow, neighbours, memory.


@pytest.mark.parametrize(("seconds", "stall", "told"), [(5.9, 0.0, False), (6.2, 0.0, True), (6.2, 0.5, False)])
def test_a_call_that_outlasts_its_timeout_is_told_unless_the_machine_stood_still(seconds: float, stall: float, told: bool) -> None:
    events: list[list[Any]] = [[9.0, "stall", "senders", stall], [10.0, "call", "sure", "send", 5.0, seconds, "TimedOut: x"]]
    assert faults(judge_calls.judge(ledger(events))) == ({"calls end in time"} if told else set())


@pytest.mark.parametrize(("check", "told"), [("all flows again", False), ("calls end in time", False), ("acknowledged is kept", True)])
def test_a_crowded_machine_excuses_time_and_nothing_else(check: str, told: bool) -> None:
    assert judge_flow.excused(Finding(check, "late")).fault is told
    assert not judge_flow.excused(Finding(check, "late", fault=False)).fault


def test_flow_is_of_what_was_sent_behind_the_healing_in_every_log() -> None:
    events = [*SENT, [3.0, "life", "reader", 0, {}], [3.0, "life", "first", 0, {}], [5.0, "sent", "sure", COUNT, 1]]
    found = ledger([*events, [5.1, "acked", "sure", [[COUNT, LOG, [COUNT], 0.1]]], [5.2, "got", "reader", 0, LOG, [[[COUNT], "sure:10"]]]])
    assert judge_flow.missing(found, 4.0, {"main": [LOG]}) == [f"g in {LOG}", f"q in {LOG}"]
    assert judge_flow.missing(found, 4.0, {"main": [LOG, "main/1"]}) != judge_flow.missing(found, 4.0, {"main": [LOG]})
    assert "sure in main/0" in judge_flow.missing(found, 5.0, {"main": [LOG]}), "sent at the moment, not behind it"


def test_the_moment_of_the_last_flow_is_the_journals_however_late_they_are_read() -> None:
    found = ledger(SENT)
    found.begin(4.0)
    for event in (
        [5.0, "sent", "sure", COUNT, 2],
        [8.0, "acked", "sure", [[COUNT + 1, LOG, [COUNT + 1], 3.0]]],
        [5.1, "acked", "sure", [[COUNT, LOG, [COUNT], 0.1]]],
        [7.2, "got", "reader", 0, LOG, [[[COUNT], "sure:10"]]],
        [9.9, "got", "reader", 0, LOG, [[[COUNT + 1], "sure:11"]]],
    ):
        if event[1] == "got":
            found.take([3.0, "life", "reader", 0, {}])
        found.take(event)
    assert judge_flow.complete(found, {"main": [LOG]}) == (7.2, [f"reader in {LOG}"])


def test_a_record_whose_key_was_at_home_elsewhere_is_no_neighbour() -> None:
    """It waited for the sick node's queue, and was stored by another one in the end; the next of its key, at home there, may not wait."""
    found = Ledger(ROLES | {"sure": Role("sure", "producer", "main", fixed=True, keys=1)})
    homes = {LOG: 1, "main/1": 2}
    found.windows.append(Window("kill", 9.0, frozenset({2}), 20.0))
    for number, log, began, seconds in ((0, "main/1", 5.0, 0.1), (1, LOG, 10.0, 5.0), (2, LOG, 17.0, 0.1)):
        found.take([began, "sent", "sure", number, 1])
        found.take([began + seconds, "acked", "sure", [[number, log, [number], seconds]]])
    assert not faults(judge_flow.healthy(found, homes, alone))
    found.take([24.0, "acked", "sure", [[3, LOG, [3], 4.0]]])
    assert faults(judge_flow.healthy(found, homes, alone)) == {"a healthy partition is not delayed"}


def test_a_record_whose_key_came_back_from_elsewhere_is_no_neighbour() -> None:
    """At home here it was, went to the queue of the node that is sick now, and is back: behind what waits there, however many of them."""
    found = Ledger(ROLES | {"sure": Role("sure", "producer", "main", fixed=True, keys=1)})
    homes = {LOG: 1, "main/1": 2}
    found.windows.append(Window("restart", 9.0, frozenset({2}), 20.0))
    for number, log, began, seconds in ((0, LOG, 5.0, 0.1), (1, "main/1", 9.5, 9.5), (2, LOG, 11.0, 8.0), (3, LOG, 12.0, 7.0)):
        found.take([began, "sent", "sure", number, 1])
        found.take([began + seconds, "acked", "sure", [[number, log, [number], seconds]]])
    assert not faults(judge_flow.healthy(found, homes, alone))
    found.take([20.0, "sent", "sure", 4, 1])
    found.take([24.0, "acked", "sure", [[4, LOG, [4], 4.0]]])
    assert faults(judge_flow.healthy(found, homes, alone)) == {"a healthy partition is not delayed"}


@pytest.mark.parametrize(
    ("home", "seconds", "told"), [(1, 0.9, False), (1, 1.2, True), (0, 9.0, False)], ids=["in time", "late", "its own node is sick"]
)
def test_a_healthy_partition_that_waits_for_a_sick_node_is_told(home: int, seconds: float, told: bool) -> None:
    found = ledger([[2.0, "sent", "sure", 0, 1], [2.0 + seconds, "acked", "sure", [[0, LOG, [0], seconds]]]])
    found.windows = [Window("freeze", 1.5, frozenset({0}), 12.0)]
    assert faults(judge_flow.healthy(found, {LOG: home}, alone)) == ({"a healthy partition is not delayed"} if told else set())


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (lambda second: 90_000, False),
        (lambda second: 90_000 + 200 * second, True),
        (lambda second: 90_000 + 20_000 * (second // 100), True),
        (lambda second: 90_000 + 30_000 * (second > 190), False),
    ],
    ids=["flat", "all the time", "at each fault", "at one fault"],
)
def test_memory_that_grows_is_told(size: Callable[[int], int], told: bool) -> None:
    events = [[float(second), "memory", "senders", size(second)] for second in range(400)]
    assert faults(judge_calls.memory(ledger(events))) == ({"memory is flat"} if told else set())


@pytest.mark.parametrize(("control", "told"), [(0.1, True), (8.0, False)])
def test_a_wait_that_another_client_has_too_is_the_brokers_own(control: float, told: bool) -> None:
    events = [[2.0, "sent", "sure", 0, 1], [10.5, "acked", "sure", [[0, LOG, [0], 8.5]]], [10.6, "control", LOG, control]]
    found = ledger(events)
    found.windows = [Window("freeze", 1.5, frozenset({0}), 12.0)]
    assert faults(judge_flow.healthy(found, {LOG: 1}, alone)) == ({"a healthy partition is not delayed"} if told else set())
