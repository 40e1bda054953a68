"""A record that failed is told once: by its receipt where that is asked, else by flush or close; it keeps nothing else back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.errors import WireprotoError
from wireproto.flow.unreported_errors import MOST, UnreportedErrors

REFUSALS = {"kafka": ("Produce", 87), "pulsar": ("send", 22), "rocketmq": ("SendMessageV2", 13), "zookeeper": ("create", -102)}
"""Whatever cannot succeed later: a bad record, a forbidden one, no rights."""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as made:
        yield made


class Scene:
    """A producer whose records go one by one, and what its broker does with them."""

    def __init__(self, broker: DevBroker, protocol: str, client: Any) -> None:
        self.topic = f"refused-{next(_numbers)}"
        self._faults = broker.faults(protocol)
        self._refusal = REFUSALS[protocol]
        self._client = client
        if protocol != "zookeeper":
            client.admin().create_topic(self.topic, partitions=1)
        self.out = client.producer(self.topic)

    def refused(self, *values: bytes) -> list[Any]:
        """Receipts of records that are refused, each in a batch of its own, before anybody flushes."""
        made = []
        for value in values:
            self._faults.error(self._refusal[0], self._refusal[1])
            made.append(self.out.send(value))
            wait_for(made[-1], self.out)
        return made

    def stored(self) -> list[bytes]:
        return [value for batch in self._client.reader(self.topic, stop=wireproto.LATEST) for value in batch.values()]


def wait_for(receipt: Any, out: Any) -> None:
    """Until its outcome is known, by a look that tells nobody."""
    until(lambda: receipt.done or not out.unsettled())


@pytest.fixture(params=list(REFUSALS))
def scene(request: Any, broker: DevBroker) -> Iterator[Scene]:
    with wireproto.connect(broker.url(request.param)) as client:
        yield Scene(broker, request.param, client)


def test_flush_tells_the_first_that_no_receipt_told_and_once(scene: Scene) -> None:
    first, second = scene.refused(b"1", b"2")
    after = scene.out.send(b"3")
    with pytest.raises(WireprotoError) as told:
        scene.out.flush(30.0)
    assert after.done, "the others were waited for"
    scene.out.flush(30.0)
    for receipt in (first, second):
        for _ in range(2):
            with pytest.raises(type(told.value)):
                receipt.position(30.0)  # a receipt always tells
    assert after.position(0.0) is not None
    scene.out.close(30.0)
    assert scene.stored() == [b"3"]


def test_what_its_receipt_told_flush_does_not_tell_again(scene: Scene) -> None:
    first, _ = scene.refused(b"1", b"2")
    with pytest.raises(WireprotoError) as told:
        first.position(30.0)
    with pytest.raises(type(told.value)):
        scene.out.flush(30.0)  # of the second
    third, fourth = scene.refused(b"3", b"4")
    for receipt in (third, fourth):
        with pytest.raises(type(told.value)):
            receipt.position(30.0)
    scene.out.flush(30.0)
    scene.out.close(30.0)


def test_close_tells_what_nobody_was_told_of(scene: Scene) -> None:
    scene.refused(b"1")
    with pytest.raises(WireprotoError):
        scene.out.close(30.0)
    scene.out.close(30.0)


@pytest.mark.parametrize("protocol", ["kafka", "pulsar"])
def test_a_batch_s_failure_is_told_when_the_receipts_of_all_its_records_told_it(broker: DevBroker, protocol: str) -> None:
    """Who looks at one receipt of several does not hear of the others by it."""
    with wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic(topic := f"refused-{next(_numbers)}", partitions=1)
        out = client.producer(topic, linger=60.0)
        for looked_at in (1, 2, 3):
            broker.faults(protocol).error(*REFUSALS[protocol])
            receipts = [out.send(b"%d" % number) for number in range(3)]
            for receipt in receipts[:looked_at]:
                for _ in range(3):
                    with pytest.raises(WireprotoError):
                        receipt.position(30.0)
            if looked_at < 3:
                with pytest.raises(WireprotoError):
                    out.flush(30.0)
            out.flush(30.0)


def test_there_are_never_too_many_to_tell() -> None:
    """Who has thousands fail and looks at no receipt keeps no memory for each, and is told all the same."""
    kept = UnreportedErrors()
    for number in range(MOST + 5):
        kept.note(number, WireprotoError(str(number)))
    assert len(kept) == MOST
    for number in range(MOST + 5):
        kept.reported(number)
    assert str(kept.take()) == str(WireprotoError(str(MOST))), "one that was not kept may have been told: better twice than never"
    assert kept.take() is None
