"""How many queues a RocketMQ topic has, and what may be done with them, set as an administrator sets it."""

from __future__ import annotations

from patience import LONG, until
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import UpdateAndCreateTopicRequest


def set_queues(client: RocketClient, topic: str, queues: int, perm: int = 6) -> None:
    """At the one broker; it registers them a moment later."""
    request = UpdateAndCreateTopicRequest(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0, order=False,
    )  # fmt: skip
    (address,) = client.cluster.drive(client.cluster.masters(client.deadline(10.0)), client.deadline(10.0))
    client.request(request, to=address)


def change(client: RocketClient, topic: str, queues: int, perm: int = 6, *, limit: float = LONG) -> None:
    """Set them, and wait until the name server tells so; the client knows then."""
    set_queues(client, topic, queues, perm)
    readable = queues if perm & 4 else 0
    until(lambda: len(client.cluster.route(topic, client.deadline(10.0), fresh=True).readable()) == readable, limit=limit)
