"""What a quick run of the bench does less of: boots of brokers, and units of a round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.counting import Counting
from benchmarks.figures import Figures
from benchmarks.harness import Bench, Sizes
from benchmarks.servers import Servers


class Boots:
    """Notes what boots and what ends."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextmanager
    def boot(self, name: str) -> Iterator[str]:
        self.seen.append(f"{name} boots")
        yield name
        self.seen.append(f"{name} ends")


def test_a_full_run_boots_a_broker_for_each_suite() -> None:
    boots = Boots()
    with Servers() as servers:
        for name in ("first", "second"):
            with servers.of("kafka", lambda name=name: boots.boot(name)) as broker:
                assert broker == name
    assert boots.seen == ["first boots", "first ends", "second boots", "second ends"]


def test_a_quick_run_boots_one_broker_of_a_kind_which_ends_with_the_run() -> None:
    boots = Boots()
    with Servers(shared=True) as servers:
        for kind in ("kafka", "pulsar", "kafka"):
            with servers.of(kind, lambda kind=kind: boots.boot(kind)) as broker:
                assert broker == kind
        assert boots.seen == ["kafka boots", "pulsar boots"]
    assert boots.seen == ["kafka boots", "pulsar boots", "pulsar ends", "kafka ends"]


def test_shared_brokers_end_when_a_suite_fails() -> None:
    boots = Boots()
    with pytest.raises(ValueError, match="a suite"), Servers(shared=True) as servers, servers.of("kafka", lambda: boots.boot("kafka")):
        raise ValueError("a suite")
    assert boots.seen == ["kafka boots", "kafka ends"]


def test_a_round_has_as_many_units_as_it_is_for() -> None:
    sizes = Sizes(timed=3000, counted=500, tried=20)
    counting = Counting(None, Figures(), peers=False)
    assert [bench.units(sizes) for bench in (Bench(), counting, Bench(quick=True))] == [3000, 500, 20]
