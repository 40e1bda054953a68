"""Names what to use here in place of the parameters of pulsar-client: of its Client, create_producer, subscribe and create_reader.

A user who comes from it and gives such a name gets its entry in the error, and docs/pulsar.md lists them. Units differ: that client takes
milliseconds in most places, this one seconds.
"""

from __future__ import annotations

from typing import Final

_BYTES = "keys are text or bytes and values bytes here: encode them before send and decode them after poll"
_AHEAD = "use receive_messages of a queue, or receive_memory, in bytes"
_MEMORY = "use buffer_memory, in bytes, for the whole client"
_START = "give the place as an argument: client.reader(topic, start=…)"

NAMES: Final = {
    "service_url": "give it as the first argument: wireproto.connect(url)",
    "authentication": "use token, or user and password, or tls_cert_file and tls_key_file",
    "operation_timeout_seconds": "use operation_timeout, in seconds",
    "connection_timeout_ms": "use connect_timeout, in seconds",
    "listener_name": "use listener",
    "use_tls": "use the URL pulsar+ssl://…",
    "tls_trust_certs_file_path": "use tls_ca_file",
    "tls_allow_insecure_connection": "use tls_verify=False",
    "tls_validate_hostname": "use tls_verify_host",
    "tls_private_key_file_path": "use tls_key_file",
    "tls_certificate_file_path": "use tls_cert_file",
    "subscription_name": "give it as an argument: client.consumer(topics, group) or client.queue(topic, group)",
    "consumer_type": "use mode: exclusive or failover of a consumer, shared or key-shared of a queue",
    "initial_position": "give the place as an argument: client.consumer(topics, group, start=EARLIEST or LATEST)",
    "start_message_id": _START,
    "start_message_id_inclusive": "no option needed: a reader begins with the message that start names",
    "receiver_queue_size": _AHEAD,
    "max_total_receiver_queue_size_across_partitions": _AHEAD,
    "is_read_compacted": "use read_compacted",
    "reader_name": "use consumer_name",
    "schema": _BYTES,
    "initial_sequence_id": "use first_sequence",
    "send_timeout_millis": "use delivery_timeout, in seconds",
    "compression_type": "use compression",
    "max_pending_messages": _MEMORY,
    "max_pending_messages_across_partitions": _MEMORY,
    "block_if_queue_full": "give the time to the call: producer.send(…, timeout=…), in seconds",
    "batching_enabled": "use batching",
    "batching_type": 'use batching="key" for batches of one key each',
    "batching_max_messages": "use batch_records",
    "batching_max_allowed_size_in_bytes": "use batch_size",
    "batching_max_publish_delay_ms": "use linger, in seconds",
    "message_routing_mode": "use keyless, or give partition to send",
}
