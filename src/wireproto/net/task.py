"""Runs code that waits without a thread of its own: generators, called *steps*, that yield what they wait for.

There are two ways to run steps. An operation is run by the calling thread, with its deadline (`Tasks.drive`); an error there ends this
operation alone. A task belongs to the client and is run by the I/O thread alone, however many threads wait for it and whether they time out
or not (`Tasks.spawn`, `Tasks.shared`); so what several callers wait for is a task. A method `xing` beside `x` is `x` as steps.

    Wait     a Waitable (Call, Event, Mailbox, Task): the steps are resumed with True when it is ready, and then take its outcome
             (`call.result(0.0)`, `task.result()`, `box.get()`), which does not wait any more
             a `time.monotonic()` value: resumed with False at that time
             a pair of both: resumed with True or False, whichever came first

Steps must not hold a lock over a yield (the I/O thread would wait for itself), yield in a `finally` (a task is closed there), block (use
`offload` for that), or run user code in the I/O thread. State that only tasks touch needs no lock, since one thread runs them all.
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
"""Seconds after which a task's failure that no caller has asked for is logged."""
NEVER = float("inf")


E = TypeVar("E", bound=BaseException)


def fresh(error: E) -> E:
    """Copy an error that several callers raise, so that they do not share a traceback."""
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
        name: what it does, for errors and the log: "dial broker-1:9092". Repeated failures of one name are logged once, until a success.
        done: whether it has ended.
        error: why it failed, or None. Not to be raised: `result` makes copies.
    """

    __slots__ = ("_answer", "_due", "_ended", "_log", "_raised", "_steps", "_thrown", "_timer", "_value", "error", "name")

    error: BaseException | None

    def __init__(
        self, loop: Loop, steps: Steps[T], name: str, log: set[str] | None = None, ended: Callable[[], object] | None = None
    ) -> None:
        super().__init__(loop)
        self.name = name
        self._log = set() if log is None else log  # names of tasks whose failure was logged
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
        """Return what the steps returned, or raise a copy of their error. Raises RuntimeError while the task is not done."""
        if not self.done:
            raise RuntimeError(f"{self.name} is not done")
        if self.error is not None:
            self._raised = True
            raise fresh(self.error)
        value: T = self._value
        return value

    def wait(self, deadline: float) -> T:
        """Wait until the task is done, and return its `result`. Raises TimedOut, which leaves the task running; Closed, Forked."""
        if not self.ready_by(deadline):
            raise TimedOut(f"{self.name}: not done in time")
        return self.result()

    def cancel(self, why: WireprotoError) -> None:
        """Have the I/O thread raise `why` where the steps wait, soon. Nothing happens if they have ended by then."""
        if not self.done:
            self._thrown = why
            self.make_runnable()

    # ---- in the I/O thread ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Resume the steps, to their next wait or their end."""
        steps = self._steps
        if steps is None:
            return
        self.take_off()  # it may still hang on a waitable, when its time came or it was cancelled
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
            except Exception as error:  # the steps yielded no Wait, or the client is closed
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
        """Set the task's only timer: an earlier one is kept, and set again when it fires before the time."""
        if self._timer is not None:
            if self._timer.when <= due:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.queued or self._due == NEVER:
            return  # what it waits for has just become ready
        if self._due > time.monotonic():
            self._arm(self._due)
            return
        self._answer = False
        self.make_runnable()

    def stop(self, error: BaseException) -> None:
        """End the steps, since the loop is closed: raise `error` where they wait, and close them if they wait again."""
        steps = self._steps
        if steps is None:
            return
        self.take_off()
        with suppress(BaseException):  # callers get Closed, whatever the steps raise now
            steps.throw(error)
            _log(self.name, RuntimeError("the task waits again although the client is closed"))
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
                self.loop.call_at(time.monotonic() + GRACE, self._log_failure)

    def _log_failure(self) -> None:
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
    """Calls a function in the I/O thread when a waitable is ready."""

    __slots__ = ("_args", "_fn")

    def __init__(self, loop: Loop, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        super().__init__(loop)
        self._fn, self._args = fn, args

    def run(self) -> None:
        """Call the function."""
        self._fn(*self._args)


def after(what: Waitable, fn: Callable[..., object], *args: Any) -> None:
    """Call fn(*args) in the I/O thread, soon after `what` is ready; it must not block nor run user code."""
    hook = _Hook(what.loop, fn, args)
    if not hook.hang_on(what):
        hook.make_runnable()


def reply(call: Call, until: float) -> Steps[bytes]:
    """Wait for a call's reply until `until` (`time.monotonic()`), and return it. Steps. A TimedOut cancels the call.

    Raises:
        TimedOut, Disconnected, FrameTooLarge, Closed, Forked: as `call.result`.
    """
    try:
        yield call, until
        return call.result(0.0)
    finally:
        call.cancel()


def getting(box: Mailbox, until: float) -> Steps[Any]:
    """Return a mailbox's next item, or None when none came until `until` (`time.monotonic()`): `box.get` as steps."""
    item = box.get()
    while item is None and (yield box, until):
        item = box.get()
    return item


def first(loop: Loop, whats: Iterable[Waitable], until: float) -> Steps[bool]:
    """Wait for the first of several waitables, none of them a mailbox; returns whether one was ready until `until`. Steps."""
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
    """Run `retry.run` as steps, and return what the attempt returns.

    Args:
        attempt: makes the steps of one attempt, which keep the deadline themselves.
        until: `time.monotonic()` value after which no retry begins.
        policy: how long to wait. judge: the verdict on an error.
        refresh: called with an error whose verdict is REFRESH, before the next attempt; returns None, or steps to run.

    Raises:
        WireprotoError: the last error of an attempt.
    """
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
    """Call fn(*args) in a worker thread, and return its result. Steps.

    Args:
        loop: the engine's loop that waits. until: `time.monotonic()` value. fn, args: the function and its arguments.

    Raises:
        TimedOut: it has not returned in time; its result will be dropped. What `fn` raises.
    """
    event = offload(loop, fn, *args)
    if not (yield event, until):
        raise TimedOut(f"{getattr(fn, '__qualname__', 'a call')} was not done in time")
    value: T = event.wait(0.0)
    return value


def ready(loop: Loop, fds: Iterable[int], until: float, *, writing: bool = False) -> Steps[int]:
    """Wait for the first of these descriptors that can be read (or written), or has failed; returns it, or -1 at `until`. Steps."""
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
        """Start a task, which the I/O thread runs, and return it.

        Args:
            steps: what it does. name: what it does in words, for errors and the log.

        Raises:
            Closed, Forked.
        """
        task = Task(self._loop, steps, name, self._log)
        task.start()
        return task

    def shared(self, key: Hashable, make: Callable[[], Steps[T]], name: str) -> Task[T]:
        """Return the running task of this key, starting one when there is none: what several threads want at a time is done once.

        Args:
            key: a tuple of texts and numbers, so that it is hashed and compared without Python code.
            make: makes the steps; called in this thread, and its result may go unused.
            name: what the task does, for errors and the log.

        Raises:
            Closed, Forked.
        """
        task = self._shared.get(key)
        if task is None:
            self._loop.check()
            mine = Task(self._loop, make(), name, self._log, lambda: self._shared.pop(key, None))
            task = self._shared.setdefault(key, mine)
        try:
            task.start()  # also when another thread made it: a signal handler may have interrupted that thread before its start
        except Closed:
            self._shared.pop(key, None)
            raise
        return task

    def cancel(self, which: Callable[[Hashable], bool], why: WireprotoError) -> list[Task[Any]]:
        """Cancel the shared tasks whose key `which` accepts, with error `why`; returns those tasks."""
        cancelled = [task for key, task in list(self._shared.items()) if which(key)]
        for task in cancelled:
            task.cancel(why)
        return cancelled

    def race(self, entries: Iterable[tuple[str, Steps[T]]], until: float, stagger: float) -> Steps[T]:
        """Return the result of the first of several tasks to succeed. Steps.

        Each task is started when the one before has failed, or after `stagger` seconds; the others are cancelled at the end.

        Args:
            entries: pairs of name and steps, best first; the iterable is advanced as tasks are started.
            until: `time.monotonic()` value.
            stagger: seconds between two starts.

        Raises:
            TransportError: all have failed; one that is not `lasting`, if there is any. Any other error of a task, at once.
            ConnectError: there are no entries. TimedOut: none succeeded in time.
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
                    raise problem or ConnectError("there is no address to try")
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
                task.cancel(Closed("another attempt succeeded first"))

    def every(self, entries: Iterable[tuple[str, Steps[Any]]], until: float) -> Steps[None]:
        """Run several steps at the same time, each as a task, and wait for all. Steps. A single entry is run without a task.

        Args:
            entries: pairs of name and steps. until: `time.monotonic()` value.

        Raises:
            WireprotoError: the first failure, once all have ended. TimedOut: not all have ended in time; the rest is cancelled.
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
                task.cancel(Closed("the call that waited for it has ended"))
        if problem is not None:
            raise problem

    def running(self, key: Hashable) -> bool:
        """Whether a shared task of this key is running."""
        return key in self._shared

    def drive(self, steps: Steps[T], deadline: float) -> T:
        """Run an operation in this thread, which reads the sockets while it waits, and return its result.

        Args:
            steps: the operation. An exception of a signal handler is raised where they wait.
            deadline: `time.monotonic()` value; at that time TimedOut is raised where the steps wait.

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
            what = Event(self._loop)  # never set
        if what.ready_by(min(due, deadline)):
            return True
        if due > deadline:
            raise TimedOut("not done in time")
        return False

    def offload(self, fn: Callable[..., Any], *args: Any) -> Event:
        """Call fn(*args), which blocks, in a worker thread; the event has its outcome. See `offload.offload`."""
        return offload(self._loop, fn, *args)


class Operating(Protocol):
    """An object with operations, which its client's tasks run."""

    _tasks: Tasks


S = TypeVar("S", bound=Operating)

_SPARE = 1.0
"""Seconds beyond an operation's timeout after which `drive` ends it. It keeps its deadline itself, with a better error text."""


def operation(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method that makes steps: calling it runs the steps in the caller's thread. `steps_of` returns the steps, for asyncio.

    Args:
        steps: the method. Its steps keep their deadline themselves; if it has a keyword `timeout` (seconds), they are ended a little later.
    """
    default: float = (getattr(steps, "__kwdefaults__", None) or {}).get("timeout", NEVER)

    @wraps(steps)
    def done(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        timeout: Any = kwargs.get("timeout", default) if default < NEVER else default
        return self._tasks.drive(steps(self, *args, **kwargs), deadline_after(timeout) + _SPARE)

    return done


def quick(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """Decorate a method that does not run steps itself, with a method that makes its steps: `steps_of` finds them as of an `operation`."""

    def named(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        method.__wrapped__ = steps  # type: ignore[attr-defined]
        return method

    return named


def is_async(fn: Callable[..., object]) -> bool:
    """Whether `fn` is a coroutine function, or an object whose `__call__` is one, so that its result has to be awaited."""
    return iscoroutinefunction(fn) or (callable(fn) and iscoroutinefunction(type(fn).__call__))


def steps_of(method: Callable[P, T]) -> Callable[P, Steps[T]] | None:
    """Return the function that makes the steps of a bound method, if that is an operation (or a `partial` of one); else None."""
    if isinstance(method, partial):
        inner = steps_of(method.func)
        return None if inner is None else partial(inner, *method.args, **method.keywords)
    steps = getattr(method, "__wrapped__", None)
    return None if steps is None else partial(steps, method.__self__)  # type: ignore[attr-defined]


def steps(method: Callable[P, T]) -> Callable[P, Steps[T]]:
    """Return the steps of a known operation, for use in other steps: ``yield from steps(tree.get)(path)``. Raises TypeError."""
    found = steps_of(method)
    if found is None:
        raise TypeError(f"{method!r} is no operation")
    return found
