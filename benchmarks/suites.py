"""Which suites there are, what each is called in results, and how one is run.

A suite is a module with `tasks(bench, *where)`, which compares; one that needs a broker has `suite(bench)` besides, which starts it, has
the tasks counted there (`bench.count(address)`) and runs them.
"""

from __future__ import annotations

import importlib

from .harness import Bench

SUITES = (
    *("startup", "codec.records", "codec.formats", "wire", "engine", "memory"),
    *("clients.zookeeper", "clients.kafka", "clients.pulsar", "clients.rocketmq", "clients.aio", "clients.latency"),
    *("clients.transactions", "clients.many"),
    "spark",
)
FULL_TASKS = (", 4.9.7",)  # how rows end that a quick run leaves out: RocketMQ's older line
FULL_ONLY = frozenset(("startup", "memory", "clients.many", "spark"))  # what has no instructions to count


def label(name: str) -> str:
    """What rows of the suite, or of its module, are headed with."""
    return name.removeprefix("benchmarks.").replace("clients.", "").replace("codec.", "codec ")


def chosen(names: list[str], *, quick: bool) -> list[str]:
    """Suites by name or by family; without a name all. A quick run has none of FULL_ONLY but by its name. Raises SystemExit for a name that
    is none."""
    for name in names:
        if not any(suite == name or suite.startswith(f"{name}.") for suite in SUITES):
            raise SystemExit(f"no suite {name!r}; there are {', '.join(SUITES)}")
    ours = [suite for suite in SUITES if not quick or suite not in FULL_ONLY or suite in names]
    return [suite for suite in ours if not names or any(suite == name or suite.startswith(f"{name}.") for name in names)]


def run(bench: Bench, name: str) -> None:
    """One suite; its rows are added to the bench's."""
    module = importlib.import_module(f"benchmarks.{name}")
    bench.module, bench.suite, bench.counted = module.__name__, label(name), {}
    if hasattr(module, "suite"):
        module.suite(bench)
    else:
        bench.count()
        module.tasks(bench)


def lost(bench: Bench) -> list[str]:
    """Rows of the suite that have figures or bars and did not run, in words: who takes a row out renews the records, with a reason."""
    known = {key[:2] for key in (*bench.figures.values, *bench.figures.foreign, *bench.bars.values) if key[0] == bench.suite}
    gone = sorted(known - {(row.suite, row.task) for row in bench.rows})
    return [f"{suite}: {task}: has records and did not run" for suite, task in gone if not (bench.quick and task.endswith(FULL_TASKS))]
