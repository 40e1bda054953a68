"""What the asyncio face passes on, and what becomes of records that wait in front of a producer that is made late, never, or closes."""

from __future__ import annotations

import asyncio
import socket
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto.aio import queue, roles
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, UnflushedWarning, ValueUnsupported
from wireproto.kafka.codes import UnknownTopicOrPartition

BUDGET = 64 << 10


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka", "zookeeper"]) as made:
        yield made


@pytest.fixture
def nobody() -> Iterator[str]:
    """host:port where connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield f"127.0.0.1:{made.getsockname()[1]}"


CALLS: list[tuple[type[Any], str, tuple[Any, ...]]] = [
    (roles.Admin, "list_topics", ()),
    (roles.Admin, "describe_topic", ("t",)),
    (roles.Admin, "create_topic", ("t",)),
    (roles.Admin, "delete_topic", ("t",)),
    (roles.Admin, "positions", ("t",)),
    (roles.Admin, "list_groups", ()),
    (roles.Admin, "describe_group", ("g",)),
    (roles.Admin, "group_positions", ("g", "t")),
    (roles.Consumer, "commit", ()),
    (roles.Consumer, "committed", ()),
    (roles.Consumer, "lag", ()),
    (roles.Reader, "seek", (wireproto.EARLIEST,)),
]


@pytest.mark.parametrize(("kind", "name", "args"), CALLS, ids=[f"{kind.__name__}.{name}" for kind, name, _ in CALLS])
def test_a_call_has_the_time_that_it_was_given(kind: type[Any], name: str, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def do(self: Any, called: str, *args: Any, **options: Any) -> None:
        given.append((called, args, options))

    monkeypatch.setattr(roles.AsyncRole, "_do", do)
    asyncio.run(getattr(kind.__new__(kind), name)(*args, timeout=7.0))
    [(called, passed, options)] = given
    assert called == name
    assert passed[: len(args)] == args
    assert options["timeout"] == 7.0


@pytest.mark.parametrize(("kind", "name", "steps"), [(roles.Reader, "poll", "polling"), (queue.Queue, "receive", "receiving")])
def test_a_wait_for_what_comes_has_the_time_that_it_was_given(
    kind: type[Any], name: str, steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    async def run(self: Any, made: Any) -> None:
        given.append(made)

    made = kind.__new__(kind)
    made._role, made._closed, made._host = "role", False, SimpleNamespace(check=lambda: None)
    monkeypatch.setattr(roles.AsyncRole, "_being", lambda self, role, called: lambda seconds: (role, called, seconds))
    monkeypatch.setattr(roles.AsyncRole, "_run", run)
    assert asyncio.run(getattr(made, name)(7.0)) is None
    assert given == [("role", steps, 7.0)]


@pytest.mark.parametrize("protocol", ["kafka", "rocketmq", "zookeeper"])
def test_a_producer_tells_its_topic(protocol: str, nobody: str) -> None:
    async def main() -> None:
        client = wireproto.aio.connect(f"{protocol}://{nobody}")
        assert client.producer("t").topic == "t"
        await client.close(0.0)

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["kafka", "rocketmq", "zookeeper"])
def test_there_is_room_until_more_than_half_of_the_memory_waits(protocol: str, nobody: str) -> None:
    """Of a producer that is never made: nothing leaves its queue, and when it closes, who waits for room is let go."""

    async def main() -> None:
        client = wireproto.aio.connect(f"{protocol}://{nobody}", buffer_memory=BUDGET)
        out = client.producer("t")
        futures = [out.send(bytes(1024 - 128)) for _ in range(BUDGET // 2 // 1024)]
        await asyncio.wait_for(out.room(), 20.0)
        futures.append(out.send(b""))
        waits = asyncio.ensure_future(out.room())
        done, _ = await asyncio.wait([waits], timeout=0.05)
        assert not done
        await client.close(0.0)
        await asyncio.wait_for(waits, 20.0)
        ends = await asyncio.gather(*futures, return_exceptions=True)
        assert {type(end) for end in ends} == {Closed}

    asyncio.run(main())


def test_a_producer_that_cannot_be_made_lets_go_who_waits_for_room_each_time() -> None:
    async def main() -> None:
        options = {"buffer_memory": BUDGET, "timeout": 5.0, "unknown_topic_timeout": 0.1}
        async with wireproto.aio.connect(broker.url("kafka"), **options) as client:
            out = client.producer("no-such-topic")
            for _ in range(2):
                futures = [out.send(bytes(1000)) for _ in range(40)]
                await asyncio.wait_for(out.room(), 30.0)
                ends = await asyncio.gather(*futures, return_exceptions=True)
                assert {type(end) for end in ends} == {UnknownTopicOrPartition}

    with DevBroker(["kafka"], auto_create=False) as broker:
        asyncio.run(main())


@pytest.mark.parametrize(
    "given", [{"headers": [("h", b"v")]}, {"key": b"k"}, {"timestamp": 1}, {"partition": 1}], ids=lambda given: str(*given)
)
def test_a_record_that_cannot_be_sent_fails_alone_when_its_producer_is_made(broker: DevBroker, given: dict[str, Any]) -> None:
    """ZooKeeper's records have nothing but a value."""

    async def main() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client:
            out = client.producer("/alone")
            first, bad, last = out.send(b"a"), out.send(b"b", **given), out.send(b"c")
            with pytest.raises(ValueUnsupported):
                await asyncio.wait_for(bad, 30.0)
            places = [await asyncio.wait_for(one, 30.0) for one in (first, last)]
            assert places[1].offset == places[0].offset + 1

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["kafka", "rocketmq", "zookeeper"])
def test_records_that_wait_to_be_sent_when_the_event_loop_ends_are_told_with_their_number(protocol: str, nobody: str) -> None:
    kept: list[Any] = []

    async def main(close: bool) -> None:
        client = wireproto.aio.connect(f"{protocol}://{nobody}")
        out = client.producer("t")
        kept.extend([client, *(out.send(b"v") for _ in range(3))])
        await asyncio.sleep(0)
        if close:
            await client.close(0.0)

    with pytest.warns(UnflushedWarning, match="3 records for 't' had no answer when the event loop ended"):
        asyncio.run(main(False))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnflushedWarning)
        asyncio.run(main(True))
