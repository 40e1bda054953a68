"""What a newcomer gets wrong is refused by one sentence, the same with every protocol; and a URL's topic is the roles' own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import ConnectError, OptionError, TlsError, WireprotoError

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
GROUPS = ("kafka", "pulsar", "rocketmq")


@pytest.fixture
def client(broker: DevBroker, protocol: str) -> Iterator[Any]:
    with wireproto.connect(broker.url(protocol)) as made:
        yield made
        broker.faults(protocol).clear()


@pytest.mark.parametrize("role", ["producer", "reader", "queue"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_no_text(client: Any, protocol: str, role: str) -> None:
    if (protocol, role) == ("kafka", "queue"):
        return  # it has none
    with pytest.raises(OptionError, match=r"a topic is text, not \['t'\]"):
        getattr(client, role)(["t"], **({"group": "g"} if role == "queue" else {}))


@pytest.mark.parametrize("protocol", GROUPS)
def test_topics_of_a_consumer(client: Any, protocol: str) -> None:
    with pytest.raises(OptionError, match="does not subscribe to patterns"):
        client.consumer("^ord.*", "g")
    with pytest.raises(OptionError, match="a topic is text, not 5"):
        client.consumer(["t", 5], "g")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_start_or_stop_that_is_no_place(client: Any, topic: str, protocol: str) -> None:
    for wrong in ("earliest", 5):
        with pytest.raises(OptionError, match=f"start is EARLIEST, .* not {wrong!r}"):
            client.reader(topic, start=wrong)
        with pytest.raises(OptionError, match=f"stop is EARLIEST, .* not {wrong!r}"):
            client.reader(topic, stop=wrong)
        if protocol in GROUPS:
            with pytest.raises(OptionError, match=f"start is EARLIEST, .* not {wrong!r}"):
                client.consumer(topic, "g", start=wrong)


@pytest.mark.parametrize("protocol", GROUPS)
def test_a_commit_of_what_is_no_mapping(client: Any, topic: str, protocol: str) -> None:
    with client.producer(topic) as out:
        out.send(b"x").position(30.0)
    with client.consumer(topic, "commits") as member:
        batch = None
        deadline = time.monotonic() + 30
        while batch is None and time.monotonic() < deadline:
            batch = member.poll(1.0)
        for wrong in (batch, 5):
            with pytest.raises(OptionError, match="commit takes a mapping of positions by partition, such as a batch's next_positions"):
                member.commit(wrong)
        assert batch is not None
        member.commit(batch.next_positions)


@pytest.mark.parametrize("protocol", GROUPS)
def test_the_topic_of_a_url_is_that_of_roles_asked_for_without_one(broker: DevBroker, topic: str, protocol: str) -> None:
    with wireproto.connect(broker.url(protocol, topic)) as client:
        with client.producer() as out:
            assert out.send(b"x").position(30.0).topic == topic
        with client.reader(stop=wireproto.LATEST) as reader:
            assert [value for batch in reader for value in batch.values()] == [b"x"]
        with client.consumer(group="urls") as member:
            deadline = time.monotonic() + 30
            while not member.assignment and time.monotonic() < deadline:
                member.poll(0.1)
            assert {name for name, _ in member.assignment} == {topic}
        if protocol != "kafka":
            client.queue(group="workers").close()


@pytest.mark.parametrize("protocol", GROUPS)
def test_without_a_topic_in_the_url_either_there_is_none(client: Any, protocol: str) -> None:
    for ask in (client.reader, lambda: client.consumer(group="g")):
        with pytest.raises(OptionError, match=f"name a topic, or write one into the URL: {protocol}://host/topic"):
            ask()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_connects_when_its_docstring_says(protocol: str) -> None:
    """Nobody listens: who connects at once tells it at once, RocketMQ within its time; Kafka at the first use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"{protocol}://127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        if protocol == "kafka":
            with wireproto.connect(url, timeout=1.0) as client, pytest.raises(ConnectError, match="connection refused"):
                client.admin().list_topics(timeout=1.0)
        else:
            with pytest.raises(ConnectError, match="connection refused"):
                wireproto.connect(url, connect_timeout=1.0)
    assert time.monotonic() - began < 30.0


@pytest.mark.parametrize("first", ["who hangs up", "nobody"])
def test_who_hangs_up_says_more_than_that_nobody_is_elsewhere(first: str) -> None:
    """As behind a name with two addresses, of which one is served, with TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        places = [f"127.0.0.1:{one.getsockname()[1]}" for one in (server, taken)]
        url = f"zookeeper://{','.join(places if first == 'who hangs up' else places[::-1])}"
        try:
            with pytest.raises(ConnectError, match=r"dropped the connection at the first request: .* or does it want TLS"):
                wireproto.connect(url, timeout=1.0, connect_timeout=1.0, shuffle=False)
        finally:
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_at_a_port_without_it_is_told_at_once(broker: DevBroker, protocol: str) -> None:
    began = time.monotonic()
    with (
        pytest.raises(TlsError, match="is this a port without TLS"),
        wireproto.connect(f"{protocol}+tls://{broker.address(protocol)}") as made,
    ):
        made.admin().list_topics()
    assert time.monotonic() - began < 8.0, "10 s is what ZooKeeper's client gives a server that starts"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_timeout_that_no_clock_reaches(client: Any, topic: str, protocol: str) -> None:
    """Every comparison with nan is false: it was waited for without an end, or not at all."""
    said: list[BaseException | None] = []

    def ask() -> None:
        with client.reader(topic) as reader:
            try:
                reader.poll(float("nan"))
            except WireprotoError as why:
                said.append(why)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30.0)
    assert [type(why) for why in said] == [OptionError]
    assert "not nan" in str(said[0])
