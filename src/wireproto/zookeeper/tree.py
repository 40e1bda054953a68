"""Reads, writes and watches the nodes of ZooKeeper's tree.

Most calls exist in two forms: `get` waits for the reply; `get_async` sends the request and returns a `Call`, so that thousands of requests
may be in flight. Requests of one client take effect in the order in which they were sent. Paths are absolute and lie below the chroot of
the URL. A `Tree` is thread-safe. Every blocking call takes `timeout` in seconds. A watch is a callback for one event, which runs in a
thread of its own, or a `Watch` to wait for; it survives the loss of a connection.

Raised by every call that sends a request:

    NoNode, BadVersion, NoAuth …  the server's error (`wireproto.zookeeper.codes`), with the path as `node`
    ValueUnsupported              the path is illegal, or the request is larger than servers accept (``jute.maxbuffer``)
    ConnectionLoss                the connection was lost with a write in flight: it may or may not have taken effect
    SessionExpired                the session in which the call was made ended before the call was done: nothing slips into the next session
    TimedOut                      no reply in time; `doubtful` when it was a write that was sent
    Closed                        the client is closed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from ..deadlines import deadline_after
from ..errors import Closed, TimedOut, ValueUnsupported, WireprotoError
from ..net.closing import Closing
from ..net.task import Steps, operation
from . import multi as multi_module
from . import operations as op
from .call import Call
from .callbacks import Callback, check
from .codes import AddWatchMode, BadArguments, MarshallingError, NoAuth, NodeExists, NoNode, NotEmpty, NoWatcher, WatcherType
from .errors import ConnectionLoss, Doubt
from .link import ANY, CHILD, DATA, IF_EXISTS, Link, Watching
from .messages import ACL, AddWatchRequest, CheckWatchesRequest, ClientInfo, ReconfigRequest, RemoveWatchesRequest, Stat, WhoAmIResponse
from .paths import CONFIG, Chroot, join
from .paths import parents as parents_of
from .session import SessionEvent, State
from .session_calls import Scope, SessionCalls, StepCalls
from .watch import PERSISTENT, RECURSIVE, Watch

T = TypeVar("T")
P = ParamSpec("P")
REMEMBERED, REMEMBERED_LENGTH = 512, 200
"""Entries of each of a tree's caches, and characters of the longest path that is cached."""
LATE = 0.5
"""Seconds beyond a task's own deadline after which it is not waited for: the I/O thread is busy."""


class Known(dict[str, T]):
    """A cache of at most `REMEMBERED` values that are computed from a path: its check and encoding, for nodes that are used repeatedly.

    Args:
        make: called with the server's path and the caller's path; returns the value to cache.
        root: the chroot.
    """

    __slots__ = ("_make", "_root")

    def __init__(self, make: Callable[[str, str], T], root: Chroot) -> None:
        self._make = make
        self._root = root

    def __missing__(self, path: str) -> T:
        made = self._make(self._root.out(path), path)
        if len(path) <= REMEMBERED_LENGTH:
            if len(self) >= REMEMBERED:
                self.clear()
            self[path] = made
        return made


def stepwise(method: Callable[P, T]) -> Callable[P, T]:
    """Mark a method that returns the result of one call of the link: over `StepCalls` it returns that call's steps (`steps_of`)."""
    method.__wrapped__ = lambda tree, *args, **given: method(tree.stepping, *args, **given)  # type: ignore[attr-defined]
    return method


class Tree(Closing):
    """The tree of nodes. Made by ``client.tree()``; closing it does nothing, since the session belongs to the client."""

    def __init__(self, link: Link | SessionCalls, loop: Any) -> None:
        self._link = link
        self._loop = loop
        self.tasks = self._tasks = link.tasks
        self._steps: Tree | None = None
        self._root = link.root
        self._gets = Known(op.get, link.root)
        self._looks = Known(op.exists, link.root)
        self._writes = Known(op.written, link.root)

    # -- reads ------------------------------------------------------------------------------------------------------------

    @stepwise
    def get(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> tuple[bytes | None, Stat]:
        """Return a node's data (None for null) and its stat.

        Args:
            path: of the node. watch: called once, when the node is written or deleted. timeout: seconds to wait for the reply.

        Raises:
            NoNode, NoAuth: the server's error. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        if watch is None:
            return self._link.call(self._gets[path], deadline_after(timeout))
        watching = self._watching(DATA, path, watch)
        return self._link.call(op.get(self._root.out(path), path, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def get_async(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Call[tuple[bytes | None, Stat]]:
        """Send the request of `get`; the returned call's `result` is what `get` returns.

        Args:
            path, watch: as for `get`. timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        if watch is None:
            return self._send(self._gets[path], timeout)
        watching = self._watching(DATA, path, watch)
        return self._send(op.get(self._root.out(path), path, watch is not None), timeout, watching=watching)

    @stepwise
    def exists(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Stat | None:
        """Return a node's stat, or None when there is no such node.

        Args:
            path: of the node. watch: called once, when the node is created, written or deleted. timeout: seconds to wait for the reply.

        Raises:
            NoAuth: the server's error. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        if watch is None:
            return self._link.call(self._looks[path], deadline_after(timeout))
        watching = self._watching(IF_EXISTS, path, watch)
        return self._link.call(op.exists(self._root.out(path), path, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def exists_async(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Call[Stat | None]:
        """Send the request of `exists`; the returned call's `result` is what `exists` returns.

        Args:
            path, watch: as for `exists`. timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        if watch is None:
            return self._send(self._looks[path], timeout)
        watching = self._watching(IF_EXISTS, path, watch)
        return self._send(op.exists(self._root.out(path), path, watch is not None), timeout, watching=watching)

    @stepwise
    def children(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> tuple[list[str], Stat]:
        """Return the names of a node's children, in no order, and the node's stat.

        Args:
            path: of the node. watch: called once, when a child is created or deleted, or the node is deleted. timeout: seconds to wait for
                the reply.

        Raises:
            NoNode, NoAuth: the server's error. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        watching = self._watching(CHILD, path, watch)
        return self._link.call(op.children(self._root.out(path), path, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def children_async(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Call[tuple[list[str], Stat]]:
        """Send the request of `children`; the returned call's `result` is what `children` returns.

        Args:
            path, watch: as for `children`. timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        watching = self._watching(CHILD, path, watch)
        return self._send(op.children(self._root.out(path), path, watch is not None), timeout, watching=watching)

    @stepwise
    def get_acl(self, path: str, *, timeout: float = 30.0) -> tuple[tuple[ACL, ...], Stat]:
        """Return a node's access list and stat; `stat.aversion` is the list's version.

        Args:
            path: of the node. timeout: seconds to wait for the reply.

        Raises:
            NoNode, NoAuth: the server's error. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._link.call(op.get_acl(self._root.out(path), path), deadline_after(timeout))

    @operation
    def sync(self, path: str = "/", *, timeout: float = 30.0) -> Steps[str]:
        """Let the server catch up with the leader: reads after this see what the leader itself shows now. Returns the path.

        The leader answers at once, and may show a write a moment after the server that acknowledged it to its writer; see `catch_up`.

        Args:
            path: of a node below the chroot. timeout: seconds to wait for the reply.

        Raises:
            TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._root.back((yield from self._link.calling(op.sync(self._root.out(path), path), deadline_after(timeout))))

    @stepwise
    def catch_up(self, path: str = "/", *, timeout: float = 30.0) -> Any:
        """Let the server apply every write that any server has acknowledged: reads after this see them.

        It is a transaction that only checks that `path` exists: it changes nothing, and is ordered behind all earlier transactions.

        Args:
            path: of a node below the chroot. timeout: seconds to wait for the reply.

        Raises:
            NoNode: there is no such node. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        request = multi_module.request([multi_module.Check(path)], self._root)
        request.repeats = True
        return self._link.call(request, deadline_after(timeout))

    @operation
    def ephemerals(self, prefix: str = "/", *, timeout: float = 30.0) -> Steps[list[str]]:
        """List the paths of this session's ephemeral nodes, below the chroot, that begin with `prefix` (servers from 3.6).

        Args:
            prefix: compared as text: ``/lock`` is a prefix of ``/locks/a`` too, ``/lock/`` is not. timeout: seconds to wait for the reply.

        Raises:
            TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        found = yield from self._link.calling(op.ephemerals(self._root.out(prefix, sequence=True), prefix), deadline_after(timeout))
        return [self._root.back(path) for path in found if self._root.holds(path)]

    @stepwise
    def count(self, path: str = "/", *, timeout: float = 30.0) -> int:
        """Return how many nodes lie below a path, at any depth (servers from 3.6).

        Args:
            path: of the node. timeout: seconds to wait for the reply.

        Raises:
            NoNode, NoAuth: the server's error. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._link.call(op.count(self._root.out(path), path), deadline_after(timeout))

    # -- writes -----------------------------------------------------------------------------------------------------------

    @operation
    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        container: bool = False,
        ttl: float | None = None,
        parents: bool = False,
        acl: Sequence[ACL] | None = None,
        timeout: float = 30.0,
    ) -> Steps[str]:
        """Create a node and return its path.

        Args:
            path: with `sequence`, the server appends a counter of ten digits.
            data: bytes; None is null, which is not the same as empty.
            ephemeral: the node is deleted when the session ends.
            sequence: the server appends its counter of the parent's children to the name.
            container: the server removes the node some time after its last child.
            ttl: seconds after which the server removes the node, counted from its creation or the last write of its data (`set`), unless it
                has children then. The deletion of a child and `set_acl` do not restart the time (servers with extendedTypesEnabled).
            parents: create missing nodes above it (empty, with the same access list).
            acl: access list; None is the client's default.
            timeout: seconds for all requests of the call.

        Raises:
            NodeExists, NoNode (no parent), NoChildrenForEphemerals, NoAuth: the server's error.
            ConnectionLoss: the node may have been created. TimedOut, SessionExpired, Closed: see the module.
            ValueUnsupported: the path, the data, the access list, or the kinds of node combined cannot be sent.
        """
        deadline = deadline_after(timeout)
        scope = self.session_scope() if parents and self._link.session_number != ANY else self  # one session for all of it
        kind: dict[str, Any] = {"ephemeral": ephemeral, "sequence": sequence, "container": container, "ttl": ttl, "acl": self._access(acl)}
        request = op.create(self._root.out(path, sequence=sequence), path, data, **kind)
        with Doubt() as doubt:
            while True:
                try:
                    return self._root.back((yield from scope._link.calling(request, deadline)))
                except NoNode:
                    if not parents:
                        raise
                yield from scope._ensure((parents_of(self._root.out(path, sequence=sequence)) or ["/"])[-1], acl, deadline, doubt)

    @stepwise
    def create_async(self, path: str, data: bytes | None = b"", *, timeout: float = 30.0, **kind: Any) -> Call[str]:
        """Send the request of `create`, without `parents`; the returned call's `result` is the node's path.

        Args:
            path, data: as for `create`, and so are `ephemeral`, `sequence`, `container`, `ttl` and `acl`.
            timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        kind["acl"] = self._access(kind.get("acl"))
        request = op.create(self._root.out(path, sequence=bool(kind.get("sequence"))), path, data, **kind)
        return self._send(request, timeout, self._root.back)

    @operation
    def create2(self, /, path: str, data: bytes | None = b"", *, timeout: float = 30.0, **kind: Any) -> Steps[tuple[str, Stat]]:
        """Create a node as `create` does, without `parents`; returns its path and its stat (servers from 3.5).

        Args:
            path, data: as for `create`, and so are `ephemeral`, `sequence`, `container`, `ttl` and `acl`. timeout: seconds to wait for the
                reply.

        Raises:
            NodeExists, NoNode (no parent), NoChildrenForEphemerals, NoAuth: the server's error.
            ConnectionLoss: the node may have been created. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        kind["acl"] = self._access(kind.get("acl"))
        request = op.create2(self._root.out(path, sequence=bool(kind.get("sequence"))), path, data, **kind)
        made, stat = yield from self._link.calling(request, deadline_after(timeout))
        return self._root.back(made), stat

    @operation
    def ensure(self, path: str, *, acl: Sequence[ACL] | None = None, timeout: float = 30.0) -> Steps[bool]:
        """Create a node and those above it where they are missing; returns whether the node itself was created by this call.

        Args:
            path: of the node. acl: access list of the nodes that are created; None is the client's default.
            timeout: seconds for all requests of the call.

        Raises:
            NoAuth: a missing node may not be created. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        given = None if acl is None else op.access(acl)
        with Doubt() as doubt:
            return (yield from self._ensure(self._root.out(path), given, deadline_after(timeout), doubt))

    @stepwise
    def set(self, path: str, data: bytes | None, *, version: int = -1, timeout: float = 30.0) -> Stat:
        """Write a node's data and return its new stat.

        Args:
            path: of the node. data: bytes; None is null. version: data version that the node must have; -1: any. timeout: seconds to wait
                for the reply.

        Raises:
            NoNode, BadVersion, NoAuth: the server's error. ConnectionLoss: the write may have taken effect.
            TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._link.call(op.set_data(self._writes[path], path, data, version), deadline_after(timeout))

    @stepwise
    def set_async(self, path: str, data: bytes | None, *, version: int = -1, timeout: float = 30.0) -> Call[Stat]:
        """Send the request of `set`; the returned call's `result` is what `set` returns.

        Args:
            path, data, version: as for `set`. timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._send(op.set_data(self._writes[path], path, data, version), timeout)

    @operation
    def delete(self, path: str, *, version: int = -1, recursive: bool = False, timeout: float = 30.0) -> Steps[None]:
        """Delete a node, and with `recursive` everything below it first.

        Args:
            path: of the node. version: data version that the node must have; -1: any. recursive: delete its descendants, deepest first.
            timeout: seconds for all requests of the call.

        Raises:
            NoNode, NotEmpty, BadVersion: the server's error. NoAuth: also when the children of a node may not be listed.
            ConnectionLoss: without `recursive`: the node may have been deleted. TimedOut, SessionExpired, Closed, ValueUnsupported: see the
                module.
        """
        deadline = deadline_after(timeout)
        request = op.delete(self._root.out(path), path, version)
        if not recursive:
            yield from self._link.calling(request, deadline)
            return
        uncertain = False
        with Doubt() as doubt:
            while True:
                try:
                    yield from self._link.calling(request, deadline)
                except NotEmpty:
                    yield from self._delete_below(path, deadline, doubt)
                except ConnectionLoss as why:
                    doubt.lost(why)  # the repeated request shows what happened
                    uncertain = True
                except NoNode:
                    if not uncertain:
                        raise
                    return
                else:
                    return

    @stepwise
    def delete_async(self, path: str, *, version: int = -1, timeout: float = 30.0) -> Call[None]:
        """Send the request of `delete`, without `recursive`; the returned call's `result` is None.

        Args:
            path, version: as for `delete`. timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._send(op.delete(self._root.out(path), path, version), timeout)

    @stepwise
    def set_acl(self, path: str, acl: Sequence[ACL], *, version: int = -1, timeout: float = 30.0) -> Stat:
        """Replace a node's access list and return the node's stat.

        Args:
            path: of the node. acl: the new list, not empty. version: version of the list that the node must have (`stat.aversion`); -1:
                any.
            timeout: seconds to wait for the reply.

        Raises:
            NoNode, BadVersion, NoAuth, InvalidACL: the server's error. ConnectionLoss: the write may have taken effect.
            TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._link.call(op.set_acl(self._root.out(path), path, acl, version), deadline_after(timeout))

    @stepwise
    def multi(self, operations: Sequence[multi_module.Operation], *, timeout: float = 30.0) -> list[Any]:
        """Perform all of the operations or none, or read several nodes with one request.

        Args:
            operations: `Create`, `Delete`, `Set` and `Check` of `wireproto.zookeeper.multi`; or only the reads `Get` and `Children`
                (servers from 3.6).
            timeout: seconds to wait for the reply.

        Returns:
            the results in order; in place of a read that failed, its error object.

        Raises:
            the error of the write that failed, with its index as `index`; nothing was done.
            ConnectionLoss: the writes may have taken effect. ValueUnsupported: reads and writes are mixed, or one of them cannot be sent.
            TimedOut, SessionExpired, Closed: see the module.
        """
        return self._link.call(multi_module.request(operations, self._root, self._link.acl), deadline_after(timeout))

    @stepwise
    def multi_async(self, operations: Sequence[multi_module.Operation], *, timeout: float = 30.0) -> Call[list[Any]]:
        """Send the request of `multi`; the returned call's `result` is what `multi` returns.

        Args:
            operations: as for `multi`. timeout: seconds to wait for a connection, and for the reply.

        Raises:
            TimedOut: there was no connection in time. SessionExpired, Closed, ValueUnsupported: see the module.
        """
        return self._send(multi_module.request(operations, self._root, self._link.acl), timeout)

    # -- watches ----------------------------------------------------------------------------------------------------------

    def watch(self) -> Watch:
        """Make a `Watch` to pass as ``watch=`` and wait for."""
        return Watch(self._loop)

    def forget(self, watch: Watch, *paths: str) -> None:
        """Stop calling a watch for these nodes; the servers keep their watch until it fires.

        Args:
            watch: a `Watch` or callback that was passed as ``watch=``, or to `add_watch`. paths: of the nodes.
        """
        for path in paths:
            self._link.events.forget(self._root.out(path), watch)

    @stepwise
    def add_watch(self, path: str, callback: Callback, *, recursive: bool = False, timeout: float = 30.0) -> Any:
        """Call `callback` at every event of a node, or of the whole tree below it, until `remove_watch` (servers from 3.6).

        The watch is set again after a lost connection. Servers do not report what happened in between: read again at `State.CONNECTED`
        (`on_state`).
        Other watches of the node stay as they are, also on servers before 3.9, which keep one mode of a watch for each node. With both a
        plain and a recursive watch on one node, those servers may report a change of the children to the plain one twice, or two changes
        once.

        Args:
            path: of the node. callback: called with a `WatchedEvent`. recursive: also for events of all nodes below it.
            timeout: seconds to wait for the reply.

        Raises:
            NoAuth: the server's error. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
            UsageError: `callback` cannot be called, is an async function, or has no hash.
        """
        mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
        body = AddWatchRequest(path=self._root.out(path), mode=int(mode)).encode()
        request = op.Request(106, body, op.nothing, path)
        return self._link.call(request, deadline_after(timeout), self._watching(RECURSIVE if recursive else PERSISTENT, path, callback))

    @operation
    def remove_watch(self, path: str, callback: Callback | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """Remove one callback of a path, or all of them.

        When the caller is cancelled or interrupted, the removal is given up too: it never removes a watch that the caller sets afterwards.

        Args:
            path: of the node. callback: the one to remove; None: all. timeout: seconds for all requests of the call.

        Raises:
            NoWatcher: there is none. TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        deadline = deadline_after(timeout)
        server_path = self._root.out(path)
        self._link.still()
        removal = self._tasks.spawn(self._removing(path, server_path, callback, deadline), f"remove_watch {path}")
        try:
            if not (yield removal, deadline + LATE):
                raise TimedOut("the watch events received before were not delivered in time")
        except BaseException:
            removal.cancel(Closed("the call that waited for it has ended"))
            raise
        if (why := removal.result()) is not None:
            raise why

    def _removing(self, path: str, server_path: str, callback: Callback | None, deadline: float) -> Steps[WireprotoError | None]:
        """Run the task of `remove_watch`; returns the error that it raises, or None."""
        events = self._link.events
        try:
            if time.monotonic() >= deadline:  # the I/O thread was busy: the caller gets TimedOut, and nothing is removed afterwards
                raise TimedOut("the watch events received before were not delivered in time")
            known, unneeded, before = yield from events.take_back(server_path, callback, lambda: self._link.zxid, deadline)
            try:
                for code, body in before:
                    yield from self._link.calling(op.Request(code, body, op.nothing, path), deadline)
                for kind in unneeded:
                    known |= yield from self._remove(path, server_path, kind, deadline)
            finally:
                if unneeded:
                    events.taken_back(server_path)
        except WireprotoError as why:
            return why
        return None if known else NoWatcher(path, node=path)

    def _remove(self, path: str, server_path: str, kind: WatcherType, deadline: float) -> Steps[bool]:
        """Remove a watch at the server; returns whether there was one. It may have been set by a call that had timed out."""
        body = RemoveWatchesRequest(path=server_path, type=int(kind)).encode()
        try:
            yield from self._link.calling(op.Request(18, body, op.nothing, path), deadline)
        except NoWatcher:  # it has fired meanwhile, or the server has it for another connection
            return False
        except (BadArguments, MarshallingError):
            if kind is WatcherType.ANY:
                raise
            return False  # a server before 3.9 does not distinguish the watches of a path: it stays until the last of them goes
        return True

    @operation
    def has_watch(self, path: str, type: WatcherType = WatcherType.ANY, *, timeout: float = 30.0) -> Steps[bool]:  # noqa: A002
        """Return whether the server has this client's watch of a type on a path, or a persistent one that covers it (servers from 3.5).

        Args:
            path: of the node. type: `WatcherType.DATA`, `CHILDREN` or `ANY`, for instance. timeout: seconds to wait for the reply.

        Raises:
            TimedOut, SessionExpired, Closed, ValueUnsupported: see the module.
        """
        body = CheckWatchesRequest(path=self._root.out(path), type=int(type)).encode()
        try:
            yield from self._link.calling(op.Request(17, body, op.nothing, path), deadline_after(timeout))
        except NoWatcher:
            return self._link.events.covers_one_shot(self._root.out(path), type)
        return True

    def on_state(self, listener: Callable[[SessionEvent], Any]) -> Callable[[], None]:
        """Have `listener(event)` called, in the watches' thread, with the session's current state and at each change.

        Calls are in order with those of watches: events of a connection come before its SUSPENDED, those of the next one after CONNECTED.

        Args:
            listener: called with a `SessionEvent`.

        Returns:
            a function that ends the calls.
        """
        return self._link.listen(listener)

    def safe_for(self) -> float:
        """Return for how many seconds no leader can have ended this session, by this machine's clock: until then its ephemeral nodes exist.

        The time counts from what the leader has received from this client: the handshake, and what a write, `sync` or `catch_up` proves. A
        call of this method keeps it up to date: a `sync` is sent beside each ping for one session timeout; the first result after a long
        silence may be 0.0. Delays that servers may have in reporting to each other are subtracted. The result does not hold where clocks
        run at different speeds, or where this machine's clock stops while it sleeps. `state` promises less: it becomes LOST when the
        connected server is silent, and that server may be cut off from the leader itself.
        """
        return self._link.safe_for()

    # -- session ----------------------------------------------------------------------------------------------------------

    def session_scope(self) -> Tree:
        """Return this tree bound to the current session: once that has ended, every call raises SessionExpired, whenever it is made.

        It is for work that is valid only as long as an ephemeral node exists: a call made in between, for example after a `ConnectionLoss`,
        cannot become the first call of the next session. The scope also reports that session's facts after its end: `safe_for` is 0.0,
        `state` EXPIRED, `session` and `session_timeout` are unchanged, and EXPIRED is the last event that its listeners get.
        """
        return Tree(Scope(self._bare, *self._link.own()), self._loop)

    def any_session(self) -> Tree:
        """Return this tree bound to no session: a call that waits for a connection goes into the next session when the current one ends."""
        return Tree(SessionCalls(self._bare), self._loop)

    @property
    def loop(self) -> Any:
        """Return the client's engine, for roles that wait by it."""
        return self._loop

    @property
    def link(self) -> Link | SessionCalls:
        """Return the session's link, for roles that repeat requests themselves."""
        return self._link

    @property
    def stepping(self) -> Tree:
        """Return this tree in the form whose calls return their steps."""
        if self._steps is None:
            self._steps = _Stepping(self)
        return self._steps

    @property
    def _bare(self) -> Link:
        return self._link if isinstance(self._link, Link) else self._link._link

    @property
    def state(self) -> State:
        """Return the session's current state."""
        return self._link.state

    @property
    def session(self) -> tuple[int, bytes]:
        """Return session id and password: ``connect(url, session=…)`` resumes it, in another process too."""
        return self._link.session.session_id, self._link.session.password

    @property
    def session_timeout(self) -> float:
        """Return the session timeout that the servers granted, in seconds."""
        return self._link.session.timeout

    @property
    def zxid(self) -> int:
        """Return the zxid of the last transaction that this client has seen."""
        return self._link.zxid

    @operation
    def add_auth(self, scheme: str, credential: str | bytes, *, timeout: float = 30.0) -> Steps[None]:
        """Give an identity now and after every reconnect, also when no server answers in time.

        Args:
            scheme: ``digest``, for instance. credential: as the scheme wants it: ``user:password``. timeout: seconds to wait for the reply.

        Raises:
            AuthFailed: it is refused; then it is not given again. ValueUnsupported: an empty credential.
            TimedOut, SessionExpired, Closed: see the module.
        """
        secret = credential.encode() if isinstance(credential, str) else bytes(credential)
        if not secret:
            raise ValueUnsupported("an empty credential")
        yield from self._link.identifying(scheme, secret, deadline_after(timeout))

    def forget_auth(self, scheme: str, credential: str | bytes) -> None:
        """Stop giving an identity after a reconnect. The current connection keeps it: servers cannot revoke one.

        Args:
            scheme, credential: as they were given to `add_auth`.
        """
        self._link.forget_identity(scheme, credential.encode() if isinstance(credential, str) else bytes(credential))

    @stepwise
    def whoami(self, *, timeout: float = 30.0) -> tuple[ClientInfo, ...]:
        """Return the identities that the server has for this connection (servers from 3.7).

        Args:
            timeout: seconds to wait for the reply.

        Raises:
            TimedOut, SessionExpired, Closed: see the module.
        """

        def read(frame: bytes) -> tuple[ClientInfo, ...]:
            return tuple(WhoAmIResponse.decode(frame, start=op.HEADER).client_info or ())

        return self._link.call(op.Request(107, b"", read), deadline_after(timeout))

    @stepwise
    def config(self, *, watch: Callback | None = None, timeout: float = 30.0) -> tuple[bytes | None, Stat]:
        """Return the ensemble's configuration (``server.1=…`` lines and its version) and the stat of its node, whatever the chroot.

        Args:
            watch: called once, when the configuration changes. timeout: seconds to wait for the reply.

        Raises:
            TimedOut, SessionExpired, Closed: see the module.
        """
        watching = None if watch is None else self._watching(DATA, CONFIG, watch, CONFIG)
        return self._link.call(op.get(CONFIG, CONFIG, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def reconfigure(
        self,
        *,
        joining: str | None = None,
        leaving: str | None = None,
        members: str | None = None,
        config: int = -1,
        timeout: float = 30.0,
    ) -> tuple[bytes | None, Stat]:
        """Change the ensemble; returns the new configuration and its stat.

        Args:
            joining: servers to add or change (``server.4=host:2888:3888;2181``, …). leaving: ids of servers to remove. members: the new
                ensemble as a whole.
            config: version of the configuration that must be the current one; -1: any.
            timeout: seconds to wait for the reply.

        Raises:
            NoAuth, BadVersion, BadArguments, …: the server's error. ConnectionLoss: it may have taken effect.
            TimedOut, SessionExpired, Closed: see the module.
        """
        body = ReconfigRequest(joining_servers=joining, leaving_servers=leaving, new_members=members, cur_config_id=config).encode()
        return self._link.call(op.Request(16, body, op._read_data, CONFIG, repeats=False), deadline_after(timeout))

    def close(self, timeout: float = 30.0) -> None:
        """Do nothing: the session belongs to the client.

        Args:
            timeout: seconds; not used.

        Raises:
            nothing: it does not wait.
        """

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _access(self, acl: Sequence[ACL] | None) -> Sequence[ACL]:
        return self._link.acl if acl is None else acl

    def _send(
        self,
        request: op.Request[Any],
        timeout: float,
        finish: Callable[[Any], T] | None = None,
        watching: Watching | None = None,
    ) -> Call[T]:
        sent = self._link.submit(request, deadline_after(timeout), watching)
        return Call(self._link, request, sent, finish, watching)

    def sending(
        self,
        request: op.Request[Any],
        deadline: float,
        finish: Callable[[Any], T] | None = None,
        watching: Watching | None = None,
    ) -> Steps[Call[T]]:
        """Send a request without waiting for the reply: the steps of `get_async` and its like.

        Args:
            request: what is sent. deadline: `time.monotonic()` value until which a connection is waited for.
            finish: turns the reply's value into the call's result; None: as it is. watching: the watch that the request sets, or None.
        """
        sent = yield from self._link.submitting(request, deadline, watching, lasting=True)
        return Call(self._link, request, sent, finish, watching)

    def _watching(self, kind: str, path: str, callback: Callback | None, server_path: str | None = None) -> Watching | None:
        if callback is None:
            return None
        if type(callback) is Watch:
            callback.renew()
        else:
            check(callback)
            self._link.events.dispatcher.prepare()
        return Watching(kind, self._root.out(path) if server_path is None else server_path, callback)

    def _ensure(self, server_path: str, acl: Sequence[ACL] | None, deadline: float, doubt: Doubt) -> Steps[bool]:
        """Look upwards for nodes that exist, then create the missing ones downwards; repeat while another client deletes nodes meanwhile.

        So no right to create is needed where nothing is missing.
        """
        while True:
            missing: list[str] = []
            for node in (server_path, *reversed(parents_of(server_path))):  # the chroot's own nodes too
                if (yield from self._there(node, deadline)):
                    break
                missing.append(node)
            try:
                made = []
                for node in reversed(missing):
                    made += [(yield from self._ensure_one(node, acl, deadline, doubt))]
            except NoNode:
                continue
            return bool(made) and made[-1]

    def _ensure_one(self, server_path: str, acl: Sequence[ACL] | None, deadline: float, doubt: Doubt) -> Steps[bool]:
        while True:
            try:
                request = op.create(server_path, self._root.back(server_path), b"", acl=self._access(acl))
                yield from self._link.calling(request, deadline)
            except NodeExists:
                return False
            except ConnectionLoss as why:
                doubt.lost(why)  # the repeated request shows whether it was created
            except NoAuth:
                if (yield from self._there(server_path, deadline)):  # another client was first
                    return False
                raise
            else:
                doubt.there = True
                return True

    def _there(self, server_path: str, deadline: float) -> Steps[bool]:
        try:
            return (yield from self._link.calling(op.exists(server_path, self._root.back(server_path)), deadline)) is not None
        except NoAuth:
            return True  # servers answer so only for nodes that exist and may not be read

    def _delete_below(self, path: str, deadline: float, doubt: Doubt) -> Steps[None]:
        """Delete all descendants, deepest first; what other clients delete or add meanwhile is left to the next round."""
        below = [path]
        closed: dict[str, NoAuth] = {}
        for node in below:
            try:
                names, _ = yield from self._link.calling(op.children(self._root.out(node), node), deadline)
            except NoNode:
                continue
            except NoAuth as why:
                if node == path:  # it has children, and another request would not show them
                    raise
                closed[node] = why  # it may be deleted all the same, if it has no children
                continue
            below += (join(node, name) for name in names)
        calls: list[Call[None]] = []
        for node in reversed(below[1:]):
            calls += [(yield from self.sending(op.delete(self._root.out(node), node), deadline))]
            doubt.there = True
        for node, call in zip(reversed(below[1:]), calls, strict=True):
            try:
                yield from call.getting(deadline)
            except NoNode:
                continue
            except ConnectionLoss as why:
                doubt.lost(why)
            except NotEmpty:
                if node in closed:
                    raise closed[node] from None


class _Stepping(Tree):
    """A tree whose calls return their steps."""

    def __init__(self, whole: Tree) -> None:
        super().__init__(cast("SessionCalls", StepCalls(whole._link)), whole.loop)
        self._whole = whole

    def _send(self, request: op.Request[Any], timeout: float, finish: Any = None, watching: Watching | None = None) -> Any:
        return self._whole.sending(request, deadline_after(timeout), finish, watching)
