"""Serves the requests about topics: Metadata, CreateTopics, CreatePartitions, DeleteTopics, DescribeConfigs, DescribeCluster."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from ...kafka import messages as m
from .catalogue import Topics, valid_name
from .configs import INVALID_CONFIG, wrong
from .nodes import NO_LEADER

if TYPE_CHECKING:
    from .context import Context
    from .nodes import Copies
    from .state import KafkaState

CLUSTER = "wireproto-dev-cluster0"
LEADER_NOT_AVAILABLE, INVALID_ASSIGNMENT = 5, 39
UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION, UNKNOWN_TOPIC_ID = 3, 17, 36, 37, 38, 100
REBOOTSTRAP_REQUIRED = 129


async def metadata(context: Context) -> Any:
    """Serve Metadata: topics, and the nodes that are up; a missing topic is created when the request allows it.

    The controller is a random one of the nodes, as with KRaft, where each of them forwards requests to the controller.
    """
    topics, request, version = context.side.topics, context.request, context.version
    if context.error == REBOOTSTRAP_REQUIRED:
        return m.MetadataResponse(error_code=context.error, cluster_id=None)
    if request.topics is None or (version == 0 and not request.topics):
        found: list[tuple[str | None, int]] = [(name, 0) for name in topics.names()]
    else:
        create = version < 4 or request.allow_auto_topic_creation
        found = [_find(topics, item, create) for item in request.topics]
    return m.MetadataResponse(
        brokers=tuple(m.MetadataResponseBroker(node_id=number, host=host, port=port) for number, host, port in _nodes(context.side)),
        cluster_id=CLUSTER,
        controller_id=random.choice(context.side.cluster.live),
        topics=tuple(_topic(context.side, name, context.error or error) for name, error in found),
    )


def _nodes(side: KafkaState) -> list[tuple[int, str, int]]:
    return [(node.number, *side.place_of(node)) for node in side.cluster.nodes.values() if node.up]


def _find(topics: Topics, item: Any, create: bool) -> tuple[str | None, int]:
    if item.name is None:
        name = topics.by_id(bytes(item.topic_id))
        return name, 0 if name else UNKNOWN_TOPIC_ID
    if not valid_name(item.name):
        return item.name, INVALID_TOPIC
    return item.name, 0 if topics.find(item.name, create) else UNKNOWN_TOPIC


def _topic(side: KafkaState, name: str | None, error: int) -> Any:
    topics = side.topics
    count = topics.count(name) if name and not error else 0
    return m.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topics.id(name) if name else bytes(16),
        partitions=tuple(_partition(side, str(name), number) for number in range(count)),
    )


def _partition(side: KafkaState, name: str, number: int) -> Any:
    copies: Copies | None = side.topics.copies(name, number)
    assert copies is not None
    return m.MetadataResponsePartition(
        error_code=LEADER_NOT_AVAILABLE if copies.leader == NO_LEADER else 0,
        partition_index=number,
        leader_id=copies.leader,
        leader_epoch=side.topics.epoch(name, number),
        replica_nodes=copies.nodes,
        isr_nodes=tuple(node for node in copies.in_sync if node in side.cluster.live),
        offline_replicas=tuple(node for node in copies.nodes if node not in side.cluster.live),
    )


async def create(context: Context) -> Any:
    """Serve CreateTopics; -1 partitions means the default."""
    topics = context.side.topics
    results = []
    for topic in context.request.topics:
        count = len(topic.assignments) or topic.num_partitions
        bad = next(filter(None, (wrong(config.name, config.value) for config in topic.configs)), None)
        nodes = len(context.side.cluster.nodes)
        assigned = [tuple(one.broker_ids) for one in sorted(topic.assignments, key=lambda one: one.partition_index)]
        numbers = [one.partition_index for one in topic.assignments]
        error = context.error or _refuse_create(topics, topic, count, INVALID_CONFIG if bad else 0, nodes)
        if not error and assigned and (sorted(numbers) != list(range(count)) or unfit(assigned, nodes)):
            error = INVALID_ASSIGNMENT
        count = topics.default_partitions if count == -1 else count
        copies = len(assigned[0]) if assigned and not error else topic.replication_factor
        if not error and not context.request.validate_only:
            topics.create(topic.name, count, {config.name: config.value for config in topic.configs}, copies, assigned)
        results.append(
            m.CreatableTopicResult(
                name=topic.name,
                topic_id=topics.id(topic.name) if not error else bytes(16),
                error_code=error,
                error_message=bad if error == INVALID_CONFIG else None,
                num_partitions=-1 if error else count,
                replication_factor=-1 if error else nodes if copies == -1 else copies,
                configs=(),
            )
        )
    return m.CreateTopicsResponse(topics=tuple(results))


def unfit(assigned: list[tuple[int, ...]], nodes: int) -> bool:
    """Return whether an assignment is invalid: unknown nodes, a node twice, none, or different numbers of replicas."""
    known = range(1, nodes + 1)
    return (
        any(len(set(held)) != len(held) or not held or not set(held) <= set(known) for held in assigned)
        or len(set(map(len, assigned))) != 1
    )


def _refuse_create(topics: Topics, topic: Any, count: int, configs: int, nodes: int) -> int:
    if not valid_name(topic.name):
        return INVALID_TOPIC
    if topics.count(topic.name):
        return TOPIC_EXISTS
    if configs:
        return configs
    if count == 0 or count < -1:
        return INVALID_PARTITIONS
    return 0 if topic.assignments or topic.replication_factor == -1 or 1 <= topic.replication_factor <= nodes else INVALID_REPLICATION


async def create_partitions(context: Context) -> Any:
    """Serve CreatePartitions: more partitions, never fewer."""
    topics = context.side.topics
    results = []
    for topic in context.request.topics:
        known = topics.count(topic.name)
        error = context.error or (UNKNOWN_TOPIC if not known else INVALID_PARTITIONS if topic.count <= known else 0)
        assigned = [tuple(one.broker_ids) for one in topic.assignments or ()]
        if not error and assigned:
            first = topics.copies(topic.name, 0)
            more = topic.count - known
            bad = len(assigned) != more or first is None or unfit([first.nodes, *assigned], len(context.side.cluster.nodes))
            error = INVALID_ASSIGNMENT if bad else 0
        if not error and not context.request.validate_only:
            topics.grow(topic.name, topic.count, assigned)
        results.append(m.CreatePartitionsTopicResult(name=topic.name, error_code=error))
    return m.CreatePartitionsResponse(results=tuple(results))


async def delete(context: Context) -> Any:
    """Serve DeleteTopics: drop topics, and the offsets that groups have committed of them."""
    results = []
    for name in context.request.topic_names:
        error = context.error or (0 if context.side.topics.delete(name) else UNKNOWN_TOPIC)
        for group in context.side.groups.values() if not error else ():
            for key in [key for key in group.offsets if key[0] == name]:
                del group.offsets[key]
        results.append(m.DeletableTopicResult(name=name, error_code=error))
    return m.DeleteTopicsResponse(responses=tuple(results))


async def describe_configs(context: Context) -> Any:
    """Serve DescribeConfigs: what a topic was created with; a broker's own settings are not modelled."""
    results = []
    for resource in context.request.resources:
        is_topic = resource.resource_type == 2
        missing = is_topic and not context.side.topics.count(resource.resource_name)
        config = context.side.topics.config(resource.resource_name) if is_topic else {}
        results.append(
            m.DescribeConfigsResult(
                error_code=context.error or (UNKNOWN_TOPIC if missing else 0),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(m.DescribeConfigsResourceResult(name=name, value=value, config_source=1) for name, value in config.items()),
            )
        )
    return m.DescribeConfigsResponse(results=tuple(results))


async def describe_cluster(context: Context) -> Any:
    """Serve DescribeCluster: the nodes that are up."""
    return m.DescribeClusterResponse(
        error_code=context.error,
        cluster_id=CLUSTER,
        controller_id=random.choice(context.side.cluster.live),
        brokers=tuple(m.DescribeClusterBroker(broker_id=number, host=host, port=port) for number, host, port in _nodes(context.side)),
    )
