"""Defines every exception that this package raises on purpose.

They are one tree, top down::

    WireprotoError
      TransportError            the bytes did not get through
        ConnectError              no connection could be made
          Unreachable               … and waiting will not help: no such name, nothing listens there, another protocol on that port
        TlsError                  the TLS handshake or certificate check failed
        TimedOut                  the caller's timeout ran out (also a TimeoutError)
          Unanswered                … or that of one attempt to connect, or to look something up
        Disconnected              an open connection was lost
      ProtocolError             the bytes are not what the protocol says
        Truncated                 they end before the message does
        Malformed                 they contradict the format
        ChecksumMismatch          a CRC is wrong
        FrameTooLarge             a length prefix is negative or above the cap
        DecompressionError        a compressed block is broken, unknown or larger than its bound
        UnknownMessage            no message of that name, code or type
        UnsupportedVersion        the message exists, this version of it does not
      BrokerError               the broker answered with an error code; each adapter derives its codes from it
        AuthError                 credentials missing or refused
      TransactionError          a transaction did not come to the end that was asked for
        Aborted                   all of it was rolled back; the next one works
        Fenced                    another program uses its name now; final
        OutcomeUnknown            it was committed or rolled back, and no broker can say which
      UsageError                the caller asked for something that cannot be
        RoleUnsupported           the protocol has no such role
        ValueUnsupported          the broker cannot carry this key, header or value; raised before sending
        OptionError               unknown or contradictory option, bad URL
        ConcurrentUse             two threads in a Reader, Consumer or QueueConsumer
        BufferFull                the send buffer stayed full for the whole timeout
        Closed                    the client or role was closed
        Forked                    the client belongs to the parent of this process
        Revoked                   a commit or ack named a partition or message that this member no longer has
      DataLoss                  records that were to be read are not there any more

The module imports no other module of this package. No message contains a secret. Only ``net.retry.verdict`` judges whether a request is
retried, by the class attributes below (`retriable`, `refresh` …). Code that knows more of its request, such as which errors may pass there,
passes that to `verdict`, and sets none of the attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

E = TypeVar("E", bound="WireprotoError")


class WireprotoError(Exception):
    """Base of all errors. Context is kept in attributes, and is part of the text where it is known.

    Args:
        text: what went wrong, in one clause, without the context below.
        peer: ``host:port`` of the other side.
        message: name of the wire message concerned, as its vendor spells it.
        version: version of that message.
        request_id: correlation id, xid, opaque or request id.
        offset: byte offset into the frame at which decoding failed.
        path: field path at which decoding failed, like ``topics[0].name``.
        topic, partition, position: the records concerned.
    """

    retriable = False
    """The same request may succeed when sent again."""
    refresh = False
    """Metadata (leader, route, coordinator, owner) has to be looked up again before a retry."""
    doubtful = False
    """The answer is missing, so the request may have been carried out. Set for ZooKeeper's writes, and unknown ends of transactions."""
    fenced = False
    """This client was replaced by another one, and must not continue under the same identity."""
    in_doubt = False
    """Of a broker's answer: the request may have been carried out all the same."""
    starts_over = False
    """What was sent does not follow what the broker has: the sender starts its sequence numbers over."""
    elsewhere = False
    """Another node may accept what this one refuses."""
    lasting = False
    """Waiting alone is unlikely to help: a client that was never connected raises it at once, another one retries."""
    moved = False
    """The answer named the node that is responsible now, so nothing has to be looked up."""

    _CONTEXT = ("peer", "message", "version", "request_id", "path", "offset", "topic", "partition", "position")

    def __init__(self, text: str = "", **context: Any) -> None:
        super().__init__(text)
        self.text = text
        for name in self._CONTEXT:
            setattr(self, name, context.pop(name, None))
        for name, value in context.items():
            setattr(self, name, value)

    peer: str | None
    message: str | None
    version: int | None
    request_id: int | None
    path: str | None
    offset: int | None
    topic: str | None
    partition: int | None
    position: Any
    taken: Mapping[int, int] | None = None
    """Of an error that ended a `send_batch`: the number of rows that were taken, by partition. They are the partition's first rows, and are
    sent all the same. Rows without a partition count under -1. None: no rows were taken, or no `send_batch` was ended."""

    known: Mapping[Any, Any] | None = None
    """Of an error of a call that asked several brokers: what the others answered, such as positions or lags by topic and partition, in the
    form that the call returns (transactions by their names)."""

    def with_context(self, **context: Any) -> WireprotoError:
        """Set context that is still unknown, and return the error (for ``raise error.with_context(peer=…)``)."""
        for name, value in context.items():
            if getattr(self, name, None) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        facts = []
        if self.message is not None:
            facts.append(self.message + (f" v{self.version}" if self.version is not None else ""))
        if self.path:
            facts.append(self.path)
        if self.offset is not None:
            facts.append(f"byte {self.offset}")
        if self.topic is not None:
            facts.append(f"{self.topic}" + (f"[{self.partition}]" if self.partition is not None else ""))
        if self.position is not None:
            facts.append(f"position {self.position}")
        if self.request_id is not None:
            facts.append(f"request {self.request_id}")
        if self.peer is not None:
            facts.append(f"peer {self.peer}")
        return self.text + (f" ({', '.join(facts)})" if facts else "")

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.text, dict(self.__dict__))

    def __copy__(self) -> Self:
        """Copy the error with its cause, and without its traceback: for each of several callers that raise it."""
        twin = _rebuild(type(self), self.text, dict(self.__dict__))
        twin.__cause__ = self.__cause__
        return twin


def _rebuild(cls: type[E], text: str, attributes: dict[str, Any]) -> E:
    error = cls.__new__(cls)
    Exception.__init__(error, text)
    error.__dict__.update(attributes)
    return error


class TransportError(WireprotoError):
    """The bytes did not get through."""

    retriable = True
    refresh = True

    errno: int | None = None
    """The system's error number, such as ECONNRESET when the peer reset the connection; None where there is none."""


class ConnectError(TransportError):
    """No connection could be made, or the server there does not speak this protocol."""


class Unreachable(ConnectError):
    """No connection can be made: the name does not exist, nothing listens on the port, or the server there speaks another protocol.

    A client that was never connected raises it at once; one that was connected before retries, since its server may come back.
    """

    lasting = True


class TlsError(TransportError):
    """TLS handshake, certificate or host name check failed."""

    retriable = False
    refresh = False


class TimedOut(TransportError, TimeoutError):
    """The caller's timeout ran out. What was sent may or may not have taken effect."""

    retriable = False


class Unanswered(TimedOut):
    """An attempt had no answer in its own time: a connection, a handshake, a look-up, or a command that may be repeated.

    It is retried until the caller's timeout is over, and raised then.
    """

    retriable = True


class Disconnected(TransportError):
    """An open connection was lost; requests in flight may or may not have taken effect."""


class ProtocolError(WireprotoError):
    """The bytes are not what the protocol says. The connection on which they came is closed."""


class Truncated(ProtocolError):
    """The bytes end before the message does."""


class Malformed(ProtocolError):
    """The bytes contradict the format: a bad length, count, tag, text or flag."""


class ChecksumMismatch(ProtocolError):
    """A CRC over frame or records is wrong."""


class FrameTooLarge(ProtocolError):
    """A frame's length prefix is negative or above the cap; nothing was allocated for it."""


class DecompressionError(ProtocolError):
    """A compressed block is broken, of an unknown kind, or unpacks to more than its bound."""


class UnknownMessage(ProtocolError):
    """There is no message of that name, code or type."""


class UnsupportedVersion(ProtocolError):
    """The message does not exist in this version, or the broker offers no version that this client has."""


class BrokerError(WireprotoError):
    """The broker answered with an error code.

    Adapters derive one class per code; `code` is the wire's number and `name` the vendor's name for it. The default text is the meaning of
    the code.
    """

    code: int | None = None
    name: str | None = None

    def __init__(self, text: str = "", *, code: int | None = None, name: str | None = None, **context: Any) -> None:
        super().__init__(text or _meaning(type(self)), **context)
        if code is not None:
            self.code = code
        if name is not None:
            self.name = name

    def __str__(self) -> str:
        label = self.name or ""
        if self.code is not None:
            label += f" [{self.code}]"
        text = super().__str__()
        return f"{label}: {text}" if label and text else label or text


def _meaning(kind: type[BrokerError]) -> str:
    """Return the meaning of a code, the first line of its class's docstring, to be part of a sentence."""
    said = (kind.__doc__ or "").partition("\n")[0].rstrip(".") if "code" in kind.__dict__ and kind is not BrokerError else ""
    return said if said[1:2].isupper() else said[:1].lower() + said[1:]


class AuthError(BrokerError):
    """Credentials are missing, were refused, or do not permit this."""


class TransactionError(WireprotoError):
    """A transaction did not end as it was asked to; `__cause__` is why."""


class Aborted(TransactionError):
    """The transaction is rolled back, or will be: begin another one, and repeat the work from where this one began."""


class Fenced(TransactionError):
    """Another program uses this transactional name now: nothing more can be done under it here."""

    fenced = True


class OutcomeUnknown(TransactionError):
    """The transaction was committed or rolled back, and no broker can say which."""

    doubtful = True


class UsageError(WireprotoError):
    """The caller asked for something that cannot be; nothing was sent."""


class AsyncUnsupported(UsageError):
    """The call cannot be awaited yet; the synchronous client has it."""


class RoleUnsupported(UsageError):
    """The protocol has no such role; `nearest` names the role to use instead."""

    def __init__(self, text: str = "", *, nearest: str | None = None, **context: Any) -> None:
        super().__init__(text, **context)
        self.nearest = nearest


class ValueUnsupported(UsageError, ValueError):
    """The broker cannot carry this key, header, value or timestamp unchanged; nothing was sent."""


class NotBytes(ValueUnsupported, TypeError):
    """A key, a value or a header's value is neither bytes-like nor None; nothing was sent."""


class OptionError(UsageError, ValueError):
    """Unknown option, contradictory options, or a URL that does not parse."""


class ConcurrentUse(UsageError):
    """A role that belongs to one thread at a time was entered by a second one."""


class BufferFull(UsageError):
    """The send buffer stayed full for the whole timeout; the record, or the rest of a `send_batch`, was not taken (see `taken`)."""

    retriable = True


class Closed(UsageError):
    """The client or role was closed."""


class Forked(UsageError):
    """The client was opened in the parent process; open a new one in this process."""


class Revoked(UsageError):
    """A commit or ack named partitions or messages that another member owns now; `partitions` lists them."""

    def __init__(self, text: str = "", *, partitions: tuple[tuple[str, int], ...] = (), **context: Any) -> None:
        super().__init__(text, **context)
        self.partitions = partitions


class UnflushedWarning(RuntimeWarning):
    """Records were sent whose outcome no call waited for, and their producer or the program has ended. A warning; no call raises it."""


class DataLoss(WireprotoError):
    """Records that were to be read are not there any more: expired, truncated, or deleted with their topic.

    Attributes:
        diverges_at: the offset from which the log differs from what was read; None where that is not known.
    """

    diverges_at: int | None = None
