"""Serves one client's connection: commands in, answers and messages out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ChecksumMismatch, ProtocolError
from ...pulsar import PulsarApi_pb2 as api
from ...pulsar.frames import command_name, decode, encode
from ...pulsar.topics import parse_topic
from .facts import Unserved
from .keepalive import Keepalive
from .key_shared import RangeTaken
from .pending_acks import Conflict
from .state import full_name
from .subscription import EXCLUSIVE, FAILOVER, Consumer, Source, Subscription
from .topic import Topic
from .transactions import transaction_of

if TYPE_CHECKING:
    from ..server import Connection
    from .state import PulsarState

MAX_MESSAGE = 5 << 20
NONE = 2**64 - 1  # -1 in ids
E = api.ServerError


class Refused(Exception):
    """The answer to a request is an error.

    Attributes:
        code: the ServerError.
    """

    def __init__(self, code: Any, text: str) -> None:
        super().__init__(text)
        self.code = code


class Session:
    """The producers and consumers of one connection."""

    def __init__(self, side: PulsarState, connection: Connection) -> None:
        self.side = side
        self.connection = connection
        self.features: Any = api.FeatureFlags()
        self.producers: dict[int, tuple[Topic, str]] = {}
        self.consumers: dict[int, tuple[Subscription, Consumer]] = {}
        self._fault: Any = None
        self._keepalive = Keepalive(connection, side.settings.keep_alive)
        self._handlers: dict[str, Callable[[Any], Any]] = {
            "connect": self._connect,
            "ping": lambda _: api.CommandPong(),
            "pong": lambda _: None,
            "auth_response": lambda _: None,
            "partitionMetadata": self._partition_metadata,
            "lookupTopic": self._lookup,
            "getTopicsOfNamespace": self._topics_of_namespace,
            "producer": self._producer,
            "close_producer": self._close_producer,
            "subscribe": self._subscribe,
            "flow": self._flow,
            "ack": self._ack,
            "redeliverUnacknowledgedMessages": self._redeliver,
            "seek": self._seek,
            "getLastMessageId": self._last_message_id,
            "consumerStats": self._consumer_stats,
            "unsubscribe": self._unsubscribe,
            "close_consumer": self._close_consumer,
            "getSchema": self._get_schema,
            "getOrCreateSchema": self._get_or_create_schema,
        }
        self._of_transactions = side.coordinator.handlers

    async def run(self) -> None:
        """Serve commands until the connection ends."""
        async for frame in self.connection:
            base = decode(frame, self.connection.peer)
            name = command_name(base)
            if name is None:
                continue
            command = getattr(base, name)
            self._fault = fault = await self.connection.fault(name)
            try:
                if fault is not None and fault.kind == "error":
                    raise Refused(fault.code, "asked for by a test")
                if name == "send":
                    answer = self._send(command, frame[4 + int.from_bytes(frame[:4], "big") :])
                elif name in self._handlers:
                    answer = self._handlers[name](command)
                elif name in self._of_transactions:
                    self._need_transactions()
                    answer = self._of_transactions[name](command)
                else:
                    raise Refused(E.NotAllowedError, f"the dev broker does not serve {name}")
            except Refused as why:
                answer = self._refuse(name, command, why)
            if answer is not None:
                self.send(answer)
            await self.connection.drain()
            if name == "connect" and isinstance(answer, api.CommandError):
                return

    def send(self, command: Any, entry: bytes = b"") -> None:
        """Send one frame; `entry` follows the command in MESSAGE."""
        fault, self._fault = self._fault, None
        head = encode(command)
        if entry and self.side.entry_metadata and self.features.supports_broker_entry_metadata:
            entry = broker_entry_metadata(command) + entry
        self.connection.send(head, entry, fault=fault)

    def gone(self) -> None:
        """Drop the producers and consumers, when the connection has ended."""
        self._keepalive.stop()
        for producer_id in list(self.producers):
            self._drop_producer(producer_id)
        for consumer_id in list(self.consumers):
            self.drop_consumer(consumer_id)

    def partition(self, topic: Source) -> int:
        """Return the partition number in the ids of this topic."""
        return parse_topic(topic.name).partition

    def close_topic(self, topic: Source) -> None:
        """Close the client's producers and consumers of a topic, and notify it."""
        self.close_producers(topic)
        for consumer_id, (subscription, _) in list(self.consumers.items()):
            if subscription.topic is topic:
                self.drop_consumer(consumer_id, keep=True)
                self.send(api.CommandCloseConsumer(consumer_id=consumer_id, request_id=2**64 - 1))

    def close_producers(self, topic: Source) -> None:
        """Close the client's producers of a topic, and notify it."""
        for producer_id, (held, _) in list(self.producers.items()):
            if held is topic:
                self._drop_producer(producer_id)
                self.send(api.CommandCloseProducer(producer_id=producer_id, request_id=2**64 - 1))

    @staticmethod
    def _refuse(name: str, command: Any, why: Refused) -> Any:
        text = str(why)
        if name == "send":
            highest = max(command.sequence_id, command.highest_sequence_id)  # of a batch; its receipt names the lowest
            return api.CommandSendError(producer_id=command.producer_id, sequence_id=highest, error=why.code, message=text)
        if name == "partitionMetadata":
            kind = api.CommandPartitionedTopicMetadataResponse
            return kind(request_id=command.request_id, response=kind.LookupType.Failed, error=why.code, message=text)
        if name == "lookupTopic":
            found = api.CommandLookupTopicResponse
            return found(request_id=command.request_id, response=found.LookupType.Failed, error=why.code, message=text)
        if name == "connect":
            return api.CommandError(request_id=NONE, error=why.code, message=text)
        if "request_id" not in command.DESCRIPTOR.fields_by_name:
            return None
        return api.CommandError(request_id=command.request_id, error=why.code, message=text)

    # -- connection and look-up -------------------------------------------------------------------------------------------

    def _connect(self, command: Any) -> Any:
        self._keepalive.version = command.protocol_version
        self.features = command.feature_flags
        flags = api.FeatureFlags(supports_auth_refresh=True, supports_broker_entry_metadata=True, supports_topic_watchers=False)
        return api.CommandConnected(
            server_version="wireproto dev broker",
            protocol_version=min(command.protocol_version, self.side.protocol_version),
            max_message_size=MAX_MESSAGE,
            feature_flags=flags,
        )

    def _partition_metadata(self, command: Any) -> Any:
        name = self._name(command.topic)
        count = self.side.partitions(name)
        if count is None and not (self.side.auto_create and command.metadata_auto_creation_enabled):
            raise Refused(E.TopicNotFound, f"topic {name} does not exist")
        kind = api.CommandPartitionedTopicMetadataResponse
        return kind(request_id=command.request_id, partitions=count or 0, response=kind.LookupType.Success)

    def _lookup(self, command: Any) -> Any:
        name = self._name(command.topic)
        kind = api.CommandLookupTopicResponse
        redirect = self._fault is not None and self._fault.kind == "redirect"
        where = self._fault.to if redirect else self.side.address()
        if not redirect and self.side.topic(name) is None:
            raise Refused(E.TopicNotFound, f"topic {name} does not exist")
        return kind(
            request_id=command.request_id,
            response=kind.LookupType.Redirect if redirect else kind.LookupType.Connect,
            brokerServiceUrl=f"pulsar://{where}",
            brokerServiceUrlTls=f"pulsar+ssl://{where}" if self.side.tls else "",
            authoritative=True,
        )

    def _topics_of_namespace(self, command: Any) -> Any:
        modes = {0: ("persistent",), 1: ("non-persistent",), 2: ("persistent", "non-persistent")}
        names = [name for domain in modes[command.mode] for name in self.side.in_namespace(command.namespace, domain)]
        return api.CommandGetTopicsOfNamespaceResponse(request_id=command.request_id, topics=names)

    @staticmethod
    def _name(text: str) -> str:
        name = full_name(text)
        if name is None:
            raise Refused(E.InvalidTopicName, f"{text} is no topic name")
        return name

    def _topic(self, text: str, create: bool = True) -> Topic:
        name = self._name(text)
        topic = self.side.topic(name, create)
        if topic is None:
            raise Refused(E.TopicNotFound, f"topic {name} does not exist")
        return topic

    # -- producers --------------------------------------------------------------------------------------------------------

    def _producer(self, command: Any) -> Any:
        topic = self._topic(command.topic)
        if topic.terminated:
            raise Refused(E.TopicTerminatedError, "the topic was terminated")
        self._no_schema(command)
        name = command.producer_name or self.side.producer_name()
        ours = command.producer_id in self.producers
        if not ours:
            self._admit(topic, command)
        holder = topic.producers.get(name)
        if holder is not None and (holder is not self or not ours):
            raise Refused(E.ProducerBusy, f"a producer named {name} is connected already")
        topic.alone = command.producer_access_mode != api.Shared
        topic.producers[name] = self
        self.producers[command.producer_id] = (topic, name)
        last = -1 if topic.dedup is None else topic.dedup.last(name)
        made = api.CommandProducerSuccess(request_id=command.request_id, producer_name=name, last_sequence_id=last, schema_version=b"")
        if topic.alone:
            if not ours:
                topic.epoch = command.topic_epoch if command.HasField("topic_epoch") else topic.epoch + 1
            made.topic_epoch = topic.epoch
        return made

    @staticmethod
    def _admit(topic: Topic, command: Any) -> None:
        """Admit a producer by its access mode, as AbstractTopic.incrementTopicEpochIfNeeded does.

        A fencing producer closes the others, even if it is refused then.
        """
        mode = command.producer_access_mode
        if mode == api.WaitForExclusive:
            raise Refused(E.NotAllowedError, f"the dev broker does not serve the access mode {api.ProducerAccessMode.Name(mode)}")
        if mode == api.ExclusiveWithFencing:
            for session in set(topic.producers.values()):
                session.close_producers(topic)
        elif topic.alone:
            code = E.ProducerBusy if mode == api.Shared else E.ProducerFenced
            raise Refused(code, f"Topic has an existing exclusive producer: {next(iter(topic.producers))}")
        elif mode == api.Exclusive and topic.producers:
            raise Refused(E.ProducerFenced, "Topic has existing shared producers")
        if mode != api.Shared and command.HasField("topic_epoch") and command.topic_epoch < topic.epoch:
            text = f"Topic epoch has already moved. Current epoch: {topic.epoch}, Producer epoch: {command.topic_epoch}"
            raise Refused(E.ProducerFenced, text)

    @staticmethod
    def _no_schema(command: Any) -> None:
        if command.HasField("schema") and command.schema.type != api.Schema.Type.Value("None"):
            raise Refused(E.NotAllowedError, "the dev broker keeps no schemas: bytes alone")

    def _need_transactions(self) -> None:
        if not self.side.settings.transactions:
            raise Refused(E.NotAllowedError, "Transactions are not enabled.")

    def _send(self, command: Any, entry: bytes) -> Any:
        held = self.producers.get(command.producer_id)
        if held is None:
            return None  # closed meanwhile: the client sends it again after it has connected again
        topic, _ = held
        if topic.terminated:
            raise Refused(E.TopicTerminatedError, "the topic was terminated")
        transaction = transaction_of(command)
        if transaction is not None:
            self._need_transactions()
        try:
            number = topic.append(entry, transaction)
        except Unserved as why:
            raise Refused(E.NotAllowedError, str(why)) from why
        except ChecksumMismatch as why:
            raise Refused(E.ChecksumError, str(why)) from why
        except ProtocolError as why:
            raise Refused(E.PersistenceError, str(why)) from why
        return api.CommandSendReceipt(
            producer_id=command.producer_id,
            sequence_id=command.sequence_id,
            highest_sequence_id=command.highest_sequence_id,
            message_id=api.MessageIdData(ledgerId=topic.ledger if number >= 0 else NONE, entryId=number & NONE),
        )

    def _close_producer(self, command: Any) -> Any:
        self._drop_producer(command.producer_id)
        return api.CommandSuccess(request_id=command.request_id)

    def _drop_producer(self, producer_id: int) -> None:
        held = self.producers.pop(producer_id, None)
        if held is not None and held[0].producers.get(held[1]) is self:
            del held[0].producers[held[1]]
            held[0].alone = held[0].alone and bool(held[0].producers)

    # -- consumers --------------------------------------------------------------------------------------------------------

    def _subscribe(self, command: Any) -> Any:
        self._no_schema(command)
        topic = self._topic(command.topic, command.force_topic_creation)
        subscription = topic.subscriptions.get(command.subscription)
        if subscription is None:
            start = self._start(topic, command)
            subscription = Subscription(topic, command.subscription, command.subType, start, command.durable)
            topic.subscriptions[command.subscription] = subscription
        elif subscription.consumers:
            if subscription.kind != command.subType or not subscription.agrees(command.keySharedMeta):
                raise Refused(E.ConsumerBusy, "the subscription is in use with another type")
            if subscription.kind == EXCLUSIVE:
                raise Refused(E.ConsumerBusy, "the exclusive subscription has a consumer already")
        ranges = [(each.start, each.end) for each in command.keySharedMeta.hashRanges]
        consumer = Consumer(self, command.consumer_id, command.consumer_name, command.priority_level, ranges)
        if not subscription.consumers:
            subscription.begin(command.subType, command.keySharedMeta)
        try:
            subscription.add(consumer)
        except RangeTaken as why:
            raise Refused(E.ConsumerAssignError, str(why)) from why
        self.consumers[command.consumer_id] = (subscription, consumer)
        return api.CommandSuccess(request_id=command.request_id)

    @staticmethod
    def _start(topic: Topic, command: Any) -> int:
        if command.HasField("start_message_id"):
            return topic.position(command.start_message_id)
        if command.start_message_rollback_duration_sec:
            return topic.first_at(int(time.time() * 1000) - command.start_message_rollback_duration_sec * 1000)
        return 0 if command.initialPosition == api.CommandSubscribe.InitialPosition.Earliest else topic.end

    def _held(self, consumer_id: int) -> tuple[Subscription, Consumer]:
        held = self.consumers.get(consumer_id)
        if held is None:
            raise Refused(E.ConsumerNotFound, f"consumer {consumer_id} is not connected")
        return held

    def _flow(self, command: Any) -> None:
        subscription, consumer = self._held(command.consumer_id)
        consumer.permits += command.messagePermits
        subscription.dispatch()

    def _ack(self, command: Any) -> Any:
        subscription, consumer = self._held(command.consumer_id)
        transaction = transaction_of(command)
        answer = api.CommandAckResponse(consumer_id=command.consumer_id, request_id=command.request_id)
        if transaction is None:
            subscription.ack(consumer, command)
        else:
            self._need_transactions()
            answer.txnid_most_bits, answer.txnid_least_bits = transaction
            try:
                subscription.take(transaction, command)
            except Conflict as why:
                answer.error, answer.message = E.TransactionConflict, str(why)
        return answer if command.HasField("request_id") else None

    def _redeliver(self, command: Any) -> None:
        subscription, consumer = self._held(command.consumer_id)
        subscription.redeliver(consumer, command.message_ids)

    def _seek(self, command: Any) -> None:
        """Close the subscription's consumers, then answer, as a broker does: they come back and continue from there."""
        subscription, _ = self._held(command.consumer_id)
        topic = subscription.topic
        by_id = command.HasField("message_id")
        start = topic.position(command.message_id) if by_id else topic.first_at(command.message_publish_time)
        subscription.reset(start)
        if by_id and command.message_id.ack_set and start < topic.end:
            subscription.partial[start] = [word & (2**64 - 1) for word in command.message_id.ack_set]
        for each in list(subscription.consumers):
            each.session.drop_consumer(each.id, keep=True)
            each.session.send(api.CommandCloseConsumer(consumer_id=each.id, request_id=2**64 - 1))
        self.send(api.CommandSuccess(request_id=command.request_id))

    def _last_message_id(self, command: Any) -> Any:
        subscription, _ = self._held(command.consumer_id)
        topic = subscription.topic
        if topic.name.startswith("non-persistent:"):
            raise Refused(E.UnknownError, "Failed to recover Transaction Buffer.")  # what 4.2.4 says
        last = api.MessageIdData(ledgerId=NONE, entryId=NONE)
        number = topic.last()
        if number >= 0:
            batch = topic.facts[number].batch
            last = api.MessageIdData(ledgerId=topic.ledger, entryId=number, batch_index=batch - 1 if batch else -1)
        last.partition = self.partition(topic)
        mark = api.MessageIdData(ledgerId=topic.ledger, entryId=(subscription.mark - 1) & NONE)
        return api.CommandGetLastMessageIdResponse(request_id=command.request_id, last_message_id=last, consumer_mark_delete_position=mark)

    def _consumer_stats(self, command: Any) -> Any:
        subscription, consumer = self._held(command.consumer_id)
        return api.CommandConsumerStatsResponse(
            request_id=command.request_id,
            consumerName=consumer.name,
            availablePermits=max(consumer.permits, 0),
            unackedMessages=sum(consumer.pending.values()),
            blockedConsumerOnUnackedMsgs=False,
            address=self.connection.peer,
            connectedSince="",
            type=api.CommandSubscribe.SubType.Name(subscription.kind),
            msgBacklog=subscription.backlog,
        )

    def _unsubscribe(self, command: Any) -> Any:
        subscription, _ = self._held(command.consumer_id)
        if len(subscription.consumers) > 1:
            raise Refused(E.MetadataError, "other consumers use the subscription")
        self.drop_consumer(command.consumer_id)
        subscription.topic.forget(subscription.name)
        return api.CommandSuccess(request_id=command.request_id)

    def _close_consumer(self, command: Any) -> Any:
        self.drop_consumer(command.consumer_id)
        return api.CommandSuccess(request_id=command.request_id)

    def drop_consumer(self, consumer_id: int, keep: bool = False) -> None:
        """Drop a consumer.

        Args:
            keep: keep a subscription that is not durable although this was its last consumer, which is to come back.
        """
        held = self.consumers.pop(consumer_id, None)
        if held is None:
            return
        subscription, consumer = held
        subscription.remove(consumer)
        if subscription.kind == FAILOVER or subscription.consumers:
            subscription.dispatch()
        if not subscription.consumers and not subscription.durable and not keep:
            subscription.topic.forget(subscription.name)

    # -- schemas ----------------------------------------------------------------------------------------------------------

    def _get_schema(self, command: Any) -> Any:
        return api.CommandGetSchemaResponse(
            request_id=command.request_id, error_code=E.TopicNotFound, error_message="the dev broker keeps no schemas"
        )

    def _get_or_create_schema(self, command: Any) -> Any:
        self._no_schema(command)
        return api.CommandGetOrCreateSchemaResponse(request_id=command.request_id, schema_version=bytes(8))


def broker_entry_metadata(command: Any) -> bytes:
    """Return ``[0x0e02][u32 size][BrokerEntryMetadata]`` for an entry that is sent to a consumer."""
    data = api.BrokerEntryMetadata(broker_timestamp=int(time.time() * 1000), index=command.message_id.entryId).SerializeToString()
    return b"\x0e\x02" + len(data).to_bytes(4, "big") + data
