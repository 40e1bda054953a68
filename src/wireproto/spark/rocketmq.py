"""The format ``rocketmq-wire``: queue offsets as Kafka's offsets; keys, value and user properties as the common record has them.

What it is: RocketMQ's `Log` and its source; both lines of brokers. A partition is a queue, numbered over the brokers in the order of the
topic's route; offsets JSON and checkpoints are ``{"topic": {"0": 23}}``. The writer is in `rocketmq_sink.py`.

    nameServer    host:port, separated by commas, or rocketmq://…      topic   names, separated by commas
    rocketmq.*    options of the client and its roles                  commitOffsetsToGroup   a group to commit to, for lag tools
    the rest: see `options.py`
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..errors import OptionError
from ..position import EARLIEST, LATEST, TopicPartition
from ..rocketmq.client import RocketClient
from ..rocketmq.cluster import RocketCluster
from ..rocketmq.codes import PullOffsetMoved, SubscriptionGroupNotExist, TopicNotExist
from ..rocketmq.groups import GroupOffsets
from ..rocketmq.messages import UpdateAndCreateSubscriptionGroupRequest
from .columns import COMMON, NOTHING, LogFormat, plain
from .log import Log, Positions, Span, number
from .options import Options, ReadSettings, address, read_settings
from .source import LogSource, client_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..records import Batch
    from ..roles import Client
    from .write import Sink

FORM = LogFormat(
    columns={**COMMON, "offset": ("bigint", plain("offset"))},
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    sources=NOTHING,
)
GATHERED = {"min_bytes": 1 << 20, "batch_bytes": 2 << 20, "pull_ahead": 16}
"""Reading towards an end that is there: a reply has 32 messages at most, and each batch its price in Arrow. What the user chose counts."""


class RocketMQLog(Log):
    """RocketMQ's topics; positions are queue offsets."""

    protocol = "rocketmq"
    form = FORM
    gone = (TopicNotExist,)

    def partitions(self, client: Client) -> list[TopicPartition]:
        try:
            return super().partitions(client)
        except TopicNotExist as why:
            why.text = f"there is no topic {why.topic!r}: create it, or correct the option {self.subject}"
            raise

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        return super().cut(client, self.still_there(client, spans))

    def still_there(self, client: Client, spans: list[Span]) -> list[Span]:
        """The spans, those whose beginning was aged out from what is left of them on."""
        keys = [span.key for span in spans]
        first, last = self.ends(client, keys, EARLIEST), self.ends(client, keys, LATEST)
        found: list[Span] = []
        for span in spans:
            low, high = number(first[span.key]), number(last[span.key])
            if number(span.start) < low or number(span.stop) > high:
                self.lost(f"{span.topic}-{span.partition} was to be read in [{span.start}, {span.stop}) and now holds [{low}, {high})")
            start = max((span.start, first[span.key]), key=number)
            stop = min((span.stop, last[span.key]), key=number)
            if number(start) < number(stop):
                found.append(Span(*span.key, start, stop))
        return found

    def commit(self, client: Client, ends: Positions) -> None:
        """Store the ends for the group of commitOffsetsToGroup; it must have no members of its own. Brokers of 5.x want it made before."""
        group = self.settings.group
        if group:
            found = cast(RocketClient, client).cluster
            try:
                self._store(found, group, ends)
            except SubscriptionGroupNotExist:
                body = json.dumps({"groupName": group}).encode()  # the brokers' defaults for the rest
                deadline = found.deadline()
                for address in found.masters(deadline):
                    found.invoke(address, UpdateAndCreateSubscriptionGroupRequest(), body, deadline=deadline)
                self._store(found, group, ends)

    def _store(self, cluster: RocketCluster, group: str, ends: Positions) -> None:
        deadline = cluster.deadline()
        offsets = GroupOffsets(cluster, group)
        for topic in sorted({topic for topic, _ in ends}):
            for queue in cluster.route(topic, deadline).readable():
                if (topic, queue.partition) in ends:
                    offsets.commit(topic, queue, number(ends[topic, queue.partition]), deadline)

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        found = cast(RocketClient, client).cluster
        if span.partition >= len(found.route(span.topic, found.deadline()).queues):
            found.route(span.topic, found.deadline(), fresh=True)  # this worker's route is older than the queue
        moved = "error" if self.settings.fail_on_data_loss else "earliest"
        gathered = {name: value for name, value in GATHERED.items() if name not in self.settings.client}
        try:
            yield from self.drained(client, span, columns=self.form.core(columns), on_moved=moved, **gathered)
        except PullOffsetMoved as why:
            self.lost(f"{span.topic}-{span.partition} lost records while it was read up to {span.stop}: {why.text}")
            raise


class RocketMQWire(LogSource):
    """Reads RocketMQ topics as Arrow, one task per queue or a part of one, and writes them."""

    log = RocketMQLog

    def read_settings(self, options: Options) -> ReadSettings:
        url = address(options, "nameServer", "rocketmq")
        topics = options.names("topic")
        if not topics:
            raise OptionError("option topic is missing: the topics to read, separated by commas")
        client = client_options(options, "rocketmq.")
        more = {"poll_timeout": options.seconds("pollTimeout", 120.0), "group": options.text("commitOffsetsToGroup") or None}
        return read_settings(options, url=url, client=client, topics=topics, **more)

    def sink(self, options: Options, schema: StructType) -> Sink:
        from .rocketmq_sink import RocketMQSink, write_options

        return RocketMQSink(write_options(options), schema)
