"""Makes Pulsar's client for asyncio: `wireproto.aio.Client` with the types of Pulsar's own options and admin."""

# ruff: noqa: D102
# mypy: disable-error-code="override"
# For type checkers only, the docstrings are those of `client.Client`. Each maker takes Pulsar's options in place of any.

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from . import client
from .roles import Admin

if TYPE_CHECKING:
    from wireproto.pulsar import admin as plain_admin
    from wireproto.pulsar import client as plain
    from wireproto.pulsar.option_types import ClientOptions

    from .producer import Producer
    from .queue import Queue
    from .roles import Consumer, Reader
    from .transactions import Transactions
    from .typed import awaited, makes

__all__ = ["PulsarAdmin", "PulsarClient", "connect"]


class PulsarAdmin(Admin):
    """Pulsar's admin for asyncio; see `wireproto.pulsar.admin.PulsarAdmin`."""

    if TYPE_CHECKING:
        create_group = awaited(plain_admin.PulsarAdmin.create_group)
        ledgers = awaited(plain_admin.PulsarAdmin.ledgers)
        deduplication = awaited(plain_admin.PulsarAdmin.deduplication)
        set_deduplication = awaited(plain_admin.PulsarAdmin.set_deduplication)


class PulsarClient(client.Client):
    """Pulsar's client for asyncio; its makers take the options of `wireproto.pulsar.client.PulsarClient`."""

    _admin = PulsarAdmin

    if TYPE_CHECKING:

        @makes(plain.PulsarClient.producing, Producer)
        def producer(self) -> None: ...
        @makes(plain.PulsarClient.reader, Reader)
        def reader(self) -> None: ...
        @makes(plain.PulsarClient.consumer, Consumer)
        def consumer(self) -> None: ...
        @makes(plain.PulsarClient.queue, Queue)
        def queue(self) -> None: ...
        @makes(plain.PulsarClient.transactions, Transactions)
        def transactions(self) -> None: ...
        def admin(self) -> PulsarAdmin: ...


def connect(url: str, **options: Unpack[ClientOptions]) -> PulsarClient:
    """Make a client of a Pulsar cluster; as `wireproto.aio.connect`, with the types of Pulsar's own client and options.

    Args:
        url, options: see `wireproto.pulsar.connect`.

    Raises:
        OptionError: the URL is not Pulsar's, or an option is wrong.
    """
    return client.open_client(PulsarClient, url, {**options}, "pulsar")
