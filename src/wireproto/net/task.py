"""Code that waits without a thread of its own: generators that yield what they wait for.

What it is: two ways of running such *steps*. An operation is run by the thread that called, with its deadline (`Tasks.drive`): what goes
wrong there ends this operation alone. A task belongs to the client and is run by the I/O thread alone, however many threads wait for it and
whether they give up or not (`Tasks.spawn`, `Tasks.shared`): what others wait for is a task.

    Wait     a Waitable (Call, Event, Mailbox, Task): resumed with True when it is ready, and then asked for its outcome by its own
             means (`call.result(0.0)`, `task.result()`, `box.get()`), which do not wait any more
             a `time.monotonic()` value: resumed with False then
             a pair of both: True or False, whichever came first

Must not, in steps: hold a lock over a yield (the I/O thread would wait for itself), yield in a `finally` (a task is closed there), block (that
is for `offload`), or run user code in the I/O thread.
May assume: the engine's queue (`_net.Runnable`); state that only tasks touch needs no lock, since one thread runs them all.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import suppress
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from wireproto._net import Call, Descriptors, Event, Loop, Mailbox, Runnable, Timer, Waitable
from wireproto.deadlines import deadline_after
from wireproto.errors import Closed, ConnectError, TimedOut, TransportError, WireprotoError

from .offload import offload
from .retry import DEFAULT, Policy, Trial, Verdict, verdict

T = TypeVar("T")
P = ParamSpec("P")
Wait = Waitable | float | tuple[Waitable, float]
Steps = Generator[Wait, bool, T]

GRACE = 1.0
"""Seconds that a failure is kept for somebody to ask for it before it is told to the log."""
NEVER = float("inf")


E = TypeVar("E", bound=BaseException)


def fresh(error: E) -> E:
    """A copy of an error, to be raised by one of several who are told of it: they must not share a traceback."""
    try:
        twin = copy.copy(error)
    except Exception:
        return error
    twin.__cause__, twin.__suppress_context__ = error.__cause__, True
    return twin


def _parts(wait: Wait) -> tuple[Waitable | None, float]:
    if isinstance(wait, tuple):
        return wait
    return (wait, NEVER) if isinstance(wait, Waitable) else (None, float(wait))


class Task(Runnable, Generic[T]):
    """Steps that the I/O thread runs. Made by `Tasks`.

    Attributes:
        name: what it does, for errors and the log: "dial broker-1:9092". What fails time after time is told once until it succeeds.
        done: whether it ended; error: why it failed, or None (not to be raised: `result` makes copies).
    """

    __slots__ = ("_answer", "_due", "_ended", "_log", "_raised", "_steps", "_thrown", "_timer", "_value", "error", "name")

    error: BaseException | None

    def __init__(
        self, loop: Loop, steps: Steps[T], name: str, log: set[str] | None = None, ended: Callable[[], object] | None = None
    ) -> None:
        super().__init__(loop)
        self.name = name
        self._log = set() if log is None else log  # names of what failed and was told
        self.error = None
        self._steps: Steps[T] | None = steps
        self._ended = ended
        self._answer: bool | None = None  # what the steps are resumed with; None: they have not begun
        self._thrown: BaseException | None = None
        self._due = NEVER
        self._timer: Timer | None = None
        self._raised = False
        self._value: Any = None

    def result(self) -> T:
        """What it returned, or raises a copy of what it failed with. RuntimeError while it is not done."""
        if not self.done:
            raise RuntimeError(f"{self.name} is not done")
        if self.error is not None:
            self._raised = True
            raise fresh(self.error)
        value: T = self._value
        return value

    def wait(self, deadline: float) -> T:
        """`result`, when it is done by `deadline`. TimedOut leaves the task running: it is the client's. Raises Closed, Forked."""
        if not self.ready_by(deadline):
            raise TimedOut(f"{self.name}: not done in time")
        return self.result()

    def cancel(self, why: WireprotoError) -> None:
        """Have `why` raised where the steps wait, soon, in the I/O thread. Nothing happens when they have ended by then."""
        if not self.done:
            self._thrown = why
            self.make_runnable()

    # ---- in the I/O thread ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """One step: to the next wait, or the end."""
        steps = self._steps
        if steps is None:
            return
        self.take_off()  # when a time came, or a cancellation
        why, self._thrown = self._thrown, None
        answer, self._answer = self._answer, True
        self._due = NEVER
        try:
            wait = steps.throw(why) if why is not None else next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:
            self._end(None, error)
        else:
            try:
                self._await(wait)
            except Exception as error:  # no Wait at all, or the client is closed
                self._thrown = error
                self.make_runnable()

    def _await(self, wait: Wait) -> None:
        what, due = _parts(wait)
        if what is not None and not self.hang_on(what):
            self.make_runnable()
        elif due < NEVER:
            self._due = due
            self._arm(due)

    def _arm(self, due: float) -> None:
        """One timer a task: it stays when the next time is later, and is set anew when it fires too early."""
        if self._timer is not None:
            if self._timer.when <= due:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.queued or self._due == NEVER:
            return  # what it waits for came before, if only just
        if self._due > time.monotonic():
            self._arm(self._due)
            return
        self._answer = False
        self.make_runnable()

    def stop(self, error: BaseException) -> None:
        """The loop is closed: raise that where the steps wait, and let them wait no more."""
        steps = self._steps
        if steps is None:
            return
        self.take_off()
        with suppress(BaseException):  # the client is closed, which is all that anybody is told
            steps.throw(error)
            _log(self.name, RuntimeError("it waits though the client is closed"))
            steps.close()
        self._end(None, error)

    def _end(self, value: T | None, error: BaseException | None) -> None:
        self._steps = None
        self._value, self.error = value, error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()
        if error is None:
            self._log.discard(self.name)
        waited_for = self.waited_for
        self.finish()
        if error is not None and not waited_for and not isinstance(error, Closed):
            with suppress(Closed):
                self.loop.call_at(time.monotonic() + GRACE, self._tell)

    def _tell(self) -> None:
        if not self._raised and self.error is not None and self.name not in self._log:
            self._log.add(self.name)
            _log(self.name, self.error)

    def __repr__(self) -> str:
        state = "running" if not self.done else "done" if self.error is None else f"failed: {type(self.error).__name__}"
        return f"<Task {self.name}: {state}>"


def _log(name: str, error: BaseException) -> None:
    """Warn of a task's error that no caller has seen; with a traceback only where it may be a fault of this package."""
    import logging

    trace = None if isinstance(error, WireprotoError) else error
    logging.getLogger("wireproto").warning("%s failed: %s: %s", name, type(error).__name__, error, exc_info=trace)


class _Hook(Runnable):
    """A call to make when something is ready."""

    __slots__ = ("_args", "_fn")

    def __init__(self, loop: Loop, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        super().__init__(loop)
        self._fn, self._args = fn, args

    def run(self) -> None:
        self._fn(*self._args)


def after(what: Waitable, fn: Callable[..., object], *args: Any) -> None:
    """fn(*args) in the I/O thread, soon after `what` is ready; it must not block nor run user code."""
    hook = _Hook(what.loop, fn, args)
    if not hook.hang_on(what):
        hook.make_runnable()


def reply(call: Call, until: float) -> Steps[bytes]:
    """The reply to a call. TimedOut gives the call up; raises what `call.result` raises."""
    try:
        yield call, until
        return call.result(0.0)
    finally:
        call.cancel()


def getting(box: Mailbox, until: float) -> Steps[Any]:
    """`box.get`, as steps: the next item, or None when none came by then."""
    item = box.get()
    while item is None and (yield box, until):
        item = box.get()
    return item


def first(loop: Loop, whats: Iterable[Waitable], until: float) -> Steps[bool]:
    """Wait for one of several, none of them a mailbox; whether one was ready by then."""
    event = Event(loop)
    for what in whats:
        after(what, event.set)
    return (yield event, until)


def retrying(
    attempt: Callable[[], Steps[T]],
    until: float,
    policy: Policy = DEFAULT,
    *,
    refresh: Callable[[WireprotoError], Steps[object] | None] | None = None,
    judge: Callable[[WireprotoError], Verdict] = verdict,
) -> Steps[T]:
    """`retry.run`, as steps: `attempt` makes those of one attempt, `refresh` does what takes no time, or makes steps."""
    trial = Trial(until, policy, judge=judge)
    while True:
        try:
            return (yield from attempt())
        except WireprotoError as error:
            wait, look = trial.failed(error)
            problem = error
        if wait:
            yield time.monotonic() + wait
        if look and refresh is not None:
            yield from refresh(problem) or ()


def offloaded(loop: Loop, until: float, fn: Callable[..., T], *args: Any) -> Steps[T]:
    """What fn(*args) returns, called in a worker thread; raises what it raises. TimedOut: it is not done, its result will be dropped."""
    event = offload(loop, fn, *args)
    if not (yield event, until):
        raise TimedOut(f"{getattr(fn, '__qualname__', 'a call')} was not done in time")
    value: T = event.wait(0.0)
    return value


def ready(loop: Loop, fds: Iterable[int], until: float, *, writing: bool = False) -> Steps[int]:
    """The first of these descriptors that may be read (or written to), or has failed; -1 when none is until then."""
    sockets = Descriptors(loop, fds, writing)
    try:
        yield sockets, until
    finally:
        sockets.stop()
    return sockets.found


class Tasks:
    """The tasks of one client.

    Args:
        loop: the client's, whose I/O thread runs them.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._shared: dict[Hashable, Task[Any]] = {}
        self._log: set[str] = set()

    def spawn(self, steps: Steps[T], name: str) -> Task[T]:
        """Begin a task, in the I/O thread. Raises Closed, Forked."""
        task = Task(self._loop, steps, name, self._log)
        task.start()
        return task

    def shared(self, key: Hashable, make: Callable[[], Steps[T]], name: str) -> Task[T]:
        """The task under this key; begun when there is none, or it has ended. So many threads may want one thing, and it is done once.

        Args:
            key: hashed and compared without Python code: a tuple of texts and numbers.
            make: makes the steps; called in this thread, and perhaps in vain.
        Raises:
            Closed, Forked.
        """
        task = self._shared.get(key)
        if task is None:
            self._loop.check()
            mine = Task(self._loop, make(), name, self._log, lambda: self._shared.pop(key, None))
            task = self._shared.setdefault(key, mine)
        try:
            task.start()  # whoever made it: a signal handler may have kept him from that
        except Closed:
            self._shared.pop(key, None)
            raise
        return task

    def cancel(self, which: Callable[[Hashable], bool], why: WireprotoError) -> list[Task[Any]]:
        """Throw this into the shared tasks with such a key, where they wait; which those are."""
        cancelled = [task for key, task in list(self._shared.items()) if which(key)]
        for task in cancelled:
            task.cancel(why)
        return cancelled

    def race(self, entries: Iterable[tuple[str, Steps[T]]], until: float, stagger: float) -> Steps[T]:
        """What the first of several tasks to succeed returns. Steps.

        Each is begun when the one before has failed, or has had `stagger` seconds; those that are late are cancelled.

        Args:
            entries: name and steps, best first; taken when they are begun.
        Raises:
            at once what is no TransportError. When all have failed, what may pass sooner than the rest. TimedOut.
        """
        left = iter(entries)
        running: list[Task[T]] = []
        problem: TransportError | None = None
        next_at = 0.0
        try:
            while True:
                now = time.monotonic()
                if now >= next_at or not running:
                    entry = next(left, None)
                    next_at = NEVER if entry is None else now + stagger
                    if entry is not None:
                        running.append(self.spawn(entry[1], entry[0]))
                if not running:
                    raise problem or ConnectError("there is nobody to ask")
                if now >= until:
                    raise TimedOut(f"{running[-1].name}: not done in time")
                yield from first(self._loop, running, min(until, next_at))
                for task in [task for task in running if task.done]:
                    running.remove(task)
                    try:
                        return task.result()
                    except TransportError as why:
                        problem = why if problem is None or problem.lasting else problem
                        next_at = 0.0
        finally:
            for task in running:
                task.cancel(Closed("another was first"))

    def every(self, entries: Iterable[tuple[str, Steps[Any]]], until: float) -> Steps[None]:
        """Have all of them done, beside each other; raises the first failure when all have ended, or TimedOut. Steps.

        One alone is done here: that costs no task.
        """
        listed = list(entries)
        if len(listed) == 1:
            yield from listed[0][1]
            return
        running = [self.spawn(steps, name) for name, steps in listed]
        problem: WireprotoError | None = None
        try:
            for task in running:
                if not task.done and not (yield task, until):
                    raise TimedOut(f"{task.name}: not done in time")
                try:
                    task.result()
                except WireprotoError as why:
                    problem = problem or why
        finally:
            for task in running:
                task.cancel(Closed("not waited for any more"))
        if problem is not None:
            raise problem

    def running(self, key: Hashable) -> bool:
        """Whether there is such a task, and it has not ended."""
        return key in self._shared

    def drive(self, steps: Steps[T], deadline: float) -> T:
        """Run an operation in this thread, which reads the sockets while it waits.

        Args:
            deadline: `time.monotonic()` value; TimedOut is then raised where the steps wait, and so is what a signal handler raises.
        Raises:
            TimedOut, Closed, Forked, and whatever the steps raise.
        """
        try:
            wait = next(steps)
            late = False
            while True:
                try:
                    answer = self._ready(wait, deadline)
                except BaseException as why:
                    if late:
                        raise
                    late = True
                    wait = steps.throw(why)
                else:
                    wait = steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()

    def _ready(self, wait: Wait, deadline: float) -> bool:
        what, due = _parts(wait)
        if what is None:
            what = Event(self._loop)  # which never comes
        if what.ready_by(min(due, deadline)):
            return True
        if due > deadline:
            raise TimedOut("not done in time")
        return False

    def offload(self, fn: Callable[..., Any], *args: Any) -> Event:
        """fn(*args) in a worker thread; the event is its outcome. For what blocks: see `offload.offload`."""
        return offload(self._loop, fn, *args)


class Operating(Protocol):
    """What has operations: its client's tasks run them."""

    _tasks: Tasks


S = TypeVar("S", bound=Operating)

_SPARE = 1.0
"""Seconds beyond an operation's timeout after which it is ended from outside; it keeps its time itself, and then says more."""


def operation(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """A method that does these steps in the caller's thread. `steps_of` has the steps themselves, for who waits in another way.

    Args:
        steps: a method that makes them, and keep their time themselves. Where `timeout` in seconds is among its keywords, it is seen to.
    """
    default: float = (getattr(steps, "__kwdefaults__", None) or {}).get("timeout", NEVER)

    @wraps(steps)
    def done(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        timeout: Any = kwargs.get("timeout", default) if default < NEVER else default
        return self._tasks.drive(steps(self, *args, **kwargs), deadline_after(timeout) + _SPARE)

    return done


def quick(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """Names the steps of a method that waits in a way of its own, where it waits at all: as of an `operation`, `steps_of` has them."""

    def named(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        method.__wrapped__ = steps  # type: ignore[attr-defined]
        return method

    return named


def is_async(fn: Callable[..., object]) -> bool:
    """Whether it is a coroutine function, or called like one: what it returns has to be awaited."""
    return iscoroutinefunction(fn) or (callable(fn) and iscoroutinefunction(type(fn).__call__))


def steps_of(method: Callable[P, T]) -> Callable[P, Steps[T]] | None:
    """What makes the steps of a role's bound method, if it is an operation (or a `partial` of one)."""
    if isinstance(method, partial):
        inner = steps_of(method.func)
        return None if inner is None else partial(inner, *method.args, **method.keywords)
    steps = getattr(method, "__wrapped__", None)
    return None if steps is None else partial(steps, method.__self__)  # type: ignore[attr-defined]


def steps(method: Callable[P, T]) -> Callable[P, Steps[T]]:
    """`steps_of` what is known to be an operation, for use in other steps: ``yield from steps(tree.get)(path)``."""
    found = steps_of(method)
    if found is None:
        raise TypeError(f"{method!r} is no operation")
    return found
