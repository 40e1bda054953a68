"""A broker on a string: answers CONNECT, PARTITIONED_METADATA, LOOKUP and PRODUCER, and whatever a test tells it to.

It keeps every command, with the time at which it came, and the entry behind each SEND: tests ask what was sent, how often and when.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from wireproto._codec import PulsarBatchBuilder
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.frames import body, command_name, decode, encode

Answer = Callable[["Link", Any], Any]


class Link:
    """One connection, as the server sees it."""

    def __init__(self, server: PulsarServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a second answer waits 40 ms for the acknowledgement of the first
        self.connect: Any = None
        self.alive = True

    def send(self, command: Any) -> None:
        frame = encode(command)
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)

    def message(self, consumer: int, number: int, entry: bytes, ledger: int = 7, **fields: Any) -> None:
        """MESSAGE with a stored entry."""
        place = api.MessageIdData(ledgerId=ledger, entryId=number)
        frame = encode(api.CommandMessage(consumer_id=consumer, message_id=place, **fields)) + entry
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)

    def close(self) -> None:
        self.alive = False
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        with suppress(OSError, EOFError):
            while self.alive:
                size = int.from_bytes(self._read(4), "big")
                frame = self._read(size)
                base = decode(frame)
                name, command = command_name(base), body(base)
                with self.server.came:
                    self.server.seen.append((name, command))
                    self.server.times.append(time.monotonic())
                    if name == "send":
                        self.server.entries.append(frame[4 + int.from_bytes(frame[:4], "big") :])
                    self.server.came.notify_all()
                answer = self.server.answers.get(str(name))
                if answer is not None:
                    reply = answer(self, command)
                    for one in reply if isinstance(reply, list) else [reply]:
                        if one is not None:
                            self.send(one)
        self.sock.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


class PulsarServer:
    """Listens on a free port; `answers` maps a command's field name to what is sent back (a command, a list of them, or None)."""

    def __init__(self, **answers: Answer) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen: list[tuple[str | None, Any]] = []
        self.times: list[float] = []
        self.entries: list[bytes] = []
        self.came = threading.Condition()
        self.links: list[Link] = []
        self.answers: dict[str, Answer] = {
            "connect": self._connected,
            "partitionMetadata": lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
                request_id=ask.request_id, partitions=0, response="Success"
            ),
            "lookupTopic": lambda link, ask: self.here(ask),
            "producer": lambda link, ask: api.CommandProducerSuccess(request_id=ask.request_id, producer_name="p-1"),
            "close_producer": lambda link, ask: api.CommandSuccess(request_id=ask.request_id),
            "getLastMessageId": standing(-1),
            "close_consumer": lambda link, ask: api.CommandSuccess(request_id=ask.request_id),
            "send": lambda link, send: receipt(send, self.count("send")),
        } | answers
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    def here(self, ask: Any, **fields: Any) -> Any:
        """A LOOKUP_RESPONSE that names this server."""
        given = {"brokerServiceUrl": self.url, "response": "Connect", "authoritative": True} | fields
        return api.CommandLookupTopicResponse(request_id=ask.request_id, **given)

    def count(self, name: str) -> int:
        return sum(1 for seen, _ in self.seen if seen == name)

    def commands(self, name: str) -> list[Any]:
        return [command for seen, command in self.seen if seen == name]

    def moments(self, name: str) -> list[float]:
        """When the commands of a name came (time.monotonic())."""
        return [at for at, (seen, _) in zip(self.times, self.seen, strict=False) if seen == name]

    def wait(self, name: str, count: int = 1, timeout: float = 20.0) -> Any:
        """Until `count` commands of a name have come; the last of them."""
        with self.came:
            assert self.came.wait_for(lambda: self.count(name) >= count, timeout), f"{self.count(name)} of {count} {name} came"
        return self.commands(name)[count - 1]

    @staticmethod
    def _connected(link: Link, ask: Any) -> Any:
        link.connect = ask
        return api.CommandConnected(server_version="a string", protocol_version=21, max_message_size=1 << 20)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                link = Link(self, sock)
                self.links.append(link)
                threading.Thread(target=link.run, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for link in self.links:
            link.close()


def success(link: Link, ask: Any) -> Any:
    """SUCCESS for any request."""
    return api.CommandSuccess(request_id=ask.request_id)


def subscribed(link: Link, ask: Any) -> Any:
    """SUCCESS, and to a failover consumer that it is fed, as brokers say it before they send anything."""
    fed = api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=True)
    return [success(link, ask), fed] if ask.subType == api.CommandSubscribe.Failover else success(link, ask)


def fed(link: Link, ask: Any) -> None:
    """SUCCESS, and that this member is fed, whatever it is."""
    link.send(success(link, ask))
    link.send(api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=True))


def standing(last: int, mark: int = -1) -> Answer:
    """LAST_MESSAGE_ID: the log's last entry, and up to which one the subscription has acknowledged all."""

    def answer(link: Link, ask: Any) -> Any:
        end, done = (api.MessageIdData(ledgerId=7, entryId=entry & (2**64 - 1)) for entry in (last, mark))
        return api.CommandGetLastMessageIdResponse(request_id=ask.request_id, last_message_id=end, consumer_mark_delete_position=done)

    return answer


def acknowledged(link: Link, ask: Any) -> Any:
    """ACK_RESPONSE where one is asked for."""
    return api.CommandAckResponse(consumer_id=ask.consumer_id, request_id=ask.request_id) if ask.HasField("request_id") else None


def stored(values: Sequence[bytes | None], sequence: int = 0, **options: Any) -> bytes:
    """An entry as a broker stores it: one record, or a batch of several."""
    builder = PulsarBatchBuilder("p", **({"batched": len(values) > 1} | options))
    for value in values:
        builder.append(value)
    send = b"".join(builder.finish(1, sequence, 1000 + sequence))
    return send[4 + int.from_bytes(send[:4], "big") :]


def metadata_of(entry: bytes) -> tuple[Any, bytes]:
    """MessageMetadata and payload of an entry that came with a SEND."""
    size = int.from_bytes(entry[6:10], "big")
    return api.MessageMetadata.FromString(entry[10 : 10 + size]), entry[10 + size :]


def receipt(send: Any, entry: int, ledger: int = 7) -> Any:
    """SEND_RECEIPT for a SEND."""
    place = api.MessageIdData(ledgerId=ledger, entryId=entry)
    return api.CommandSendReceipt(producer_id=send.producer_id, sequence_id=send.sequence_id, message_id=place)
