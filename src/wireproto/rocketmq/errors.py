"""Errors of RocketMQ that are no code of their own; those that are stand in `codes`."""

from __future__ import annotations

from wireproto.errors import AuthError

from . import codes


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
