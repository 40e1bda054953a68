"""An address of a Kafka node that loses and holds up by chance what is sent to it: a proxy that knows which frame is a Produce.

    fate of a Produce    what the client sees        what the broker sees
    passed               its answer                  it
    lost                 a connection that is cut    nothing
    unanswered           a connection that is cut    it
    held                 a connection that is cut    it, much later, by another connection, behind what was sent meanwhile
    silent               nothing, till it times out  it, or nothing

What was held is not delivered in the one moment that docs/kafka.md names: between a refusal for being out of order and the first batch of
the next epoch no producer could help what comes late. Everything else goes through as it comes.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass

from wireproto.kafka.codes import InvalidProducerEpoch, OutOfOrderSequenceNumber
from wireproto.kafka.messages import ProduceRequest, ProduceResponse

_PRODUCE = 0
_ENDED = (OutOfOrderSequenceNumber.code, InvalidProducerEpoch.code)


@dataclass(frozen=True)
class Produce:
    """A request, and the producer's epoch by partition."""

    frame: bytes
    version: int
    epochs: dict[int, int]


class Unruly:
    """Attributes: `port` where it listens; `fates` how often what happened. Behind a few mishaps everything passes."""

    def __init__(self, to: str, seed: int) -> None:
        host, _, port = to.rpartition(":")
        self._to = host, int(port)
        self._chance = random.Random(seed)
        self._rough = self._chance.choice((0.1, 0.3, 0.6))
        self._mishaps = self._chance.randrange(2, 16)
        self._lock = threading.Lock()  # one request at a time reaches the broker, as of one connection
        self._spare = socket.create_connection(self._to)
        self._newest = 0  # connections with a Produce so far: a client has one at a time
        self._late: list[Produce] = []
        self._between: dict[int, int] = {}  # partition: the epoch that is over, and none after it is proven
        self.fates: dict[str, int] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        mine = 0
        with suppress(OSError), sock, socket.create_connection(self._to) as there:
            while (frame := read_frame(sock)) is not None:
                produce = _produce(frame)
                if produce is None:
                    answer: bytes | None = exchange(there, frame)
                else:
                    with self._lock:
                        self._newest += not mine
                        mine = mine or self._newest
                        if mine < self._newest:  # the client has given it up, though this thread has not come so far
                            self._late.append(produce)
                            continue
                        answer = self._handle(there, produce)
                if answer is None:
                    return
                if answer:
                    write_frame(sock, answer)

    def _handle(self, there: socket.socket, produce: Produce) -> bytes | None:
        """The answer for the client; empty: none; None: its connection is cut."""
        fate = "passed"
        if self._mishaps and self._chance.random() < self._rough:
            self._mishaps -= 1
            fate = self._chance.choices(("lost", "unanswered", "held", "silent"), (3, 3, 5, 0.4))[0]
        self.fates[fate] = self.fates.get(fate, 0) + 1
        if fate == "held":
            self._late.append(produce)
        answer: bytes | None = b""
        if fate in ("passed", "unanswered") or (fate == "silent" and self._chance.random() < 0.5):
            answer = self._deliver(there, produce)
        if self._chance.random() < 0.3:
            self._release()
        return answer if fate == "passed" else b"" if fate == "silent" else None

    def _deliver(self, there: socket.socket, produce: Produce) -> bytes:
        answer = exchange(there, produce.frame)
        reply = ProduceResponse.decode(answer, produce.version, start=5)
        for part in (part for topic in reply.responses for part in topic.partition_responses):
            epoch = produce.epochs[part.index]
            if part.error_code in _ENDED:
                self._between[part.index] = max(epoch, self._between.get(part.index, -1))
            elif not part.error_code and epoch >= self._between.get(part.index, -1):
                self._between.pop(part.index, None)
        return answer

    def _release(self) -> None:
        """Deliver one that was held; nobody hears of the answer."""
        free = [produce for produce in self._late if not produce.epochs.keys() & self._between.keys()]
        if free:
            produce = self._chance.choice(free)
            self._late.remove(produce)
            self.fates["late"] = self.fates.get("late", 0) + 1
            exchange(self._spare, produce.frame)

    def close(self) -> None:
        """Deliver the rest, and listen no more."""
        with self._lock:
            for _ in range(len(self._late)):
                self._release()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._spare.close()


def _produce(frame: bytes) -> Produce | None:
    key, version, _, named = struct.unpack_from(">hhih", frame)
    if key != _PRODUCE:
        return None
    assert version >= ProduceRequest.FLEXIBLE_FROM
    request = ProduceRequest.decode(frame, version, start=10 + max(named, 0) + 1)
    parts = [part for topic in request.topic_data for part in topic.partition_data]
    return Produce(frame, version, {part.index: struct.unpack_from(">h", bytes(part.records or b""), 51)[0] for part in parts})


def exchange(sock: socket.socket, frame: bytes) -> bytes:
    write_frame(sock, frame)
    answer = read_frame(sock)
    if answer is None:
        raise ConnectionError("the broker hung up")
    return answer


def write_frame(sock: socket.socket, frame: bytes) -> None:
    sock.sendall(struct.pack(">i", len(frame)) + frame)


def read_frame(sock: socket.socket) -> bytes | None:
    """The next frame; None at the end."""
    head = _exactly(sock, 4)
    return None if head is None else _exactly(sock, int.from_bytes(head, "big"))


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return None
        data += more
    return data
