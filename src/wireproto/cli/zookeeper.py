"""Runs ``wireproto zookeeper log|snapshot FILE``: prints a ZooKeeper server's files as JSON lines.

A log gives a line for each transaction. A snapshot gives its sessions, then a line for each node, then the transactions and the digest that
the file has for the tree. An error is raised after everything that could be read before it was printed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from wireproto._codec import Message
from wireproto.message import to_json


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("kind", choices=("log", "snapshot"), help="of which kind the files are")
    parser.add_argument("files", nargs="+", metavar="FILE", help="version-2/log.… or version-2/snapshot.… (gzip and snappy too)")


def run(options: argparse.Namespace) -> int:
    """Print the files' contents; returns the exit code."""
    for path in options.files:
        if options.kind == "log":
            log(path)
        else:
            snapshot(path)
    return 0


def log(path: str) -> None:
    """Print a line for each transaction of a log."""
    from wireproto.zookeeper.codes import OPERATIONS
    from wireproto.zookeeper.files import read_log

    names = {facts.code: name for name, facts in OPERATIONS.items()}
    for entry in read_log(path):
        line: dict[str, Any] = {"offset": entry.offset, "operation": names.get(entry.header.type), "header": to_json(entry.header)}
        line |= _record(entry.record)
        if entry.parts:
            line["parts"] = [{"operation": names.get(code), "type": code, **_record(record)} for code, record in entry.parts]
        line["digest"] = None if entry.digest is None else to_json(entry.digest)
        print(json.dumps(line))


def snapshot(path: str) -> None:
    """Print a snapshot's sessions, nodes, and digest."""
    from wireproto.lines import base64_of
    from wireproto.zookeeper.files import Snapshot

    with Snapshot(path) as found:
        print(json.dumps({"sessions": {f"0x{session & (1 << 64) - 1:x}": ms for session, ms in found.sessions.items()}}))
        for node in found:
            data = None if node.data is None else base64_of(node.data)
            print(json.dumps({"path": node.path, "data": data, "acl": [to_json(acl) for acl in node.acl], "stat": to_json(node.stat)}))
        print(json.dumps({"zxid": found.zxid, "digestVersion": found.digest_version, "digest": found.digest, "lastZxid": found.last_zxid}))


def _record(record: Message | None) -> dict[str, Any]:
    return {"record": None if record is None else type(record).__name__, "txn": None if record is None else to_json(record)}
