"""Names Pulsar's parts for `wireproto.protocols`: ports, roles, and the modules as text, so that none is imported before it is used."""

from __future__ import annotations

from wireproto.protocols import Protocol

PROTOCOL = Protocol(
    name="pulsar",
    ports=(6650, 6651),
    framing="pulsar",
    position="message_id",
    roles=("producer", "transactions", "reader", "consumer", "queue", "admin"),
    client="wireproto.pulsar:open_client",
    options="wireproto.pulsar.options:PulsarOptions",
    forms="wireproto.pulsar.forms:forms",
    side="wireproto.devbroker.pulsar:PulsarSide",
    frames="wireproto.devbroker.recording:PulsarFrames",
)
