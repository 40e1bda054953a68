"""Runs ``wireproto tree URL``: draws a ZooKeeper tree; reads, writes, creates or deletes a node."""

from __future__ import annotations

import argparse
import sys

import wireproto
from wireproto.errors import OptionError
from wireproto.roles import Tree


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("url", help="zookeeper://host:port[/chroot]")
    parser.add_argument("action", nargs="?", choices=("show", "get", "set", "create", "delete", "stat"), default="show")
    parser.add_argument("path", nargs="?", default="/")
    parser.add_argument("data", nargs="?", help="for set and create; - reads standard input")
    parser.add_argument("--depth", type=int, default=3, help="levels to show (default: %(default)s)")
    parser.add_argument("--recursive", action="store_true", help="delete what is below too")
    parser.add_argument("--parents", action="store_true", help="create missing parents")
    parser.add_argument("--ephemeral", action="store_true", help="ignored by show; the node ends with this command's session")
    parser.add_argument("--sequence", action="store_true", help="let the server append a number to the name")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the server (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Carry the action out, and print its result; returns the exit code. Raises OptionError."""
    if options.ephemeral and options.action != "create":
        raise OptionError("--ephemeral goes with create")
    if options.action == "set" and options.data is None:
        raise OptionError("set takes the node's new data, - for standard input, or '' to leave it empty")
    data = sys.stdin.buffer.read() if options.data == "-" else (options.data or "").encode()
    with wireproto.connect(options.url, timeout=options.timeout) as client:
        tree, path, wait = client.tree(), options.path, options.timeout
        if options.action == "show":
            show(tree, path, options.depth, "", wait)
        elif options.action == "get":
            sys.stdout.buffer.write(tree.get(path, timeout=wait)[0] or b"")
        elif options.action == "set":
            tree.set(path, data, timeout=wait)
        elif options.action == "create":
            print(tree.create(path, data, ephemeral=options.ephemeral, sequence=options.sequence, parents=options.parents, timeout=wait))
        elif options.action == "delete":
            tree.delete(path, recursive=options.recursive, timeout=wait)
        else:
            print(tree.get(path, timeout=wait)[1])
    return 0


def show(tree: Tree, path: str, depth: int, indent: str, wait: float) -> None:
    """Print a node and the nodes below it, `depth` levels deep; long data is cut."""
    data, _ = tree.get(path, timeout=wait)
    name = path if not indent else path.rpartition("/")[2]
    text = (data or b"").decode(errors="replace").replace("\n", "⏎")
    print(f"{indent}{name}" + (f"  {text[:60]}{'…' if len(text) > 60 else ''}" if text else ""))
    if depth <= 0:
        return
    for child in sorted(tree.children(path, timeout=wait)[0]):
        show(tree, f"{path.rstrip('/')}/{child}", depth - 1, indent + "  ", wait)
