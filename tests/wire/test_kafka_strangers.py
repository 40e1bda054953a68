"""An address of a Kafka node that belongs to another cluster by now: one of a pod that is gone, or the cluster was made anew."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.kafka.metadata import Node

METADATA = 3
NODE = 1
SOON = 15.0
"""Seconds; who waits for an address that is another's has `request_timeout`, 30 s."""


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def stranger() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        name_otherwise(made)
        yield made


def name_otherwise(broker: DevBroker) -> None:
    """From now on its nodes say that they are another cluster's."""
    offered: dict[int, Any] = broker._side("kafka").offered
    name, low, high, handler = offered[METADATA]

    async def answer(context: Any) -> Any:
        return (await handler(context)).replace(cluster_id="another")

    offered[METADATA] = name, low, high, answer


def test_what_a_stranger_tells_at_a_nodes_old_address_is_not_taken_for_news(
    broker: DevBroker, stranger: DevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is asked, and nobody asks there again until a node says that it is there."""
    monkeypatch.setattr(random, "shuffle", lambda addresses: None)
    with wireproto.connect(broker.url("kafka"), timeout=20.0) as client, wireproto.connect(stranger.url("kafka")) as other:
        client.admin().create_topic("ours")
        other.admin().create_topic("theirs")
        client.admin().list_topics()
        host, _, port = stranger.address("kafka").rpartition(":")
        cluster = client.cluster
        cluster.metadata.nodes = {NODE: Node(NODE, host, int(port))}
        cluster.pool.drop_all("a test begins")
        assert client.admin().list_topics(timeout=SOON) == ["ours"]
        assert cluster.metadata.nodes[NODE].port != int(port)
        assert not [conn for conn in client.loop.connections if conn.peer.endswith(f":{port}")]


def test_where_no_node_that_was_told_of_is_left_the_addresses_of_the_url_are_asked(broker: DevBroker) -> None:
    """Every node has moved since it was told of (KIP-899): nothing listens at any address that metadata knows."""
    with wireproto.connect(broker.url("kafka"), timeout=20.0) as client, socket.socket() as gone:
        client.admin().create_topic("moved")
        with client.producer("moved") as producer:
            producer.send(b"before").position(timeout=SOON)
            gone.bind(("127.0.0.1", 0))
            port = gone.getsockname()[1]
            client.cluster.metadata.nodes = {NODE: Node(NODE, "127.0.0.1", port), NODE + 1: Node(NODE + 1, "127.0.0.1", port)}
            client.cluster.pool.drop_all("a test begins")
            producer.send(b"behind").position(timeout=SOON)
        assert client.cluster.metadata.nodes[NODE].port != port
        assert client.reader("moved", stop=wireproto.LATEST).poll(timeout=SOON).values() == [b"before", b"behind"]


def test_another_cluster_at_the_address_that_the_user_names_is_told_and_taken(broker: DevBroker, caplog: pytest.LogCaptureFixture) -> None:
    with wireproto.connect(broker.url("kafka"), timeout=20.0) as client:
        client.admin().create_topic("there")
        before = client.loop.connections
        name_otherwise(broker)
        with caplog.at_level(logging.WARNING, "wireproto.kafka"):
            assert client.admin().list_topics(timeout=SOON) == ["there"]
            assert client.cluster.metadata.cluster_id == "another"
            client.admin().list_topics(timeout=SOON)
        assert len([line for line in caplog.messages if "a node of another cluster answers there" in line]) == 1
        assert all(conn.closed for conn in before), "what was known of the one before is forgotten"
