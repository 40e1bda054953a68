"""The end of a role, over all protocols: a `with` block's own error is the one to see, and a close may be repeated."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import wireproto
import wireproto.aio
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, WireprotoError

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
SENDS = {"kafka": "Produce", "pulsar": "send", "rocketmq": "SendMessageV2"}


@pytest.fixture
def client(broker: DevBroker, protocol: str) -> Iterator[Any]:
    with wireproto.connect(broker.url(protocol)) as made:
        yield made


def roles(client: Any, topic: str) -> Iterator[Any]:
    yield client.producer(topic)
    yield client.reader(topic)
    if client.protocol != "zookeeper":
        yield client.consumer(topic, "group")
    if client.protocol != "kafka":
        yield client.queue(topic, "workers")
    yield client.admin()


@pytest.mark.parametrize("protocol", SENDS)
def test_a_close_that_fails_does_not_hide_the_error_that_ended_the_block(broker: DevBroker, client: Any, topic: str, protocol: str) -> None:
    broker.faults(protocol).drop(SENDS[protocol], times=1)
    options = {"delivery_timeout": 0.3} | ({"request_timeout": 0.3} if protocol == "kafka" else {})

    def work() -> None:
        with client.producer(topic, **options) as out:
            out.send(b"x")
            raise KeyError("the body's")

    with pytest.raises(KeyError) as caught:
        work()
    (note,) = caught.value.__notes__
    assert note.startswith("closing failed, too: TimedOut")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_role_ends_once_and_lets_nobody_in_afterwards(client: Any, topic: str, protocol: str) -> None:
    for role in roles(client, topic):
        with role:
            pass
        role.close(0.0)
        for call in ("poll", "receive"):
            if hasattr(role, call):
                with pytest.raises(Closed):
                    getattr(role, call)(0.0)
        if hasattr(role, "send"):
            with pytest.raises(Closed):
                role.send(b"x")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_fails_to_close_does_not_hide_the_error_of_its_block(broker: DevBroker, topic: str, protocol: str) -> None:
    class Stuck:
        def close(self, timeout: float = 30.0) -> None:
            raise WireprotoError("stuck")

    stuck, client = Stuck(), wireproto.connect(broker.url(protocol))

    def work() -> None:
        with client:
            client.keep(stuck)
            raise KeyError("the body's")

    with pytest.raises(KeyError) as caught:
        work()
    assert caught.value.__notes__ == ["closing failed, too: WireprotoError: stuck"]
    assert client.closed


def pipes() -> set[tuple[int, int]]:
    """This process's open descriptors of pipes, and which pipe each is of."""
    found = set()
    for place in Path("/dev/fd").iterdir():
        with suppress(OSError):  # listed, and closed meanwhile
            known = os.fstat(int(place.name))
            if stat.S_ISFIFO(known.st_mode):
                found.add((int(place.name), known.st_ino))
    return found


@pytest.mark.parametrize(
    ("protocol", "face"), [*((name, "threads") for name in PROTOCOLS), *((name, "asyncio") for name in PROTOCOLS if name != "rocketmq")]
)
def test_a_closed_client_keeps_no_descriptor_until_the_collector_comes(broker: DevBroker, protocol: str, face: str) -> None:
    before = pipes()
    gc.disable()
    try:
        if face == "threads":
            client: Any = wireproto.connect(broker.url(protocol))
            client.admin().list_topics()
            assert len(pipes() - before) == 2
            client.close()
        else:

            async def main() -> wireproto.aio.Client:
                async with wireproto.aio.connect(broker.url(protocol)) as made:
                    await made.admin().list_topics()
                    return made

            client = asyncio.run(main())
        until(lambda: not pipes() - before, "its pipe is open still")  # a thread that was in poll closes it
        assert client.closed
    finally:
        gc.enable()
