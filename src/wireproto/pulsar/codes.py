"""Pulsar's error codes (enum ServerError) as exceptions.

What it is: one class per code, with the flags that the retry policy reads. Source of names and numbers: ServerError in PulsarApi.proto.

    retriable   the broker is busy, starting or moving the topic: the same request may succeed later
    refresh     look the topic up again first: another broker may serve it by now
    fenced      another producer took over this name or the topic: stop

Must not: import protobuf (the numbers are repeated here, and a test compares them with the schema).
"""

from __future__ import annotations

from typing import Any

from wireproto.errors import AuthError, BrokerError, WireprotoError


class PulsarError(BrokerError):
    """Base of the broker's codes."""


class UnknownError(PulsarError):
    """No closer reason; also what a broker answers while a topic is moving."""

    code, name = 0, "UnknownError"
    refresh = True


class TopicMoves(UnknownError):
    """The topic is on its way to another broker, as the text says."""

    retriable = refresh = True


class MetadataError(PulsarError):
    """The metadata store failed."""

    code, name = 1, "MetadataError"
    retriable = refresh = True


class PersistenceError(PulsarError):
    """BookKeeper failed to store or read."""

    code, name = 2, "PersistenceError"
    retriable = refresh = True


class AuthenticationError(PulsarError, AuthError):
    """Credentials are missing, wrong or expired."""

    code, name = 3, "AuthenticationError"


class AuthorizationError(PulsarError, AuthError):
    """The role may not do this."""

    code, name = 4, "AuthorizationError"


class ConsumerBusy(PulsarError):
    """An exclusive subscription has its consumer, or the subscription has another type."""

    code, name = 5, "ConsumerBusy"


class ServiceNotReady(PulsarError):
    """The broker starts, stops or hands the topic over."""

    code, name = 6, "ServiceNotReady"
    retriable = refresh = True


class ProducerBlockedQuotaExceededError(PulsarError):
    """The backlog quota is used up; the policy holds producers back."""

    code, name = 7, "ProducerBlockedQuotaExceededError"
    retriable = True


class ProducerBlockedQuotaExceededException(PulsarError):
    """The backlog quota is used up; the policy refuses producers."""

    code, name = 8, "ProducerBlockedQuotaExceededException"


class ChecksumError(PulsarError):
    """What arrived at the broker is not what was sent."""

    code, name = 9, "ChecksumError"
    retriable = True


class UnsupportedVersionError(PulsarError):
    """The broker does not support this command, or not with these fields."""

    code, name = 10, "UnsupportedVersionError"


class TopicNotFound(PulsarError):
    """No such topic, and it may not be created on use."""

    code, name = 11, "TopicNotFound"


class SubscriptionNotFound(PulsarError):
    """No such subscription."""

    code, name = 12, "SubscriptionNotFound"


class ConsumerNotFound(PulsarError):
    """The broker does not know this consumer (any more)."""

    code, name = 13, "ConsumerNotFound"
    retriable = refresh = True


class TooManyRequests(PulsarError):
    """Too many look-ups at once."""

    code, name = 14, "TooManyRequests"
    retriable = True


class TopicTerminatedError(PulsarError):
    """The topic takes no more messages, for ever."""

    code, name = 15, "TopicTerminatedError"


class ProducerBusy(PulsarError):
    """A producer of that name is connected, or the topic is held exclusively."""

    code, name = 16, "ProducerBusy"


class InvalidTopicName(PulsarError):
    """Not a topic name."""

    code, name = 17, "InvalidTopicName"


class IncompatibleSchema(PulsarError):
    """The topic's schema does not go with the one given, or one is demanded."""

    code, name = 18, "IncompatibleSchema"


class ConsumerAssignError(PulsarError):
    """Key ranges of a Key_Shared consumer overlap another's."""

    code, name = 19, "ConsumerAssignError"


class TransactionCoordinatorNotFound(PulsarError):
    """The transaction coordinator lives elsewhere or is not enabled."""

    code, name = 20, "TransactionCoordinatorNotFound"
    retriable = refresh = True


class InvalidTxnStatus(PulsarError):
    """The transaction is in another state."""

    code, name = 21, "InvalidTxnStatus"


class NotAllowedError(PulsarError):
    """Not on this topic: wrong type, beyond a limit, or a seek beyond the end."""

    code, name = 22, "NotAllowedError"


class TransactionConflict(PulsarError):
    """Another transaction acknowledged that message."""

    code, name = 23, "TransactionConflict"


class TransactionNotFound(PulsarError):
    """No such transaction."""

    code, name = 24, "TransactionNotFound"


class ProducerFenced(PulsarError):
    """Another producer took the topic or this name over."""

    code, name = 25, "ProducerFenced"
    fenced = True


class ProducerClosed(PulsarError):
    """The broker closed this producer or consumer, because its topic moves: look up and open again."""

    retriable = refresh = True


class AdminRefused(PulsarError):
    """The admin HTTP interface refused; `code` is the HTTP status."""


class TopicExists(AdminRefused):
    """A topic (or subscription) of that name exists."""


BY_CODE: dict[int, type[PulsarError]] = {kind.code: kind for kind in PulsarError.__subclasses__() if kind.code is not None}


def error_of(code: int, text: str, **context: Any) -> WireprotoError:
    """Return the exception for the error code of a command; an unknown code gives PulsarError with that number.

    Args:
        code: ServerError's number.
        text: the broker's message. A topic that moves away is told by its text only: brokers answer ServiceNotReady, PersistenceError
            or UnknownError for it, so that the first two are retriable always and the last by its words.
    """
    kind = BY_CODE.get(code)
    if kind is MetadataError and text == "Consumer not found":
        kind = ConsumerNotFound  # what SEEK, GET_LAST_MESSAGE_ID and UNSUBSCRIBE say of a consumer that the broker has closed
    if kind is None:
        return PulsarError(text, code=code, name=f"ServerError {code}", **context)
    if kind is UnknownError and any(word in text for word in ("temporarily", "unloading", "being unloaded", "is closing", "fence")):
        kind = TopicMoves
    return kind(text, **context)
