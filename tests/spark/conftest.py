"""One Spark session for the whole folder, with the JVM's Kafka connector beside ours: starting it and its first read cost some 20 s."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quick_spark
from brokers import Kafka, maven, plugin, ports
from brokers.errors import Unavailable
from spark.late import pytest_runtest_protocol  # noqa: F401  (a hook)
from spark.streams import make, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
WARM = Path(__file__).with_name("warm")
FEWER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Keeps checkpoints with a third of the programs that the default starts, a `readlink` for each look at a file."""
PLAIN = "org.apache.hadoop.fs.RawLocalFileSystem"
"""Keeps no sum beside each file: that is another file, and a `chmod` more."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Flags of a JVM that ends before its second compiler and threads for its collector pay."""
END = 60
"""Seconds in which a JVM of Spark ends, and what belongs to it."""
_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def quick_drivers() -> None:
    """Have Spark's processes that are started here, the session's and those of programs, take less of the processor.

    Each JVM begins with the archive of classes and compiles as one that lives for seconds should. Python's processes keep byte code of this
    package's modules, as after an installation, also where the environment forbids it: else each of them compiles them anew.
    """
    for name, more in (("SPARK_SUBMIT_OPTS", f"{SHORT_LIVED} {quick_spark.flags()}"), ("SPARK_LAUNCHER_OPTS", SHORT_LIVED)):
        os.environ[name] = " ".join(filter(None, [os.environ.get(name), more]))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session")
def connector() -> str | None:
    """Class path of the JVM's connector, None where Maven cannot have it."""
    try:
        return maven.classpath("spark-kafka-4.2.0")
    except Unavailable:
        return None


@pytest.fixture(scope="session")
def standard_error(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the standard error of the session's JVM goes, and with it that of all its Python processes."""
    return tmp_path_factory.mktemp("spark") / "standard-error"


@pytest.fixture(autouse=True)
def standard_error_of_the_test(standard_error: Path) -> Iterator[None]:
    """Show what Spark's processes said during a test beside the test's own standard error, as if it had not gone elsewhere."""
    before = standard_error.stat().st_size if standard_error.exists() else 0
    yield
    if standard_error.exists():
        sys.stderr.write(standard_error.read_bytes()[before:].decode(errors="replace"))


@pytest.fixture(scope="session")
def planners() -> Iterator[str]:
    """The socket of a process that forks the planners of streams (`warm/forks.py`), where there is one soon."""
    with tempfile.TemporaryDirectory(prefix="wireproto-") as folder:
        place = f"{folder}/forks"
        with subprocess.Popen([sys.executable, str(WARM / "forks.py"), place], stdin=subprocess.PIPE) as process:
            yield place
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="session")
def spark(connector: str | None, quick_drivers: None, standard_error: Path, planners: str) -> Iterator[SparkSession]:
    """A lean local session; its processes find our formats by themselves."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(WARM), *filter(None, [os.environ.get("PYTHONPATH")])])
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        patched.setenv("WIREPROTO_SPARK_FORKS", planners)
        warnings.simplefilter("ignore")  # PySpark's own imports warn on new library versions
        from pyspark.sql import SparkSession

        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "700m")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.default.parallelism", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.streaming.numRecentProgressUpdates", "50")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.streaming.checkpointFileManagerClass", FEWER)
            .config("spark.hadoop.fs.file.impl", PLAIN)
            .config("spark.sql.python.filterPushdown.enabled", "true")
            .config("spark.sql.codegen.wholeStage", "false")  # programs for a hundred rows, each of them compiled
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.cleaner.referenceTracking", "false")
            .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
            .config("spark.connect.grpc.binding.address", "127.0.0.1")
            .config("spark.connect.grpc.binding.port", str(ports.take()))
        )
        if connector:
            builder = builder.config("spark.jars", connector.replace(os.pathsep, ","))
            patched.setenv("SPARK_DIST_CLASSPATH", connector)  # behind Spark's own jars, which the archive of classes asks for
        with redirected(standard_error):
            session = builder.getOrCreate()
    yield session
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()  # what Python collects from now on is no matter of the JVM's any more
    gateway.proc.stdin.close()  # it ends, and is waited for: so the processor time of Spark is that of this session
    gateway.proc.wait(END)


@contextmanager
def redirected(path: Path) -> Iterator[None]:
    """Have programs that are started here write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.fixture(scope="session")
def jvm(spark: SparkSession, connector: str | None) -> SparkSession:
    """The session, where it has the JVM's connector too."""
    if connector is None:
        plugin.missing("spark-kafka-4.2.0", "Maven could not resolve the JVM's connector")
    return spark


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """The real broker of the folder's tests: the one that its tests of transactions need."""
    found = plugin.start(request.config, "kafka-4.3.1-transactions")
    assert isinstance(found, Kafka)
    return found


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names of topics that no other test has."""
    return lambda stem: f"{stem}-{next(_numbers)}"


@pytest.fixture
def filled(kafka: Kafka, fresh: Callable[[str], str]) -> Callable[..., str]:
    """Makes a Kafka topic of its own name, with these rows (see `streams.put`) in it; further settings as `streams.make` has them."""

    def made(stem: str, rows: Sequence[Any] = (), *, partitions: int = 1, **config: str) -> str:
        topic = fresh(stem)
        make(kafka, topic, partitions, **config)
        put(kafka, topic, list(rows))
        return topic

    return made
