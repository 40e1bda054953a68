"""Writes a node for each row to ZooKeeper, by transactions that are recognized when they are run again.

    path   string, absolute     data   binary or string, null is ZooKeeper's null     other columns are refused

    operation    create (fails for a node that exists) · set (fails for one that does not) · upsert, the default
    createParents     make missing nodes above (false)            markerRoot    where marker nodes are (/wireproto-spark)

Rows are cut into transactions (`multi`) by their number and size alone. Each also creates its marker,
``<markerRoot>/<query>/<micro-batch>-<task>-<number>``, with a digest of its rows; where that exists already, the transaction has happened
and is skipped: so a micro-batch that Spark runs again, or a transaction whose answer was lost, changes nothing a second time. A marker with
another digest is of an attempt that failed with other rows: then these are written, and the marker with them. Markers of earlier
micro-batches are deleted when a later one is committed, those of a batch write at its end, whether it succeeded or not: the driver makes
the node above them and deletes it, so a task that is late finds none and writes nothing.

A transaction is atomic, a micro-batch of several is not. No node may be written without its marker.
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
ROWS, BYTES = 500, 256 << 10  # limits of a transaction; servers take 1 MB by default (jute.maxbuffer)
Row = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class TreeWriteSettings:
    """What writing needs; can be pickled.

    Attributes:
        url, client: for `wireproto.connect`. operation: create, set or upsert. parents: whether missing nodes above are made.
        markers: path of the marker nodes' root. timeout: seconds for which a transaction is tried.
    """

    url: str
    client: Mapping[str, Any]
    operation: str
    parents: bool
    markers: str
    timeout: float


def write_options(options: Options) -> TreeWriteSettings:
    """Take the writer's options; raises OptionError."""
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
    """Writes rows to nodes.

    Attributes:
        job: id of a batch write, for its markers.
    Raises (when it is made):
        OptionError: a column is missing, unknown or of another type.
    """

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
        """Begin a task."""
        return TreeSession(self, cast("Tree", client.tree()).any_session(), task)

    def check(self, client: Client, *, stream: bool) -> None:
        """Make the node above a batch write's markers."""
        if not stream:
            cast("Tree", client.tree()).any_session().ensure(f"{self.settings.markers}/{self.job}")

    def commit(self, messages: list[Written | None], batch: int | None) -> None:
        """Delete the markers that are not needed any more: of earlier micro-batches, or of this batch write."""
        query = next((message.facts["owner"] for message in messages if message is not None and message.rows), None)
        self.clear(self.job if batch is None else query, batch)

    def abort(self, messages: list[Written | None], batch: int | None) -> None:
        """Delete the markers of a batch write, which is not tried again under this name."""
        if batch is None:
            self.clear(self.job, None)

    def clear(self, owner: str | None, before: int | None) -> None:
        """Delete markers.

        Args:
            owner: query or batch write that has them; None: nothing is deleted. before: delete those of earlier micro-batches than this;
                None: all.
        """
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
    """One task: collects rows, and writes them in transactions.

    Attributes:
        owner: query or batch write. home: path of its markers. stem: first part of this task's markers' names.
        done: number of transactions written. held, size: rows that are not written yet, and their bytes.
    """

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
        """Collect rows, and write a transaction whenever there are enough.

        Raises:
            ValueUnsupported: a path is null or not absolute.
        """
        for row in rows_of(batch):
            weight = len(row[0]) + len(row[1] or b"")
            if self.held and (len(self.held) == ROWS or self.size + weight > BYTES):
                self.flush()
            self.held.append(row)
            self.size += weight

    def flush(self) -> None:
        """Write one transaction of the rows that are held."""
        marker = f"{self.home}/{self.stem}-{self.done}"
        transact(self.tree, self.settings, marker, self.held)
        self.done += 1
        self.held, self.size = [], 0

    def finish(self) -> Written:
        """Write the rows that are left; returns the commit message."""
        if self.held:
            self.flush()
        return Written(self.rows, {"owner": self.owner})

    def abort(self) -> None:
        """Drop the rows that are not written yet."""
        self.held = []


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield path and data of each row; raises ValueUnsupported for a path that is null or not absolute."""
    paths = batch.column(batch.schema.get_field_index("path")).to_pylist()
    values = batch.column(batch.schema.get_field_index("data")).cast(pa.binary()).to_pylist()
    for path, value in zip(paths, values, strict=True):
        if path is None or not path.startswith("/"):
            raise ValueUnsupported(f"the column path has {path!r}: a node's path begins with /")
        yield path, value


def digest(rows: list[Row]) -> bytes:
    """Return a digest of the rows, which differs for other rows."""
    found = hashlib.blake2b(digest_size=16)
    for path, data in rows:
        found.update(repr((path, None if data is None else len(data))).encode())
        found.update(data or b"")
    return found.digest()


def marked(tree: Tree, marker: str) -> tuple[bytes, int] | None:
    """Return a marker's data and version, None where it does not exist.

    That is what this session's server knows, which may be behind.
    """
    try:
        found, stat = tree.get(marker)
    except NoNode:
        return None
    return found or b"", stat.version


def transact(tree: Tree, settings: TreeWriteSettings, marker: str, rows: list[Row]) -> None:
    """Write these rows and the marker in one transaction, unless the marker exists with their digest.

    It is tried again after a lost answer, or where an upsert guessed wrongly whether a node exists.

    Raises:
        TimedOut: nodes are created and deleted by others all the time. ConnectionLoss: the answer was lost, and the time is over.
        NodeExists, NoNode: the operation does not fit the nodes, or the node above the marker was deleted. BrokerError: another refusal.
    """
    deadline = time.monotonic() + settings.timeout
    ours = digest(rows)
    before = marked(tree, marker)
    if before is not None and before[0] == ours:
        return
    if settings.parents:
        for parent in sorted({path.rpartition("/")[0] for path, _ in rows} - {""}):
            tree.ensure(parent)
    there = [settings.operation == "set"] * len(rows)  # by row, whether its node is taken to exist
    if settings.operation == "upsert":
        calls = [tree.exists_async(path).unordered() for path, _ in rows]
        there = [call.result() is not None for call in calls]
    while True:
        mark = Create(marker, ours) if before is None else Set(marker, ours, before[1])  # a Set with its version fails the second time
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
                    why.text = f"the node above {marker} was deleted: by Spark, which abandoned this write, or by another client"
                    raise
            elif guessed_wrongly(settings, why, index, there):
                there[index - 1] = not there[index - 1]
            else:
                raise refused(settings, why, rows[index - 1][0]) from why
            if time.monotonic() >= deadline:
                raise TimedOut(f"other clients keep creating and deleting {rows[index - 1][0] if index else marker}") from why
        else:
            return


def guessed_wrongly(settings: TreeWriteSettings, why: BrokerError, index: int, there: list[bool]) -> bool:
    """Return whether an upsert took an existing node for missing, or a missing one for existing."""
    if settings.operation != "upsert":
        return False
    return isinstance(why, NoNode) if there[index - 1] else isinstance(why, NodeExists)


def refused(settings: TreeWriteSettings, why: BrokerError, path: str) -> BrokerError:
    """Return the servers' error with its remedy."""
    if isinstance(why, NodeExists):
        why.text = f"the node {path} exists already: use operation set or upsert"
    elif isinstance(why, NoNode) and settings.operation == "set":
        why.text = f"there is no node {path}: use operation upsert"
    elif isinstance(why, NoNode):
        why.text = f"the node above {path} does not exist: create it, or set createParents to true"
    return why
