"""A fifth life, of ZooKeeper alone: somebody keeps a node, as most who use it do.

What it is: `KEEPS`. It gives an identity, reads a node with a watch, loses its connection, asks for the node, writes it and hears of that,
sets a watch that stays and takes it back, is silent for a ping, and deletes the node. See `lives` for what a life is.
"""

from __future__ import annotations

from typing import Any

from wireproto.zookeeper.codes import EventType

from .lives import TIMEOUT, Life, Request, Unheard

NODE = "/kept"
SILENT = 1.3  # seconds: longer than between two pings of the session


def keeps(protocol: str, client: Any) -> None:
    tree = client.tree()
    tree.add_auth("digest", "ann:x", timeout=TIMEOUT)
    watch = tree.watch()
    tree.get(NODE, watch=watch, timeout=TIMEOUT)
    tree.link.connection(0.0).close("lost, as by a cut")
    tree.exists(NODE, timeout=TIMEOUT)
    tree.set(NODE, b"1", timeout=TIMEOUT)
    event = watch.wait(TIMEOUT)
    if event is None:
        raise Unheard("of the write")
    assert event.type == EventType.NODE_DATA_CHANGED, event
    told: list[Any] = []
    tree.add_watch(NODE, told.append, timeout=TIMEOUT)
    tree.remove_watch(NODE, told.append, timeout=TIMEOUT)
    tree.watch().wait(SILENT)
    tree.delete(NODE, timeout=TIMEOUT)


def made(protocol: str, client: Any) -> None:
    client.tree().create(NODE, b"0")


def is_gone(protocol: str, client: Any) -> None:
    assert client.tree().exists(NODE) is None


KEEPS = Life(
    "keeps",
    keeps,
    {
        "zookeeper": (
            Request("keep: identity", "auth", (-4, -115, -124)),
            Request("keep: read", "getData", (-4, -101, -102, -112, -118, -124, -127)),
            Request("keep: come back", "createSession", (-112, -119), after=1),
            Request("keep: watches again", "setWatches", (-112, -118, -127)),
            Request("keep: look", "exists", (-101, -102, -112, -118, -124, -127)),
            Request("keep: write", "setData", (-4, -101, -102, -103, -112, -118, -119, -124, -125, -127)),
            Request("keep: lasting watch", "addWatch", (-6, -101, -102, -112, -118, -124, -127)),
            Request("keep: watch taken back", "removeWatches", (-6, -112, -118, -121, -124, -127)),
            Request("keep: ping", "ping", (-112, -124)),
            Request("keep: delete", "delete", (-4, -101, -102, -103, -111, -112, -118, -119, -124, -127)),
        )
    },
    pushes={"zookeeper": ("notification",)},
    last={"zookeeper": "setData"},
    prepare=made,
    check=is_gone,
)
