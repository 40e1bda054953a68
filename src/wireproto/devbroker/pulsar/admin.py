"""Serves the admin HTTP interface, as much of it as clients use to create, list and delete topics.

    GET    /admin/v2/namespaces/TENANT                          namespaces
    GET    /admin/v2/namespaces/TENANT/NS/deduplication         null, true or false; POST: body true or false; DELETE: null again
    GET    /admin/v2/persistent/TENANT/NS                       topics, partitions one by one;  …/NS/partitioned: partitioned ones
    PUT    /admin/v2/persistent/TENANT/NS/TOPIC                 a topic that is not partitioned;  DELETE: gone
    PUT    /admin/v2/persistent/TENANT/NS/TOPIC/partitions      body: how many;  POST: more;  GET: {"partitions": n};  DELETE: gone
    PUT    …/TOPIC/unload    POST …/TOPIC/terminate    GET …/TOPIC/stats, …/subscriptions, …/internalStats
    DELETE …/TOPIC/subscription/NAME
    POST   /admin/v3/transactions/abortTransaction/MOST/LEAST

Answers are JSON; an error is ``{"reason": …}`` with the status that a broker uses. At most `LIMIT` bytes of a request's body are read.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .buffer import TxnId

if TYPE_CHECKING:
    from .state import PulsarState
    from .subscription import Consumer, Subscription
    from .topic import Topic

LIMIT = 64 << 10
REASONS = {200: "OK", 204: "No Content", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict"}


class HttpError(Exception):
    """An answer that is an error.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class AdminHttp:
    """Serves the connections of one listener."""

    def __init__(self, side: PulsarState) -> None:
        self.side = side

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while (request := await read_request(reader)) is not None:
                method, target, headers, body = request
                try:
                    status, answer = self.answer(method, target, body)
                except HttpError as why:
                    status, answer = why.status, {"reason": str(why)}
                data = b"" if answer is None else json.dumps(answer).encode()
                writer.write(
                    f"HTTP/1.1 {status} {REASONS.get(status, '')}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(data)}\r\n\r\n".encode()
                    + data
                )
                await writer.drain()
                if headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client went away, or does not speak HTTP
        finally:
            writer.close()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """Return status and JSON value for a request; raises HttpError."""
        parts = [unquote(part) for part in urlsplit(target).path.strip("/").split("/")]
        if parts[:4] == ["admin", "v3", "transactions", "abortTransaction"] and method == "POST":
            return self._abort_transaction(parts[4:])
        if parts[:2] != ["admin", "v2"]:
            raise HttpError(404, "no such resource")
        kind, *rest = parts[2:]
        if kind == "namespaces" and method == "GET" and len(rest) == 1:
            return 200, ["public/default"] if rest == ["public"] else []
        if kind == "namespaces" and len(rest) == 3 and rest[2] == "deduplication":
            return self._deduplication(method, f"{rest[0]}/{rest[1]}", body)
        if kind == "clusters":
            if method == "GET" and not rest:
                return 200, ["dev"]
            raise HttpError(405, f"the dev broker does not serve {method} of a cluster")
        if kind not in ("persistent", "non-persistent") or len(rest) < 2:
            raise HttpError(404, "no such resource")
        namespace = f"{rest[0]}/{rest[1]}"
        if method == "GET" and len(rest) == 2:
            return 200, self.side.in_namespace(namespace, kind)
        if method == "GET" and rest[2:] == ["partitioned"]:
            return 200, [name for name in self.side.partitioned if name.startswith(f"{kind}://{namespace}/")]
        return self._topic(method, f"{kind}://{namespace}/{rest[2]}", rest[3:], body)

    def _abort_transaction(self, words: list[str]) -> tuple[int, Any]:
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise HttpError(404, "no such resource")
        one = TxnId(*map(int, words))
        if not self.side.coordinator.known(one):
            raise HttpError(404, "Transaction not found")
        self.side.coordinator.end(one, committed=False)
        return 204, None

    def _deduplication(self, method: str, namespace: str, body: bytes) -> tuple[int, Any]:
        if method == "GET":
            return 200, self.side.deduplicates.get(namespace)
        if method == "DELETE":
            self.side.deduplicate(namespace, None)
        elif method == "POST" and body.strip() in (b"true", b"false"):
            self.side.deduplicate(namespace, body.strip() == b"true")
        else:
            raise HttpError(400 if method == "POST" else 405, "POST true or false, GET or DELETE")
        return 204, None

    def _topic(self, method: str, name: str, rest: list[str], body: bytes) -> tuple[int, Any]:
        if not rest:
            return self._whole(method, name)
        if rest == ["partitions"]:
            return self._partitions(method, name, body)
        if (method, rest) == ("GET", ["subscriptions"]) and name in self.side.partitioned:
            parts = [self.side.topics[f"{name}-partition-{number}"] for number in range(self.side.partitioned[name])]
            return 200, sorted({found for part in parts for found in part.subscriptions})
        topic = self.side.topics.get(name)
        if topic is None:
            raise HttpError(404, f"Topic {name} not found")
        if (method, rest) == ("PUT", ["unload"]):
            self.side.unload(topic)
            return 204, None
        if (method, rest) == ("POST", ["terminate"]):
            self.side.terminate(topic)
            return 200, {"ledgerId": topic.ledger, "entryId": topic.end - 1, "partitionIndex": -1}
        if (method, rest) == ("GET", ["subscriptions"]):
            return 200, list(topic.subscriptions)
        if (method, rest) == ("GET", ["stats"]):
            return 200, stats(topic)
        if (method, rest) == ("GET", ["internalStats"]):
            size = sum(len(entry.data) for entry in topic.log)
            cursors = {name: {"markDeletePosition": f"{topic.ledger}:{s.mark - 1}"} for name, s in topic.subscriptions.items()}
            ledgers = [{"ledgerId": topic.ledger, "entries": topic.end, "size": size}]
            return 200, {"ledgers": ledgers, "numberOfEntries": topic.end, "cursors": cursors}
        if method == "DELETE" and len(rest) == 2 and rest[0] == "subscription":
            subscription = topic.subscriptions.get(rest[1])
            if subscription is None:
                raise HttpError(404, f"Subscription {rest[1]} not found")
            if subscription.consumers:
                raise HttpError(412, "Subscription has active connected consumers")
            del topic.subscriptions[rest[1]]
            return 204, None
        raise HttpError(405, f"the dev broker does not serve {method} …/{'/'.join(rest)}")

    def _whole(self, method: str, name: str) -> tuple[int, Any]:
        if method == "PUT":
            if self.side.partitions(name) is not None:
                raise HttpError(409, "This topic already exists")
            self.side.create(name)
            return 204, None
        if method == "DELETE":
            if name not in self.side.topics:
                raise HttpError(404, f"Topic {name} not found")
            self.side.delete(name)
            return 204, None
        raise HttpError(405, f"the dev broker does not serve {method} of a topic")

    def _partitions(self, method: str, name: str, body: bytes) -> tuple[int, Any]:
        if method == "GET":
            return 200, {"partitions": self.side.partitioned.get(name, 0), "deleted": False}
        if method == "DELETE":
            count = self.side.partitioned.pop(name, None)
            if count is None:
                raise HttpError(404, f"Partitioned Topic {name} not found")
            for number in range(count):
                self.side.delete(f"{name}-partition-{number}")
            return 204, None
        try:
            asked = json.loads(body)
            count = asked["partitions"] if isinstance(asked, dict) else int(asked)
        except (ValueError, KeyError, TypeError) as why:
            raise HttpError(400, "the body is the number of partitions") from why
        if method == "PUT":
            if self.side.partitions(name) is not None:
                raise HttpError(409, "This topic already exists")
            if count <= 0:
                raise HttpError(406, "Number of partitions should be more than 0")
        elif count <= self.side.partitioned.get(name, count):
            raise HttpError(409, "the number of partitions can only grow")
        self.side.create_partitioned(name, count)
        return 204, None


def stats(topic: Topic) -> dict[str, Any]:
    """Return what `GET …/stats` answers, as far as it is known here."""
    return {
        "msgInCounter": sum(facts.messages for facts in topic.facts),
        "deduplicationStatus": "Disabled" if topic.dedup is None else "Enabled",
        "storageSize": sum(len(entry.data) for entry in topic.log),
        "publishers": [{"producerName": name} for name in topic.producers],
        "subscriptions": {
            name: {
                "msgBacklog": subscription.backlog,
                "type": ("Exclusive", "Shared", "Failover", "Key_Shared")[subscription.kind],
                "consumers": [consumer_stats(subscription, consumer) for consumer in subscription.consumers],
                **({} if subscription.active is None else {"activeConsumerName": subscription.active.name}),
            }
            for name, subscription in topic.subscriptions.items()
        },
    }


def consumer_stats(subscription: Subscription, consumer: Consumer) -> dict[str, Any]:
    """Return one consumer of `stats`."""
    found: dict[str, Any] = {"consumerName": consumer.name, "availablePermits": consumer.permits}
    if subscription.keys is not None:
        found["keyHashRangeArrays"] = subscription.keys.ranges(consumer)
    return found


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes] | None:
    """Return method, target, headers and body of the next request, or None at the end."""
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
        if len(headers) > 100:
            raise ValueError("too many headers")
    size = int(headers.get("content-length", "0"))
    if not 0 <= size <= LIMIT:
        raise ValueError(f"a body of {size} bytes")
    return method, target, headers, await reader.readexactly(size)
