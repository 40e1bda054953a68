"""Names what to use here in place of the settings of RocketMQ's Java client, and of the Python client over its C++ library.

Each key is a property's name in lower case, with ``_`` before each of its capitals. A user who comes from one of them and gives such a name
gets its entry in the error, and docs/rocketmq.md lists them. Units differ: those clients take milliseconds, this one seconds.
"""

from __future__ import annotations

from typing import Final

_URL = "give the name servers in the URL: rocketmq://host:9876,host:9876"
_GROUP = "give the group as an argument: client.consumer(topics, group) or client.queue(topic, group)"
_RETRIES = "no option needed: a record is sent again until delivery_timeout"

NAMES: Final = {
    "namesrv_addr": _URL,
    "name_server_address": _URL,
    "consumer_group": _GROUP,
    "group_id": _GROUP,
    "producer_group": "use group",
    "send_msg_timeout": "use delivery_timeout, in seconds",
    "retry_times_when_send_failed": _RETRIES,
    "retry_times_when_send_async_failed": _RETRIES,
    "compress_msg_body_over_howmuch": "use compress_above",
    "access_secret": "use secret_key",
    "use_tls": "use the URL rocketmq+tls://…",
    "poll_name_server_interval": "use route_age, in seconds",
    "heartbeat_broker_interval": "use heartbeat_interval, in seconds",
    "mq_client_api_timeout": "use request_timeout, in seconds",
    "consume_from_where": "give the place as an argument: client.consumer(topics, group, start=…)",
    "message_model": "use client.reader(topic) in each process for broadcasting, client.consumer for clustering",
    "pull_batch_size": "use batch_bytes, in bytes",
    "max_reconsume_times": "use max_attempts of a queue",
    "auto_commit_interval_millis": "use auto_commit_interval, in seconds",
    "broker_suspend_max_time_millis": "use pull_suspend, in seconds",
}
