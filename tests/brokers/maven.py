"""Java, Maven and class paths: which there are, and what a pom resolves to; archives of classes, by which a JVM boots with less work.

A pom under poms/ is resolved once by Maven and the class path kept in ``classpath/`` of the user's cache, keyed by the pom's hash, so that
a later start, from whichever clone, needs neither Maven nor network. Maven's standard output holds terminal codes and is never parsed.

An archive (class data sharing, JDK 17 and newer) holds what a program had loaded when it was closed, parsed and verified: a boot from it
takes a third to a half less of the processor. The first server of a class path that is closed in order leaves it in ``shared/`` of the
user's cache, and so does the first run of a judge (java.py). Those that start before there is one take up to twice as much as without
any of this: a JVM that may be asked for an archive looks at the class path's jars for each class. An archive that no JVM has read for a
month goes. The JVM checks an archive against its own build and against the jars, and goes on without one that does not fit or is not
there any more. Only a complete file is given to it: its length is kept beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .errors import Unavailable

POMS = Path(__file__).with_name("poms")
CLONE = Path(__file__).resolve().parents[2]
RESOLVE_TIMEOUT = float(os.environ.get("WIREPROTO_MAVEN_TIMEOUT", "900"))
DUMP_TIMEOUT = 60.0
UNREAD = 30 * 86400.0
"""Seconds after which an archive that no JVM has read goes when another is made."""
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags of a JVM that ends before its second compiler and threads for its collector pay: half of what Maven and javac take."""
_RECORD = "-XX:+RecordDynamicDumpInfo"


def cache_folder(*parts: str) -> Path:
    """A folder under the clone's ``.cache`` (or WIREPROTO_CACHE), made on demand."""
    root = Path(os.environ.get("WIREPROTO_CACHE") or CLONE / ".cache")
    folder = root.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def user_folder(*parts: str) -> Path:
    """A folder for what all clones of this user can use, made on demand: in their cache, beside the jars that Maven keeps for them.

    It lies under WIREPROTO_CACHE where that is set, and under the clone's ``.cache`` where the user's cannot be written.
    """
    if not os.environ.get("WIREPROTO_CACHE"):
        with contextlib.suppress(OSError, RuntimeError):  # the latter: no home
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "wireproto", *parts)
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return cache_folder(*parts)


def tool(name: str) -> str:
    """Path of a JDK tool (java, javac, keytool): JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} on PATH: a JDK 17 or newer is needed")
    return found


def quick_tool(name: str) -> list[str]:
    """The beginning of the command line of a JDK tool that runs for seconds."""
    return [tool(name), *(f"-J{flag}" for flag in SHORT_LIVED)]


def classpath(pom: str) -> str:
    """The class path of ``poms/<pom>.xml``, from the cache or by Maven.

    Raises:
        Unavailable: no Maven, or it could not resolve (its own words follow).
    """
    source = POMS / f"{pom}.xml"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    kept = user_folder("classpath") / f"{pom}-{digest}.txt"
    with (user_folder("classpath") / f"{pom}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            text = kept.read_text().strip()
            if text and all(Path(jar).exists() for jar in text.split(os.pathsep)):
                return text
        with (Path(tempfile.gettempdir()) / f"wireproto-maven.{os.getuid()}").open("w") as one:
            fcntl.flock(one, fcntl.LOCK_EX)  # this user's repository is shared by all clones, and Maven does not lock it
            return _resolve(source, kept)


def _resolve(source: Path, kept: Path) -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no mvn on PATH: Maven is needed once, to fetch the brokers' jars")
    fresh = kept.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    command = [maven, "-q", "-B", "-f", str(source), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    environment = dict(os.environ) | {"MAVEN_OPTS": " ".join([*SHORT_LIVED, os.environ.get("MAVEN_OPTS", "")])}
    words = ""
    for pause, extra in ((0.0, []), (1.0, ["-U"]), (20.0, ["-U"])):  # -U: Maven remembers a failed look-up for a day
        time.sleep(pause)  # a repository that was out of reach just now
        try:
            run = subprocess.run(
                [*command, *extra],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=RESOLVE_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Maven did not resolve {source.name} in {RESOLVE_TIMEOUT:.0f} s") from None
        if run.returncode == 0 and fresh.exists():
            fresh.replace(kept)
            return kept.read_text().strip()
        words = (run.stdout + run.stderr).strip()[-2000:]
    raise Unavailable(f"Maven could not resolve {source.name}:\n{words}")


def java(classpath_text: str, main: str, *arguments: str, flags: tuple[str, ...] = (), as_main: str = "") -> list[str]:
    """The command line of a JVM, whose strings do not depend on the locale that it is started in (ZooKeeper's digests of paths would).

    It boots from the archive of its class path and main class (or that of `as_main`, for a tool beside a server); when there is none yet,
    it records what `keep_classes` needs to make it.
    """
    kept = archive(classpath_text, as_main or main)
    shared = [_from(kept)] if _whole(kept) else [] if as_main else [_RECORD]
    own = ("-Dfile.encoding=UTF-8", "-Xshare:auto", *shared, "-Xlog:cds*=off", "-XX:-UsePerfData")
    return [tool("java"), *own, *flags, "-cp", classpath_text, main, *arguments]


def with_archive(command: Sequence[str]) -> list[str]:
    """Take a command line from `java`, and let it use the archive of its program where one was made since."""
    if _RECORD not in command:
        return list(command)
    kept = _archive_of(command)
    return [_from(kept) if word == _RECORD and _whole(kept) else word for word in command]


def _from(kept: Path) -> str:
    """The flag that makes a JVM use an archive."""
    return f"-XX:SharedArchiveFile={kept}"


def _archive_of(command: Sequence[str]) -> Path:
    """Where the classes of the program with this command line are kept."""
    where = command.index("-cp")
    return archive(command[where + 1], command[where + 2])


def archive(classpath_text: str, main: str) -> Path:
    """Where the classes of a program are kept: by main class, JDK, jars and their times. It need not exist."""
    home = Path(tool("java")).resolve().parents[1]
    key = [str(home), classpath_text, main]
    for path in (home / "lib" / "modules", *map(Path, classpath_text.split(os.pathsep))):
        with contextlib.suppress(OSError):
            facts = path.stat()
            key.append(f"{facts.st_size} {facts.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]
    return user_folder("shared") / f"{main.rpartition('.')[2]}-{digest}.jsa"


def _whole(kept: Path) -> bool:
    """Whether an archive is there, in the length in which it was made."""
    try:
        return kept.stat().st_size == int(kept.with_suffix(".lock").read_text())
    except (OSError, ValueError):
        return False


def keep_classes(pid: int, command: Sequence[str]) -> bool:
    """Make the archive of a program that runs, unless there is one or another process makes it; whether it was made.

    Args:
        pid: the JVM's.
        command: its command line, from `java`.
    """
    if _RECORD not in command:
        return False
    kept = _archive_of(command)
    with _made(kept) as fresh, contextlib.suppress(OSError, subprocess.SubprocessError, Unavailable):
        if fresh is not None:
            dump = [*quick_tool("jcmd"), str(pid), "VM.cds", "dynamic_dump", str(fresh)]
            try:
                subprocess.run(dump, stdin=subprocess.DEVNULL, capture_output=True, timeout=DUMP_TIMEOUT, check=True)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
            return True
    return False


@contextlib.contextmanager
def leaving_classes(command: Sequence[str]) -> Iterator[list[str]]:
    """Let a program that ends by itself in this block leave its archive, unless there is one or another process makes it.

    Args:
        command: its command line, from `java`.
    Yields:
        the command line to run. The archive is kept only when the block ends without an error.
    """
    if _RECORD not in command:
        yield list(command)
        return
    with _made(_archive_of(command)) as fresh:
        if fresh is None:
            yield with_archive(command)
            return
        try:
            yield [f"-XX:ArchiveClassesAtExit={fresh}" if word == _RECORD else word for word in command]
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _made(kept: Path) -> Iterator[Path | None]:
    """Where to write an archive: what is there at the end of the block becomes `kept`. None: there is one, or another process makes it."""
    with kept.with_suffix(".lock").open("a") as lock:
        fresh: Path | None = kept.with_suffix(".new")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fresh = None
        if fresh is None or _whole(kept):
            yield None
            return
        fresh.unlink(missing_ok=True)
        try:
            yield fresh
        finally:
            with contextlib.suppress(OSError):
                with fresh.open("rb") as written:
                    os.fsync(written.fileno())
                lock.truncate(0)
                lock.write(str(fresh.stat().st_size))
                lock.flush()
                fresh.replace(kept)
                for other in kept.parent.glob("*.jsa"):
                    facts = other.stat()
                    if time.time() - max(facts.st_atime, facts.st_mtime) > UNREAD:
                        other.unlink(missing_ok=True)
