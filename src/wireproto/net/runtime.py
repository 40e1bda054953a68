"""Provides what all clients share: options, loop, pool, deadlines, fork guard, the register of roles, close.

There are two base classes. An adapter's cluster (which its roles use) derives from `Runtime`, names its protocol and frame cap, and
overrides `handshake`. Its client (which makes the roles) derives from `ClientBase`: it has a cluster, registers each role, and closes the
roles before the connections. The module knows no protocol and imports no adapter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast
from weakref import WeakSet

from wireproto import protocols
from wireproto._net import Connection, Event, Loop, OneAfterAnother
from wireproto.deadlines import deadline_after
from wireproto.errors import (
    ConnectError,
    Disconnected,
    FrameTooLarge,
    OptionError,
    RoleUnsupported,
    TimedOut,
    TlsError,
    Unanswered,
    Unreachable,
    UsageError,
    WireprotoError,
)
from wireproto.position import place
from wireproto.url import Address

from . import debug, dial, retry
from .address import SocketAddress
from .client_log import ClientLog
from .closing import Closing
from .offload import offload
from .options import CommonOptions
from .pool import Pool, pause
from .task import NEVER, Steps, Tasks, retrying
from .tls import Contexts, TlsStream

if TYPE_CHECKING:
    from wireproto._net import Framing

T = TypeVar("T")
Options = TypeVar("Options", bound=CommonOptions)


class Closeable(Protocol):
    """A role, as far as its client's close is concerned."""

    def close(self, timeout: float = ...) -> None:
        """End the role within `timeout` seconds."""


Role = TypeVar("Role", bound=Closeable)


class Roles:
    """The roles that are open, so that their client closes them before its connections. Thread-safe."""

    def __init__(self) -> None:
        self._held: set[Closeable] = set()
        self._seen: WeakSet[Closeable] = WeakSet()

    def keep(self, role: Role, *, held: bool = False) -> Role:
        """Register a role, and return it.

        Args:
            role: the role.
            held: keep it alive until it is forgotten, since it may have work to do at the close although its user has dropped it.
        """
        (self._held if held else self._seen).add(role)
        return role

    def forget(self, role: Closeable) -> None:
        """Remove a role that was closed by itself."""
        self._held.discard(role)
        self._seen.discard(role)

    def close(self, deadline: float) -> WireprotoError | None:
        """Close every role, held ones first, and return the first error, if any, after all were tried."""
        first: WireprotoError | None = None
        for role in [*self._held, *self._seen]:
            try:
                role.close(max(0.0, deadline - time.monotonic()))
            except WireprotoError as why:
                first = first or why
        return first


class Runtime(Generic[Options]):
    """A client's engine, the base of an adapter's cluster.

    Args:
        options: the adapter's options.
        name: shown in thread names and errors; empty: the option `client_id`.

    Attributes:
        loop, tasks, pool, options: for the adapter's roles.
        roles: the open roles. The client registers them; a role that is closed may `forget` itself.
        framing: how the engine cuts frames, by the protocol's descriptor.
        log: the client's log.
        awaiting: under asyncio a function ``(coroutine function, *arguments) -> Steps`` that returns the coroutine's result; else None.
        reached: whether a server has served this client. Before that, errors that waiting is unlikely to end are raised at once.
    """

    protocol: ClassVar[str] = ""
    frame_cap: int = 100 << 20
    """Largest frame accepted, in bytes."""
    served_by_handshake: ClassVar[bool] = True
    """Whether a successful handshake proves that the server serves this client (see `reached`)."""
    expiring: Callable[[Connection], bool] | None = None
    """See `Pool`."""

    def __init__(self, options: Options, *, name: str = "") -> None:
        self.options = options
        self.roles = Roles()
        self.framing: Framing = cast("Framing", protocols.find(self.protocol).framing)
        self.loop = Loop(name or options.client_id, options.fetch_memory)
        self.log = ClientLog(self.protocol, self.loop.call_at)
        self.awaiting: Callable[..., Steps[Any]] | None = None
        debug.attach(self.loop)
        self._tls = options.tls_options()
        self._tls_worked = False
        self._hung_up: set[tuple[str, str]] = set()
        self._handshaken: set[str] = set()  # peers whose handshake succeeded before: their ports are the right ones
        self.reached = False
        self._contexts = Contexts(self._tls) if self._tls is not None else None
        self.tasks = Tasks(self.loop)
        self.pool = Pool(self.tasks, self.opening, expiring=self.expiring)

    def opening(
        self,
        address: Address,
        progress: dial.Progress,
        deadline: float = float("inf"),
        places: list[SocketAddress] | None = None,
        **more: Any,
    ) -> Steps[Connection]:
        """Open a connection that is ready for requests. Connecting and the protocol's handshake have `connect_timeout` each. Steps.

        Args:
            address: host and port, as advertised.
            progress: updated as it proceeds.
            deadline: `time.monotonic()` value, if it is earlier.
            places: socket addresses, as of `net.address.resolving`; those tried are removed (`net.dial.connecting`). None: looked up here.
            more: further arguments of `handshake`.

        Raises:
            ConnectError, TlsError, Unanswered, Disconnected, AuthError, and what else the handshake raises. Closed, Forked.
        """
        try:
            conn = yield from self.dialling(address, progress, deadline, places)
            try:
                yield from self._handshaking(conn, progress, min(deadline, time.monotonic() + self.options.connect_timeout), more)
            except BaseException:
                conn.close("the handshake failed")
                raise
        except UsageError:
            raise
        except WireprotoError as why:
            peer = dial.peer_name(address)
            self.log.warning(("connect", peer, type(why)), "%s: no connection: %s", peer, why)
            raise
        self.reached = self.reached or self.served_by_handshake
        self._hung_up.discard(("handshake", conn.peer))
        self._handshaken.add(conn.peer)
        self.log.info(("connected", conn.peer), "%s: connected", conn.peer)
        conn.on_lost(partial(self._ended, conn.peer))
        return conn

    def _ended(self, peer: str, why: Exception) -> None:
        if not self.loop.closed:
            self.log.info(("ended", peer, str(why)), "%s: the connection ended: %s", peer, why)

    def dialling(
        self, address: Address, progress: dial.Progress, deadline: float = float("inf"), places: list[SocketAddress] | None = None
    ) -> Steps[Connection]:
        """Open a connection, without the protocol's handshake; arguments as of `opening`. Steps.

        If the peer hangs up during the TLS handshake, TlsError is raised until TLS has worked once (as of a wrong port), then Disconnected.
        """
        self.loop.check()
        until = min(deadline, time.monotonic() + self.options.connect_timeout)
        try:
            stream = yield from dial.dialling(
                self.loop,
                address,
                until,
                progress,
                address_map=self.options.address_map,
                tls=self._tls,
                context=self._contexts.now() if self._contexts is not None else None,
                places=places,
            )
        except Disconnected as error:
            if self._tls_worked:
                raise
            raise TlsError(error.text, peer=error.peer) from error  # TLS has never worked here: the port is probably wrong
        self._tls_worked = self._tls is not None
        try:
            return self.loop.open(stream, dial.peer_name(address), self.framing, self.frame_cap)
        except BaseException:
            (stream.sock if isinstance(stream, TlsStream) else stream).close()
            raise

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        """Do the protocol's handshake: versions, authentication, session. Defined by the adapter, which raises to refuse the connection."""
        yield from ()

    def hung_up(self, step: str, conn: Connection) -> type[ConnectError]:
        """Return the error class for a peer that hangs up at this step of the handshake.

        The first time ConnectError, since it may be temporary (a restart, a proxy without its server); after that Unreachable.

        Args:
            step: name of the step. conn: the connection that was lost.
        """
        before = (step, conn.peer) in self._hung_up
        self._hung_up.add((step, conn.peer))
        return Unreachable if before else ConnectError

    def dropped(self, conn: Connection) -> str:
        """Return the error text for a peer that hangs up at the first request; an adapter may know better."""
        hint = " or does it want TLS" if self._tls is None else ""
        return f"the peer dropped the connection at the first request: is this a {self.protocol} port{hint}?"

    def _handshaking(self, conn: Connection, progress: dial.Progress, until: float, more: dict[str, Any]) -> Steps[None]:
        """Run `handshake`, with error texts that say so when another protocol answers."""
        known = conn.peer in self._handshaken
        why = "the server answered before, and hangs now" if known else f"is this a {self.protocol} port?"
        progress.late = f"connected, but the first request was not answered in time: {why}"
        try:
            yield from self.handshake(conn, until, **more)
        except Disconnected as error:
            if conn.frames_read == 0:
                raise self.hung_up("handshake", conn)(self.dropped(conn), peer=conn.peer) from error
            raise
        except FrameTooLarge as error:
            if conn.frames_read == 0:
                raise Unreachable(f"this is not a {self.protocol} port: {error.text}", peer=conn.peer) from error
            raise
        except TimedOut as error:
            silent = conn.frames_read == 0 and not conn.first_bytes
            raise Unanswered(progress.late if silent else error.text, peer=conn.peer) from error

    def drive(self, steps: Steps[T], deadline: float) -> T:
        """Run an operation in the caller's thread; see `Tasks.drive`."""
        return self.tasks.drive(steps, deadline)

    def deadline(self, timeout: float | None = None) -> float:
        """Return the deadline in `timeout` seconds (None: the option `timeout`) as a `time.monotonic()` value. Raises OptionError."""
        return deadline_after(self.options.timeout if timeout is None else timeout)

    def pause(self, seconds: float) -> None:
        """Sleep for some seconds, reading the sockets meanwhile. Raises Closed when the client is closed."""
        pause(self.loop, time.monotonic() + seconds)

    def retrying(
        self,
        attempt: Callable[[], Steps[T]],
        deadline: float,
        refresh: Callable[[WireprotoError], Steps[object] | None] | None = None,
        *,
        judge: Callable[[WireprotoError], retry.Verdict] = retry.verdict,
        policy: retry.Policy = retry.DEFAULT,
    ) -> Steps[T]:
        """Run `retry` as steps."""
        self.loop.check()
        return retrying(attempt, deadline, policy, refresh=refresh, judge=self._judging(judge))

    def _judging(self, judge: Callable[[WireprotoError], retry.Verdict]) -> Callable[[WireprotoError], retry.Verdict]:
        return self.log.judging(lambda error: (judge if self.reached else retry.at_first(judge))(error))

    def retry(
        self,
        attempt: Callable[[], T],
        deadline: float,
        *,
        refresh: Callable[[WireprotoError], Any] | None = None,
        judge: Callable[[WireprotoError], retry.Verdict] = retry.verdict,
        policy: retry.Policy = retry.DEFAULT,
    ) -> T:
        """Call `attempt` until it returns, by `net.retry.run`, with this client's pause. Retries are logged.

        Before a server has served this client, errors that waiting is unlikely to end are raised at once (`reached`).

        Args:
            attempt: does the work once; keeps the same deadline itself. deadline: `time.monotonic()` value.
            refresh, judge, policy: see `net.retry.run`.

        Raises:
            WireprotoError: the last error of `attempt`.
        """
        return retry.run(attempt, deadline, policy, refresh=refresh, judge=self._judging(judge), pause=self.pause)

    @property
    def closed(self) -> bool:
        """Whether the engine's loop is closed."""
        return self.loop.closed

    def close(self) -> None:
        """Close all connections; calls that wait in other threads raise Closed. Roles are closed before (`ClientBase.close`)."""
        self.pool.close()
        self.loop.close()


Cluster = TypeVar("Cluster", bound=Runtime[Any])


class ClientBase(Closing, Generic[Cluster]):
    """Base of the clients that `wireproto.connect` returns: makes roles over a cluster, and closes them.

    Attributes:
        cluster: the connections and look-ups that the roles share.
        made_from: modules of the roles, which are imported when a role is first made.
    """

    protocol: ClassVar[str] = ""
    made_from: ClassVar[tuple[str, ...]] = ()

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._tasks = cluster.tasks
        self._closing = OneAfterAnother("client")

    @property
    def loop(self) -> Loop:
        """The engine's loop."""
        return self.cluster.loop

    def deadline(self, timeout: float | None = None) -> float:
        """Return the deadline in `timeout` seconds (None: the option `timeout`) as a `time.monotonic()` value. Raises OptionError."""
        return self.cluster.deadline(timeout)

    @property
    def timeout(self) -> float:
        """The option `timeout`: seconds that making a client or a role may take, where that waits."""
        return float(self.cluster.options.timeout)

    @property
    def closed(self) -> bool:
        """Whether the client has been closed."""
        return self.cluster.closed

    def beginning(self) -> Steps[None]:
        """Make the first connection, for a client that needs one before its roles: what `connect` waits for, as steps."""
        yield from ()

    def importing(self) -> Event | None:
        """Have a worker thread import the roles' modules; returns the event of its end, or None if they are imported already.

        For an event loop, which must not wait for an import.
        """
        package = type(self).__module__.rpartition(".")[0]
        missing = [name for name in (resolve_name(name, package) for name in self.made_from) if name not in sys.modules]
        return offload(self.loop, _import, missing) if missing else None

    def ending(self, deadline: float) -> Steps[None]:
        """Do what a close has to wait for after the roles are closed, such as ending a session. Steps."""
        yield from ()

    def call_back_by(self, call_soon: Callable[..., object]) -> None:
        """Note that an event loop runs this client: user callbacks are to be called by ``call_soon(callback, …)``."""

    topic = ""
    """The URL's topic, for roles that are made without one."""

    def named(self, topic: str | None) -> str:
        """Return `topic`, or the URL's topic for None. Raises OptionError."""
        found = (self.topic or None) if topic is None else topic
        if found is None:
            raise OptionError(f"name a topic, or write one into the URL: {self.protocol}://host/topic")
        if not isinstance(found, str):
            raise OptionError(f"a topic is text, not {found!r}")
        return found

    @staticmethod
    def between(start: object, stop: object) -> tuple[Any, Any]:
        """Check and return where a reader begins and ends, as a user gave it. Raises OptionError."""
        return place(start), stop if stop is None else place(stop, "stop")

    def all_named(self, topics: str | Sequence[str] | None) -> tuple[str, ...]:
        """Return the topics that a consumer is to read, each as by `named`. Raises OptionError."""
        every = (topics,) if topics is None or isinstance(topics, str) else tuple(topics)
        names = tuple(map(self.named, every))
        if any(name.startswith("^") for name in names):
            raise OptionError("a consumer reads the topics that it names; it does not subscribe to patterns")
        return names

    def keep(self, role: Role, *, held: bool = False) -> Role:
        """Register a role, and return it; see `Roles.keep`."""
        return self.cluster.roles.keep(role, held=held)

    def _no_transactions(self, /, name: str, **options: Any) -> Any:
        raise RoleUnsupported(f"{self.protocol} has no transactions under a name", nearest="producer")

    transactions: Callable[..., Any] = _no_transactions
    """Makes transactions; the client of a protocol that has them defines its own method."""

    def close(self, timeout: float = 30.0) -> None:
        """Close the roles, which flush and leave their groups, then all connections.

        Any thread may call it: one of them closes, the others wait for that. A forked child closes its copies of the descriptors only.

        Args:
            timeout: seconds for all roles together.

        Raises:
            TimedOut: another thread has not finished closing in time. The first error of a role's close: the client is closed all the same.
        """
        deadline = deadline_after(timeout)
        if self.loop.forked:
            self.cluster.close()
            return
        with self._closing.by(deadline) as mine:
            if mine and not self.closed:
                self._close(deadline)

    def _close(self, deadline: float) -> None:
        problem: WireprotoError | None = None
        try:
            problem = self.cluster.roles.close(deadline)
            self._tasks.drive(self.ending(deadline), NEVER)
        finally:
            self.cluster.close()
        if problem is not None:
            raise problem


def _import(names: Sequence[str]) -> None:
    """Import these modules. An ImportError is ignored here: making the role raises it."""
    for name in names:
        with suppress(ImportError):
            import_module(name)
