"""``wireproto dev``: the embedded development broker, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--protocols", type=lambda text: text.split(","), help="comma-separated; all by default")
    parser.add_argument("--data-dir", type=Path, help="keep data in this folder; in memory by default")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", action="append", default=[], metavar="PROTOCOL[.LISTENER]=N", help="a fixed port; free ones by default")


def run(options: argparse.Namespace) -> int:
    """Start it, say where it listens, wait for Ctrl-C or SIGTERM."""
    from wireproto.devbroker import DevBroker

    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    ports = {name: int(port) for name, _, port in (item.partition("=") for item in options.port)}
    with DevBroker(options.protocols, data_dir=options.data_dir, host=options.host, ports=ports) as broker:
        print("development broker: data " + (f"in {options.data_dir}" if options.data_dir else "in memory, gone when it stops"))
        for protocol in broker.protocols:
            others = [f"{name} {where}" for name, where in broker.listeners(protocol).items() if name != "main"]
            print(f"  {broker.url(protocol)}" + (f"   ({', '.join(others)})" if others else ""), flush=True)
        while not done.wait(1.0):  # a wait without an end would keep signals from being handled on some systems
            pass
    return 0
