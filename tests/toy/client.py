"""The toy's client and roles: one connection, one request at a time."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from wireproto._codec import ColumnsBuilder
from wireproto._net import Connection
from wireproto.errors import BrokerError, OptionError, RoleUnsupported, ValueUnsupported
from wireproto.flow.resolve import Resolver
from wireproto.flow.role import Role
from wireproto.net.closing import Closing
from wireproto.net.runtime import ClientBase, Runtime
from wireproto.net.task import Steps
from wireproto.position import EARLIEST, LATEST, AtTime, Earliest, LogOffset, Position, TopicPartition, Where
from wireproto.records import Batch, PartitionInfo, TopicInfo
from wireproto.url import Address

from .options import ToyOptions


class Refused(BrokerError):
    """An answer that begins with ERR."""


class Cluster(Runtime[ToyOptions]):
    protocol = "toy"
    frame_cap = 60000

    def __init__(self, options: ToyOptions, addresses: Sequence[Address]) -> None:
        super().__init__(options)
        self.addresses = addresses
        self._turn = threading.Lock()

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        yield from ()

    def ask(self, *words: str, deadline: float) -> str:
        conn = self.pool.get(self.addresses[0], deadline=deadline)
        with self._turn:  # tokens go out in their order
            call = conn.submit(conn.next_token(), " ".join(words).encode())
        answer = call.result(deadline).decode()
        if answer.startswith("ERR"):
            raise Refused(answer[4:])
        return answer

    def end(self, topic: str, deadline: float) -> int:
        return int(self.ask("END", topic, deadline=deadline))

    def place(self, topic: str, where: Where, what: str, deadline: float) -> int:
        """The offset that a place means."""
        (request,) = Resolver(LogOffset).requests(where, [(topic, 0)], what).values()
        if isinstance(request, AtTime):
            raise OptionError("the toy keeps no times")
        if isinstance(request, LogOffset):
            return request.offset
        return 0 if isinstance(request, Earliest) else self.end(topic, deadline)


class ToyClient(ClientBase[Cluster]):
    protocol = "toy"

    def __init__(self, options: ToyOptions, addresses: Sequence[Address]) -> None:
        super().__init__(Cluster(options, addresses))
        self._options = options

    def producer(self, topic: str, **given: Any) -> ToyProducer:
        options = self._options.for_role("producer", given)
        return self.keep(ToyProducer(self.cluster, topic, options))

    def reader(self, topic: str, *, start: Where = EARLIEST, stop: Where | None = None, **given: Any) -> ToyReader:
        return self.keep(ToyReader(self.cluster, topic, start, stop, self._options.for_role("reader", given)))

    def consumer(self, *_: Any, **__: Any) -> Any:
        raise RoleUnsupported("the toy has no groups", nearest="reader")

    def queue(self, *_: Any, **__: Any) -> Any:
        raise RoleUnsupported("the toy has no queues", nearest="reader")

    def tree(self) -> Any:
        raise RoleUnsupported("the toy has no tree", nearest="admin")

    def admin(self) -> ToyAdmin:
        return ToyAdmin(self.cluster)

    def request(self, message: str, *, timeout: float = 30.0, **route: Any) -> str:
        return self.cluster.ask(message, deadline=self.deadline(timeout))


class ToyReceipt:
    done = True

    def __init__(self, where: LogOffset) -> None:
        self._where = where

    def position(self, timeout: float | None = None) -> LogOffset:
        return self._where


class ToyProducer(Closing):
    def __init__(self, cluster: Cluster, topic: str, options: ToyOptions) -> None:
        self.topic, self._cluster = topic, cluster
        cluster.end(topic, cluster.deadline(options.timeout))

    def send(
        self,
        value: bytes | None,
        *,
        key: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        partition: Any = None,
        timeout: float = 30.0,
    ) -> ToyReceipt:
        if value is None or key is not None or headers or timestamp is not None:
            raise ValueUnsupported("the toy carries values alone", topic=self.topic)
        if partition not in (None, 0):
            raise OptionError("the toy has partition 0 alone", topic=self.topic)
        text = base64.b64encode(value).decode() or "-"
        offset = int(self._cluster.ask("PUT", self.topic, text, deadline=self._cluster.deadline(timeout)))
        return ToyReceipt(LogOffset(self.topic, 0, offset))

    def flush(self, timeout: float = 30.0) -> None:
        """All is there when `send` returns."""

    def close(self, timeout: float = 30.0) -> None:
        """Nothing to do."""


class ToyReader(Role):
    def __init__(self, cluster: Cluster, topic: str, start: Where, stop: Where | None, options: ToyOptions) -> None:
        super().__init__("reader", cluster.loop)
        self.topic, self._cluster, self._pace = topic, cluster, options.pace
        deadline = cluster.deadline(options.timeout)
        cluster.end(topic, deadline)
        self._next = cluster.place(topic, start, "start", deadline)
        self._stop = None if stop is None else cluster.place(topic, stop, "stop", deadline)

    def poll(self, timeout: float = 1.0) -> Batch | None:
        deadline = time.monotonic() + timeout
        with self._only:
            while not self.done:
                batch = self._batch(self._cluster.deadline())
                if batch is not None:
                    return batch
                if time.monotonic() >= deadline:
                    return None
                self._cluster.pause(0.01)
        return None

    def _batch(self, deadline: float) -> Batch | None:
        rows = ColumnsBuilder("offset")
        count = 0
        while count < self._pace and not self.done:
            text = self._cluster.ask("GET", self.topic, str(self._next), deadline=deadline)
            if not text:
                break
            value = base64.b64decode("" if text == "-" else text)
            rows.append(value, key=None, headers=None, timestamp=0, position=self._next, partition=0)
            count += 1
            self._next += 1
        return Batch(self.topic, 0, rows.finish(), LogOffset(self.topic, 0, self._next)) if count else None

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(60.0)
            if batch is not None:
                yield batch

    def seek(self, where: Where) -> None:
        with self._only:
            self._next = self._cluster.place(self.topic, where, "seek", self._cluster.deadline())

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        return {(self.topic, 0): LogOffset(self.topic, 0, self._next)}

    @property
    def done(self) -> bool:
        return self._stop is not None and self._next >= self._stop

    def _let_go(self, deadline: float) -> None:
        """Nothing is held."""


class ToyAdmin(Closing):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _ask(self, *words: str, timeout: float) -> str:
        return self._cluster.ask(*words, deadline=self._cluster.deadline(timeout))

    def list_topics(self, *, timeout: float = 30.0) -> list[str]:
        return self._ask("LIST", timeout=timeout).split()

    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> TopicInfo:
        end = self._ask("END", topic, timeout=timeout)
        return TopicInfo(topic, (PartitionInfo(0, None),), {"records": end})

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        self._ask("CREATE", topic, timeout=timeout)

    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> None:
        self._ask("DELETE", topic, timeout=timeout)

    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Mapping[TopicPartition, Position]:
        deadline = self._cluster.deadline(timeout)
        self._cluster.end(topic, deadline)
        return {(topic, 0): LogOffset(topic, 0, self._cluster.place(topic, at, "at", deadline))}

    def list_groups(self, *, timeout: float = 30.0) -> list[str]:
        return []

    def close(self, timeout: float = 30.0) -> None:
        """Nothing of its own."""
