"""Runs the command ``wireproto``.

There is one parser, and one module for each command, with ``add(parser)`` and ``run(arguments) -> int``. A WireprotoError is one line on
standard error and exit code 1; wrong usage is exit code 2; a closed pipe or Ctrl-C ends quietly. ``--debug`` shows the wire. Warnings are
lines, too, unless logging is configured (`log`). No adapter is imported before its command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from wireproto import __version__
from wireproto.errors import WireprotoError

from .log import Lines, printed

COMMANDS = {
    "produce": "read records from standard input or a file and append them to a topic",
    "consume": "read records of a topic, up to a stop or for ever",
    "topics": "list, describe, create or delete topics",
    "positions": "show a topic's first and end positions, the position of a time, or a group's committed positions",
    "sinks": "end an exactly-once Spark sink whose query will not be started again",
    "tree": "look at and change ZooKeeper nodes",
    "zookeeper": "read a ZooKeeper server's transaction logs and snapshots",
    "dev": "run the embedded development broker for all four protocols",
    "decode": "bytes of a message or frame to JSON",
    "encode": "JSON to the bytes of a message or frame",
    "messages": "list the messages that decode and encode know",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit code.

    Args:
        arguments: the words after the program's name; None: those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser(next((word for word in words if word in COMMANDS), None)).parse_args(words)
    if options.debug:
        from wireproto.net import debug

        debug.show_wire(sys.stderr)
    with printed() as lines:
        return _run(options, lines)


def _run(options: argparse.Namespace, lines: Lines | None) -> int:
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except WireprotoError as error:
        if options.debug:
            raise
        if lines is not None:
            lines.end(error.text)
        print(f"wireproto: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if options.debug:
            raise
        print(f"wireproto: {error}", file=sys.stderr)
        return 1


def parser(command: str | None) -> argparse.ArgumentParser:
    """Make the parser; only the module of `command` is imported."""
    top = argparse.ArgumentParser(prog="wireproto", description="Kafka, Pulsar, RocketMQ and ZooKeeper from the command line.")
    top.add_argument("--version", action="version", version=f"wireproto {__version__}")
    top.add_argument("--debug", action="store_true", help="show the wire, and tracebacks")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        if name == command:
            module = import_module(f"wireproto.cli.{name}")
            module.add(sub)
            sub.set_defaults(run=module.run)
    return top
