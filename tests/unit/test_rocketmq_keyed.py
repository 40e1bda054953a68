"""Whether a topic takes records with a key only: what each of its masters tells, or does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from wireproto.errors import Disconnected, TimedOut, WireprotoError
from wireproto.net.task import Steps
from wireproto.rocketmq.codes import NoPermission, RequestCodeNotSupported, ServerError, SystemBusy, TopicNotExist
from wireproto.rocketmq.compaction import needing_keys

COMPACTED, PLAIN = b'{"attributes":{"cleanup.policy":"COMPACTION"}}', b'{"attributes":{"cleanup.policy":"DELETE"}}'
Told = bytes | WireprotoError


class Cluster:
    """Masters that answer one after the other."""

    def __init__(self, *told: Told) -> None:
        self.told = list(told)
        self.asked: list[tuple[str, str, float]] = []

    def invoking(self, address: str, message: Any, *, until: float) -> Steps[Any]:
        self.asked.append((address, message.topic, until))
        answer = self.told.pop(0)
        if isinstance(answer, WireprotoError):
            raise answer
        return type("Reply", (), {"body": answer})
        yield 0.0


def found(*told: Told) -> tuple[bool | None, list[tuple[str, str, float]]]:
    """What comes of it, and who was asked, until when."""
    cluster: Any = Cluster(*told)
    steps = needing_keys(cluster, "t", [f"h:{number}" for number in range(len(told))], time.monotonic() + 600.0)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    return ended.value.value, cluster.asked


@pytest.mark.parametrize(
    ("body", "needs"),
    [
        (COMPACTED, True),
        (PLAIN, False),
        (b'{"attributes":{}}', False),
        (b'{"attributes":null}', False),
        (b'{"attributes":["cleanup.policy"]}', False),
        (b"{}", False),
        (b"[]", False),
    ],
)
def test_the_first_that_tells_is_believed(body: bytes, needs: bool) -> None:
    what, asked = found(body, COMPACTED)
    assert what is needs
    assert [address for address, _, _ in asked] == ["h:0"]
    assert asked[0][1] == "t"


@pytest.mark.parametrize("why", [RequestCodeNotSupported("no"), TopicNotExist("no")])
def test_one_that_knows_no_such_thing_has_no_compacted_topic(why: WireprotoError) -> None:
    what, asked = found(why, COMPACTED)
    assert (what, len(asked)) == (False, 1)


@pytest.mark.parametrize(
    "why",
    [Disconnected("gone"), TimedOut("silent"), NoPermission("may not"), SystemBusy("busy"), ServerError("no"), b"{", b"no json"],
    ids=lambda why: why.decode() if isinstance(why, bytes) else type(why).__name__,
)
def test_where_one_does_not_tell_the_next_is_asked(why: Told) -> None:
    what, asked = found(why, COMPACTED)
    assert what is True
    now = time.monotonic()
    assert [address for address, _, _ in asked] == ["h:0", "h:1"]
    assert 100.0 < asked[0][2] - now <= 300.0, "an even share of the time"
    assert 400.0 < asked[1][2] - now <= 600.0, "all that is left"
    assert found(why, why)[0] is None, "nobody tells"


def test_without_a_master_nobody_tells() -> None:
    assert found() == (None, [])
