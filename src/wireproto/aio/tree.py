"""Offers the synchronous tree's calls to asyncio.

A call of the synchronous tree that waits is a coroutine here, found by its name, with the same arguments and errors; one that does not wait
is plain. `Watch` and `Events` are callbacks that a coroutine waits for; the event loop calls other callbacks. Everything runs in the event
loop's thread. The module knows no protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Self

from wireproto.deadlines import deadline_after
from wireproto.errors import WireprotoError
from wireproto.net.task import Steps, steps_of

from .host import Host
from .roles import AsyncRole

_GONE = -1
"""Type of the event that says that the session has ended, and its watches with it."""


class Watch:
    """A one-shot callback that a coroutine waits for: pass it as ``watch=``, then `wait`.

    Passed again after its event was seen (by `wait` or `fired`), it waits for the next event. Before that its event stays, so one watch may
    be passed for several nodes. A watch that is garbage-collected is forgotten.

    Attributes:
        event: the event that it was called with, or None.
    """

    WAITED_FOR: ClassVar[bool] = True

    def __init__(self) -> None:
        self.event: Any = None
        self._come = asyncio.Event()
        self._seen = False

    def __call__(self, event: Any) -> None:
        """Note the event; called by the session."""
        self.event = event
        self._come.set()

    @property
    def fired(self) -> bool:
        """Whether the event has come."""
        self._seen = self._come.is_set()
        return self._seen

    async def wait(self, timeout: float = 30.0) -> Any:
        """Return the event, or None when none came within `timeout`.

        Args:
            timeout: seconds to wait.

        Raises:
            OptionError: `timeout` is no number of seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline_after(timeout) - time.monotonic())):
                await self._come.wait()
        self._seen = self._come.is_set()
        return self.event

    def renew(self) -> None:
        """Forget an event that was seen, so that the next one is waited for. Called when the watch is passed again."""
        if self._seen:
            self.event, self._seen = None, False
            self._come.clear()


_LEAVING: set[asyncio.Future[None]] = set()
"""Tasks that remove watches, kept here since an event loop holds only weak references to its tasks."""


class Events:
    """Events of a node, or of all below it: ``async with tree.events(path) as events: async for event in events``.

    The iteration ends with the session, whose end is the last event, or with the ``async with``. If several tasks iterate, each event goes
    to one of them, and the end to all.
    """

    def __init__(self, tree: Tree, path: str, recursive: bool) -> None:
        self._tree, self._path, self._recursive = tree, path, recursive
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._over = False

    def _on_event(self, event: Any) -> None:
        self._queue.put_nowait(event)

    async def __aenter__(self) -> Self:
        await self._tree.add_watch(self._path, self._on_event, recursive=self._recursive)
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._over:
            leaving = asyncio.ensure_future(self._left())
            _LEAVING.add(leaving)
            leaving.add_done_callback(_LEAVING.discard)
            await asyncio.shield(leaving)  # shielded, so that a cancellation leaves no watch behind

    async def _left(self) -> None:
        try:
            with suppress(WireprotoError):  # it has ended with its session, say
                await self._tree.remove_watch(self._path, self._on_event, timeout=5.0)
        finally:
            self._queue.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._over:
            raise StopAsyncIteration
        event = await self._queue.get()
        if event is None or event.type == _GONE:
            self._over = True
            self._queue.put_nowait(None)  # for other tasks that iterate
        if event is None:
            raise StopAsyncIteration
        return event


class Tree(AsyncRole[Any]):
    """The tree of nodes; see the protocol's Tree and `wireproto.roles.Tree`: the same calls, awaited. Properties are plain."""

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], plain: Any) -> None:
        super().__init__(host, what, make, forget)
        self._plain = plain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._plain, name)
        if not callable(method) or steps_of(method) is None:
            return method

        async def call(*args: Any, **given: Any) -> Any:
            if type(watch := given.get("watch")) is Watch:
                watch.renew()
            return await self._do(name, *args, **given)

        return call

    def events(self, path: str, *, recursive: bool = False) -> Events:
        """Return an asynchronous iterator of a node's events (ZooKeeper's servers from 3.6).

        Args:
            path: absolute path of the node. recursive: also of all nodes below it.
        """
        return Events(self, path, recursive)

    def session_scope(self) -> Self:
        """Return this tree bound to the current session, like the synchronous tree's `session_scope`."""
        return self._over(self._plain.session_scope())

    def any_session(self) -> Self:
        """Return this tree for whichever session there is, like the synchronous tree's `any_session`."""
        return self._over(self._plain.any_session())

    def _over(self, plain: Any) -> Self:
        return type(self)(self._host, self._what, partial(self._making, plain), self._forget, plain)

    def _making(self, plain: Any) -> Steps[Any]:
        yield from self._make()
        return plain

    def watch(self) -> Watch:
        """Make a `Watch` to pass as ``watch=`` and wait for."""
        return Watch()
