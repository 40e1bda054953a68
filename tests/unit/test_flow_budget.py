"""The send budget of a client: never above its bound, first come first served, and every byte is free exactly once."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from patience import LATE, until
from wireproto._net import Loop
from wireproto.errors import BufferFull, Closed
from wireproto.flow.budget import Account, Budget

SOON = 20.0


class Producer:
    """A producer that holds nothing open."""

    topic = "t"

    def __init__(self) -> None:
        self.relieved = threading.Semaphore(0)

    def relieve(self) -> None:
        self.relieved.release()

    def unsettled(self) -> int:
        return 0


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop("budget")
    yield made
    made.close()


class Waiter(threading.Thread):
    """Takes bytes in a thread of its own."""

    def __init__(self, account: Account, size: int, seconds: float = SOON) -> None:
        super().__init__(daemon=True)
        self.account, self.size, self.seconds = account, size, seconds
        self.problem: BaseException | None = None
        before = len(account._budget._line)
        self.start()
        until(lambda: len(account._budget._line) > before or not self.is_alive())

    def run(self) -> None:
        try:
            self.account.take(self.size, time.monotonic() + self.seconds)
        except BaseException as why:
            self.problem = why

    @property
    def waits(self) -> bool:
        return self.is_alive()

    def ended(self) -> BaseException | None:
        self.join(SOON)
        assert not self.is_alive()
        return self.problem


def test_all_producers_of_a_client_have_one_bound(loop: Loop) -> None:
    budget = Budget(loop, 100)
    one, other = Producer(), Producer()
    mine, theirs = budget.account(one), budget.account(other)
    assert mine.try_take(60)
    assert not theirs.try_take(41)
    assert theirs.try_take(40)
    assert (budget.used, mine.held, theirs.held) == (100, 60, 40)
    mine.give(60)
    assert theirs.try_take(60)


def test_a_piece_larger_than_the_budget_is_let_in_alone(loop: Loop) -> None:
    budget, one = Budget(loop, 100), Producer()
    account = budget.account(one)
    assert account.try_take(1)
    assert not account.try_take(101)
    account.give(1)
    assert account.try_take(101)
    assert not account.try_take(1)


def test_who_finds_no_room_in_time_takes_nothing(loop: Loop) -> None:
    budget, one = Budget(loop, 100), Producer()
    account = budget.account(one)
    account.try_take(100)
    begun = time.monotonic()
    with pytest.raises(BufferFull, match="no room for 30 bytes: 100 of 100 wait for the broker") as caught:
        account.take(30, begun + 0.2)
    assert 0.2 <= time.monotonic() - begun < 0.2 + LATE
    assert caught.value.topic == "t"
    assert (budget.used, budget.waiting) == (100, False)
    account.give(100)
    assert budget.used == 0


def test_room_goes_to_who_came_first_and_small_ones_do_not_starve_a_large_one(loop: Loop) -> None:
    budget, one, other = Budget(loop, 100), Producer(), Producer()
    account, theirs = budget.account(one), budget.account(other)
    account.try_take(50)
    account.try_take(50)
    large = Waiter(account, 90)
    small = Waiter(theirs, 10)
    account.give(50)
    assert budget.used == 50, "there is room for the small one, which came later"
    assert not theirs.try_take(1), "nobody is let in past the line"
    assert large.waits
    assert small.waits
    account.give(50)
    assert large.ended() is None
    assert small.ended() is None
    assert (account.held, theirs.held) == (90, 10)


def test_who_gives_up_lets_those_behind_it_in(loop: Loop) -> None:
    budget, one = Budget(loop, 100), Producer()
    account = budget.account(one)
    account.try_take(60)
    large = Waiter(account, 90, seconds=0.2)
    small = Waiter(account, 40)
    assert isinstance(large.ended(), BufferFull)
    assert small.ended() is None
    assert budget.used == 100


def test_the_first_in_line_has_every_producer_send_what_is_open(loop: Loop) -> None:
    budget, one, other = Budget(loop, 100), Producer(), Producer()
    mine, theirs = budget.account(one), budget.account(other)
    theirs.try_take(100)
    waiter = Waiter(mine, 10)
    assert one.relieved.acquire(timeout=SOON)
    assert other.relieved.acquire(timeout=SOON)
    assert budget.waiting
    theirs.give(100)
    assert waiter.ended() is None
    assert not budget.waiting


def test_closing_wakes_the_producers_own_waiters_with_closed(loop: Loop) -> None:
    budget, one, other = Budget(loop, 100), Producer(), Producer()
    mine, theirs = budget.account(one), budget.account(other)
    theirs.try_take(100)
    ours, second, stays = Waiter(mine, 90), Waiter(mine, 5), Waiter(theirs, 20)
    mine.refuse(Closed("the producer was closed"))
    problems = [ours.ended(), second.ended()]
    assert [type(problem) for problem in problems] == [Closed, Closed]
    assert problems[0] is not problems[1], "an error object belongs to one thread"
    assert stays.waits
    theirs.give(100)
    assert stays.ended() is None
    with pytest.raises(Closed):
        mine.take(1, time.monotonic() + SOON)


def test_who_is_refused_lets_those_behind_it_in(loop: Loop) -> None:
    budget, one, other = Budget(loop, 100), Producer(), Producer()
    mine, theirs = budget.account(one), budget.account(other)
    theirs.try_take(60)
    large, small = Waiter(mine, 90), Waiter(theirs, 40)
    mine.refuse(Closed("the producer was closed"))
    assert isinstance(large.ended(), Closed)
    assert small.ended() is None


def test_a_closed_client_wakes_everybody(loop: Loop) -> None:
    budget, one = Budget(loop, 100), Producer()
    account = budget.account(one)
    account.try_take(100)
    waiter = Waiter(account, 10)
    loop.close()
    assert isinstance(waiter.ended(), Closed)


def test_what_a_closed_producer_held_is_free_once(loop: Loop) -> None:
    budget, one, other = Budget(loop, 100), Producer(), Producer()
    mine, theirs = budget.account(one), budget.account(other)
    mine.try_take(70)
    theirs.try_take(30)
    mine.close()
    assert budget.used == 30
    mine.give(70)  # an answer that comes late
    assert budget.used == 30
    mine.close()
    assert budget.used == 30


def test_what_a_forgotten_producer_held_is_free(loop: Loop) -> None:
    budget, one, other = Budget(loop, 100), Producer(), Producer()
    account, theirs = budget.account(one), budget.account(other)
    account.try_take(100)
    waiter = Waiter(theirs, 10)
    del one
    gc.collect()
    assert waiter.ended() is None
    assert budget.used == 10


def test_an_interrupted_waiter_leaves_the_line_and_takes_nothing(loop: Loop) -> None:
    class Interrupted(Producer):
        def relieve(self) -> None:
            raise KeyboardInterrupt

    budget, one = Budget(loop, 100), Interrupted()
    account = budget.account(one)
    account.try_take(100)
    with pytest.raises(KeyboardInterrupt):
        account.take(10, time.monotonic() + SOON)
    assert not budget.waiting
    account.give(100)
    assert account.try_take(100)


def test_sixteen_threads_never_hold_more_than_the_bound_and_leave_nothing_behind(loop: Loop) -> None:
    budget = Budget(loop, 1000)
    owners = [Producer() for _ in range(4)]
    accounts = [budget.account(owner) for owner in owners]
    held, most, guard = 0, 0, threading.Lock()
    problems: list[BaseException] = []

    def work(number: int) -> None:
        nonlocal held, most
        chance = random.Random(number)
        try:
            for _ in range(200):
                size = chance.choice((1, 10, 100, 400, 1000))
                account = accounts[number % 4]
                account.take(size, time.monotonic() + SOON)
                with guard:
                    held += size
                    most = max(most, held)
                with guard:
                    held -= size
                account.give(size)
        except BaseException as why:
            problems.append(why)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(before)
    assert problems == []
    assert 400 < most <= 1000
    assert (budget.used, budget.waiting, [account.held for account in accounts]) == (0, False, [0] * 4)
