"""Logs and snapshots that real servers wrote: against the tree read over the wire, and against the server's own readers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wireproto
from brokers import ZooKeeper, java
from wireproto.message import to_json
from wireproto.zookeeper import acl as access
from wireproto.zookeeper.codes import BadVersion
from wireproto.zookeeper.files import Snapshot, Transaction, read_log
from wireproto.zookeeper.multi import Check, Create, Delete, Set

POM, JAVA = "zookeeper-3.9.5", "JuteJudge"
pytestmark = [pytest.mark.java, pytest.mark.broker("zookeeper-3.9.5")]


def write(url: str) -> None:
    """Every kind of transaction."""
    with wireproto.connect(url) as client:
        tree = client.tree()
        tree.add_auth("digest", "user:word")
        for number in range(40):
            tree.create(f"/many/{number:03}", b"%d" % number * number, parents=True)
        tree.create("/null", None)
        tree.create("/ünï-中", "x😀".encode())
        tree.create("/box", container=True)
        tree.create("/box/in", b"\0" * 5000)
        tree.create("/aged", b"t", ttl=3600.0)
        tree.create("/aged-", b"t", ttl=3600.0, sequence=True)
        tree.create2("/second", b"2", sequence=True)
        tree.create("/mine", b"e", ephemeral=True)
        tree.create("/guarded", b"g", acl=access.CREATOR_ALL)
        tree.set_acl("/null", (*access.OPEN, access.digest_acl("other", "word", 1)))
        tree.set("/many/001", None)
        tree.set("/many/002", b"new", version=0)
        with pytest.raises(BadVersion):
            tree.set("/many/002", b"newer", version=0)
        kinds = [Create("/ttl", ttl=99.0), Create("/mbox", container=True)]
        tree.multi([Create("/m", b"m"), Set("/m", b"n"), Check("/m", 1), Delete("/many/003"), *kinds])
        with pytest.raises(BadVersion):
            tree.multi([Create("/no"), Check("/m", 9)])
        tree.delete("/many/004")


def tree_of(url: str) -> dict[str, tuple[Any, ...]]:
    """Data, access list and facts of every node, read over the wire."""
    found: dict[str, tuple[Any, ...]] = {}
    with wireproto.connect(url) as client:
        tree = client.tree()
        tree.add_auth("digest", "user:word")
        below = ["/"]
        for path in below:
            data, stat = tree.get(path)
            found[path] = (data, tree.get_acl(path)[0], stat)
            below += (f"{path.rstrip('/')}/{name}" for name in tree.children(path)[0])
    return found


def files(broker: ZooKeeper, kind: str) -> list[Path]:
    """In the order of their transactions."""
    found = (broker.folder / "node-0" / "data" / "version-2").glob(f"{kind}.*")
    return sorted(found, key=lambda path: int(path.name.split(".")[1], 16))


@pytest.mark.parametrize("packed", ["", "gz", "snappy"])
def test_what_a_server_wrote_is_read(packed: str, oracle: Callable[..., None]) -> None:
    settings = {"snapshot.compression.method": packed} if packed else {}
    with ZooKeeper("3.9.5", settings=settings) as broker:
        write(broker.url)
        broker.stop()
        broker.start()  # which takes a snapshot of everything
        live = tree_of(broker.url)
        broker.stop()
        snapshot, logs = files(broker, "snapshot")[-1], files(broker, "log")
        assert snapshot.name.endswith(packed)
        entries = [entry for log in logs for entry in read_log(log)]
        theirs = [line for line in java.run(POM, JAVA, "log", *map(str, logs)) if "header" in line]
        check_log(entries, theirs)
        nodes = check_snapshot(snapshot, live)
        shown = command("snapshot", snapshot)
        assert [line["path"] for line in shown[1:-1]] == nodes
        assert [line["header"] for line in command("log", *logs)] == [line["header"] for line in theirs]
        oracle("ZooKeeper 3.9.5's files", transactions=len(entries), nodes=len(nodes), files=1 + len(logs))


def command(*words: object) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "wireproto.cli", "zookeeper", *map(str, words)], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def plain(value: Any) -> Any:
    """A judge's value with bytes as base64."""
    from wire.test_zookeeper_jute import as_json

    return as_json(value)


def check_log(entries: list[Transaction], theirs: list[dict[str, Any]]) -> None:
    assert len(entries) == len(theirs) > 60
    kinds = set()
    for entry, line in zip(entries, theirs, strict=True):
        assert to_json(entry.header) == line["header"]
        assert ("" if entry.record is None else type(entry.record).__name__) == line["record"]
        assert (None if entry.record is None else to_json(entry.record)) == plain(line["txn"])
        assert (None if entry.digest is None else to_json(entry.digest)) == line["digest"]
        assert [code for code, _ in entry.parts] == line["parts"]
        assert all(record is not None for _, record in entry.parts)
        kinds |= {entry.header.type, *line["parts"]}
    assert kinds >= {-11, -10, -1, 1, 2, 5, 7, 13, 14, 15, 19, 21}
    zxids = [entry.header.zxid for entry in entries]
    assert zxids == sorted(zxids)


def check_snapshot(path: Path, live: dict[str, tuple[Any, ...]]) -> list[str]:
    judged = java.run(POM, JAVA, "snapshot", str(path))
    with Snapshot(path) as snapshot:
        assert {str(session): ms for session, ms in snapshot.sessions.items()} == judged[0]["sessions"]
        nodes = {node.path: node for node in snapshot}
    for line in judged[1:-1]:
        node = nodes[line["path"] or "/"]
        ours = {"path": line["path"], "data": None if node.data is None else {"hex": node.data.hex()}}
        assert ours | {"acl": [to_json(acl) for acl in node.acl], "stat": to_json(node.stat)} == line
    last = judged[-1]
    assert (snapshot.zxid, snapshot.last_zxid) == (last["zxid"], last["last"])
    assert snapshot.digest == last["digest"] & (1 << 64) - 1
    assert last["computed"] == last["digest"]
    assert set(nodes) == {line["path"] or "/" for line in judged[1:-1]}
    for name, (data, acl, stat) in live.items():
        node = nodes[name]
        assert (node.data, node.acl) == (data, acl), name
        wire, disk = to_json(stat), to_json(node.stat)
        if disk["ephemeralOwner"] < 0:  # containers and nodes with a time to live, which the wire does not tell
            del wire["ephemeralOwner"], disk["ephemeralOwner"]
        disk["cversion"] = disk["cversion"] * 2 - stat.num_children  # the file counts births, the wire births and deaths
        assert {field: wire.get(field) for field in disk if field in wire} == {field: disk[field] for field in disk if field in wire}, name
    assert set(live) == set(nodes)
    return list(nodes)
