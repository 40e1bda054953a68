"""A member that commits by itself commits what it has handed out of a queue before another member takes that over."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import wireproto
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.rocketmq import assignment


class Working(threading.Thread):
    """A member that polls all the time, and what was handed out to it."""

    def __init__(self, url: str, topic: str, seconds: float) -> None:
        super().__init__()
        self.found: list[bytes] = []
        self.halt = threading.Event()
        self.owned = 0
        self._client = wireproto.connect(url)
        self._consumer = self._client.consumer(topic, "shared", auto_commit=True, auto_commit_interval=seconds, batch_bytes=1)

    def run(self) -> None:
        with self._client, self._consumer:
            while not self.halt.is_set():
                batch = self._consumer.poll(0.05)
                self.found += batch.values() if batch is not None else []
                self.owned = len(self._consumer.assignment)


def test_nothing_that_was_handed_out_is_repeated_when_members_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "FORMER_OWNER_WAIT", 5.0)  # a busy machine may stop for the second that there is between two machines
    with DevBroker(["rocketmq"], auto_create=False) as broker, wireproto.connect(broker.url("rocketmq")) as client:
        url, total = broker.url("rocketmq"), 0
        client.admin().create_topic("t", partitions=4)
        with client.producer("t") as out:

            def more() -> int:
                for n in range(total, total + 200):
                    out.send(b"%d" % n, partition=n % 4)
                out.flush(30.0)
                return total + 200

            total = more()
            first = Working(url, "t", 600.0)
            first.start()
            until(lambda: len(first.found) >= 200)
            second = Working(url, "t", 600.0)
            second.start()
            until(lambda: first.owned == second.owned == 2)
            total = more()
            until(lambda: len({*first.found, *second.found}) >= total)
            first.halt.set()
            first.join(30.0)
            until(lambda: second.owned == 4)
            total = more()
            until(lambda: len({*first.found, *second.found}) >= total)
            second.halt.set()
            second.join(30.0)
    repeated = [value for value, times in Counter([*first.found, *second.found]).items() if times > 1]
    assert repeated == []
    assert len({*first.found, *second.found}) == 600
