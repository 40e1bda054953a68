"""Which tests on real brokers `make test` leaves to `make nightly PIECES=matrix`, and that each of them has one in `make test`."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest

import run
from brokers.catalogue import AT_NIGHT, CATALOGUE, SMOKE, at_night

FOLDERS = ("conformance", "integration", "spark")
README = run.CLONE / "tests" / "brokers" / "README.md"


@functools.cache
def collected(*options: str) -> frozenset[str]:
    """The node ids of all tests on brokers that these options pick."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *options]
    done = subprocess.run([*command, *(f"tests/{name}" for name in FOLDERS)], cwd=run.CLONE, capture_output=True, text=True, check=True)
    return frozenset(line for line in done.stdout.splitlines() if "::" in line)


def functions(tests: frozenset[str]) -> set[str]:
    """Their functions, as the tables of the README name them: ``test_x.py::test_y``."""
    return {test.partition("[")[0].rpartition("/")[2] for test in tests}


def test_every_function_at_night_is_in_make_test_too() -> None:
    night, day = collected("--nightly", "only"), collected()
    assert night
    assert not night & day
    assert sorted(functions(night) - functions(day)) == []


def test_every_function_of_make_soak_alone_names_a_guard_in_make_test() -> None:
    soak, day = functions(collected("--soak", "only")), functions(collected())
    rows = re.findall(r"^\| (test_\S+::test_\S+) \| (.+) \|$", README.read_text(), re.MULTILINE)
    assert sorted(test for test, _ in rows) == sorted(soak - day)
    guards = {guard for _, words in rows if not words.startswith("none: ") for guard in words.split(", ")}
    assert sorted(guards - day) == []


def test_what_is_marked_soak_is_in_make_soak_on_older_brokers_too() -> None:
    assert any("[kafka-3.9.2" in test for test in collected("--soak", "only"))


def test_every_name_and_place_is_there() -> None:
    assert set(CATALOGUE) >= AT_NIGHT >= set(SMOKE)
    for place in (place for places in SMOKE.values() for place in places):
        file, _, name = place.partition("::")
        assert f"def {name}" in (run.CLONE / "tests" / file).read_text(), place


@pytest.mark.parametrize(
    "case",  # one value: a parameter that is a broker's name would ask for that broker
    [
        ("kafka-3.9.2", "tests/integration/test_kafka_groups.py::test_x[kafka-3.9.2]", True),
        ("kafka-3.9.2", "tests/conformance/test_producer.py::test_x[kafka-3.9.2-sync]", False),
        ("rocketmq-5.5.0", "tests/conformance/test_positions.py::test_x[rocketmq-5.5.0]", False),
        ("kafka-3.9.2-zookeeper", "tests/integration/test_kafka_versions.py::test_offsets_in_zookeeper", False),
        ("kafka-3.9.2-zookeeper", "tests/integration/test_kafka_versions.py::test_offsets_in_zookeeper_x", True),
    ],
)
def test_older_brokers_keep_their_smoke(case: tuple[str, str, bool]) -> None:
    broker, test, expected = case
    assert at_night(broker, test) is expected


def test_a_broker_that_is_named_has_all_of_its_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "--broker", "rocketmq-4.9.7-small"]
    done = subprocess.run([*command, "tests/integration/test_rocketmq_large.py"], cwd=run.CLONE, capture_output=True, text=True, check=True)
    assert done.stdout.count("::") == 2, done.stdout
