"""Fixtures for the whole suite: real brokers (brokers.plugin), the table of oracles (oracles), and the embedded broker.

How long Hypothesis takes for an example is the machine's affair: no property here is about time. What it finds it prints in a form that
repeats it. Tests of Ctrl-C must not depend on whether our own parent ignores it, which children would inherit.
"""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["brokers.plugin", "oracles", "wireproto.devbroker.pytest_plugin"]

settings.register_profile("patient", settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
