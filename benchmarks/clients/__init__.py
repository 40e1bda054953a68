"""Benchmarks of whole clients on real brokers from Maven Central (tests/brokers)."""
