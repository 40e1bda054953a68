"""Makes RocketMQ's client for asyncio: `wireproto.aio.Client` with the types of RocketMQ's own options and admin."""

# ruff: noqa: D102
# mypy: disable-error-code="override"
# For type checkers only, the docstrings are those of `client.Client`. Each maker takes RocketMQ's options in place of any.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from . import client
from .roles import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from wireproto.rocketmq import admin as plain_admin
    from wireproto.rocketmq import client as plain
    from wireproto.rocketmq.half import Check, CheckedMessage, Verdict
    from wireproto.rocketmq.option_types import ClientOptions, TransactionalOptions

    from .producer import Producer
    from .queue import Queue
    from .roles import Consumer, Reader
    from .transactional import Transactional
    from .typed import awaited, makes

    AsyncCheck = Callable[[CheckedMessage], Coroutine[Any, Any, Verdict | None]]

__all__ = ["RocketAdmin", "RocketClient", "connect"]


class RocketAdmin(Admin):
    """RocketMQ's admin for asyncio; see `wireproto.rocketmq.admin.RocketAdmin`."""

    if TYPE_CHECKING:
        brokers = awaited(plain_admin.RocketAdmin.brokers)
        queues = awaited(plain_admin.RocketAdmin.queues)


class RocketClient(client.Client):
    """RocketMQ's client for asyncio; its makers take the options of `wireproto.rocketmq.client.RocketClient`."""

    _admin = RocketAdmin

    if TYPE_CHECKING:

        @makes(plain.RocketClient.producing, Producer)
        def producer(self) -> None: ...
        @makes(plain.RocketClient.reader, Reader)
        def reader(self) -> None: ...
        @makes(plain.RocketClient.consumer, Consumer)
        def consumer(self) -> None: ...
        @makes(plain.RocketClient.queue, Queue)
        def queue(self) -> None: ...
        def admin(self) -> RocketAdmin: ...

        def transactional(self, group: str, check: Check | AsyncCheck, **options: Unpack[TransactionalOptions]) -> Transactional: ...


def connect(url: str, **options: Unpack[ClientOptions]) -> RocketClient:
    """Make a client of a RocketMQ cluster; as `wireproto.aio.connect`, with the types of RocketMQ's own client and options.

    Args:
        url, options: see `wireproto.rocketmq.connect`.

    Raises:
        OptionError: the URL is not RocketMQ's, or an option is wrong.
    """
    return client.open_client(RocketClient, url, {**options}, "rocketmq")
