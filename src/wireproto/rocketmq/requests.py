"""Chooses the node that a command goes to when the caller does not name one, and knows which codes of its reply are answers.

    a name server      the commands with `to name_server` in proto/rocketmq: the one that answers
    the queue's broker `to` is (topic, partition)
    the named broker   `to` is a broker's name, or the message has `bname`
    the topic's broker the message has a topic: the first master that has its `queue_id`, or the first master
    the group's broker the message has a group and the group its retry topic: the first master of that
    the first broker   everything else, in order of the brokers' names

Methods that wait are steps. A command that may have been carried out is never sent again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from wireproto.errors import OptionError, UsageError

from . import fastjson
from .codes import TopicNotExist

if TYPE_CHECKING:
    from wireproto.net.task import Steps
    from wireproto.position import TopicPartition

    from .cluster import Reply, RocketCluster
    from .route import Route

Body: TypeAlias = bytes | str | Mapping[Any, Any] | Sequence[Any]

ANSWERS: Mapping[int, frozenset[int]] = {
    **dict.fromkeys((10, 310, 320, 324, 325), frozenset({10, 11, 12})),
    **dict.fromkeys((11, 361), frozenset({19, 20, 21})),
    **dict.fromkeys((200050, 200070), frozenset({210})),
}
"""Codes beside 0 that are answers of a command, not errors: they come with its fields."""


def body_bytes(body: Body) -> bytes:
    """Return a body as bytes; raises UsageError for what is none."""
    if isinstance(body, str):
        return body.encode("utf-8")
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, Mapping | list | tuple):
        return fastjson.dumps(body)
    raise UsageError(f"a body is bytes, text, an object or a list, not {type(body).__name__}")


class Router:
    """Sends one command to the node that it belongs to."""

    def __init__(self, cluster: RocketCluster) -> None:
        self._cluster = cluster

    def requesting(self, message: Any, body: bytes, to: str | TopicPartition | None, until: float, *, one_way: bool) -> Steps[Reply]:
        """Send the command, once; see `RocketClient.request`."""
        cluster = self._cluster
        accept = ANSWERS.get(message.CODE, frozenset())
        if to == "names" or (to is None and message.SENT_TO == "name_server"):
            if not one_way:
                return (yield from cluster.asking_names(message, body, until=until, accept=accept))
            target = cluster.names.order()[0]
        else:
            target = yield from self.target(message, to, until)
        if not one_way:
            return (yield from cluster.invoking(target, message, body, until=until, accept=accept))
        cluster.send_one_way((yield from cluster.connecting(target, until)), message, body)
        from .cluster import Reply

        return Reply(None, b"", 0, None, target)

    def target(self, message: Any, to: str | TopicPartition | None, until: float) -> Steps[str]:
        """Return the address of the broker to ask; raises OptionError where there is none."""
        if isinstance(to, tuple):
            return (yield from self._of_partition(*to, until))
        if to is not None and ":" in to:
            return to
        name = to or getattr(message, "bname", None)
        if name is None:
            address = (yield from self._of_topic(message, until)) or (yield from self._of_group(message, until))
            if address is not None:
                return address
        brokers = (yield from self._cluster.info(until)).brokers
        for known in [name] if name is not None else sorted(brokers):
            if known in brokers and (address := brokers[known].master):
                return address
        raise OptionError(f"no broker {name!r} has a master; there are {', '.join(sorted(brokers)) or 'none'}")

    def _route(self, topic: str, until: float) -> Steps[Route | None]:
        with contextlib.suppress(TopicNotExist):
            return (yield from self._cluster.routing(topic, until))
        return None

    def _of_partition(self, topic: str, partition: int, until: float) -> Steps[str]:
        queues = (yield from self._cluster.routing(topic, until)).queues
        if not 0 <= partition < len(queues):
            raise OptionError(f"{topic} has partitions 0 to {len(queues) - 1}, not {partition}")
        address = queues[partition].address
        if address is None:
            raise OptionError(f"broker {queues[partition].broker} of {topic}[{partition}] has no master now")
        return address

    def _of_topic(self, message: Any, until: float) -> Steps[str | None]:
        topic, queue_id = getattr(message, "topic", None), getattr(message, "queue_id", None)
        route = (yield from self._route(topic, until)) if isinstance(topic, str) and topic else None
        if route is None:
            return None
        for queue in route.queues:
            if queue.queue_id == queue_id and queue.address is not None:
                return queue.address
        return route.masters[0] if route.masters else None

    def _of_group(self, message: Any, until: float) -> Steps[str | None]:
        group = getattr(message, "consumer_group", None) or getattr(message, "group", None)
        route = (yield from self._route(f"%RETRY%{group}", until)) if isinstance(group, str) and group else None
        return route.masters[0] if route is not None and route.masters else None
