"""Records what clients and brokers send: whole frames, kept as they pass and decoded when a test asks for them.

    with DevBroker(["kafka"]) as broker:
        seen = broker.record("kafka")                       # before clients connect; a proxy in front of a real server makes one likewise
        …
        assert [request.message.acks for request in seen.requests("Produce")] == [-1]
        seen.wait("Heartbeat", 3, timeout=5.0)              # until three have come

It keeps a list of frames with time and connection, and for each connection a `Reader` that decodes both directions. Names are those of the
faults: Kafka's requests ("Produce"), Pulsar's fields of BaseCommand ("send", "flow"), RocketMQ's commands ("SendMessage"), ZooKeeper's
operations ("createSession", "getData"); a reply has its request's name.

    | protocol  | message of a request            | message of a reply                | header                                         |
    |-----------|---------------------------------|-----------------------------------|------------------------------------------------|
    | kafka     | ProduceRequest …                | ProduceResponse …                 | RequestHeader, ResponseHeader                  |
    | pulsar    | CommandSend …                   | CommandSendReceipt …              | BaseCommand; `rest`: the entry behind it       |
    | rocketmq  | SendMessageRequest … or None    | None                              | RemotingCommand (code, ext, body)              |
    | zookeeper | CreateRequest …, MultiRequest   | CreateResponse … or None          | RequestHeader, ReplyHeader; None: createSession |

Of a connection that was open before the recording began, requests are kept, and replies to requests that were not recorded are "unknown";
ZooKeeper's are left out, since their frames cannot be decoded without the first one. Frames must be plain (no TLS). This module must not
know a socket, or change what passes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..protocols import Protocol, known

LIMIT = 256 << 20
"""Bytes of frames that a recording keeps at most; more raises UsageError in the test that made it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One frame.

    Attributes:
        at: time.monotonic() when it passed.
        connection: number of its connection, from 0 in the order of their first frames.
        up: whether it went from client to broker.
        name: of the request; see the module.
        version: of the request, 0 where there are none.
        header: see the module.
        message: see the module.
        frame: its bytes, without the length.
        rest: bytes behind the message (Pulsar's entries).
    """

    at: float
    connection: int
    up: bool
    name: str
    version: int
    header: Any
    message: Any
    frame: bytes
    rest: bytes = b""


Decoded = tuple[str, int, Any, Any, bytes]  # name, version, header, message, rest
Reader = Callable[[bool, bytes], Decoded]


class Recording:
    """Frames of one protocol; thread-safe.

    Args:
        protocol: of the frames.
        older: connections that are open already.
    Raises:
        UsageError: frames of this protocol cannot be decoded.
    """

    def __init__(self, protocol: str, older: Iterable[object] = ()) -> None:
        found = known(protocol)
        if found is None or found.frames is None:
            raise UsageError(f"no frames of {protocol!r} can be read")
        self._descriptor: Protocol = found
        self.protocol = protocol
        self._left_out = set(older) if protocol == "zookeeper" else set()
        self._raw: list[tuple[float, object, bool, bytes]] = []
        self._seen: list[Seen] = []
        self._numbers: dict[object, int] = {}
        self._readers: dict[object, Reader] = {}
        self._size = 0
        self._changed = threading.Condition()

    def note(self, connection: object, up: bool, frame: bytes) -> None:
        """Keep a frame; called by what carries it.

        Args:
            connection: any object that is the same for a connection's life. up: from client to broker. frame: bytes without the length.
        """
        if connection in self._left_out:
            return
        with self._changed:
            self._size += len(frame)
            if self._size <= LIMIT:
                self._raw.append((time.monotonic(), connection, up, frame))
            self._changed.notify_all()

    def all(self) -> list[Seen]:
        """Return every frame so far, in order of passing."""
        with self._changed:
            self._decode()
            return list(self._seen)

    def requests(self, name: str | None = None) -> list[Seen]:
        """Return what clients sent: requests of one name, or all."""
        return [seen for seen in self.all() if seen.up and name in (None, seen.name)]

    def replies(self, name: str | None = None) -> list[Seen]:
        """Return what brokers sent: replies to requests of that name (Pulsar: commands of that name), or all."""
        return [seen for seen in self.all() if not seen.up and name in (None, seen.name)]

    def wait(self, name: str, count: int = 1, *, timeout: float, when: Callable[[Seen], bool] = lambda seen: True) -> list[Seen]:
        """Wait until `count` requests of this name, for which `when` holds, were sent; returns all of them so far.

        Args:
            timeout: seconds.
        Raises:
            AssertionError: fewer came in time; the text names what came instead.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                self._decode()
                found = [seen for seen in self._seen if seen.up and seen.name == name and when(seen)]
                if len(found) >= count:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    others = sorted({seen.name for seen in self._seen if seen.up})
                    raise AssertionError(f"{len(found)} of {count} {name} within {timeout} s; sent were: {', '.join(others) or 'none'}")
                self._changed.wait(left)

    def clear(self) -> None:
        """Drop the frames; connections keep their numbers and readers."""
        with self._changed:
            self._decode()
            self._seen.clear()
            self._size = 0

    def _decode(self) -> None:
        if self._size > LIMIT:
            raise UsageError(f"more than {LIMIT} bytes of frames passed; clear the recording in between")
        raw, self._raw = self._raw, []
        for at, connection, up, frame in raw:
            number = self._numbers.setdefault(connection, len(self._numbers))
            reader = self._readers.get(connection)
            if reader is None:
                reader = self._readers[connection] = self._descriptor.frame_reader()
            name, version, header, message, rest = reader(up, frame)
            self._seen.append(Seen(at, number, up, name, version, header, message, frame, rest))


class KafkaFrames:
    """Decodes the frames of one Kafka connection."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[str, int]] = {}

    def __call__(self, up: bool, frame: bytes) -> Decoded:
        """Decode a frame; replies are matched by correlation id."""
        from ..kafka import messages as m
        from ..kafka.codes import API_KEYS

        if up:
            key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
            name = API_KEYS[key]
            kind = getattr(m, f"{name}Request")
            header, start = m.RequestHeader.decode_from(frame, kind.header_version(version))
            self._asked[header.correlation_id] = (name, version)
            return name, version, header, kind.decode_from(frame, version, start=start)[0], b""
        name, version = self._asked.pop(int.from_bytes(frame[:4], "big", signed=True), ("unknown", 0))
        if name == "unknown":
            return name, version, None, None, frame
        kind = getattr(m, f"{name}Response")
        head, start = m.ResponseHeader.decode_from(frame, kind.header_version(version))
        if name == "ApiVersions" and int.from_bytes(frame[start : start + 2], "big", signed=True) == 35:
            version = 0  # a version that the broker does not know is answered in version 0
        return name, version, head, kind.decode_from(frame, version, start=start)[0], b""


class PulsarFrames:
    """Decodes the frames of one Pulsar connection."""

    def __call__(self, up: bool, frame: bytes) -> Decoded:
        """Decode a frame."""
        from ..pulsar.frames import command_name, decode

        base = decode(frame)
        name = command_name(base)
        rest = frame[4 + int.from_bytes(frame[:4], "big") :]
        return name or f"type {base.type}", 0, base, None if name is None else getattr(base, name), rest


class RocketMQFrames:
    """Decodes the frames of one RocketMQ connection."""

    def __init__(self) -> None:
        self._asked: dict[tuple[bool, int], str] = {}

    def __call__(self, up: bool, frame: bytes) -> Decoded:
        """Decode a frame; replies are matched by opaque number and direction."""
        from .._codec import RemotingCommand
        from ..rocketmq import messages as m
        from ..rocketmq.codes import COMMANDS
        from ..rocketmq.remoting import RESPONSE

        command = RemotingCommand.decode(frame)
        if command.flag & RESPONSE:
            return self._asked.pop((not up, command.opaque), "unknown"), 0, command, None, b""
        name = COMMANDS.get(command.code, f"code {command.code}")
        self._asked[up, command.opaque] = name
        kind = getattr(m, f"{name}Request", None)
        return name, 0, command, None if kind is None else kind.from_ext(command.ext), b""


class ZooKeeperFrames:
    """Decodes the frames of one ZooKeeper connection, from its first one on."""

    def __init__(self) -> None:
        self._asked: dict[int, list[str]] = {}
        self._shaken = {True: False, False: False}

    def __call__(self, up: bool, frame: bytes) -> Decoded:
        """Decode a frame; replies are matched by xid."""
        from ..zookeeper import messages as m
        from ..zookeeper.codes import OPERATIONS
        from ..zookeeper.lists import MultiRequest, MultiResponse

        if not self._shaken[up]:
            self._shaken[up] = True
            whole = frame if len(frame) in (45, 37) else frame + b"\0"  # old peers leave the last byte out
            record = (m.ConnectRequest if up else m.ConnectResponse).decode(whole)
            return "createSession", 0, None, record, b""
        if up:
            header, at = m.RequestHeader.decode_from(frame)
            name = next((name for name, facts in OPERATIONS.items() if facts.code == header.type), f"operation {header.type}")
            self._asked.setdefault(header.xid, []).append(name)
            if name in ("multi", "multiRead"):
                return name, 0, header, MultiRequest.decode(frame, at), b""
            kind = OPERATIONS[name].request if name in OPERATIONS else None
            return name, 0, header, None if kind is None else getattr(m, kind).decode_from(frame, start=at)[0], b""
        reply, at = m.ReplyHeader.decode_from(frame)
        if reply.xid == -1:
            return "notification", 0, reply, m.WatcherEvent.decode_from(frame, start=at)[0], b""
        names = self._asked.get(reply.xid) or ["unknown"]
        name = names.pop(0)
        if reply.err or at == len(frame):
            return name, 0, reply, None, b""
        if name in ("multi", "multiRead"):
            return name, 0, reply, MultiResponse.decode(frame, at), b""
        answer = OPERATIONS[name].reply if name in OPERATIONS else None
        return name, 0, reply, None if answer is None else getattr(m, answer).decode_from(frame, start=at)[0], b""
