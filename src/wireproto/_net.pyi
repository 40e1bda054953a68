"""The engine's loop: the thread that waits for a reply reads for all.

These are the types of the extension module; docs/design/engine.md says how the pieces are used.
"""

from collections.abc import Callable, Iterable, Sequence
from socket import socket
from typing import Any, Final, Literal

from .net.tls import TlsStream

Framing = Literal["kafka", "zookeeper", "rocketmq", "pulsar", "lines"]
Buffers = bytes | bytearray | memoryview | Sequence[Any]
"""One buffer or a sequence of buffers (anything with the buffer protocol); big ones are not copied and must not change until sent."""

WATCHES: Final[int]
"""ZooKeeper: channel of watch events (xid -1)."""
REQUESTS: Final[int]
"""RocketMQ: channel of requests that the broker makes."""
SERVICE: Final[int]
"""ZooKeeper: channel of a ping's reply that carries an error. Pulsar: channel of everything that belongs to no request, producer or
consumer (CONNECTED, AUTH_CHALLENGE, unknown commands)."""

def producer_channel(producer_id: int) -> int:
    """Pulsar: channel of SEND_RECEIPT, SEND_ERROR, CLOSE_PRODUCER and TOPIC_MIGRATED of a producer."""

def consumer_channel(consumer_id: int) -> int:
    """Pulsar: channel of MESSAGE, ACTIVE_CONSUMER_CHANGE, REACHED_END_OF_TOPIC, CLOSE_CONSUMER and TOPIC_MIGRATED of a consumer."""

class Timer:
    @property
    def when(self) -> float: ...
    def cancel(self) -> None: ...

class Waitable:
    """What can be waited for. It is ready once, but a Mailbox: whenever there is something in it."""

    @property
    def loop(self) -> Loop: ...
    def ready_by(self, deadline: float) -> bool:
        """Wait until `deadline` (time.monotonic()), without taking the outcome; whether it is ready. Raises Closed, Forked."""

class Runnable(Waitable):
    """Something that the I/O thread runs, and that is ready when it has finished: `net.task.Task`.

    It runs in the I/O thread alone, never in a thread that reads for itself, and one at a time. What is made runnable meanwhile runs
    after timers, handlers and sockets were served.
    """

    def __init__(self, loop: Loop) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def queued(self) -> bool:
        """Whether it will be run."""
    @property
    def waited_for(self) -> bool:
        """Whether a thread waits for it, or another Runnable."""
    def run(self) -> None:
        """To be overridden: what it does, in the I/O thread."""
    def stop(self, error: BaseException) -> None:
        """To be overridden: the loop is closed. In the I/O thread, after the last `run`, if it has started and not finished."""
    def start(self) -> None:
        """Make it runnable, unless that was done, and have the loop keep it until it has finished. Raises Closed, Forked."""
    def attend(self) -> None:
        """Have the loop `stop` it when it is closed, until it has finished, without running it. Raises Closed, Forked."""
    def make_runnable(self) -> None:
        """Any thread: have it run soon, once however often this is called meanwhile."""
    def finish(self) -> None:
        """End it, and wake the threads that wait for it."""
    def hang_on(self, what: Waitable) -> bool:
        """Have it run when `what` is ready. False: it is ready already (or given up), and nothing was done. One thing at a time."""
    def take_off(self) -> None:
        """Wait no longer for it."""

class Descriptors(Waitable):
    """Ready, once, when one of these sockets may be read, or written to, or has failed. They are no connections of the loop (yet).

    Polled from the beginning until it is ready or stopped, by the thread that reads. Raises Closed, Forked.
    """

    def __init__(self, loop: Loop, fds: Iterable[int], writing: bool = False) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def found(self) -> int:
        """The descriptor that was ready; -1 before."""
    def stop(self) -> None:
        """Poll them no more; from here on they may be closed."""

class Call(Waitable):
    """One request on its way. Made by `Connection.submit`."""

    context: Any
    """Free for the adapter."""
    @property
    def token(self) -> int: ...
    @property
    def conn(self) -> Connection: ...
    @property
    def done(self) -> bool: ...
    @property
    def frame(self) -> bytes | None:
        """The reply, or None while there is none or when the call failed."""
    @property
    def error(self) -> Exception | None:
        """A fresh error object when the call failed."""
    def result(self, deadline: float) -> bytes:
        """Wait for the reply until `deadline` (time.monotonic()). A call given up (TimedOut, or a signal handler raised) is late: its
        reply is dropped. Raises TimedOut, Disconnected, FrameTooLarge, Closed, Forked."""
    def wait(self, deadline: float) -> bool:
        """Wait without giving the call up; whether it is done."""
    def cancel(self) -> None:
        """Give it up: its reply will be dropped and its mailbox not fed."""

class Push:
    """A frame that answers no request."""

    @property
    def conn(self) -> Connection: ...
    @property
    def channel(self) -> int: ...
    @property
    def frame(self) -> bytes: ...

class OneThread:
    """Held for one call of a role: ``with self._only: …``; a signal handler that raises anywhere leaves none behind.

    Raises at the entrance:
        Closed: the role was closed, or its client. ConcurrentUse: another call is inside. Forked.
    """

    closed: bool
    """Whether every further call raises Closed."""
    def __init__(self, role: str, loop: Loop) -> None: ...
    @property
    def role(self) -> str: ...
    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...
    def outside(self) -> Outside:
        """Let go of it, inside a call, while user code runs that may call the role."""

    def wait(self, deadline: float) -> None:
        """Wait until no thread is inside; raises TimedOut at `deadline` (time.monotonic())."""

class Outside:
    """See OneThread.outside."""

    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

class OneAfterAnother:
    """Turns of threads that close a role or a client: ``with self._closing.by(deadline) as mine: …``. What a signal handler raises in
    one of them keeps no other out.

    Args:
        what: that they close, for errors.
    """

    def __init__(self, what: str) -> None: ...
    def by(self, deadline: float) -> Turn:
        """Return a turn, waited for until `deadline` (time.monotonic()) at the `with`, which raises TimedOut.

        It gives False in the middle of this thread's own turn, which a signal handler has interrupted.
        """

class Turn:
    """See OneAfterAnother.by."""

    def __enter__(self) -> bool: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

class Event(Waitable):
    """An outcome that comes once, of something no single reply decides: a receipt, a session."""

    def __init__(self, loop: Loop) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def value(self) -> Any: ...
    @property
    def error(self) -> BaseException | None: ...
    def set(self, value: Any = None) -> None:
        """Set the outcome. The first one stays; later ones are ignored."""
    def fail(self, error: BaseException) -> None: ...
    def wait(self, deadline: float) -> Any:
        """Wait for the value and return it, or raise the error; TimedOut, Closed, Forked. The thread reads the sockets meanwhile."""

class Mailbox(Waitable):
    """A queue of `Call`, `Push` and whatever `put` is given.

    Args:
        loop: the loop that feeds it.
        handler: when given, the I/O thread calls handler(item) in order, soon; it must not block nor run user code. Without, `get`.
        limit: bytes of unread frames above which the connections that feed this mailbox are not read.
        prompt: a waiting thread that reads calls prompt(item) instead, at once; what it returns false for, or raises in, goes to the
            handler, which must be able to do all of it again: a signal handler may raise at any point in prompt.
    """

    def __init__(
        self,
        loop: Loop,
        handler: Callable[[Any], object] | None = None,
        limit: int | None = None,
        prompt: Callable[[Any], bool] | None = None,
    ) -> None: ...
    @property
    def unread(self) -> int: ...
    @property
    def idle(self) -> bool:
        """Whether nothing lies here, and handler and prompt are done with what did: true as soon as a frame's effect is there."""
    def __len__(self) -> int: ...
    def put(self, item: Any, size: int = 0) -> None: ...
    def get(self, deadline: float = 0.0) -> Any | None:
        """Return the next item; None if none came until `deadline` (0.0: look once, without waiting). Raises Closed, Forked."""
    def close(self) -> None:
        """Drop what is unread, take no more, wake its waiters with Closed."""

class Connection:
    """One connection of a loop. Thread-safe."""

    @property
    def peer(self) -> str: ...
    @property
    def loop(self) -> Loop: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lost(self) -> Exception | None:
        """Why it is closed, as a fresh error; None while it is open."""
    @property
    def pending(self) -> int:
        """Calls submitted and not answered, without the late ones."""
    @property
    def unsent(self) -> int:
        """Bytes taken and not yet given to the kernel."""
    @property
    def last_read(self) -> float:
        """time.monotonic() of the last bytes received, be it a part of a frame (of the opening, before the first)."""
    @property
    def held_back(self) -> bool:
        """Whether it is not read just now, since a mailbox is full."""
    @property
    def seen_zxid(self) -> int:
        """ZooKeeper: the highest zxid in a reply, whether or not the reply was taken; 0 before the first."""
    @property
    def frames_read(self) -> int: ...
    @property
    def first_bytes(self) -> bytes: ...
    cap: int
    """Largest frame accepted, in bytes; may be changed once the handshake has negotiated it."""
    context: Any
    """Free for the adapter: what its handshake negotiated."""
    def next_token(self) -> int:
        """1, 2, 3 … per connection, wrapping below 2**31."""
    def submit(
        self,
        token: int,
        buffers: Buffers,
        mailbox: Mailbox | None = None,
        timeout_at: float | None = None,
        context: Any = None,
        secret: bool = False,
    ) -> Call:
        """Send a request. The 4-byte length is put before the buffers here.

        Args:
            token: what the reply will carry; unique among the calls pending on this connection.
            mailbox: where the finished Call (reply, failure or time-out) is put.
            timeout_at: when to fail the call with TimedOut, whether or not a thread waits; without a mailbox also how long to wait for
                room when the peer does not read. With one, or None (no time-out): BufferFull at once without room.
            secret: the wire log shows only its length, and its reply's.
        Raises:
            Disconnected, Closed, Forked: nothing was sent.  BufferFull, TimedOut: no room; nothing was sent.
        """
    def call(self, token: int, buffers: Buffers, deadline: float, secret: bool = False) -> bytes:
        """submit and result in one: the fast path of a sync request."""
    def post(
        self,
        word: int,
        body: bytes,
        mailbox: Mailbox | None = None,
        timeout_at: float | None = None,
        context: Any = None,
        lasting: bool = False,
    ) -> Call:
        """submit for protocols whose frames begin with the token, as ZooKeeper's: [int32 next token][int32 word][body]. Raises the same.

        A call without a mailbox, or a lasting one, does not expire: it may outlast the caller's patience, and ends with its session at the
        latest.
        """
    def ask(self, word: int, body: bytes, deadline: float) -> bytes | None:
        """post and result in one: the fast path of a sync request. None: the connection takes nothing now (closed, forked, full), and
        nothing was sent; `post` says why."""
    def send(self, buffers: Buffers, timeout_at: float | None = None, more: bool = False, secret: bool = False) -> None:
        """Send one way. more=True leaves it in the cork until 16 KB, the next send without it, or a wait."""
    def flush(self) -> None: ...
    def route(self, channel: int, mailbox: Mailbox | None) -> None:
        """Where frames of that channel go; None takes the route away. Frames without a route are dropped."""
    def on_lost(self, callback: Callable[[Exception], object]) -> None:
        """callback(error) in the I/O thread, once, when the connection is closed for whatever reason (at once if it is)."""
    def close(self, reason: str | None = None) -> None:
        """Fail what is pending with Disconnected(reason) and close the socket."""

class Loop:
    """All connections of one client, and the role of reading them.

    Args:
        name: of the client, for thread names and errors.
        fetch_memory: bytes of unread frames in all mailboxes above which the connections that feed them are not read.
            A mailbox that was emptied is fed on all the same.
    """

    tap: Mailbox | None
    """When set, gets (direction "<" or ">", peer, frame or length) for every frame: the wire log."""
    def __init__(self, name: str = "", fetch_memory: int = ...) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def forked(self) -> bool: ...
    @property
    def unread(self) -> int: ...
    @property
    def connections(self) -> list[Connection]: ...
    def check(self) -> None:
        """Raise Closed or Forked if the loop cannot be used."""
    def open(self, stream: socket | TlsStream, peer: str, framing: Framing, cap: int) -> Connection:
        """Take over a connected socket (detached from the Python object) or a TLS stream after its handshake."""
    def call_at(self, when: float, fn: Callable[..., object], *args: Any) -> Timer:
        """fn(*args) in the I/O thread at time.monotonic() `when`; it must not block nor run user code."""
    def call_soon(self, fn: Callable[..., object], *args: Any) -> None: ...
    def adopt(self, schedule: Callable[[], object]) -> int:
        """Give the loop to another event loop, whose thread this is: it starts no thread, and lets no thread wait.

        Args:
            schedule: has `run_ready(False)` called in this thread, soon. Called in this thread, once for each run.
        Returns:
            a descriptor to watch for reading: call `run_ready()` when it is ready. Closed by `close`: stop watching it before.
        Raises:
            UsageError: the loop is in use already, or this system has no such descriptor. Closed, Forked.
        """
    @property
    def adopted(self) -> bool: ...
    def run_ready(self, look: bool = True) -> float:
        """Do what is to be done now, without waiting. To be called again when the descriptor says so, when `schedule` was called, and at
        the `time.monotonic()` value returned (infinity: at none).

        Args:
            look: whether to read the sockets; not needed where only `schedule` or the time asked for it.
        """
    def close(self) -> None:
        """Close all connections and end the tasks, within a second; everything that waits raises Closed within milliseconds."""

def _match(framing: Framing, frame: bytes) -> tuple[str, int | None]: ...
