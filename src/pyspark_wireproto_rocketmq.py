"""The format ``rocketmq-wire``, as Spark finds it: it imports every module named pyspark_… and takes its DefaultSource."""

from contextlib import suppress

with suppress(ImportError):  # without PySpark's sources there is none; an error here would end every other one too
    from wireproto.spark.found import Found

    class DefaultSource(Found):
        """Stands for `wireproto.spark.RocketMQWire` until it is used."""

        format = "rocketmq-wire"
        source = "RocketMQWire"

    __all__ = ["DefaultSource"]
