"""A signal handler raises in the middle of a poll, and its caller polls on: nothing is passed over that positions do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.flow.ahead import ReadAhead
from wireproto.kafka import fetcher

RECORDS, PARTITIONS = 600, 3


class Struck(BaseException):
    """What the handler raises."""


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        with wireproto.connect(made.url("kafka")) as client:
            for name, partitions in (("lone", 1), ("many", PARTITIONS)):
                client.admin().create_topic(name, partitions=partitions)
                with client.producer(name, batch_size=512) as out:
                    for number in range(RECORDS):
                        out.send(b"%d" % number, partition=number % partitions)
        yield made


def striking(function: Any, every: int, *, behind: bool) -> Any:
    """The function, with a handler that raises at each so many calls, ahead of it or behind it."""
    calls = 0

    def called(*args: Any, **how: Any) -> Any:
        nonlocal calls
        calls += 1
        strikes = calls % every == 0
        if strikes and not behind:
            raise Struck
        found = function(*args, **how)
        if strikes:
            raise Struck
        return found

    return called


@pytest.mark.parametrize("role", ["reader", "consumer"])
@pytest.mark.parametrize("name", ["lone", "many"])
@pytest.mark.parametrize("where", ["decode", "decoded", "taken", "moving"])
def test_each_batch_begins_where_positions_said(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, name: str, role: str, where: str
) -> None:
    if where.startswith("decode"):
        made = striking(object.__new__, 3, behind=where == "decoded")  # what is made of its columns
        monkeypatch.setattr(fetcher, "Batch", type("Batch", (fetcher.Batch,), {"__slots__": (), "__new__": lambda cls: made(cls)}))
    elif where == "taken":
        monkeypatch.setattr(ReadAhead, "_turn", striking(ReadAhead._turn, 3, behind=True))
    else:
        monkeypatch.setattr(ReadAhead, "moved", striking(ReadAhead.moved, 3, behind=False))
    struck = found = 0
    with (
        wireproto.connect(broker.url("kafka"), partition_bytes=2048, max_bytes=4096) as client,
        client.reader(name) if role == "reader" else client.consumer(name, f"group-{name}-{where}") as reading,
    ):

        def done() -> bool:
            nonlocal struck, found
            before = {key: place.offset for key, place in reading.positions.items()}
            try:
                batch = reading.poll(0.2)
            except Struck:
                struck += 1
                return False
            if batch is not None:
                begun = before.get((batch.topic, batch.partition), 0)
                assert [record.position.offset for record in batch] == list(range(begun, begun + len(batch)))
                found += len(batch)
            return found >= RECORDS

        until(done)
    assert found == RECORDS
    assert struck > 0 or where in ("taken", "moving")
