"""Describes Kafka to the package: its name, and where its parts are, without importing any."""

from __future__ import annotations

from wireproto.protocols import Protocol

PROTOCOL = Protocol(
    name="kafka",
    ports=(9092, 9093),
    framing="kafka",
    position="offset",
    roles=("producer", "transactions", "reader", "consumer", "admin"),
    client="wireproto.kafka:open_client",
    options="wireproto.kafka.options:KafkaOptions",
    forms="wireproto.kafka.forms:forms",
    messages="wireproto.kafka.messages",
    side="wireproto.devbroker.kafka:KafkaSide",
    frames="wireproto.devbroker.recording:KafkaFrames",
)
