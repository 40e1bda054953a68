"""Turns the codes of a RocketMQ server's replies into typed errors, and encodes requests.

The frame's codec, `RemotingCommand`, is in the core. A reply's header type is read from its own type byte: 4.9 answers in the request's
type (12 and 33 in its own), 5.x always in its own, so nothing here depends on what was sent.
Codes above 32,767 do not fit the binary header; the codec writes such a command as JSON whatever was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from wireproto._codec import RemotingCommand
from wireproto.errors import BrokerError

from . import codes
from .acl import FIRST_5X
from .errors import NO_QUEUE, NOT_CONSUMED, NOT_READ, ConsumeDisabled, Denied, NoQueue, NoQueueBefore5, NotReadable, Shedding

if TYPE_CHECKING:
    from typing_extensions import Buffer

Command = RemotingCommand

JSON: Final = 0
BINARY: Final = 1
RESPONSE: Final = 1
ONE_WAY: Final = 2

VERSION: Final = 409
"""The version that we announce (V4_9_8): at least 401 for standard JSON in routes, not above 475, whose clients must obey GO_AWAY."""

SEND_WARNINGS: Final = frozenset({10, 11, 12})
"""Stored, though not as safely as configured (disk or slave was late): answers, not errors."""
PULL_ANSWERS: Final = frozenset({19, 20, 21})
"""Pulls without a message: nothing there yet, all filtered out, no such offset."""

_DENIED = ("AclException", "Check signature failed", "No accessKey", "check signature failed", "username cannot be null")


def encode(code: int, opaque: int, ext: Mapping[str, str], body: Buffer = b"", *, serializer: int = JSON, flag: int = 0) -> list[Buffer]:
    """Return the buffers of a request, without the frame's length."""
    command = RemotingCommand(code, opaque, flag=flag, ext=ext, body=body, version=VERSION, serializer=serializer)
    return command.encode()


decode = RemotingCommand.decode


def error_of(reply: RemotingCommand, **context: Any) -> BrokerError:
    """Return the typed error of a reply's code.

    Code 1 has many meanings: ACL refusals of the 4.9 line, a broker that sheds load, and a queue that does not exist are recognized by the
    remark.
    """
    remark = reply.remark or ""
    short = next((line.strip() for line in remark.splitlines() if line.strip()), "")[:400]
    kind = _by_remark(reply.code, remark)
    if kind is None and reply.version < FIRST_5X:
        kind = codes.EARLIER.get(reply.code)
    return kind(short, **context) if kind is not None else codes.error(reply.code, short, **context)


def _by_remark(code: int, remark: str) -> type[BrokerError] | None:
    """Return the error class of a code with several meanings, by its remark; None: the code's own."""
    if code == codes.ServerError.code:
        if any(word in remark for word in _DENIED):
            return Denied
        if "broker busy" in remark or "UNKNOWN_ERROR" in remark:
            return Shedding
        return NoQueueBefore5 if NO_QUEUE.search(remark) else None
    if code == codes.InvalidParameter.code:
        return NoQueue if NO_QUEUE.search(remark) else None
    if code == codes.NoPermission.code:
        return NotReadable if NOT_READ in remark else ConsumeDisabled if NOT_CONSUMED in remark else None
    return None
