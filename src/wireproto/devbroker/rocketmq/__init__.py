"""Serves RocketMQ's protocol in the dev broker: one name server or several, one master broker, slaves of it.

It has routes, topics, sends (single, batch), pulls with long polling, offsets, heartbeats and groups, sending back. The main listener
is the (first) name server, the listener ``broker`` the master, ``slave`` its first slave. Messages are stored in the vendor's layout, one
entry each. Replies use the header type of the request, as 4.9 brokers do. Transactions, POP and access control are not there.
"""

from .side import RocketMQSide

__all__ = ["RocketMQSide"]
