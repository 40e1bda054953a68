"""Runs the dev broker as a process of its own: ``python -m wireproto.devbroker``.

Prints (or writes to ``--port-file``, atomically, once everything listens) one JSON object: ``{"kafka": {"url": …, "listeners": {…}}}``.
Ends at SIGINT or SIGTERM, and with ``--until-eof`` also when its standard input ends, so that it never outlives its parent.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from ..errors import WireprotoError
from . import command


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal or the end of input; returns the exit code."""
    options = _read(arguments)
    done = command.stop_signal()
    try:
        broker = command.broker_of(options).start()
    except (WireprotoError, OSError) as why:
        print(f"dev broker: {why}", file=sys.stderr)
        return 1
    try:
        addresses = {name: {"url": broker.url(name), "listeners": broker.listeners(name)} for name in broker.protocols}
        if options.port_file is None:
            print(json.dumps(addresses), flush=True)
        else:
            new = options.port_file.with_name(options.port_file.name + ".new")
            new.write_text(json.dumps(addresses), encoding="utf-8")
            new.replace(options.port_file)
        if options.until_eof:
            threading.Thread(target=_await_eof, args=(done,), daemon=True).start()
        command.wait(done)
    finally:
        broker.stop()
    return 0


def _await_eof(done: threading.Event) -> None:
    sys.stdin.buffer.read()
    done.set()


def _read(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wireproto.devbroker", description="An embedded broker for development and tests.")
    command.add_options(parser)
    parser.add_argument("--port-file", type=Path, help="write the addresses there instead of to standard output")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
