"""What a transaction's coordinator is asked by whoever has the right to: who goes on under a name, and how a transaction ends.

What it is: InitProducerId and EndTxn, each repeated until its coordinator has answered. A transaction does not belong to a connection: who
knows its name, producer id and epoch ends it (`OpenTransaction`), and a commit may be repeated.

    asked of a transaction                             answer
    what it came to, again                             0 (behind CONCURRENT_TRANSACTIONS, while its markers are written)
    the opposite                                       INVALID_TXN_STATE
    a commit, when its time is over                    INVALID_TXN_STATE
    anything, when its name has been used since        INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
    anything, when its name was forgotten              INVALID_PRODUCER_ID_MAPPING

May assume: a cluster. Must not: judge what an answer means to a transaction; its own classes, or the caller, do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BrokerError
from ..net.task import Steps
from .codes import InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced, error
from .identity import Identity
from .messages import EndTxnRequest, InitProducerIdRequest
from .routing import TRANSACTION

if TYPE_CHECKING:
    from .cluster import KafkaCluster

_END_CAP = 4
"""The newest version of EndTxn that speaks of a transaction of level 1."""
FENCING = (InvalidProducerEpoch, ProducerFenced)
OVER = (*FENCING, InvalidTxnState, InvalidProducerIdMapping)
"""What a coordinator answers when the transaction is not as who asks thinks."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that was handed over (`hand_over`): all of it is stored, and `KafkaAdmin.end_transactions` ends it.

    Attributes:
        joins: whether Produce made its partitions part of it (`transaction.version` 2); such a one ends as it began.
    """

    name: str
    producer_id: int
    producer_epoch: int
    joins: bool


def asking(
    cluster: KafkaCluster,
    name: str,
    request: Any,
    until: float,
    *,
    check: Callable[[Any], BrokerError | None] | None = None,
    cap: Callable[[], int | None] | None = None,
    kind: Any = None,
) -> Steps[Any]:
    """Ask the coordinator of a transactional id, until it answers: a message, or what makes one of a `kind` by version."""

    def plain(reply: Any) -> BrokerError | None:
        return error(reply.error_code, f"transactional id {name!r}") if reply.error_code else None

    return cluster.asking(
        request,
        until,
        cluster.to_coordinator(name, TRANSACTION),
        kind=kind,
        check=check or plain,
        cap=cap,
        refresh=lambda why: cluster.lost_coordinator(name, TRANSACTION),
        meanwhile=cluster.watching(name, TRANSACTION),
    )


def naming(cluster: KafkaCluster, name: str, timeout: float, before: Identity | None, until: float) -> Steps[Identity]:
    """InitProducerId: who goes on under the name from now on.

    Args:
        timeout: seconds that a transaction of the name may take. before: who we were, so that nobody else is fenced (KIP-360).
    """

    def make(version: int) -> InitProducerIdRequest:
        named: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": int(timeout * 1000)}
        if before is not None and version >= 3:
            named |= {"producer_id": before.producer_id, "producer_epoch": before.epoch}
        return InitProducerIdRequest(**named)

    reply = yield from asking(cluster, name, make, until, kind=InitProducerIdRequest)
    return Identity(reply.producer_id, reply.producer_epoch)


def ending(cluster: KafkaCluster, one: OpenTransaction, commit: bool, until: float) -> Steps[Any]:
    """EndTxn, in the protocol in which the transaction began. Raises one of `OVER`: see the module."""
    request = EndTxnRequest(transactional_id=one.name, producer_id=one.producer_id, producer_epoch=one.producer_epoch, committed=commit)
    cap = None if one.joins else _END_CAP
    return asking(cluster, one.name, request, until, cap=lambda: cap)
