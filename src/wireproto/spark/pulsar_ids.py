"""Gives message ids one order: "after an entry" is written as the beginning of the next one.

    after (l, e, -1)   (l, e + 1, -1)     where the ledger ends with e, reading from there continues in the next ledger
    at    (l, e, i)    as it is           i > 0 lies within an entry

It needs no connection.
"""

from __future__ import annotations

from ..errors import OptionError
from ..position import MessageId, Position
from .options import Bound, Place


def normal(position: Position) -> MessageId:
    """Return the position in its one form; raises OptionError for another protocol's position."""
    if not isinstance(position, MessageId):
        raise OptionError(f"{position!r} is no message id: ledger:entry:index, like 12:3:-1")
    if position.after and position.index < 0:
        return MessageId(position.topic, position.partition, position.ledger, position.entry + 1)
    if position.after:
        return MessageId(position.topic, position.partition, position.ledger, position.entry, position.index + 1)
    return position


def normal_bound(bound: Bound | None, option: str) -> Bound | None:
    """Return a bound with its positions in their one form.

    Raises:
        OptionError: a position is no message id; the error names the option.
    """
    if not isinstance(bound, dict):
        return bound
    found: dict[tuple[str, int | str], Place] = {}
    for key, place in bound.items():
        try:
            found[key] = normal(place) if isinstance(place, Position) else place
        except OptionError as why:
            text = f"option {option}: {key[0]}-{key[1]} has {place}, which is no message id (ledger:entry:index, 12:3:-1)"
            raise OptionError(text) from why
    return found
