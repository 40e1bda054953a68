"""Implements the transaction coordinator: which transactions are open, what is part of them, and how they end.

    NEW_TXN ──► open ──► END_TXN, or its time is over ──► forgotten: any later request for it is answered TransactionNotFound
                             │
                             ├─► each of its topics: a marker, and its entries become visible, or never
                             └─► each of its subscriptions: its acknowledgements hold, or are dropped

There is one coordinator, number 0, which answers clients' requests. It runs in the event loop's thread. It does not look into SEND or ACK:
topics and subscriptions do that, as in brokers, and accept what comes too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...pulsar import PulsarApi_pb2 as api
from .buffer import TxnId

if TYPE_CHECKING:
    from .topic import Topic

ASSIGN = "persistent://pulsar/system/transaction_coordinator_assign"
"""The topic whose partitions are the coordinators."""
E = api.ServerError


@dataclass(slots=True)
class Open:
    """An open transaction: its partitions by name, its subscriptions by topic and name."""

    expiry: asyncio.TimerHandle
    topics: set[str] = field(default_factory=set)
    subscriptions: set[tuple[str, str]] = field(default_factory=set)


class Coordinator:
    """The transaction coordinator; see the module.

    Args:
        topics: by full name. facts: what the broker keeps over restarts.

    Attributes:
        handlers: of its requests, by command name.
    """

    def __init__(self, topics: Mapping[str, Topic], facts: dict[str, Any]) -> None:
        self._topics = topics
        self._facts = facts
        self._open: dict[TxnId, Open] = {}
        self.handlers: dict[str, Callable[[Any], Any]] = {
            "tcClientConnectRequest": self._connect,
            "newTxn": self._new,
            "addPartitionToTxn": self._add_partitions,
            "addSubscriptionToTxn": self._add_subscriptions,
            "endTxn": self._end,
        }

    def _connect(self, command: Any) -> Any:
        """Answer whatever the number is: NEW_TXN refuses one that does not exist."""
        return api.CommandTcClientConnectResponse(request_id=command.request_id)

    def _new(self, command: Any) -> Any:
        answer = api.CommandNewTxnResponse(request_id=command.request_id, txnid_most_bits=command.tc_id)
        if command.tc_id:
            _error(answer, E.TransactionCoordinatorNotFound, f"there is no coordinator {command.tc_id}")
            return answer
        self._facts["transactions"] = number = self._facts.get("transactions", -1) + 1
        made = TxnId(0, number)
        expiry = asyncio.get_running_loop().call_later(command.txn_ttl_millis / 1000, self.end, made, False)
        self._open[made] = Open(expiry)
        answer.txnid_least_bits = number
        return answer

    def _add_partitions(self, command: Any) -> Any:
        answer = api.CommandAddPartitionToTxnResponse(request_id=command.request_id)
        found = self._found(command, answer)
        if found is not None:
            found.topics.update(command.partitions)
        return answer

    def _add_subscriptions(self, command: Any) -> Any:
        answer = api.CommandAddSubscriptionToTxnResponse(request_id=command.request_id)
        found = self._found(command, answer)
        if found is not None:
            found.subscriptions.update((one.topic, one.subscription) for one in command.subscription)
        return answer

    def _end(self, command: Any) -> Any:
        answer = api.CommandEndTxnResponse(request_id=command.request_id)
        if self._found(command, answer) is not None:
            self.end(_named(command), command.txn_action == api.COMMIT)
        return answer

    def _found(self, command: Any, answer: Any) -> Open | None:
        """Return the open transaction that the command names; None: the answer then has the error."""
        one = _named(command)
        answer.txnid_most_bits, answer.txnid_least_bits = one
        found = self._open.get(one)
        if found is None:
            _error(answer, E.TransactionNotFound, f"the transaction ({one.most},{one.least}) is not known")
        return found

    def known(self, one: TxnId) -> bool:
        """Return whether a transaction is open."""
        return one in self._open

    def end(self, one: TxnId, committed: bool) -> None:
        """Commit a transaction, or roll it back."""
        found = self._open.pop(one)
        found.expiry.cancel()
        topics = {name: topic for name in found.topics if (topic := self._topics.get(name)) is not None}
        for topic in topics.values():
            topic.end_transaction(one, committed)
        touched = {id(each): each for topic in topics.values() for each in topic.subscriptions.values()}
        for name, subscription in found.subscriptions:
            held = self._topics[name].subscriptions.get(subscription) if name in self._topics else None
            if held is not None:
                held.end_transaction(one, committed)
                touched[id(held)] = held
        for each in touched.values():
            each.dispatch()

    def stop(self) -> None:
        """Roll back all open transactions."""
        for one in list(self._open):
            self.end(one, False)


def _error(answer: Any, code: Any, text: str) -> None:
    answer.error, answer.message = code, text


def _named(command: Any) -> TxnId:
    return TxnId(command.txnid_most_bits, command.txnid_least_bits)


def transaction_of(command: Any) -> TxnId | None:
    """Return the transaction that a SEND or an ACK belongs to, or None."""
    return _named(command) if command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits") else None
