"""A signal handler that raises in the middle of a queue's roles: nothing stands still, is stored twice or hidden by it.

Handlers raise between any two bytecodes; here an exception comes at each line of what is called, one after the other.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from inspect import isfunction
from types import CodeType, FrameType
from typing import Any

import pytest

from wireproto.errors import TimedOut, WireprotoError
from wireproto.position import LATEST
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.events import Events
from wireproto.zookeeper.producer import QueueProducer as Producer
from wireproto.zookeeper.queue import QueueWorker as Worker
from wireproto.zookeeper.request_path import RequestPath
from wireproto.zookeeper.tree import Tree

PROTOCOL = "zookeeper"
SECONDS = 20.0
CLIENT = {"timeout": SECONDS}

FUNCTIONS = tuple(function for function in vars(Producer).values() if isfunction(function))
GUARDED = (Worker.receive, Worker._receiving)
"""Where a trace function can raise, and no handler: between the end of a `with` and the caller."""
RECEIVING = tuple(function for function in vars(Worker).values() if isfunction(function) and function not in GUARDED)


class Signal(BaseException):
    """What a signal handler raises."""


def lines(functions: tuple[Callable[..., Any], ...]) -> Iterator[tuple[CodeType, int]]:
    for function in functions:
        code = function.__code__  # type: ignore[attr-defined]
        for line in sorted({line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno}):
            yield code, line


@pytest.fixture(autouse=True)
def few_objects() -> Iterator[None]:
    """What other tests left is not looked through again at each line: that took a second each where they had left much."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def interrupted(code: CodeType, line: int, call: Callable[[], Any]) -> bool:
    """Make a call in which a handler raises at that line, the first time that it comes there; whether it did."""
    hit = False

    def inside(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal hit
        if event == "line" and frame.f_lineno == line and not hit:
            hit = True
            raise Signal
        return inside

    gc.collect()
    gc.disable()  # not in the finalizer of a producer before: nothing can be raised there
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: inside if frame.f_code is code else None)
    try:
        call()
    except Signal:
        pass
    except WireprotoError:
        assert not hit
    finally:
        sys.settrace(before)
        gc.enable()
    return hit


def stored(client: Any, topic: str) -> Counter[bytes | None]:
    return Counter(value for batch in client.reader(topic, stop=LATEST) for value in batch.values())


@pytest.mark.parametrize("repeat", [True, False])
def test_a_send_that_is_interrupted_anywhere_stores_once_and_holds_nothing_up(dial: Any, repeat: bool) -> None:
    client, hits = dial(repeat=repeat), 0
    for number, (code, line) in enumerate(lines(FUNCTIONS)):
        topic = f"sends-{repeat}-{number}"
        out = client.producer(topic)
        out.send(b"first").position(SECONDS)
        if interrupted(code, line, lambda out=out: out.send(b"interrupted")):  # type: ignore[misc]
            hits += 1
            where = f"{code.co_name}:{line}"
            out.send(b"later").position(SECONDS)
            found = stored(client, topic)
            assert (found[b"first"], found[b"later"]) == (1, 1), where
            assert found[b"interrupted"] <= 1, where
        with nullcontext() if repeat else suppress(ConnectionLoss):  # of one that nobody knows whether it left
            out.flush(SECONDS)
    assert hits > 25


@pytest.mark.parametrize("refused", [False, True])
def test_a_wait_that_is_interrupted_anywhere_leaves_each_receipt_its_outcome(dial: Any, refused: bool) -> None:
    client, hits = dial(), 0
    for number, (code, line) in enumerate(lines(FUNCTIONS)):
        topic = f"waits-{refused}-{number}"
        out = client.producer(topic)
        if refused:
            client.admin().delete_topic(topic)
        one, two = out.send(b"one"), out.send(b"two")
        hits += interrupted(code, line, lambda one=one: one.position(SECONDS))  # type: ignore[misc]
        if refused:
            for receipt in (one, two):
                with pytest.raises(WireprotoError, match="NONODE"):
                    receipt.position(SECONDS)
            out.flush(SECONDS)  # both have told
        else:
            assert [receipt.position(SECONDS).offset for receipt in (one, two)] == [0, 1], f"{code.co_name}:{line}"
            assert out.send(b"three").position(SECONDS).offset == 2
        assert out._account.held == 0
        assert out.unsettled() == 0
    assert hits > 12


@pytest.mark.parametrize("repeat", [True, False])
def test_a_wait_that_is_interrupted_over_a_lost_connection_gets_on(dial: Any, faults: Any, repeat: bool) -> None:
    hits = 0
    for number, (code, line) in enumerate(lines((Producer.settling, Producer._settling, Producer._collect, Producer._submit))):
        client = dial(repeat=repeat, session_timeout=3.0)  # back soon: who loses many connections in a row takes his time
        out = client.producer(f"losses-{repeat}-{number}")
        faults.lose_reply("create")
        receipt = out.send(b"one")
        hits += interrupted(code, line, lambda receipt=receipt: receipt.position(SECONDS))  # type: ignore[misc]
        if repeat:
            assert receipt.position(SECONDS).offset == 1, f"{code.co_name}:{line}"
        else:
            with pytest.raises(ConnectionLoss):
                receipt.position(SECONDS)
        assert out.send(b"two").position(SECONDS).offset == 1 + repeat
        out.flush(SECONDS)
        faults.clear()
        client.close()
    assert hits > 12


@pytest.fixture
def jobs(dial: Any) -> Callable[[str], str]:
    """Makes a queue of two messages."""
    client = dial()

    def make(topic: str) -> str:
        with client.producer(topic) as out:
            for value in (b"one", b"two"):
                out.send(value)
        return topic

    return make


def test_a_receive_that_is_interrupted_anywhere_leaves_its_claim_to_the_next_one(dial: Any, jobs: Callable[[str], str]) -> None:
    client, hits = dial(), 0
    for number, (code, line) in enumerate(lines(RECEIVING)):
        worker = client.queue(jobs(f"next-{number}"))
        if interrupted(code, line, lambda worker=worker: worker.receive(SECONDS)):  # type: ignore[misc]
            hits += 1
            deliveries = [worker.receive(SECONDS), worker.receive(SECONDS)]
            assert sorted(delivery.value for delivery in deliveries) == [b"one", b"two"], f"{code.co_name}:{line}"
            for delivery in deliveries:
                delivery.ack()
            assert worker.receive(0.0) is None, f"{code.co_name}:{line}"
        worker.close(SECONDS)
        assert client.tree().children(f"/next-{number}/taken")[0] == []
    assert hits > 30


def test_a_receive_that_is_interrupted_anywhere_leaves_no_claim_behind_a_close(dial: Any, jobs: Callable[[str], str]) -> None:
    client, hits = dial(), 0
    for number, (code, line) in enumerate(lines(RECEIVING)):
        worker = client.queue(jobs(f"closed-{number}"))
        hits += interrupted(code, line, lambda worker=worker: worker.receive(SECONDS))  # type: ignore[misc]
        worker.close(SECONDS)
        assert client.tree().children(f"/closed-{number}/taken")[0] == [], f"{code.co_name}:{line}"
    assert hits > 30


def test_what_an_interrupted_receive_has_claimed_is_not_handed_out_behind_its_session(
    broker: Any, dial: Any, jobs: Callable[[str], str]
) -> None:
    """Another worker may have it by then."""
    hits = 0
    for number, (code, line) in enumerate(lines((Worker._claim, Worker._receive))):
        client = dial(session_timeout=3.0)  # back soon, as above
        worker, tree = client.queue(jobs(f"expired-{number}")), client.tree()
        if not interrupted(code, line, lambda worker=worker: worker.receive(SECONDS)):  # type: ignore[misc]
            continue
        hits += 1
        tree.exists("/")  # so what was sent is done
        broker.call("zookeeper", "expire", tree.session[0])
        deliveries = [worker.receive(SECONDS), worker.receive(SECONDS)]
        assert sorted(delivery.value for delivery in deliveries) == [b"one", b"two"], f"{code.co_name}:{line}"
        for delivery in deliveries:
            delivery.ack()
        worker.close(SECONDS)
    assert hits > 5


SETTING = (RequestPath.calling, RequestPath.submitting, Events.setting)
TAKING = (Tree.remove_watch.__wrapped__, Events.take_back, Events._unneeded, Events.taken_back, Events.settling)  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", ["add_watch", "get", "remove_watch"])
def test_a_watch_that_is_interrupted_anywhere_holds_up_no_later_one(dial: Any, call: str) -> None:
    tree, hits = dial().tree(), 0
    tree.create(f"/watched-{call}")

    def told(event: Any) -> None:
        pass

    calls: dict[str, Callable[[str], Any]] = {
        "add_watch": lambda path: tree.add_watch(path, told, timeout=SECONDS),
        "get": lambda path: tree.get(path, watch=told, timeout=SECONDS),
        "remove_watch": lambda path: tree.remove_watch(path, told, timeout=SECONDS),
    }
    for number, (code, line) in enumerate(lines(TAKING if call == "remove_watch" else SETTING)):
        where = f"{code.co_name}:{line}"
        path = tree.create(f"/watched-{call}/{number}")
        if call == "remove_watch":
            tree.add_watch(path, told)
        if not interrupted(code, line, lambda path=path: calls[call](path)):  # type: ignore[misc]
            continue
        hits += 1
        tree.exists("/")  # behind what was sent
        try:
            tree.add_watch(path, told, timeout=SECONDS)
            tree.remove_watch(path, timeout=SECONDS)
        except TimedOut:
            pytest.fail(f"it waits for what was interrupted at {where}")
        assert not tree.has_watch(path), where
        assert not tree._link.events._setting, where
    assert hits > (2 if call == "remove_watch" else 10)
