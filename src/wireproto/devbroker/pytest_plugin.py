"""Provides pytest fixtures for programs that use a broker.

Put ``pytest_plugins = ["wireproto.devbroker.pytest_plugin"]`` in a conftest.py:

    def test_orders_are_written(dev_broker):
        run_my_program(dev_broker.url("kafka", "orders"))

`dev_broker` is one broker for the whole session, so tests should use topic names of their own; `fresh_dev_broker` starts a new one for
each test (some milliseconds).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .broker import DevBroker


@pytest.fixture(scope="session")
def dev_broker() -> Iterator[DevBroker]:
    """Start a dev broker with every protocol, shared by the session."""
    with DevBroker() as broker:
        yield broker


@pytest.fixture
def fresh_dev_broker() -> Iterator[DevBroker]:
    """Start a dev broker for this test alone."""
    with DevBroker() as broker:
        yield broker
