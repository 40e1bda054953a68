"""A process is killed that holds records of a group: the next one gets all that was neither committed nor acked, in a log exactly that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.helpers import poll_until, receive_until, write
from conformance.seats import Seat

SENT = [b"%02d" % number for number in range(20)]
QUICK = {"kafka": {"session_timeout": 4.0, "heartbeat_interval": 1.0}, "zookeeper": {"session_timeout": 4.0}}
"""How soon a broker gives up a member or a session that is silent."""

WORKER = """
import json, sys, wireproto
url, topic, group, options = json.loads(sys.argv[1])
queue = wireproto.connect(url, **options).queue(topic, group)
held = []
while len(held) < 6:
    delivery = queue.receive(timeout=1.0)
    if delivery is not None:
        held.append(delivery)
for delivery in held[1:4:2]:
    delivery.ack(wait=True)
print(json.dumps([delivery.value.decode() for delivery in held]), flush=True)
sys.stdin.read()
"""

MEMBER = """
import json, sys, wireproto
url, topic, group, options = json.loads(sys.argv[1])
consumer = wireproto.connect(url, **options).consumer(topic, group)
found = []
while len(found) < 20:
    batch = consumer.poll(timeout=1.0)
    found += list(batch) if batch is not None else []
place = found[8].position
consumer.commit({(topic, place.partition): place})
print(json.dumps([record.value.decode() for record in found]), flush=True)
sys.stdin.read()
"""


@contextmanager
def killed_after(program: str, *given: Any) -> Iterator[list[bytes]]:
    """What a process of this program was handed, which is killed then."""
    with subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            process.kill()
    yield [value.encode() for value in json.loads(line)]


@pytest.fixture
def options(seat: Seat) -> dict[str, Any]:
    return QUICK.get(seat.place.protocol, {})


def test_a_worker(seat: Seat, dial: Callable[..., Any], client: Any, topic: str, group: str, options: dict[str, Any]) -> None:
    """What it held and had not acked comes again; of what it had acked nothing does, but where the protocol has one mark for all."""
    if not seat.features.queue:
        pytest.skip("has no queue consumer")
    dial().queue(topic, group).close(10.0)
    write(client, topic, SENT)
    with killed_after(WORKER, seat.url, topic, group, options) as held, dial().queue(topic, group) as queue:
        acked = {held[1], held[3]}
        wanted = set(SENT) - acked
        taken: list[bytes] = []
        while not wanted <= set(taken):
            (delivery,) = receive_until(queue, 1, limit=60.0)
            taken.append(delivery.value)
            delivery.ack()
        assert len(taken) == len(set(taken))
        if not seat.features.repeats_acked:
            assert set(taken) == wanted


def test_a_member(seat: Seat, dial: Callable[..., Any], client: Any, topic: str, group: str, options: dict[str, Any]) -> None:
    """The next one begins at its commit, though more was handed out, in the middle of a batch."""
    if not seat.features.consumer:
        pytest.skip("has no log consumer")
    write(client, topic, SENT)
    with killed_after(MEMBER, seat.url, topic, group, options) as handed:
        assert handed == SENT
        with dial(**options).consumer(topic, group) as consumer:
            found = poll_until(consumer, lambda found: len(found) >= len(SENT) - 8)
            assert [record.value for record in found] == SENT[8:]
