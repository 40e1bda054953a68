"""The format ``zookeeper-wire``, as Spark finds it: it imports every module named pyspark_… and takes its DefaultSource."""

from contextlib import suppress

with suppress(ImportError):  # without PySpark's sources there is none; an error here would end every other one too
    from wireproto.spark.found import Found

    class DefaultSource(Found):
        """Stands for `wireproto.spark.ZooKeeperWire` until it is used."""

        format = "zookeeper-wire"
        source = "ZooKeeperWire"

    __all__ = ["DefaultSource"]
