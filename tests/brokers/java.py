"""Small Java programs as judges: compiled once against a pom's class path, run to the end, JSON lines on their standard output.

    lines = java.run("zookeeper-3.9.5", "JuteJudge", "snapshot", path)

Sources lie under java/; the jar of a program is kept in ``classes/`` of the user's cache by hash of source and class path, and the archive
of what its first run loaded in ``shared/`` (maven.py), by which the next take half as much of the processor. The official clients print
logs on standard output too: only lines that begin with ``{`` count. Clients that log to files are pointed at a temporary home.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from . import maven
from .maven import classpath, quick_tool, user_folder
from .process import spawn

SOURCES = Path(__file__).with_name("java")
_FLAGS = ("-Xmx256m", *maven.SHORT_LIVED, "-Djava.net.preferIPv4Stack=true")
_CHARSET = ("-Dstdout.encoding=UTF-8", "-Dstderr.encoding=UTF-8")  # whatever the locale


def compiled(pom: str, name: str) -> str:
    """Class path of the pom with a jar of the compiled ``java/<name>.java`` in front: an archive of classes takes jars alone."""
    path = classpath(pom)
    source = SOURCES / f"{name}.java"
    digest = hashlib.sha256(source.read_bytes() + path.encode()).hexdigest()[:16]
    kept = user_folder("classes") / f"{name}-{digest}.jar"
    with (user_folder("classes") / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix="wireproto-java-") as folder:
                command = [*quick_tool("javac"), "-encoding", "UTF-8", "-proc:none", "-nowarn", "-cp", path, "-d", folder, str(source)]
                run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=300)
                if run.returncode:
                    raise RuntimeError(f"javac {source.name} against {pom} failed:\n{run.stdout}{run.stderr}")
                fresh = kept.with_suffix(".new")
                with zipfile.ZipFile(fresh, "w") as out:
                    for file in sorted(Path(folder).rglob("*.class")):
                        out.write(file, file.relative_to(folder))
                fresh.replace(kept)
    return f"{kept}{os.pathsep}{path}"


def command(pom: str, name: str, arguments: Iterable[str], home: str, flags: Iterable[str] = ()) -> list[str]:
    """The command line that runs a compiled program."""
    flags = (*_FLAGS, *_CHARSET, *flags, f"-Duser.home={home}", "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={home}")
    return maven.java(compiled(pom, name), name, *arguments, flags=flags)


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
    with (
        tempfile.TemporaryDirectory(prefix="wireproto-java-") as home,
        maven.leaving_classes(command(pom, name, arguments, home, flags)) as words,
    ):
        done = subprocess.run(words, timeout=timeout, **pipes)
        if done.returncode:
            raise RuntimeError(f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Program:
    """A Java program that stays, for a consumer beside ours: ``with Program(…) as p: for line in p.lines(): …``."""

    def __init__(self, pom: str, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="wireproto-java-")
        self._command = command(pom, name, arguments, self._home.name)
        self._env = env
        self._at_work = False

    def __enter__(self) -> Self:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.child = spawn(self._command, env=self._env, start_new_session=True, **pipes)
        return self

    def lines(self) -> Iterator[dict[str, Any]]:
        """The JSON objects that it prints, until it ends."""
        assert self.child.stdout
        for line in self.child.stdout:
            if line.startswith(b"{"):
                self._at_work = True
                yield json.loads(line)

    def send(self, item: Any) -> None:
        """One JSON line to its standard input."""
        assert self.child.stdin
        self.child.stdin.write(json.dumps(item).encode() + b"\n")
        self.child.stdin.flush()

    def __exit__(self, *_: object) -> None:
        if self._at_work and self.child.poll() is None:
            maven.keep_classes(self.child.pid, self._command)
        self.child.kill()
        self.child.wait(10)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe:
                pipe.close()
        self._home.cleanup()
