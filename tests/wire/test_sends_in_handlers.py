"""Signal handlers that send: they come between any two lines of the program, also of the producer that they use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")

PROGRAM = """
import collections, faulthandler, signal, sys, time
import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import UsageError

protocol = sys.argv[1]
faulthandler.dump_traceback_later(100, exit=True)
with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol)) as client:
    client.admin().create_topic("t", partitions=1)
    producer = client.producer("t")
    taken, refused, ended = [], 0, False

    def handler(*_):
        global refused
        if ended:  # the last one may come when the timer has just been stopped
            return
        name = b"h%d" % len(taken)
        try:
            taken.append((name, producer.send(name, timeout=5.0)))
        except UsageError:
            refused += 1
        signal.setitimer(signal.ITIMER_REAL, 0.0007)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0007)
    number, over = 0, time.monotonic() + 60.0
    while (len(taken) < 3000 or number < 3000) and time.monotonic() < over:
        name = b"m%d" % number
        taken.append((name, producer.send(name, timeout=30.0)))
        number += 1
        if number % 7 == 0:
            taken[-1][1].position(30.0)
    ended = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    producer.flush(30.0)
    for name, receipt in taken:
        receipt.position(5.0)
    found = collections.Counter()
    with client.reader("t", stop=wireproto.LATEST) as reader:
        for batch in reader:
            found.update(batch.values())
    assert found == collections.Counter(name for name, _ in taken), "each record that was taken is there, once"
    assert any(name.startswith(b"h") for name, _ in taken)
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_handler_sends_is_there_once_or_refused(protocol: str) -> None:
    """Neither waits for the program below it, nor sends what that is just sending."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, protocol], env=os.environ, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
