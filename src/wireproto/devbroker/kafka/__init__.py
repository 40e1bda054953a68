"""Serves Kafka's protocol in the dev broker: one node or several, which lead partitions and coordinate groups.

It has Metadata and topics, Produce and Fetch of record batches, classic consumer groups, producer ids, transactions, and SASL. It offers
the versions that today's clients choose. Record batches are stored as they came; only their base offset and leader epoch are patched. Share
groups and access control lists are not there.
"""

from .side import KafkaSide

__all__ = ["KafkaSide"]
