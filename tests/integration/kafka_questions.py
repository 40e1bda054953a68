"""One sensible request per Kafka API that a broker offers to clients, and the error codes that a broker on its own may answer.

`Questions` is a table: a method per API, named as Kafka names it, returns the fields in Apache Kafka's names; `fit` drops those that a
version lacks, so that one text serves every version. `EXPECTED` has the codes other than 0 that belong to the question: asked where the
feature is switched off, or about what is not there. May assume: one broker of one cluster, without SASL, ACLs and other load.
"""

from __future__ import annotations

import base64
import itertools
import uuid
from typing import Any

from wireproto.kafka import messages as m
from wireproto.message import fields_of

PRINCIPAL = {"principalType": "User", "principalName": "nobody"}
MEMBER = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_DNS, "member").bytes).decode().rstrip("=")
NODE = 1

# What a broker without SASL, ACLs and tokens says, and what it says of things that are not there.
EXPECTED: dict[str, set[int]] = {
    "SaslHandshake": {34},  # ILLEGAL_SASL_STATE: the listener has no SASL
    "SaslAuthenticate": {34},
    "LeaderAndIsr": {11},  # STALE_CONTROLLER_EPOCH: what only a controller may ask, which we are not
    "StopReplica": {11},
    "UpdateMetadata": {11},
    "ControlledShutdown": {8, 77},  # BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH
    "AlterPartition": {77},
    "AllocateProducerIds": {102},
    "DescribeAcls": {54},  # SECURITY_DISABLED
    "CreateAcls": {54},
    "DeleteAcls": {54},
    "CreateDelegationToken": {61, 64},  # DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    "RenewDelegationToken": {61, 64},
    "ExpireDelegationToken": {61, 64},
    "DescribeDelegationToken": {61, 64},
    "AlterReplicaLogDirs": {57},  # LOG_DIR_NOT_FOUND
    "ElectLeaders": {84},  # ELECTION_NOT_NEEDED
    "AlterPartitionReassignments": {85},  # NO_REASSIGNMENT_IN_PROGRESS: there was none to cancel
    "AlterUserScramCredentials": {91},  # RESOURCE_NOT_FOUND
    "UnregisterBroker": {102},  # BROKER_ID_NOT_REGISTERED
    "AddRaftVoter": {35, 42, 104, 126},  # a voter that is one already, in a cluster whose voters are fixed
    "RemoveRaftVoter": {35, 42, 104, 127},
    "DescribeTransactions": {105},  # TRANSACTIONAL_ID_NOT_FOUND
    "JoinGroup": {79},  # MEMBER_ID_REQUIRED: come again with this id
    "Heartbeat": {25},  # UNKNOWN_MEMBER_ID
    "SyncGroup": {25},
    "LeaveGroup": {25},
    "ConsumerGroupDescribe": {69},  # GROUP_ID_NOT_FOUND
    "ShareGroupDescribe": {69},
    "StreamsGroupDescribe": {69},
    "StreamsGroupTopologyDescriptionUpdate": {35},  # UNSUPPORTED_VERSION: the broker has no plugin for it
    "UnregisterController": {136},  # CONTROLLER_ID_NOT_REGISTERED
    "AlterShareGroupOffsets": {69},
    "DeleteShareGroupOffsets": {69},
    "DescribeGroups": {69},
    "DeleteGroups": {69},
    "OffsetDelete": {69},
}
KRAFT: dict[str, set[int]] = {"OffsetCommit": {35}, "OffsetFetch": {35}}  # version 0 keeps offsets in ZooKeeper, which is not there
ZOOKEEPER: dict[str, set[int]] = {"ConsumerGroupHeartbeat": {35}, "ConsumerGroupDescribe": {35}}  # groups of the new kind need KRaft
CLOSES = {"Envelope"}  # not for clients: the broker ends the connection


def fit(cls: type[Any], fields: Any, version: int) -> Any:
    """The fields without those that this version of the message does not have."""
    if not isinstance(fields, dict):
        return fields
    known = {field.vendor: field for field in fields_of(cls) if field.versions[0] <= version <= field.versions[1]}
    return {name: _fit_value(known[name].type, value, version) for name, value in fields.items() if name in known}


def _fit_value(kind: str, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_fit_value(kind[1:-1], item, version) for item in value]
    return fit(getattr(m, kind), value, version) if isinstance(value, dict) else value


class Questions:
    """The fields of one request per API.

    Args:
        topic: a topic of one partition with a record in it, led by node 1.
        topic_id: its id as Kafka's JSON has it.
        records: a record batch, base64, in the format that a version of Produce takes.
    """

    def __init__(self, topic: str, topic_id: str, records: Any) -> None:
        self.topic, self.topic_id, self.records = topic, topic_id, records
        self._numbers = itertools.count()
        self.producer = (-1, -1)
        self.made: list[str] = []

    def fresh(self, what: str) -> str:
        return f"{self.topic}-{what}-{next(self._numbers)}"

    def _place(self, name: str = "name", **more: Any) -> dict[str, Any]:
        return {name: self.topic, "topicId": self.topic_id, **more}

    def produce(self, version: int) -> dict[str, Any]:
        return {"acks": -1, "timeoutMs": 30_000, "topicData": [self._place(partitionData=[{"index": 0, "records": self.records(version)}])]}

    def fetch(self, version: int) -> dict[str, Any]:
        part = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20, "currentLeaderEpoch": -1}
        return {"maxWaitMs": 100, "minBytes": 1, "topics": [self._place("topic", partitions=[part])]}

    def list_offsets(self, version: int) -> dict[str, Any]:
        return {"replicaId": -1, "topics": [{"name": self.topic, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]}

    def metadata(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic}]}

    def leader_and_isr(self, version: int) -> dict[str, Any]:
        return {"controllerId": NODE, "controllerEpoch": 0, "brokerEpoch": -1}

    stop_replica = update_metadata = leader_and_isr

    def controlled_shutdown(self, version: int) -> dict[str, Any]:
        return {"brokerId": 99}

    def alter_partition(self, version: int) -> dict[str, Any]:
        return {"brokerId": 99}

    def allocate_producer_ids(self, version: int) -> dict[str, Any]:
        return {"brokerId": 99}

    def envelope(self, version: int) -> dict[str, Any]:
        return {"requestData": "AAAA", "requestPrincipal": None, "clientHostAddress": "fwAAAQ=="}

    def offset_commit(self, version: int) -> dict[str, Any]:
        part = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": "m"}
        return {"groupId": self.topic, "topics": [self._place(partitions=[part])]}

    def offset_fetch(self, version: int) -> dict[str, Any]:
        topics = [self._place(partitionIndexes=[0])]
        return {"groupId": self.topic, "topics": topics, "groups": [{"groupId": self.topic, "topics": topics}]}

    def find_coordinator(self, version: int) -> dict[str, Any]:
        return {"key": self.topic, "keyType": 0, "coordinatorKeys": [self.topic]}

    def join_group(self, version: int) -> dict[str, Any]:
        protocol = {"name": "range", "metadata": "AAAAAAAAAAAAAA=="}
        return {
            "groupId": self.fresh("group"),
            "sessionTimeoutMs": 6000,
            "rebalanceTimeoutMs": 1000,
            "memberId": "",
            "protocolType": "consumer",
            "protocols": [protocol],
        }

    def heartbeat(self, version: int) -> dict[str, Any]:
        return {"groupId": self.topic, "generationId": 1, "memberId": "nobody"}

    def leave_group(self, version: int) -> dict[str, Any]:
        return {"groupId": self.topic, "memberId": "nobody", "members": [{"memberId": "nobody"}]}

    def sync_group(self, version: int) -> dict[str, Any]:
        return {"groupId": self.topic, "generationId": 1, "memberId": "nobody", "protocolType": "consumer", "protocolName": "range"}

    def describe_groups(self, version: int) -> dict[str, Any]:
        return {"groups": [self.topic]}

    def list_groups(self, version: int) -> dict[str, Any]:
        return {}

    def sasl_handshake(self, version: int) -> dict[str, Any]:
        return {"mechanism": "PLAIN"}

    def api_versions(self, version: int) -> dict[str, Any]:
        return {"clientSoftwareName": "test", "clientSoftwareVersion": "1"}

    def create_topics(self, version: int) -> dict[str, Any]:
        self.made.append(self.fresh("made"))
        return {"topics": [{"name": self.made[-1], "numPartitions": 1, "replicationFactor": 1}]}

    def delete_topics(self, version: int) -> dict[str, Any]:
        name = self.made.pop()
        return {"topics": [{"name": name}], "topicNames": [name], "timeoutMs": 30_000}

    def delete_records(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic, "partitions": [{"partitionIndex": 0, "offset": 0}]}], "timeoutMs": 30_000}

    def init_producer_id(self, version: int) -> dict[str, Any]:
        return {"transactionalId": self.topic, "transactionTimeoutMs": 9000}

    def offset_for_leader_epoch(self, version: int) -> dict[str, Any]:
        return {"replicaId": -1, "topics": [{"topic": self.topic, "partitions": [{"partition": 0, "leaderEpoch": 0}]}]}

    def _transaction(self, prefix: str = "") -> dict[str, Any]:
        names = ("transactionalId", "producerId", "producerEpoch")
        values = (self.topic, *self.producer)
        return {(prefix + name[0].upper() + name[1:] if prefix else name): value for name, value in zip(names, values, strict=True)}

    def add_partitions_to_txn(self, version: int) -> dict[str, Any]:
        topics = [{"name": self.topic, "partitions": [0]}]
        old = self._transaction("v3AndBelow") | {"v3AndBelowTopics": topics}
        return {"transactions": [self._transaction() | {"verifyOnly": False, "topics": topics}], **old}

    def add_offsets_to_txn(self, version: int) -> dict[str, Any]:
        return self._transaction() | {"groupId": self.topic}

    def txn_offset_commit(self, version: int) -> dict[str, Any]:
        part = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": None}
        return self._transaction() | {"groupId": self.topic, "topics": [self._place(partitions=[part])]}

    def end_txn(self, version: int) -> dict[str, Any]:
        return self._transaction() | {"committed": True}

    def write_txn_markers(self, version: int) -> dict[str, Any]:
        return {"markers": []}

    def describe_acls(self, version: int) -> dict[str, Any]:
        return {"resourceTypeFilter": 1, "resourceNameFilter": None, "operation": 1, "permissionType": 1}

    def create_acls(self, version: int) -> dict[str, Any]:
        rule = {"resourceType": 2, "resourceName": self.topic, "principal": "User:a", "host": "*", "operation": 3, "permissionType": 3}
        return {"creations": [rule]}

    def delete_acls(self, version: int) -> dict[str, Any]:
        return {"filters": [{"resourceTypeFilter": 2, "resourceNameFilter": self.topic, "operation": 1, "permissionType": 1}]}

    def describe_configs(self, version: int) -> dict[str, Any]:
        return {"resources": [{"resourceType": 2, "resourceName": self.topic, "configurationKeys": None}]}

    def alter_configs(self, version: int) -> dict[str, Any]:
        setting = {"name": "retention.ms", "value": "-1"}
        return {"resources": [{"resourceType": 2, "resourceName": self.topic, "configs": [setting]}], "validateOnly": True}

    def incremental_alter_configs(self, version: int) -> dict[str, Any]:
        setting = {"name": "retention.ms", "configOperation": 0, "value": "-1"}
        return {"resources": [{"resourceType": 2, "resourceName": self.topic, "configs": [setting]}], "validateOnly": True}

    def alter_replica_log_dirs(self, version: int) -> dict[str, Any]:
        return {"dirs": [{"path": "/no-such-folder", "topics": [{"name": self.topic, "partitions": [0]}]}]}

    def describe_log_dirs(self, version: int) -> dict[str, Any]:
        return {"topics": [{"topic": self.topic, "partitions": [0]}]}

    def sasl_authenticate(self, version: int) -> dict[str, Any]:
        return {"authBytes": "AGEAYg=="}

    def create_partitions(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic, "count": 2, "assignments": None}], "timeoutMs": 30_000, "validateOnly": True}

    def create_delegation_token(self, version: int) -> dict[str, Any]:
        return {"renewers": [PRINCIPAL], "maxLifetimeMs": -1}

    def renew_delegation_token(self, version: int) -> dict[str, Any]:
        return {"hmac": "AAAA", "renewPeriodMs": -1}

    def expire_delegation_token(self, version: int) -> dict[str, Any]:
        return {"hmac": "AAAA", "expiryTimePeriodMs": -1}

    def describe_delegation_token(self, version: int) -> dict[str, Any]:
        return {"owners": [PRINCIPAL]}

    def delete_groups(self, version: int) -> dict[str, Any]:
        return {"groupsNames": [self.fresh("no-group")]}

    def elect_leaders(self, version: int) -> dict[str, Any]:
        return {"topicPartitions": [{"topic": self.topic, "partitions": [0]}], "timeoutMs": 30_000}

    def alter_partition_reassignments(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic, "partitions": [{"partitionIndex": 0, "replicas": None}]}]}

    def list_partition_reassignments(self, version: int) -> dict[str, Any]:
        return {"topics": None}

    def offset_delete(self, version: int) -> dict[str, Any]:
        return {"groupId": self.fresh("no-group"), "topics": [{"name": self.topic, "partitions": [{"partitionIndex": 0}]}]}

    def describe_client_quotas(self, version: int) -> dict[str, Any]:
        return {"components": [{"entityType": "user", "matchType": 0, "match": "a"}]}

    def alter_client_quotas(self, version: int) -> dict[str, Any]:
        entry = {
            "entity": [{"entityType": "user", "entityName": "a"}],
            "ops": [{"key": "request_percentage", "value": 12.5, "remove": False}],
        }
        return {"entries": [entry], "validateOnly": True}

    def describe_user_scram_credentials(self, version: int) -> dict[str, Any]:
        return {"users": None}

    def alter_user_scram_credentials(self, version: int) -> dict[str, Any]:
        return {"deletions": [{"name": "nobody", "mechanism": 1}]}

    def describe_quorum(self, version: int) -> dict[str, Any]:
        return {"topics": [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]}

    def update_features(self, version: int) -> dict[str, Any]:
        return {"featureUpdates": [], "validateOnly": True}

    def describe_cluster(self, version: int) -> dict[str, Any]:
        return {}

    def describe_producers(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic, "partitionIndexes": [0]}]}

    def unregister_broker(self, version: int) -> dict[str, Any]:
        return {"brokerId": 99}

    def unregister_controller(self, version: int) -> dict[str, Any]:
        return {"controllerId": 99}

    def describe_transactions(self, version: int) -> dict[str, Any]:
        return {"transactionalIds": [self.fresh("no-transaction")]}

    def list_transactions(self, version: int) -> dict[str, Any]:
        return {}

    def consumer_group_heartbeat(self, version: int) -> dict[str, Any]:
        return {
            "groupId": self.fresh("group"),
            "memberId": MEMBER,
            "memberEpoch": 0,
            "rebalanceTimeoutMs": 1000,
            "subscribedTopicNames": [self.topic],
            "topicPartitions": [],
        }

    def consumer_group_describe(self, version: int) -> dict[str, Any]:
        return {"groupIds": [self.fresh("no-group")]}

    def get_telemetry_subscriptions(self, version: int) -> dict[str, Any]:
        return {}

    def push_telemetry(self, version: int) -> dict[str, Any]:
        return {"clientInstanceId": MEMBER, "subscriptionId": 1}

    def list_config_resources(self, version: int) -> dict[str, Any]:
        return {}

    def describe_topic_partitions(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic}]}

    def share_group_heartbeat(self, version: int) -> dict[str, Any]:
        self.share = self.fresh("share")  # the session that share_fetch opens and share_acknowledge goes on with
        self._epochs = itertools.count(1)
        return {"groupId": self.share, "memberId": MEMBER, "memberEpoch": 0, "subscribedTopicNames": [self.topic]}

    def share_group_describe(self, version: int) -> dict[str, Any]:
        return {"groupIds": [self.fresh("no-group")]}

    def share_fetch(self, version: int) -> dict[str, Any]:
        topics = [{"topicId": self.topic_id, "partitions": [{"partitionIndex": 0}]}]
        member = {"groupId": self.share, "memberId": MEMBER, "shareSessionEpoch": 0}
        return {**member, "maxWaitMs": 100, "minBytes": 1, "maxRecords": 10, "batchSize": 10, "topics": topics}

    def share_acknowledge(self, version: int) -> dict[str, Any]:
        return {"groupId": self.share, "memberId": MEMBER, "shareSessionEpoch": next(self._epochs)}

    def _voter(self) -> dict[str, Any]:
        return {"clusterId": None, "timeoutMs": 1000, "voterId": 99, "voterDirectoryId": MEMBER}

    def add_raft_voter(self, version: int) -> dict[str, Any]:
        return self._voter() | {"listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 9}]}

    def remove_raft_voter(self, version: int) -> dict[str, Any]:
        return self._voter()

    def _state(self, **more: Any) -> dict[str, Any]:
        return {"groupId": self.topic, "topics": [{"topicId": self.topic_id, "partitions": [{"partition": 0, **more}]}]}

    def initialize_share_group_state(self, version: int) -> dict[str, Any]:
        return self._state(stateEpoch=1, startOffset=0)

    def read_share_group_state(self, version: int) -> dict[str, Any]:
        return self._state(leaderEpoch=1)

    def write_share_group_state(self, version: int) -> dict[str, Any]:
        batch = {"firstOffset": 0, "lastOffset": 0, "deliveryState": 2, "deliveryCount": 1}
        return self._state(stateEpoch=1, leaderEpoch=1, startOffset=0, stateBatches=[batch])

    def read_share_group_state_summary(self, version: int) -> dict[str, Any]:
        return self._state(leaderEpoch=1)

    def delete_share_group_state(self, version: int) -> dict[str, Any]:
        return self._state()

    def streams_group_heartbeat(self, version: int) -> dict[str, Any]:
        part = {"subtopologyId": "0", "sourceTopics": [self.topic]}
        return {
            "groupId": self.fresh("streams"),
            "memberId": MEMBER,
            "rebalanceTimeoutMs": 1000,
            "topology": {"epoch": 0, "subtopologies": [part]},
            "activeTasks": [],
            "standbyTasks": [],
            "warmupTasks": [],
            "processId": "p",
            "clientTags": [],
        }

    def streams_group_describe(self, version: int) -> dict[str, Any]:
        return {"groupIds": [self.fresh("no-group")]}

    def streams_group_topology_description_update(self, version: int) -> dict[str, Any]:
        node = {"name": "source", "nodeType": 0, "sourceTopics": [self.topic], "sinkTopic": None, "stores": [], "successors": []}
        description = {"subtopologies": [{"subtopologyId": "0", "nodes": [node]}], "globalStores": []}
        return {"groupId": self.fresh("no-group"), "memberId": MEMBER, "topologyEpoch": 0, "topologyDescription": description}

    def describe_share_group_offsets(self, version: int) -> dict[str, Any]:
        return {"groups": [{"groupId": self.fresh("no-group"), "topics": None}]}

    def alter_share_group_offsets(self, version: int) -> dict[str, Any]:
        part = {"partitionIndex": 0, "startOffset": 0}
        return {"groupId": self.fresh("no-group"), "topics": [{"topicName": self.topic, "partitions": [part]}]}

    def delete_share_group_offsets(self, version: int) -> dict[str, Any]:
        return {"groupId": self.fresh("no-group"), "topics": [{"topicName": self.topic}]}
