"""The tree of nodes under asyncio: the synchronous tree's own calls, awaited.

What it is: no tree of its own. A call that waits is a coroutine here, found by its name, with the same arguments and errors; what does not
wait is plain. `Watch` and `Events` are callbacks that a coroutine waits for; other callbacks are called by the event loop.
May assume: the event loop's thread. Must not: know a protocol.
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
"""Type of the event that says that the session is gone, and its watches with it."""


class Watch:
    """A one-shot callback that a coroutine waits for: pass it as ``watch=``, then `wait`.

    Passed again when its event has been seen (by `wait`, or `fired`), it waits for the next one; else the event stays, so that one watch
    may be passed for several nodes. One that nobody holds any more is forgotten.

    Attributes:
        event: what it was called with.
    """

    WAITED_FOR: ClassVar[bool] = True

    def __init__(self) -> None:
        self.event: Any = None
        self._come = asyncio.Event()
        self._seen = False

    def __call__(self, event: Any) -> None:
        self.event = event
        self._come.set()

    @property
    def fired(self) -> bool:
        """Whether the event has come."""
        self._seen = self._come.is_set()
        return self._seen

    async def wait(self, timeout: float = 30.0) -> Any:
        """The event, or None when none came within `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline_after(timeout) - time.monotonic())):
                await self._come.wait()
        self._seen = self._come.is_set()
        return self.event

    def renew(self) -> None:
        """Wait for the next event, where the last one has been seen: the watch is passed again."""
        if self._seen:
            self.event, self._seen = None, False
            self._come.clear()


_LEAVING: set[asyncio.Future[None]] = set()
"""Watches that are taken back, perhaps with nobody to wait for that any more: an event loop alone keeps no task alive."""


class Events:
    """Events of a node, or of all below it: ``async with tree.events(path) as events: async for event in events``.

    They end with the session, whose end is the last of them, or with the ``async with``. Where several tasks iterate, each event goes to
    one of them, and the end to all.
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
            await asyncio.shield(leaving)  # who is cancelled here leaves no watch behind

    async def _left(self) -> None:
        try:
            with suppress(WireprotoError):  # it is gone with its session, say
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
            self._queue.put_nowait(None)  # for the next who waits
        if event is None:
            raise StopAsyncIteration
        return event


class Tree(AsyncRole[Any]):
    """See the protocol's Tree (`wireproto.roles.Tree`): the same calls, awaited. Properties are plain."""

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
        """What happens to a node, or with `recursive` to all below it, as an iterator (ZooKeeper's servers from 3.6)."""
        return Events(self, path, recursive)

    def session_scope(self) -> Tree:
        """As the synchronous tree's: this tree for the session of now."""
        return self._over(self._plain.session_scope())

    def any_session(self) -> Tree:
        """As the synchronous tree's: this tree for whichever session there is."""
        return self._over(self._plain.any_session())

    def _over(self, plain: Any) -> Tree:
        return Tree(self._host, self._what, partial(self._making, plain), self._forget, plain)

    def _making(self, plain: Any) -> Steps[Any]:
        yield from self._make()
        return plain

    def watch(self) -> Watch:
        """A `Watch` to pass as ``watch=`` and wait for."""
        return Watch()
