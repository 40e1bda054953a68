"""What a client tells the log: one line a second of one cause, nothing done where nobody listens."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable

import pytest

from wireproto.errors import Closed
from wireproto.net.client_log import ClientLog


class Clock:
    """Time that a test moves, and what is to be called then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def arm(self, when: float, call: Callable[[], None]) -> None:
        self.alarms.append((when, call))

    def go(self, to: float) -> None:
        for alarm in [alarm for alarm in self.alarms if alarm[0] <= to]:
            self.alarms.remove(alarm)
            self.now = alarm[0]
            alarm[1]()
        self.now = to


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_storm_of_one_cause_is_one_line_a_second_which_counts_the_others(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog("kafka", clock.arm, clock)
    with caplog.at_level(logging.INFO, "wireproto.kafka"):
        for step in range(3000):
            clock.go(step / 1000)
            log.info("again", "tried again: %s", step)
        clock.go(10.0)
    assert caplog.messages == [
        "tried again: 0",
        "tried again: 999 (and 998 more like it)",
        "tried again: 1999 (and 999 more like it)",
        "tried again: 2999 (and 999 more like it)",
    ]
    assert {record.name for record in caplog.records} == {"wireproto.kafka"}
    assert clock.alarms == []


def test_the_last_of_two_lines_is_told_when_it_is_quiet_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog("kafka", clock.arm, clock)
    with caplog.at_level(logging.INFO, "wireproto.kafka"):
        log.info("state", "lost")
        log.info("state", "there again")
        assert caplog.messages == ["lost"]
        clock.go(1.0)
    assert caplog.messages == ["lost", "there again"]


def test_a_line_that_comes_before_a_timer_that_is_late_is_not_told_beside_what_it_tells(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = ClientLog("kafka", clock.arm, clock)
    with caplog.at_level(logging.INFO, "wireproto.kafka"):
        for when in (0.0, 0.5, 1.001):
            clock.now = when
            log.info("again", "tried again: %s", when)
        clock.go(1.002)
    assert caplog.messages == ["tried again: 0.0", "tried again: 1.001 (and 1 more like it)"]


def test_a_closed_client_keeps_what_it_held_back_to_itself(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    def closed(when: float, call: Callable[[], None]) -> None:
        raise Closed("the client was closed")

    log = ClientLog("kafka", closed, clock)
    with caplog.at_level(logging.INFO, "wireproto.kafka"):
        log.info("state", "lost")
        log.info("state", "there again")
    assert caplog.messages == ["lost"]


def test_causes_do_not_hold_each_other_back(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog("pulsar", clock.arm, clock)
    with caplog.at_level(logging.INFO, "wireproto.pulsar"):
        for peer in ("a:1", "b:1", "a:1"):
            log.warning(("connect", peer), "%s: no connection", peer)
    assert caplog.messages == ["a:1: no connection", "b:1: no connection"]


def test_causes_that_are_over_are_forgotten(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog("pulsar", clock.arm, clock)
    with caplog.at_level(logging.INFO, "wireproto.pulsar"):
        for number in range(10_000):
            clock.now = float(number)
            log.info(number, "line %d", number)
    assert len(caplog.messages) == 10_000
    assert len(log._causes) < 1000


class Costly:
    def __str__(self) -> str:
        raise AssertionError("nobody listens, so nobody is to be told")


def test_where_nobody_listens_nothing_is_done(clock: Clock) -> None:
    log = ClientLog("rocketmq", clock.arm, clock)
    logger = logging.getLogger("wireproto.rocketmq")
    logger.setLevel(logging.ERROR)
    try:
        log.info("x", "%s", Costly())
        log.warning("x", "%s", Costly())
        log.rebalanced("g", [Costly()], [])
        assert log._causes == {}
    finally:
        logger.setLevel(logging.NOTSET)


TELLING = """
import logging, sys
exec(sys.argv[1])
from wireproto.net.client_log import ClientLog
log = ClientLog('kafka', print)
log.info('x', 'connected')
log.warning('y', 'lost')
"""


@pytest.mark.parametrize(
    ("configured", "shown"),
    [
        pytest.param("", "lost\n", id="nothing, so that Python's last resort shows warnings"),
        pytest.param("logging.getLogger('wireproto').addHandler(logging.NullHandler())", "", id="no lines of this package"),
        pytest.param("logging.basicConfig(level=logging.INFO)", "INFO:wireproto.kafka:connected\nWARNING:wireproto.kafka:lost\n", id="all"),
    ],
)
def test_a_program_sees_warnings_unless_it_has_configured_logging_otherwise(configured: str, shown: str) -> None:
    run = subprocess.run([sys.executable, "-c", TELLING, configured], capture_output=True, text=True, check=True, timeout=60)
    assert (run.stdout, run.stderr) == ("", shown)


def test_a_line_just_when_the_quiet_is_over_is_told_at_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog("kafka", clock.arm, clock)
    with caplog.at_level(logging.INFO, "wireproto.kafka"):
        log.info("state", "lost")
        clock.go(1.0)
        log.info("state", "there again")
    assert caplog.messages == ["lost", "there again"]
    assert clock.alarms == []
