"""Describes RocketMQ to the rest of the package: its name, ports, roles, and where its modules are. Imports none of them."""

from __future__ import annotations

from wireproto.protocols import Protocol

PROTOCOL = Protocol(
    name="rocketmq",
    ports=(9876, 9876),
    framing="rocketmq",
    position="offset",
    roles=("producer", "transactional", "reader", "consumer", "queue", "admin"),
    client="wireproto.rocketmq:open_client",
    options="wireproto.rocketmq.options:RocketOptions",
    forms="wireproto.rocketmq.forms:forms",
    messages="wireproto.rocketmq.messages",
    side="wireproto.devbroker.rocketmq:RocketMQSide",
    frames="wireproto.devbroker.recording:RocketMQFrames",
)
