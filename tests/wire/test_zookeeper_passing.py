"""Servers that say "not now" (throttled, session moved), and lost connections: what is asked again, and what the log has of it."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patience import KEPT, until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import TimedOut
from wireproto.zookeeper.codes import SessionMoved, ThrottledOp
from wireproto.zookeeper.multi import Set
from wireproto.zookeeper.session import SessionEvent, State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}
PASSING = pytest.mark.parametrize("code", [-118, -127])
_numbers = itertools.count()


@pytest.fixture
def node(dial: Any) -> str:
    return str(dial().tree().create("/passing-", b"0", sequence=True))


@pytest.fixture
def jobs(dial: Any) -> str:
    topic = f"passing-{next(_numbers)}"
    with dial().producer(topic) as out:
        out.send(b"job").position()
    return topic


# -- calls that nobody waits for yet ----------------------------------------------------------------------------------------

READS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "get": ("getData", lambda tree, node: tree.get_async(node)),
    "get with a watch": ("getData", lambda tree, node: tree.get_async(node, watch=tree.watch())),
    "exists": ("exists", lambda tree, node: tree.exists_async(node)),
    "children": ("getChildren2", lambda tree, node: tree.children_async(node)),
}


@PASSING
@pytest.mark.parametrize("read", READS)
def test_a_read_that_is_answered_not_now_is_sent_again(seen: Any, dial: Any, faults: Faults, node: str, read: str, code: int) -> None:
    tree = dial().tree()
    message, send = READS[read]
    faults.error(message, code)
    assert send(tree, node).result(SECONDS) is not None
    assert len(seen.requests(message)) == 2


def test_a_call_that_waits_does_not_take_not_now_for_an_answer(seen: Any, dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.error("getData", -127)
    faults.drop("getData")
    call = tree.get_async(node)
    seen.wait("getData", timeout=SECONDS)
    tree.exists(node)  # so the answer is in
    assert not call.done
    assert not call.wait(0.3)
    assert not call.done
    faults.error("getData", -127)
    tree._link.current.close("so that the second is sent again, too")
    assert call.wait(SECONDS)
    assert call.done
    assert call.result(0.0)[0] == b"0"
    assert len(seen.requests("getData")) == 4


def test_a_call_that_waits_does_not_take_a_lost_connection_for_an_answer(seen: Any, dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.lose_reply("getData")
    faults.delay("createSession", 1.0)
    call = tree.get_async(node)
    assert not call.wait(0.5), "its connection is gone, and there is no other"
    assert not call.done
    assert call.wait(SECONDS)
    assert call.done
    asked = len(seen.requests("getData"))
    assert call.result(0.0)[0] == b"0"
    assert len(seen.requests("getData")) == asked == 2


def test_a_call_that_waits_takes_an_error_for_an_answer(dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.lose_reply("setData")
    lost = tree.set_async(node, b"1")
    assert lost.wait(SECONDS)
    assert lost.done
    missing = tree.get_async(f"{node}/none")
    assert missing.wait(SECONDS)
    assert missing.done


def test_a_read_that_is_answered_not_now_is_not_repeated_behind_a_write(dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.error("getData", -127, times=2)
    before, whatever = tree.get_async(node), tree.get_async(node).unordered()
    tree.set(node, b"1")
    assert before.wait(SECONDS)
    assert before.done
    with pytest.raises(ThrottledOp):
        before.result(SECONDS)
    assert whatever.result(SECONDS)[0] == b"1"


@PASSING
def test_a_write_that_nobody_waits_for_says_so_and_is_not_sent_again(seen: Any, dial: Any, faults: Faults, node: str, code: int) -> None:
    """Those behind it may be done by now: repeated, it would be done out of its turn."""
    tree = dial().tree()
    faults.error("setData", code)
    call = tree.set_async(node, b"1")
    with pytest.raises((ThrottledOp, SessionMoved)) as told:
        call.result(SECONDS)
    assert (told.value.retriable, told.value.doubtful) == (True, False)
    assert len(seen.requests("setData")) == 1
    faults.error("setData", code)
    faults.error("multi", code)
    tree.set(node, b"2")
    tree.multi([Set(node, b"3")])
    assert tree.get(node)[0] == b"3", "who waits for it has it sent again"


# -- roles ------------------------------------------------------------------------------------------------------------------


@PASSING
@pytest.mark.parametrize("message", ["exists", "getChildren2", "create", "getData", "multi"])
def test_a_worker_goes_on_behind_not_now(dial: Any, faults: Faults, jobs: str, message: str, code: int) -> None:
    with dial().queue(jobs, "g") as queue:
        faults.error(message, code, times=2)
        delivery = queue.receive(SECONDS)
        assert delivery is not None
        assert delivery.value == b"job"
        delivery.ack(SECONDS)
        faults.clear()
        assert queue.receive(0.1) is None


@PASSING
@pytest.mark.parametrize("message", ["exists", "getChildren2", "create", "getData"])
def test_a_worker_that_hears_not_now_all_the_time_has_nothing_in_time(
    seen: Any, dial: Any, faults: Faults, jobs: str, message: str, code: int
) -> None:
    with dial().queue(jobs, "g") as queue:
        faults.error(message, code, times=-1)
        begin = time.monotonic()
        assert queue.receive(1.0) is None
        assert 1.0 <= time.monotonic() - begin < 1.0 + KEPT
        assert len(seen.requests(message)) < 30, "no storm"
        faults.clear()
        delivery = queue.receive(SECONDS)
        assert delivery is not None
        assert delivery.value == b"job"
        delivery.ack(SECONDS)


@PASSING
@pytest.mark.parametrize("message", ["getChildren2", "getData"])
def test_a_reader_goes_on_behind_not_now(dial: Any, faults: Faults, jobs: str, message: str, code: int) -> None:
    with dial().reader(jobs) as reader:
        faults.error(message, code, times=-1)
        begin = time.monotonic()
        assert reader.poll(0.5) is None
        assert time.monotonic() - begin >= 0.5, "who polls in a loop does not storm"
        faults.clear()
        faults.error(message, code, times=1)
        batch = reader.poll(SECONDS)
        assert batch is not None
        assert batch.values() == [b"job"]


@PASSING
def test_a_message_that_is_answered_not_now_fails_and_the_others_stay_in_order(dial: Any, faults: Faults, jobs: str, code: int) -> None:
    """Sent again it would come behind them. The server has done nothing with it: to send it again is its sender's choice."""
    with dial().producer(jobs) as out:
        faults.delay("create", 0.2)  # so all are on their way
        faults.error("create", code)
        receipts = [out.send(b"%d" % number) for number in range(4)]
        with pytest.raises((ThrottledOp, SessionMoved)) as told:
            receipts[1].position(SECONDS)
        assert (told.value.retriable, told.value.doubtful) == (True, False)
        assert [receipts[number].position(SECONDS).offset for number in (0, 2, 3)] == [1, 2, 3]


# -- the log ----------------------------------------------------------------------------------------------------------------


class Lines(logging.Handler):
    """What `wireproto.zookeeper` logs."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append((time.monotonic(), f"{record.levelname} {record.getMessage()}"))

    def like(self, *parts: str) -> list[tuple[float, str]]:
        return [(at, line) for at, line in list(self.all) if all(part in line for part in parts)]


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, handler = logging.getLogger("wireproto.zookeeper"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


AGAIN: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "set": ("setData", lambda client, node: client.tree().set(node, b"1")),
    "get": ("getData", lambda client, node: client.tree().get(node)),
    "get_async": ("getData", lambda client, node: client.tree().get_async(node).result(SECONDS)),
    "receive": ("create", lambda client, node: client.queue(node, "g").receive(SECONDS)),
}


@pytest.mark.parametrize("call", AGAIN)
def test_what_is_asked_again_behind_not_now_is_told(dial: Any, faults: Faults, node: str, jobs: str, lines: Lines, call: str) -> None:
    message, run = AGAIN[call]
    client = dial()
    faults.error(message, -127)
    run(client, jobs if call == "receive" else node)
    assert lines.like("INFO tried again, while there is time: THROTTLEDOP")


@pytest.mark.parametrize("call", ["get", "get_async"])
def test_a_read_that_is_sent_again_behind_a_lost_connection_is_told(dial: Any, faults: Faults, node: str, lines: Lines, call: str) -> None:
    client = dial()
    faults.lose_reply("getData")
    AGAIN[call][1](client, node)
    assert lines.like("INFO tried again, while there is time: ", "closed by the peer")


def test_a_storm_of_not_now_is_a_line_a_second(dial: Any, faults: Faults, node: str, lines: Lines) -> None:
    tree = dial().tree()
    faults.error("getData", -127, times=-1)
    began = time.monotonic()
    while time.monotonic() < began + 2.5:
        with pytest.raises((ThrottledOp, TimedOut)):
            tree.get(node, timeout=0.1)
    times = [at for at, _ in lines.like("INFO tried again, while there is time: THROTTLEDOP")]
    assert len(times) >= 2
    assert len(times) - 1 <= time.monotonic() - began, "not by when they were written: the first one may have been late"


def test_messages_that_are_sent_again_are_told_with_their_number(dial: Any, faults: Faults, jobs: str, lines: Lines) -> None:
    with dial().producer(jobs) as out:
        faults.drop("create", times=2)
        faults.lose_reply("create")
        receipts = [out.send(b"%d" % number) for number in range(3)]
        assert [receipt.position(SECONDS) for receipt in receipts]
    assert lines.like(f"INFO {jobs}: 3 records are sent again: ", "closed by the peer")


def test_messages_that_a_server_refuses_are_told(dial: Any, faults: Faults, jobs: str, lines: Lines) -> None:
    with dial().producer(jobs) as out:
        faults.error("create", -127)
        with pytest.raises(ThrottledOp):
            out.send(b"1").position(SECONDS)
    assert lines.like("WARNING 1 records were not stored: THROTTLEDOP", jobs)


def test_a_listener_that_fails_is_a_line_a_second(dial: Any, lines: Lines) -> None:
    tree, called = dial().tree(), itertools.count()
    began = time.monotonic()

    def fails(event: Any) -> None:
        next(called)
        raise ZeroDivisionError("in the listener")

    tree.on_state(fails)
    for _ in range(200):
        tree.link.events.changed(SessionEvent(State.CONNECTED, 1, 1))
    tree.link.events.settle(time.monotonic() + SECONDS)
    over = threading.Event()
    tree.link.events.dispatcher.call([lambda event: over.set()], None)
    assert over.wait(SECONDS)
    assert next(called) == 201
    assert len(lines.like("WARNING the callback", "in the listener")) <= 1 + time.monotonic() - began


def test_callbacks_that_fail_are_a_line_a_second_with_the_place(broker: DevBroker, dial: Any, node: str, lines: Lines) -> None:
    tree, called, fine = dial().tree(), itertools.count(), threading.Event()

    def fails(event: Any) -> None:
        next(called)
        raise ZeroDivisionError("in the callback")

    tree.add_watch(node, fails)
    began = time.monotonic()
    while time.monotonic() < began + 2.5:
        tree.set(node, b"1")
        time.sleep(0.005)
    tree.get(node, watch=lambda event: fine.set())
    tree.set(node, b"2")
    assert fine.wait(SECONDS), "the others are called"
    until(lambda: len(lines.like("WARNING the callback")) >= 2, limit=SECONDS)
    times = [at for at, _ in lines.like("WARNING the callback")]
    assert len(times) - 1 <= time.monotonic() - began, "not by when they were written: the first one may have been late"
    assert next(called) > 20
    (_, first), *_ = lines.like("WARNING the callback")
    assert "raise ZeroDivisionError" in first
    assert fails.__qualname__ in first
