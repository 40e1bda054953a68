"""Topics: Metadata, CreateTopics, DeleteTopics, DescribeConfigs, DescribeCluster."""

from __future__ import annotations

from typing import Any

from wireproto.devbroker.kafka.state import CLUSTER, NODE, Broker, Partition, Topic, valid_name
from wireproto.kafka import messages as m

UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION, UNKNOWN_TOPIC_ID = 3, 17, 36, 37, 38, 100


async def metadata(broker: Broker, request: Any, version: int, who: str) -> Any:
    """Topics and this broker; a topic that does not exist is made when the request allows it."""
    wanted = request.topics
    if wanted is None or (version == 0 and not wanted):
        found = [(topic.name, topic, 0) for topic in broker.topics.values()]
    else:
        found = [_find(broker, item, version < 4 or request.allow_auto_topic_creation) for item in wanted]
    return m.MetadataResponse(
        brokers=(m.MetadataResponseBroker(node_id=NODE, host=broker.host, port=broker.port),),
        cluster_id=CLUSTER,
        controller_id=NODE,
        topics=tuple(_topic(name, topic, error) for name, topic, error in found),
    )


def _find(broker: Broker, item: Any, create: bool) -> tuple[str | None, Topic | None, int]:
    if item.name is None:
        by_id = next((topic for topic in broker.topics.values() if topic.id == bytes(item.topic_id)), None)
        return (by_id.name, by_id, 0) if by_id else (None, None, UNKNOWN_TOPIC_ID)
    if not valid_name(item.name):
        return item.name, None, INVALID_TOPIC
    topic = broker.topic(item.name, create)
    return item.name, topic, 0 if topic else UNKNOWN_TOPIC


def _topic(name: str | None, topic: Topic | None, error: int) -> Any:
    partitions = topic.partitions if topic else []
    return m.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic.id if topic else bytes(16),
        partitions=tuple(
            m.MetadataResponsePartition(
                partition_index=number, leader_id=NODE, leader_epoch=0, replica_nodes=(NODE,), isr_nodes=(NODE,)
            )
            for number in range(len(partitions))
        ),
    )


async def create(broker: Broker, request: Any, version: int, who: str) -> Any:
    """New topics; -1 partitions means the default."""
    results = []
    for topic in request.topics:
        count = len(topic.assignments) or topic.num_partitions
        error = 0
        if not valid_name(topic.name):
            error = INVALID_TOPIC
        elif topic.name in broker.topics:
            error = TOPIC_EXISTS
        elif count == 0 or count < -1:
            error = INVALID_PARTITIONS
        elif topic.replication_factor > 1:
            error = INVALID_REPLICATION
        made = Topic(topic.name, [Partition() for _ in range(broker.default_partitions if count == -1 else max(count, 0))])
        made.config = {config.name: config.value for config in topic.configs}
        if not error and not request.validate_only:
            broker.topics[topic.name] = made
        results.append(
            m.CreatableTopicResult(
                name=topic.name,
                topic_id=bytes(16) if error else made.id,
                error_code=error,
                num_partitions=len(made.partitions),
                replication_factor=1,
                configs=(),
            )
        )
    return m.CreateTopicsResponse(topics=tuple(results))


async def delete(broker: Broker, request: Any, version: int, who: str) -> Any:
    """Drop topics and wake fetches that wait for them."""
    results = []
    for name in request.topic_names:
        gone = broker.topics.pop(name, None)
        results.append(m.DeletableTopicResult(name=name, error_code=0 if gone else UNKNOWN_TOPIC))
    broker.wake()
    return m.DeleteTopicsResponse(responses=tuple(results))


async def describe_configs(broker: Broker, request: Any, version: int, who: str) -> Any:
    """What a topic was created with; a broker's own settings are not modelled."""
    results = []
    for resource in request.resources:
        topic = broker.topics.get(resource.resource_name) if resource.resource_type == 2 else None
        missing = resource.resource_type == 2 and topic is None
        results.append(
            m.DescribeConfigsResult(
                error_code=UNKNOWN_TOPIC if missing else 0,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    m.DescribeConfigsResourceResult(name=name, value=value, config_source=1)
                    for name, value in (topic.config.items() if topic else ())
                ),
            )
        )
    return m.DescribeConfigsResponse(results=tuple(results))


async def describe_cluster(broker: Broker, request: Any, version: int, who: str) -> Any:
    """This one broker."""
    return m.DescribeClusterResponse(
        cluster_id=CLUSTER,
        controller_id=NODE,
        brokers=(m.DescribeClusterBroker(broker_id=NODE, host=broker.host, port=broker.port),),
    )
