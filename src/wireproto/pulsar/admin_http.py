"""Sends the few requests that the binary protocol has no command for to the admin HTTP interface.

One request a connection, under a deadline, with the client's own token or password, certificate and address map; follows the redirects to
the broker that owns a topic. Raises the same errors as the binary protocol where a status means the same:

    401 AuthenticationError   403 AuthorizationError   404 TopicNotFound   409 TopicExists   other: AdminRefused with the status

Uses the standard library's http.client. Never logs or shows credentials.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from base64 import b64encode
from contextlib import suppress
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from wireproto.errors import ConnectError, Disconnected, Malformed, OptionError, TimedOut, TlsError, WireprotoError
from wireproto.net import dial
from wireproto.net.retry import DEFAULT
from wireproto.net.task import Steps, offloaded
from wireproto.position import MessageId

from .codes import AdminRefused, AuthenticationError, AuthorizationError, ServiceNotReady, TopicExists, TopicNotFound
from .topics import TopicName

if TYPE_CHECKING:
    from wireproto._net import Loop

    from .connection import Credentials
    from .options import PulsarOptions

MAX_BODY = 64 << 20
MAX_REDIRECTS = 5
READ = 64 << 10
_ERROR_GRACE = 1.0
"""Seconds to wait for a request beyond its deadline, so that its own error is raised and not only that it was late."""


class AdminHttp:
    """Requests to ``options.admin``. May be shared by threads; holds no connection.

    Args:
        options: of the client. credentials: of the client, or None.
        loop: its timers end a request at its deadline, whatever the peer does.
    """

    def __init__(self, options: PulsarOptions, credentials: Credentials | None, loop: Loop) -> None:
        self._options = options
        self._credentials = credentials
        self._loop = loop

    @property
    def available(self) -> bool:
        """Whether the client was given an admin URL."""
        return self._options.admin is not None

    def get(self, path: str, deadline: float, *, topic: str | None = None) -> Steps[Any]:
        """GET ``/admin/v2/<path>`` and return the parsed JSON; see `call`. Steps."""
        return (yield from self.call("GET", path, deadline, topic=topic))

    def call(
        self, method: str, path: str, deadline: float, body: Any = None, *, topic: str | None = None, kind: str = "application/json"
    ) -> Steps[Any]:
        """Send one request under ``/admin/v2/``, in a worker thread. Steps.

        Repeated until `deadline` where the broker answers 503: it has done nothing, since it is starting or handing something over.

        Args:
            method: of HTTP. path: below ``/admin/v2/``, with its query. deadline: as `time.monotonic()`.
            body: sent as JSON; None: no body. topic: named in errors. kind: Content-Type of the body.

        Returns:
            the parsed JSON, None for an empty answer.

        Raises:
            OptionError: the client has no admin URL. PulsarError: the status is an error.
            ServiceNotReady: 503 until the deadline, also where the last attempt was not answered in time.
            TransportError: no connection, or no answer in time. Malformed: the answer is not JSON, or has more than `MAX_BODY` bytes.
        """
        if self._options.admin is None:
            raise OptionError(
                f"{method} of {path.partition('?')[0]} goes over the admin HTTP interface: give its URL as admin=, like http://host:8080"
            )
        url = f"{self._options.admin.rstrip('/')}/admin/v2/{path}"
        data = None if body is None else json.dumps(body).encode()
        failures = 0
        trouble: ServiceNotReady | None = None
        while True:
            try:
                return (yield from offloaded(self._loop, deadline + _ERROR_GRACE, self._call, method, url, deadline, data, topic, kind))
            except TimedOut:
                if trouble is None:
                    raise
                raise trouble from None
            except ServiceNotReady as why:
                trouble = why
                failures += 1
                again = time.monotonic() + DEFAULT.delay(failures)
                if again >= deadline:
                    raise
            yield again

    def _call(self, method: str, url: str, deadline: float, data: bytes | None, topic: str | None, kind: str) -> Any:
        """Send the request, following redirects to the broker that has to answer it."""
        asked = url
        for _ in range(MAX_REDIRECTS + 1):
            status, reason, location, answer = self._once(method, url, data, kind, deadline)
            if status not in (301, 302, 307, 308) or not location:
                break
            url = location
        peer = urlsplit(url).netloc
        if status >= 300:
            raise _refused(status, reason, answer, peer, topic)
        if not answer.strip():
            return None
        try:
            return json.loads(answer)
        except ValueError as why:
            raise Malformed(
                f"the admin interface answered {method} {urlsplit(asked).path} with a body that is not JSON", peer=peer
            ) from why

    def create_subscription(self, group: str, topic: TopicName, position: MessageId, deadline: float) -> Steps[bool]:
        """Create a durable subscription beginning at a position; return False when it exists. Steps.

        Trap: brokers (4.2.4) ignore isExcluded for a whole entry, and begin with that entry. So the entry behind it is named, which need
        not exist yet. They ignore batchIndex, too, so that a place within a batch is gone to by a reset of the new subscription. Of that
        they take batchIndex for the number of messages that are done, where isExcluded is set; if that is all of the batch, it begins with
        the batch.

        Args:
            group: its name. topic: or partition. position: where it begins. deadline: as `time.monotonic()`.
        """
        index = position.index if position.index >= 0 else -1
        behind = position.after and index < 0
        entry = position.entry + 1 if behind else position.entry
        body = {"ledgerId": position.ledger, "entryId": entry, "partitionIndex": -1, "isExcluded": position.after and not behind}
        if index >= 0:
            body["batchIndex"] = index
        path = f"{topic.rest}/subscription/{quote(group, safe='')}"
        try:
            yield from self.call("PUT", path, deadline, body, topic=str(topic))
        except TopicExists:
            return False
        done = index + position.after
        if index >= 0 and done:
            body |= {"batchIndex": done, "isExcluded": True}
            yield from self.call("POST", f"{path}/resetcursor", deadline, body, topic=str(topic))
        return True

    def close(self) -> None:
        """Do nothing: no connection is held open."""

    # -- one exchange -------------------------------------------------------------------------------------------

    def _once(self, method: str, url: str, data: bytes | None, kind: str, deadline: float) -> tuple[int, str, str | None, bytes]:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Malformed(f"the admin interface redirects to {url!r}")
        secure = parts.scheme == "https"
        host, port = parts.hostname, parts.port or (443 if secure else 80)
        peer = dial.peer_name((host, port))
        sock = self._connect(host, port, secure, deadline)
        guard = self._loop.call_at(deadline, _cut, sock)
        try:
            sock.settimeout(min(max(0.001, deadline - time.monotonic()), TIMEOUT_MAX))
            conn = http.client.HTTPConnection(host, port)
            conn.sock = sock
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            conn.request(method, target, body=data, headers=self._headers(kind, data is not None))
            with conn.getresponse() as response:  # it holds the socket, too
                body = bytearray()
                while chunk := response.read(READ):
                    body += chunk
                    if len(body) > MAX_BODY:
                        raise Malformed(f"the admin interface's answer has more than {MAX_BODY} bytes", peer=peer)
                return response.status, response.reason, response.getheader("Location"), bytes(body)
        except (OSError, http.client.HTTPException) as why:
            if isinstance(why, TimeoutError) or time.monotonic() >= deadline:
                raise TimedOut("the admin interface did not answer in time", peer=peer) from why
            if isinstance(why, (http.client.BadStatusLine, http.client.UnknownProtocol)) and not isinstance(why, ConnectionError):
                raise ConnectError("this is not an HTTP port", peer=peer) from why
            raise Disconnected(f"the admin interface dropped the connection: {type(why).__name__}", peer=peer) from why
        finally:
            guard.cancel()
            sock.close()

    def _connect(self, host: str, port: int, secure: bool, deadline: float) -> socket.socket:
        until = min(deadline, time.monotonic() + self._options.connect_timeout)
        context = self._options.tls_settings().make_context() if secure else None
        plain = dial.dial((host, port), until, address_map=self._options.address_map)
        if not isinstance(plain, socket.socket):
            raise ConnectError("the connection is not a plain TCP socket", peer=dial.peer_name((host, port)))
        plain.settimeout(min(max(0.001, until - time.monotonic()), TIMEOUT_MAX))
        if context is None:
            return plain
        try:
            return context.wrap_socket(plain, server_hostname=self._options.tls_server_name or host)
        except OSError as why:
            plain.close()
            if isinstance(why, TimeoutError):
                raise TimedOut("the TLS handshake was not over in time", peer=dial.peer_name((host, port))) from why
            raise TlsError(f"TLS with the admin interface: {why}", peer=dial.peer_name((host, port))) from why

    def _headers(self, kind: str, has_body: bool) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if has_body:
            headers["Content-Type"] = kind
        if self._credentials is not None and self._credentials.method == "token":
            headers["Authorization"] = "Bearer " + self._credentials.data().decode()
        elif self._credentials is not None and self._credentials.method == "basic":
            headers["Authorization"] = "Basic " + b64encode(self._credentials.data()).decode()
        return headers


def _cut(sock: socket.socket) -> None:
    """End a request that is not over at its deadline."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _refused(status: int, reason: str, answer: bytes, peer: str, topic: str | None) -> WireprotoError:
    """Return the error that a status means, with the broker's own text."""
    try:
        text = str(json.loads(answer)["reason"])
    except (ValueError, KeyError, TypeError):
        text = answer[:200].decode("utf-8", "replace").strip() or reason
    kinds = {401: AuthenticationError, 403: AuthorizationError, 404: TopicNotFound, 503: ServiceNotReady}
    if status in kinds:
        return kinds[status](text, peer=peer, topic=topic)
    kind = TopicExists if status == 409 else AdminRefused
    return kind(text, code=status, name=f"HTTP {status} {reason}".strip(), peer=peer, topic=topic)
