"""What the vendor's client does otherwise than ours at a step with a fault: facts, printed beside and beneath the rows of docs/faults.md.

What it is: `VENDORS`, by protocol: which client was read, what is alike, and the differences, each with the class that decides it. They
were read in the vendor's sources of the version named, with its defaults; *run* says that the client was also run against the page's peers
or the embedded broker. May assume: the names of steps and faults that `cells` gives. Must not: tell what no row is about (`stray` names
what a difference points at in vain).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Row = tuple[str, str]
"""A step and a fault."""

CUTS = ("cut before it", "cut behind it", "half of the answer")
BROKEN = "a byte changed"
BARGE_IN = ("an HTTP answer", "a TLS alert")


@dataclass(frozen=True)
class Difference:
    """Args:
    steps: of the rows concerned, each as the table has it.
    faults: of these rows; empty: every fault of the steps. A pair that is no row is passed over, a name without any row is an error.
    does: what the vendor's client does there.
    where: the class that decides it.
    """

    steps: tuple[str, ...]
    faults: tuple[str, ...]
    does: str
    where: str

    def concerns(self, row: Row) -> bool:
        return row[0] in self.steps and (not self.faults or row[1] in self.faults)


@dataclass(frozen=True)
class Vendor:
    """A client, what it has in common with ours, and what not."""

    name: str
    alike: str
    differences: tuple[Difference, ...] = field(default_factory=tuple)

    def marks(self, row: Row) -> str:
        """The numbers of the differences that concern a row."""
        return ", ".join(str(number) for number, one in enumerate(self.differences, 1) if one.concerns(row))

    def beneath(self) -> str:
        """What stands beneath the table."""
        lines = [
            f"| {number} | {brief(one.steps)} | {', '.join(one.faults) or 'every fault'} | {one.does} | {one.where} |"
            for number, one in enumerate(self.differences, 1)
        ]
        head = "| vendor | step | fault | what its client does | decided in |\n|---|---|---|---|---|\n"
        return f"### Beside it: {self.name}\n\n{self.alike}\n\n{head}" + "\n".join(lines) + "\n"

    def stray(self, rows: Iterable[Row]) -> list[str]:
        """What its differences name and no row has."""
        known = set(rows)
        return [
            f"{number}: {name}"
            for number, one in enumerate(self.differences, 1)
            for place, names in enumerate((one.steps, one.faults))
            for name in names
            if not any(row[place] == name and one.concerns(row) for row in known)
        ]


def brief(steps: Iterable[str]) -> str:
    """What is asked at these steps, each thing once: the rows tell the rest."""
    return ", ".join(dict.fromkeys(step.rpartition(": ")[2] for step in steps))


ADMINISTRATION = (
    Difference(
        ("admin: grow: CreatePartitions", "admin: settings: DescribeConfigs"),
        (*CUTS, "code 3", "code 7", "code 41", "code 89"),
        "tried again until `default.api.timeout.ms` (60 s) is over where the connection was lost, the controller was another, or a quota"
        " was used up; at code 3 and 7 raises at once. Ours go by `client.request`, whose answer, codes and all, is the caller's",
        "KafkaAdminClient.Call.fail, getCreatePartitionsCall, describeConfigs",
    ),
    Difference(
        ("admin: make: CreateTopics", "admin: delete: DeleteTopics"),
        ("code 7",),
        "raises at once: a code of one topic, but for that of a quota, is its caller's",
        "KafkaAdminClient.getCreateTopicsCall, getDeleteTopicsCall",
    ),
    Difference(
        ("admin: commit: OffsetCommit",),
        ("code 27",),
        "tried again",
        "AlterConsumerGroupOffsetsHandler.handleError",
    ),
    Difference(
        ("admin: ends: ListOffsets",),
        ("code -1",),
        "raises at once",
        "ListOffsetsHandler.handlePartitionError",
    ),
)
KAFKA = Vendor(
    "kafka-clients 4.3.1 (Java: KafkaProducer, idempotent; KafkaConsumer, classic groups; Admin)",
    "Alike: where there is no number a step goes on, is tried again as long as there is time, or raises at once as ours does; which codes"
    " mean a new leader, a new coordinator or a new join is the same.",
    (
        Difference(
            ("connect", "TLS"),
            ("refused", "reset", "end of stream"),
            "connects again, with a pause that grows, until the call's time is over (`max.block.ms`, 60 s); then a TimeoutException that"
            " says the topic is not in the metadata and not why. TLS: run",
            "NetworkClient, SslTransportLayer.handshake",
        ),
        Difference(
            ("first request",),
            BARGE_IN,
            "takes the first four bytes for a length, without a limit (1.2 GB, 352 MB), and asks for that much memory. Run with a heap of"
            " 256 MB: it never connected again, and a TimeoutException told that the topic is not in the metadata",
            "NetworkReceive.readFrom",
        ),
        Difference(
            ("first request",),
            ("a frame of zeros",),
            "raises at once as well, but UnsupportedVersionException: what it read is a node that serves no Metadata. Run",
            "NetworkClient.handleApiVersionsResponse",
        ),
        Difference(
            ("log in: SaslHandshake", "log in: SaslAuthenticate"),
            CUTS,
            "is logged, and tried again as any lost connection, until the call's time is over. Ours is a refusal as long as nothing has"
            " ever worked: brokers hang up on whom they do not know",
            "NetworkClient.processDisconnection",
        ),
        Difference(
            ("producer id: InitProducerId",),
            ("code 31", "code 53"),
            "what waits to be sent fails with it, then the id is asked for again: refused once, before anything waited, the first send"
            " goes on. Run",
            "Sender.shouldHandleAuthorizationError",
        ),
        Difference(
            ("send: Produce",),
            (BROKEN,),
            "an answer that it cannot read is logged by the sender's thread and dropped, the connection stays; the record is not sent"
            " again, and fails with TimeoutException after `delivery.timeout.ms` (2 min). Run",
            "NetworkClient.handleCompletedReceives, Sender.run",
        ),
        Difference(
            ("send: Produce",),
            ("code 47",),
            "is not tried again: the record fails with InvalidProducerEpochException, and what follows has the next epoch. Run",
            "TransactionManager.canRetry, handleFailedBatch",
        ),
        Difference(
            ("send: Produce",),
            ("code 46",),
            "the future is fulfilled, with -1 for an offset: the record is there. To our `flush` it is stored as well; who asks for its"
            " position is told that nobody knows it",
            "Sender.completeBatch",
        ),
        Difference(
            ("read: its ends: ListOffsets",),
            ("code 43",),
            "counts as an answer that found no offset: nothing is raised, it asks again. Run",
            "OffsetFetcherUtils.handleListOffsetResponse",
        ),
        Difference(
            ("read: Fetch",),
            ("code 1",),
            "goes to where `auto.offset.reset` says, the end by default, and says so in its log only; it raises with `none`. Run with"
            " `earliest`",
            "FetchCollector.handleInitializeErrors",
        ),
        Difference(
            ("read: Fetch",),
            ("code 5",),
            "a code that it does not expect here: poll raises IllegalStateException. Run",
            "FetchCollector.handleInitializeErrors",
        ),
        Difference(
            ("group: join: JoinGroup", "group: share: SyncGroup"),
            ("code 22", "code 25", "code 27", "code 79"),
            "joins again without a pause, as often as it is told so",
            "AbstractCoordinator.joinGroupIfNeeded",
        ),
        Difference(
            ("group: share: SyncGroup",),
            ("silence",),
            "poll raises CorrelationIdMismatchException as soon as something later is answered on that connection, and so does close. Run",
            "NetworkClient.parseResponse",
        ),
        Difference(
            ("group: share: SyncGroup",),
            ("code 14",),
            "a code that it does not expect here: poll raises KafkaException. Run",
            "AbstractCoordinator.SyncGroupResponseHandler",
        ),
        Difference(
            ("group: places: OffsetFetch",),
            ("code 3", "code 15", "code 100"),
            "codes that it does not expect here, or takes for the end: poll raises KafkaException",
            "ConsumerCoordinator.OffsetFetchResponseHandler",
        ),
        Difference(
            ("group: commit: OffsetCommit",),
            ("code 27",),
            "raises RebalanceInProgressException: what is kept over the rebalance may be committed again after the next poll. Run",
            "ConsumerCoordinator.OffsetCommitResponseHandler",
        ),
        *ADMINISTRATION,
    ),
)
SUBSCRIBES = ("read: subscribe: subscribe", "group: subscribe: subscribe", "queue: subscribe: subscribe")
PULSAR = Vendor(
    "pulsar-client 4.2.4 (Java: Producer; Reader; Consumer, Failover and Shared)",
    "Alike: where there is no number. An error of a SEND opens the producer again and sends what is unacknowledged once more; cut"
    " connections are made again with what was on them; refusals for rights, for missing topics and for a busy producer or consumer are"
    " raised at once.",
    (
        Difference(
            ("connect", "TLS", "first request"),
            ("refused", "reset", "end of stream", "plain text", "a frame of zeros", *BARGE_IN),
            "whatever a connection fails by is tried again, with a pause that grows, for `operationTimeout` (30 s); then the last error"
            " is raised",
            "PulsarClientImpl.getPartitionedTopicMetadata, PulsarClientException.isRetriableError",
        ),
        Difference(
            ("handshake: connect", "partitions: partitionMetadata", "look-up: lookupTopic", "producer: producer"),
            (BROKEN,),
            "an answer that it cannot read closes the connection, and the request is made again as after a cut",
            "ClientCnx.exceptionCaught",
        ),
        Difference(
            ("partitions: partitionMetadata", "look-up: lookupTopic", "producer: producer", *SUBSCRIBES),
            ("code 17",),
            "tried again for `operationTimeout`: what is not named among the final errors is retriable, and this code has no class of its"
            " own",
            "PulsarClientException.isRetriableError, ClientCnx.getPulsarClientException",
        ),
        Difference(
            ("look-up: lookupTopic", "producer: producer", *SUBSCRIBES),
            ("code 3",),
            "tried again for `operationTimeout`: of credentials that are refused only a question for partitions takes notice",
            "PulsarClientException.isRetriableError, PulsarClientImpl.getPartitionedTopicMetadata",
        ),
        Difference(
            SUBSCRIBES,
            ("code 15",),
            "tried again for `operationTimeout`: a terminated topic is final to producers alone",
            "PulsarClientException.isRetriableError, ConsumerImpl.connectionOpened",
        ),
        Difference(
            ("handshake: connect",),
            ("code 4", "code 10"),
            "passed over: the connection's end, which follows, is tried again as any",
            "ClientCnx.handleError",
        ),
        Difference(
            ("producer: producer",),
            ("code 8",),
            "what waits to be sent fails at once, but a producer that is being created is tried for `operationTimeout`",
            "ProducerImpl.connectionOpened",
        ),
        Difference(
            ("send: send",),
            ("code 25",),
            "opens the producer again and sends again; the refusal of that opening is what ends it",
            "ClientCnx.handleSendError",
        ),
        Difference(
            ("read: its end: getLastMessageId",),
            (*CUTS, BROKEN, "code 1", "code 2", "code 6", "code 13"),
            "raised at once, also a connection that is lost meanwhile; only one that is not there yet is waited for",
            "ConsumerImpl.internalGetLastMessageIdAsync",
        ),
        Difference(
            ("group: commit: ack", "queue: acknowledge: ack"),
            (),
            "asks for no answer by default (`isAckReceiptEnabled`) and gathers acks for 100 ms: nothing of this is noticed, a lost ack is"
            " a message that comes again. With receipts an error is raised, and not tried again",
            "PersistentAcknowledgmentsGroupingTracker, ConsumerConfigurationData",
        ),
        Difference(
            ("unasked: active_consumer_change",),
            ("never comes",),
            "reads on: the word is for a listener only",
            "ConsumerImpl.activeConsumerChanged",
        ),
        Difference(
            ("close: close_producer", "group: leave: close_consumer", "queue: leave: close_consumer"),
            ("silence", "code 0", "code 6"),
            "close raises what the broker said, or TimeoutException after `operationTimeout`, as long as the connection stands",
            "ProducerImpl.closeAsync, ConsumerImpl.closeAsync",
        ),
        Difference(
            ("come back: producer: producer",),
            ("code 8",),
            "what waits fails, and the producer itself is opened again, for ever",
            "ProducerImpl.connectionOpened",
        ),
    ),
)
OFFSETS = ("read: its beginning: GetMinOffset", "read: its end: GetMaxOffset")
PLACES = ("group: places: QueryConsumerOffset", "queue: places: QueryConsumerOffset")
MEMBERS = ("group: members: GetConsumerListByGroup", "queue: members: GetConsumerListByGroup")
COMMITS = ("group: commit: UpdateConsumerOffset", "queue: acknowledge: UpdateConsumerOffset")
ROCKETMQ = Vendor(
    "rocketmq-client 5.5.0 (Java: DefaultMQProducer, its synchronous send; DefaultLitePullConsumer; DefaultMQPushConsumer)",
    "Alike: where there is no number. Members are counted again until it works, leaving does not wait for a good answer, a pull that"
    " failed is made again. Unlike ours in kind: a consumer hears of nothing, its log has it all.",
    (
        Difference(
            ("connect", "TLS", "first request", "route: GetRouteInfoByTopic"),
            (),
            "`start()` succeeds; a send asks for its topic's route, then for that of the default topic, and raises MQClientException (no"
            " route info of this topic): the cause is in the log. Consumers look again every 30 s and raise nothing",
            "DefaultMQProducerImpl.tryToFindTopicPublishInfo, MQClientInstance.updateTopicRouteInfoFromNameServer",
        ),
        Difference(
            ("handshake: HeartBeat",),
            (*CUTS, "silence", BROKEN, "code 16"),
            "no send waits for a heartbeat: a failure is logged, the next beat comes 30 s later",
            "MQClientInstance.sendHeartbeatToBroker",
        ),
        Difference(
            ("send: SendMessageV2",),
            (*CUTS, BROKEN, "code 1", "code 2", "code 14", "code 16", "code 17", "code 204", "code 205", "code 1500"),
            "tried twice more, without a pause, all within `sendMsgTimeout` (3 s), then raised",
            "DefaultMQProducerImpl.sendDefaultImpl, DefaultMQProducer (retryResponseCodes)",
        ),
        Difference(
            ("send: SendMessageV2",),
            ("silence",),
            "the first try waits as long as the whole send may take, so there is no second (`sendMsgMaxTimeoutPerRequest` is not set)",
            "DefaultMQProducerImpl.sendDefaultImpl",
        ),
        Difference(
            ("send: SendMessageV2",),
            ("code 10", "code 11", "code 12"),
            "returns a SendResult with that for its status, and a position: the message is stored. To another broker it goes only with"
            " `retryAnotherBrokerWhenNotStoreOK`, off by default",
            "MQClientAPIImpl.processSendResponse, DefaultMQProducerImpl.sendDefaultImpl",
        ),
        Difference(
            OFFSETS,
            (*CUTS, "silence", BROKEN, "code 2"),
            "asked once: MQClientException to who asked. A consumer that needs it to begin logs that and asks again later",
            "MQAdminImpl.maxOffset, minOffset",
        ),
        Difference(
            ("read: PullMessage",),
            (BROKEN, "code 1", "code 16", "code 24", "code 25", "code 26", "code 215"),
            "logged, and pulled again after a pause (1 s; 20 ms at 215), for ever: polls are given nothing and told nothing",
            "DefaultLitePullConsumerImpl.PullTaskImpl, DefaultMQPushConsumerImpl.pullMessage",
        ),
        Difference(
            PLACES,
            (BROKEN, "code 1", "code 16"),
            "logged, and asked again later; the queue is not read until then",
            "RemoteBrokerOffsetStore.readOffset",
        ),
        Difference(
            MEMBERS,
            (BROKEN,),
            "logged, and asked again when the group is shared out the next time (20 s)",
            "MQClientInstance.findConsumerIdList",
        ),
        Difference(
            COMMITS,
            (),
            "sent one-way: no answer is waited for, no error is noticed, and a commit that is lost is made good by the next",
            "RemoteBrokerOffsetStore.updateConsumeOffsetToBroker",
        ),
        Difference(
            ("topic's policy: GetTopicConfig",),
            (),
            "not asked: a record without a key is sent to a compacted topic all the same",
            "DefaultMQProducerImpl",
        ),
        Difference(
            ("queue: give back: ConsumerSendMsgBack",),
            (),
            "whatever fails, the consumer sends a copy to the retry topic by itself; where that fails, too, it tries again 5 s later",
            "DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageConcurrentlyService.processConsumeResult",
        ),
        Difference(
            ("unasked: NotifyConsumerIdsChanged",),
            (BROKEN,),
            "the connection is closed, what was under way on it is logged and made again; nothing is raised",
            "NettyDecoder, NettyRemotingClient",
        ),
    ),
)
ZOOKEEPER_REQUESTS = (
    "make the queue: exists",
    "send: create",
    "read: names: getChildren2",
    "read: getData",
    "queue: names: getChildren2",
    "queue: claim: create",
    "queue: take: getData",
    "queue: acknowledge: multi",
)
KEPT_READS = ("keep: read: getData", "keep: look: exists", "keep: lasting watch: addWatch", "keep: watch taken back: removeWatches")
KEPT_WRITES = ("keep: write: setData", "keep: delete: delete")
ZOOKEEPER = Vendor(
    "zookeeper 3.9.5 (Java: ZooKeeper; it has no producer, reader or queue: compared is the call that a step consists of)",
    "Alike: where there is no number. A code is raised as the exception of that code, at once, and what is made of it is the caller's"
    " (ours: the role's), but for NoNode of `exists`, which is null; the session goes on over a new connection with its watches; closing"
    " does not fail.",
    (
        Difference(
            ("connect", "TLS", "first request"),
            ("refused", "plain text", "a frame of zeros", *BARGE_IN),
            "is logged, and the next server tried, for ever; each failed attempt ends the calls that wait with ConnectionLossException,"
            " which does not say why",
            "ClientCnxn.SendThread, ClientCnxnSocket.readLength",
        ),
        Difference(
            (
                *("TLS", "first request", "handshake: createSession", *ZOOKEEPER_REQUESTS, *KEPT_READS),
                *("keep: come back: createSession", "keep: watches again: setWatches", "unasked: notification"),
            ),
            (*CUTS, "cut in the middle", "reset", "end of stream"),
            "every call that is under way or waits ends with ConnectionLossException: to ask again, and whether a write was done, is the"
            " caller's",
            "ClientCnxn.SendThread.cleanup, conLossPacket",
        ),
        Difference(
            (
                *("TLS", "first request", "handshake: createSession"),
                *("sends: connection", "reads: connection", "works: connection", "keeps: connection"),
            ),
            ("silence", "half a frame, then silence", "half-open"),
            "noticed after two thirds of the session's time (while connecting: after that time shared out among the servers); then"
            " ConnectionLossException as for a cut",
            "ClientCnxn.SendThread",
        ),
        Difference(
            (*ZOOKEEPER_REQUESTS, *KEPT_READS, *KEPT_WRITES, "close: closeSession"),
            ("silence",),
            "waits without a limit as long as pings are answered (`zookeeper.request.timeout` is 0), or until the answer to a later"
            " request is there: out of order, so the connection is given up",
            "ClientCnxn.submitRequest, SendThread.readResponse",
        ),
        Difference(
            (*KEPT_READS, *KEPT_WRITES),
            ("code -4", "code -118", "code -127"),
            "raised at once: to ask again is the caller's",
            "ZooKeeper",
        ),
        Difference(
            ("keep: identity: auth",),
            (*CUTS, "silence", "code -4", "code -124"),
            "`addAuthInfo` does not wait, and hears of no answer but -115; each connection is given the identity anew",
            "ZooKeeper.addAuthInfo, ClientCnxn.SendThread.readResponse",
        ),
        Difference(
            ("keep: identity: auth",),
            ("code -115",),
            "ends the client: every later call raises AuthFailedException",
            "ClientCnxn.SendThread.readResponse, conLossPacket",
        ),
        Difference(
            ("keep: come back: createSession",),
            ("code -112",),
            "the same, and ends the client: whoever goes on makes another one",
            "ClientCnxn.SendThread.onConnected",
        ),
        Difference(
            ("keep: watches again: setWatches",),
            ("code -112", "code -118", "code -127", "silence"),
            "nobody waits for the answer: the session goes on, without its watches where the server has set none",
            "ClientCnxn.SendThread.primeConnection",
        ),
        Difference(
            ("keep: watch taken back: removeWatches",),
            ("code -121",),
            "raises NoWatcherException, also where the watch has fired meanwhile",
            "ZooKeeper.removeAllWatches, ClientCnxn.finishPacket",
        ),
        Difference(
            ("keep: ping: ping",),
            ("code -112", "code -124"),
            "not looked at: where the server hangs up behind it, every connection ends so, for ever",
            "ClientCnxn.SendThread.readResponse",
        ),
    ),
)
VENDORS = {"kafka": KAFKA, "pulsar": PULSAR, "rocketmq": ROCKETMQ, "zookeeper": ZOOKEEPER}
