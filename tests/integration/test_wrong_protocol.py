"""Clients that meet the brokers of another protocol."""

from __future__ import annotations

import time

import pytest

import wireproto
from brokers import Broker
from wireproto.errors import TransportError


@pytest.mark.parametrize("broker", ["zookeeper-3.9.5", "rocketmq-5.5.0"], indirect=True)
def test_kafka_on_another_protocols_port_is_a_transport_error_in_time(broker: Broker) -> None:
    began = time.monotonic()
    with wireproto.connect(f"kafka://{broker.addresses[0]}") as ours, pytest.raises(TransportError, match="kafka"):
        ours.admin().list_topics(timeout=5.0)
    assert time.monotonic() - began < 8.0
