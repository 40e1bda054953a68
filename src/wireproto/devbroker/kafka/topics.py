"""Topics: Metadata, CreateTopics, CreatePartitions, DeleteTopics, DescribeConfigs, DescribeCluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kafka import messages as m
from .catalogue import NODE, Topics, valid_name
from .configs import INVALID_CONFIG, wrong

if TYPE_CHECKING:
    from .context import Context

CLUSTER = "wireproto-dev-cluster0"
UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION, UNKNOWN_TOPIC_ID = 3, 17, 36, 37, 38, 100
REBOOTSTRAP_REQUIRED = 129


async def metadata(context: Context) -> Any:
    """Topics and this node; a topic that does not exist is made when the request allows it."""
    topics, request, version = context.side.topics, context.request, context.version
    if context.error == REBOOTSTRAP_REQUIRED:
        return m.MetadataResponse(error_code=context.error, cluster_id=None)
    if request.topics is None or (version == 0 and not request.topics):
        found: list[tuple[str | None, int]] = [(name, 0) for name in topics.names()]
    else:
        create = version < 4 or request.allow_auto_topic_creation
        found = [_find(topics, item, create) for item in request.topics]
    host, _, port = context.side.address().rpartition(":")
    return m.MetadataResponse(
        brokers=(m.MetadataResponseBroker(node_id=NODE, host=host, port=int(port)),),
        cluster_id=CLUSTER,
        controller_id=NODE,
        topics=tuple(_topic(topics, name, context.error or error) for name, error in found),
    )


def _find(topics: Topics, item: Any, create: bool) -> tuple[str | None, int]:
    if item.name is None:
        name = topics.by_id(bytes(item.topic_id))
        return name, 0 if name else UNKNOWN_TOPIC_ID
    if not valid_name(item.name):
        return item.name, INVALID_TOPIC
    return item.name, 0 if topics.find(item.name, create) else UNKNOWN_TOPIC


def _topic(topics: Topics, name: str | None, error: int) -> Any:
    count = topics.count(name) if name and not error else 0
    return m.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topics.id(name) if name else bytes(16),
        partitions=tuple(
            m.MetadataResponsePartition(
                partition_index=number, leader_id=NODE, leader_epoch=topics.epoch(name, number), replica_nodes=(NODE,), isr_nodes=(NODE,)
            )
            for number in range(count)
        ),
    )


async def create(context: Context) -> Any:
    """New topics; -1 partitions means the default."""
    topics = context.side.topics
    results = []
    for topic in context.request.topics:
        count = len(topic.assignments) or topic.num_partitions
        bad = next(filter(None, (wrong(config.name, config.value) for config in topic.configs)), None)
        error = context.error or _refuse_create(topics, topic, count, INVALID_CONFIG if bad else 0)
        count = topics.default_partitions if count == -1 else count
        if not error and not context.request.validate_only:
            topics.create(topic.name, count, {config.name: config.value for config in topic.configs})
        results.append(
            m.CreatableTopicResult(
                name=topic.name,
                topic_id=topics.id(topic.name) if not error else bytes(16),
                error_code=error,
                error_message=bad if error == INVALID_CONFIG else None,
                num_partitions=-1 if error else count,
                replication_factor=-1 if error else 1,
                configs=(),
            )
        )
    return m.CreateTopicsResponse(topics=tuple(results))


def _refuse_create(topics: Topics, topic: Any, count: int, configs: int) -> int:
    if not valid_name(topic.name):
        return INVALID_TOPIC
    if topics.count(topic.name):
        return TOPIC_EXISTS
    if configs:
        return configs
    if count == 0 or count < -1:
        return INVALID_PARTITIONS
    return INVALID_REPLICATION if topic.replication_factor > 1 else 0


async def create_partitions(context: Context) -> Any:
    """More partitions for topics; never fewer."""
    topics = context.side.topics
    results = []
    for topic in context.request.topics:
        known = topics.count(topic.name)
        error = context.error or (UNKNOWN_TOPIC if not known else INVALID_PARTITIONS if topic.count <= known else 0)
        if not error and not context.request.validate_only:
            topics.grow(topic.name, topic.count)
        results.append(m.CreatePartitionsTopicResult(name=topic.name, error_code=error))
    return m.CreatePartitionsResponse(results=tuple(results))


async def delete(context: Context) -> Any:
    """Drop topics, and what groups have committed of them."""
    results = []
    for name in context.request.topic_names:
        error = context.error or (0 if context.side.topics.delete(name) else UNKNOWN_TOPIC)
        for group in context.side.groups.values() if not error else ():
            for key in [key for key in group.offsets if key[0] == name]:
                del group.offsets[key]
        results.append(m.DeletableTopicResult(name=name, error_code=error))
    return m.DeleteTopicsResponse(responses=tuple(results))


async def describe_configs(context: Context) -> Any:
    """What a topic was created with; a broker's own settings are not modelled."""
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
    """This one node."""
    host, _, port = context.side.address().rpartition(":")
    return m.DescribeClusterResponse(
        error_code=context.error,
        cluster_id=CLUSTER,
        controller_id=NODE,
        brokers=(m.DescribeClusterBroker(broker_id=NODE, host=host, port=int(port)),),
    )
