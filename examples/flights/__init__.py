"""The demo: a year of flights through Kafka, Pulsar, RocketMQ and ZooKeeper into a Spark report. Run it with ``make demo``."""
