"""Producers that were closed, of Pulsar and of the protocols that share its sender: nothing keeps them, and no timer has to end before.

A batch's time is an hour here, for which a timer is set: when somebody waits for the place of a record, or when the answer takes longer
than the batch lingered, as all of them do here.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
import wireproto.aio
from patience import until
from wireproto.devbroker import DevBroker, Faults

PROTOCOLS = ("kafka", "pulsar", "rocketmq")
TRANSACTIONAL = ("kafka", "pulsar")
SENDS = {"kafka": "Produce", "pulsar": "send", "rocketmq": "SendMessageV2"}
MANY = 20
HOUR = 3600.0
Refs = list[weakref.ref[Any]]


@pytest.fixture(scope="module")
def topics(broker: DevBroker) -> list[str]:
    """There in each protocol."""
    names = [f"left-{number}" for number in range(MANY)]
    for protocol in PROTOCOLS:
        with wireproto.connect(broker.url(protocol)) as client:
            for name in names:
                client.admin().create_topic(name, partitions=2)
    return names


@pytest.fixture(autouse=True)
def slow(faults: Faults, protocol: str) -> None:
    """Each answer to a sending takes a moment."""
    faults.delay(SENDS[protocol], 0.03, times=1_000_000)


@pytest.fixture
def client(broker: DevBroker, protocol: str) -> Iterator[Any]:
    with wireproto.connect(broker.url(protocol), delivery_timeout=HOUR) as made:
        yield made


def kept(refs: Refs) -> list[Any]:
    gc.collect()
    return [one for ref in refs if (one := ref()) is not None]


def gone(refs: Refs) -> None:
    """The I/O thread may still be in a step of one when its close is over: that is waited for, an hour is not."""
    until(lambda: not kept(refs), "closed producers are kept")


def sent(client: Any, topics: list[str], close: Callable[[Any], object]) -> Refs:
    """A producer of each topic, a record by each, and what becomes of them then."""
    refs: Refs = []
    for topic in topics:
        out = client.producer(topic)
        refs.append(weakref.ref(out))
        out.send(b"x")
        close(out)
    return refs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_producers_that_were_closed_are_not_kept(client: Any, topics: list[str], protocol: str) -> None:
    gone(sent(client, topics, lambda out: out.close()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_producers_of_a_client_that_was_closed_are_not_kept(client: Any, topics: list[str], protocol: str) -> None:
    refs = sent(client, topics, lambda out: None)
    client.close()
    gone(refs)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_producer_of_many_topics_that_was_closed_is_not_kept(client: Any, topics: list[str], protocol: str) -> None:
    out = client.producer()
    for topic in topics:
        out.send(b"x", topic=topic).position(timeout=60.0)
    refs = [weakref.ref(out), *(weakref.ref(out.to(topic)) for topic in topics)]
    out.close()
    del out
    gone(refs)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_topics_that_a_producer_lets_go_of_are_not_kept(client: Any, topics: list[str], protocol: str) -> None:
    """While it goes on."""
    with client.producer() as out:
        for topic in topics:
            out.send(b"x", topic=topic).position(timeout=60.0)
        refs = [weakref.ref(out.to(topic)) for topic in topics[1:]]
        out.to(topics[0])
        out._producers[topics[0]] = out._producers.pop(topics[0])  # the one that was named last
        out.keep(1)
        gone(refs)
        out.send(b"y", topic=topics[0]).position(timeout=60.0)


@pytest.mark.parametrize("protocol", TRANSACTIONAL)
def test_transactions_that_were_closed_are_not_kept(client: Any, topics: list[str], protocol: str) -> None:
    refs: Refs = []
    for topic in topics:
        work = client.transactions(f"of {topic}")
        with work.begin() as turn:
            turn.send(b"x", topic=topic)
            refs += weakref.ref(work), weakref.ref(turn.producer(topic))
        work.close()
    del work, turn
    gone(refs)


@pytest.mark.parametrize("protocol", TRANSACTIONAL)
def test_topics_that_transactions_let_go_of_are_not_kept(client: Any, topics: list[str], protocol: str) -> None:
    with client.transactions("on and on") as work:
        refs: Refs = []
        for topic in topics:
            with work.begin() as turn:
                turn.send(b"x", topic=topic)
                refs.append(weakref.ref(turn.producer(topic)))
        work.topics.keep(0)
        with work.begin() as turn:  # of the one before the last batches are
            turn.send(b"y", topic=topics[0])
        gone(refs)


@pytest.mark.parametrize("by_client", [False, True], ids=["closed", "by the client"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_producers_that_were_closed_under_asyncio_are_not_kept(
    broker: DevBroker, topics: list[str], protocol: str, by_client: bool
) -> None:
    async def body() -> None:
        refs: Refs = []
        async with wireproto.aio.connect(broker.url(protocol), delivery_timeout=HOUR) as client:
            for topic in topics:
                out = client.producer(topic)
                await out.send(b"x")
                refs += weakref.ref(out), weakref.ref(out._role)
                if not by_client:
                    await out.close()
            del out
            if by_client:
                await client.close()
            await all_gone(refs)

    asyncio.run(body())


@pytest.mark.parametrize("protocol", TRANSACTIONAL)
def test_transactions_that_were_closed_under_asyncio_are_not_kept(broker: DevBroker, topics: list[str], protocol: str) -> None:
    async def body() -> None:
        refs: Refs = []
        async with wireproto.aio.connect(broker.url(protocol), delivery_timeout=HOUR) as client:
            for topic in topics:
                work = client.transactions(f"awaited, of {topic}")
                async with work.begin() as turn:
                    await turn.send(b"x", topic=topic)
                refs += weakref.ref(work), weakref.ref(work._role), *(weakref.ref(out._role) for out in work._outs.values())
                await work.close()
            del work, turn
            await all_gone(refs)

    asyncio.run(body())


async def all_gone(refs: Refs) -> None:
    """As `gone`, where the event loop is the I/O thread."""
    deadline = asyncio.get_running_loop().time() + 60.0
    while kept(refs):
        assert asyncio.get_running_loop().time() < deadline, "closed producers are kept"
        await asyncio.sleep(0.005)
