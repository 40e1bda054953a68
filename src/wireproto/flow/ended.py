"""Decides what a delivery raises that is acknowledged or released again: one rule for the queues of all protocols.

    UsageError   the program has acknowledged or released it before, by a call that returned
    Revoked      it was taken away: another worker or a transaction has the message, or its queue was assigned to another member

Either stays so, however often it is tried, also when the same message has come again in another delivery. A call that raised something else
leaves the delivery open: it may be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wireproto.errors import Revoked, UsageError

if TYPE_CHECKING:
    from wireproto.records import Delivery


def refuse_ended(delivery: Delivery) -> None:
    """Raise when a delivery cannot be ended any more.

    Args:
        delivery: to be ended now.

    Raises:
        UsageError: it was acknowledged or released before. Revoked: it was taken away.
    """
    how = delivery._ended
    if how is None:
        return
    if isinstance(how, Revoked):
        raise Revoked(how.text, partitions=how.partitions, topic=delivery.record.topic, position=delivery.position)
    raise ended_before(delivery, how)


def ended_before(delivery: Delivery, how: str = "acknowledged or released") -> UsageError:
    """Return the error of a delivery that the program has ended before.

    Args:
        delivery: that was ended. how: what ended it, where that is known: an exception of a signal handler may have come in between.
    """
    return UsageError(f"this message was {how} before", topic=delivery.record.topic, position=delivery.position)


def note_ended(delivery: Delivery, acked: bool) -> None:
    """Note that a delivery was ended as the program asked.

    Args:
        delivery: that was ended. acked: whether it was acknowledged, else it was released.
    """
    object.__setattr__(delivery, "_ended", "acknowledged" if acked else "released")


def taken_away(delivery: Delivery, why: Revoked) -> Revoked:
    """Note that a delivery was taken away, and return the error.

    Args:
        delivery: that cannot be ended any more. why: raised now, and whenever it is tried again.
    """
    object.__setattr__(delivery, "_ended", why)
    return why
