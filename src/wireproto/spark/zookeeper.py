"""Provides the format ``zookeeper-wire``: reads one row for each node below a root; `zookeeper_sink.py` writes one node for each row.

    hosts         host:port, separated by commas, or zookeeper://…   includeData     whether data is read (true)
    root          where to begin (/)                                  minPartitions   about how many tasks the tree is split into (8)
    maxDepth      levels below the root                               zookeeper.*     options of the client
    failOnConcurrentChange   fail where the tree changed meanwhile (false)
    failOnNoAuth  fail at a node that may not be read (true); false leaves it out with what is below it, and logs how many there were

A walk of a live tree is not a snapshot: a node that is deleted between listing and reading is left out, and `readZxid` is the last
transaction that the server had applied when it answered for a row. With failOnConcurrentChange the driver notes the last transaction first,
and any row, list of children or missing node that shows a later one fails the query: the result is the tree at that transaction. There is
no stream: ZooKeeper keeps no log from which a query could continue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .. import connect
from ..errors import DataLoss, OptionError
from ..zookeeper.codes import NoAuth, NoNode
from . import worker
from .columns import arrow_schema, gather
from .options import Options, address
from .source import client_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..zookeeper.messages import Stat
    from ..zookeeper.tree import Tree
    from .write import LogStreamWriter, LogWriter
    from .zookeeper_sink import TreeSink

KINDS = {
    "path": "string",
    "data": "binary",
    "czxid": "bigint",
    "mzxid": "bigint",
    "ctime": "timestamp",
    "mtime": "timestamp",
    "version": "int",
    "cversion": "int",
    "aversion": "int",
    "ephemeralOwner": "bigint",
    "dataLength": "int",
    "numChildren": "int",
    "pzxid": "bigint",
    "readZxid": "bigint",
}
ATTRIBUTE = {"ephemeralOwner": "ephemeral_owner", "dataLength": "data_length", "numChildren": "num_children"}
log = logging.getLogger("wireproto.spark")
ABREAST = 256  # number of nodes that are requested at once
TASKS = 8


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """What a walk needs on driver and worker; can be pickled.

    Attributes:
        url, client: for `wireproto.connect`.
        root: path where the walk begins. depth: levels below it. data: whether there is a column data.
        tasks: about how many tasks. strict: fail where the tree changed. refused: fail where a node may not be read.
    """

    url: str
    client: Mapping[str, Any]
    root: str
    depth: int
    data: bool
    tasks: int
    strict: bool
    refused: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    Attributes:
        zxid: the last transaction that its server had applied.
    """

    path: str
    data: bytes | None
    stat: Stat
    zxid: int


class Subtree(InputPartition):
    """One task: nodes to walk, each with a number of levels below it.

    Attributes:
        tops: (path, levels). zxid: the last transaction before the walk.
    """

    def __init__(self, tops: tuple[tuple[str, int], ...], zxid: int) -> None:
        super().__init__(tops)
        self.tops, self.zxid = tops, zxid


class ZooKeeperWire(DataSource):
    """Reads a ZooKeeper tree as Arrow, a task for each part of the tree, and writes nodes."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name, ``zookeeper-wire``."""
        return "zookeeper-wire"

    def settings(self) -> TreeSettings:
        """Return the reader's options; raises OptionError for wrong or unknown ones."""
        options = Options(self.options)
        found = TreeSettings(
            address(options, "hosts", "zookeeper"),
            client_options(options, "zookeeper."),
            "/" + (options.text("root") or "/").strip("/"),
            options.whole("maxDepth", 1_000_000, least=0) or 0,
            options.flag("includeData", True),
            options.whole("minPartitions", TASKS) or TASKS,
            options.flag("failOnConcurrentChange"),
            options.flag("failOnNoAuth", True),
        )
        options.finish()
        return found

    def schema(self) -> str:
        """Return the schema as DDL, without data where includeData is false."""
        data = self.settings().data
        return ", ".join(f"`{name}` {kind}" for name, kind in KINDS.items() if data or name != "data")

    def reader(self, schema: StructType) -> TreeReader:
        """Return the reader of a batch query."""
        return TreeReader(self.settings(), schema)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """Raise OptionError: there is no stream."""
        raise OptionError(
            "zookeeper-wire cannot be read as a stream: ZooKeeper keeps no log that a query could go back to; read it in a batch, where "
            "readZxid and mzxid show what is new"
        )

    def sink(self, schema: StructType) -> TreeSink:
        """Return the sink of the writer's options; raises OptionError for wrong or unknown ones."""
        from .zookeeper_sink import TreeSink, write_options

        options = Options(self.options)
        settings = write_options(options)
        options.finish()
        return TreeSink(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        """Return the writer of a batch, after a check on the cluster; raises OptionError for the mode overwrite."""
        from .write import LogWriter

        if overwrite:
            raise OptionError(
                "zookeeper-wire deletes no nodes: use mode('append'); the option operation says what happens to existing nodes"
            )
        return LogWriter(self.sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802
        """Return the writer of a micro-batch."""
        from .write import LogStreamWriter

        return LogStreamWriter(self.sink(schema))


class TreeReader(DataSourceReader):
    """Walks subtrees; made on the driver, pickled to the workers.

    Raises (when it is made):
        OptionError: the schema has columns or types that the format does not have.
    """

    def __init__(self, settings: TreeSettings, schema: StructType) -> None:
        for column in schema.fields:
            if KINDS.get(column.name) != column.dataType.simpleString():
                there = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
                raise OptionError(f"the schema has {column.name} as {column.dataType.simpleString()}; zookeeper-wire has {there}")
        self.settings = settings
        self.arrow = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Go down from the root until there are enough subtrees; the nodes above them are a task of their own.

        Raises:
            NoNode: the root does not exist. NoAuth: a node may not be read (with failOnNoAuth).
            DataLoss: a node changed meanwhile (with failOnConcurrentChange).
        """
        settings = self.settings
        with connect(settings.url, **settings.client) as client:
            tree = cast("Tree", client.tree()).any_session()
            tree.sync(settings.root)
            try:
                tree.get(settings.root)
            except NoNode as why:
                why.text = f"there is no node {settings.root!r}: correct the option root"
                raise
            zxid = tree.zxid
            passed: list[tuple[str, int]] = []
            level = [(settings.root, settings.depth)]
            while level and len(level) < settings.tasks and level[0][1] > 0:
                passed += [(path, 0) for path, _ in level]
                calls = [(path, depth, tree.children_async(path).unordered()) for path, depth in level]
                level = []
                for path, depth, call in calls:
                    try:
                        names, stat = call.result()
                    except NoNode:
                        vanished(settings.strict, path, zxid)
                        continue
                    except NoAuth:
                        if settings.refused:
                            raise
                        continue  # the task that reads the node itself counts it
                    unchanged(settings.strict, path, stat.pzxid, zxid)
                    level += [(join(path, name), depth - 1) for name in sorted(names)]
        shares = [level[place :: settings.tasks] for place in range(min(settings.tasks, len(level)))]
        tops = [passed, *shares] if passed else shares
        return [Subtree(tuple(top), zxid) for top in tops]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the nodes of a task as Arrow batches.

        Raises:
            NoAuth: a node may not be read (with failOnNoAuth). DataLoss: a node changed since the walk began (with failOnConcurrentChange).
        """
        assert isinstance(partition, Subtree)
        settings = self.settings
        tree = cast("Tree", worker.client(settings.url, settings.client).tree()).any_session()
        try:
            reach(tree, settings.root, partition.zxid)
            walked = walk(tree, list(partition.tops), partition.zxid, settings.strict, settings.refused)
            yield from gather(self.batch(nodes) for nodes in walked if nodes)
        except Exception:
            worker.forget(settings.url, settings.client)
            raise

    def batch(self, nodes: list[Node]) -> pa.RecordBatch:
        """Make one batch of nodes; the times of a Stat are milliseconds since 1970."""
        arrays = []
        for field in self.arrow:
            if field.name == "path":
                arrays.append(pa.array([node.path for node in nodes], field.type))
            elif field.name == "data":
                arrays.append(pa.array([node.data for node in nodes], field.type))
            elif field.name == "readZxid":
                arrays.append(pa.array([node.zxid for node in nodes], field.type))
            else:
                numbers = [getattr(node.stat, ATTRIBUTE.get(field.name, field.name)) for node in nodes]
                scale = 1000 if pa.types.is_timestamp(field.type) else 1
                arrays.append(pa.array([number * scale for number in numbers], pa.int64()).cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def reach(tree: Tree, root: str, zxid: int) -> None:
    """Wait until this session's server has applied the driver's last transaction.

    This server may be behind the driver's, and a server that leads answers a sync at once.

    Args:
        zxid: the driver's last transaction.
    """
    tree.sync(root)
    if tree.zxid < zxid:
        with suppress(NoNode):  # then there is nothing to walk
            tree.catch_up(root)


def walk(tree: Tree, waiting: list[tuple[str, int]], zxid: int, strict: bool, refused: bool) -> Iterator[list[Node]]:
    """Yield every node of these subtrees, in lists, with up to `ABREAST` nodes requested at once.

    Args:
        waiting: (path, levels below it); it is emptied. zxid: the last transaction before the walk.
        strict: raise DataLoss where the tree changed. refused: raise NoAuth for a node that may not be read; else it is left out, and
            logged.
    """
    left_out: list[str] = []
    while waiting:
        asked = waiting[-ABREAST:]
        del waiting[-ABREAST:]
        calls = [
            (path, depth, tree.get_async(path).unordered(), tree.children_async(path).unordered() if depth > 0 else None)
            for path, depth in asked
        ]
        nodes: list[Node] = []
        for path, depth, data, children in calls:
            try:
                value, stat = data.result()
                names, listed = children.result() if children is not None else ([], stat)
            except NoNode:
                vanished(strict, path, zxid)
                continue
            except NoAuth:
                if refused:
                    raise
                left_out.append(path)
                continue
            unchanged(strict, path, max(stat.mzxid, stat.czxid, stat.pzxid, listed.pzxid), zxid)
            nodes.append(Node(path, value, stat, tree.zxid))
            waiting.extend((join(path, name), depth - 1) for name in names)
        yield nodes
    if left_out:
        log.warning("%d nodes may not be read and are left out, with what is below them; the first is %s", len(left_out), left_out[0])


REMEDY = "read again when no client writes, or set failOnConcurrentChange to false"


def unchanged(strict: bool, path: str, found: int, zxid: int) -> None:
    """Raise DataLoss where a node shows a transaction after the walk's beginning (`found` is its latest)."""
    if strict and found > zxid:
        raise DataLoss(f"the node {path} was changed by transaction {found:#x}, after the read began at {zxid:#x}; {REMEDY}")


def vanished(strict: bool, path: str, zxid: int) -> None:
    """Raise DataLoss where a node was deleted meanwhile, if `strict`."""
    if strict:
        raise DataLoss(f"the node {path} was deleted after the read began at transaction {zxid:#x}; {REMEDY}")


def join(path: str, name: str) -> str:
    """Return the path of a child."""
    return f"/{name}" if path == "/" else f"{path}/{name}"
