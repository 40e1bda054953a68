"""Names what to use here in place of the options of confluent-kafka (librdkafka), Java's client, kafka-python and aiokafka.

Each key is an option's name of those clients, in lower case, with ``_`` for ``.`` and ``-``. A user who comes from one of them and gives
such a name gets its entry in the error, and docs/kafka.md lists them. Units differ: those clients take milliseconds, this one seconds.
"""

from __future__ import annotations

from typing import Final

_URL = "give the brokers in the URL: kafka://host:9092,host:9092"
_GROUP = "give the group as an argument: client.consumer(topics, group)"
_TOPICS = "give the topics as an argument: client.consumer(topics, group)"
_BYTES = "keys and values are bytes here: encode them before send and decode them after poll"
_RETRIES = "no option needed: a record is sent again until delivery_timeout"
_TLS = "use the URL kafka+tls://… for TLS; user, password and sasl for a login"
_NAME = "give the name as an argument: client.transactions(name)"
_POLL = "no option needed: poll returns one batch of a partition; partition_bytes bounds what one request fetches of it"

NAMES: Final = {
    "bootstrap_servers": _URL,
    "metadata_broker_list": _URL,
    "group_id": _GROUP,
    "topics": _TOPICS,
    "group_protocol": "no option needed: consumers use the classic protocol of groups",
    "partition_assignment_strategy": "no option needed: members offer range and roundrobin",
    "rebalance_timeout_ms": "use max_poll_interval, in seconds",
    "auto_offset_reset": "give start=EARLIEST or LATEST for a group without a committed position; use reset for a position that is gone",
    "enable_auto_commit": "use auto_commit",
    "auto_commit_interval_ms": "use auto_commit_interval, in seconds",
    "enable_auto_offset_store": "use auto_commit=False and consumer.commit(positions)",
    "session_timeout_ms": "use session_timeout, in seconds",
    "heartbeat_interval_ms": "use heartbeat_interval, in seconds",
    "max_poll_interval_ms": "use max_poll_interval, in seconds",
    "max_poll_records": _POLL,
    "consumer_timeout_ms": "give the time to the call: consumer.poll(timeout), in seconds",
    "client_rack": "use rack",
    "isolation_level": "use isolation: committed or uncommitted",
    "fetch_min_bytes": "use min_bytes",
    "fetch_max_bytes": "use max_bytes",
    "fetch_max_wait_ms": "use max_wait, in seconds",
    "fetch_wait_max_ms": "use max_wait, in seconds",
    "max_partition_fetch_bytes": "use partition_bytes",
    "fetch_message_max_bytes": "use partition_bytes",
    "queued_max_messages_kbytes": "use fetch_memory, in bytes, for the whole client",
    "check_crcs": "use check_crc",
    "compression_type": "use compression",
    "compression_codec": "use compression",
    "linger_ms": "use linger, in seconds",
    "queue_buffering_max_ms": "use linger, in seconds",
    "queue_buffering_max_kbytes": "use buffer_memory, in bytes, for the whole client",
    "queue_buffering_max_messages": "use buffer_memory, in bytes, for the whole client",
    "max_batch_size": "use batch_size",
    "batch_num_messages": "use batch_size, in bytes",
    "message_max_bytes": "use max_request_size",
    "receive_message_max_bytes": "use max_bytes",
    "request_required_acks": "use acks",
    "enable_idempotence": "use idempotence",
    "enable_gapless_guarantee": "use idempotence",
    "max_in_flight_requests_per_connection": "use max_in_flight, which counts the batches of one partition",
    "delivery_timeout_ms": "use delivery_timeout, in seconds",
    "message_timeout_ms": "use delivery_timeout, in seconds",
    "retries": _RETRIES,
    "message_send_max_retries": _RETRIES,
    "retry_backoff_ms": _RETRIES,
    "retry_backoff_max_ms": _RETRIES,
    "max_block_ms": "give the time to the call: producer.send(…, timeout=…), in seconds",
    "request_timeout_ms": "use request_timeout, in seconds",
    "socket_timeout_ms": "use request_timeout, in seconds",
    "socket_connection_setup_timeout_ms": "use connect_timeout, in seconds",
    "bootstrap_timeout_ms": "use timeout, in seconds",
    "metadata_max_age_ms": "use metadata_max_age, in seconds",
    "topic_metadata_refresh_interval_ms": "use metadata_max_age, in seconds",
    "allow_auto_create_topics": "use auto_create, which is for producers alone",
    "api_version": "no option needed: versions are agreed on with each broker",
    "api_version_request": "no option needed: versions are agreed on with each broker",
    "broker_version_fallback": "no option needed: versions are agreed on with each broker",
    "transactional_id": _NAME,
    "transaction_timeout_ms": "use transaction_timeout of client.transactions, in seconds",
    "key_serializer": _BYTES,
    "value_serializer": _BYTES,
    "key_deserializer": _BYTES,
    "value_deserializer": _BYTES,
    "security_protocol": _TLS,
    "sasl_mechanism": "use sasl",
    "sasl_mechanisms": "use sasl",
    "sasl_plain_username": "use user",
    "sasl_username": "use user",
    "sasl_plain_password": "use password",
    "sasl_password": "use password",
    "sasl_oauth_token_provider": "use token, which may be a callable",
    "oauth_cb": "use token, which may be a callable",
    "ssl_context": "use tls_context",
    "ssl_cafile": "use tls_ca_file",
    "ssl_ca_location": "use tls_ca_file",
    "ssl_ca_pem": "use tls_ca_data",
    "ssl_certfile": "use tls_cert_file",
    "ssl_certificate_location": "use tls_cert_file",
    "ssl_keyfile": "use tls_key_file",
    "ssl_key_location": "use tls_key_file",
    "ssl_password": "use tls_key_password",
    "ssl_key_password": "use tls_key_password",
    "ssl_check_hostname": "use tls_verify_host",
    "ssl_endpoint_identification_algorithm": "use tls_verify_host",
    "enable_ssl_certificate_verification": "use tls_verify",
}
