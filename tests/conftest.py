"""Fixtures for the whole suite: real brokers (brokers.plugin), the table of oracles (oracles), and the embedded broker.

How long Hypothesis takes for an example is the machine's affair: no property here is about time.
"""

from hypothesis import HealthCheck, settings

pytest_plugins = ["brokers.plugin", "oracles", "wireproto.devbroker.pytest_plugin"]

settings.register_profile("patient", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("patient")
