"""pytest plugin: real brokers as fixtures, the choice of protocol and broker, and a table of what ran where.

    @pytest.mark.parametrize("broker", ["kafka-3.9.2", "kafka-4.3.1"], indirect=True)
    def test_something(broker): broker.url …

    @pytest.mark.broker("pulsar-4.2.4")                     # for tests that take `broker_pool` and start what they need
    def test_other(broker_pool): broker_pool.get("pulsar-4.2.4")

Tests on older and odd brokers (`catalogue.AT_NIGHT`) run with ``--nightly only`` or ``too``, and where ``--broker`` names their broker.

Options: ``--protocol kafka`` (repeatable), ``--broker dev|real|<part of a name>`` (repeatable) pick tests that name a broker, ``--broker
none`` those that name none, ``--except kafka`` those that do not name this protocol; ``--broker-table FILE`` writes what ran, failed and
was skipped to a JSON file; tests/run.py gathers those.
A broker that cannot be started here is a failure when CI=true and a skip otherwise; either way the table says so.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import chance
import ci
import flickers

from . import process, table
from .base import Broker
from .catalogue import CATALOGUE, Pool, Unavailable, at_night

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
POOL = pytest.StashKey[Pool]()
NEEDS = pytest.StashKey[tuple[str, ...]]()
_LEFT: collections.Counter[str] = collections.Counter()
_SECONDS: collections.defaultdict[str, float] = collections.defaultdict(float)
_RESULTS = table.Results()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("brokers", "real brokers")
    group.addoption("--protocol", action="append", default=[], help="only tests of this protocol (repeatable)")
    group.addoption("--except", action="append", default=[], help="only tests that do not name this protocol (repeatable)")
    group.addoption("--broker", action="append", default=[], help="only tests on: none, dev, real, or names that contain this (repeatable)")
    group.addoption("--face", choices=("sync", "aio"), help="only conformance tests over this face of the clients (default: both)")
    group.addoption("--soak", choices=("no", "only", "too"), default="no", help="tests marked soak, which make soak runs (default: no)")
    group.addoption("--nightly", choices=("no", "only", "too"), default="no", help="tests on older and odd brokers (default: no)")
    group.addoption("--broker-table", type=Path, default=None, metavar="FILE", help="write what ran where to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[POOL] = Pool()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[POOL].close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that are named after other protocols than ``--protocol`` asks for: importing all takes seconds."""
    wanted = config.getoption("protocol")
    if not wanted or "none" in config.getoption("broker") or not collection_path.name.startswith("test_"):
        return None
    of_file = _protocols(collection_path.name)
    return True if of_file and not set(of_file) & set(wanted) else None


def _protocols(file: str) -> list[str]:
    """List the protocols that a test file is named after."""
    return [protocol for protocol in PROTOCOLS if protocol in file]


def names(item: pytest.Item) -> tuple[str, ...]:
    """The brokers that a test names, by marker or by parameter; ``dev-<protocol>`` for the embedded one."""
    found = [str(name) for mark in item.iter_markers("broker") for name in mark.args]
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        for value in callspec.params.values():
            name = getattr(value, "broker_name", value if isinstance(value, str) and value in CATALOGUE else None)
            if name is not None:
                found.append(name)
    return tuple(found)


def chosen(found: tuple[str, ...], protocols: list[str], brokers: list[str], excepted: list[str]) -> bool:
    """Whether a test that names these brokers is picked by the options."""
    if _of(found, excepted):
        return False
    if not found:
        return "none" in brokers if brokers else not protocols
    if protocols and not _of(found, protocols):
        return False
    return not brokers or any(
        (wanted == "dev" and name.startswith("dev-")) or (wanted == "real" and not name.startswith("dev-")) or wanted in name
        for name in found
        for wanted in brokers
    )


def _of(found: tuple[str, ...], protocols: list[str]) -> bool:
    """Whether one of these brokers speaks one of these protocols."""
    return any(protocol in name.split("-")[:2] for name in found for protocol in protocols)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    protocols, brokers, soak = config.getoption("protocol"), config.getoption("broker"), config.getoption("soak")
    excepted, nightly = config.getoption("except"), config.getoption("nightly")
    named = [broker for broker in brokers if broker not in ("none", "dev", "real")]
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        item.stash[NEEDS] = needs = names(item)
        of_file = _protocols(item.path.name)
        if of_file and needs and not _of(needs, of_file):
            raise pytest.UsageError(f"{item.nodeid} needs another protocol than its file is named after: --protocol would miss it")
        marked = item.get_closest_marker("soak") is not None
        fits = soak == "too" or marked is (soak == "only")
        if not marked and nightly != "too" and not named:  # what is marked soak follows --soak, on whichever broker
            fits = fits and any(at_night(name, item.nodeid) for name in item.stash[NEEDS]) is (nightly == "only")
        (kept if fits and chosen(item.stash[NEEDS], protocols, brokers, excepted) else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
    if all(broker == "real" for broker in brokers) and brokers:
        items.sort(key=lambda item: item.stash[NEEDS][0])  # each boots once, and few at a time
    _LEFT.update(name for item in items for name in item.stash[NEEDS])


def pytest_collection_finish() -> None:
    """Keep what is imported out of later garbage collections, of which many tests ask for one: it stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Keep what a test file leaves (reports, caches, its imports) out of later garbage collections, too: at the end of a long run each of
    them took 0.3 s. Its garbage is collected before; a warning of that is an error of the next file's first test."""
    try:
        return (yield)
    finally:
        if nextitem is not None and nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    for name in item.stash[NEEDS]:
        item.user_properties.append(("broker", name))
    try:
        return (yield)
    finally:
        for name in item.stash[NEEDS]:
            _LEFT[name] -= 1
            if not _LEFT[name]:
                item.config.stash[POOL].end(name)


@contextlib.contextmanager
def _judges(item: pytest.Item) -> Iterator[None]:
    """A judge in a JVM that cannot be had here is told as a broker is."""
    try:
        yield
    except Unavailable as why:
        missing("java" if item.get_closest_marker("java") else item.nodeid, str(why))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    with _judges(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with _judges(item):
        return (yield)


def start(config: pytest.Config, name: str) -> Broker:
    """The named broker, running; fails or skips the test when this machine cannot run it."""
    pool = config.stash[POOL]
    try:
        return pool.get(name)
    except Unavailable as why:
        missing(name, str(why))
    finally:
        _RESULTS.boot_seconds.update(pool.boot_seconds)
        _RESULTS.boots_again |= pool.boots_again


def missing(name: str, why: str) -> NoReturn:
    """End the test because its broker is not to be had: skipped, and told at the end; failed when CI=true."""
    _RESULTS.missing[name] = why.splitlines()[0]
    if ci.here():
        pytest.fail(f"{name} cannot run here, and CI=true: {why}", pytrace=False)
    pytest.skip(f"{name} cannot run here: {why}")


@pytest.fixture(scope="session")
def broker_pool(request: pytest.FixtureRequest) -> Pool:
    """Brokers by name; name them in ``@pytest.mark.broker(…)`` too, so that they are ended when no test needs them any more."""
    return request.config.stash[POOL]


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """The real broker named by the parameter (``indirect=True``) or by the first ``broker`` marker."""
    name = getattr(request, "param", None)
    if name is None:
        marker = request.node.get_closest_marker("broker")
        if marker is None:
            raise pytest.UsageError("the broker fixture needs a name: parametrize it indirectly or mark the test with broker(name)")
        name = marker.args[0]
    return start(request.config, name)


@pytest.fixture
def fault_proxy() -> Iterator[Any]:
    """A FaultProxy of this test alone."""
    from .proxy import FaultProxy

    with FaultProxy() as proxy:
        yield proxy


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep of a failure what tests/run.py needs to judge it: whether it may be run again, and its traceback."""
    report = yield
    if report.failed and call.excinfo is not None:
        marked = item.get_closest_marker("no_rerun") is not None
        needs = item.stash[NEEDS]
        _RESULTS.details[_entry(report)] = {
            "test": report.nodeid,
            "believed": flickers.believed(report.nodeid, item.path, call.excinfo.value, marked=marked),
            "words": report.longreprtext[-flickers.TRACEBACK :],
            "part": _part(report.nodeid),
            "brokers": " ".join(needs),
        }
    return report


def _part(test: str) -> str:
    """The part of the suite that a test belongs to: its folder."""
    return test.split("/")[1] if test.count("/") > 1 else "tests"


def _entry(report: pytest.TestReport) -> str:
    """A failure's line in the results."""
    return f"{report.nodeid}{f' ({report.when})' * (report.when != 'call')}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file = report.nodeid.partition("::")[0]
    _SECONDS[file] += report.duration
    if report.when != "call" and report.outcome == "passed":
        return
    part = _part(report.nodeid)
    found = [str(name) for kind, name in report.user_properties if kind == "broker"]
    for name in found:
        _RESULTS.count(name, part, report.outcome)
    if report.failed:
        _RESULTS.failures.append(_entry(report))
    if report.skipped:
        why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")
        _RESULTS.skip(why.splitlines()[0], found[0] if found else part)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that cannot be imported is a failure without a test."""
    if report.failed:
        _RESULTS.failures.append(f"{report.nodeid} (collection)")


def pytest_sessionfinish(session: pytest.Session) -> None:
    target: Path | None = session.config.getoption("broker_table")
    if target is not None:
        _RESULTS.seconds[target.stem] = dict(_SECONDS)
        _RESULTS.boots = dict(process.boots)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(_RESULTS.to_json(), indent=1, sort_keys=True) + "\n")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _RESULTS.failures:
        terminalreporter.line(f"seed {chance.seed()}: {chance.VARIABLE}={chance.seed()} repeats what chance chose", red=True)
    if _RESULTS.empty:
        return
    terminalreporter.section("brokers")
    for line in table.lines(_RESULTS):
        terminalreporter.line(line)
    for name, why in sorted(_RESULTS.missing.items()):
        terminalreporter.line(f"NOT RUN: {name}: {why}", red=True, bold=True)
