"""Serves Pulsar's protocol in the dev broker: one broker and the part of the admin HTTP interface that clients and demos use.

It has look-up, partitioned topics, producers, the four subscription types with cursors, acknowledgements (batch indexes too), redelivery,
seek, last message id, transactions; topics over HTTP on the listener ``admin``. Entries are stored as they came. Schemas are refused but
for bytes; what a configuration switches (`settings.Settings`) is changed by ``broker.call("pulsar", "configure", …)``. There are no
retention, no geo-replication and no access control.
"""

from .side import PulsarSide

__all__ = ["PulsarSide"]
