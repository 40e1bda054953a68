"""Runs ``wireproto positions URL``: prints where a topic begins and ends, the position of a time, and a group's positions."""

from __future__ import annotations

import argparse

import wireproto
from wireproto.cli.where import parse_place, server_of, topic_of
from wireproto.position import EARLIEST, LATEST, LogOffset, format_positions


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("url", help="kafka://host:port/topic, pulsar://…, rocketmq://…")
    parser.add_argument("--at", help="earliest, latest or a time: print those positions in the form that --from takes")
    parser.add_argument("--group", help="a group's committed positions too, and its lag")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the broker (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print one line for each partition, or with --at one line in all; returns the exit code."""
    topic = topic_of(options.url)
    with wireproto.connect(server_of(options.url), timeout=options.timeout) as client:
        admin = client.admin()
        if options.at:
            print(format_positions(admin.positions(topic, parse_place(options.at, topic), timeout=options.timeout)))
            return 0
        first = admin.positions(topic, EARLIEST, timeout=options.timeout)
        end = admin.positions(topic, LATEST, timeout=options.timeout)
        committed = admin.group_positions(options.group, topic, timeout=options.timeout) if options.group else {}
    print(f"{'partition':>9}  {'earliest':>14}  {'latest':>14}" + (f"  {'committed':>14}  {'lag':>10}" if options.group else ""))
    for key in sorted(end):
        line = f"{key[1]:>9}  {first[key].text():>14}  {end[key].text():>14}"
        if options.group:
            place, last = committed.get(key), end[key]
            lag = last.offset - place.offset if isinstance(place, LogOffset) and isinstance(last, LogOffset) else None
            line += f"  {place.text() if place else '-':>14}  {lag if lag is not None else '-':>10}"
        print(line)
    return 0
