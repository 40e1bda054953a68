"""Makes Kafka's client for asyncio: `wireproto.aio.Client` with the types of Kafka's own options and admin."""

# ruff: noqa: D102
# mypy: disable-error-code="override"
# For type checkers only, the docstrings are those of `client.Client`. Each maker takes Kafka's options in place of any.

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from . import client
from .roles import Admin

if TYPE_CHECKING:
    from wireproto.kafka import admin as plain_admin
    from wireproto.kafka import client as plain
    from wireproto.kafka.option_types import ClientOptions

    from .producer import Producer
    from .roles import Consumer, Reader
    from .transactions import Transactions
    from .typed import awaited, makes

__all__ = ["KafkaAdmin", "KafkaClient", "connect"]


class KafkaAdmin(Admin):
    """Kafka's admin for asyncio; see `wireproto.kafka.admin.KafkaAdmin`."""

    if TYPE_CHECKING:
        describe_topics = awaited(plain_admin.KafkaAdmin.describe_topics)
        sizes = awaited(plain_admin.KafkaAdmin.sizes)


class KafkaClient(client.Client):
    """Kafka's client for asyncio; its makers take the options of `wireproto.kafka.client.KafkaClient`."""

    _admin = KafkaAdmin

    if TYPE_CHECKING:

        @makes(plain.KafkaClient.producing, Producer)
        def producer(self) -> None: ...
        @makes(plain.KafkaClient.reader, Reader)
        def reader(self) -> None: ...
        @makes(plain.KafkaClient.consumer, Consumer)
        def consumer(self) -> None: ...
        @makes(plain.KafkaClient.transactions, Transactions)
        def transactions(self) -> None: ...
        def admin(self) -> KafkaAdmin: ...


def connect(url: str, **options: Unpack[ClientOptions]) -> KafkaClient:
    """Make a client of a Kafka cluster; as `wireproto.aio.connect`, with the types of Kafka's own client and options.

    Args:
        url, options: see `wireproto.kafka.connect`.

    Raises:
        OptionError: the URL is not Kafka's, or an option is wrong.
    """
    return client.open_client(KafkaClient, url, {**options}, "kafka")
