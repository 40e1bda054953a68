"""Holds what the two commands that run the dev broker share: their options, and waiting for a signal to stop.

``wireproto dev`` is for people, ``python -m wireproto.devbroker`` for programs. This module must not print.
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from .broker import DevBroker


def add_options(parser: argparse.ArgumentParser, otherwise: str = "free ones by default") -> None:
    """Add the options of a dev broker to a parser.

    Args:
        otherwise: help text about the ports that it takes where none is given.
    """
    parser.add_argument("--protocols", type=lambda text: text.split(","), help="comma-separated; all by default")
    parser.add_argument("--data-dir", type=Path, help="keep data in this folder; in memory by default")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", action="append", default=[], metavar="PROTOCOL[.LISTENER]=N", help=f"a fixed port; {otherwise}")
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="PROTOCOL.KIND=N",
        help="how many nodes of a kind: kafka.nodes (1 by default), rocketmq.name_servers (1), rocketmq.slaves (0), zookeeper.members (1)",
    )


def broker_of(options: argparse.Namespace) -> DevBroker:
    """Make the broker that the options describe; it is not started."""
    ports, nodes = _numbers(options.port), _numbers(options.nodes)
    return DevBroker(options.protocols, data_dir=options.data_dir, host=options.host, ports=ports, nodes=nodes)


def _numbers(items: list[str]) -> dict[str, int]:
    return {name: int(number) for name, _, number in (item.partition("=") for item in items)}


def stop_signal() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; call this before the broker starts."""
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    return done


def wait(done: threading.Event) -> None:
    """Wait until the event is set."""
    while not done.wait(1.0):  # a wait without an end would keep signals from being handled on some systems
        pass
