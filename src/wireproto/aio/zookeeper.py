"""Makes ZooKeeper's client for asyncio: `wireproto.aio.Client` with the types of ZooKeeper's own options and tree."""

# ruff: noqa: D102
# mypy: disable-error-code="override"
# For type checkers only, the docstrings are those of `client.Client`. Each maker takes ZooKeeper's options in place of any.

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from . import client
from .tree import Tree

if TYPE_CHECKING:
    from wireproto.zookeeper import client as plain
    from wireproto.zookeeper import tree as plain_tree
    from wireproto.zookeeper.option_types import ClientOptions

    from .producer import Producer
    from .queue import Queue
    from .roles import Reader
    from .typed import awaited, makes

__all__ = ["ZooKeeperClient", "ZooKeeperTree", "connect"]


class ZooKeeperTree(Tree):
    """ZooKeeper's tree for asyncio; see `wireproto.zookeeper.tree.Tree`."""

    if TYPE_CHECKING:
        add_auth = awaited(plain_tree.Tree.add_auth)
        catch_up = awaited(plain_tree.Tree.catch_up)
        children = awaited(plain_tree.Tree.children)
        config = awaited(plain_tree.Tree.config)
        count = awaited(plain_tree.Tree.count)
        create = awaited(plain_tree.Tree.create)
        create2 = awaited(plain_tree.Tree.create2)
        delete = awaited(plain_tree.Tree.delete)
        ensure = awaited(plain_tree.Tree.ensure)
        ephemerals = awaited(plain_tree.Tree.ephemerals)
        exists = awaited(plain_tree.Tree.exists)
        get = awaited(plain_tree.Tree.get)
        get_acl = awaited(plain_tree.Tree.get_acl)
        multi = awaited(plain_tree.Tree.multi)
        reconfigure = awaited(plain_tree.Tree.reconfigure)
        set = awaited(plain_tree.Tree.set)
        set_acl = awaited(plain_tree.Tree.set_acl)
        sync = awaited(plain_tree.Tree.sync)
        whoami = awaited(plain_tree.Tree.whoami)


class ZooKeeperClient(client.Client):
    """ZooKeeper's client for asyncio; its makers take the options of `wireproto.zookeeper.client.ZooKeeperClient`."""

    _tree = ZooKeeperTree

    if TYPE_CHECKING:

        @makes(plain.ZooKeeperClient.producer, Producer)
        def producer(self) -> None: ...
        @makes(plain.ZooKeeperClient.reader, Reader)
        def reader(self) -> None: ...
        @makes(plain.ZooKeeperClient.queue, Queue)
        def queue(self) -> None: ...
        def tree(self) -> ZooKeeperTree: ...


def connect(url: str, **options: Unpack[ClientOptions]) -> ZooKeeperClient:
    """Make a client of a ZooKeeper ensemble; as `wireproto.aio.connect`, with the types of ZooKeeper's own client and options.

    Args:
        url, options: see `wireproto.zookeeper.connect`.

    Raises:
        OptionError: the URL is not ZooKeeper's, or an option is wrong.
    """
    return client.open_client(ZooKeeperClient, url, {**options}, "zookeeper")
