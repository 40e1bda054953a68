"""Warns at exit, or when a producer is collected, about records that were never confirmed.

`Sends` is the base of producers, which warns when one is collected unclosed; `watch` has a client's producers checked when the program
ends.
Either is an `UnflushedWarning` and a line of the log. There is no warning about records that were flushed, whose producer was closed, or
whose receipts have an outcome. Nothing here waits, sends, or keeps a producer alive.
"""

from __future__ import annotations

import atexit
import logging
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from wireproto.errors import UnflushedWarning, WireprotoError
from wireproto.net.closing import Closing


class Client(Protocol):
    """An object that has a client's producers: its send budget."""

    def holders(self) -> Sequence[Any]:
        """Return the open producers."""
        ...


_watched: WeakSet[Client] = WeakSet()


class Sends(Closing):
    """Base of producers: warns when one is collected with unconfirmed records."""

    topic: str = ""

    def unsettled(self) -> int:
        """Return the number of records taken whose outcome is not known; takes in replies that have come, waits for none."""
        raise NotImplementedError

    def __del__(self) -> None:
        with suppress(AttributeError, TypeError, WireprotoError):  # it was not made in full, or ended with its client or the program
            left = self.unsettled()
            if left:
                tell(left, self.topic, "their producer was garbage-collected")


def watch(client: Client) -> None:
    """Check the producers of this client when the program ends."""
    if not _watched:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _watched.add(client)


def _at_exit() -> None:
    Sends.__del__ = _nothing  # type: ignore[method-assign]  # producers that are collected from now on have been reported
    for client in list(_watched):
        for holder in client.holders():
            with suppress(WireprotoError):
                left = holder.unsettled()
                if left:
                    tell(left, holder.topic, "the program ended")


def _nothing(self: Sends) -> None:
    pass


def tell(count: int, topic: str, when: str) -> None:
    """Warn that `count` records were taken whose outcome is unknown."""
    if not count:
        return
    what = f"{count} records" if count > 1 else "1 record"
    text = f"{what} for {topic!r} had no answer when {when}, and may be lost: flush or close producers"
    logger = logging.getLogger("wireproto")
    if logger.hasHandlers():  # else standard error would show it twice: by Python's last-resort handler, and by the warning
        logger.warning(text)
    warnings.warn(text, UnflushedWarning, stacklevel=2)
