"""The pieces, in the order of what they cost: what each runs, step by step, and which sources its result is of.

A step is one command with its figure; steps that passed are not run again while the sources are the same. What a step's exit code says:
0 passed, 3 (`AGAIN`) the same command goes on where it ended, anything else failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark.versions import CONNECT, OTHERS

from . import work

AGAIN = 3
MINUTES = 38.0
PYTHON = str(work.CLONE / ".venv" / "bin" / "python")
CLOSING = r"^=* ?(\d+ (?:passed|failed|errors?)\b.*?) in [\d.]+s"  # pytest's last line, and that of `make test`
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"  # in which `make test` runs
PYTHONS = tuple(version for version in ("3.11", "3.12", "3.13") if version != OWN)
JOBS = ("kafka", "pulsar", "recut")  # of make soak
SEEDS = ("1", "2", "3")


@dataclass(frozen=True)
class Step:
    """One command.

    Args:
        name: unique in its piece.
        command: what is run, in the clone.
        figure: a pattern; the last line that has it gives the figure, by its groups, else by all of it.
        environment: added to ours.
    """

    name: str
    command: tuple[str, ...]
    figure: str = CLOSING
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """Steps with one verdict; `places` are the files and folders whose change makes it old."""

    name: str
    what: str
    steps: tuple[Step, ...]
    places: tuple[str, ...] = work.PLACES


def module(name: str, *arguments: str, step: str = "", figure: str = CLOSING) -> Step:
    """A module of tests/, examples/ or the clone, run by the clone's own Python."""
    path = os.pathsep.join(str(work.CLONE / folder) for folder in ("src", "tests", "examples"))
    return Step(step or name, (PYTHON, "-m", name, *arguments), figure, {"PYTHONPATH": path})


def suite(name: str, place: str, *arguments: str, parts: str) -> Step:
    """Parts of `make test` in another place than this clone."""
    return module(f"nightly.{place}", *arguments, "--parts", *parts.split(), step=name)


PIECES = (
    Piece(
        "pip-audit",
        "known faults of every version that constraints.txt pins, and of what a user gets",
        (
            module("nightly.audit", "pinned", step="pinned", figure=r"^audit: (.*)"),
            module("nightly.audit", "user", step="user", figure=r"^audit: (.*)"),
        ),
        ("constraints.txt", "pyproject.toml", "tests/nightly/audit.py"),
    ),
    Piece(
        "wheel",
        "`make wheel`: archive and wheels, each tried in an empty environment",
        (Step("wheel", (PYTHON, "tests/wheel.py"), r"^wheel: (\d+ wheels, .*)"),),
    ),
    Piece(
        "demo",
        "`make demo BROKERS=real`",
        (module("flights", "--brokers", "real", "--out", ".cache/nightly/demo", step="demo", figure=r"^(all of it: .*)"),),
    ),
    Piece(
        "spark-versions",
        "`make spark-versions`: every PySpark from 4.0 on, and Connect",
        tuple(module("spark.versions", version, step=version, figure=r"^(PySpark .*)") for version in (*OTHERS, CONNECT)),
    ),
    Piece(
        "clang",
        "unit, wire and fuzz, everything compiled by clang",
        (suite("clang", "copies", "clang", "--cc", "clang", parts="unit wire fuzz"),),
    ),
    Piece(
        "pythons",
        f"unit and wire on every other CPython than this machine's own, {OWN}",
        tuple(suite(version, "copies", version, "--python", version, parts="unit wire") for version in PYTHONS),
    ),
    Piece(
        "bare",
        "`.ci/run` on a bare Debian 12: clang alone, no git, no locale, SIGINT ignored",
        (
            suite("lint unit wire", "bare", parts="lint unit wire"),
            suite("fuzz conformance", "bare", parts="fuzz conformance"),
            suite("real", "bare", parts="real"),
            suite("integration", "bare", parts="integration"),
            suite("spark", "bare", parts="spark"),
            suite("bench", "bare", parts="bench"),
        ),
    ),
    Piece(
        "bench",
        "`make bench`, all of it",
        (module("benchmarks", "--minutes", "36", step="bench", figure=r"^(\d+ rows, \d+ failures)"),),
    ),
    Piece(
        "matrix",
        "the tests on older and odd brokers, which `make test` runs on the newest ones",
        tuple(
            module("pytest", "-q", "-p", "no:cacheprovider", *folders, "--nightly", "only", *words, step=name)
            for name, folders, words in (
                ("kafka", ("tests/conformance", "tests/integration"), ("--broker", "real", "--protocol", "kafka")),
                ("pulsar", ("tests/conformance", "tests/integration"), ("--broker", "real", "--protocol", "pulsar")),
                ("rocketmq", ("tests/conformance", "tests/integration"), ("--broker", "real", "--protocol", "rocketmq")),
                ("spark", ("tests/spark",), ()),
            )
        ),
    ),
    Piece(
        "soak",
        "`make soak`: streaming jobs whose driver, workers and brokers are killed",
        tuple(module("spark.kills", "--job", job, "--out", f".cache/nightly/soak-{job}.txt", step=job, figure=r"^(.+)$") for job in JOBS),
    ),
    Piece(
        "soak-tests",
        "the tests that `make test` leaves out, since others prove the same",
        (Step("soak", (PYTHON, "tests/run.py", "--parts", "soak", "--minutes", "36")),),
    ),
    Piece(
        "mutate",
        f"`make mutate`, seeds {', '.join(SEEDS)}: faults in the client half that no test notices",
        (module("mutate", "--seed", *SEEDS, "--minutes", "34", step="mutate", figure=r"^all +(\d+) .* ([\d.]+%)$"),),
    ),
)


def named(names: list[str]) -> list[Piece]:
    """These pieces, in the order asked for; all without a name. Ends the program at a name that is none."""
    known = {piece.name: piece for piece in PIECES}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no piece {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(PIECES)
