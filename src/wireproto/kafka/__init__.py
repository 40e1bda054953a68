"""Speaks Kafka: producers, readers, groups and administration over the wire protocol of Kafka 0.10 to 4.x.

``connect`` opens a client; messages are in ``wireproto.kafka.messages``, error codes in ``wireproto.kafka.codes``. Importing this package
loads neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from ..url import Url
    from .client import KafkaClient
    from .option_types import ClientOptions

__all__ = ["connect"]


def connect(url: str, **options: Unpack[ClientOptions]) -> KafkaClient:
    """Make a client of a Kafka cluster; as `wireproto.connect`, with the types of Kafka's own client and options.

    Args:
        url: ``kafka://host[:port][,host…][/topic][?option=value]``; ``kafka+tls://`` for TLS; userinfo means SASL PLAIN unless `sasl` says
            otherwise.
        options: those of Kafka's client and its roles by name, docs/kafka.md; they win over the URL's.

    Connections are made at first use.

    Raises:
        OptionError: the URL is not Kafka's, an unknown option, a value that does not fit its option, or options that contradict each other.
    """
    from ..net.patched_threads import refuse_patched_threads
    from ..url import parse_for

    refuse_patched_threads()
    return open_client(parse_for("kafka", url), {**options})


def open_client(url: Url, options: dict[str, Any]) -> KafkaClient:
    """Make the client of a parsed URL, for `wireproto.connect`.

    Args:
        url: see `connect`.
        options: as in ``wireproto.kafka.options.KafkaOptions``; they win over the URL's.

    Raises:
        OptionError: see `connect`.
    """
    from .client import KafkaClient
    from .options import KafkaOptions

    client = KafkaClient(KafkaOptions.from_url(url, **options), url.addresses)
    client.topic = url.path
    return client
