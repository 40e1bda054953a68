"""What a role that reads a log hands out, poll by poll."""

from __future__ import annotations

import time
from typing import Any

from patience import soon


def values(role: Any, count: int) -> list[bytes]:
    """The next values, `count` of them or the whole batch that brings the last one; it fails with those there were after 20 s."""
    found: list[bytes] = []
    deadline = soon()
    while len(found) < count:
        assert time.monotonic() < deadline, found
        batch = role.poll(1.0)
        found += batch.values() if batch is not None else []
    return found
