"""Defines RocketMQ's errors that have no code of their own; the others are in `codes`."""

from __future__ import annotations

import re
from typing import Any

from wireproto.errors import AuthError, DataLoss

from . import codes

NO_QUEUE = re.compile(r"queueId\[-?\d+\] is illegal")
"""Remark about a queue that does not exist."""
NOT_READ = "pulling message is forbidden"
"""Remark about a topic, or a broker, that is not to be read."""
NOT_CONSUMED = "subscription group no permission"
"""Remark about a group that is not to read."""


class Denied(AuthError):
    """An account was refused by a broker of the 4.9 line: code 1, recognized by its remark."""

    code, name = codes.ServerError.code, codes.ServerError.name
    elsewhere = codes.ServerError.elsewhere


class Shedding(codes.ServerError):
    """The broker sheds load: code 1, recognized by its remark."""

    retriable = True


class NoMaster(codes.BrokerNotExist):
    """The broker that holds the queue has no master in the route. Found by the client, sent by no broker."""

    retriable = True


class NoQueue(codes.InvalidParameter):
    """The topic has no such queue at this broker, or no more: code 29, recognized by its remark. Its route shows it, too, or will soon."""

    refresh = True
    elsewhere = True


class NoQueueBefore5(NoQueue, codes.ServerError):
    """The topic has no such queue at this broker, as the 4.9 line says it: code 1."""

    code, name = codes.ServerError.code, codes.ServerError.name


class NotRetried(codes.InvalidParameter):
    """A message that is given back would not come again. Found by the client: a broker would answer with success."""


class NotReadable(codes.NoPermission):
    """The topic is not to be read at this broker: code 16, which also refuses accounts, recognized by its remark. Its route shows it."""


class ConsumeDisabled(codes.NoPermission):
    """An operator has stopped the group at this broker by `consumeEnable`: code 16, recognized by its remark. It passes when that ends."""

    retriable = True

    def __init__(self, text: str = "", **context: Any) -> None:
        super().__init__(f"{text}: its consumeEnable is false at the broker", **context)


class PlaceLost(codes.PullOffsetMoved, DataLoss):
    """The queue ends before the offset that was read up to.

    Its topic was created again, or its broker has lost the end of its log with a disk. No broker can say where the two logs differ.
    """
