"""Kafka's sink: the columns of `sink.py`, an idempotent producer with acks=all unless kafka.* says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BrokerError
from ..kafka.messages import InitProducerIdRequest, ProduceRequest
from .kafka_options import OWN, bootstrap, client_config
from .kafka_versions import Offered
from .sink import TopicSink, WriteSettings

if TYPE_CHECKING:
    from ..roles import Client
    from .options import Options

_UNKNOWN_TOPIC = 3


def write_options(options: Options) -> WriteSettings:
    """Take the writer's options."""
    url = bootstrap(options)
    client = client_config(options.prefixed(OWN))
    client.pop("isolation", None)
    topic = options.text("topic")
    patience = options.seconds("writeTimeout", float(client.get("delivery_timeout", 120.0)) + 30.0)
    return WriteSettings(url, client, topic, options.flag("includeTimestamp"), patience)


class KafkaSink(TopicSink):
    """Rows to Kafka."""

    def check(self, client: Client, *, stream: bool) -> None:
        """Whether brokers are new enough and the topic is there; topics of rows show in the tasks."""
        offered = Offered(client)
        if "headers" in self.columns:
            offered.need("the column headers", "0.11", "drop it", ProduceRequest, 3)
        if self.options.get("idempotence", True) not in (False, "false") and self.options.get("acks", "all") == "all":
            offered.need("an idempotent producer", "0.11", "set kafka.enable.idempotence=false", InitProducerIdRequest)
        if self.options.get("compression") == "zstd":
            offered.need("kafka.compression.type zstd", "2.1", "use lz4, snappy or gzip", ProduceRequest, 7)
        if self.settings.topic is not None and self.options.get("auto_create") not in (True, "true"):
            try:
                client.admin().describe_topic(self.settings.topic)
            except BrokerError as why:
                if why.code == _UNKNOWN_TOPIC:
                    remedy = "create it, correct the option topic, or set kafka.auto.create=true"
                    why.text = f"there is no topic {self.settings.topic!r}: {remedy}"
                raise
