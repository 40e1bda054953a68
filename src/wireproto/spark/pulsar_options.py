"""Reads the options of ``pulsar-wire``.

    service.url    host:port or pulsar://host:port          admin.url   of the admin HTTP interface, for splits and de-duplication
    topic          names, separated by commas               subscription   a durable one that keeps what the query has not read
    pulsar.*       options of the client and its roles      the rest: see `options.py`

maxRecordsPerPartition is refused: ids do not tell how many records lie between them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import OptionError
from .options import Options, ReadSettings, address, read_settings
from .pulsar_ids import normal_bound
from .source import client_options

READERS = ("subscription", "startingOffsets", "failOnDataLoss")


def service(options: Options) -> tuple[str, dict[str, Any]]:
    """Take the URL and the options of the client."""
    url = address(options, "service.url", "pulsar")
    client = client_options(options, "pulsar.")
    admin = options.text("admin.url")
    return url, {**client, "admin": admin} if admin else client


def read_options(options: Options) -> ReadSettings:
    """Take the reader's options.

    Raises:
        OptionError: an option is missing, not offered for Pulsar, or has a value that it cannot have.
    """
    url, client = service(options)
    topics = options.names("topic")
    if not topics:
        raise OptionError("option topic is missing: the topics to read, separated by commas")
    poll = options.seconds("pollTimeout", 120.0)
    group = options.text("subscription")
    if options.text("commitOffsetsToGroup") is not None:
        raise OptionError("option commitOffsetsToGroup is Kafka's and RocketMQ's: Pulsar's lag tools see the option subscription")
    found = read_settings(options, url=url, client=client, topics=topics, poll_timeout=poll, group=group or None)
    if found.max_records is not None:
        raise OptionError("maxRecordsPerPartition: Pulsar's message ids do not show how many records lie between them; use minPartitions")
    return replace(found, start=normal_bound(found.start, "startingOffsets"), stop=normal_bound(found.stop, "endingOffsets"))
