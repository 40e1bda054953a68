"""What a producer is made of, for a face of it that waits in another way than the calling thread.

May assume: a producer on the core's Appender, or on what takes records as that does, and a send budget. Must not: know a protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from wireproto._codec import OutBatch
from wireproto.flow.budget import Account


class RecordIntake(Protocol):
    """What a face of a producer uses of `Appender`."""

    @property
    def send(self) -> Callable[..., Any]: ...
    def await_by(self, intake: Any, /) -> Callable[..., Any] | None: ...
    def hold(self, on: bool, /) -> None: ...
    def lend(self, size: int, /) -> None: ...


class AsyncHooks(NamedTuple):
    """
    Attributes:
        appender: takes records. account: of the send budget.
        hurry: have a batch sent that somebody waits for.
        place: the place of a batch's record whose outcome is known; raises what it failed with.
    """

    appender: RecordIntake
    account: Account
    hurry: Callable[[OutBatch], None]
    place: Callable[[OutBatch, int], Any]
