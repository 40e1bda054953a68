"""Flushing, as steps: what `Sender.flush` does, for who waits in another way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wireproto.errors import TimedOut
from wireproto.net.task import Steps

if TYPE_CHECKING:
    from .sender import Sender


def flushing(sender: Sender, deadline: float, mine: Callable[[Any], bool], *, topic: str | None = None) -> Steps[None]:
    """Send all batches for which `mine` holds, and wait until each has an outcome, whichever. Raises TimedOut."""
    began = time.monotonic()
    for batch in sender.hurried(mine):
        if batch.count and not batch.outcome.done and not (yield batch.outcome, deadline):
            raise TimedOut(sender.unacknowledged(deadline - began), topic=topic)
