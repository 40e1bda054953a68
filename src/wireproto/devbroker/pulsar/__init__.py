"""The Pulsar side of the dev broker: one broker and the part of the admin HTTP interface that clients and demos use.

What it is: look-up, partitioned topics, producers, the four subscription types with cursors, acknowledgements (batch indexes too),
redelivery, seek, last message id; topics over HTTP on the listener ``admin``. Entries are stored as they came. Schemas are accepted and not
checked; what a configuration switches (`settings.Settings`) is changed by ``broker.call("pulsar", "configure", …)``. There are no
transactions, no retention, no geo-replication and no access control.
"""

from .side import PulsarSide

__all__ = ["PulsarSide"]
