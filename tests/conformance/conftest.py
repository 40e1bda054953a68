"""Fixtures of the conformance suite: a seat (protocol on a broker), a client, a topic of the test's own, and small readers."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers import plugin
from conformance import face
from conformance.seats import PLACES, Place, Seat
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError, TransportError

_numbers = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seat" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("only")
        module, test = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__
        chosen = metafunc.config.getoption("--face")
        faces = {"sync", "aio"} if chosen is None else {chosen}
        if "dial" not in metafunc.fixturenames:  # it opens no client by the fixture, so that it would only be repeated
            faces.discard("aio")
        places = [
            place if place.takes(module, test) else pytest.param(place, marks=pytest.mark.soak)
            for place in PLACES
            if (only is None or place.protocol in only.args) and place.face in faces
        ]
        metafunc.parametrize("seat", places, ids=str, indirect=True, scope="session")


@pytest.fixture(scope="session")
def seat(request: pytest.FixtureRequest) -> Iterator[Seat]:
    """The protocol on the broker of this run of the test."""
    place: Place = request.param
    if place.broker_name.startswith("dev-"):
        try:
            dev = DevBroker([place.protocol], auto_create=False).start()
        except ModuleNotFoundError as why:
            plugin.missing(place.broker_name, f"the embedded broker has no {place.protocol} side: {why}")
        yield Seat(place, dev=dev)
        dev.stop()
        return
    yield Seat(place, real=plugin.start(request.config, place.broker_name))


@pytest.fixture(autouse=True)
def _broker_is_up(request: pytest.FixtureRequest) -> None:
    """A test that failed in the middle of an outage must not take the next ones with it."""
    if "seat" in request.fixturenames:
        seat: Seat = request.getfixturevalue("seat")
        if seat.real is not None:
            plugin.start(request.config, seat.place.broker_name)


@pytest.fixture
def dial(seat: Seat) -> Iterator[Callable[..., Any]]:
    """Opens clients of the seat; all are closed when the test ends, within their timeout."""
    opened: list[Any] = []
    runner = face.Runner() if seat.place.face == "aio" else None
    connect: Callable[..., Any] = wireproto.connect if runner is None else lambda url, **given: face.Client(runner, url, given)

    def open_client(url: str | None = None, **options: Any) -> Any:
        client = connect(seat.url if url is None else url, **options)
        opened.append(client)
        return client

    yield open_client
    for client in reversed(opened):
        client.close(timeout=10.0)
    if runner is not None:
        runner.stop()


@pytest.fixture
def client(seat: Seat, dial: Callable[..., Any]) -> Any:
    return dial()


@pytest.fixture
def fresh(seat: Seat, client: Any) -> Iterator[Callable[..., str]]:
    """Makes topics: ``fresh(partitions=3)``. They are deleted at the end."""
    made: list[str] = []

    def make(partitions: int = 1, name: str = "t") -> str:
        topic = f"{name}-{os.getpid()}-{next(_numbers)}"
        if seat.protocol == "zookeeper":
            topic = f"/{topic}"
        client.admin().create_topic(topic, partitions=partitions)
        made.append(topic)
        seat.newest = topic
        return topic

    yield make
    for topic in made:
        try:
            client.admin().delete_topic(topic)
        except TransportError:  # after an outage: whether the deletion was done before the connection went is not known
            with contextlib.suppress(BrokerError):
                client.admin().delete_topic(topic)


@pytest.fixture
def topic(fresh: Callable[..., str]) -> str:
    """A new topic of one partition."""
    return fresh()


@pytest.fixture
def group() -> str:
    """A group name of this test alone."""
    return f"g-{os.getpid()}-{next(_numbers)}"
