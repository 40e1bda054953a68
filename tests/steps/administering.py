"""A sixth life, of Kafka alone: somebody administers topics and a group.

What it is: `ADMINISTERS`. It makes a topic, gives it a partition more, reads its settings, says where a group resumes, asks for that, for
the groups, for one of them and for the ends of another topic, and deletes what it made. See `lives` for what a life is. What the Admin has
no call for goes by `client.request`, which returns codes: there the code is raised by this life, as its caller would.
"""

from __future__ import annotations

from typing import Any

from wireproto import LATEST
from wireproto.kafka.codes import error
from wireproto.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from wireproto.position import LogOffset

from .lives import GROUP, SENT, TIMEOUT, TOPIC, Life, Request, write

MADE = "made"
TOPIC_SETTINGS = 2
PLACE = LogOffset(TOPIC, 0, 3)


def administers(protocol: str, client: Any) -> None:
    admin = client.admin()
    admin.create_topic(MADE, timeout=TIMEOUT)
    grown = CreatePartitionsTopic(name=MADE, count=2, assignments=None)
    told(client.request(CreatePartitionsRequest(topics=(grown,), timeout_ms=1000), timeout=TIMEOUT))
    asked = DescribeConfigsResource(resource_type=TOPIC_SETTINGS, resource_name=MADE, configuration_keys=None)
    told(client.request(DescribeConfigsRequest(resources=(asked,)), timeout=TIMEOUT))
    gone = admin.commit(GROUP, {(TOPIC, 0): PLACE}, timeout=TIMEOUT)
    places = admin.group_positions(GROUP, TOPIC, timeout=TIMEOUT)
    groups = admin.list_groups(timeout=TIMEOUT)
    found = admin.describe_group(GROUP, timeout=TIMEOUT)
    ends = admin.positions(TOPIC, LATEST, timeout=TIMEOUT)
    admin.delete_topic(MADE, timeout=TIMEOUT)
    assert (gone, places, groups, found.state) == (frozenset(), {(TOPIC, 0): PLACE}, [GROUP], "Empty"), (gone, places, groups, found)
    assert ends == {(TOPIC, 0): LogOffset(TOPIC, 0, len(SENT))}, ends


def told(reply: Any) -> None:
    """Raise what its first result says."""
    code = reply.results[0].error_code
    if code:
        raise error(code)


def is_administered(protocol: str, client: Any) -> None:
    admin = client.admin()
    assert admin.list_topics() == [TOPIC]
    assert admin.group_positions(GROUP, TOPIC) == {(TOPIC, 0): PLACE}


ADMINISTERS = Life(
    "administers",
    administers,
    {
        "kafka": (
            Request("admin: make", "CreateTopics", (7, 17, 29, 36, 37, 38, 40, 41, 44, 89, -1)),
            Request("admin: grow", "CreatePartitions", (3, 7, 29, 37, 41, 44, 60, 89, -1)),
            Request("admin: settings", "DescribeConfigs", (3, 7, 17, 29, 31, -1)),
            Request("admin: commit", "OffsetCommit", (12, 14, 15, 16, 22, 24, 25, 27, 28, 29, 30, 69, 113, -1)),
            Request("admin: places", "OffsetFetch", (14, 15, 16, 25, 30, 69, 113, -1)),
            Request("admin: groups", "ListGroups"),
            Request("admin: group", "DescribeGroups", (14, 15, 16, 24, 30, 69, -1)),
            Request("admin: ends", "ListOffsets", (3, 5, 6, 9, 29, 43, 74, 78, -1), after=1),
            Request("admin: delete", "DeleteTopics", (3, 7, 17, 29, 41, 73, 89, -1)),
        )
    },
    last={"kafka": "DescribeGroups"},
    prepare=write,
    check=is_administered,
)
