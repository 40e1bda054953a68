"""The RocketMQ side of the dev broker: a name server and one master broker.

What it is: routes, topics, sends (single, batch), pulls with long polling, offsets, heartbeats and groups, sending back. The main listener
is the name server, the listener ``broker`` the broker. Messages are stored in the vendor's layout, one entry each. Replies go out in the
header type of the request, as 4.9 brokers do. Transactions, POP, delays and access control are not there: a message that is sent back, or
carries a delay, is delivered at once.
"""

from .side import RocketMQSide

__all__ = ["RocketMQSide"]
