"""Makes TLS contexts from options, and does the handshake over memory buffers.

OpenSSL reads and writes two memory buffers only; the socket stays with the engine, so that poll, deadlines and wake-ups are the same with
and without TLS. Host name and certificate are verified unless an option says otherwise. The handshake is for one thread; afterwards the
connection holds a lock round the SSL object.
"""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wireproto._net import Loop
from wireproto.auth.secrets import Secret
from wireproto.errors import Disconnected, OptionError, TlsError, Unanswered

from .debug import describe_first_bytes
from .task import Steps, ready

UNSHAKEN = "the TLS handshake was not answered in time: is this a port without TLS?"

log = logging.getLogger("wireproto.net")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Options of TLS connections.

    Attributes:
        ca_file, ca_data: trusted certificates, PEM; both None: the system's.
        cert_file, key_file, key_password: the client's certificate and key, PEM, and the key's password.
        verify: check the peer's certificate.
        verify_host: check that it names the host that was dialled.
        server_name: the name to ask for and to check, instead of the host dialled.
        context: an `ssl.SSLContext` to use as it is; all other attributes but server_name are ignored then.
    """

    ca_file: str | None = None
    ca_data: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    verify: bool = True
    verify_host: bool = True
    server_name: str | None = None
    context: ssl.SSLContext | None = None

    def make_context(self) -> ssl.SSLContext:
        """Make the context. Raises OptionError when a file cannot be read or used."""
        if self.context is not None:
            return self.context
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca_file, cadata=self.ca_data)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file, self._unlock)
        except FileNotFoundError:
            named = [name for name in (self.ca_file, self.cert_file, self.key_file) if name]
            raise OptionError(f"a TLS file is missing: one of {', '.join(named)}") from None
        except (OSError, ssl.SSLError, ValueError) as error:
            raise OptionError(f"TLS files cannot be used: {error}") from error
        context.check_hostname = self.verify and self.verify_host
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        return context

    def _unlock(self) -> bytes:
        """Return the password of an encrypted key. Without this callback OpenSSL would ask at the terminal, and wait."""
        if self.key_password is None:
            raise OptionError("the client's key is encrypted: tls_key_password is wanted")
        return self.key_password.reveal()


class Contexts:
    """The context for a client's next connection, made again when one of its files has changed: certificates are renewed while it runs."""

    def __init__(self, options: TlsOptions) -> None:
        self._options = options
        self._files = [Path(name) for name in (options.ca_file, options.cert_file, options.key_file) if name and options.context is None]
        self._seen = self._look()
        self._context = options.make_context()

    def now(self) -> ssl.SSLContext:
        """Return the current context. Changed files that cannot be used, perhaps while being replaced, leave the old one in use for now."""
        found = self._look()
        if found != self._seen:
            try:
                self._context = self._options.make_context()
                self._seen = found
            except OptionError as why:
                log.warning("the TLS files cannot be read again, the certificates read before stay in use: %s", why)
        return self._context

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_version(file) for file in self._files]


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(slots=True)
class TlsStream:
    """A TLS connection after its handshake, which `Loop.open` takes over.

    Attributes:
        sock: the socket, non-blocking.
        tls: the SSL object.
        bio_in, bio_out: encrypted bytes from and to the peer.
    """

    sock: socket.socket
    tls: ssl.SSLObject
    bio_in: ssl.MemoryBIO
    bio_out: ssl.MemoryBIO

    @property
    def raw(self) -> Any:
        """The C object behind the SSL object, whose methods run no Python code."""
        return getattr(self.tls, "_sslobj", None) or self.tls


def wrapping(
    loop: Loop, sock: socket.socket, host: str, options: TlsOptions, until: float, context: ssl.SSLContext | None = None
) -> Steps[TlsStream]:
    """Do the TLS handshake on a connected socket. Steps.

    Args:
        loop: polls the socket. sock: the connected socket, which becomes non-blocking.
        host: the host that was dialled; the certificate must name it unless `options.server_name` is given.
        options: what to verify and which certificates to use.
        until: `time.monotonic()` value.
        context: one made from `options` before, to share its session cache and parsed files.

    Raises:
        TlsError: the handshake failed; one line with the cause, also where the peer does not speak TLS. Unanswered: no answer in time.
        Disconnected: the peer hung up, as a server that shuts down or a load balancer without a server also does.
    """
    if context is None:
        context = options.make_context()
    bio_in, bio_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    sock.setblocking(False)
    first = b""
    try:
        tls = context.wrap_bio(bio_in, bio_out, server_hostname=options.server_name or host)
        while True:
            try:
                tls.do_handshake()
                yield from _send(loop, sock, bio_out.read(), until)
                return TlsStream(sock, tls, bio_in, bio_out)
            except ssl.SSLWantReadError:
                yield from _send(loop, sock, bio_out.read(), until)
                data = yield from _receive(loop, sock, until)
                if not data:
                    raise Disconnected("the peer closed the connection during the TLS handshake: is this a port without TLS?") from None
                first = first or data[:16]
                bio_in.write(data)
    except ssl.SSLCertVerificationError as error:
        raise TlsError(f"the certificate was refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        if first and first[0] not in (0x14, 0x15, 0x16, 0x17):
            other = describe_first_bytes(first)
            raise TlsError("the peer does not speak TLS on this port" + (f": {other}" if other else "")) from error
        raise TlsError(f"the TLS handshake failed: {error.reason or error}") from error
    except ConnectionError as error:
        text = "the peer dropped the connection during the TLS handshake: is this a port without TLS?"
        raise Disconnected(text, errno=error.errno) from None


def _send(loop: Loop, sock: socket.socket, data: bytes, until: float) -> Steps[None]:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            if (yield from ready(loop, [sock.fileno()], until, writing=True)) < 0:
                raise _late() from None


def _receive(loop: Loop, sock: socket.socket, until: float) -> Steps[bytes]:
    while True:
        try:
            return sock.recv(65536)
        except BlockingIOError:
            if (yield from ready(loop, [sock.fileno()], until)) < 0:
                raise _late() from None


def _late() -> Unanswered:
    return Unanswered(UNSHAKEN)
