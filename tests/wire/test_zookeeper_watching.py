"""Watches of the ZooKeeper client: set, taken back and called in the order of what happened, whatever callbacks do."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import wireproto
from brokers.proxy import FaultProxy
from patience import until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import Forked, TimedOut, UsageError
from wireproto.zookeeper.codes import BadArguments, MarshallingError, NoWatcher, WatcherType
from wireproto.zookeeper.session import SessionEvent, State
from wireproto.zookeeper.watch import WatchedEvent

PROTOCOL = "zookeeper"
SECONDS = 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(broker: DevBroker) -> str:
    with wireproto.connect(broker.url("zookeeper")) as client:
        return str(client.tree().create(f"/n-{time.monotonic_ns()}", b"0"))


@pytest.fixture
def keeper(dial: Any) -> Iterator[Callable[[Any], Callable[[], None]]]:
    """Keeps a client's I/O thread from its work until the function returned is called."""
    held: list[threading.Event] = []

    def hold(tree: Any) -> Callable[[], None]:
        busy, go_on = threading.Event(), threading.Event()
        held.append(go_on)

        def wait() -> None:
            busy.set()
            go_on.wait(SECONDS)

        tree.loop.call_soon(wait)
        assert busy.wait(SECONDS)
        return go_on.set

    yield hold
    for go_on in held:
        go_on.set()


# -- callbacks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_a_callback_raises_the_others_are_called(
    dial: Any, node: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    tree = dial().tree()
    called = threading.Event()

    def breaks_off(event: Any) -> None:
        raise error("of a callback")

    tree.get(node, watch=breaks_off)
    tree.children(node, watch=lambda event: called.set())
    with caplog.at_level(logging.WARNING, "wireproto.zookeeper"):
        tree.set(node, b"1")
        tree.create(f"{node}/below")
        assert called.wait(SECONDS)
    assert "breaks_off" in caplog.text
    assert "of a callback" in caplog.text


@dataclass
class Unhashable:
    """A dataclass that compares has no hash."""

    number: int = 0

    def __call__(self, event: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("callback", [Unhashable(), "no function"], ids=["no hash", "no function"])
@pytest.mark.parametrize("call", ["get", "get_async", "exists", "children", "add_watch", "config"])
def test_what_cannot_be_kept_as_a_callback_is_refused_before_anything_is_sent(
    dial: Any, node: str, seen: Any, callback: Any, call: str
) -> None:
    tree = dial().tree()
    before = len(seen.requests())
    calls: dict[str, Callable[[], Any]] = {
        "add_watch": lambda: tree.add_watch(node, callback),
        "config": lambda: tree.config(watch=callback),
    }
    with pytest.raises(UsageError, match="watch"):
        calls.get(call, lambda: getattr(tree, call)(node, watch=callback))()
    tree.exists(node)
    assert [request.name for request in seen.requests()[before:] if request.name != "ping"] == ["exists"]


# -- set and taken back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("everything", [False, True], ids=["one", "all"])
def test_a_watch_that_is_being_set_outlives_the_end_of_another(dial: Any, node: str, faults: Faults, everything: bool) -> None:
    tree, other = dial().tree(), dial().tree()
    first, second = tree.watch(), tree.watch()
    tree.get(node, watch=first)
    faults.delay("getData", 0.3)
    setting = tree.get_async(node, watch=second)
    tree.remove_watch(node, None if everything else first)
    assert setting.result(SECONDS)[0] == b"0"
    other.set(node, b"1")
    assert second.wait(SECONDS) is not None
    assert not first.fired


def test_a_watch_that_is_set_while_the_last_one_is_taken_back_waits_for_that(
    dial: Any, node: str, seen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, other = dial().tree(), dial().tree()
    first, second = tree.watch(), tree.watch()
    tree.get(node, watch=first)
    real, known = tree._link.calling, len(seen.requests("getData"))
    setters: list[threading.Thread] = []

    def calling(request: Any, *arguments: Any) -> Any:
        if request.code == 18:  # the book is without the callback, the server not yet
            setters.append(threading.Thread(target=lambda: tree.get(node, watch=second)))
            setters[0].start()
            with contextlib.suppress(AssertionError):
                seen.wait("getData", known + 1, timeout=0.3)
        return real(request, *arguments)

    monkeypatch.setattr(tree._link, "calling", calling)
    tree.remove_watch(node, first)
    setters[0].join(SECONDS)
    assert tree.has_watch(node)
    other.set(node, b"1")
    assert second.wait(SECONDS) is not None
    assert not first.fired


def test_the_servers_watch_goes_with_the_last_callback(dial: Any, node: str, seen: Any) -> None:
    tree = dial().tree()
    first, second = tree.watch(), tree.watch()
    for watch in (first, second):
        tree.get(node, watch=watch)
    tree.remove_watch(node, first)
    assert tree.has_watch(node)
    tree.remove_watch(node, second)
    assert not tree.has_watch(node)
    assert len(seen.requests("removeWatches")) == 1
    with pytest.raises(NoWatcher):
        tree.remove_watch(node, second)


@pytest.mark.parametrize("recursive", [False, True])
def test_a_watch_that_stays_goes_from_the_server_though_another_one_waits_there(dial: Any, node: str, recursive: bool) -> None:
    """Else its events come for as long as the session lives, and nobody wants them."""
    tree, other = dial().tree(), dial().tree()
    called: list[WatchedEvent] = []
    once = tree.watch()
    tree.add_watch(node, called.append, recursive=recursive)
    tree.get(node, watch=once)
    tree.remove_watch(node, called.append)
    assert not tree.has_watch(node, WatcherType.PERSISTENT_RECURSIVE if recursive else WatcherType.PERSISTENT)
    assert tree.has_watch(node, WatcherType.DATA)
    other.set(node, b"1")
    assert once.wait(SECONDS) is not None
    assert not called


def test_a_watch_that_stays_and_is_being_set_anew_is_left_to_the_server(dial: Any, node: str, faults: Faults) -> None:
    tree, other = dial().tree(), dial().tree()
    first: list[WatchedEvent] = []
    second, listed = tree.watch(), tree.watch()
    tree.add_watch(node, first.append)
    tree.children(node, watch=listed)
    faults.delay("addWatch", 1.5)
    setting = threading.Thread(target=tree.add_watch, args=(node, second))
    setting.start()
    until(lambda: bool(tree._link.events._setting))
    tree.remove_watch(node, first.append)
    setting.join(SECONDS)
    other.set(node, b"1")
    assert second.wait(SECONDS) is not None
    assert not first


@pytest.mark.parametrize("code", [BadArguments.code, MarshallingError.code])
def test_a_server_that_does_not_tell_a_watch_from_others_keeps_it(dial: Any, node: str, faults: Faults, code: int) -> None:
    """Those before 3.9."""
    tree = dial().tree()
    called: list[WatchedEvent] = []
    once = tree.watch()
    tree.add_watch(node, called.append)
    tree.get(node, watch=once)
    faults.error("removeWatches", code)
    tree.remove_watch(node, called.append)
    tree.remove_watch(node)
    assert not tree.has_watch(node)


@pytest.mark.parametrize("recursive", [False, True])
def test_a_watch_that_was_set_though_nobody_heard_of_it_can_be_taken_back(dial: Any, node: str, faults: Faults, recursive: bool) -> None:
    tree, other = dial().tree(), dial().tree()
    called: list[Any] = []
    faults.delay("addWatch", 1.5)
    with pytest.raises(TimedOut):
        tree.add_watch(node, called.append, recursive=recursive, timeout=0.05)
    tree.exists(node)  # behind it on the wire
    tree.remove_watch(node, called.append)
    assert not tree.has_watch(node)
    with pytest.raises(NoWatcher):
        tree.remove_watch(node, called.append)
    other.set(node, b"1")
    assert tree.get(node)[0] == b"1"
    assert called == []


def test_who_waits_for_another_that_takes_a_watch_back_keeps_its_time(dial: Any, node: str, seen: Any, faults: Faults) -> None:
    tree = dial().tree()
    watch = tree.watch()
    tree.get(node, watch=watch)
    faults.drop("removeWatches")
    taking = threading.Thread(target=tree.remove_watch, args=(node, watch))
    taking.start()
    seen.wait("removeWatches", 1, timeout=SECONDS)
    calls: list[Callable[[], Any]] = [
        lambda: tree.get(node, watch=tree.watch(), timeout=0.2),
        lambda: tree.remove_watch(node, timeout=0.2),
    ]
    for call in calls:
        with pytest.raises(TimedOut, match="removes a watch of this path"):
            call()
    tree._link.current.close("enough")  # it is asked again on the next connection
    taking.join(SECONDS)
    assert not taking.is_alive()


def test_taking_a_watch_back_waits_in_time_for_what_has_arrived(dial: Any, node: str, keeper: Any) -> None:
    tree = dial().tree()
    tree.get(node, watch=tree.watch())
    go_on = keeper(tree)
    with pytest.raises(TimedOut, match="the watch events received before were not delivered in time"):
        tree.remove_watch(node, timeout=0.2)
    go_on()
    tree.remove_watch(node)


# -- order ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["get", "get_async"])
def test_an_event_is_told_before_the_data_that_it_tells_of(dial: Any, node: str, keeper: Any, read: str) -> None:
    tree, other = dial().tree(), dial().tree()
    watch = tree.watch()
    tree.get(node, watch=watch)
    go_on = keeper(tree)
    other.set(node, b"1")
    timer = threading.Timer(0.3, go_on)
    timer.start()
    data = tree.get(node)[0] if read == "get" else tree.get_async(node).result(SECONDS)[0]
    assert (data, watch.fired) == (b"1", True)
    timer.join()


def test_events_and_states_are_told_in_the_order_in_which_they_were(broker: DevBroker, dial: Any, node: str, keeper: Any) -> None:
    """What the lost connection told comes before its loss, what the next one tells comes behind it."""
    tree, other = dial().tree(), dial().tree()
    told: list[Any] = []
    done = threading.Event()

    def note(event: Any) -> None:
        told.append(event.state if isinstance(event, SessionEvent) else event.path)
        if told[-1] == f"{node}/late":
            done.set()

    late, early = other.create(f"{node}/late"), other.create(f"{node}/early")
    for path in (late, early):
        tree.get(path, watch=note)
    tree.on_state(note)
    go_on = keeper(tree)
    other.set(early, b"1")
    call = tree.get_async(node)
    assert call.wait(SECONDS)  # so the event has come, and lies there
    conn = tree._link.current
    conn.close("cut")
    tree._link.lost(conn, None)  # as a caller does that meets the loss first
    other.set(late, b"1")
    go_on()
    assert done.wait(SECONDS)
    assert told == [State.CONNECTED, early, State.SUSPENDED, State.CONNECTED, late]


def test_a_listener_is_told_the_state_of_now_and_each_change_until_it_is_taken_back(broker: DevBroker, dial: Any, node: str) -> None:
    tree, other = dial().tree(), dial().tree()
    told: list[SessionEvent] = []
    other_told: list[SessionEvent] = []
    news = threading.Condition()

    def note(event: SessionEvent) -> None:
        with news:
            told.append(event)
            news.notify_all()

    def wait(count: int) -> bool:
        with news:
            return news.wait_for(lambda: len(told) >= count, SECONDS)

    zxid = tree.set(node, b"1").mzxid
    stop = tree.on_state(other_told.append)
    tree.on_state(note)
    assert wait(1)
    session = tree.session[0]
    assert told[0].state is State.CONNECTED
    assert told[0].session_id == session
    stop()
    stop()
    assert broker.call("zookeeper", "expire", session)
    assert wait(4)
    states = [event.state for event in told]
    assert states == [State.CONNECTED, State.SUSPENDED, State.EXPIRED, State.CONNECTED]
    assert [event.session_id for event in told] == [session] * 3 + [tree.session[0]]
    assert all(event.zxid >= zxid for event in told[1:])
    assert [event.state for event in other_told] == [State.CONNECTED]
    assert other.exists(node) is not None


# -- set again --------------------------------------------------------------------------------------------------------------


def many(tree: Any, node: str, count: int, size: int) -> list[str]:
    """Watches nodes that are not there, by long names."""
    names = [f"{node}/{number:04d}{'x' * size}" for number in range(count)]
    for call in [tree.exists_async(name, watch=print) for name in names]:
        call.result(SECONDS)
    return names


def reconnected(tree: Any) -> threading.Event:
    """Is set at the next connection."""
    gone, back = threading.Event(), threading.Event()
    tree.on_state(
        lambda event: (
            gone.set() if event.state is State.SUSPENDED else back.set() if gone.is_set() and event.state is State.CONNECTED else None
        )
    )
    return back


def test_watches_take_as_long_to_be_set_again_as_the_server_goes_on_answering(
    broker: DevBroker, dial: Any, node: str, proxy: FaultProxy, seen: Any
) -> None:
    """All packets take longer on this line than a server without an answer may."""
    tree = dial(proxy.url(broker.url("zookeeper")), session_timeout=2.4).tree()
    names = many(tree, node, 24, 45_000)
    back = reconnected(tree)
    seen.clear()
    proxy.slow(175_000)
    begin = time.monotonic()
    proxy.cut()
    assert back.wait(SECONDS)
    packets = seen.requests("setWatches")
    assert [path for packet in packets for path in packet.message.exist_watches] == names
    assert len(seen.requests("createSession")) == 1
    assert time.monotonic() - begin > 4.8


def test_packets_of_watches_do_not_wait_for_each_other(broker: DevBroker, dial: Any, node: str, faults: Faults, seen: Any) -> None:
    tree = dial().tree()
    many(tree, node, 8, 45_000)
    back = reconnected(tree)
    faults.delay("setWatches", 1.0, times=8)
    seen.clear()
    broker.kick("zookeeper")
    assert back.wait(SECONDS)
    packets = seen.requests("setWatches")
    assert len(packets) == 8
    assert packets[7].at - packets[0].at < 4.0, "one by one it would be seven seconds"


def test_a_server_that_stops_answering_while_watches_are_set_again_is_left(
    broker: DevBroker, dial: Any, node: str, faults: Faults, seen: Any
) -> None:
    tree = dial(f"zookeeper://{broker.address('zookeeper')},{broker.address('zookeeper')}", session_timeout=3.0).tree()
    names = many(tree, node, 3, 45_000)
    back = reconnected(tree)
    faults.stall("setWatches")
    seen.clear()
    broker.kick("zookeeper")
    assert back.wait(SECONDS)
    assert len(seen.requests("createSession")) == 2
    assert [path for packet in seen.requests("setWatches")[-3:] for path in packet.message.exist_watches] == names


def test_packets_of_watches_stay_within_what_the_servers_take(broker: DevBroker, dial: Any, node: str, seen: Any) -> None:
    tree = dial(max_frame=65536).tree()
    names = many(tree, node, 60, 3000)
    back = reconnected(tree)
    seen.clear()
    broker.kick("zookeeper")
    assert back.wait(SECONDS)
    packets = seen.requests("setWatches")
    assert sorted(path for packet in packets for path in packet.message.exist_watches) == names
    assert max(len(packet.frame) for packet in packets) < 65536


# -- fork -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["get", "get with a watch", "remove_watch", "on_state", "add_auth", "state", "close"])
def test_a_child_forked_while_the_link_is_busy_does_not_hang(broker: DevBroker, dial: Any, node: str, faults: Faults, call: str) -> None:
    client = dial()
    tree = client.tree()
    if call == "get":  # as it is while it is suspended
        faults.delay("createSession", 3.0)
        gone = threading.Event()
        tree.on_state(lambda event: gone.set() if event.state is State.SUSPENDED else None)
        broker.kick("zookeeper")
        assert gone.wait(SECONDS)
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: tree.get(node, timeout=1.0),
        "get with a watch": lambda: tree.get(node, watch=tree.watch(), timeout=1.0),
        "remove_watch": lambda: tree.remove_watch(node, timeout=1.0),
        "on_state": lambda: tree.on_state(print),
        "add_auth": lambda: tree.add_auth("digest", "a:b", timeout=1.0),
        "state": lambda: tree.state,
        "close": lambda: client.close(1.0),
    }
    with tree._link._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                calls[call]()
            except Forked:
                os._exit(7)
            except BaseException:
                os._exit(1)
            os._exit(0)
    deadline = time.monotonic() + SECONDS
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status[1]) == (0 if call in ("state", "close") else 7)
