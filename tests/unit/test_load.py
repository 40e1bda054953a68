"""Where the processors' time goes: real child processes that compute, told apart by their command lines."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import load
from load import Load, kind
from patience import until

BURN = """
import sys, time
print("on", flush=True)
while time.process_time() < {seconds}:
    pass
sys.stdin.read()
"""
ROCKETMQ = ["java", "-Xmx384m", "-cp", "a.jar:b.jar", "org.apache.rocketmq.broker.BrokerStartup", "-c", "broker-a.conf"]


@contextlib.contextmanager
def burning(*argv: str, seconds: float, session: bool = False, through: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A child that computes for so long and then waits, under the command line `argv` (``-c`` and the program in front of its arguments).
    `through`: it is the child of such a child."""
    program = BURN.format(seconds=seconds + 0.1)  # /proc counts whole ticks
    become = 'name=$0; exec -a "$name" "$@"'
    shell = ["bash", "-c", f"({become}); true" if through else become, argv[0], sys.executable, "-S", "-c", program, *argv[1:]]
    child = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=session)
    assert child.stdin
    assert child.stdout
    try:
        assert child.stdout.readline() == b"on\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def computed(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the child has used so many seconds of a processor."""
    return load.processes()[child.pid].seconds >= seconds


def test_a_process_counts_with_its_seconds_under_its_kind_whatever_its_session() -> None:
    with Load(pause=60.0) as one, burning(*ROCKETMQ, seconds=0.6, session=True) as child:
        until(lambda: computed(child, 0.6))
        one.sample()
        found = one.seconds()
    assert 0.6 <= found["rocketmq broker"] < 2.0
    assert "kafka broker" not in found


def test_a_process_that_ended_counts_with_what_was_last_seen_of_it() -> None:
    with Load(pause=0.05) as one:
        with burning("java", "kafka.Kafka", seconds=0.5) as child:
            until(lambda: one.seconds().get("kafka broker", 0.0) >= 0.5)
            last = load.processes()[child.pid].seconds
        time.sleep(0.2)
        assert 0.5 <= one.seconds()["kafka broker"] <= last + 0.2
    assert one.seconds()["kafka broker"] >= 0.5


def test_what_a_process_did_before_does_not_count() -> None:
    with burning("java", "kafka.Kafka", seconds=0.5) as child:
        until(lambda: computed(child, 0.5))
        with Load(pause=60.0) as one:
            pass
    assert one.seconds().get("kafka broker", 0.0) < 0.3


def test_processes_below_processes_count_and_others_do_not() -> None:
    with Load(pause=0.05) as one, burning("java", "kafka.Kafka", seconds=0.4, through=True):
        until(lambda: one.seconds().get("kafka broker", 0.0) >= 0.4)
    known = {1: load.Process(0, 1, 0.0), 5: load.Process(1, 1, 0.0), 6: load.Process(5, 1, 0.0), 7: load.Process(6, 1, 0.0)}
    assert sorted(load.below(5, known)) == [6, 7]
    here = load.processes()
    assert os.getpid() in set(load.below(os.getppid(), here))
    assert os.getpid() not in set(load.below(os.getpid(), here))


def test_two_processes_of_one_kind_add_up() -> None:
    with Load(pause=60.0) as one, burning(*ROCKETMQ, seconds=0.4) as first, burning(*ROCKETMQ, seconds=0.4) as second:
        until(lambda: computed(first, 0.4) and computed(second, 0.4))
        one.sample()
    assert one.seconds()["rocketmq broker"] >= 0.8


def test_the_sampling_goes_on_by_itself() -> None:
    with Load(pause=0.05) as one, burning("java", "RocketJudge", seconds=0.4):
        until(lambda: one.seconds().get("other java", 0.0) >= 0.4)


def test_lines_are_aligned_and_say_shares_and_the_highest_load(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Load()
    monkeypatch.setattr(one, "seconds", lambda: {"rocketmq broker": 360.0, "pytest": 120.0})
    one.highest = 17.25
    assert one.lines() == [
        "kind             minutes of processor  share",
        "rocketmq broker                   6.0    75%",
        "pytest                            2.0    25%",
        "highest load of one minute: 17.2",
    ]


def test_the_highest_load_is_the_machines() -> None:
    with Load(pause=60.0) as one:
        one.highest = 0.0
        one.sample()
        now = float(Path("/proc/loadavg").read_text().split()[0])
    assert abs(one.highest - now) < 1.0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/usr/bin/java -Xmx512m -cp a.jar kafka.Kafka server.properties", "kafka broker"),
        ("/usr/bin/java -cp a.jar kafka.tools.StorageTool format", "kafka broker"),
        ("java -cp a.jar org.apache.rocketmq.namesrv.NamesrvStartup -c x", "rocketmq broker"),
        ("java -cp a.jar org.apache.pulsar.PulsarStandaloneStarter -c x", "pulsar broker"),
        ("java -cp a.jar org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg", "zookeeper server"),
        ("java -cp a.jar org.apache.zookeeper.server.ZooKeeperServerMain 1 2", "zookeeper server"),
        ("java -cp /jars/kafka.Kafka.jar RocketJudge pull 127.0.0.1:1 kafka", "other java"),
        ("java -cp a.jar org.apache.spark.deploy.SparkSubmit pyspark-shell", "spark jvm"),
        ("/venv/bin/python -m pyspark.daemon pyspark.worker", "spark python workers"),
        ("/venv/bin/python3.13 /site-packages/pyspark/python/pyspark/worker.py", "spark python workers"),
        ("/venv/bin/python -m pytest -q tests/unit", "pytest"),
        ("/venv/bin/python -X dev /venv/bin/pytest -q", "pytest"),
        ("/venv/bin/python -W error -m pytest -q", "pytest"),
        ("/venv/bin/python -c import_pytest -m pytest", "rest"),
        ("/venv/bin/python tests/campaign/crew.py pytest", "rest"),
        ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1 -quiet x.c", "compilers"),
        ("x86_64-linux-gnu-gcc -c x.c", "compilers"),
        ("/usr/bin/javac X.java", "compilers"),
        ("/usr/bin/valgrind.bin python -m pytest", "valgrind"),
        ("/usr/libexec/valgrind/memcheck-amd64-linux python -m pytest", "valgrind"),
        ("bash -c java kafka.Kafka", "rest"),
        ("", "rest"),
    ],
)
def test_command_lines_tell_the_kind(line: str, expected: str) -> None:
    assert kind(line.split()) == expected
