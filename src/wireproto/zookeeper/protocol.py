"""Describes ZooKeeper to the registry of protocols: its name, ports and roles, and where its parts are. It imports none of them."""

from __future__ import annotations

from wireproto.protocols import Protocol

PROTOCOL = Protocol(
    name="zookeeper",
    ports=(2181, 2281),
    framing="zookeeper",
    position="sequence",
    roles=("producer", "reader", "queue", "admin", "tree"),
    path="root",
    client="wireproto.zookeeper:open_client",
    options="wireproto.zookeeper.options:ZooKeeperOptions",
    forms="wireproto.zookeeper.forms:forms",
    messages="wireproto.zookeeper.messages",
    side="wireproto.devbroker.zookeeper:ZooKeeperSide",
    frames="wireproto.devbroker.recording:ZooKeeperFrames",
)
