"""Roles as coroutines: each method runs the steps of the role's own method, so there is nothing here that a protocol would have to say.

What it is: one class a kind of role, over any protocol's. A role is made at its first use, or by ``async with`` or ``await``: that looks
topics up. One that the protocol has not written as steps yet raises AsyncUnsupported; nothing here blocks or starts a thread.
May assume: the event loop's thread. Must not: know a protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar

from wireproto.deadlines import NEVER, deadline_after
from wireproto.errors import AsyncUnsupported, BrokerError, Closed, TimedOut
from wireproto.net.task import Steps, steps_of
from wireproto.position import LATEST, Position, TopicPartition, Where
from wireproto.records import Batch, GroupInfo, TopicInfo

from .host import Host, Waiter

R = TypeVar("R")
_DEFAULT = 30.0
"""Seconds of a call that is given none, as the synchronous ones have it."""
_BREATH = 0.005
"""Seconds of handing out batches that are there, after which other coroutines have their turn."""


class AsyncRole(Generic[R]):
    """Base of the roles.

    Args:
        host: the client's.
        what: the kind of role, for errors.
        make: makes the steps that make the role.
        forget: called when it was closed.
    """

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[R]], forget: Callable[[Any], object]) -> None:
        self._host = host
        self._what = what
        self._make = make
        self._forget = forget
        self._opening: asyncio.Task[R] | None = None
        self._role: R | None = None
        self._closed = self._cut_off = False
        self._inside: set[Waiter] = set()

    async def _opened(self, deadline: float = NEVER) -> R:
        """The role, made by the first who comes; the others wait for that. It goes on being made when a deadline is over.

        Raises:
            TimedOut, and why it cannot be made.
        """
        if self._closed:
            raise Closed(f"the {self._what} was closed")
        self._host.check()
        self._host.here()
        if self._role is not None:
            return self._role
        opening = self._opening
        if opening is None:
            opening = self._opening = self._host.io.create_task(self._open())
            opening.add_done_callback(self._tried)
        if deadline != NEVER:
            await asyncio.wait([opening], timeout=max(0.0, deadline - time.monotonic()))
            if not opening.done():
                raise TimedOut(f"the {self._what} is not open yet")
        return await asyncio.shield(opening)

    def _tried(self, opening: asyncio.Task[R]) -> None:
        """Where it failed, who waited is told, nobody else is to be, and the next use tries again."""
        if (opening.cancelled() or opening.exception() is not None) and self._opening is opening:
            self._opening = None

    async def _open(self) -> R:
        role = await self._host.drive(self._make())
        self._role = role
        self._ready(role)
        return role

    def _ready(self, role: R) -> None:
        """It was made just now."""

    async def _do(self, name: str, *args: Any, **options: Any) -> Any:
        """Run the role's operation of this name."""
        role = self._role
        if role is None or self._closed:
            deadline = deadline_after(options.get("timeout", _DEFAULT))
            role = await self._opened(deadline)
            options["timeout"] = max(0.0, deadline - time.monotonic())
        else:
            self._host.check()
        return await self._run(self._steps(role, name)(*args, **options))

    async def _run(self, steps: Steps[Any]) -> Any:
        return await self._host.drive(steps, inside=self._inside)

    def _steps(self, role: Any, name: str) -> Callable[..., Steps[Any]]:
        method = getattr(role, name, None)
        if method is None:
            raise AsyncUnsupported(f"{type(role).__name__} has no {name}")
        return self._made_of(method)

    def _made_of(self, method: Callable[..., Any]) -> Callable[..., Steps[Any]]:
        steps = steps_of(method)
        if steps is None:
            raise AsyncUnsupported(f"{getattr(method, '__qualname__', method)} cannot be awaited yet; use the synchronous client for it")
        return steps

    async def _come(self, name: str, timeout: float) -> Any:
        """What such steps bring in time, or None: also where the role is not made by then."""
        role = self._role
        if role is None or self._closed:
            deadline = deadline_after(timeout)
            try:
                role = await self._opened(deadline)
            except TimedOut:
                if self._opening is None:  # that was the reason why it cannot be made
                    raise
                return None
            timeout = max(0.0, deadline - time.monotonic())
        else:
            self._host.check()
        return await self._run(self._being(role, name)(timeout))

    def _being(self, role: Any, name: str) -> Callable[[float], Steps[Any]]:
        """Steps that the role has under a name of their own, beside a call that is too frequent to be an operation."""
        found: Callable[[float], Steps[Any]] | None = getattr(role, name, None)
        if found is None:
            raise AsyncUnsupported(f"{type(role).__name__} cannot be awaited yet; use the synchronous client for it")
        return found

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._opened().__await__()
        return self

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close(*(() if error is None else (5.0,)))
        except Exception as why:
            if error is None:
                raise
            error.add_note(f"and closing the {self._what} raised {type(why).__name__}: {why}")

    async def close(self, timeout: float = 30.0) -> None:
        """End the role; Closed is raised in coroutines that are inside a call of it. A second time does nothing, but where the first was
        cancelled it waits on, as far as the role does.

        Raises:
            TimedOut; what ending the role raises: it is over all the same.
        """
        if self._closed:
            if self._cut_off and self._role is not None:
                await self._end(self._role, timeout)
                self._cut_off = False
                self._forget(self)
            return
        deadline = deadline_after(timeout)
        self._closed = True
        try:
            await self._closing(deadline, timeout)
        except asyncio.CancelledError:
            self._cut_off = True  # and not forgotten: its client closes it again
            beside = getattr(self._role, "end_beside", None)
            if beside is not None:
                beside(deadline)
            raise
        except BaseException:
            self._forget(self)
            raise
        self._forget(self)

    async def _closing(self, deadline: float, timeout: float) -> None:
        if self._opening is not None and self._role is None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        while self._inside and time.monotonic() < deadline:
            for waiter in list(self._inside):
                waiter.stop(Closed(f"the {self._what} was closed"))
            await asyncio.sleep(0)
        if self._role is not None:
            await self._end(self._role, timeout)

    async def _end(self, role: Any, timeout: float) -> None:
        closing = getattr(role, "ending", None)
        if closing is not None:
            await self._host.drive(closing(timeout))


class Reading(AsyncRole[R]):
    """What hands out batches."""

    async def poll(self, timeout: float = 1.0) -> Batch | None:
        """As the synchronous role's `poll`; one coroutine at a time (ConcurrentUse)."""
        batch: Batch | None = await self._come("polling", timeout)
        return batch

    async def __aiter__(self) -> AsyncIterator[Batch]:
        role: Any = await self._opened()
        rested = time.monotonic()
        while not getattr(role, "done", False):
            batch = await self._run(self._being(role, "polling")(3600.0))
            if batch is not None:
                yield batch
            if time.monotonic() - rested > _BREATH:
                await asyncio.sleep(0)
                rested = time.monotonic()

    async def seek(self, where: Where, **options: Any) -> None:
        """As the synchronous role's `seek`."""
        await self._do("seek", where, **options)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """What `poll` hands out next; empty before the role is made."""
        role: Any = self._role
        return {} if role is None else role.positions


class Reader(Reading[Any]):
    """See `wireproto.roles.Reader`. ``async for batch in reader`` goes on to the stop, or follows the log."""

    @property
    def stops(self) -> Mapping[TopicPartition, Position]:
        role: Any = self._role
        return {} if role is None else role.stops

    @property
    def done(self) -> bool:
        return self._role is not None and bool(self._role.done)


class Consumer(Reading[Any]):
    """See `wireproto.roles.Consumer`. Callbacks of rebalances are called in `poll`, and must not wait."""

    async def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        await self._do("commit", positions, timeout=timeout)

    async def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        found: Mapping[TopicPartition, Position] = await self._do("committed", timeout=timeout)
        return found

    async def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]:
        found: Mapping[TopicPartition, int] = await self._do("lag", timeout=timeout)
        return found

    async def rewind(self, *, timeout: float = 30.0) -> None:
        """Kafka's: go back to where the group resumes; for who has rolled back a transaction."""
        await self._do("rewind", timeout=timeout)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.made().pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.made().resume(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        role: Any = self._role
        return frozenset() if role is None else role.assignment

    def made(self) -> Any:
        """The synchronous one. Raises Closed where it was not made yet."""
        if self._role is None:
            raise Closed(f"the {self._what} is not open: poll it first")
        return self._role


class Admin(AsyncRole[Any]):
    """See `wireproto.roles.Admin`."""

    async def list_topics(self, *, timeout: float = 30.0) -> list[str]:
        found: list[str] = await self._do("list_topics", timeout=timeout)
        return found

    async def describe_topic(self, topic: str, *, timeout: float = 30.0) -> TopicInfo:
        found: TopicInfo = await self._do("describe_topic", topic, timeout=timeout)
        return found

    async def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0, **more: Any
    ) -> None:
        await self._do("create_topic", topic, partitions=partitions, config=config, timeout=timeout, **more)

    async def delete_topic(self, topic: str, *, timeout: float = 30.0) -> None:
        await self._do("delete_topic", topic, timeout=timeout)

    async def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0, **more: Any
    ) -> Mapping[TopicPartition, Position]:
        found: Mapping[TopicPartition, Position] = await self._do("positions", topic, at, partitions=partitions, timeout=timeout, **more)
        return found

    async def list_groups(self, *, timeout: float = 30.0) -> list[str]:
        found: list[str] = await self._do("list_groups", timeout=timeout)
        return found

    async def describe_group(self, group: str, *, timeout: float = 30.0) -> GroupInfo:
        found: GroupInfo = await self._do("describe_group", group, timeout=timeout)
        return found

    async def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        found: Mapping[TopicPartition, Position] = await self._do("group_positions", group, topic, timeout=timeout)
        return found

    async def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> frozenset[TopicPartition]:
        found: frozenset[TopicPartition] = await self._do("commit", group, places, timeout=timeout)
        return found

    # Kafka's, of transactions; of any other protocol AsyncUnsupported

    async def list_transactions(self, *, timeout: float = 30.0, **filters: Any) -> list[Any]:
        found: list[Any] = await self._do("list_transactions", timeout=timeout, **filters)
        return found

    async def describe_transactions(self, names: str | Iterable[str], *, timeout: float = 30.0) -> dict[str, Any]:
        found: dict[str, Any] = await self._do("describe_transactions", names, timeout=timeout)
        return found

    async def describe_producers(
        self, topic: str | Iterable[str], *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = await self._do("describe_producers", topic, partitions=partitions, timeout=timeout)
        return found

    async def abort_transaction(self, key: TopicPartition, producer: Any, *, timeout: float = 30.0) -> None:
        await self._do("abort_transaction", key, producer, timeout=timeout)

    async def commit_transaction(self, key: TopicPartition, producer: Any, *, timeout: float = 30.0) -> None:
        await self._do("commit_transaction", key, producer, timeout=timeout)

    async def end_transactions(self, transactions: Iterable[Any], *, commit: bool, timeout: float = 30.0) -> dict[Any, BrokerError]:
        found: dict[Any, BrokerError] = await self._do("end_transactions", transactions, commit=commit, timeout=timeout)
        return found

    async def open_transactions(self, transactions: Iterable[Any], *, timeout: float = 30.0) -> frozenset[Any]:
        found: frozenset[Any] = await self._do("open_transactions", transactions, timeout=timeout)
        return found

    async def fence_producers(self, names: str | Iterable[str], *, timeout: float = 30.0) -> None:
        await self._do("fence_producers", names, timeout=timeout)
