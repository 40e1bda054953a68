"""The Kafka side of the dev broker: one node or several, which are leaders and coordinators of what is theirs.

What it is: Metadata and topics, Produce and Fetch of record batches, classic consumer groups, producer ids. It offers the versions
that today's clients choose. Record batches are stored as they came; only their base offset and leader epoch are patched. Transactions,
share groups and access control are not there.
"""

from .side import KafkaSide

__all__ = ["KafkaSide"]
