"""Permits: a small window never runs dry, and never asks for much more than it has room for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker

MANY, SIZE, WINDOW = 5000, 1000, 64 << 10
FIRST = 1000
"""Permits that are granted before the size of a message is known."""


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as made:
        yield made


def opened(client: Any, role: str) -> Any:
    given: dict[str, Any] = {"receive_memory": WINDOW}
    return client.reader("t", **given) if role == "reader" else getattr(client, role)("t", "group", **given)


def read(reading: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        if hasattr(reading, "receive"):
            delivery = reading.receive(20.0)
            assert delivery is not None, f"silence after {len(found)} of {count}"
            found.append(delivery.value)
        else:
            batch = reading.poll(20.0)
            assert batch is not None, f"silence after {len(found)} of {count}"
            found += batch.values()
    return found


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_small_window_never_runs_dry(broker: DevBroker, role: str, batching: bool) -> None:
    values = [b"%05d" % number + b"x" * (SIZE - 5) for number in range(MANY)]
    seen = broker.record("pulsar")
    with wireproto.connect(broker.url("pulsar")) as client:
        with client.producer("t", batching=batching, batch_records=7) as producer:
            for value in values:
                producer.send(value)
        with opened(client, role) as reading:
            assert read(reading, MANY) == values
    flows = [flow.message.messagePermits for flow in seen.requests("flow")]
    assert sum(flows) >= MANY
    room = 2 * WINDOW // SIZE
    assert max(flows[1:]) <= room  # by the window, once the size of a message is known
    assert sum(flows) <= MANY + FIRST + room
    assert len(flows) > (MANY - FIRST) // room
