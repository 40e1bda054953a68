"""``wireproto messages [PROTOCOL]``: every message that decode and encode know, with its versions."""

from __future__ import annotations

import argparse

from wireproto import wire


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("protocol", nargs="?", choices=wire.protocols(), help="all of them without it")
    parser.add_argument("--fields", metavar="MESSAGE", help="the fields of one message of the protocol: name, type and versions")


def run(options: argparse.Namespace) -> int:
    """One line a message: protocol, name, versions."""
    if options.fields:
        return fields(options.protocol or "kafka", options.fields)
    for protocol in [options.protocol] if options.protocol else wire.protocols():
        for name, (first, last) in wire.names(protocol).items():
            print(f"{protocol:<10} {name:<50} {first if first == last else f'{first}-{last}'}")
    return 0


def fields(protocol: str, name: str) -> int:
    """One line a field of the schema."""
    from wireproto.message import fields_of, message_class

    for field in fields_of(message_class(protocol, name)):
        first, last = field.versions
        print(f"{field.vendor:<40} {field.type:<40} {first}-{last}" if last < 32767 else f"{field.vendor:<40} {field.type:<40} {first}+")
    return 0
