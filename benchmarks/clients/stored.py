"""Proof that what a contender produced is there: a topic is read from where it ended before to where it ends now, outside the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from wireproto import LATEST

from ..harness import Stretch


def expect(found: object, count: object) -> None:
    if found != count:
        raise AssertionError(f"{found} records of {count}")


def stored(client: Any, topic: str, count: int, job: Callable[[], Stretch]) -> Callable[[], Stretch]:
    """The job, after which the topic must hold `count` records more, each with its key of 16 B and its value of 100 B."""

    def checked() -> Stretch:
        before = client.admin().positions(topic, LATEST)
        stretch = job()
        with client.reader(topic, start=before, stop=LATEST) as reader:
            found: Counter[tuple[int, int]] = Counter()
            for batch in reader:
                found.update(zip(map(len, batch.keys()), map(len, batch.values()), strict=True))
        expect(dict(found), {(16, 100): count})
        return stretch

    return checked


def scaled(stretch: Stretch, by: float) -> Stretch:
    """What so many times as many units would have cost."""
    stretch.cpu, stretch.wall = stretch.cpu * by, stretch.wall * by
    return stretch
