"""Runs ``wireproto dev``: the embedded development broker, until Ctrl-C.

Each protocol listens on its servers' usual port (Kafka on 9092), so that URLs of manuals work. If another program has that port, a free one
is taken and printed.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable, Iterable

from wireproto.devbroker import command
from wireproto.devbroker.sides import spoken
from wireproto.protocols import known


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    usual = ", ".join(f"{name} {port}" for name, port in usual_ports(spoken()).items())
    command.add_options(parser, f"by default the usual ones that are free ({usual})")
    parser.add_argument("--free-ports", action="store_true", help="free ports for all that --port does not name")


def run(options: argparse.Namespace) -> int:
    """Start the broker, print where it listens, and wait for Ctrl-C or SIGTERM; returns the exit code."""
    done = command.stop_signal()
    taken: dict[str, int] = {}
    if not options.free_ports:
        wanted = unnamed(usual_ports(options.protocols or spoken()), options.port)
        free, taken = divided(wanted, lambda port: may_listen(options.host, port))
        options.port = [*options.port, *(f"{name}={port}" for name, port in free.items())]
    with command.broker_of(options) as broker:
        print("development broker: data " + (f"in {options.data_dir}" if options.data_dir else "in memory, gone when it stops"))
        for protocol in broker.protocols:
            notes = [f"{name} {where}" for name, where in broker.listeners(protocol).items() if name != "main"]
            if protocol in taken:
                notes.append(f"{taken[protocol]} is taken by another program")
            print(f"  {broker.url(protocol)}" + (f"   ({', '.join(notes)})" if notes else ""), flush=True)
        command.wait(done)
    return 0


def usual_ports(protocols: Iterable[str]) -> dict[str, int]:
    """Return the default ports of these protocols' servers, by protocol."""
    return {name: found.ports[0] for name in protocols if (found := known(name)) is not None}


def unnamed(ports: dict[str, int], given: Iterable[str]) -> dict[str, int]:
    """Return the ports of protocols for which the user gave none, in words like ``kafka=9092``."""
    named = {word.partition("=")[0].removesuffix(".main") for word in given}
    return {name: port for name, port in ports.items() if name not in named}


def divided(ports: dict[str, int], may: Callable[[int], bool]) -> tuple[dict[str, int], dict[str, int]]:
    """Divide ports into those that are free, by `may`, and those that another program has."""
    free = {name: port for name, port in ports.items() if may(port)}
    return free, {name: port for name, port in ports.items() if name not in free}


def may_listen(host: str, port: int) -> bool:
    """Whether a socket can listen there, since no other program does."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen(1)
    except OSError:
        return False
    return True
