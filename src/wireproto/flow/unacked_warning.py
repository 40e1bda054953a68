"""Records that nobody waited for: told with their number when the program ends, or when their producer goes.

What it is: `Sends`, the base of producers, which tells when it is collected; `watch`, which has a client's producers looked at when the
program ends. Either is an `UnflushedWarning` and a line of the log. Who flushed, closed, or saw every receipt hears nothing.
Must not: wait for anything, send anything, or keep a producer alive.
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
    """What knows a client's producers: its send budget."""

    def holders(self) -> Sequence[Any]:
        """Those that are open."""
        ...


_watched: WeakSet[Client] = WeakSet()


class Sends(Closing):
    """A producer, as far as its end is concerned."""

    topic: str = ""

    def unsettled(self) -> int:
        """Records taken whose outcome is not known; looks at answers that are there, waits for none."""
        raise NotImplementedError

    def __del__(self) -> None:
        with suppress(AttributeError, TypeError, WireprotoError):  # it was not made in full, or ended with its client or the program
            left = self.unsettled()
            if left:
                tell(left, self.topic, "their producer was let go of")


def watch(client: Client) -> None:
    """Look at the producers of this client when the program ends."""
    if not _watched:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _watched.add(client)


def _at_exit() -> None:
    Sends.__del__ = _nothing  # type: ignore[method-assign]  # what is collected from now on has been told
    for client in list(_watched):
        for holder in client.holders():
            with suppress(WireprotoError):
                left = holder.unsettled()
                if left:
                    tell(left, holder.topic, "the program ended")


def _nothing(self: Sends) -> None:
    pass


def tell(count: int, topic: str, when: str) -> None:
    """That so many records were taken, and nobody knows what became of them."""
    if not count:
        return
    what = f"{count} records" if count > 1 else "1 record"
    text = f"{what} for {topic!r} had no answer when {when}, and may be lost: flush or close producers"
    logger = logging.getLogger("wireproto")
    if logger.hasHandlers():  # else standard error would have it twice: by Python's last resort, and by the warning
        logger.warning(text)
    warnings.warn(text, UnflushedWarning, stacklevel=2)
