"""Small Java programs as judges: compiled once against a pom's class path, run to the end, JSON lines on their standard output.

    lines = java.run("rocketmq-4.9.7", "RocketJudge", "send", name_server, "topic", input=[{"body": …}])

Sources lie under java/; classes are kept in ``.cache/classes/`` by hash of source and class path. The official clients print logs on
standard output too: only lines that begin with ``{`` count. Clients that log to files are pointed at a temporary home.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from .maven import cache_folder, classpath, tool
from .process import spawn

SOURCES = Path(__file__).with_name("java")
_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_CHARSET = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-Dstderr.encoding=UTF-8")  # whatever the locale


def compiled(pom: str, name: str) -> str:
    """Class path of the pom with the compiled ``java/<name>.java`` in front."""
    path = classpath(pom)
    source = SOURCES / f"{name}.java"
    digest = hashlib.sha256(source.read_bytes() + path.encode()).hexdigest()[:16]
    folder = cache_folder("classes") / f"{name}-{digest}"
    with (cache_folder("classes") / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / f"{name}.class").exists():
            folder.mkdir(exist_ok=True)
            command = [tool("javac"), "-encoding", "UTF-8", "-proc:none", "-nowarn", "-cp", path, "-d", str(folder), str(source)]
            run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=300)
            if run.returncode:
                raise RuntimeError(f"javac {source.name} against {pom} failed:\n{run.stdout}{run.stderr}")
    return f"{folder}:{path}"


def command(pom: str, name: str, arguments: Iterable[str], home: str, flags: Iterable[str] = ()) -> list[str]:
    """The command line that runs a compiled program."""
    flags = (*_FLAGS, *_CHARSET, *flags, f"-Duser.home={home}", "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={home}")
    return [tool("java"), *flags, "-cp", compiled(pom, name), name, *arguments]


def run(
    pom: str,
    name: str,
    *arguments: str,
    input: Iterable[Any] = (),  # noqa: A002
    timeout: float = 120.0,
    flags: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """Run it to the end.

    Args:
        pom: name under poms/.
        name: class, and file under java/.
        arguments: its arguments.
        input: objects for its standard input, a JSON line each.
        timeout: seconds.
        flags: more of the JVM's.
    Returns:
        the JSON objects that it printed.
    Raises:
        RuntimeError: it ended with another code than 0; its output follows.
    """
    text = "".join(json.dumps(item) + "\n" for item in input)
    pipes: dict[str, Any] = {"input": text, "capture_output": True, "text": True, "encoding": "utf-8", "errors": "replace"}
    with tempfile.TemporaryDirectory(prefix="wireproto-java-") as home:
        done = subprocess.run(command(pom, name, arguments, home, flags), timeout=timeout, **pipes)
    if done.returncode:
        raise RuntimeError(f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Program:
    """A Java program that stays, for a consumer beside ours: ``with Program(…) as p: for line in p.lines(): …``."""

    def __init__(self, pom: str, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="wireproto-java-")
        self._command = command(pom, name, arguments, self._home.name)
        self._env = env

    def __enter__(self) -> Self:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.child = spawn(self._command, env=self._env, start_new_session=True, **pipes)
        return self

    def lines(self) -> Iterator[dict[str, Any]]:
        """The JSON objects that it prints, until it ends."""
        assert self.child.stdout
        for line in self.child.stdout:
            if line.startswith(b"{"):
                yield json.loads(line)

    def send(self, item: Any) -> None:
        """One JSON line to its standard input."""
        assert self.child.stdin
        self.child.stdin.write(json.dumps(item).encode() + b"\n")
        self.child.stdin.flush()

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait(10)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe:
                pipe.close()
        self._home.cleanup()
