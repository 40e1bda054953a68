"""What the four clients share: options, loop, pool, deadlines, fork guard, close.

What it is: `ClientBase`. An adapter derives from it, names its framing and frame cap, and overrides `handshake`.
May assume: nothing of a protocol. Must not: import an adapter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from wireproto._net import Connection, Loop
from wireproto.errors import ConnectError, Disconnected, FrameTooLarge, TimedOut, TlsError, WireprotoError
from wireproto.url import Address

from . import debug, dial, retry
from .address import SocketAddress, resolve, translate
from .options import CommonOptions
from .pool import Pool, pause
from .tls import TlsStream

if TYPE_CHECKING:
    from wireproto._net import Framing

T = TypeVar("T")
Options = TypeVar("Options", bound=CommonOptions)


class ClientBase(Generic[Options]):
    """A client's engine.

    Args:
        options: the adapter's options.
        name: shown in thread names and errors.

    Attributes:
        loop, pool, options: for the adapter's roles.
    """

    protocol: ClassVar[str] = ""
    framing: ClassVar[Framing]
    frame_cap: int = 100 << 20
    """Largest frame accepted, in bytes."""

    def __init__(self, options: Options, *, name: str = "") -> None:
        self.options = options
        self.loop = Loop(name or options.client_id, options.fetch_memory)
        debug.attach(self.loop)
        self._tls = options.tls_options()
        self._tls_worked = False
        self._context = self._tls.make_context() if self._tls is not None else None
        self.pool = Pool(self.loop, self.dial, self._shake)

    def resolve(self, address: Address, deadline: float) -> list[SocketAddress]:
        """Where a server may be found, best first, for `dial`; raises ConnectError, TimedOut."""
        return list(resolve(translate(address, self.options.address_map), min(deadline, time.monotonic() + self.options.connect_timeout)))

    def dial(self, address: Address, deadline: float, places: list[SocketAddress] | None = None) -> Connection:
        """Open a connection without the protocol's handshake; keeps `deadline` and `connect_timeout`, whichever is sooner.

        A peer that hangs up in the middle of TLS is a matter of configuration (TlsError) only until it has worked once.

        Args:
            places: of `resolve`; what was tried is taken off (`net.dial.connect`). None: looked up here.
        """
        self.loop.check()
        deadline = min(deadline, time.monotonic() + self.options.connect_timeout)
        try:
            stream = dial.dial(
                address, deadline, address_map=self.options.address_map, tls=self._tls, context=self._context, places=places
            )
        except Disconnected as error:
            if self._tls_worked:
                raise
            raise TlsError(error.text, peer=error.peer) from error  # it has never worked: more likely the wrong port than a bad moment
        self._tls_worked = self._tls is not None
        try:
            return self.loop.open(stream, dial.peer_name(address), self.framing, self.frame_cap)
        except BaseException:
            (stream.sock if isinstance(stream, TlsStream) else stream).close()
            raise

    def handshake(self, conn: Connection, deadline: float) -> None:
        """The adapter's: versions, authentication, session. Raises to refuse the connection."""

    def _shake(self, conn: Connection, deadline: float) -> None:
        """`handshake`, with errors that say so when another protocol answers."""
        try:
            self.handshake(conn, min(deadline, time.monotonic() + self.options.connect_timeout))
        except Disconnected as error:
            if conn.frames_read == 0:
                hint = " or does it want TLS" if self._tls is None else ""
                raise ConnectError(
                    f"the peer dropped the connection at the first request: is this a {self.protocol} port{hint}?", peer=conn.peer
                ) from error
            raise
        except FrameTooLarge as error:
            if conn.frames_read == 0:
                raise ConnectError(f"this is not a {self.protocol} port: {error.text}", peer=conn.peer) from error
            raise
        except TimedOut as error:
            if conn.frames_read == 0 and not conn.first_bytes:
                raise TimedOut(
                    f"connected, but the first request was not answered in time: is this a {self.protocol} port?", peer=conn.peer
                ) from error
            raise

    def deadline(self, timeout: float | None = None) -> float:
        """`timeout` seconds from now (None: the option's) as a `time.monotonic()` value."""
        return time.monotonic() + (self.options.timeout if timeout is None else timeout)

    def pause(self, seconds: float) -> None:
        """Sleep, reading the sockets meanwhile; raises Closed when the client is closed."""
        pause(self.loop, time.monotonic() + seconds)

    def retry(
        self,
        attempt: Callable[[], T],
        deadline: float,
        *,
        refresh: Callable[[WireprotoError], Any] | None = None,
        policy: retry.Policy = retry.DEFAULT,
    ) -> T:
        """`net.retry.run` with this client's pause."""
        return retry.run(attempt, deadline, policy, refresh=refresh, pause=self.pause)

    @property
    def closed(self) -> bool:
        return self.loop.closed

    def close(self, timeout: float = 30.0) -> None:
        """Close all connections; what waits in other threads raises Closed. Adapters close their roles first, under `timeout`."""
        self.pool.close()
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
