"""Offers the clients and roles to asyncio: the same calls, awaited.

    async with wireproto.aio.connect("kafka://…") as client:
        out = client.producer("t")
        places = await asyncio.gather(*(out.send(b"%d" % i) for i in range(1000)))
        async for batch in client.reader("t", stop=wireproto.LATEST):
            …

The protocols' code is that of the synchronous clients. The event loop's thread runs it; other threads are started only for what the system
offers as a blocking call, such as looking up host names. docs/asyncio.md says which roles of which protocols there are.
"""

from __future__ import annotations

from typing import Any

from .client import Client, open_client
from .producer import Producer
from .queue import Delivery, Queue
from .roles import Admin, Consumer, Reader
from .transactional import HalfMessage, Transactional
from .transactions import Transaction, Transactions
from .tree import Tree, Watch

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Delivery",
    "HalfMessage",
    "Producer",
    "Queue",
    "Reader",
    "Transaction",
    "Transactional",
    "Transactions",
    "Tree",
    "Watch",
    "connect",
]


def connect(url: str, **options: Any) -> Client:
    """Make a client for the cluster that `url` names. Connections are made when they are needed.

    Args:
        url, options: see `wireproto.connect`.

    Raises:
        OptionError: the URL or an option is wrong. UsageError: the protocol's client cannot be run by an event loop.
    """
    return open_client(Client, url, options)
