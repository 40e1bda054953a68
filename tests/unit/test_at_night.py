"""Which tests on real brokers `make test` leaves to `make nightly PIECES=matrix`, and that each of them has one in `make test`.

As a program: collects once, and prints as JSON which tests `make test`, the night and `make soak` pick; each collection takes 6 s.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys

import pytest

import run
from brokers.catalogue import AT_NIGHT, CATALOGUE, SMOKE, at_night

FOLDERS = ("conformance", "integration", "spark")
README = run.CLONE / "tests" / "brokers" / "README.md"
PICKS: dict[str, dict[str, str]] = {"day": {}, "night": {"nightly": "only"}, "soak": {"soak": "only"}}
"""Options of tests/brokers/plugin.py, which picks of what was collected."""


class Picking:
    """A plugin that prints what each set of options picks."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        found, plugin = {}, config.pluginmanager.get_plugin("brokers.plugin")
        assert plugin is not None
        for name, options in PICKS.items():
            for option in ("nightly", "soak"):
                setattr(config.option, option, options.get(option, "no"))
            kept = items.copy()
            plugin.pytest_collection_modifyitems(config, kept)
            found[name] = [item.nodeid for item in kept]
        print(f"\n{json.dumps(found)}")


@functools.cache
def picked() -> dict[str, frozenset[str]]:
    """The node ids of all tests on brokers that each set of options picks."""
    paths = {"PYTHONPATH": os.pathsep.join([str(run.CLONE / "tests"), str(run.CLONE)])}
    done = subprocess.run([sys.executable, __file__], cwd=run.CLONE, env=os.environ | paths, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return {name: frozenset(tests) for name, tests in json.loads(line).items()}


def collected(pick: str) -> frozenset[str]:
    return picked()[pick]


def functions(tests: frozenset[str]) -> set[str]:
    """Their functions, as the tables of the README name them: ``test_x.py::test_y``."""
    return {test.partition("[")[0].rpartition("/")[2] for test in tests}


def test_every_function_at_night_is_in_make_test_too() -> None:
    night, day = collected("night"), collected("day")
    assert night
    assert not night & day
    assert sorted(functions(night) - functions(day)) == []


def test_every_function_of_make_soak_alone_names_a_guard_in_make_test() -> None:
    soak, day = functions(collected("soak")), functions(collected("day"))
    rows = re.findall(r"^\| (test_\S+::test_\S+) \| (.+) \|$", README.read_text(), re.MULTILINE)
    assert sorted(test for test, _ in rows) == sorted(soak - day)
    guards = {guard for _, words in rows if not words.startswith("none: ") for guard in words.split(", ")}
    assert sorted(guards - day) == []


def test_what_is_marked_soak_is_in_make_soak_on_older_brokers_too() -> None:
    assert any("[kafka-3.9.2" in test for test in collected("soak"))


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
        ("kafka-3.9.2", "tests/integration/test_kafka_interop.py::test_old_message_sets_are_written_and_read[1]", False),
        ("kafka-3.9.2", "tests/integration/test_kafka_interop.py::test_old_message_sets_are_written_and_read_x", True),
    ],
)
def test_older_brokers_keep_their_smoke(case: tuple[str, str, bool]) -> None:
    broker, test, expected = case
    assert at_night(broker, test) is expected


def test_a_broker_that_is_named_has_all_of_its_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "--broker", "rocketmq-4.9.7-secure"]
    done = subprocess.run(
        [*command, "tests/integration/test_rocketmq_secure.py"], cwd=run.CLONE, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("::") == 8, done.stdout


if __name__ == "__main__":
    words = ["-q", "-p", "no:cacheprovider", "--collect-only", *(f"tests/{name}" for name in FOLDERS)]
    sys.exit(pytest.main(words, plugins=[Picking()]))
