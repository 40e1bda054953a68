"""Speaks Kafka: producers, readers, groups and administration over the wire protocol of Kafka 0.10 to 4.x.

``connect`` is the adapter's entry point; messages are in ``wireproto.kafka.messages``, error codes in ``wireproto.kafka.codes``. Importing
this package loads neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..url import Url
    from .client import KafkaClient

__all__ = ["connect"]


def connect(url: Url, options: dict[str, Any]) -> KafkaClient:
    """Make a client for the cluster behind a URL. Connections are made at first use.

    Args:
        url: ``kafka://host[:port][,host…][/topic][?option=value]``; ``kafka+tls://`` for TLS; userinfo means SASL PLAIN unless `sasl` says
            else.
        options: as in ``wireproto.kafka.options.KafkaOptions``; they win over the URL's.

    Raises:
        OptionError: an unknown option, a value that does not fit its option, or options that contradict each other.
    """
    from .client import KafkaClient
    from .options import KafkaOptions

    client = KafkaClient(KafkaOptions.from_url(url, **options), url.addresses)
    client.topic = url.path
    return client
