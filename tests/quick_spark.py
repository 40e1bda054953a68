"""What Spark's processes do at each start, done once: byte code for those of Python, an archive of classes for its JVM.

    python tests/quick_spark.py    by the Makefile, behind the installation: the byte code
    flags()                        by the first of Spark's tests that starts a JVM: the archive, once for all clones of a user

Spark's Python processes import PySpark from zip files without byte code, and compile it anew each time: a second of the processor for each
of them, and each has ten seconds of the clock to call back (tests/spark/late.py). The JVM of a driver parses and verifies some 15,000
classes until its first micro-batch is through; an archive (class data sharing, as in tests/brokers/maven.py) saves it five seconds of that.
The JVM checks the archive against its own build and against the jars, and goes on without one that does not fit. May assume: PySpark is
installed for this interpreter. Must not: change what is imported, leave half a file, or fail where there is no Java.
"""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

END = 120
"""Seconds in which the JVM writes its archive, which takes it five."""
QUIET = "-Xlog:cds*=off"
"""The JVM says nothing of an archive that does not fit."""
PLACES = ("bin", "jars", "python/lib")
"""What Spark's programs start from, within an installation."""
UNUSED = 30
"""Days until a Spark that nobody starts is forgotten."""


def compiled(path: Path) -> None:
    """Put byte code beside the sources of this file, where there is none; another interpreter passes it by."""
    with zipfile.ZipFile(path) as found, tempfile.TemporaryDirectory(dir=path.parent) as folder:
        if any(name.endswith(".pyc") for name in found.namelist()):
            return
        root = Path(folder, "files")
        found.extractall(root)
        never = py_compile.PycInvalidationMode.UNCHECKED_HASH  # times within a zip are local ones
        compileall.compile_dir(root, quiet=2, legacy=True, stripdir=str(root), prependdir=str(path), invalidation_mode=never)
        fresh = Path(folder, path.name)
        with zipfile.ZipFile(fresh, "w") as made:
            for file in sorted(root.rglob("*")):
                made.write(file, file.relative_to(root))
        fresh.replace(path)


def home() -> Path | None:
    """Where PySpark is installed."""
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def spark_home() -> Path | None:
    """Where all clones of this user with the same Spark, Python and JDK keep it for its JVMs; None without PySpark or Java.

    The JVM takes an archive for jars of the very paths and times that it was made from, which those of an installation of each clone's own
    are not. It need not exist.
    """
    java = shutil.which("java", path=str(Path(os.environ["JAVA_HOME"], "bin")) if os.environ.get("JAVA_HOME") else None)
    spark = home()
    if java is None or spark is None:
        return None
    digest = hashlib.sha256(f"{sys.implementation.cache_tag}\n".encode())
    modules = Path(java).resolve().parents[1] / "lib" / "modules"
    with suppress(OSError):
        facts = modules.stat()
        digest.update(f"{modules} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    digest.update(contents(spark))
    from brokers import maven  # here: the installation does without

    return maven.user_folder("pyspark") / digest.hexdigest()[:16]


def contents(spark: Path) -> bytes:
    """Which jars and programs these are: their hashes, as the installation noted them; without such a note their places and times."""
    notes = sorted(spark.parent.glob("pyspark-*.dist-info/RECORD"))
    if len(notes) == 1:
        places = tuple(f"pyspark/{place}/".encode() for place in PLACES)
        lines = (line for line in notes[0].read_bytes().splitlines() if line.startswith(places))
        return b"\n".join(sorted(lines))
    facts = ((path, path.stat()) for path in parts(spark))
    return "\n".join(f"{path} {fact.st_size} {fact.st_mtime_ns}" for path, fact in facts).encode()


def parts(spark: Path) -> list[Path]:
    """The files of an installation that Spark's programs start from."""
    return sorted(path for place in PLACES for path in (spark / place).rglob("*") if path.is_file())


def archive() -> Path | None:
    """Where the classes of Spark's JVM are kept, within `spark_home`."""
    kept = spark_home()
    return None if kept is None else kept / "classes.jsa"


def flags() -> str:
    """Return the flags with which a JVM of Spark starts from the archive, which is made if need be; none where that is not possible.

    The environment has that Spark as its SPARK_HOME then.
    """
    kept, spark = spark_home(), home()
    if kept is None or spark is None or os.environ.get("SPARK_HOME", str(kept)) != str(kept):
        return ""
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # sessions beside each other make one
        forget(kept.parent)
        try:
            keep_programs(spark, kept)
        except OSError as why:
            print(f"quick_spark: no archive of Spark's classes: {why}", file=sys.stderr)
            return ""
        keep_classes(kept)
        os.utime(kept)  # it is used
    if not (kept / "classes.jsa").exists():
        return ""
    os.environ["SPARK_HOME"] = str(kept)
    return f"-XX:SharedArchiveFile={kept}/classes.jsa {QUIET}"


def forget(folder: Path) -> None:
    """Remove what nobody has used for UNUSED days: a Spark, Python or JDK of earlier."""
    for old in folder.iterdir():
        with suppress(OSError):
            if old.is_dir() and time.time() - old.stat().st_mtime > UNUSED * 86_400:
                shutil.rmtree(old, ignore_errors=True)


def keep_programs(spark: Path, kept: Path) -> None:
    """Have Spark's jars and programs in `kept`, all of them or no folder: the same files where the file system can, else copies."""
    if {path.relative_to(spark): path.stat().st_size for path in parts(spark) if path.suffix == ".jar"} == {
        path.relative_to(kept): path.stat().st_size for path in parts(kept) if path.suffix == ".jar"
    }:
        return
    shutil.rmtree(kept, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="new-") as name:
        fresh = Path(name, "home")
        for path in parts(spark):
            target = fresh / path.relative_to(spark)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(path)
            except OSError:
                shutil.copy2(path, target)
        fresh.rename(kept)


def keep_classes(kept: Path) -> None:
    """Make the archive, unless there is one: by a program of its own, whose JVM writes it when it ends."""
    if (kept / "classes.jsa").exists():
        return
    fresh = kept / "classes.new"
    fresh.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(kept)}
    with suppress(subprocess.SubprocessError):
        subprocess.run([sys.executable, __file__, str(fresh)], env=environment, capture_output=True, timeout=3 * END, check=True)
        fresh.replace(kept / "classes.jsa")
    if not (kept / "classes.jsa").exists():
        print("quick_spark: no archive of Spark's classes; its JVMs start as ever", file=sys.stderr)


def use(fresh: Path) -> None:
    """Do a little of what drivers of the tests do, in a JVM that writes an archive of its classes when it ends."""
    warnings.simplefilter("ignore")  # PySpark's own imports warn on new library versions
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={fresh} {QUIET}",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(numbers())
    with tempfile.TemporaryDirectory() as name:
        table = spark.read.format("numbers").load()
        assert table.where("id > 0 and value is not null").count() == 9
        assert len(table.mapInArrow(lambda batches: batches, table.schema).orderBy("id").collect()) == 10
        table.write.format("numbers").mode("append").save()
        for number, form in enumerate(("parquet", "numbers")):
            folder = Path(name, str(number))
            writer = spark.readStream.format("numbers").load().writeStream.format(form).queryName(f"q{number}")
            query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(f"{folder}/rows")
            query.awaitTermination(END)
            query.stop()
        assert spark.read.parquet(f"{name}/0/rows").count() == 10
    spark.stop()
    virtual = SparkContext._gateway.proc  # type: ignore[union-attr]
    virtual.stdin.close()  # it ends
    virtual.wait(END)


def numbers() -> type[DataSource]:
    """A format of ten numbers; its classes are made here, so that they travel to Spark's processes by their code."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
        WriterCommitMessage,
    )

    class Rows(DataSourceReader):
        def read(self, partition: Any) -> Iterator[tuple[int, bytes]]:
            return ((number, b"value") for number in range(10))

    class Stream(DataSourceStreamReader):
        """One micro-batch."""

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
            return {"at": 10}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: Any) -> Iterator[tuple[int, bytes]]:
            return ((number, b"value") for number in range(10))

    class Away(DataSourceWriter, DataSourceStreamWriter):
        """Takes rows, and keeps none."""

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            assert list(iterator) is not None
            return WriterCommitMessage()

        def commit(self, messages: Any, batch: int = 0) -> None: ...

        def abort(self, messages: Any, batch: int = 0) -> None: ...

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "id long, value binary"

        def reader(self, schema: Any) -> DataSourceReader:
            return Rows()

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Stream()

        def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
            return Away()

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return Away()

    return Numbers


def main() -> int:
    spark = home()
    if spark is None:
        print("quick_spark: PySpark is not installed here", file=sys.stderr)
        return 1
    for path in sorted((spark / "python" / "lib").glob("*.zip")):
        compiled(path)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        use(Path(sys.argv[1]))
    else:
        sys.exit(main())
