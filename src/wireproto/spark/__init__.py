"""Provides Spark data sources for Kafka, Pulsar, RocketMQ and ZooKeeper, without a JAR.

The formats are ``kafka-wire``, ``pulsar-wire``, ``rocketmq-wire`` and ``zookeeper-wire``. Spark finds them by itself where this package is
installed (the modules ``pyspark_wireproto_*``); `register(spark)` makes them known where it can only be imported. The driver plans offsets,
workers read ranges of them, and no consumer group is used for reading. Data crosses between Spark and the package as Arrow batches.

PySpark 4 and pyarrow are needed (the extra ``wireproto[spark]``). No connection may be kept across a pickle or a fork.
"""

from __future__ import annotations

import logging
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .kafka import KafkaWire
    from .listener import watch
    from .pulsar import PulsarWire
    from .rocketmq import RocketMQWire
    from .zookeeper import ZooKeeperWire

__all__ = ["KafkaWire", "PulsarWire", "RocketMQWire", "ZooKeeperWire", "register", "watch"]

_SOURCES = {"KafkaWire": "kafka", "PulsarWire": "pulsar", "RocketMQWire": "rocketmq", "ZooKeeperWire": "zookeeper"}
_LAZY_NAMES = {**_SOURCES, "watch": "listener"}
_CONFS = {"spark.sql.python.filterPushdown.enabled": "true"}


def __getattr__(name: str) -> Any:
    if name in _LAZY_NAMES:
        try:
            return getattr(import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
        except ImportError as why:
            raise _lacking(why) from why
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lacking(why: ImportError) -> ImportError:
    """Build the error for a missing dependency, with the versions that are needed and the PySpark that is installed."""
    from importlib.metadata import PackageNotFoundError, version  # here, since it imports much, in each of Spark's processes

    try:
        here = f"PySpark {version('pyspark')}"
    except PackageNotFoundError:
        here = "no PySpark"
    return ImportError(f"wireproto.spark needs PySpark 4.0 or newer and pyarrow 18 or newer; here is {here} ({why})", name=why.name)


def register(spark: SparkSession) -> None:
    """Register the four formats with this session, and set the Spark options that they profit from.

    Sets ``spark.sql.python.filterPushdown.enabled`` to true, and logs a warning where tasks will run another Python than this program's.
    """
    for source in [__getattr__(name) for name in _SOURCES]:
        spark.dataSource.register(source)
    for name, value in _CONFS.items():
        spark.conf.set(name, value)
    _warn_of_other_python(spark)


def _warn_of_other_python(spark: SparkSession) -> None:
    """Warn where tasks will run another Python than this program's, which probably lacks this package.

    With Spark Connect nothing is checked: tasks run on its server.
    """
    try:
        theirs = spark.sparkContext.pythonExec
    except Exception:  # Spark Connect's error has a class that only its extra installs
        return
    found = shutil.which(theirs)
    if found is None or Path(found).parent != Path(sys.executable).parent:  # not resolved: an environment's Python is a link
        logging.getLogger("wireproto.spark").warning(
            "tasks will run %s, this program runs %s: set PYSPARK_PYTHON=%s before the session is made, unless both have wireproto",
            found or theirs,
            sys.executable,
            sys.executable,
        )
