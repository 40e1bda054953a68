"""Benchmarks of the codec core alone: no sockets."""
