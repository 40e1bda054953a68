"""Errors of RocketMQ that are no code of their own; those that are stand in `codes`."""

from __future__ import annotations

import re
from typing import Any

from wireproto.errors import AuthError, DataLoss

from . import codes

NO_QUEUE = re.compile(r"queueId\[-?\d+\] is illegal")
"""What remarks say of a queue that there is not."""
NOT_READ = "pulling message is forbidden"
"""What they say of a topic, or a broker, that is not to be read."""
NOT_CONSUMED = "subscription group no permission"
"""What they say of a group that is not to read."""


class Denied(AuthError):
    """The 4.9 line's refusal of an account: code 1, told by its remark."""

    code, name = codes.ServerError.code, codes.ServerError.name
    elsewhere = codes.ServerError.elsewhere


class Shedding(codes.ServerError):
    """A broker that sheds load: code 1, told by its remark."""

    retriable = True


class NoMaster(codes.BrokerNotExist):
    """Told by no broker: the one that holds the queue has no master in the route."""

    retriable = True


class NoQueue(codes.InvalidParameter):
    """The topic has no such queue there, or no more: code 29, told by its remark. Its route tells so too, or will do soon."""

    refresh = True
    elsewhere = True


class NoQueueBefore5(NoQueue, codes.ServerError):
    """The same as the 4.9 line says it."""

    code, name = codes.ServerError.code, codes.ServerError.name


class NotRetried(codes.InvalidParameter):
    """A message that is given back would not come again: told by no broker, which would answer with success."""


class NotReadable(codes.NoPermission):
    """The topic is not to be read there: code 16, told by its remark, where it is also a refusal of an account. Its route tells so too."""


class ConsumeDisabled(codes.NoPermission):
    """An operator has stopped the group at this broker by `consumeEnable`: code 16, told by its remark. It passes when that ends."""

    retriable = True

    def __init__(self, text: str = "", **context: Any) -> None:
        super().__init__(f"{text}: its consumeEnable is false at the broker", **context)


class PlaceLost(codes.PullOffsetMoved, DataLoss):
    """The queue ends before the place that was read up to: its topic was made again, or its broker has lost the end of its log with a disk.
    Where the two logs part, no broker tells."""
