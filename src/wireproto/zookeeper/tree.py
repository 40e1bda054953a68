"""Tree: ZooKeeper's nodes, read, written and watched.

What it is: the user's calls, each in two forms: `get` waits for the answer, `get_async` sends and returns a `Call`, so that a
thousand of them are on their way at once; requests of one client take effect in the order in which they were sent. Paths are
absolute, below the chroot of the URL. Thread-safe. Every blocking call takes `timeout` in seconds. A watch is a callback for one
event, run in a thread of its own (or a `Watch` to wait for); it survives the loss of a connection.

Raises, everywhere: `NoNode`, `BadVersion`, `NoAuth` … (``wireproto.zookeeper.codes``) with the path as `node`; `ValueUnsupported` for an
illegal path or a frame beyond the servers' limit; `ConnectionLoss` when a write was in flight on a lost connection; `SessionExpired` when
the session in which the call was made ended before the call was done: nothing slips into the next one; `TimedOut`.
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
"""Paths that a tree keeps something of, by kind, and characters of a path that it keeps one for."""
LATE = 0.5
"""Seconds beyond its own time after which a task is not waited for: the I/O thread is busy."""


class Known(dict[str, T]):
    """What is made of a path once, its check and encoding, for nodes that are used again and again. At most `REMEMBERED` of them.

    Args:
        make: server's path and caller's to what is kept.
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
    """Mark a method that hands on what one call of the link gives: over `StepCalls` it gives that call's steps (`steps_of`)."""
    method.__wrapped__ = lambda tree, *args, **given: method(tree.stepping, *args, **given)  # type: ignore[attr-defined]
    return method


class Tree(Closing):
    """The tree of nodes. Made by ``client.tree()``; closing it does nothing, the client holds the session."""

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
        """A node's data (None where it has null) and stat. `watch` is called when it is written or deleted."""
        if watch is None:
            return self._link.call(self._gets[path], deadline_after(timeout))
        watching = self._watching(DATA, path, watch)
        return self._link.call(op.get(self._root.out(path), path, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def get_async(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Call[tuple[bytes | None, Stat]]:
        if watch is None:
            return self._send(self._gets[path], timeout)
        watching = self._watching(DATA, path, watch)
        return self._send(op.get(self._root.out(path), path, watch is not None), timeout, watching=watching)

    @stepwise
    def exists(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Stat | None:
        """A node's stat, or None when there is no such node. `watch` is called when it is created, written or deleted."""
        if watch is None:
            return self._link.call(self._looks[path], deadline_after(timeout))
        watching = self._watching(IF_EXISTS, path, watch)
        return self._link.call(op.exists(self._root.out(path), path, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def exists_async(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Call[Stat | None]:
        if watch is None:
            return self._send(self._looks[path], timeout)
        watching = self._watching(IF_EXISTS, path, watch)
        return self._send(op.exists(self._root.out(path), path, watch is not None), timeout, watching=watching)

    @stepwise
    def children(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> tuple[list[str], Stat]:
        """Names of a node's children, in no order, and its stat. `watch` is called when one comes or goes, or the node is deleted."""
        watching = self._watching(CHILD, path, watch)
        return self._link.call(op.children(self._root.out(path), path, watch is not None), deadline_after(timeout), watching)

    @stepwise
    def children_async(self, path: str, *, watch: Callback | None = None, timeout: float = 30.0) -> Call[tuple[list[str], Stat]]:
        watching = self._watching(CHILD, path, watch)
        return self._send(op.children(self._root.out(path), path, watch is not None), timeout, watching=watching)

    @stepwise
    def get_acl(self, path: str, *, timeout: float = 30.0) -> tuple[tuple[ACL, ...], Stat]:
        """A node's access list and stat; `stat.aversion` is the list's version."""
        return self._link.call(op.get_acl(self._root.out(path), path), deadline_after(timeout))

    @operation
    def sync(self, path: str = "/", *, timeout: float = 30.0) -> Steps[str]:
        """Let the server catch up with the leader: reads after this see what the leader itself shows now. Returns the path.

        The leader answers at once, and may show a write a moment after the server that told its writer; see `catch_up`.
        """
        return self._root.back((yield from self._link.calling(op.sync(self._root.out(path), path), deadline_after(timeout))))

    @stepwise
    def catch_up(self, path: str = "/", *, timeout: float = 30.0) -> Any:
        """Let the server apply every write that anybody was told is done, whichever server told it: reads after this see them.

        It is a transaction that only demands that `path` is there: it changes nothing, and takes its place behind all others.
        Raises NoNode.
        """
        request = multi_module.request([multi_module.Check(path)], self._root)
        request.repeats = True
        return self._link.call(request, deadline_after(timeout))

    @operation
    def ephemerals(self, prefix: str = "/", *, timeout: float = 30.0) -> Steps[list[str]]:
        """List the paths of this session's ephemeral nodes, below the chroot, that begin with `prefix` (servers from 3.6).

        They are compared as text: ``/lock`` is the beginning of ``/locks/a``, too, ``/lock/`` is not.
        """
        found = yield from self._link.calling(op.ephemerals(self._root.out(prefix, sequence=True), prefix), deadline_after(timeout))
        return [self._root.back(path) for path in found if self._root.holds(path)]

    @stepwise
    def count(self, path: str = "/", *, timeout: float = 30.0) -> int:
        """How many nodes lie below a path, at any depth (servers from 3.6)."""
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
            path: with `sequence`, the server puts ten digits behind it.
            data: None is null, which is not the same as empty.
            ephemeral: it goes with the session.
            container: the server removes it some time after its last child.
            ttl: seconds since it was made or its data were last written (`set`), after which the server removes it, unless it has children
                then, which hold it; a child that goes and `set_acl` begin nothing anew (servers with extendedTypesEnabled).
            parents: create missing nodes above it (empty, with the same access list).
            acl: who may do what; None is the client's default.
        Raises:
            NodeExists, NoNode (no parent), NoChildrenForEphemerals.
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
        """As `create`, without `parents`."""
        kind["acl"] = self._access(kind.get("acl"))
        request = op.create(self._root.out(path, sequence=bool(kind.get("sequence"))), path, data, **kind)
        return self._send(request, timeout, self._root.back)

    @operation
    def create2(self, /, path: str, data: bytes | None = b"", *, timeout: float = 30.0, **kind: Any) -> Steps[tuple[str, Stat]]:
        """As `create`, without `parents`; returns the new node's stat too (servers from 3.5)."""
        kind["acl"] = self._access(kind.get("acl"))
        request = op.create2(self._root.out(path, sequence=bool(kind.get("sequence"))), path, data, **kind)
        made, stat = yield from self._link.calling(request, deadline_after(timeout))
        return self._root.back(made), stat

    @operation
    def ensure(self, path: str, *, acl: Sequence[ACL] | None = None, timeout: float = 30.0) -> Steps[bool]:
        """See that a node and those above it exist; whether it had to be created."""
        with Doubt() as doubt:
            return (yield from self._ensure(self._root.out(path), acl, deadline_after(timeout), doubt))

    @stepwise
    def set(self, path: str, data: bytes | None, *, version: int = -1, timeout: float = 30.0) -> Stat:
        """Write a node's data; `version` demands that it has this data version (-1: any). Returns the new stat."""
        return self._link.call(op.set_data(self._writes[path], path, data, version), deadline_after(timeout))

    @stepwise
    def set_async(self, path: str, data: bytes | None, *, version: int = -1, timeout: float = 30.0) -> Call[Stat]:
        return self._send(op.set_data(self._writes[path], path, data, version), timeout)

    @operation
    def delete(self, path: str, *, version: int = -1, recursive: bool = False, timeout: float = 30.0) -> Steps[None]:
        """Delete a node; `recursive`: what is below it first. Raises NoNode, NotEmpty, BadVersion, NoAuth (also: children not listed)."""
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
                except ConnectionLoss:
                    uncertain = doubt.there = True  # asking again tells
                except NoNode:
                    if not uncertain:
                        raise
                    return
                else:
                    return

    @stepwise
    def delete_async(self, path: str, *, version: int = -1, timeout: float = 30.0) -> Call[None]:
        return self._send(op.delete(self._root.out(path), path, version), timeout)

    @stepwise
    def set_acl(self, path: str, acl: Sequence[ACL], *, version: int = -1, timeout: float = 30.0) -> Stat:
        """Replace a node's access list; `version` demands that the list has this version (`stat.aversion`)."""
        return self._link.call(op.set_acl(self._root.out(path), path, acl, version), deadline_after(timeout))

    @stepwise
    def multi(self, operations: Sequence[multi_module.Operation], *, timeout: float = 30.0) -> list[Any]:
        """Do all of the operations or none: `Create`, `Delete`, `Set`, `Check` of ``wireproto.zookeeper.multi``; or read several
        nodes at once: `Get`, `Children` (servers from 3.6).

        Returns:
            their results in order. Of reads, an error object where one failed.
        Raises:
            the error of the write that failed, with its place as `index`; nothing was done.
        """
        return self._link.call(multi_module.request(operations, self._root, self._link.acl), deadline_after(timeout))

    @stepwise
    def multi_async(self, operations: Sequence[multi_module.Operation], *, timeout: float = 30.0) -> Call[list[Any]]:
        return self._send(multi_module.request(operations, self._root, self._link.acl), timeout)

    # -- watches ----------------------------------------------------------------------------------------------------------

    def watch(self) -> Watch:
        """A `Watch` to pass as ``watch=`` and wait for."""
        return Watch(self._loop)

    def forget(self, watch: Watch, *paths: str) -> None:
        """Nobody waits for it any more, on these paths. The servers keep theirs until it fires."""
        for path in paths:
            self._link.events.forget(self._root.out(path), watch)

    @stepwise
    def add_watch(self, path: str, callback: Callback, *, recursive: bool = False, timeout: float = 30.0) -> Any:
        """Call `callback` at every event of a node, or of the whole tree below it, until `remove_watch` (servers from 3.6).

        The watch is set again after a lost connection; what happened meanwhile is not told, by the servers' doing: look again at
        `State.CONNECTED` (`on_state`). Other watches of the node stay what they are, also on servers before 3.9, which keep one mode of
        a watch for each node. Of one plain and one recursive watch on one node, those may tell the plain one of a change of the children
        twice, or of two changes once.
        """
        mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
        body = AddWatchRequest(path=self._root.out(path), mode=int(mode)).encode()
        request = op.Request(106, body, op.nothing, path)
        return self._link.call(request, deadline_after(timeout), self._watching(RECURSIVE if recursive else PERSISTENT, path, callback))

    @operation
    def remove_watch(self, path: str, callback: Callback | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """Take back one callback of a path, or all. Raises NoWatcher when there is none.

        It is given up with its caller, who may have been cancelled or broken into: it takes back nothing that he sets behind that.
        """
        deadline = deadline_after(timeout)
        server_path = self._root.out(path)
        self._link.still()
        removal = self._tasks.spawn(self._removing(path, server_path, callback, deadline), f"remove_watch {path}")
        try:
            if not (yield removal, deadline + LATE):
                raise TimedOut("what has arrived is not told in time")
        except BaseException:
            removal.cancel(Closed("nobody waits for it any more"))
            raise
        if (why := removal.result()) is not None:
            raise why

    def _removing(self, path: str, server_path: str, callback: Callback | None, deadline: float) -> Steps[WireprotoError | None]:
        """A task; why it could not be done."""
        events = self._link.events
        try:
            if time.monotonic() >= deadline:  # the I/O thread was busy: who called is told so, and it is not done behind his back
                raise TimedOut("what has arrived is not told in time")
            known, vain, before = yield from events.take_back(server_path, callback, lambda: self._link.zxid, deadline)
            try:
                for code, body in before:
                    yield from self._link.calling(op.Request(code, body, op.nothing, path), deadline)
                for kind in vain:
                    known |= yield from self._remove(path, server_path, kind, deadline)
            finally:
                if vain:
                    events.taken_back(server_path)
        except WireprotoError as why:
            return why
        return None if known else NoWatcher(path, node=path)

    def _remove(self, path: str, server_path: str, kind: WatcherType, deadline: float) -> Steps[bool]:
        """Whether the server had such a watch: it may be one that was set though nobody heard of it, since its call had timed out."""
        body = RemoveWatchesRequest(path=server_path, type=int(kind)).encode()
        try:
            yield from self._link.calling(op.Request(18, body, op.nothing, path), deadline)
        except NoWatcher:  # it has fired meanwhile, or the server knows it by another connection
            return False
        except (BadArguments, MarshallingError):
            if kind is WatcherType.ANY:
                raise
            return False  # a server before 3.9 tells none of a path from its others: it stays until the last of them goes
        return True

    @operation
    def has_watch(self, path: str, type: WatcherType = WatcherType.ANY, *, timeout: float = 30.0) -> Steps[bool]:  # noqa: A002
        """Whether the server has a watch of this type of ours on a path, or one that stays and tells the same (servers from 3.5)."""
        body = CheckWatchesRequest(path=self._root.out(path), type=int(type)).encode()
        try:
            yield from self._link.calling(op.Request(17, body, op.nothing, path), deadline_after(timeout))
        except NoWatcher:
            return self._link.events.stands_in(self._root.out(path), type)
        return True

    def on_state(self, listener: Callable[[SessionEvent], Any]) -> Callable[[], None]:
        """Have `listener(event)` called, in the watches' thread, with the session's state of now and at each change.

        In order with the watches: what a connection told comes before SUSPENDED, what the next one tells behind CONNECTED.

        Returns:
            a function that ends it.
        """
        return self._link.listen(listener)

    def safe_for(self) -> float:
        """Seconds for which no leader can have ended this session, by this machine's clock: so long an ephemeral node is there for sure.

        It counts from what the leader has got of this client: the handshake, and what a write, `sync` or `catch_up` shows. Whoever asks
        has it kept up: a `sync` goes out beside each ping for a session's time-out; the first answer behind a long silence may be 0.0.
        It leaves out what servers do not tell each other in time. Unless time goes on differently there, or this machine's clock stands
        still while it sleeps. `state` promises less: it becomes LOST when the server of now is silent, which may be cut off itself.
        """
        return self._link.safe_for()

    # -- session ----------------------------------------------------------------------------------------------------------

    def session_scope(self) -> Tree:
        """This tree for the session of now: once that has ended, every call raises SessionExpired, whenever it is made.

        For what only holds as long as an ephemeral node does: a call made in between, after a `ConnectionLoss` say, cannot be the first
        one of the next session. What it says is that session's, too, also when it has ended: `safe_for` is 0.0 then, `state` EXPIRED,
        `session` and `session_timeout` as they were, and EXPIRED is the last that its listeners are told.
        """
        return Tree(Scope(self._bare, *self._link.own()), self._loop)

    def any_session(self) -> Tree:
        """This tree for whichever session there is: a call that waits for a connection goes into the next session when this one ends."""
        return Tree(SessionCalls(self._bare), self._loop)

    @property
    def loop(self) -> Any:
        """The client's engine, for roles that wait by it."""
        return self._loop

    @property
    def link(self) -> Link | SessionCalls:
        """The session, for roles that ask again by themselves."""
        return self._link

    @property
    def stepping(self) -> Tree:
        """This tree, whose calls give their steps."""
        if self._steps is None:
            self._steps = _Stepping(self)
        return self._steps

    @property
    def _bare(self) -> Link:
        return self._link if isinstance(self._link, Link) else self._link._link

    @property
    def state(self) -> State:
        """Where the session stands now."""
        return self._link.state

    @property
    def session(self) -> tuple[int, bytes]:
        """Session id and password: ``connect(url, session=…)`` goes on with it, in another process too."""
        return self._link.session.session_id, self._link.session.password

    @property
    def session_timeout(self) -> float:
        """Seconds that the servers granted."""
        return self._link.session.timeout

    @property
    def zxid(self) -> int:
        """The last transaction that this client has seen."""
        return self._link.zxid

    @operation
    def add_auth(self, scheme: str, credential: str | bytes, *, timeout: float = 30.0) -> Steps[None]:
        """Give an identity (``digest``, ``user:password``) now and after every reconnect, also when nobody answers in time.

        Raises AuthFailed; then it is given no more.
        """
        secret = credential.encode() if isinstance(credential, str) else bytes(credential)
        if not secret:
            raise ValueUnsupported("an empty credential")
        yield from self._link.identifying(scheme, secret, deadline_after(timeout))

    def forget_auth(self, scheme: str, credential: str | bytes) -> None:
        """Give an identity no more after a reconnect. The connection of now keeps it: servers cannot take one back."""
        self._link.forget_identity(scheme, credential.encode() if isinstance(credential, str) else bytes(credential))

    @stepwise
    def whoami(self, *, timeout: float = 30.0) -> tuple[ClientInfo, ...]:
        """The identities that the server has for this connection (servers from 3.7)."""

        def read(frame: bytes) -> tuple[ClientInfo, ...]:
            return tuple(WhoAmIResponse.decode(frame, start=op.HEADER).client_info or ())

        return self._link.call(op.Request(107, b"", read), deadline_after(timeout))

    @stepwise
    def config(self, *, watch: Callback | None = None, timeout: float = 30.0) -> tuple[bytes | None, Stat]:
        """The ensemble's configuration (``server.1=…`` lines and its version) and the stat of its node, whatever the chroot."""
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
        """Change the ensemble (``server.4=host:2888:3888;2181``, …); returns the new configuration and its stat."""
        body = ReconfigRequest(joining_servers=joining, leaving_servers=leaving, new_members=members, cur_config_id=config).encode()
        return self._link.call(op.Request(16, body, op._read_data, CONFIG, repeats=False), deadline_after(timeout))

    def close(self, timeout: float = 30.0) -> None:
        """Nothing: the session belongs to the client."""

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
        """`get_async` and its like, as steps."""
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
        """Look upwards for what is there, then create downwards: nobody needs the right to create where nothing is missing. Again, while
        somebody deletes what was there."""
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
            except ConnectionLoss:
                doubt.there = True  # asking again tells whether it was created
            except NoAuth:
                if (yield from self._there(server_path, deadline)):  # somebody else was first
                    return False
                raise
            else:
                doubt.there = True
                return True

    def _there(self, server_path: str, deadline: float) -> Steps[bool]:
        try:
            return (yield from self._link.calling(op.exists(server_path, self._root.back(server_path)), deadline)) is not None
        except NoAuth:
            return True  # servers say so of nodes that are there and may not be read, and of no others

    def _delete_below(self, path: str, deadline: float, doubt: Doubt) -> Steps[None]:
        """Deepest first; what others delete or add meanwhile is left to the next round."""
        below = [path]
        closed: dict[str, NoAuth] = {}
        for node in below:
            try:
                names, _ = yield from self._link.calling(op.children(self._root.out(node), node), deadline)
            except NoNode:
                continue
            except NoAuth as why:
                if node == path:  # it has children, and asking again would not show them
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
            except (NoNode, ConnectionLoss):
                continue
            except NotEmpty:
                if node in closed:
                    raise closed[node] from None


class _Stepping(Tree):
    """A tree whose calls give their steps."""

    def __init__(self, whole: Tree) -> None:
        super().__init__(cast("SessionCalls", StepCalls(whole._link)), whole.loop)
        self._whole = whole

    def _send(self, request: op.Request[Any], timeout: float, finish: Any = None, watching: Watching | None = None) -> Any:
        return self._whole.sending(request, deadline_after(timeout), finish, watching)
