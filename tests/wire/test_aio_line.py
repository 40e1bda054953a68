"""Records on their way through an asyncio producer, one by one: the line in front of it, whose turn it is, what awaiting and closing do."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import wireproto
import wireproto.aio
from pulsar_server import Link, PulsarServer, metadata_of, receipt
from wireproto._net import Event
from wireproto.aio.plain import PlainProducer
from wireproto.deadlines import deadline_after
from wireproto.errors import BufferFull, Closed, TimedOut, UsageError, WireprotoError
from wireproto.net.task import Steps, operation
from wireproto.pulsar import PulsarApi_pb2 as api

UNIT = 1024
LIMIT = 64 * UNIT
VALUE = bytes(UNIT - 128)
"""A record that the line counts with `UNIT` bytes."""
NEVER = 3600.0
Body = Callable[[wireproto.aio.Client, PulsarServer], Awaitable[Any]]


def run(body: Body, answers: dict[str, Any] | None = None, **options: Any) -> PulsarServer:
    """Whatever the event loop is told of that nobody caught is an error, too."""
    told: list[Any] = []

    async def main(server: PulsarServer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with wireproto.aio.connect(server.url, **options) as client:
            await asyncio.wait_for(body(client, server), 60.0)
        await turns()

    with PulsarServer(**answers or {}) as server:
        asyncio.run(main(server))
    assert not told
    return server


async def turns(count: int = 30) -> None:
    """Let all run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def came(server: PulsarServer, name: str, count: int) -> None:
    await asyncio.to_thread(server.wait, name, count)


def unanswered(link: Link, ask: Any) -> None:
    return None


def store(server: PulsarServer, number: int) -> None:
    """The receipt of one SEND."""
    server.links[-1].send(receipt(server.commands("send")[number], number))


def waiting(futures: list[Any]) -> int:
    return sum("waits for room" in repr(future) for future in futures)


def test_the_line_takes_as_much_as_it_may_hold_and_there_is_room_again_at_half_of_it() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = await client.producer("t", batching=False)
        futures: list[Any] = []

        def fill() -> None:
            while len(futures) < 1000:
                futures.append(out.send(bytes(UNIT - 36)))  # and 36 bytes that the core counts for a record

        with pytest.raises(BufferFull, match=f"{LIMIT} bytes wait for room"):
            fill()
        assert waiting(futures) == LIMIT // UNIT
        room = asyncio.ensure_future(out.room())
        at_half = False
        for number in range(len(futures)):
            await turns()
            if waiting(futures) <= LIMIT // 2 // UNIT:
                at_half |= waiting(futures) == LIMIT // 2 // UNIT
                await asyncio.wait_for(room, 30.0)
            else:
                assert not room.done()
            await came(server, "send", number + 1)
            store(server, number)
            await asyncio.wait_for(asyncio.shield(futures[number]), 30.0)
        assert at_half

    run(body, {"send": unanswered}, buffer_memory=LIMIT)


def test_a_record_from_before_the_producer_was_made_waits_for_room_and_keeps_its_turn() -> None:
    """Another producer of the client has the memory."""

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        first = await client.producer("first", batching=False)
        held = [first.send(bytes(5000)) for _ in range(8)]
        await came(server, "send", 8)
        out = client.producer("t", batching=False)
        early = out.send(b"early".ljust(30_000))
        await out
        await turns()
        assert not early.done()
        late = out.send(b"late")
        await turns()
        assert server.count("send") == 8
        server.answers["send"] = lambda link, send: receipt(send, server.count("send"))
        for number in range(8):
            store(server, number)
        await asyncio.wait_for(asyncio.gather(*held, early, late), 30.0)
        assert [metadata_of(entry)[1].strip() for entry in server.entries[8:]] == [b"early", b"late"]

    run(body, {"send": unanswered}, buffer_memory=LIMIT)


def test_once_it_is_made_records_go_straight_to_the_core() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = client.producer("t")
        before = out.send
        await out.send(b"x")
        assert before.__self__ is out
        assert type(out.send.__self__).__name__ == "Appender"
        assert (await out.send(b"y")).entry == 2

    run(body)


def test_a_record_that_is_awaited_leaves_at_once_and_takes_along_what_is_before_it() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = await client.producer("t")
        alone = out.send(b"a")
        await turns()
        assert server.count("send") == 0
        assert await out.send(b"b") is not None
        assert alone.done()
        assert server.count("send") == 1

    run(body, linger=NEVER)


def test_a_record_that_nobody_awaits_leaves_after_its_linger() -> None:
    """Nothing else happens meanwhile: the engine's timer is the event loop's."""

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = await client.producer("t")
        for count in (1, 2):
            sent = out.send(b"a")
            await came(server, "send", count)
            await asyncio.wait_for(sent, 30.0)

    run(body, linger=0.05)


def test_a_producer_that_closes_takes_nothing_more() -> None:
    """Also while what it took is not acknowledged yet."""

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = await client.producer("t")
        sent = out.send(b"a")
        closing = asyncio.ensure_future(out.close(30.0))
        await came(server, "send", 1)
        assert not closing.done()
        with pytest.raises(Closed, match="the producer is closed"):
            out.send(b"b")
        store(server, 0)
        await asyncio.wait_for(closing, 30.0)
        assert sent.done()
        with pytest.raises(Closed, match="the producer is closed"):
            out.send(b"c")
        assert server.count("send") == 1

    run(body, {"send": unanswered})


def test_a_producer_that_closes_in_the_midst_of_a_flush_takes_nothing_more() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = await client.producer("t")
        sent = out.send(b"a")
        flushing = asyncio.ensure_future(out.flush(30.0))
        await came(server, "send", 1)
        later = out.send(b"later")  # the batch that it is in has room
        closing = asyncio.ensure_future(out.close(30.0))
        for _ in range(10):
            await asyncio.sleep(0)
            with pytest.raises(Closed, match="the producer is closed"):
                out.send(b"b")
        with pytest.raises(Closed):
            await asyncio.wait_for(flushing, 30.0)
        await came(server, "send", 2)
        store(server, 0)
        store(server, 1)
        await asyncio.wait_for(closing, 30.0)
        assert [(await one).entry for one in (sent, later)] == [0, 1]
        assert server.count("send") == 2

    run(body, {"send": unanswered}, linger=NEVER)


def test_a_record_that_comes_as_the_producer_is_made_goes_behind_those_from_before() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = client.producer("t", batching=False)
        before, early = out.send, [out.send(b"0"), out.send(b"1")]
        while out.send == before:
            await asyncio.sleep(0)
        late = out.send(b"2")
        await asyncio.gather(*early, late)
        assert [metadata_of(entry)[1] for entry in server.entries] == [b"0", b"1", b"2"]

    run(body)


def test_why_a_producer_cannot_be_made_is_told_by_its_futures_alone() -> None:
    def missing(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, response="Failed", error="TopicNotFound")

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = client.producer("t")
        ends = await asyncio.gather(out.send(b"a"), out.send(b"b"), return_exceptions=True)
        assert [type(end).__name__ for end in ends] == ["TopicNotFound"] * 2
        await out.close()

    run(body, {"partitionMetadata": missing})


# -- a producer that lets records in itself -------------------------------------------------------------------------------


class Place:
    """A receipt."""

    def __init__(self, place: Any) -> None:
        self.done = place is not None
        self._place = place

    def position(self, timeout: float) -> Any:
        if isinstance(self._place, Exception):
            raise self._place
        return self._place


class Gate:
    """A role that takes a record when it is told to; what becomes of each is said beforehand (None: nobody hears of it)."""

    def __init__(self, loop: Any, *ends: Any) -> None:
        self._loop = loop
        self._ends = deque(ends)
        self._turns: deque[Any] = deque()
        self.taken: list[bytes] = []
        self.given: list[tuple[str, float]] = []

    def open(self) -> None:
        self._turns.popleft().set()

    def sending(self, value: bytes, *, timeout: float, **given: Any) -> Steps[Place]:
        turn = Event(self._loop)
        self._turns.append(turn)
        yield turn
        self.taken.append(value)
        return Place(self._ends.popleft() if self._ends else len(self.taken))

    def settling(self, until: float, place: Place) -> Steps[None]:
        yield Event(self._loop)

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        self.given.append(("flush", timeout))
        yield from ()

    @operation
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Steps[list[Place]]:
        self.given.append(("send_batch", timeout))
        yield from ()
        return [Place(place) for place in columns]

    @operation
    def close(self, timeout: float = 30.0) -> Steps[None]:
        self.given.append(("close", timeout))
        yield from ()


def plain(client: wireproto.aio.Client, limit: int, *ends: Any) -> tuple[PlainProducer, Gate]:
    host = client._here()
    gate = Gate(client._made.loop, *ends)
    return PlainProducer(host, "producer", partial(_made, gate), lambda role: None, "t", limit), gate


def _made(role: Any) -> Steps[Any]:
    yield from ()
    return role


def test_a_plain_line_takes_as_much_as_it_may_hold_and_there_is_room_again_at_half_of_it() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out, gate = plain(client, 8 * UNIT)
        futures = [out.send(VALUE) for _ in range(8)]
        with pytest.raises(BufferFull, match=f"{8 * UNIT} bytes wait for room"):
            out.send(b"")
        room = asyncio.ensure_future(out.room())
        for number in range(4):
            await turns()
            assert not room.done()
            gate.open()
            assert await asyncio.wait_for(futures[number], 30.0) == number + 1
        await asyncio.wait_for(room, 30.0)
        await asyncio.wait_for(out.room(), 30.0)
        assert not any(future.done() for future in futures[4:])
        for _ in range(4):
            gate.open()
            await turns()
        assert await asyncio.wait_for(asyncio.gather(*futures), 30.0) == list(range(1, 9))
        await out.close()

    run(body)


def test_a_plain_record_that_fails_fails_alone() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out, gate = plain(client, LIMIT, 1, UsageError("no"), 3)
        futures = [out.send(b"%d" % number) for number in range(3)]
        for _ in range(3):
            await turns()
            gate.open()
        ends = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 30.0)
        assert [str(end) for end in ends] == ["1", "no", "3"]
        assert gate.taken == [b"0", b"1", b"2"]
        await out.close()

    run(body)


def test_a_plain_record_of_which_nobody_hears_ends_with_its_producer() -> None:
    """One that was sent, and one that was not let in."""

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out, gate = plain(client, LIMIT, None)
        futures = [out.send(b"0"), out.send(b"1")]
        await turns()
        gate.open()
        await turns()
        assert not any(future.done() for future in futures)
        await asyncio.wait_for(out.close(0.0), 30.0)
        for future in futures:
            with pytest.raises(Closed, match="the producer was closed"):
                await asyncio.wait_for(future, 30.0)
        assert gate.taken == [b"0"]
        with pytest.raises(Closed, match="the producer is closed"):
            out.send(b"2")

    run(body)


def test_the_calls_of_a_plain_producer_have_the_time_that_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left of it, for the role's own."""
    asked: list[Any] = []

    def brief(timeout: Any) -> float:
        asked.append(timeout)
        return deadline_after(5.0)

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out, gate = plain(client, LIMIT)
        await out
        monkeypatch.setattr("wireproto.aio.plain.deadline_after", brief)
        await out.flush(7.0)
        futures = await out.send_batch([4, 5], timeout=8.0)
        assert [await future for future in futures] == [4, 5]
        await out.close(9.0)
        assert asked == [7.0, 8.0, 9.0]
        (_, flushed), sent, (_, closed) = gate.given
        assert sent[0] == "send_batch"
        assert 0.0 < sent[1] <= 5.0
        assert 0.0 < flushed <= 5.0
        assert 0.0 < closed <= 5.0

    run(body)


# -- ends -----------------------------------------------------------------------------------------------------------------


def test_a_client_that_cannot_connect_is_closed() -> None:
    async def main() -> None:
        client = wireproto.aio.connect("pulsar://127.0.0.1:1", timeout=5.0)
        with pytest.raises(WireprotoError):
            async with client:
                raise AssertionError("nobody is there")
        assert client.closed
        assert client._made.loop.closed
        with pytest.raises(Closed):
            client.producer("t")

    asyncio.run(main())


@pytest.mark.parametrize("what", ["producer", "client"])
def test_an_error_is_not_hidden_by_what_closing_raises(what: str) -> None:
    """A record that is never acknowledged, of a producer or a client that is closed for another reason."""

    async def main(server: PulsarServer) -> None:
        async def used() -> None:
            async with wireproto.aio.connect(server.url, delivery_timeout=0.2) as client:
                out = client.producer("t", batching=False)
                if what == "client":
                    out.send(b"x")
                    raise ZeroDivisionError
                async with out:
                    out.send(b"x")
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await used()
        [note] = caught.value.__notes__
        assert note.startswith(f"and closing the {what} raised TimedOut: not acknowledged within 0.2 s")
        with pytest.raises(TimedOut):
            async with wireproto.aio.connect(server.url, delivery_timeout=0.2) as client:
                client.producer("t", batching=False).send(b"x")
        assert client.closed

    with PulsarServer(send=unanswered) as server:
        asyncio.run(main(server))


def test_a_role_that_fails_at_the_client_s_close_keeps_no_other_open() -> None:
    def send(link: Link, ask: Any) -> Any:
        return receipt(ask, 0) if link.server.commands("producer")[-1].producer_id == ask.producer_id else None

    async def main(server: PulsarServer) -> None:
        client = wireproto.aio.connect(server.url, delivery_timeout=0.2, linger=NEVER)
        async with asyncio.timeout(60.0):
            first, second = await client.producer("one", batching=False), await client.producer("two", delivery_timeout=NEVER)
            lost, kept = first.send(b"x"), second.send(b"y")
            with pytest.raises(TimedOut):
                await client.close()
            assert kept.result().entry == 0
            assert isinstance(lost.exception(), TimedOut)
        assert client.closed
        assert client._made.loop.closed

    with PulsarServer(send=send) as server:
        asyncio.run(main(server))


def test_steps_that_will_not_end_are_cancelled_by_the_second_time() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        cancelled: list[float] = []

        def stubborn() -> Steps[None]:
            while True:
                try:
                    yield time.monotonic() + NEVER
                except asyncio.CancelledError:
                    cancelled.append(time.monotonic())

        task = asyncio.ensure_future(client._here().drive(stubborn()))
        for count in (1, 2):
            await turns()
            assert not task.done()
            task.cancel()
            await turns()
            assert len(cancelled) == 1, count
        assert task.cancelled()

    run(body)
