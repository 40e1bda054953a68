"""The format ``zookeeper-wire``: one row per node below a root.

Options: ``hosts``, ``root`` (default ``/``), ``maxDepth``, ``includeData`` (default true); ``zookeeper.*`` goes to the client.
A walk of a live tree is not a snapshot: a node that vanishes between listing and reading is left out.
Columns: path, data, czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .. import connect
from ..errors import BrokerError
from . import worker
from .columns import arrow_schema, gather
from .options import Options, address
from .source import client_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..roles import Tree

STAT = {
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
}
ATTRIBUTE = {"ephemeralOwner": "ephemeral_owner", "dataLength": "data_length", "numChildren": "num_children"}
CHUNK = 1_000  # nodes per Arrow batch


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """What a walk needs on driver and worker; picklable.

    Attributes:
        url, client: for `wireproto.connect`. root: where it begins. depth: levels below. data: whether nodes' data is read out.
    """

    url: str
    client: Mapping[str, Any]
    root: str
    depth: int
    data: bool


class Subtree(InputPartition):
    """One task: a node, alone or with everything below it down to `depth` levels."""

    def __init__(self, path: str, depth: int) -> None:
        super().__init__((path, depth))
        self.path, self.depth = path, depth


class ZooKeeperWire(DataSource):
    """Reads a ZooKeeper tree as Arrow, one task per child of the root."""

    @classmethod
    def name(cls) -> str:
        return "zookeeper-wire"

    def settings(self) -> TreeSettings:
        """The options, checked."""
        options = Options(self.options)
        found = TreeSettings(
            address(options, "hosts", "zookeeper"),
            client_options(options, "zookeeper."),
            "/" + (options.text("root") or "/").strip("/"),
            options.whole("maxDepth", 1_000_000, least=0) or 0,
            options.flag("includeData", True),
        )
        options.finish()
        return found

    def schema(self) -> str:
        data = ["`data` binary"] if self.settings().data else []
        return ", ".join(["`path` string", *data, *(f"`{name}` {kind}" for name, kind in STAT.items())])

    def reader(self, schema: StructType) -> TreeReader:
        return TreeReader(self.settings(), schema)


class TreeReader(DataSourceReader):
    """Walks subtrees; made on the driver, pickled to the workers."""

    def __init__(self, settings: TreeSettings, schema: StructType) -> None:
        self.settings = settings
        self.arrow = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """The root alone, and a task for each of its children."""
        with connect(self.settings.url, **self.settings.client) as client:
            children, _ = client.tree().children(self.settings.root)
        below: list[InputPartition] = [Subtree(join(self.settings.root, name), self.settings.depth - 1) for name in sorted(children)]
        return [Subtree(self.settings.root, 0), *(below if self.settings.depth > 0 else [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the nodes as Arrow batches."""
        assert isinstance(partition, Subtree)
        tree = worker.client(self.settings.url, self.settings.client).tree()
        yield from gather(self.batches(walk(tree, partition.path, partition.depth)))

    def batches(self, nodes: Iterator[tuple[str, bytes | None, Any]]) -> Iterator[pa.RecordBatch]:
        """Nodes to batches of the requested schema."""
        rows: list[tuple[str, bytes | None, Any]] = []
        for node in nodes:
            rows.append(node)
            if len(rows) == CHUNK:
                yield self.batch(rows)
                rows = []
        if rows:
            yield self.batch(rows)

    def batch(self, rows: list[tuple[str, bytes | None, Any]]) -> pa.RecordBatch:
        """One batch: path and data from the row, the rest from its Stat (times there are milliseconds)."""
        arrays = []
        for field in self.arrow:
            if field.name == "path":
                arrays.append(pa.array([path for path, _, _ in rows], field.type))
            elif field.name == "data":
                arrays.append(pa.array([data for _, data, _ in rows], field.type))
            else:
                numbers = [getattr(stat, ATTRIBUTE.get(field.name, field.name)) for _, _, stat in rows]
                scale = 1000 if pa.types.is_timestamp(field.type) else 1
                arrays.append(pa.array([number * scale for number in numbers], pa.int64()).cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def walk(tree: Tree, path: str, depth: int) -> Iterator[tuple[str, bytes | None, Any]]:
    """Every node from `path` down to `depth` levels below, parents before children; vanished nodes are left out."""
    waiting = [(path, depth)]
    while waiting:
        path, depth = waiting.pop()
        try:
            data, stat = tree.get(path)
            children = tree.children(path)[0] if depth > 0 and stat.num_children else []
        except BrokerError as error:
            if error.name and "nonode" in error.name.lower().replace("_", ""):
                continue
            raise
        yield path, data, stat
        waiting.extend((join(path, name), depth - 1) for name in sorted(children, reverse=True))


def join(path: str, name: str) -> str:
    """A child's path."""
    return f"/{name}" if path == "/" else f"{path}/{name}"
