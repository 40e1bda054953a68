"""ZooKeeper's sink: a node per row, by transactions that know themselves again.

    path   string, absolute     data   binary or string, null is ZooKeeper's null     other columns are refused

    operation    create (fails on a node that is there) · set (fails on one that is not) · upsert, the default
    createParents     make missing nodes above (false)            markerRoot    where marker nodes are (/wireproto-spark)

What it does: rows are cut into transactions (`multi`) by their number and size alone. Each also creates its marker,
``<markerRoot>/<query>/<micro-batch>-<task>-<number>``, with a digest of its rows; where that is there already, the transaction has happened
and is passed over: so a micro-batch that Spark runs again, or a transaction whose answer was lost, changes nothing a second time. A marker
with another digest is of an attempt that failed with other rows: then these are written, and the marker with them. Markers of earlier
micro-batches go when a later one is committed, those of a batch write at its end, be it good or bad: the driver makes the node above them
and deletes it, so a task that is late finds none and writes nothing.
A transaction is atomic, a micro-batch of several is not. Must not: write a node without its marker.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ..errors import BrokerError, OptionError, TimedOut, ValueUnsupported
from ..zookeeper.codes import NodeExists, NoNode
from ..zookeeper.errors import ConnectionLoss
from ..zookeeper.multi import Create, Set
from .options import Options, address
from .source import client_options
from .write import Session, Sink, Task, Written, wanted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..roles import Client
    from ..zookeeper.tree import Tree

KINDS = {"path": ("string",), "data": ("binary", "string")}
OPERATIONS = ("create", "set", "upsert")
ROWS, BYTES = 500, 256 << 10  # of a transaction; servers take 1 MB by default
Row = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class TreeWriteSettings:
    """What writing needs; picklable. `timeout`: seconds that a transaction is tried for."""

    url: str
    client: Mapping[str, Any]
    operation: str
    parents: bool
    markers: str
    timeout: float


def write_options(options: Options) -> TreeWriteSettings:
    """Take the writer's options."""
    operation = (options.text("operation", "upsert") or "").lower()
    if operation not in OPERATIONS:
        raise OptionError(f"option operation is {operation!r}; it takes {', '.join(OPERATIONS)}")
    return TreeWriteSettings(
        address(options, "hosts", "zookeeper"),
        client_options(options, "zookeeper."),
        operation,
        options.flag("createParents"),
        "/" + (options.text("markerRoot") or "wireproto-spark").strip("/"),
        options.seconds("writeTimeout", 60.0),
    )


class TreeSink(Sink):
    """Rows to nodes."""

    def __init__(self, settings: TreeWriteSettings, schema: StructType) -> None:
        super().__init__(settings.url, settings.client, schema)
        self.settings = settings
        self.job = uuid.uuid4().hex
        for column in schema.fields:
            if column.name not in KINDS:
                raise OptionError(f"zookeeper-wire writes the columns path and data: drop or rename the column {column.name!r}")
        for name in KINDS:
            if wanted(schema, name, KINDS) is None:
                raise OptionError(f"Required attribute {name!r} not found: zookeeper-wire writes the columns path and data")

    def begin(self, client: Client, task: Task) -> Session | None:
        return TreeSession(self, cast("Tree", client.tree()).any_session(), task)

    def check(self, client: Client, *, stream: bool) -> None:
        """The node above a batch write's markers."""
        if not stream:
            cast("Tree", client.tree()).any_session().ensure(f"{self.settings.markers}/{self.job}")

    def commit(self, messages: list[Written | None], batch: int | None) -> None:
        """Delete the markers that nobody will ask for again."""
        query = next((message.facts["owner"] for message in messages if message is not None and message.rows), None)
        self.clear(self.job if batch is None else query, batch)

    def abort(self, messages: list[Written | None], batch: int | None) -> None:
        """A batch write has failed and will not come back under this name."""
        if batch is None:
            self.clear(self.job, None)

    def clear(self, owner: str | None, before: int | None) -> None:
        """Delete the owner's markers of earlier micro-batches; None: all."""
        if owner is None:
            return
        home = f"{self.settings.markers}/{owner}"
        with self.open() as client:
            tree = cast("Tree", client.tree()).any_session()
            if before is None:
                if tree.exists(home) is not None:
                    tree.delete(home, recursive=True)
                return
            names, _ = tree.children(home)
            for call in [tree.delete_async(f"{home}/{name}") for name in names if int(name.partition("-")[0]) < before]:
                try:
                    call.result()
                except (NoNode, ConnectionLoss):
                    continue  # the next commit looks again


class TreeSession(Session):
    """One task."""

    def __init__(self, sink: TreeSink, tree: Tree, task: Task) -> None:
        self.settings = sink.settings
        self.tree = tree
        self.owner = task.query or sink.job
        self.home = f"{self.settings.markers}/{self.owner}"
        self.stem = f"{task.batch or 0}-{task.partition}"
        self.done = 0
        self.held: list[Row] = []
        self.size = 0
        if task.query is not None:
            tree.ensure(self.home)

    def send(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            weight = len(row[0]) + len(row[1] or b"")
            if self.held and (len(self.held) == ROWS or self.size + weight > BYTES):
                self.flush()
            self.held.append(row)
            self.size += weight

    def flush(self) -> None:
        """One transaction of what is held."""
        marker = f"{self.home}/{self.stem}-{self.done}"
        transact(self.tree, self.settings, marker, self.held)
        self.done += 1
        self.held, self.size = [], 0

    def finish(self) -> Written:
        if self.held:
            self.flush()
        return Written(self.rows, {"owner": self.owner})

    def abort(self) -> None:
        self.held = []


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Path and data of each row; raises ValueUnsupported for a path that is none."""
    paths = batch.column(batch.schema.get_field_index("path")).to_pylist()
    values = batch.column(batch.schema.get_field_index("data")).cast(pa.binary()).to_pylist()
    for path, value in zip(paths, values, strict=True):
        if path is None or not path.startswith("/"):
            raise ValueUnsupported(f"the column path has {path!r}: a node's path begins with /")
        yield path, value


def digest(rows: list[Row]) -> bytes:
    """What tells these rows from others."""
    found = hashlib.blake2b(digest_size=16)
    for path, data in rows:
        found.update(repr((path, None if data is None else len(data))).encode())
        found.update(data or b"")
    return found.digest()


def marked(tree: Tree, marker: str) -> tuple[bytes, int] | None:
    """What a marker holds and its version, None where there is none, as this server knows it: it may be behind."""
    try:
        found, stat = tree.get(marker)
    except NoNode:
        return None
    return found or b"", stat.version


def transact(tree: Tree, settings: TreeWriteSettings, marker: str, rows: list[Row]) -> None:
    """Write these rows and the marker, unless it is there for them; again after a lost answer, or where upsert guessed wrongly."""
    deadline = time.monotonic() + settings.timeout
    ours = digest(rows)
    before = marked(tree, marker)
    if before is not None and before[0] == ours:
        return
    if settings.parents:
        for parent in sorted({path.rpartition("/")[0] for path, _ in rows} - {""}):
            tree.ensure(parent)
    there = [settings.operation == "set"] * len(rows)
    if settings.operation == "upsert":
        calls = [tree.exists_async(path).unordered() for path, _ in rows]
        there = [call.result() is not None for call in calls]
    while True:
        mark = Create(marker, ours) if before is None else Set(marker, ours, before[1])  # in this version: never a second time
        writes = [Set(path, data) if old else Create(path, data) for (path, data), old in zip(rows, there, strict=True)]
        try:
            tree.multi([mark, *writes], timeout=max(0.1, deadline - time.monotonic()))
        except ConnectionLoss:
            if time.monotonic() >= deadline:
                raise
        except BrokerError as why:
            index = getattr(why, "index", None)
            if index is None:
                raise
            if index == 0:
                given_up, before = before is None and isinstance(why, NoNode), marked(tree, marker)
                if before is not None and before[0] == ours:
                    return
                if given_up:
                    why.text = f"the node above {marker} is gone: the write was given up meanwhile, or somebody deleted it"
                    raise
            elif guessed_wrongly(settings, why, index, there):
                there[index - 1] = not there[index - 1]
            else:
                raise refused(settings, why, rows[index - 1][0]) from why
            if time.monotonic() >= deadline:
                raise TimedOut(f"others create and delete {rows[index - 1][0] if index else marker} all the time") from why
        else:
            return


def guessed_wrongly(settings: TreeWriteSettings, why: BrokerError, index: int, there: list[bool]) -> bool:
    """Whether upsert took a node for missing that is there, or the other way."""
    if settings.operation != "upsert":
        return False
    return isinstance(why, NoNode) if there[index - 1] else isinstance(why, NodeExists)


def refused(settings: TreeWriteSettings, why: BrokerError, path: str) -> BrokerError:
    """The servers' refusal with its remedy."""
    if isinstance(why, NodeExists):
        why.text = f"the node {path} exists already: use operation set or upsert"
    elif isinstance(why, NoNode) and settings.operation == "set":
        why.text = f"there is no node {path}: use operation upsert"
    elif isinstance(why, NoNode):
        why.text = f"the node above {path} does not exist: create it, or set createParents to true"
    return why
