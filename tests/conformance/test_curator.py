"""Curator's recipes on the embedded server and on a real one: what the JVM's users build on works there unchanged."""

from __future__ import annotations

import uuid

import pytest

from brokers import java
from conformance.seats import Seat

pytestmark = [pytest.mark.only("zookeeper"), pytest.mark.java]


def test_all_of_its_recipes_work(seat: Seat) -> None:
    servers = seat.url.partition("://")[2].partition("/")[0]
    lines = java.run("curator-5.7.1", "CuratorRecipes", servers, f"/curator-{uuid.uuid4().hex[:8]}", timeout=300.0)
    assert len(lines) == 25
    assert {line["recipe"]: line["why"] for line in lines if line["why"] is not None} == {}
