# The codec core: bytes to values and back, no socket, no clock, no thread.
#
# This file is the table of contents; each part says what it is, what it may assume and what it must not do. A part uses only parts above
# it. Every part cimports its own names. Constants are `cdef enum`, declarations shared with the engine stand in the .pxd files.

include "_codec_parts/checksum.pyx"      # crc32c, crc32
include "_codec_parts/framer.pyx"         # Framer: a stream to whole frames
include "_codec_parts/slice.pyx"          # Slice: a view on part of a frame
include "_codec_parts/plan.pyx"           # Op, Plan, Spec: what is known of a message
include "_codec_parts/cursor.pyx"         # bounded reading, errors with a path
include "_codec_parts/writer.pyx"         # growing buffer, gathered blobs
include "_codec_parts/plan_compile.pyx"   # generated rows to plans
include "_codec_parts/plan_decode.pyx"    # bytes to messages
include "_codec_parts/plan_encode.pyx"    # messages to bytes
include "_codec_parts/message_base.pyx"   # Message, the base of generated classes
include "_codec_parts/ext_message.pyx"    # messages whose fields travel as text
include "_codec_parts/zookeeper_reply.pyx"  # ZooKeeper's reply header, fields of replies
include "_codec_parts/rocketmq_header.pyx"  # RemotingCommand: RocketMQ's frame, the binary header
include "_codec_parts/rocketmq_json.pyx"  # its JSON header
include "_codec_parts/rocketmq_pull.pyx"  # pulls and the heads of their replies
include "_codec_parts/brief_lock.pyx"    # a lock for a few lines of Python
include "_codec_parts/pool.pyx"          # memory that is used again
include "_codec_parts/scratch_buffer.pyx"          # ScratchBuffer: memory to unpack into
include "_codec_parts/lz4.pyx"           # LZ4 blocks and frames, written
include "_codec_parts/times.pyx"         # timestamps that users give
include "_codec_parts/table.pyx"         # rows of records in C memory
include "_codec_parts/deferred_decref.pyx"        # Python objects kept from C
include "_codec_parts/arrow_abi.pyx"     # structs of the Arrow C data interface
include "_codec_parts/columns.pyx"       # Columns, ColumnsBuilder
include "_codec_parts/split.pyx"         # rows by partition
include "_codec_parts/record.pyx"        # Record
include "_codec_parts/place.pyx"         # positions, batches
include "_codec_parts/chunk.pyx"         # Chunk, KafkaChunk: what an answer brought for one cursor
include "_codec_parts/arrow_export.pyx"  # Columns to Arrow
include "_codec_parts/kafka_section.pyx"  # Kafka batches, without the GIL
include "_codec_parts/kafka_legacy.pyx"  # Kafka message sets v0, v1
include "_codec_parts/kafka_ahead.pyx"  # packed batches, by several threads
include "_codec_parts/kafka_records.pyx"  # decode_kafka
include "_codec_parts/kafka_building.pyx"  # a Kafka batch being built, without the GIL
include "_codec_parts/record_builder.pyx"  # RecordBuilder: what an OutBatch fills
include "_codec_parts/kafka_encode.pyx"  # KafkaBatchBuilder
include "_codec_parts/read_budget.pyx"    # ReadBudget: what a client's readers may hold
include "_codec_parts/kafka_rows.pyx"    # rows by partition, into Kafka batches
include "_codec_parts/kafka_templates.pyx"  # ProduceTemplateCore, FetchTemplateBytes: a Produce of one batch, a Fetch of one partition
include "_codec_parts/receipt.pyx"       # Receipt: a record's share in a batch on its way
include "_codec_parts/out_batch.pyx"     # OutBatch: a batch on its way
include "_codec_parts/short_send.pyx"    # QueueCore, SenderCore: what is sent one by one
include "_codec_parts/kafka_send.pyx"    # Sent, KafkaNumbers, KafkaSendCore: the same, Kafka's part
include "_codec_parts/send_future.pyx"   # SendFuture: a receipt that asyncio takes for a future
include "_codec_parts/key_hash.pyx"     # hashes of keys
include "_codec_parts/appender.pyx"      # Appender, KeyRouter: a producer's way in
include "_codec_parts/producer_core.pyx"  # BudgetCore, AccountCore, ProducerCore: a producer, for what is sent one by one
include "_codec_parts/kafka_fetch_template.pyx"    # FetchTemplateCore, KafkaFetcherCore: a reader of one partition
include "_codec_parts/arrow_import.pyx"  # Arrow to Columns
include "_codec_parts/pulsar_batch.pyx"  # decode_pulsar
include "_codec_parts/pulsar_walk.pyx"   # a Pulsar entry's messages to rows
include "_codec_parts/pulsar_singles.pyx"  # those laid out as usual, in one pass
include "_codec_parts/pulsar_rows.pyx"   # records into the body of a Pulsar batch
include "_codec_parts/pulsar_build.pyx"  # PulsarBatchBuilder
include "_codec_parts/rocketmq_properties.pyx"  # the key and the headers of a RocketMQ message
include "_codec_parts/rocketmq_message.pyx"  # decode_rocketmq
include "_codec_parts/rocketmq_send.pyx"  # ids, properties, heads of send commands
include "_codec_parts/rocketmq_build.pyx"  # RocketBatchBuilder
include "_codec_parts/rocketmq_short.pyx"  # RocketOut, RocketSendCore, RocketProducerCore: a RocketMQ record sent one by one
