"""The asyncio face behind the synchronous interface, so that the same tests run over it: `pytest tests/conformance --face aio`.

An event loop runs in a thread of its own; each call of a test is made there and waited for here. What a test does is so done by the
coroutines of `wireproto.aio`, and by nothing else.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import wireproto.aio
from wireproto._codec import SendFuture
from wireproto.errors import TimedOut

FUTURES = SendFuture, asyncio.Future
HANGS = 120.0
"""Seconds after which a call of a test is given up: none of them waits so long."""


class Runner:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.io = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.io.run_forever, name="conformance-asyncio", daemon=True)
        self._thread.start()

    def do(self, call: Callable[[], Any]) -> Any:
        """What call() gives, made and awaited in the event loop."""

        async def made() -> Any:
            result = call()
            return await result if isinstance(result, Coroutine) else result  # also what an async generator's `__anext__` gives

        if os.getpid() != self._pid:  # a forked child has no such thread
            return asyncio.run(made())
        return asyncio.run_coroutine_threadsafe(made(), self.io).result(HANGS)

    def stop(self) -> None:
        self.io.call_soon_threadsafe(self.io.stop)
        self._thread.join(20.0)
        self.io.close()


class Face:
    """A client or role of `wireproto.aio`, called from this thread."""

    def __init__(self, runner: Runner, face: Any) -> None:
        self._runner = runner
        self._face = face

    def __getattr__(self, name: str) -> Any:
        found = self._runner.do(lambda: getattr(self._face, name))
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            args = tuple(one._face if isinstance(one, Face) else one for one in args)
            options = {key: one._face if isinstance(one, Face) else one for key, one in options.items()}
            if name == "send":
                options.pop("timeout", None)  # it never waits
            return self._given(self._runner.do(lambda: found(*args, **options)))

        return call

    def _given(self, result: Any) -> Any:
        if isinstance(result, FUTURES):
            return Receipt(self._runner, result)
        if isinstance(result, list) and result and isinstance(result[0], FUTURES):
            return [Receipt(self._runner, one) for one in result]
        if isinstance(result, (wireproto.aio.Delivery, wireproto.aio.Watch)):
            return Face(self._runner, result)
        return Opened(self._runner, result) if isinstance(result, wireproto.aio.roles.AsyncRole) else result

    def __enter__(self) -> Face:
        self._runner.do(self._face.__aenter__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._runner.do(lambda: self._face.__aexit__(*error))


class Opened(Face):
    """A role, which the synchronous client makes at once; so that what is wrong is raised there."""

    def __init__(self, runner: Runner, face: Any) -> None:
        super().__init__(runner, face)
        runner.do(face._opened)

    def __iter__(self) -> Iterator[Any]:
        batches = self._face.__aiter__()
        while True:
            try:
                yield self._runner.do(batches.__anext__)
            except StopAsyncIteration:
                return


class Receipt:
    def __init__(self, runner: Runner, future: Any) -> None:
        self._runner = runner
        self._future = future

    @property
    def done(self) -> bool:
        return bool(self._runner.do(self._future.done))

    def position(self, timeout: float | None = None) -> Any:
        async def wait() -> Any:
            try:
                return await asyncio.wait_for(asyncio.shield(self._future), timeout)
            except TimeoutError:
                raise TimedOut("not known in time") from None

        return self._runner.do(wait)


class Client(Face):
    """What the tests' `dial` gives with `--face aio`."""

    def __init__(self, runner: Runner, url: str, options: dict[str, Any]) -> None:
        super().__init__(runner, wireproto.aio.connect(url, **options))
        runner.do(self._face.__aenter__)

    @property
    def cluster(self) -> Any:
        return self._face._made.cluster

    @property
    def loop(self) -> Any:
        return self._face._made.loop
