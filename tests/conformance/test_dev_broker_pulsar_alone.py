"""Producers that are alone on their topic, on the embedded broker: what holds on a real one holds here, by the same tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pulsar_embedded
from integration import test_pulsar_alone as real

pytestmark = pytest.mark.broker("dev-pulsar")
broker = pulsar_embedded.broker
client, judge, topic = real.client, real.judge, real.topic


@pytest.fixture(params=["exclusive", "exclusive-with-fencing"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    "check",
    [
        real.test_it_is_alone_or_refused,
        real.test_who_takes_it_away_fences_whoever_was_there,
        real.test_a_later_life_has_what_nobody_took_since,
        real.test_one_that_was_away_while_another_was_there_does_not_come_back,
        real.test_epochs_are_of_partitions,
    ],
)
def test_it_holds_as_on_real_brokers(check: Callable[..., None], request: pytest.FixtureRequest) -> None:
    check(**{name: request.getfixturevalue(name) for name in inspect.signature(check).parameters})


def test_it_comes_back_behind_a_lost_connection_and_an_unload(broker: Any, client: Any, topic: str, mode: str, fault_proxy: Any) -> None:
    real.test_it_comes_back_behind_a_lost_connection_and_an_unload(broker, client, topic, mode, fault_proxy)
