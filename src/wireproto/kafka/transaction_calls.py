"""Asks a transaction's coordinator for the next producer epoch, and to end a transaction.

InitProducerId and EndTxn, each repeated until the coordinator has answered. A transaction does not belong to a connection: any client that
knows its name, producer id and epoch can end it (`OpenTransaction`), and a commit may be repeated.

    asked of a transaction                             response
    to end as it has ended, again                      0 (behind CONCURRENT_TRANSACTIONS, while its markers are written)
    the opposite                                       INVALID_TXN_STATE
    a commit, when its time is over                    INVALID_TXN_STATE
    anything, when its name has been used since        INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
    anything, when its name was forgotten              INVALID_PRODUCER_ID_MAPPING

What a response means to a transaction is judged by `transactions`, or the caller.
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
    from ..flow.lost_answer import LostAnswer
    from .cluster import KafkaCluster

_END_CAP = 4
"""The newest version of EndTxn for a transaction of level 1."""
FENCING = (InvalidProducerEpoch, ProducerFenced)
OVER = (*FENCING, InvalidTxnState, InvalidProducerIdMapping)
"""What a coordinator answers when the transaction is not in the state, or epoch, that the request assumes."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that was handed over (`hand_over`): all of it is stored, and `KafkaAdmin.end_transactions` ends it.

    Attributes:
        name: the transactional id.
        producer_id: the producer's id.
        producer_epoch: its epoch.
        joins: whether Produce made its partitions part of it (`transaction.version` 2); it ends in the protocol in which it began.
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
    lost: LostAnswer | None = None,
) -> Steps[Any]:
    """Ask the coordinator of a transactional id, until it answers.

    Args:
        name: the transactional id.
        request: a message, or what makes one of a `kind` by version.
        until: the deadline, a time.monotonic() value.
        check, cap, kind, lost: as of `KafkaCluster.asking`; by default the response's error code is checked.
    Raises:
        the broker's error. TimedOut.
    """

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
        lost=lost,
    )


def naming(cluster: KafkaCluster, name: str, timeout: float, before: Identity | None, until: float) -> Steps[Identity]:
    """Take a transactional id (InitProducerId); return its producer id and epoch from now on.

    Args:
        name: the transactional id.
        timeout: seconds that a transaction of the name may take.
        before: the identity that we had, so that no other program is fenced (KIP-360); None: fence any.
        until: the deadline, a time.monotonic() value.
    Raises:
        the broker's error; one of `FENCING` or InvalidProducerIdMapping: another program has the name. TimedOut.
    """

    def make(version: int) -> InitProducerIdRequest:
        named: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": int(timeout * 1000)}
        if before is not None and version >= 3:
            named |= {"producer_id": before.producer_id, "producer_epoch": before.epoch}
        return InitProducerIdRequest(**named)

    reply = yield from asking(cluster, name, make, until, kind=InitProducerIdRequest)
    return Identity(reply.producer_id, reply.producer_epoch)


def ending(cluster: KafkaCluster, one: OpenTransaction, commit: bool, until: float, lost: LostAnswer) -> Steps[Any]:
    """End a transaction (EndTxn), in the protocol in which it began.

    Args:
        one: the transaction. commit: True: commit it; False: roll it back. until: the deadline, a time.monotonic() value.
        lost: gets the attempts that were sent and failed.
    Raises:
        one of `OVER`: see the module. Any other error of the broker. TimedOut.
    """
    request = EndTxnRequest(transactional_id=one.name, producer_id=one.producer_id, producer_epoch=one.producer_epoch, committed=commit)
    cap = None if one.joins else _END_CAP
    return asking(cluster, one.name, request, until, cap=lambda: cap, lost=lost)
