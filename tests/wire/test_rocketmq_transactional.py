"""The transactional role on the embedded broker, which takes its heartbeats and refuses halves: what is refused before anything is sent,
who is told that it may be asked, and what a half's ends may not do. What brokers do with halves is told by
tests/integration/test_rocketmq_transactional.py."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto._net import Event
from wireproto.deadlines import deadline_after
from wireproto.devbroker import DevBroker
from wireproto.devbroker.rocketmq import stored
from wireproto.errors import Aborted, Closed, OptionError, OutcomeUnknown, TransportError, UsageError, ValueUnsupported
from wireproto.net.task import Steps, Task, steps_of
from wireproto.rocketmq import checks, codes
from wireproto.rocketmq.checks import Checks, Question
from wireproto.rocketmq.errors import NoMaster
from wireproto.rocketmq.half import CheckedMessage, HalfMessage, Place, State, Verdict
from wireproto.rocketmq.messages import CheckTransactionStateRequest

PROTOCOL = "rocketmq"
LATE = 20.0
UNKNOWN_HERE = "code 37"
"""An end, to a broker that knows none."""


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("rocketmq")) as made:
        yield made


def undecided(message: CheckedMessage) -> None:
    """A check."""


@pytest.mark.parametrize("wrong", [None, "commit", 5])
def test_a_check_that_is_no_function(client: Any, wrong: Any) -> None:
    with pytest.raises(OptionError, match="check is a function"):
        client.transactional("g", check=wrong)


async def awaited(message: CheckedMessage) -> Verdict:
    """A check."""
    return "commit"


class AwaitedToo:
    """A check."""

    async def __call__(self, message: CheckedMessage) -> Verdict:
        return "commit"


@pytest.mark.parametrize("wrong", [awaited, partial(awaited), AwaitedToo()])
def test_a_check_that_nobody_would_await(client: Any, wrong: Any) -> None:
    """Each answer would be a coroutine, which is no word: brokers put a message away that is checked so 15 times."""
    with pytest.raises(OptionError, match=r"needs wireproto\.aio: use that"):
        client.transactional("g", check=wrong)


@pytest.mark.parametrize("wrong", ["", "a group", "ü", None, b"g", "x" * 256])
def test_a_group_that_no_broker_takes(client: Any, wrong: Any) -> None:
    with pytest.raises(OptionError, match="a producer group has 1 to 255"):
        client.transactional(wrong, undecided)


@pytest.mark.parametrize("option", [{"linger": 1.0}, {"batch_size": 5}, {"check_after": 0}, {"transaction_timeout": 5.0}])
def test_options_that_it_has_not(client: Any, option: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        client.transactional("g", undecided, **option)


def test_what_no_half_can_be(client: Any, topic: str) -> None:
    with client.transactional("g", undecided, max_message_size=100) as work:
        for value in (None, b"", b"x" * 101):
            with pytest.raises(ValueUnsupported):
                work.send(value, topic=topic)
        for headers in ({"DELAY": b"3"}, {"TIMER_DELIVER_MS": b"3"}, {"TRAN_MSG": b"false"}, {"PGROUP": b"h"}, {"a": b"x" * 32_700}):
            with pytest.raises(ValueUnsupported):
                work.send(b"v", topic=topic, headers=headers)
        with pytest.raises(ValueUnsupported):
            work.send(b"v", topic=topic, key=b"two words")
        with pytest.raises(ValueUnsupported):
            work.send(b"v", topic="no topic")
        for partition in (1, -1, True, "0"):
            with pytest.raises(OptionError):
                work.send(b"v", topic=topic, partition=partition)
        with pytest.raises(codes.TopicNotExist):
            work.send(b"v", topic=f"{topic}-none", timeout=1.0)
        with pytest.raises(codes.NoPermission):  # as brokers with rejectTransactionMessage say
            work.send(b"v", topic=topic)


def test_a_closed_role_takes_nothing_and_ends_nothing(client: Any, topic: str) -> None:
    work = client.transactional("g", undecided)
    half = HalfMessage(work, topic, (0, "broker-a", 0), "A0", Place(0, 0))
    work.close()
    work.close()
    with pytest.raises(Closed):
        work.send(b"v", topic=topic)
    with pytest.raises(Closed, match="other producers of its group"):
        half.commit()
    assert half.state is State.OPEN
    with wireproto.connect(f"rocketmq://{client.cluster.names.all()[0]}") as other:
        last = other.transactional("g", undecided)
    with pytest.raises(Closed):
        last.send(b"v", topic=topic)


def groups(request: Any) -> list[str]:
    """The producer groups of a heartbeat."""
    return [item["groupName"] for item in json.loads(bytes(request.header.body))["producerDataSet"]]


def test_brokers_are_told_that_they_may_ask_and_when_it_is_over(broker: DevBroker) -> None:
    recording = broker.record("rocketmq")
    with wireproto.connect(broker.url("rocketmq")) as client:
        with client.transactional("orders", undecided, heartbeat_interval=0.05):
            until(lambda: sum(groups(beat) == ["orders"] for beat in recording.requests("HeartBeat")) > 2)
        (left,) = recording.requests("UnregisterClient")
        beats = [beat for beat in recording.requests("HeartBeat") if groups(beat)]
        assert (left.message.producer_group, left.message.consumer_group) == ("orders", None)
        assert {json.loads(bytes(beat.header.body))["clientID"] for beat in beats} == {left.message.client_id}
        assert {beat.connection for beat in beats} == {left.connection}, "brokers call on the connection of the heartbeats"


def test_a_client_that_is_closed_while_its_role_comes_back_waits_for_nothing(
    broker: DevBroker, faults: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recording = broker.record("rocketmq")
    with wireproto.connect(broker.url("rocketmq")) as client, client.transactional("g", undecided):
        before = len(recording.requests("GetBrokerClusterInfo"))
        faults.drop("GetBrokerClusterInfo", times=-1)
        broker.kick("rocketmq")
        until(lambda: len(recording.requests("GetBrokerClusterInfo")) > before)
    assert not [record.getMessage() for record in caplog.records if "waits again although" in record.getMessage()]


def test_a_role_that_no_broker_takes_in_is_not_opened(broker: DevBroker, client: Any, faults: Any) -> None:
    faults.error("HeartBeat", codes.SystemBusy.code, times=10_000)
    with pytest.raises(codes.SystemBusy):
        client.transactional("g", undecided, timeout=1.2)  # between two tries, so that none is cut off by the time
    faults.clear()
    with client.transactional("g", undecided):
        pass


def as_stored(client: Any, work: Any, topic: str) -> HalfMessage:
    """A half as it would be, if this broker took one."""
    queue = client.cluster.route(topic, client.deadline(10.0)).queues[0]
    return HalfMessage(work, topic, (0, queue.broker, queue.queue_id), "A0", Place(0, 0))


def doing(call: Callable[[], Any]) -> Future[Any]:
    """In a thread of its own."""
    found: Future[Any] = Future()

    def do() -> None:
        try:
            found.set_result(call())
        except BaseException as why:
            found.set_exception(why)

    threading.Thread(target=do, daemon=True).start()
    return found


def test_who_is_in_a_call_when_the_client_is_closed_is_not_told_that_nothing_was_sent(
    broker: DevBroker, client: Any, topic: str, faults: Any
) -> None:
    """A half may be stored, an end carried out, where the broker has the command."""
    recording = broker.record("rocketmq")
    work = client.transactional("g", undecided)
    half = as_stored(client, work, topic)
    faults.drop("SendMessageV2")
    faults.drop(UNKNOWN_HERE)
    sending, committing = doing(lambda: work.send(b"v", topic=topic)), doing(half.commit)
    until(lambda: recording.requests("SendMessageV2") and recording.requests("EndTransaction"))
    client.close(0.1)
    with pytest.raises(Aborted, match="whether the half message is stored is not known"):
        sending.result(LATE)
    with pytest.raises(OutcomeUnknown, match="it is not sent again, the broker checks back"):
        committing.result(LATE)
    assert half.state is State.UNKNOWN


def test_an_end_that_has_left_is_the_clients_and_not_that_of_the_thread_that_waits(
    broker: DevBroker, client: Any, topic: str, faults: Any
) -> None:
    """As Ctrl-C breaks into a wait: the end goes on, may be waited for again, and is waited for by the close."""
    recording = broker.record("rocketmq")
    with client.transactional("g", undecided) as work:
        half = as_stored(client, work, topic)
        faults.delay(UNKNOWN_HERE, 1.5)
        with pytest.raises(KeyboardInterrupt):
            client.cluster.drive(broken_off(half._end("commit", deadline_after(LATE)), "the end of A0"), deadline_after(LATE))
        until(lambda: half.state is State.COMMITTING)
        with pytest.raises(UsageError, match="is being committed; its end is sent only once"):
            half.abort()
        with pytest.raises(OutcomeUnknown, match="the commit was requested"):
            half.commit(timeout=0.0)
        assert half.state is State.COMMITTING, "a wait that ends changes nothing"
    assert half.state is State.UNKNOWN, "the close has waited for the answer, which is a refusal here"
    assert len(recording.requests("EndTransaction")) == 1


def test_an_end_whose_connection_was_closed_just_before_it_has_not_left(broker: DevBroker, client: Any, topic: str) -> None:
    """So it leaves when it is asked for again. That it had left and nobody can tell what became of it was said here."""
    recording = broker.record("rocketmq")
    with client.transactional("g", undecided) as work:
        half = as_stored(client, work, topic)
        address = client.cluster.route(topic, deadline_after(LATE)).queues[0].address

        def closed(half: HalfMessage, until: float) -> Steps[Any]:
            conn = yield from client.cluster.connecting(address, until)
            conn.close()
            return address, conn

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(work, "_reaching", closed)
            with pytest.raises(TransportError, match="the connection was closed"):
                half.commit(timeout=LATE)
        assert half.state is State.OPEN
        with pytest.raises(OutcomeUnknown, match="request type 37 not supported"):
            half.commit(timeout=LATE)
    assert len(recording.requests("EndTransaction")) == 1


def broken_off(steps: Steps[None], task: str) -> Steps[None]:
    """These steps up to where they wait for this task: there Ctrl-C breaks in."""
    wait = next(steps)
    while not (isinstance(wait, tuple) and isinstance(wait[0], Task) and wait[0].name == task):
        wait = steps.send((yield wait))
    steps.throw(KeyboardInterrupt())


def test_ctrl_c_in_the_commit_of_a_block_leaves_its_half_to_the_check(client: Any) -> None:
    """Its work is done, and nobody has it in hand any more; where it is not Ctrl-C, a half whose end has not left may be ended again."""
    work = Work(client)
    for problem, state in ((KeyboardInterrupt(), State.UNKNOWN), (NoMaster("now"), State.OPEN)):
        half = half_of(work)
        steps = steps_of(half.leaving)
        assert steps is not None
        waits = steps(None)
        next(waits)
        with pytest.raises(type(problem)):
            waits.throw(problem)
        assert half.state is state
        assert [type(why) for why in work.told] == [KeyboardInterrupt]


def test_an_end_that_looks_for_its_broker_when_the_role_is_closed_looks_no_longer(
    client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = client.transactional("g", undecided)
    half = HalfMessage(work, topic, (0, "gone", 0), "A0", Place(0, 0))
    tried: list[HalfMessage] = []
    reaching = work._reaching
    monkeypatch.setattr(work, "_reaching", lambda half, until: tried.append(half) or reaching(half, until))
    committing = doing(lambda: half.commit(timeout=600.0))
    until(lambda: len(tried) > 1)
    work.close()
    with pytest.raises(Closed):
        committing.result(LATE)
    assert half.state is State.OPEN


# --- one half ---


class Work:
    """A role whose ends wait until they are let go."""

    timeout = 5.0

    def __init__(self, client: Any) -> None:
        self._tasks = client.cluster.tasks
        self.go, self.begun = Event(client.loop), threading.Event()
        self.ended: list[Verdict] = []
        self.told: list[BaseException] = []

    def deciding(self, half: HalfMessage, verdict: Verdict, until: float) -> Steps[None]:
        self.begun.set()
        yield self.go, until
        self.ended.append(verdict)
        half.state = State.COMMITTED

    def left(self, half: HalfMessage, why: BaseException) -> None:
        self.told.append(why)


def half_of(work: Any, name: str = "A0") -> HalfMessage:
    return HalfMessage(work, "t", (0, "broker-a", 0), name, Place(1, 2))


def test_two_threads_do_not_end_one_half(client: Any) -> None:
    work = Work(client)
    half = half_of(work)
    first = threading.Thread(target=half.commit)
    first.start()
    assert work.begun.wait(10.0)
    for end in (half.abort, half.commit):
        with pytest.raises(UsageError, match="another thread or coroutine ends this half message"):
            end()
    work.go.set()
    first.join(10.0)
    for end in (half.abort, half.commit):
        with pytest.raises(UsageError, match="is committed; its end is sent only once"):
            end()
    assert work.ended == ["commit"]


def test_a_block_commits_unless_it_raises_or_has_ended_it_by_hand(client: Any) -> None:
    work = Work(client)
    work.go.set()
    with half_of(work) as half:
        half.abort()
    with half_of(work):
        pass
    assert work.ended == ["abort", "commit"]
    wrong = KeyError("who knows")
    with pytest.raises(KeyError), half_of(work) as half:
        raise wrong
    assert half.state is State.UNKNOWN
    assert work.told == [wrong]
    with pytest.raises(UsageError, match="left to the check"):
        half.commit()
    assert work.ended == ["abort", "commit"]


# --- what is answered ---


def test_who_may_say_what_about_a_half(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is said again; by a broker that has carried the commit out a copy is taken off; and what is old is forgotten."""
    monkeypatch.setattr(checks, "KEPT", 2)
    book = Checks(client.cluster, client.cluster.options, "g", undecided)
    here, elsewhere = object(), object()
    asked = {name: SimpleNamespace(conn=conn) for name, conn in (("here", here), ("elsewhere", elsewhere))}
    book.note("a", "commit")
    assert [book._known_ends["a"].to(asked[where]) for where in asked] == ["commit", "commit"]  # type: ignore[arg-type]
    book.note("a", "commit", here)  # type: ignore[arg-type]
    assert [book._known_ends["a"].to(asked[where]) for where in asked] == ["abort", "commit"]  # type: ignore[arg-type]
    book.note("b", "abort")
    book.note("a", "commit")
    book.note("c", "abort")
    assert list(book._known_ends) == ["a", "c"]


class Asked:
    """Check-backs as they would come in, and what is answered.

    Args:
        check: the user's. checks: those of a role that has it.
    """

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch, check: Any, checks: Checks | None = None) -> None:
        self._loop = client.loop
        self.checks = checks or Checks(client.cluster, client.cluster.options, "g", check)
        self.answers: list[tuple[str, int, int]] = []
        self._peer = SimpleNamespace(peer="broker")
        monkeypatch.setattr(client.cluster, "asking", self._asking)

    def _asking(self, conn: Any, message: Any, *, until: float) -> Steps[None]:
        assert conn is self._peer
        assert message.from_transaction_check
        self.answers.append((message.transaction_id, message.commit_or_rollback, message.tran_state_table_offset))
        yield from ()

    def ask(self, *names: str, table: int = 0) -> None:
        """Have a broker ask about these, in one go."""
        done = threading.Event()

        def take() -> None:
            self.take(*names, table=table)
            done.set()

        self._loop.call_soon(take)
        assert done.wait(LATE)

    def take(self, *names: str, table: int = 0) -> None:
        """The same, in the I/O thread."""
        body = [
            stored.encode(stored.Message("t", b"v", f"UNIQ_KEY\x01{name}\x02".encode()), 0, 0, 0, 0, ("127.0.0.1", 1)) for name in names
        ]
        header = CheckTransactionStateRequest(tran_state_table_offset=table, commit_log_offset=table)
        for name, stored_as in zip(names, body, strict=True):
            self.checks._take(Question(self._peer, header.replace(transaction_id=name), stored_as))  # type: ignore[arg-type]


def test_one_check_runs_at_a_time_and_not_in_the_io_thread(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    running: list[str] = []
    go = threading.Event()

    def check(message: CheckedMessage) -> Verdict:
        assert not running
        running.append(message.transaction_id)
        threads.add(threading.get_ident())
        assert go.wait(LATE)
        running.clear()
        return "commit"

    asked = Asked(client, monkeypatch, check)
    io_thread: list[int] = []
    client.loop.call_soon(lambda: io_thread.append(threading.get_ident()))
    asked.ask("a", "b", "c", table=1)
    until(lambda: running)
    asked.ask("b", table=2)  # the broker has stored it anew: the first place of it is none any more
    asked.ask("d", table=3)
    go.set()
    until(lambda: len(asked.answers) == 4)
    assert asked.answers == [("a", 8, 1), ("b", 8, 2), ("c", 8, 1), ("d", 8, 3)]
    assert not threads & {*io_thread, threading.get_ident()}


class NoTruth:
    """What cannot be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth of it is ambiguous")


@pytest.mark.parametrize("word", [None, True, False, "rollback", 8, b"commit", NoTruth(), ["commit"]])
def test_what_is_no_word_leaves_it_undecided_and_the_next_question_is_answered(
    client: Any, monkeypatch: pytest.MonkeyPatch, word: Any
) -> None:
    asked = Asked(client, monkeypatch, lambda message: word if message.transaction_id == "odd" else "abort")
    asked.ask("odd", "even")
    until(lambda: asked.answers)
    asked.ask("even", table=9)
    until(lambda: len(asked.answers) == 2)
    assert asked.answers == [("even", 12, 0), ("even", 12, 9)]


@pytest.mark.parametrize("problem", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_check_that_raises_leaves_it_undecided(client: Any, monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> None:
    calls: list[str] = []

    def check(message: CheckedMessage) -> Verdict:
        calls.append(message.transaction_id)
        if len(calls) == 1:
            raise problem
        return "commit"

    asked = Asked(client, monkeypatch, check)
    asked.ask("a")
    until(lambda: calls)
    asked.ask("a", table=5)
    until(lambda: asked.answers)
    assert (calls, asked.answers) == (["a", "a"], [("a", 8, 5)])


def test_questions_that_wait_are_bounded(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WAITING", 3)
    go, begun = threading.Event(), threading.Event()

    def check(message: CheckedMessage) -> Verdict:
        begun.set()
        assert go.wait(LATE)
        return "commit"

    asked = Asked(client, monkeypatch, check)
    asked.ask("first")
    assert begun.wait(LATE)
    asked.ask(*"abcdef")
    asked.ask("b", table=7)
    go.set()
    until(lambda: len(asked.answers) == 4)
    asked.ask("last")
    until(lambda: len(asked.answers) == 5)
    assert asked.answers == [("first", 8, 0), ("a", 8, 0), ("b", 8, 7), ("c", 8, 0), ("last", 8, 0)]


def test_what_is_in_hand_is_not_asked_about_until_it_is_let_go(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(client, monkeypatch, lambda message: "commit")
    half = half_of(Work(client), "mine")
    asked.checks.opened(half)
    for answered, state in enumerate((State.OPEN, State.COMMITTING, State.ABORTING), 1):
        half.state = state
        asked.ask("mine", "other", table=7)
        assert half.place == Place(7, 7)
        until(lambda answered=answered: len(asked.answers) == answered)  # one that comes before has the same answer
    half.state = State.UNKNOWN
    asked.ask("mine", table=8)
    until(lambda: len(asked.answers) == 4)
    fresh = half_of(Work(client), "dropped")
    asked.checks.opened(fresh)
    del fresh
    asked.ask("dropped", table=9)
    until(lambda: len(asked.answers) == 5)
    assert [answer[0] for answer in asked.answers] == ["other", "other", "other", "mine", "dropped"]
    assert half.place == Place(7, 7)


def test_what_is_asked_after_the_close_is_not_answered(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go, begun = threading.Event(), threading.Event()

    def check(message: CheckedMessage) -> Verdict:
        begun.set()
        assert go.wait(LATE)
        return "commit"

    asked = Asked(client, monkeypatch, check)
    asked.ask("a", "b")
    assert begun.wait(LATE)
    asked.checks.closed = True
    go.set()
    asked.ask("c")
    until(lambda: not client.cluster.tasks.running(asked.checks._key))
    assert asked.answers == []
