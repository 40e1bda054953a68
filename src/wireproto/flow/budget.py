"""Limits the bytes that all producers of a client may hold until they are acknowledged: the send budget.

There is one `Budget` a client, and one `Account` a producer. A caller that finds no room waits in line, and is served in order of arrival.

    account.take ── room, empty line ──────────────────────────────────────────▶ held ── give (acknowledged, expired, refused) ──▶ free
                 └─ in line; the first one has every producer `relieve`: ──▶ held
                    send open batches, take in replies that have come

Rules: what an account has held is free exactly once. A producer that is closed, or collected unclosed, gives all back; a `give` that comes
later counts nothing. While a caller is in line (`waiting`) no producer holds a record back for others to join it.

No lock is held when `take` is called, for it waits, and calls `relieve` of all producers. `give` and `try_take` may be called under a
producer's lock, also by a signal handler that interrupted them. No code of a producer runs under the budget's own lock.
"""

from __future__ import annotations

import weakref
from collections import deque
from copy import copy
from typing import Protocol

from wireproto._codec import AccountCore, BriefLock, BudgetCore
from wireproto._net import Event, Loop
from wireproto.errors import BufferFull, Closed, WireprotoError
from wireproto.net.task import Steps, Tasks

from . import unacked_warning

FOREVER = float("inf")


class Holder(Protocol):
    """A producer, as the budget sees it."""

    @property
    def topic(self) -> str:
        """Return the producer's topic."""
        ...

    def relieve(self) -> None:
        """Send open batches and take in replies, since a caller waits for room; continue so while `Budget.waiting`. Must not wait."""
        ...

    def unsettled(self) -> int:
        """Return the number of records taken whose outcome is not known."""
        ...


class _Claim:
    """A place in line.

    Attributes:
        taken: whether its bytes are counted for its account.
    """

    __slots__ = ("account", "event", "size", "taken")

    def __init__(self, account: Account, size: int, event: Event) -> None:
        self.account = account
        self.size = size
        self.event = event
        self.taken = False


class Budget(BudgetCore):
    """A limit of bytes, shared first come, first served. Thread-safe.

    Args:
        loop: the client's loop. limit: bytes.

    Attributes:
        used: bytes held by all accounts together.
    """

    def __init__(self, loop: Loop, limit: int) -> None:
        # the lock is held for a few lines; a signal handler may send, too
        super().__init__(limit, BriefLock(again=True), deque())
        self.tasks = Tasks(loop)
        self._loop = loop
        self._accounts: set[Account] = set()
        unacked_warning.watch(self)

    def account(self, holder: Holder) -> Account:
        """Open an account for a producer. It ends with `Account.close`, or with the producer itself."""
        account = Account(self, holder)
        with self._lock:
            self._accounts.add(account)
        return account

    def _fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.limit

    def _serve(self) -> None:
        """Serve the line from its head, as long as there is room. Lock held.

        A signal handler may raise anywhere in here: what it leaves undone, the next call does.
        """
        line = self._line
        while line and (line[0].taken or self._fits(line[0].size)):
            claim = line[0]
            if not claim.taken:
                self.used += claim.size
                claim.account.held += claim.size
                claim.taken = True
            claim.event.set()
            line.popleft()

    def _relieve(self) -> None:
        for holder in self._there():
            holder.relieve()

    def _there(self) -> list[Holder]:
        with self._lock:
            found = [account.holder() for account in self._accounts]
        return [holder for holder in found if holder is not None]

    def holders(self) -> list[Holder]:
        """Return the open producers; none of a client that is closed, or another process's."""
        return [] if self._loop.closed or self._loop.forked else self._there()


class Account(AccountCore):
    """The bytes that one producer holds. Made by `Budget.account`.

    Attributes:
        held: bytes taken and not given back.
    """

    def __init__(self, budget: Budget, holder: Holder) -> None:
        super().__init__(budget)
        self.holder = weakref.ref(holder)
        self._topic = holder.topic
        self._end = weakref.finalize(holder, self.close)
        self._end.atexit = False

    def take(self, size: int, deadline: float) -> None:
        """Take `size` bytes, waiting for room until `deadline` (`time.monotonic()`); the thread reads the client's sockets meanwhile.

        Raises:
            BufferFull: no room in time; nothing was taken.
            Closed: the producer takes no more, or the client is closed.
        """
        if not self.try_take(size):
            self._budget.tasks.drive(self.taking(size, deadline), FOREVER)  # the steps keep the deadline

    def taking(self, size: int, deadline: float = FOREVER) -> Steps[None]:
        """Run `take` as steps."""
        if self.try_take(size):
            return
        claim = _Claim(self, size, Event(self._budget._loop))
        try:
            self._line_up(claim)
            if (yield claim.event, deadline):
                claim.event.wait(0.0)
            elif not self._withdraw(claim, keep=True):
                raise self._full(size)
        except BaseException:
            self._withdraw(claim, keep=False)
            raise

    def _full(self, size: int) -> BufferFull:
        budget = self._budget
        text = f"no room for {size} bytes: {budget.used} of {budget.limit} wait for the broker; what it is for was not taken"
        return BufferFull(text, topic=self._topic)

    def _line_up(self, claim: _Claim) -> None:
        budget = self._budget
        with budget._lock:
            self.check()
            first = not budget._line
            budget._line.append(claim)
            budget._serve()
        if first and not claim.taken:
            budget._relieve()

    def _withdraw(self, claim: _Claim, *, keep: bool) -> bool:
        """Leave the line; returns whether the bytes came at the last moment and are kept."""
        budget = self._budget
        with budget._lock:
            if claim in budget._line:
                budget._line.remove(claim)
            if claim.taken and not keep:
                self.give(claim.size)
            budget._serve()
            return claim.taken and keep

    def refuse(self, why: WireprotoError) -> None:
        """Take no more: callers that wait, and later ones, get `why`. What is held stays held."""
        budget = self._budget
        with budget._lock:
            if self._refused is not None:
                return
            self._refused = why
            for claim in [claim for claim in budget._line if claim.account is self and not claim.taken]:
                budget._line.remove(claim)
                claim.event.fail(copy(why))  # its caller leaves the line then, which serves those behind it

    def check(self) -> None:
        """Raise what `refuse` was given, if it was called."""
        if self._refused is not None:
            raise copy(self._refused)

    def close(self) -> None:
        """Take no more, and free all that is held, since the producer has ended."""
        self.refuse(Closed("the producer was closed", topic=self._topic))
        with self._budget._lock:
            self._budget._accounts.discard(self)
            self.give(self.held)
        self._end.detach()
