"""Runs ``wireproto messages [PROTOCOL]``: lists the messages that decode and encode know, with their versions."""

from __future__ import annotations

import argparse

from wireproto import wire


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("protocol", nargs="?", choices=wire.protocols(), help="all of them without it")
    parser.add_argument("--fields", metavar="MESSAGE", help="the fields of one message of the protocol: name, type and versions")


def run(options: argparse.Namespace) -> int:
    """Print a line for each message: protocol, name, versions; returns the exit code."""
    if options.fields:
        return fields(options.protocol or "kafka", options.fields)
    for protocol in [options.protocol] if options.protocol else wire.protocols():
        for name, (first, last) in wire.names(protocol).items():
            print(f"{protocol:<10} {name:<50} {first if first == last else f'{first}-{last}'}")
    return 0


def fields(protocol: str, name: str) -> int:
    """Print a line for each field of the schema: vendor's name, type, versions. Raises UnknownMessage."""
    from wireproto.message import fields_of, message_class

    for field in fields_of(message_class(protocol, name)):
        first, last = field.versions
        print(f"{field.vendor:<40} {field.type:<40} {first}-{last}" if last < 32767 else f"{field.vendor:<40} {field.type:<40} {first}+")
    return 0
