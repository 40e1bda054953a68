"""Fixtures for the whole suite: real brokers (brokers.plugin) and the embedded one."""

pytest_plugins = ["brokers.plugin", "wireproto.devbroker.pytest_plugin"]
