"""Lists the parts of a producer that the asyncio wrapper uses, which waits in another way than the calling thread.

They are those of a producer on the core's Appender, or on an object that takes records as that does, and of its send budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from wireproto._codec import OutBatch
from wireproto.flow.budget import Account


class RecordIntake(Protocol):
    """What the asyncio wrapper of a producer uses of `Appender`."""

    @property
    def send(self) -> Callable[..., Any]:
        """Return the function that takes a record; see `Appender`."""
        ...

    def await_by(self, intake: Any, /) -> Callable[..., Any] | None:
        """Return SendFutures from now on, and give `intake.slow` the records that need more work.

        Returns:
            the function that got those records so far.
        """
        ...

    def hold(self, on: bool, /) -> None:
        """Give every record to the slow way, until this is called with False."""
        ...

    def lend(self, size: int, /) -> None:
        """Add bytes of the send budget that were taken for a record."""
        ...


class AsyncHooks(NamedTuple):
    """The parts of one producer.

    Attributes:
        appender: takes records. account: of the send budget.
        hurry: sends a batch whose outcome a caller waits for.
        place: returns the position of a batch's record whose outcome is known; raises what it failed with.
    """

    appender: RecordIntake
    account: Account
    hurry: Callable[[OutBatch], None]
    place: Callable[[OutBatch, int], Any]
