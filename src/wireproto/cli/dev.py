"""``wireproto dev``: the embedded development broker, until Ctrl-C."""

from __future__ import annotations

import argparse

from wireproto.devbroker import command


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    command.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Start it, say where it listens, wait for Ctrl-C or SIGTERM."""
    done = command.stop_signal()
    with command.broker_of(options) as broker:
        print("development broker: data " + (f"in {options.data_dir}" if options.data_dir else "in memory, gone when it stops"))
        for protocol in broker.protocols:
            others = [f"{name} {where}" for name, where in broker.listeners(protocol).items() if name != "main"]
            print(f"  {broker.url(protocol)}" + (f"   ({', '.join(others)})" if others else ""), flush=True)
        command.wait(done)
    return 0
