"""What Spark takes by itself: sources and a sink that do next to nothing, beside which the real ones are measured.

    floor-rows           the columns of a format, built once a worker and handed over again and again; batch and stream
    floor-drain          a sink that takes its Arrow batches and does nothing
    floor-pulsar         the broker's frames from a plain socket, counted and not looked into; pre-built columns of as many rows handed over
    floor-rocketmq       the same with pulls of 32 messages (the broker's limit), eight ahead, of which nothing but the next offset is read

Batches are of the size that the real sources give, workers as settled as theirs. Options: ``format`` (whose columns), ``rows`` (how many,
by partition, in JSON), ``size`` (of a value in bytes). Imported in Spark's workers. Must not: import a broker or a peer.
"""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import frames
from wireproto.spark import worker
from wireproto.spark.columns import BYTES, ROWS, LogFormat, arrow_schema

ROOM = 8 << 20
STEP, AHEAD = 32, 8


def forms() -> dict[str, LogFormat]:
    """The formats' columns."""
    from wireproto.spark import kafka_columns, pulsar, rocketmq

    return {"kafka": kafka_columns.FORM, "pulsar": pulsar.FORM, "rocketmq": rocketmq.FORM}


class Part(InputPartition):
    """One task."""

    def __init__(self, number: int, rows: int) -> None:
        super().__init__((number, rows))
        self.number, self.rows = number, rows


@functools.cache
def prebuilt(schema: pa.Schema, size: int) -> pa.RecordBatch:
    """One batch of the size that crosses to the JVM fastest; made once in a worker."""
    worker.settle()
    count = min(ROWS, BYTES // (size + 43) + 1)
    made: dict[str, list[Any]] = {
        "key": [b"key-%08d" % number for number in range(count)],
        "value": [bytes(size)] * count,
        "topic": ["four"] * count,
        "partition": [3] * count,
        "timestampType": [0] * count,
    }
    arrays = [pa.array(made.get(field.name, range(count)), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class RowsReader(DataSourceReader):
    """Nothing but the hand-over."""

    def __init__(self, options: Any, schema: Any) -> None:
        self.options, self.arrow = dict(options), arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        return [Part(int(number), rows) for number, rows in json.loads(self.options["rows"]).items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        batch, ready, given = prebuilt(self.arrow, int(self.options["size"])), 0, 0
        for rows in self.arrivals(partition):
            ready += rows
            while ready - given >= batch.num_rows:
                given += batch.num_rows
                yield batch
        if ready > given:
            yield batch.slice(0, ready - given)

    def arrivals(self, part: Part) -> Iterator[int]:
        """How many rows there are to hand over, bit by bit."""
        yield part.rows


class PulsarReader(RowsReader):
    """All entries of a partition, of as many messages each; ``entries`` tells how many, by partition."""

    def arrivals(self, part: Part) -> Iterator[int]:
        entries = json.loads(self.options["entries"])[str(part.number)]
        each, over = divmod(part.rows, entries)
        seen = 0
        with dialled(self.options) as conn:
            incoming = framed(conn)
            for command in (
                api.CommandConnect(client_version="floor", protocol_version=19),
                api.CommandSubscribe(
                    topic=f"persistent://public/default/{self.options['topic']}-partition-{part.number}",
                    subscription=f"floor-{part.number}",
                    subType=api.CommandSubscribe.Exclusive,
                    consumer_id=1,
                    request_id=1,
                    durable=False,
                    start_message_id=frames.message_id(-1, -1),
                ),
            ):
                whole = frames.encode(command)
                conn.sendall(len(whole).to_bytes(4, "big") + whole)
                next(incoming)
            whole = frames.encode(api.CommandFlow(consumer_id=1, messagePermits=1 << 28))
            conn.sendall(len(whole).to_bytes(4, "big") + whole)
            for frame in incoming:
                if frame[5] == api.BaseCommand.MESSAGE:
                    seen += 1
                    yield each + over if seen == entries else each
                    if seen == entries:
                        return


class RocketMQReader(RowsReader):
    """All messages of a queue."""

    HEADER = (
        '{"code":11,"language":"JAVA","version":435,"opaque":%d,"flag":0,"extFields":{"consumerGroup":"TOOLS_CONSUMER","topic":"%s",'
        '"queueId":"%d","queueOffset":"%d","maxMsgNums":"%d","sysFlag":"4","commitOffset":"0","suspendTimeoutMillis":"0",'
        '"subscription":"*","subVersion":"0","expressionType":"TAG"}}'
    )

    def arrivals(self, part: Part) -> Iterator[int]:
        with dialled(self.options) as conn:

            def pull(offset: int, count: int) -> None:
                head = (self.HEADER % (offset, self.options["topic"], part.number, offset, count)).encode()
                conn.sendall((len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head)

            sent = min(part.rows, STEP * AHEAD)
            for offset in range(0, sent, STEP):
                pull(offset, STEP)
            seen = 0
            for frame in framed(conn):
                head = json.loads(bytes(frame[4 : 4 + int.from_bytes(frame[1:4], "big")]))
                assert head["code"] == 0, head
                offset, after = head["opaque"], int(head["extFields"]["nextBeginOffset"])
                seen += after - offset
                yield after - offset
                if seen >= part.rows:
                    return
                if after % STEP and after < part.rows:
                    pull(after, STEP - after % STEP)  # the answer was cut short
                elif sent < part.rows:
                    pull(sent, STEP)
                    sent += STEP


def dialled(options: Any) -> socket.socket:
    """A connection to the broker."""
    conn = socket.create_connection((options["host"], int(options["port"])), 60.0)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return conn


def framed(conn: socket.socket) -> Iterator[memoryview]:
    """Frames behind a length of four bytes; each is good until the next one."""
    room = bytearray(ROOM)
    view, have = memoryview(room), 0
    while True:
        got = conn.recv_into(view[have:])
        if not got:
            raise EOFError("the broker closed the connection")
        have += got
        at = 0
        while have - at >= 4 and have - at >= (size := 4 + int.from_bytes(view[at : at + 4], "big")):
            yield view[at + 4 : at + size]
            at += size
        view[: have - at] = bytes(view[at:have])
        have -= at


class RowsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``batches`` micro-batches of all the rows."""

    def __init__(self, options: Any, schema: Any) -> None:
        self.reader, self.last = RowsReader(options, schema), int(options["batches"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadMaxRows

        return ReadMaxRows(1)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        return {"batch": min(start["batch"] + 1, self.last)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self.reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)


class Drain(DataSourceArrowWriter):
    """Takes the rows."""

    def __init__(self) -> None:
        pass

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        worker.settle()
        for _ in iterator:
            pass
        return WriterCommitMessage()


class RowsSource(DataSource):
    """floor-rows."""

    made: type[RowsReader] = RowsReader

    @classmethod
    def name(cls) -> str:
        return "floor-rows"

    def schema(self) -> str:
        return forms()[self.options["format"]].ddl()

    def reader(self, schema: Any) -> DataSourceReader:
        return self.made(self.options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return RowsStream(self.options, schema)


class PulsarSource(RowsSource):
    """floor-pulsar."""

    made = PulsarReader

    @classmethod
    def name(cls) -> str:
        return "floor-pulsar"


class RocketMQSource(RowsSource):
    """floor-rocketmq."""

    made = RocketMQReader

    @classmethod
    def name(cls) -> str:
        return "floor-rocketmq"


class DrainSource(DataSource):
    """floor-drain."""

    @classmethod
    def name(cls) -> str:
        return "floor-drain"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Drain()


SOURCES = (RowsSource, PulsarSource, RocketMQSource, DrainSource)
