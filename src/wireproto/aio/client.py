"""Makes roles for asyncio, and closes them.

A `Client` wraps the protocol's own client, whose engine loop the running event loop has adopted (`Host`). What a role cannot do as steps
yet raises AsyncUnsupported when it is used; nothing blocks the event loop. The module knows no protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar
from weakref import WeakSet

from wireproto._connect import make_client
from wireproto.deadlines import NEVER, deadline_after
from wireproto.errors import AsyncUnsupported, Closed, RoleUnsupported, TimedOut, UsageError, WireprotoError
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

C = TypeVar("C", bound="Client")


class Client:
    """A client for asyncio, made by `wireproto.aio.connect`: ``async with wireproto.aio.connect(url) as client``.

    It belongs to the event loop in which it is entered or first used. Roles are made without waiting: what making one raises (see
    `wireproto.roles.Client`) is raised at the role's first use, or by ``async with`` or ``await`` of the role. An unknown role or option
    may be raised at once.
    """

    _admin: type[Admin] = Admin
    _tree: type[Tree] = Tree

    def __init__(self, made: ClientBase[Any]) -> None:
        self._made = made
        self._host: Host | None = None
        self._roles: dict[AsyncRole[Any], None] = {}
        self._weak_roles: WeakSet[AsyncRole[Any]] = WeakSet()
        self._closed = False
        self._ready = False

    @property
    def protocol(self) -> str:
        """The protocol's name, such as ``kafka``."""
        return self._made.protocol

    @property
    def closed(self) -> bool:
        """Whether the client has been closed."""
        return self._closed

    def _here(self) -> Host:
        """Return the engine's host in this event loop; the first call has the event loop adopt the engine. Raises Closed."""
        if self._closed:
            raise Closed("the client is closed")
        if self._host is None:
            self._host = Host(self._made.loop)
            self._made.call_back_by(self._host.io.call_soon)
            self._made.cluster.awaiting = self._host.awaiting
        return self._host

    def _begun(self, make: Callable[[], Steps[Any]], deadline: float = NEVER) -> Steps[Any]:
        """Run the steps that `make` returns, once the client is connected where it needs to be; the first call connects it.

        Raises:
            TimedOut: it is not connected at `deadline`. What connecting and the steps raise.
        """
        if not self._ready:
            beginning = self._made.cluster.tasks.shared(("begin",), self._beginning, "the first connection")
            if not (yield beginning, deadline):
                raise TimedOut("the client is not connected yet")
            beginning.result()
            self._ready = True
        return (yield from make())

    def _beginning(self) -> Steps[None]:
        """Import the roles' modules in a thread, and connect where the protocol needs a connection first."""
        imported = self._made.importing()
        if imported is not None:
            yield imported
        yield from self._made.beginning()

    def _steps(self, name: str, *args: Any, **options: Any) -> Callable[[], Steps[Any]]:
        """Return a function that makes the steps of the client's method `name` with these arguments. Raises AsyncUnsupported."""
        method = getattr(self._made, name)
        steps = steps_of(method)
        if steps is None:
            raise AsyncUnsupported(f"{self.protocol} has no {name} for asyncio yet; use the synchronous client for it")
        return partial(steps, *args, **options)

    def _role(self, kind: type[Any], what: str, make: Callable[[], Steps[Any]], *more: Any) -> Any:
        role = kind(self._here(), what, partial(self._begun, make), self._forget, *more)
        self._roles[role] = None
        return role

    def _weak_role(self, kind: type[Any], what: str, plain: Any, *more: Any) -> Any:
        """Make a role that holds nothing at a broker; it is kept in a weak set, so the client does not keep it alive."""
        role = kind(self._here(), what, partial(self._begun, partial(_made, plain)), self._forget, *more)
        self._weak_roles.add(role)
        return role

    def _forget(self, role: Any) -> None:
        self._roles.pop(role, None)
        self._weak_roles.discard(role)

    def producer(self, topic: str | None = None, **options: Any) -> Producer:
        """Make a producer of one topic.

        Args:
            topic: its name; None: the topic of the URL. options: as of the synchronous client's producer.

        Raises:
            Closed: the client was closed. AsyncUnsupported: the protocol's producer cannot be awaited yet.
        """
        make = getattr(self._made, "producing", None)
        limit = self._made.cluster.options.buffer_memory
        role: Producer
        if make is not None:
            role = self._role(Producer, "producer", partial(make, topic, **options), topic or "", limit)
        else:
            role = self._role(PlainProducer, "producer", self._steps("producer", topic, **options), topic or "", limit)
        return role

    def reader(self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Any) -> Reader:
        """Make a reader, which reads a topic without a group.

        Args:
            topic: its name; None: the topic of the URL.
            start, stop: where to begin, and the first position not read; see `wireproto.roles.Client.reader`.
            options: as of the synchronous client's reader.

        Raises:
            Closed: the client was closed. AsyncUnsupported: the protocol's reader cannot be awaited yet.
        """
        make = self._steps("reader", topic, start=start, stop=stop, **options)
        role: Reader = self._role(Reader, "reader", make)
        return role

    def consumer(self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Any) -> Consumer:
        """Make a consumer, a member of a group.

        Args:
            topics: one name or several; None: the topic of the URL. group: the group's name.
            start: where a partition begins for which the group has no committed position.
            options: as of the synchronous client's consumer.

        Raises:
            Closed: the client was closed. AsyncUnsupported: the protocol's consumer cannot be awaited yet.
        """
        make = self._steps("consumer", topics, group, start=start, **options)
        role: Consumer = self._role(Consumer, "consumer", make)
        return role

    def queue(self, topic: str | None = None, group: str = "", **options: Any) -> Queue:
        """Make a queue consumer, which shares a topic's messages with other workers.

        Args:
            topic: its name (ZooKeeper: the queue's path); None: the topic of the URL. group: the group's name.
            options: as of the synchronous client's queue.

        Raises:
            Closed: the client was closed. AsyncUnsupported: the protocol's queue cannot be awaited yet.
        """
        role: Queue = self._role(Queue, "queue", self._steps("queue", topic, group, **options))
        return role

    def transactions(self, name: str, **options: Any) -> Transactions:
        """Make the transactions of one transactional name.

        Args:
            name: the transactional name; see `wireproto.roles.Client.transactions`.
            options: as of the synchronous client's transactions.

        Raises:
            RoleUnsupported: the protocol has no transactions. Closed: the client was closed.
        """
        if steps_of(self._made.transactions) is None:
            self._made.transactions(name, **options)  # raises RoleUnsupported
        limit = self._made.cluster.options.buffer_memory
        role: Transactions = self._role(Transactions, "transactions", self._steps("transactions", name, **options), limit)
        return role

    def transactional(self, group: str, check: Callable[[Any], Any], **options: Any) -> Transactional:
        """Make a producer of transactional messages (RocketMQ's): stored as halves, and visible once committed.

        Args:
            group: the producer group, whose members the broker asks about open halves.
            check: called with a half that its sender left open, to decide it; see the protocol's client. A coroutine function is awaited
                in the event loop; a plain one is called in a thread, and may block.
            options: as of the synchronous client's `transactional`.

        Raises:
            RoleUnsupported: the protocol has none. Closed: the client was closed.
        """
        if not hasattr(self._made, "transactional"):
            raise RoleUnsupported(f"{self.protocol} has no transactional messages", nearest="transactions")
        kept = Check(check) if is_async(check) else None
        make = self._steps("transactional", group, kept or check, **options)
        role: Transactional = self._role(Transactional, "transactional producer", make, kept)
        return role

    def tree(self) -> Tree:
        """Make ZooKeeper's tree of nodes.

        Raises:
            RoleUnsupported: the protocol has none. Closed: the client was closed.
        """
        plain = self._made.tree()  # type: ignore[attr-defined]
        role: Tree = self._weak_role(self._tree, "tree", plain, plain)
        return role

    def admin(self) -> Admin:
        """Make the admin: topics, groups, positions; see `wireproto.roles.Admin`.

        Raises:
            Closed: the client was closed.
        """
        plain = self._made.admin()  # type: ignore[attr-defined]
        role: Admin = self._weak_role(self._admin, "admin", plain, plain)
        return role

    async def request(self, message: Any, *, timeout: float = 30.0, **how: Any) -> Any:
        """Send any message of the wire, and return its typed reply.

        Args:
            message: an instance of a request class of the protocol's ``messages``.
            timeout: seconds to wait for the reply, the client's first connection included.
            how: the version and the node to ask, as the protocol's own client describes.

        Raises:
            UsageError: the message cannot be sent so. TimedOut, Unreachable, Disconnected: no reply. Closed: the client was closed.
        """
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
        """Close the roles, which flush and leave their groups, then all connections.

        A cancelled close closes the connections at once: what a ZooKeeper session holds stays until the session's time-out.

        Args:
            timeout: seconds for all roles together.

        Raises:
            WireprotoError: the first error of a role's close, such as TimedOut, once everything is closed.
        """
        if self._closed:
            return
        deadline = deadline_after(timeout)
        first: Exception | None = None
        try:
            for role in [*self._roles, *self._weak_roles]:
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
                finally:  # also when this close is cancelled
                    self._made.cluster.pool.close()
                    self._host.close()
                await asyncio.sleep(0)  # coroutines that waited see Closed
            else:
                self._made.close()
        if first is not None:
            raise first


def open_client(kind: type[C], url: str, options: dict[str, Any], protocol: str | None = None) -> C:
    """Make the client of a URL, for each `connect` of this package.

    Args:
        kind: its class. url, options: see `wireproto.aio.connect`. protocol: the one that the URL must be of; None: any.

    Raises:
        OptionError: the URL or an option is wrong. UsageError: the protocol's client cannot be run by an event loop.
    """
    made = make_client(url, options, protocol)
    if not isinstance(made, ClientBase):
        raise UsageError(f"{type(made).__name__} has no engine that an event loop could drive")
    return kind(made)


def _made(role: Any) -> Steps[Any]:
    """Return `role` as steps that wait for nothing."""
    yield from ()
    return role
