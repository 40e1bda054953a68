"""What one member of a subscription knows of a partition: permits, what it is fed, and what it has of a shared one. Without any I/O."""

from __future__ import annotations

import itertools

import pytest

from wireproto import MessageId
from wireproto.errors import OptionError
from wireproto.pulsar import acks
from wireproto.pulsar.acks import Log
from wireproto.pulsar.subscription import EXCLUSIVE, FAILOVER, MOST_PERMITS, Permits, Subscription, SubscriptionState
from wireproto.pulsar.unacked import Unacked

MIB = 1 << 20


def permits(window: int = 16 * MIB, largest: int = 5 * MIB) -> Permits:
    made = Permits(window)
    made.largest = largest
    return made


def granted(made: Permits) -> int:
    """What is granted now, and told."""
    more = made.more()
    made.sent()
    return more


# -- permits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "first"), [(16 * MIB, 3), (1 << 16, 1), (64 * MIB, 12)])
def test_the_first_grant_is_for_as_many_as_fit_however_large_they_are(window: int, first: int) -> None:
    made = permits(window)
    assert granted(made) == first
    assert granted(made) == 0


def test_grants_never_exceed_the_window_when_all_messages_are_alike() -> None:
    for size in (100, 10_000, MIB, 5 * MIB):
        made, out = permits(), 0
        for _ in range(50):
            out += granted(made)
            assert out <= max(3, 16 * MIB // size)
            made.handed(out, out * size)
            out = 0


def test_grants_grow_with_what_has_come() -> None:
    """The sizes of a few messages say little: not the whole window at once."""
    made = permits()
    steps = []
    for _ in range(8):
        steps.append(granted(made))
        made.handed(steps[-1], steps[-1] * 100)
    assert steps[0] == 3
    assert all(later <= 8 * earlier for earlier, later in itertools.pairwise(steps))
    assert steps[-1] == 16 * MIB // 100


def test_small_messages_have_a_bound_of_their_own() -> None:
    made = permits()
    made.handed(10**6, 10**6)
    made.over()
    assert granted(made) == MOST_PERMITS


def test_a_batch_that_is_larger_than_what_was_granted_is_made_up_for() -> None:
    """It comes whole, and the broker grants nothing until the debt is paid."""
    made = permits()
    assert granted(made) == 3
    made.handed(1000, 100_000)
    assert granted(made) == (3 + 4 * 1000) + 997


def test_what_was_granted_is_over_with_the_consumer() -> None:
    made = permits()
    made.handed(100, 100 * MIB)
    assert granted(made) == 16 + 100
    made.over()
    assert granted(made) == 16


def test_what_the_broker_may_not_have_heard_of_is_granted_once_more() -> None:
    made = permits()
    assert made.more() == 3
    assert granted(made) == 3
    assert granted(made) == 0


# -- the partition --------------------------------------------------------------------------------------------------------


def state(kind: int = FAILOVER) -> SubscriptionState:
    return SubscriptionState("t", 0, "persistent://public/default/t-partition-0", Subscription("group", kind), 16 * MIB)


def test_nothing_is_granted_unless_it_is_open_and_wanted() -> None:
    part = state(EXCLUSIVE)
    assert part.grant() == 0
    part.begins(1)
    assert part.grant() == 0
    part.opened()
    part.paused = True
    assert part.grant() == 0
    part.paused, part.flowing = False, False
    assert part.grant() == 0
    part.flowing = True
    assert part.grant() > 0
    part.lost()
    assert part.grant() == 0


def test_a_failover_member_is_told_first_and_then_of_changes() -> None:
    part = state()
    assert part.active, "before anything is subscribed nobody has said no"
    part.begins(1)
    part.opened()
    assert not part.active
    assert not part.active_known
    found = [(part.fed(fed), part.ours) for fed in (False, True, True, False)]
    assert found == [(False, False), (False, True), (True, True), (True, False)], "whether it was fed, and whether what comes is its own"


def test_nothing_is_granted_while_another_member_is_fed() -> None:
    part = state()
    part.begins(1)
    part.opened()
    assert part.grant(), "a broker feeds nobody who has granted nothing"
    part.permits.over()
    part.fed(False)
    assert not part.grant()
    part.fed(True)
    assert part.grant()


def test_each_subscribe_begins_with_nothing() -> None:
    part = state()
    part.begins(1)
    part.opened()
    part.fed(True)
    part.frames.append(b"")
    part.ended = True
    part.begins(2)
    assert (part.id, part.open, part.active_known, part.active, part.ended, len(part.frames)) == (2, False, False, False, False, 0)


def test_subscribe_says_where_to_begin_and_under_what_name() -> None:
    reader = Subscription("reader", EXCLUSIVE, durable=False, renamed=True)
    first, second = (reader.command("t", number, (7, 3, 0), 0.0) for number in (1, 2))
    assert first.subscription != second.subscription
    assert (first.start_message_id.ledgerId, first.start_message_id.entryId, first.start_message_id.batch_index) == (7, 3, 0)
    group = Subscription("group", FAILOVER, since=4_000).command("t", 1, (7, 3, 0), 10.0)
    assert group.subscription == "group"
    assert not group.HasField("start_message_id")
    assert group.start_message_rollback_duration_sec == 6


# -- a shared one ---------------------------------------------------------------------------------------------------------

KEY = (7, 0)


def three() -> Unacked:
    hand = Unacked(None)  # type: ignore[arg-type]
    entry = hand.looks_at(KEY, 3)
    assert entry is not None
    for index in range(3):
        assert entry.arrives(index)
        entry.waiting.discard(index)
        entry.held.add(index)
    assert not hand.exhausted(KEY)
    return hand


def test_an_entry_that_comes_again_gives_only_what_nobody_has() -> None:
    hand = three()
    hand.acknowledged(KEY, 0, 0)
    hand.released(KEY, 1)
    entry = hand.looks_at(KEY, 3)
    assert entry is not None
    assert [entry.arrives(index) for index in range(3)] == [False, True, False]


def test_an_entry_that_is_done_is_passed_over_while_it_may_be_on_its_way() -> None:
    hand = three()
    for index in range(3):
        hand.acknowledged(KEY, index, 2)
    assert not hand.entries
    for _ in range(2):
        assert hand.looks_at(KEY, 3) is None
        hand.forget()
    assert hand.looks_at(KEY, 3) is not None


def test_a_new_consumer_keeps_what_the_user_holds_and_forgets_what_was_done() -> None:
    hand = three()
    hand.acknowledged(KEY, 0, 5)
    hand.entries[KEY].held.discard(1)
    hand.entries[KEY].waiting.add(1)
    hand.begins()
    entry = hand.entries[KEY]
    assert (entry.held, entry.waiting, entry.done) == ({2}, set(), set())
    other = hand.looks_at((7, 1), 1)
    assert other is not None
    assert other.arrives(0)
    hand.begins()
    assert (7, 1) not in hand.entries


def test_a_message_whose_delay_is_over_is_nobody_s() -> None:
    hand = three()
    for index in range(3):
        hand.entries[KEY].held.discard(index)
        hand.entries[KEY].delayed.add(index)
    for index in range(3):
        assert KEY in hand.entries
        hand.back(KEY, index)
    assert KEY not in hand.entries


# -- a log ----------------------------------------------------------------------------------------------------------------


def test_of_each_ledger_handed_out_the_entry_before_it_is_known_until_it_is_acknowledged() -> None:
    part, log = state(), Log()
    for place in [(7, 4), (9, 0), (9, 1), (7, 4), (12, 0)]:
        log.passed(*place, 0)
    assert log.before == {9: (7, 4), 12: (9, 1)}
    log.committed_to(part.place(12, 0), 0.0)
    assert log.before == {12: (9, 1)}


def test_what_is_acknowledged_is_known_and_its_sizes_are_not_kept() -> None:
    part, log = state(), Log()
    log.sizes = {(7, 0): 3, (7, 1): 3, (7, 2): 3}
    log.handed = part.place(7, 1)
    log.committed_to(log.handed, 0.0)
    assert (log.handed, log.acked, set(log.sizes)) == (None, (7, 0), {(7, 1), (7, 2)})
    log.committed_to(MessageId("t", 0, 7, 1, 1, after=True), 0.0)
    assert log.acked == (7, 0), "in the middle of a batch"
    log.committed_to(MessageId("t", 0, 7, 1, 2, after=True), 0.0)
    assert (log.acked, set(log.sizes)) == ((7, 1), {(7, 2)})
    log.committed_to(part.place(7, 0), 0.0)
    assert log.acked == (7, 1), "the broker does not go back"


def test_sizes_of_the_newest_batches_are_kept_by_who_never_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "MOST_SIZES", 3, raising=False)
    log = Log()
    for entry in range(10):
        log.passed(7, entry, 5)
    assert list(log.sizes) == [(7, 7), (7, 8), (7, 9)]
    assert log.target(MessageId("t", 0, 7, 7, 2, after=True)) is not None
    with pytest.raises(OptionError, match="7:6:2"):
        log.target(MessageId("t", 0, 7, 6, 2, after=True))
