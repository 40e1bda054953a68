"""The Kafka side of the dev broker.

What it is: one broker that is leader, controller and coordinator of everything, in memory. `KafkaSide.answer` takes a request frame
(without its length) and returns the response frame's buffers, or None where the protocol has no answer (Produce with acks=0). It offers
versions that today's clients choose; record batches are stored as they came, only their base offset is patched.
May assume: it runs inside one asyncio loop. Must not: own a socket (the server does), or be used in production.
"""

from wireproto.devbroker.kafka.side import KafkaSide

__all__ = ["KafkaSide"]
