"""Errors of ZooKeeper that are no code of their own; those that are stand in `codes`."""

from __future__ import annotations

from ..errors import Disconnected


class ConnectionLoss(Disconnected):
    """The connection was lost with a write in flight: it may or may not have taken effect, so it was not repeated."""

    retriable = False
    doubtful = True
