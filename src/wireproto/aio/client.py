"""A client under asyncio: makes roles, and closes them.

What it is: the protocol's own client over an adopted engine. What a role of it cannot do in steps yet raises AsyncUnsupported when it is
used; nothing blocks the event loop.
Must not: know a protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self
from weakref import WeakSet

from wireproto.deadlines import NEVER, deadline_after
from wireproto.errors import AsyncUnsupported, Closed, RoleUnsupported, TimedOut, WireprotoError
from wireproto.net.runtime import ClientBase
from wireproto.net.task import Steps, is_async, steps_of
from wireproto.position import EARLIEST, Where

from .host import Host
from .plain import PlainProducer
from .producer import Producer
from .queue import Queue
from .roles import Admin, AsyncRole, Consumer, Reader
from .transactional import Check, Transactional
from .transactions import Transactions
from .tree import Tree


class Client:
    """What `wireproto.aio.connect` gives: ``async with wireproto.aio.connect(url) as client``.

    It belongs to the event loop in which it is entered, or first used.
    """

    def __init__(self, made: ClientBase[Any]) -> None:
        self._made = made
        self._host: Host | None = None
        self._roles: dict[AsyncRole[Any], None] = {}
        self._faces: WeakSet[AsyncRole[Any]] = WeakSet()
        self._closed = False
        self._ready = False

    @property
    def protocol(self) -> str:
        return self._made.protocol

    @property
    def closed(self) -> bool:
        return self._closed

    def _here(self) -> Host:
        """The engine under this event loop."""
        if self._closed:
            raise Closed("the client is closed")
        if self._host is None:
            self._host = Host(self._made.loop)
            self._made.told_by(self._host.io.call_soon)
            self._made.cluster.awaiting = self._host.awaiting
        return self._host

    def _begun(self, make: Callable[[], Steps[Any]], deadline: float = NEVER) -> Steps[Any]:
        """What these steps make, of a client that is connected where it needs to be: the first who comes sees to it. Raises TimedOut."""
        if not self._ready:
            beginning = self._made.cluster.tasks.shared(("begin",), self._beginning, "the first connection")
            if not (yield beginning, deadline):
                raise TimedOut("the client is not connected yet")
            beginning.result()
            self._ready = True
        return (yield from make())

    def _beginning(self) -> Steps[None]:
        """Import what roles are made from, in a thread, and connect where that is needed."""
        imported = self._made.importing()
        if imported is not None:
            yield imported
        yield from self._made.beginning()

    def _steps(self, name: str, *args: Any, **options: Any) -> Callable[[], Steps[Any]]:
        """What makes the steps of the client's own method of this name."""
        method = getattr(self._made, name)
        steps = steps_of(method)
        if steps is None:
            raise AsyncUnsupported(f"{self.protocol} has no {name} for asyncio yet; use the synchronous client for it")
        return partial(steps, *args, **options)

    def _role(self, kind: type[Any], what: str, make: Callable[[], Steps[Any]], *more: Any) -> Any:
        role = kind(self._here(), what, partial(self._begun, make), self._forget, *more)
        self._roles[role] = None
        return role

    def _face(self, kind: type[Any], what: str, plain: Any, *more: Any) -> Any:
        """A role that holds nothing at a broker: it goes when nobody has it any more."""
        role = kind(self._here(), what, partial(self._begun, partial(_made, plain)), self._forget, *more)
        self._faces.add(role)
        return role

    def _forget(self, role: Any) -> None:
        self._roles.pop(role, None)
        self._faces.discard(role)

    def producer(self, topic: str | None = None, **options: Any) -> Producer:
        """A producer of one topic, that of the URL if none is named; see `Producer`."""
        make = getattr(self._made, "producing", None)
        limit = self._made.cluster.options.buffer_memory
        role: Producer
        if make is not None:
            role = self._role(Producer, "producer", partial(make, topic, **options), topic or "", limit)
        else:
            role = self._role(PlainProducer, "producer", self._steps("producer", topic, **options), topic or "", limit)
        return role

    def reader(self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Any) -> Reader:
        """A reader without a group; see `wireproto.roles.Client.reader`."""
        make = self._steps("reader", topic, start=start, stop=stop, **options)
        role: Reader = self._role(Reader, "reader", make)
        return role

    def consumer(self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Any) -> Consumer:
        """A member of a group; see `wireproto.roles.Client.consumer`."""
        make = self._steps("consumer", topics, group, start=start, **options)
        role: Consumer = self._role(Consumer, "consumer", make)
        return role

    def queue(self, topic: str | None = None, group: str = "", **options: Any) -> Queue:
        """A worker of a queue; see `wireproto.roles.Client.queue`."""
        role: Queue = self._role(Queue, "queue", self._steps("queue", topic, group, **options))
        return role

    def transactions(self, name: str, **options: Any) -> Transactions:
        """Transactions under a name; see the protocol's client. Raises RoleUnsupported."""
        if steps_of(self._made.transactions) is None:
            self._made.transactions(name, **options)  # which says so
        limit = self._made.cluster.options.buffer_memory
        role: Transactions = self._role(Transactions, "transactions", self._steps("transactions", name, **options), limit)
        return role

    def transactional(self, group: str, check: Callable[[Any], Any], **options: Any) -> Transactional:
        """Messages that are stored, and seen when their sender, or `check`, says so; see the protocol's client.

        Args:
            check: a coroutine function is awaited in the event loop; a plain one is called in a thread, and may block.
        Raises:
            RoleUnsupported: the protocol has none.
        """
        if not hasattr(self._made, "transactional"):
            raise RoleUnsupported(f"{self.protocol} has no transactional messages", nearest="transactions")
        kept = Check(check) if is_async(check) else None
        make = self._steps("transactional", group, kept or check, **options)
        role: Transactional = self._role(Transactional, "transactional producer", make, kept)
        return role

    def tree(self) -> Tree:
        """The tree of nodes; see the protocol's. Raises RoleUnsupported."""
        plain = self._made.tree()  # type: ignore[attr-defined]
        role: Tree = self._face(Tree, "tree", plain, plain)
        return role

    def admin(self) -> Admin:
        """Topics, groups, positions; see `wireproto.roles.Admin`."""
        role: Admin = self._face(Admin, "admin", self._made.admin())  # type: ignore[attr-defined]
        return role

    async def request(self, message: Any, *, timeout: float = 30.0, **how: Any) -> Any:
        """Any message, and its typed reply; see the protocol's client."""
        deadline = deadline_after(timeout)
        make = lambda: self._steps("request", message, timeout=max(0.0, deadline - time.monotonic()), **how)()  # noqa: E731
        return await self._here().drive(self._begun(make, deadline))

    async def __aenter__(self) -> Self:
        try:
            await self._here().drive(self._begun(partial(_made, None)))
        except BaseException:
            await self.close(0.0)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close(*(() if error is None else (5.0,)))
        except Exception as why:
            if error is None:
                raise
            error.add_note(f"and closing the client raised {type(why).__name__}: {why}")

    async def close(self, timeout: float = 30.0) -> None:
        """Close the roles, which flush and leave their groups, under `timeout`, then all connections; the first error is raised then.
        Cancelled, it closes the connections at once: what a session holds (ZooKeeper) stays until its time-out.
        """
        if self._closed:
            return
        deadline = deadline_after(timeout)
        first: Exception | None = None
        try:
            for role in [*self._roles, *self._faces]:
                try:
                    await role.close(max(0.0, deadline - time.monotonic()))
                except WireprotoError as why:
                    first = first or why
        finally:
            self._closed = True
            if self._host is not None:
                try:
                    if self._ready:
                        with suppress(WireprotoError):
                            await self._host.drive(self._made.ending(deadline))
                finally:  # at once where it is cancelled
                    self._made.cluster.pool.close()
                    self._host.close()
                await asyncio.sleep(0)  # who waited is told
            else:
                self._made.close()
        if first is not None:
            raise first


def _made(role: Any) -> Steps[Any]:
    """Steps that have nothing to wait for."""
    yield from ()
    return role
