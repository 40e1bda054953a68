"""Java, Maven and class paths: which there are, and what a pom resolves to.

A pom under poms/ is resolved once by Maven and the class path kept in ``.cache/classpath/`` of the clone, keyed by the pom's hash, so
that a later start needs neither Maven nor network. Maven's standard output holds terminal codes and is never parsed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from .errors import Unavailable

POMS = Path(__file__).with_name("poms")
CLONE = Path(__file__).resolve().parents[2]
RESOLVE_TIMEOUT = float(os.environ.get("WIREPROTO_MAVEN_TIMEOUT", "900"))


def cache_folder(*parts: str) -> Path:
    """A folder under the clone's ``.cache`` (or WIREPROTO_CACHE), made on demand."""
    root = Path(os.environ.get("WIREPROTO_CACHE") or CLONE / ".cache")
    folder = root.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tool(name: str) -> str:
    """Path of a JDK tool (java, javac, keytool): JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} on PATH: a JDK 17 or newer is needed")
    return found


def classpath(pom: str) -> str:
    """The class path of ``poms/<pom>.xml``, from the cache or by Maven.

    Raises:
        Unavailable: no Maven, or it could not resolve (its own words follow).
    """
    source = POMS / f"{pom}.xml"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    kept = cache_folder("classpath") / f"{pom}-{digest}.txt"
    with (cache_folder("classpath") / f"{pom}.lock").open("w") as lock:
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
    words = ""
    for pause, extra in ((0.0, []), (1.0, ["-U"]), (20.0, ["-U"])):  # -U: Maven remembers a failed look-up for a day
        time.sleep(pause)  # a repository that was out of reach just now
        try:
            run = subprocess.run(
                [*command, *extra], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=RESOLVE_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Maven did not resolve {source.name} in {RESOLVE_TIMEOUT:.0f} s") from None
        if run.returncode == 0 and fresh.exists():
            fresh.replace(kept)
            return kept.read_text().strip()
        words = (run.stdout + run.stderr).strip()[-2000:]
    raise Unavailable(f"Maven could not resolve {source.name}:\n{words}")


def java(classpath_text: str, main: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
    """The command line of a JVM, whose strings do not depend on the locale that it is started in (ZooKeeper's digests of paths would)."""
    return [tool("java"), "-Dfile.encoding=UTF-8", *flags, "-cp", classpath_text, main, *arguments]
