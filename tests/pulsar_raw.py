"""Bare commands to a Pulsar broker, a real one or the embedded one: what comes back is kept as it came.

What it is: `Place`, a broker with its admin interface; `Raw`, one connection; `Worker` and `Sender`, a consumer and a producer on one of
their own. May assume: the broker takes any client. Must not: hide what a broker does; PING alone is answered, unless it shall be silent.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from patience import until
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.frames import body, command_name, decode, encode

_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """A broker.

    Attributes:
        address: ``host:port`` of the binary protocol. admin: URL of the admin interface. links: the connections that `close` closes.
    """

    address: str
    admin: str
    links: list[Raw] = field(default_factory=list)

    def close(self) -> None:
        """Close what tests have opened."""
        while self.links:
            self.links.pop().close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the admin interface."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.admin}/admin/v2/{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30.0) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def make(self, name: str = "", partitions: int = 0) -> str:
        """A new topic's full name."""
        name = name or f"raw-{os.getpid()}-{next(_numbers)}"
        path = f"persistent/public/default/{name}"
        self.call("PUT", path + ("/partitions" if partitions else ""), partitions or None)
        return f"persistent://public/default/{name}"

    def shares(self, topic: str, group: str = "g") -> Any:
        """What the broker's statistics say of a subscription."""
        return self.call("GET", topic.replace("://", "/") + "/stats")["subscriptions"][group]


class Raw:
    """One connection, from CONNECT on."""

    def __init__(self, place: Place, *, greet: bool = True, pong: bool = True) -> None:
        host, port = place.address.rsplit(":", 1)
        self.came: list[Any] = []
        self.ended = threading.Event()
        self.pong = pong
        self._requests = itertools.count(1)
        self._lock = threading.Lock()
        self._sock = socket.create_connection((host, int(port)), timeout=60.0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        place.links.append(self)
        if greet:
            self.tell(api.CommandConnect(client_version="raw", protocol_version=21))
            until(lambda: self.named("CommandConnected"))

    def tell(self, command: Any, entry: bytes = b"") -> None:
        frame = encode(command) + entry
        with self._lock:
            self._sock.sendall(len(frame).to_bytes(4, "big") + frame)

    def ask(self, command: Any) -> Any:
        """The answer to a request."""
        command.request_id = number = next(self._requests)
        self.tell(command)
        found: list[Any] = []

        def answered() -> bool:
            found.extend(one for one in self.came if getattr(one, "request_id", None) == number)
            return bool(found)

        until(answered, f"{type(command).__name__} was not answered")
        return found[0]

    def look_up(self, topic: str) -> None:
        """Have the broker take the topic, as clients do before they use it."""
        found = self.ask(api.CommandLookupTopic(topic=topic, request_id=0, authoritative=False))
        assert found.response == api.CommandLookupTopicResponse.Connect, found

    def named(self, name: str) -> list[Any]:
        """The commands of a name that came."""
        return [one for one in list(self.came) if one.DESCRIPTOR.name == name]

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._sock.close()

    def _read(self) -> None:
        with suppress(OSError), self._sock.makefile("rb") as answers:
            while len(size := answers.read(4)) == 4:
                base = decode(answers.read(int.from_bytes(size, "big")))
                if command_name(base) == "ping" and self.pong:
                    self.tell(api.CommandPong())
                self.came.append(body(base))
        self.ended.set()


class Worker:
    """One consumer of the subscription ``g``; `refusal` says why there is none."""

    def __init__(self, place: Place, topic: str, kind: Any, name: str = "", *, permits: int = 1000, **fields: Any) -> None:
        self.link = Raw(place)
        self.name = name
        self.link.look_up(topic)
        command = api.CommandSubscribe(topic=topic, subscription="g", subType=kind, consumer_id=1, request_id=0, **fields)
        command.initialPosition = api.CommandSubscribe.InitialPosition.Earliest
        if name:
            command.consumer_name = name
        answer = self.link.ask(command)
        self.refusal = answer if answer.DESCRIPTOR.name == "CommandError" else None
        if self.refusal is None and permits:
            self.flow(permits)

    def flow(self, permits: int) -> None:
        self.link.tell(api.CommandFlow(consumer_id=1, messagePermits=permits))

    @property
    def got(self) -> list[int]:
        """Numbers of the entries that came, in their order."""
        return [one.message_id.entryId for one in self.link.named("CommandMessage")]

    @property
    def told(self) -> list[bool]:
        """Whether it is the active one, each time that it was told."""
        return [one.is_active for one in self.link.named("CommandActiveConsumerChange")]

    def ack(self, *entries: int, bits: tuple[int, ...] = (), cumulative: bool = False) -> None:
        """Returns when the broker has it."""
        kind = api.CommandAck.Cumulative if cumulative else api.CommandAck.Individual
        self.link.ask(api.CommandAck(consumer_id=1, ack_type=kind, message_id=[self._place(entry, bits) for entry in entries]))

    def nack(self, *entries: int) -> None:
        ids = [self._place(entry) for entry in entries]
        self.link.tell(api.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids))

    def leave(self) -> None:
        self.link.ask(api.CommandCloseConsumer(consumer_id=1, request_id=0))
        self.link.close()

    def _place(self, entry: int, bits: tuple[int, ...] = ()) -> Any:
        seen = {one.message_id.entryId: one.message_id for one in self.link.named("CommandMessage")}
        return api.MessageIdData(ledgerId=seen[entry].ledgerId, entryId=entry, ack_set=bits)


class Sender:
    """A producer on a connection of its own; entries are numbered from 0 on."""

    def __init__(self, place: Place, topic: str) -> None:
        self.link = Raw(place)
        self.sent = 0
        self.link.look_up(topic)
        answer = self.link.ask(api.CommandProducer(topic=topic, producer_id=1, request_id=0, producer_name="raw"))
        assert answer.DESCRIPTOR.name == "CommandProducerSuccess", answer

    def send(self, key: bytes, values: int = 1) -> int:
        """An entry of a key, of so many messages in a batch; its number, when it is stored."""
        number, self.sent = self.sent, self.sent + 1
        meta = api.MessageMetadata(producer_name="raw", sequence_id=number, publish_time=1, ordering_key=key)
        payload = b"x"
        if values > 1:
            single = api.SingleMessageMetadata(payload_size=1).SerializeToString()
            payload = (len(single).to_bytes(4, "big") + single + b"x") * values
            meta.num_messages_in_batch = values
        head = meta.SerializeToString()
        entry = len(head).to_bytes(4, "big") + head + payload
        self.link.tell(api.CommandSend(producer_id=1, sequence_id=number, num_messages=values), entry)
        until(lambda: len(self.link.named("CommandSendReceipt")) == self.sent)
        return number
