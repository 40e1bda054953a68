"""Fixtures for the whole suite: real brokers (brokers.plugin), the table of oracles (oracles), and the embedded broker."""

pytest_plugins = ["brokers.plugin", "oracles", "wireproto.devbroker.pytest_plugin"]
