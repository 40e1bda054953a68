"""The engine's loop against a real socket: calls, pipelining, pushes, time-outs, ends."""

from __future__ import annotations

import struct
import sys
import threading
import time
from typing import Any

import pytest

from patience import KEPT, quickest, soon
from task_steps import CAP, connect
from wireproto._net import Call, Connection, Event, Loop, Mailbox
from wireproto.errors import Closed, Disconnected, FrameTooLarge, TimedOut
from wireproto.net.offload import offload


def ask(conn: Connection, verb: bytes, payload: bytes = b"", timeout: float = 20.0) -> bytes:
    token = conn.next_token()
    frame = conn.call(token, [struct.pack(">i", token), verb, payload], soon(timeout))
    assert frame[:4] == struct.pack(">i", token)
    return frame[4:]


def test_a_sync_call_gets_its_reply(conn: Connection) -> None:
    for i in range(300):
        assert ask(conn, b"e", b"%d" % i) == b"%d" % i
    assert conn.pending == 0


def test_replies_in_any_order_reach_their_calls(conn: Connection) -> None:
    calls = []
    for i in range(50):
        token = conn.next_token()
        calls.append((token, conn.submit(token, struct.pack(">i", token) + (b"q" if i < 49 else b"a"))))
    for token, call in calls:
        assert call.result(soon())[:4] == struct.pack(">i", token)


def test_pipelined_calls_leave_in_order_and_are_all_answered(conn: Connection) -> None:
    calls = []
    for i in range(3000):
        token = conn.next_token()
        calls.append(conn.submit(token, [struct.pack(">i", token) + b"e", b"x" * (i % 700)]))
    assert [len(call.result(soon())) - 4 for call in calls] == [i % 700 for i in range(3000)]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 16380, 16384, 65532, 70_000, (1 << 20) - 4, 1 << 20, 5_000_000])
def test_frames_of_all_sizes_both_ways(conn: Connection, size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    assert ask(conn, b"e", payload[:size]) == payload[:size]


def test_a_frame_cut_at_every_byte(conn: Connection) -> None:
    assert ask(conn, b"w", b"cut at every byte") == b"cut at every byte"


def test_several_threads_on_one_connection(conn: Connection) -> None:
    wrong: list[object] = []

    def work(name: int) -> None:
        try:
            for i in range(400):
                payload = b"%d.%d" % (name, i)
                if ask(conn, b"e", payload) != payload:
                    wrong.append(payload)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_requests_that_begin_with_their_token(conn: Connection) -> None:
    for size in (0, 1, 4095, 4096, 100_000):
        frame = conn.ask(0x65_000102, b"x" * size, soon())
        assert frame is not None
        assert frame[4:] == b"\0\1\2" + b"x" * size
    calls = [conn.post(0x65_000000, b"%d" % n) for n in range(2000)]
    assert [call.result(soon())[7:] for call in calls] == [b"%d" % n for n in range(2000)]
    assert [call.token for call in calls] == list(range(6, 2006))
    with pytest.raises(TimedOut):
        conn.ask(0x6E_000000, b"never answered", soon(0.05))
    conn.close()
    assert conn.ask(0x65_000000, b"", soon()) is None, "nothing was sent"
    with pytest.raises(Disconnected):
        conn.post(0x65_000000, b"")


def waiting(conn: Connection, verb: int, payload: bytes) -> tuple[threading.Thread, list[object]]:
    """A thread that waits for the only reply there is to wait for: by recv itself, not by poll."""
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(conn.ask(verb << 24, payload, soon(20)))
        except Exception as why:
            outcome.append(why)

    thread = threading.Thread(target=wait)
    thread.start()
    while not (conn.pending or outcome):
        time.sleep(0.001)
    return thread, outcome


def test_others_are_served_while_a_thread_waits_for_the_only_reply(loop: Loop, port: int) -> None:
    first = connect(loop, port)
    thread, outcome = waiting(first, ord("n"), b"")
    done = Event(loop)
    box = Mailbox(loop, lambda call: done.set(call.frame))
    token = first.next_token()
    begin = time.monotonic()
    first.submit(token, struct.pack(">i", token) + b"e", box)  # nobody waits for it yet
    assert done.wait(soon()) == struct.pack(">i", token)
    assert ask(connect(loop, port), b"e", b"another connection") == b"another connection"
    assert time.monotonic() - begin < KEPT
    first.close("enough")
    thread.join(20)
    assert isinstance(outcome[0], Disconnected)


def test_a_peer_that_dies_is_seen_by_who_waits_for_the_only_reply(conn: Connection) -> None:
    thread, outcome = waiting(conn, ord("k"), b"")
    thread.join(20)
    assert isinstance(outcome[0], Disconnected)
    assert "closed by the peer" in str(outcome[0])


def test_one_loop_reads_all_its_connections(loop: Loop, port: int) -> None:
    conns = [connect(loop, port) for _ in range(12)]
    calls = []
    for i, conn in enumerate(conns * 20):
        token = conn.next_token()
        calls.append((i, conn.submit(token, struct.pack(">i", token) + b"e%d" % i)))
    for i, call in reversed(calls):
        assert call.result(soon())[4:] == b"%d" % i


def test_a_timeout_is_kept_and_the_late_reply_dropped(conn: Connection) -> None:
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        ask(conn, b"q", timeout=0.05)
    assert 0.05 <= time.monotonic() - begin < 0.05 + KEPT
    assert conn.pending == 0
    assert ask(conn, b"a", b"asked for") == b"asked for"  # and now the late reply comes
    assert ask(conn, b"e", b"behind it") == b"behind it"  # it came before this one and did no harm


def test_a_followers_timeout_is_kept_too(conn: Connection) -> None:
    token = conn.next_token()
    slow = conn.submit(token, struct.pack(">i", token) + b"q")
    leader = threading.Thread(target=slow.result, args=(soon(),))
    leader.start()
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        ask(conn, b"n", timeout=0.1)
    assert time.monotonic() - begin >= 0.1
    assert not slow.done, "a follower's time is not the leader's"
    assert ask(conn, b"a", b"go on") == b"go on"
    leader.join(5)
    assert slow.done


def test_a_mailbox_collects_many_calls(loop: Loop, conn: Connection) -> None:
    box = Mailbox(loop)
    for i in range(20):
        token = conn.next_token()
        conn.submit(token, struct.pack(">i", token) + b"e", box, context=i)
    got = [box.get(soon()) for _ in range(20)]
    assert sorted(call.context for call in got) == list(range(20))
    assert box.get() is None
    assert box.unread == 0


def test_a_handler_is_served_by_the_io_thread_in_order(loop: Loop, conn: Connection) -> None:
    seen: list[int] = []
    done = Event(loop)

    def handle(call: object) -> None:
        seen.append(call.context)  # type: ignore[attr-defined]
        if len(seen) == 30:
            done.set(threading.current_thread().name)

    box = Mailbox(loop, handle)
    for i in range(30):
        token = conn.next_token()
        conn.submit(token, struct.pack(">i", token) + b"e", box, context=i)
    assert "wireproto-io" in done.wait(soon())
    assert seen == list(range(30))


def test_what_a_handler_a_timer_or_a_task_raises_is_told_with_its_place(
    loop: Loop, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To `sys.unraisablehook`, with error and traceback, and the I/O thread goes on."""
    told: list[Any] = []
    done = Event(loop)

    def hook(what: Any) -> None:
        told.append((repr(what.exc_value), what.exc_traceback.tb_frame.f_code.co_name if what.exc_traceback else None))
        if len(told) == 3:
            done.set(None)

    def broken(what: object) -> None:
        raise RuntimeError("handler" if isinstance(what, Call) else what)

    monkeypatch.setattr(sys, "unraisablehook", hook)
    token = conn.next_token()
    conn.submit(token, struct.pack(">i", token) + b"e", Mailbox(loop, broken))
    loop.call_at(time.monotonic(), broken, "timer")
    loop.call_soon(broken, "task")
    done.wait(soon())
    assert {error for error, _ in told} == {f"RuntimeError('{what}')" for what in ("handler", "timer", "task")}
    assert all(place is not None for _, place in told)
    assert ask(conn, b"e", b"on") == b"on"


def test_a_call_nobody_waits_for_fails_at_its_time(loop: Loop, conn: Connection) -> None:
    box = Mailbox(loop)
    token = conn.next_token()
    begin = time.monotonic()
    conn.submit(token, struct.pack(">i", token) + b"n", box, timeout_at=begin + 0.1)
    call = box.get(soon())
    assert isinstance(call.error, TimedOut)
    assert 0.1 <= time.monotonic() - begin < 0.1 + KEPT


def test_a_call_without_a_mailbox_fails_at_its_time_too(conn: Connection) -> None:
    """Each at its own, in whatever order they were made; nobody needs to wait."""
    begin, calls = time.monotonic(), []
    for seconds in (0.3, 0.1, 20.0, 0.2):
        token = conn.next_token()
        calls.append(conn.submit(token, struct.pack(">i", token) + b"n", timeout_at=begin + seconds))
    assert ask(conn, b"e", b"others are answered") == b"others are answered"
    for call, seconds in sorted(zip(calls, (0.3, 0.1, 20.0, 0.2), strict=True), key=lambda pair: pair[1])[:3]:
        assert call.wait(soon())
        assert isinstance(call.error, TimedOut)
        assert seconds <= time.monotonic() - begin < seconds + KEPT
        with pytest.raises(TimedOut, match="no reply in time"):
            call.result(soon())
    assert not calls[2].done
    assert conn.pending == 1


def test_a_reply_behind_the_time_of_its_call_is_dropped(conn: Connection) -> None:
    token = conn.next_token()
    late = conn.submit(token, struct.pack(">i", token) + b"q", timeout_at=soon(0.05))
    assert late.wait(soon())
    assert ask(conn, b"a", b"x") == b"x"  # answers the other one behind it
    assert ask(conn, b"e", b"y") == b"y"
    assert isinstance(late.error, TimedOut)
    assert not conn.closed
    assert conn.pending == 0


def test_a_call_that_was_given_up_does_not_expire_as_well(loop: Loop, conn: Connection) -> None:
    calls: list[Call] = []
    made = Event(loop)

    def given_up_in_time() -> None:
        """In the loop's thread, which cannot find one too late meanwhile."""
        for seconds in (0.05, 0.1):
            token = conn.next_token()
            calls.append(conn.submit(token, struct.pack(">i", token) + b"n", timeout_at=soon(seconds)))
        calls[0].cancel()
        made.set()

    loop.call_soon(given_up_in_time)
    assert made.ready_by(soon())
    given_up, expires = calls
    assert expires.wait(soon())
    assert not given_up.done
    assert conn.pending == 0


def test_calls_that_are_answered_in_time_do_not_expire(loop: Loop, conn: Connection) -> None:
    box, calls = Mailbox(loop), []
    for number in range(40):
        token = conn.next_token()
        calls.append(conn.submit(token, struct.pack(">i", token) + b"e", box if number % 2 else None, soon(2.0)))
    assert all(call.result(soon()) for call in calls)
    rung = Event(loop)
    loop.call_at(soon(2.1), rung.set)
    rung.wait(soon())
    assert [call.error for call in calls] == [None] * 40
    assert ask(conn, b"e", b"z") == b"z"


def test_a_timer_runs_in_time_whether_idle_or_reading(loop: Loop, conn: Connection) -> None:
    def ring() -> None:
        event = Event(loop)
        begin = time.monotonic()
        loop.call_at(begin + 0.05, event.set, "rung")
        assert event.wait(soon()) == "rung"
        assert time.monotonic() - begin >= 0.05

    assert quickest(ring) < 0.12


def test_a_timer_that_is_set_while_the_io_thread_goes_to_sleep_runs_in_time(loop: Loop) -> None:
    """By the thread that the I/O thread's last deed has woken, while another one reads and would not be done for long."""
    done = Event(loop)
    rounds = 0

    def again() -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 500:
            loop.call_at(time.monotonic() + 0.0001, offload, loop, again)
        else:
            done.set(None)

    offload(loop, again)
    done.wait(soon())


def test_a_cancelled_timer_does_not_run(loop: Loop) -> None:
    rung: list[int] = []
    event = Event(loop)

    def cancelled_in_time() -> None:
        """In the loop's thread, which cannot ring meanwhile."""
        now = time.monotonic()
        loop.call_at(now + 0.05, rung.append, 1).cancel()
        loop.call_at(now + 0.1, event.set)

    loop.call_soon(cancelled_in_time)
    event.wait(soon())
    assert rung == []


@pytest.mark.parametrize(("verb", "payload", "text"), [(b"k", b"", "closed by the peer"), (b"m", b"12345678", "12 bytes into a frame")])
def test_a_server_that_dies_fails_everything_pending(loop: Loop, conn: Connection, verb: bytes, payload: bytes, text: str) -> None:
    lost = Event(loop)
    conn.on_lost(lost.set)
    token = conn.next_token()
    other = conn.submit(token, struct.pack(">i", token) + b"n")
    with pytest.raises(Disconnected, match=text):
        ask(conn, verb, payload)
    with pytest.raises(Disconnected, match=text):
        other.result(soon())
    with pytest.raises(Disconnected):
        ask(conn, b"e")
    assert isinstance(lost.wait(soon()), Disconnected)
    assert conn.closed
    assert loop.connections == []


def test_a_big_frame_cut_short_says_how_far_it_came(conn: Connection) -> None:
    with pytest.raises(Disconnected, match="of a frame's 3000004 bytes"):
        ask(conn, b"m", bytes(3_000_000))


@pytest.mark.parametrize("length", [-1, -(1 << 31), CAP + 1, (1 << 31) - 1])
def test_a_bad_length_is_refused(conn: Connection, length: int) -> None:
    with pytest.raises(FrameTooLarge, match=str(length)):
        ask(conn, b"l", struct.pack(">i", length))
    assert conn.closed


def test_a_reply_to_no_request_drops_the_connection(conn: Connection) -> None:
    with pytest.raises(Exception, match="never made"):
        ask(conn, b"p", struct.pack(">i", 4711) + b"?")


def test_closing_the_loop_ends_leader_and_followers(loop: Loop, port: int) -> None:
    conn = connect(loop, port)
    ended: list[tuple[type[BaseException], float]] = []

    def wait() -> None:
        try:
            ask(conn, b"n", timeout=20)
        except Exception as error:
            ended.append((type(error), time.monotonic()))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    while conn.pending < 3:
        threading.Event().wait(0.001)
    begin = time.monotonic()
    loop.close()
    for thread in threads:
        thread.join(20)
    assert [kind for kind, _ in ended] == [Closed] * 3
    assert max(at for _, at in ended) - begin < KEPT
    with pytest.raises(Closed):
        ask(conn, b"e")


def test_an_event_set_from_another_thread_wakes_the_reader_at_once(loop: Loop, conn: Connection) -> None:
    def wake() -> None:
        event = Event(loop)
        threading.Timer(0.05, event.set, ["x"]).start()
        assert event.wait(soon()) == "x"

    assert quickest(wake) < 0.15


class Steps:
    """Replies to numbered requests, an event that the last one sets, and who took each: ("prompt" or "I/O thread", number, thread)."""

    def __init__(self, loop: Loop, conn: Connection, count: int, fault: str = "") -> None:
        self.taken: list[tuple[str, int, int]] = []
        self.event = Event(loop)
        self.count, self.fault = count, fault
        box = Mailbox(loop, self.handle, prompt=self.prompt)
        for number in range(count):
            token = conn.next_token()
            conn.submit(token, [struct.pack(">i", token), b"e", b"%d" % number], box)

    def note(self, who: str, item: Any) -> None:
        number = int(item.frame[4:])
        self.taken.append((who, number, threading.get_ident()))
        if number == self.count - 1:
            self.event.set("over")

    def handle(self, item: Any) -> None:
        self.note("I/O thread", item)

    def prompt(self, item: Any) -> bool:
        if self.fault and int(item.frame[4:]) == 2:
            if self.fault == "declines":
                return False
            raise KeyError("a signal handler's")
        self.note("prompt", item)
        return True


def test_a_waiting_thread_serves_a_prompt_mailbox_itself(loop: Loop, conn: Connection) -> None:
    """Unless the I/O thread was quicker to begin."""
    mine = 0
    for _ in range(200):
        steps = Steps(loop, conn, 3)
        assert steps.event.wait(soon()) == "over"
        assert [number for _, number, _ in steps.taken] == [0, 1, 2]
        assert all((thread == threading.get_ident()) == (who == "prompt") for who, _, thread in steps.taken)
        mine += sum(who == "prompt" for who, _, _ in steps.taken)
    assert mine > 300


def test_while_nobody_waits_the_io_thread_serves_a_prompt_mailbox(loop: Loop, conn: Connection) -> None:
    steps = Steps(loop, conn, 5)
    deadline = soon()
    while not steps.event.done and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert [(who, number) for who, number, _ in steps.taken] == [("I/O thread", number) for number in range(5)]


@pytest.mark.parametrize("fault", ["declines", "is interrupted"])
def test_what_prompt_does_not_end_goes_to_the_io_thread_in_order(loop: Loop, conn: Connection, fault: str) -> None:
    for _ in range(50):
        steps = Steps(loop, conn, 6, fault)
        try:
            assert steps.event.wait(soon()) == "over"
        except KeyError:
            assert fault == "is interrupted"
            assert steps.event.wait(soon()) == "over"
        assert [number for _, number, _ in steps.taken] == list(range(6))
        assert steps.taken[2][0] == "I/O thread"
