"""``python -m brokers``: boot one real broker, print one line of JSON, stay in the foreground until Ctrl-C or SIGTERM.

    python -m brokers start kafka --version 3.9.2 --zookeeper
    python -m brokers start kafka --tls --sasl --nodes 3 --set auto.create.topics.enable=true
    python -m brokers start zookeeper --nodes 3
    python -m brokers versions

The JSON has url, urls (by listener), pids, folder, credentials and certificate paths. With ``--ready-file F`` it is also written to F.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from . import registry
from .errors import BootFailed, Unavailable


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="brokers", description="real brokers from Maven Central")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("versions", help="what can be started")
    start = verbs.add_parser("start", help="boot one and stay")
    kinds = start.add_subparsers(dest="protocol", required=True)
    for protocol, (_, versions, flags) in registry.KINDS.items():
        kind = kinds.add_parser(protocol)
        kind.add_argument("--version", choices=versions, default=versions[-1])
        for name, shape in flags.items():
            if shape is bool:
                kind.add_argument(f"--{name.replace('_', '-')}", action="store_true", default=None)
            else:
                kind.add_argument(f"--{name.replace('_', '-')}", type=shape, default=None)
        kind.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a line of the server's configuration")
        kind.add_argument("--slow-jit", action="store_true", help="the full JIT: slower boot, faster server, for benchmarks")
        kind.add_argument("--folder", type=Path, default=None, help="keep data here instead of a temporary folder")
        kind.add_argument("--ready-file", type=Path, default=None)
    given = parser.parse_args(arguments)
    if given.verb == "versions":
        for protocol, (_, versions, flags) in registry.KINDS.items():
            print(protocol, *versions, *(f"--{name.replace('_', '-')}" for name in flags))
        return 0
    return _stay(given)


def _stay(given: argparse.Namespace) -> int:
    kind, _, flags = registry.KINDS[given.protocol]
    keywords: dict[str, Any] = {name: value for name in flags if (value := getattr(given, name)) is not None}
    settings = dict(pair.partition("=")[::2] for pair in given.set)
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        broker = kind(given.version, settings=settings, fast=not given.slow_jit, folder=given.folder, **keywords)
        with broker:
            line = json.dumps(broker.info())
            print(line, flush=True)
            if given.ready_file:
                given.ready_file.write_text(line + "\n")
            while not end.wait(1.0):
                if not all(server.running for server in broker.servers):
                    print(f"a server ended by itself\n{broker.tail()}", file=sys.stderr)
                    return 1
    except KeyboardInterrupt:
        return 0
    except (Unavailable, BootFailed) as why:
        print(why, file=sys.stderr)
        return 1
    return 0


def _interrupt(_number: int, _frame: Any) -> None:
    """Only raises: waiting for a child inside a handler can dead-lock with the wait it interrupted."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
