"""zookeeper-wire on a real server: rows of a tree split by subtree, snapshots told from walks, nodes written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

import wireproto
from brokers import ZooKeeper, plugin
from patience import LONG
from spark.logs import forget_last, run
from spark.peers import QUIET
from wireproto.devbroker import DevBroker
from wireproto.zookeeper.acl import CREATOR_ALL
from wireproto.zookeeper.codes import NoAuth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    QUIET,
    pytest.mark.broker("zookeeper-3.9.5"),
]
FORM = "zookeeper-wire"


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> ZooKeeper:
    found = plugin.start(request.config, "zookeeper-3.9.5")
    assert isinstance(found, ZooKeeper)
    return found


@pytest.fixture(scope="module")
def theirs(broker: ZooKeeper) -> Iterator[Any]:
    client = KazooClient(hosts=broker.addresses[0], timeout=LONG)  # as long as the server gives: its ten seconds are short under load
    client.start(LONG)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def root(fresh: Callable[[str], str]) -> str:
    return "/" + fresh("spark")


def frame(spark: SparkSession, broker: ZooKeeper, root: str = "/", **options: Any) -> DataFrame:
    return spark.read.format(FORM).options(**{"hosts": broker.addresses[0], "root": root, **options}).load()


def seen(client: Any, path: str) -> dict[str, tuple[bytes, int]]:
    """Data and version of every node from `path` down, by kazoo; a level's requests are on the way at the same time."""
    found, level = {}, [path]
    while level:
        answers = {one: client.get_async(one) for one in level}
        level = []
        for one, answer in answers.items():
            data, stat = answer.get(timeout=LONG)
            found[one] = (data, stat.version)
            if stat.numChildren:
                level += [f"{one}/{name}" for name in client.get_children(one)]
    return found


def grow(client: Any, root: str, wide: int, deep: int) -> None:
    client.ensure_path(root)
    for n in range(wide):
        client.create(f"{root}/n{n}", b"%d" % n)
        for m in range(deep):
            client.create(f"{root}/n{n}/m{m}", b"%d.%d" % (n, m))


def test_a_row_per_node_however_the_tree_is_split(spark: SparkSession, broker: ZooKeeper, theirs: Any, root: str) -> None:
    grow(theirs, root, 12, 5)
    theirs.set(f"{root}/n3", b"again")
    wanted = {path: data for path, (data, _) in seen(theirs, root).items()}
    for tasks in (1, 4, 40):
        table = frame(spark, broker, root, minPartitions=tasks)
        rows = table.collect()
        assert {row.path: bytes(row.data) for row in rows} == wanted
        assert len(rows) == len(wanted)
        assert table.rdd.getNumPartitions() in range(tasks, tasks + 3)
        for row in rows:
            stat = theirs.exists(row.path)
            assert (row.czxid, row.mzxid, row.pzxid, row.version) == (stat.czxid, stat.mzxid, stat.pzxid, stat.version)
            assert row.mtime.timestamp() == pytest.approx(stat.mtime / 1000)
            assert row.readZxid >= max(row.mzxid, row.pzxid)
    assert {row.path.count("/") for row in frame(spark, broker, root, maxDepth=1).collect()} == {1, 2}
    assert "data" not in frame(spark, broker, root, includeData="false").columns


def test_a_change_during_the_read_fails_it_where_that_is_asked(spark: SparkSession, broker: ZooKeeper, theirs: Any, root: str) -> None:
    from wireproto.spark.zookeeper import Subtree, ZooKeeperWire

    grow(theirs, root, 6, 2)
    source = ZooKeeperWire({"hosts": broker.addresses[0], "root": root, "failOnConcurrentChange": "true", "minPartitions": "2"})
    from pyspark.sql.types import _parse_datatype_string

    reader = source.reader(_parse_datatype_string("path string, mzxid bigint"))
    parts = reader.partitions()
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 19
    for change in (
        lambda: theirs.set(f"{root}/n1/m0", b"new"),
        lambda: theirs.create(f"{root}/n2/m9", b"new"),
        lambda: theirs.delete(f"{root}/n2/m9"),
    ):
        parts = reader.partitions()
        assert all(isinstance(part, Subtree) for part in parts)
        change()
        with pytest.raises(Exception, match=r"after the read began.*failOnConcurrentChange"):
            [batch for part in parts for batch in reader.read(part)]
    assert frame(spark, broker, root, failOnConcurrentChange="true").count() == 19


@pytest.mark.parametrize("tasks", ["1", "8"])
def test_nodes_that_may_not_be_read_fail_the_read_or_are_left_out_and_counted(tasks: str, caplog: pytest.LogCaptureFixture) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    from wireproto.spark.zookeeper import ZooKeeperWire

    with DevBroker(["zookeeper"]) as dev, wireproto.connect(dev.url("zookeeper"), user="ann", password="secret") as client:
        tree = client.tree()
        for path in ("/r/a/x", "/r/closed/x", "/r/b", "/r/b/closed"):
            tree.create(path, parents=True)
        for path in ("/r/closed", "/r/b/closed"):
            tree.set_acl(path, CREATOR_ALL)

        def rows(**more: str) -> list[str]:
            options = {"hosts": dev.address("zookeeper"), "root": "/r", "minPartitions": tasks, **more}
            reader = ZooKeeperWire(options).reader(StructType([StructField("path", StringType())]))
            return sorted(path for part in reader.partitions() for batch in reader.read(part) for path in batch.column("path").to_pylist())

        for more in ({}, {"failOnNoAuth": "true"}):
            with pytest.raises(NoAuth):
                rows(**more)
        assert rows(failOnNoAuth="false") == ["/r", "/r/a", "/r/a/x", "/r/b"]
        assert "may not be read and are left out" in caplog.text


def test_nodes_are_created_and_set(spark: SparkSession, broker: ZooKeeper, theirs: Any, root: str) -> None:
    theirs.ensure_path(root)

    def write(operation: str, count: int, word: str) -> None:
        table = spark.range(0, count, 1, 2).selectExpr(f"concat('{root}/', id) as path", f"concat('{word}', id) as data")
        options = {"hosts": broker.addresses[0], "operation": operation, "markerRoot": f"{root}-markers"}
        table.write.format(FORM).options(**options).mode("append").save()

    def there() -> dict[str, tuple[bytes, int]]:
        return {path: found for path, found in seen(theirs, root).items() if path != root}

    write("create", 1200, "a")
    assert there() == {f"{root}/{n}": (b"a%d" % n, 0) for n in range(1200)}
    write("set", 10, "b")
    write("upsert", 1205, "c")
    assert there() == {f"{root}/{n}": (b"c%d" % n, 2 if n < 10 else 1 if n < 1200 else 0) for n in range(1205)}
    with pytest.raises(Exception, match="exists already: use operation set or upsert"):
        write("create", 3, "d")
    with pytest.raises(Exception, match="use operation upsert"):
        write("set", 1300, "d")
    write("set", 0, "e")
    assert theirs.get_children(f"{root}-markers") == []


def test_a_task_that_outlives_its_write_changes_nothing(spark: SparkSession, broker: ZooKeeper, theirs: Any, root: str) -> None:
    """Its driver has given up and cleared away; the task is run here as a worker runs it."""
    import pyarrow as pa
    from pyspark.sql.types import StringType, StructField, StructType

    from wireproto.spark.write import Task, checked
    from wireproto.spark.zookeeper import ZooKeeperWire

    theirs.ensure_path(root)
    columns = StructType([StructField(name, StringType()) for name in ("path", "data")])
    sink = ZooKeeperWire({"hosts": broker.addresses[0], "markerRoot": f"{root}-markers"}).sink(columns)
    checked(sink, stream=False)
    with sink.open() as client:
        session = sink.begin(client, Task(0, 0))
        assert session is not None
        session.send(pa.RecordBatch.from_pylist([{"path": f"{root}/{n}", "data": "x"} for n in range(600)]))  # one transaction is in
        sink.abort([None], None)
        with pytest.raises(Exception, match="by Spark, which abandoned this write"):
            session.finish()
    assert len(theirs.get_children(root)) == 500
    assert theirs.get_children(f"{root}-markers") == []


def test_a_marker_of_other_rows_does_not_stand_for_these(
    spark: SparkSession, broker: ZooKeeper, theirs: Any, root: str, tmp_path: Path
) -> None:
    """A micro-batch fails at its second transaction; what it reads is mended, in the first one's rows, too, before it runs again."""
    theirs.ensure_path(root)
    folder = tmp_path / "in"
    folder.mkdir()

    def go(word: str, bad: str) -> None:
        paths = [f"{root}/{bad if n == 600 else ''}{n}" for n in range(700)]
        (folder / "one.csv").write_text("\n".join(f"{path},{word}" for path in paths))
        table = spark.readStream.schema("path string, data string").csv(str(folder))
        run(table, tmp_path, FORM, hosts=broker.addresses[0], markerRoot=f"{root}-markers")

    with pytest.raises(Exception, match="set createParents to true"):
        go("old", "nowhere/")
    assert {data for path, (data, _) in seen(theirs, root).items() if path != root} == {b"old"}
    go("new", "")
    found = seen(theirs, root)
    assert {path: data for path, (data, _) in found.items() if path != root} == {f"{root}/{n}": b"new" for n in range(700)}
    forget_last(tmp_path)
    go("new", "")
    assert seen(theirs, root) == found


def test_a_micro_batch_run_again_changes_nothing(spark: SparkSession, broker: ZooKeeper, theirs: Any, root: str, tmp_path: Path) -> None:
    theirs.ensure_path(root)
    folder = tmp_path / "in"
    folder.mkdir()
    options = {"hosts": broker.addresses[0], "markerRoot": f"{root}-markers"}

    def go(name: str, first: int) -> None:
        (folder / name).write_text("\n".join(f"{root}/{n},{name}" for n in range(first, first + 700)))
        again()

    def again() -> None:
        table = spark.readStream.schema("path string, data string").csv(str(folder))
        run(table, tmp_path, FORM, **options)

    go("one.csv", 0)
    first = seen(theirs, root)
    assert len(first) == 701
    forget_last(tmp_path)
    again()
    assert seen(theirs, root) == first
    go("two.csv", 350)
    second = seen(theirs, root)
    assert {version for path, (_, version) in second.items() if path != root} == {0, 1}
    forget_last(tmp_path)
    again()
    assert seen(theirs, root) == second
    (query,) = theirs.get_children(f"{root}-markers")
    assert {name.partition("-")[0] for name in theirs.get_children(f"{root}-markers/{query}")} == {"1"}


def test_a_transaction_over_another_marker_whose_answer_is_lost_is_not_done_again(fresh_dev_broker: DevBroker) -> None:
    """The marker was there, of other rows: writing it must tell one's own attempt from theirs."""
    from wireproto.spark.zookeeper_sink import TreeWriteSettings, transact

    url = fresh_dev_broker.url("zookeeper")
    settings = TreeWriteSettings(url, {}, "create", False, "/markers", 30.0)
    with wireproto.connect(url) as client:
        tree = client.tree()
        tree.create("/markers/query/0-0-0", b"of other rows", parents=True)
        fresh_dev_broker.faults("zookeeper").lose_reply("multi")
        transact(tree, settings, "/markers/query/0-0-0", [("/one", b"1")])
        assert tree.get("/one")[0] == b"1"
        transact(tree, settings, "/markers/query/0-0-0", [("/one", b"1")])
        assert tree.get("/one")[1].version == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rot": "/"}, "did you mean root"),
        ({"root": "/nowhere/at/all"}, "no node '/nowhere/at/all'.*option root"),
        ({"hosts": ""}, "hosts"),
        ({"maxDepth": "deep"}, "maxDepth"),
        ({"includeData": "some"}, "includeData"),
    ],
)
def test_a_mistake_is_named_on_the_driver(spark: SparkSession, broker: ZooKeeper, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=f"(?s){said}"):
        frame(spark, broker, **{"root": "/", **options}).count()


def test_a_stream_is_refused(spark: SparkSession, broker: ZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"cannot be read as a stream.*batch"):
        run(spark.readStream.format(FORM).option("hosts", broker.addresses[0]).load(), tmp_path)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["path"], {}, "'data' not found"),
        (["1 as path", "data"], {}, "path is int"),
        (["path", "data", "1 as more"], {}, "column 'more'"),
        (["path", "data", "'v' as data"], {}, "data more than once.*rename"),
        (["'a' as path", "data"], {}, "begins with /"),
        (["'/no/such/parent' as path", "data"], {}, "createParents"),
        (["path", "data"], {"operation": "replace"}, "create, set, upsert"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    spark: SparkSession, broker: ZooKeeper, root: str, columns: list[str], options: dict[str, str], said: str
) -> None:
    table = spark.range(1).selectExpr(f"'{root}' as path", "'v' as data").selectExpr(*columns)
    with pytest.raises(Exception, match=f"(?s){said}"):
        table.write.format(FORM).options(**{"hosts": broker.addresses[0], **options}).mode("append").save()
