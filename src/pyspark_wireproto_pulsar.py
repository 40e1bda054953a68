"""The format ``pulsar-wire``, as Spark finds it: it imports every module named pyspark_… and takes its DefaultSource."""

from contextlib import suppress

with suppress(ImportError):  # without pyarrow there is no source; an error here would end every other one too
    from wireproto.spark.pulsar import PulsarWire as DefaultSource

    __all__ = ["DefaultSource"]
