"""What the demo says while it runs, and what it says when a step fails: which one, of which broker, why, and what to do.

What it is: `Steps`, which numbers and times the steps, and `explained`, which makes advice of an error. Must not: import anything heavy:
the first words come before PySpark is loaded.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
COUNT = 17  # steps that a whole run has
BEAT = 10.0  # seconds after which a step without a bar says that it goes on
LATE = ("Timed out while waiting for the Python worker to connect back", "Python worker failed to connect back")  # as Spark says it
AGAIN = 3  # times that what Spark gave up for this reason is tried

BUSY = "the machine is busier than it waits for: run it again when less runs beside it, or fewer flights: --limit 20000"
GONE = "the broker is gone: look at its log (broker.log in the folder of --out), and run it again"
SPARK_GONE = "Spark has ended: look at its log (spark.log in the folder of --out), have 3 GB of memory free, and run it again"
REPORT = "run it again with --traceback to see where it comes from"
ADVICE = (  # words of an error, or its type's name: what to do; the first that fits
    (LATE[0], BUSY),
    (LATE[1], BUSY),
    ("Address already in use", "end what listens on that port (`ss -ltnp` shows it) and run it again"),
    ("No space left on device", "make room on the disk (Spark and the brokers write to the temporary folder, too; TMPDIR names another)"),
    ("Permission denied", "name folders that you may write to with --out and --cache"),
    ("Unavailable", "real brokers need a JDK 17 or newer, Maven and, once, Maven Central; `make demo` alone needs none but the JDK"),
    ("BootFailed", "run it again when less runs beside it, with 4 GB of memory free; `make demo` alone needs no servers"),
    ("ModuleNotFoundError", "run it by `make demo`, which installs what it needs"),
    ("JAVA_GATEWAY_EXITED", "Spark needs a JDK 17 or newer: look at the log, and at what `java -version` says"),
    ("Unreachable", GONE),
    ("Disconnected", GONE),
    ("TimedOut", BUSY),
    ("Unanswered", BUSY),
    ("ConnectionRefusedError", SPARK_GONE),  # py4j's: our own clients' errors have other names
    ("Py4JNetworkError", SPARK_GONE),
)


class Failed(Exception):
    """A step cannot be done; `advice` says what the reader can do about it."""

    def __init__(self, why: str, advice: str = REPORT) -> None:
        super().__init__(why)
        self.advice = advice
        self.step = ""


class Done:
    """What a step did, for the table at the end: `count` of records, and `seconds`, where the step's own do not fit."""

    count = 0
    seconds = 0.0


class Steps:
    """The steps of one run."""

    def __init__(self) -> None:
        self.number = 0
        self.rows: list[tuple[str, int, float]] = []

    @contextmanager
    def step(self, name: str, more: str = "", *, beat: float | None = BEAT) -> Iterator[Done]:
        """Say what begins, that it goes on, and how long it took; an error becomes `Failed`, which knows the step."""
        self.number += 1
        print(f"[{self.number:>2}/{COUNT}] {name}{more and ': ' + more}", flush=True)
        done, begin, over = Done(), time.perf_counter(), threading.Event()
        teller = threading.Thread(target=_beat, args=(over, beat), daemon=True)
        if beat is not None:
            teller.start()
        try:
            yield done
        except Exception as why:
            failed = why if isinstance(why, Failed) else explained(why)
            failed.step = failed.step or name
            if failed is why:
                raise  # with the cause that it has
            raise failed from why
        finally:
            over.set()
        whole = time.perf_counter() - begin
        say(f"done in {whole:.1f} s")
        if done.count:
            self.rows.append((name, done.count, done.seconds or whole))

    def table(self) -> str:
        """Records, seconds and rates of the steps."""
        return "\n".join(
            f"{name:<30} {count:>8,} in {seconds:6.2f} s  {count / seconds:>10,.0f} a second" for name, count, seconds in self.rows
        )


def _beat(over: threading.Event, seconds: float) -> None:
    begin = time.perf_counter()
    while not over.wait(seconds):
        say(f"… {time.perf_counter() - begin:.0f} s")


def say(text: str) -> None:
    """Print a line that belongs to the step at hand."""
    print(f"        {text}", flush=True)


def bar(name: str, total: int) -> Any:
    """Make a progress bar that leaves its last state on the screen."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    return tqdm(total=total, desc=f"        {name:<9}", unit=" records", unit_scale=True, mininterval=0.2, dynamic_ncols=True)


def explained(why: BaseException) -> Failed:
    """Make `Failed` of an error: its first line and its log's last ones, and the advice that fits."""
    text = str(why).strip() or type(why).__name__
    inner = re.findall(r"^\s*wireproto\.[\w.]+\.(\w+: .+)$", text, re.MULTILINE)  # ours, that Spark wraps with its traceback
    if inner:
        lines, name = inner[-1:], ""
    else:
        lines = [line for line in text.splitlines() if line.strip() and not re.match(r"\s*(at |File |Traceback)", line)]
        lines = lines[:1] + lines[1:][-3:]
        name = "" if type(why).__name__ in ("RuntimeError", "BootFailed", "Unavailable") else f"{type(why).__name__}: "
    shown = "\n    ".join(line.replace("Traceback (most recent call last):", "").strip()[:300] for line in lines)
    words = f"{type(why).__name__} {shown} {' '.join(sign for sign in LATE if sign in text)}"
    return Failed(name + shown, next((advice for sign, advice in ADVICE if sign in words), REPORT))


def message(failed: Failed) -> str:
    """Write a failure in a few lines: the step, what went wrong, what to do."""
    where = f"{failed.step}: " if failed.step else ""
    return f"demo: {where}{failed}\ndemo: what to do: {failed.advice}"


def retried_if_late(work: Callable[[], T]) -> T:
    """Do work, and do it again (three times at most) where Spark gave up on one of its Python processes.

    Such a process has ten seconds to connect back, and Spark has no option for more. Any other error is raised at once.
    """
    for _ in range(AGAIN - 1):
        try:
            return work()
        except Exception as why:
            if not any(sign in str(why) for sign in LATE):
                raise
            say("a Python process of Spark's did not call back within ten seconds: once more")
    return work()


def print_failure(failed: Failed) -> None:
    """Print a failure's message to standard error."""
    sys.stdout.flush()
    print(message(failed), file=sys.stderr, flush=True)
