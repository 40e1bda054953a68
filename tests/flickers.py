"""Judges the failures of a whole run: which failed tests are run once more, and what the run makes of those that pass then.

A test on brokers, scripted peers, threads or clocks that fails is run again when all parts have ended: alone, in a process of its own, with
brokers and folders of its own and the same seed. If it passes then, it flickered: the run names it and goes on. The run fails if a test
fails twice, if more than `MOST` tests flickered, or if one of them has been listed in tests/flickers.txt for more than `DAYS` days.

A failure that may be a lost, repeated or wrongly decoded record is believed at once (`believed`): a second run would hide it.

What it is: the rule, for brokers.plugin (which failures) and tests/run.py (what becomes of them). May assume: the standard library.
"""

from __future__ import annotations

import datetime
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MOST = 3  # flickers in one run
DAYS = 14  # for which a listed test may flicker
LIST = Path(__file__).with_name("flickers.txt")
TRACEBACK = 12_000  # characters of a first traceback that are kept: its end

LEDGERS = (  # files of tests whose failure may be a lost, repeated or wrongly decoded record, whatever its words
    "tests/*/test_*alike*.py",  # the same random calls, on a real broker and on the embedded one
    "tests/integration/test_*histories.py",
    "tests/integration/test_kafka_movers.py",
    "tests/integration/test_*transactions_in_doubt.py",
    "tests/integration/test_example_once.py",
    "tests/spark/test_kills*.py",
    "tests/spark/test_*_once.py",
    "tests/spark/test_*_exactly.py",
    "tests/conformance/test_killed.py",
    "tests/conformance/test_records.py",
    "tests/wire/test_*_records*.py",
    "tests/wire/test_*_java.py",
    "tests/wire/*/test_*vectors*.py",
)
WAITING = frozenset(  # what a test module imports that depends on threads, clocks, sockets or processes
    (
        *("asyncio", "multiprocessing", "queue", "selectors", "signal", "socket", "subprocess", "threading", "time", "wireproto.devbroker"),
        *("benchmarks", "brokers", "interrupting", "lanes", "net_server", "patience", "peers", "pulsar_server"),
        *("pulsar_slow", "pulsar_raw", "kafka_unruly", "kafka_relay", "kafka_nodes", "taking"),
    )
)
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)
_BYTES = re.compile(r"\bb['\"]|\bRecord\(|\bRow\(")


def believed(test: str, source: Path, error: BaseException | None, *, marked: bool = False) -> str:
    """Give the reason why a failure is believed without a second run, or "".

    Args:
        test: the test's node id, ``tests/wire/test_x.py::test_y[z]``.
        source: its file.
        error: what it raised.
        marked: whether it has the mark ``no_rerun``.
    """
    path = test.partition("::")[0]
    if marked:
        return "it is marked no_rerun"
    if any(fnmatch.fnmatch(path, pattern) for pattern in LEDGERS):
        return "its failure may be a lost, repeated or wrongly decoded record"
    if isinstance(error, AssertionError) and _BYTES.search(str(error)):
        return "it compares records or bytes"
    if path.startswith("tests/unit/") and not waits(source.read_text(encoding="utf-8")):
        return "it waits for nothing"
    return ""


def waits(text: str) -> bool:
    """Whether a test module imports anything that depends on threads, clocks, sockets or processes."""
    names = _IMPORT.findall(text)
    return any(name in WAITING or name.partition(".")[0] in WAITING or name.startswith("wireproto.devbroker.") for name in names)


@dataclass(frozen=True)
class Failure:
    """A test that failed in a part of the run.

    Attributes:
        test: its node id. job: the part that ran it.
        entries: its lines in the results: the test itself, its set-up, its tear-down.
        believed: why it is not run again, or "".
        words: its first traceback.
    """

    test: str
    job: str
    entries: tuple[str, ...]
    believed: str
    words: str


@dataclass(frozen=True)
class Listed:
    """A line of tests/flickers.txt: a test that was seen to flicker, when, on which commit, and what it waited for."""

    date: datetime.date
    commit: str
    test: str
    waited_for: str


def read(path: Path = LIST) -> list[Listed]:
    """Read the list of tests that were seen to flicker.

    Raises:
        ValueError: a line is not ``date  commit  test  what it waited for``, separated by two spaces or more.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = re.split(r"\s{2,}", line.strip(), maxsplit=3)
        if len(words) != 4:
            raise ValueError(f"{path.name}:{number}: not 'date  commit  test  what it waited for': {line!r}")
        found.append(Listed(datetime.date.fromisoformat(words[0]), *words[1:]))
    return found


@dataclass
class Judgement:
    """What the second runs came to.

    Attributes:
        flickered: failed, and passed when run again.
        failed: failed again, or was believed at once; with the reason.
        overdue: those of `flickered` that have been listed for more than `DAYS` days, with the date.
    """

    flickered: list[Failure] = field(default_factory=list)
    failed: list[tuple[Failure, str]] = field(default_factory=list)
    overdue: list[tuple[Failure, datetime.date]] = field(default_factory=list)

    @property
    def fails(self) -> list[str]:
        """Why the run fails although these tests passed when run again; empty if it need not."""
        found = [
            f"{one.test} flickers since {since}: more than {DAYS} days; mend it, or take it out with the reason on record"
            for one, since in self.overdue
        ]
        if len(self.flickered) > MOST:
            found.append(f"{len(self.flickered)} tests flickered; {MOST} may")
        return found

    def lines(self) -> list[str]:
        """Describe the flickers, each with its first traceback."""
        if not self.flickered:
            return []
        out = ["", "=== flickered: failed once, passed when run again alone; tests/flickers.txt lists what each waited for"]
        for one in self.flickered:
            out += [f"FLICKERED {one.test} ({one.job})", *(f"    {line}" for line in one.words.splitlines())]
        return out


def judge(failures: Iterable[Failure], again: Callable[[Failure], bool], listed: Sequence[Listed], today: datetime.date) -> Judgement:
    """Run again what may be run again.

    Args:
        failures: of all parts.
        again: runs one test again; whether it passed.
        listed: what was seen to flicker before.
        today: against which `listed` is held.
    """
    found = Judgement()
    first_seen: dict[str, datetime.date] = {}
    for line in listed:
        first_seen[line.test] = min(line.date, first_seen.get(line.test, line.date))
    for failure in failures:
        if failure.believed:
            found.failed.append((failure, f"not run again: {failure.believed}"))
        elif again(failure):
            found.flickered.append(failure)
            since = first_seen.get(failure.test)
            if since is not None and today > since + datetime.timedelta(days=DAYS):
                found.overdue.append((failure, since))
        else:
            found.failed.append((failure, "failed again, alone"))
    return found
