"""Runs ``wireproto sinks drop URL PREFIX``: ends an exactly-once Spark sink whose query will not be started again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import wireproto
from wireproto.cli.where import server_of
from wireproto.errors import OptionError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from wireproto.spark.kafka_options import DECISIONS
    from wireproto.spark.pulsar_leading import DECISIONS as PULSARS

    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    drop = actions.add_parser("drop", help="commit what the query has decided, roll back what else it left open, and forget its decisions")
    drop.add_argument("url", help="kafka://host:port, or pulsar://host:port?admin=http://host:port")
    drop.add_argument(
        "prefix",
        help="the sink's transactionalIdPrefix; names of Kafka's transactions begin with it, up to the first slash, of Pulsar's topics end",
    )
    drop.add_argument("--topic", help=f"the sink's decisionTopic (default: {DECISIONS}; for Pulsar {PULSARS})")
    drop.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for the brokers (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """End the sink, and print what was committed and rolled back; returns 1 if something that was decided is lost, else 0."""
    with wireproto.connect(server_of(options.url), timeout=options.timeout) as client:
        decision, wrong, others = leading(client, options).drop()
    if decision is None and not others:
        print(f"nothing is there of {options.prefix}")
        return 0
    if decision is not None:
        print(f"the last decision, of {decision.named}, is {'carried out' if not wrong else 'forgotten'}")
    for name in others:
        print(f"rolled back {name}")
    if wrong:
        print(f"wireproto: {wrong}", file=sys.stderr)
        return 1
    return 0


def leading(client: Any, options: argparse.Namespace) -> Any:
    """Make the sink's driver side, on a cluster of its protocol. Raises OptionError for a protocol without exactly-once sinks."""
    if client.protocol == "kafka":
        from wireproto.spark import kafka_leading
        from wireproto.spark.kafka_options import DECISIONS

        return kafka_leading.Leading(client, options.topic or DECISIONS, options.prefix, options.timeout)
    if client.protocol == "pulsar":
        from wireproto.spark import pulsar_leading

        return pulsar_leading.Leading(client, options.topic or pulsar_leading.DECISIONS, options.prefix, options.timeout)
    raise OptionError("exactly-once sinks are Kafka's and Pulsar's: give a kafka:// or pulsar:// URL")
