"""The embedded Pulsar, with what tests for a real broker ask of one."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from wireproto.devbroker import DevBroker


@dataclass
class Embedded:
    """What those tests ask of a broker."""

    dev: DevBroker

    @property
    def url(self) -> str:
        return self.dev.url("pulsar")

    @property
    def service(self) -> str:
        return f"pulsar://{self.dev.address('pulsar')}"

    @property
    def admin(self) -> str:
        return self.url.partition("admin=")[2]

    @property
    def addresses(self) -> list[str]:
        return [self.dev.address("pulsar")]

    def call(self, method: str, path: str, body: Any = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self.admin + path, data=data, method=method), timeout=60.0) as reply:
            return str(reply.read().decode())


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    """One for a module's tests, in the place of a real one: the fixtures of those tests, taken over, stand on it."""
    with DevBroker(["pulsar"]) as dev:
        yield Embedded(dev)
