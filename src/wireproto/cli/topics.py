"""Runs ``wireproto topics URL [create|delete|describe TOPIC]``: lists and changes the topics of a cluster."""

from __future__ import annotations

import argparse

import wireproto
from wireproto.errors import OptionError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("url", help="kafka://host:port, pulsar://…?admin=http://…, rocketmq://…, zookeeper://host/path")
    parser.add_argument("action", nargs="?", choices=("list", "describe", "create", "delete"), default="list")
    parser.add_argument("topics", nargs="*", metavar="topic")
    parser.add_argument("--partitions", type=int, default=1, help="for create (default: %(default)s)")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="for create; may be repeated")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the broker (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Carry the action out, and print its result; returns the exit code. Raises OptionError."""
    pairs = [item.partition("=") for item in options.config]
    if not all(sep for _, sep, _ in pairs):
        raise OptionError("--config takes NAME=VALUE")
    if options.action in ("create", "delete") and not options.topics:
        raise OptionError(f"which topic? wireproto topics URL {options.action} TOPIC")
    with wireproto.connect(options.url, timeout=options.timeout) as client:
        admin = client.admin()
        if options.action == "list":
            print("\n".join(sorted(admin.list_topics(timeout=options.timeout))))
            return 0
        for topic in options.topics or sorted(admin.list_topics(timeout=options.timeout)):
            if options.action == "create":
                config = {name: value for name, _, value in pairs} or None
                admin.create_topic(topic, partitions=options.partitions, config=config, timeout=options.timeout)
            elif options.action == "delete":
                admin.delete_topic(topic, timeout=options.timeout)
            else:
                info = admin.describe_topic(topic, timeout=options.timeout)
                print(f"{info.name}  " + "  ".join(f"{name}={value}" for name, value in info.details.items()))
                for part in info.partitions:
                    facts = "  ".join(f"{name}={value}" for name, value in part.details.items())
                    print(f"  {part.partition}  leader {part.leader or 'none'}  {facts}")
    return 0
