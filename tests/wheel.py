"""`make wheel`: builds the source archive, a wheel from it, and tests the wheel in an empty environment, in an empty folder.

    python tests/wheel.py [--python 3.11 …]     with a Python that has `build`

For each CPython asked for (default: those of 3.11 to 3.13 that are here) a wheel is built and installed into a new environment with nothing
but its dependencies; there it is imported with warnings as errors, its command answers, and the README's first example runs. What lies in
the archives is checked too: no sources or C files in the wheel, nothing but the package and Spark's modules, every source in the archive,
sizes under a cap. Dependencies are the newest that there are, as a user gets them: what constraints.txt pins is for the tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

import ci
from nightly import work

CLONE = Path(__file__).resolve().parents[1]
DIST = CLONE / "dist"
VERSIONS = ("3.11", "3.12", "3.13")
WHEEL_CAP, ARCHIVE_CAP = 3 << 20, 6 << 20
UNWANTED = (".c", ".h", ".pyx", ".pxd", ".pxi", ".wire", ".proto", ".pyc")
PROBE = "import wireproto, wireproto._codec, wireproto._net; print(wireproto.__file__)"


def interpreters(wanted: list[str]) -> dict[str, str]:
    """Executables by version; those that are not here are left out, unless they were asked for, or CI asks for all."""
    found: dict[str, str] = {}
    for version in wanted or VERSIONS:
        names = [f"python{version}", *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))]
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            names.insert(0, sys.executable)
        for name in names:
            path = shutil.which(name)
            if path and answers(path, version):
                found[version] = path
                break
        else:
            if wanted or ci.here():
                raise SystemExit(f"no CPython {version} here")
            print(f"wheel: no CPython {version} here, not tested")
    return found


def answers(path: str, version: str) -> bool:
    """Whether this executable runs, is that version, and has the headers to compile with."""
    code = "import sys, sysconfig, os; print('%d.%d' % sys.version_info[:2], os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.split() == [version, "True"]


def run(*command: str | Path, cwd: Path) -> str:
    """Run it outside the clone's own environment; its output, or the end with it."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=keep, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"wheel: {' '.join(map(str, command))[:200]} failed with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-5000:]}"
        )
    return done.stdout


def source_archive(folder: Path) -> Path:
    """By `build`, isolated."""
    run(sys.executable, "-m", "build", "-q", "--sdist", "--outdir", DIST, CLONE, cwd=folder)
    return next(DIST.glob("*.tar.gz"))


def wheel_of(python: Path, archive: Path, folder: Path) -> Path:
    """A wheel for this interpreter, from the source archive alone."""
    before = set(DIST.glob("*.whl"))
    run(python, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "-w", DIST, archive, cwd=folder)
    return (set(DIST.glob("*.whl")) - before).pop()


def check_archive(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = work.files(("src", "README.md", "LICENSE", "setup.py"))
    missing = [name for name in wanted if name not in names and not name.endswith(".gitkeep")]
    generated = sorted(name for name in names if name.endswith(("_codec.c", "_net.c", ".so")))
    if missing or generated:
        raise SystemExit(f"wheel: the source archive lacks {missing[:10]} or holds what is built: {generated}")
    if archive.stat().st_size > ARCHIVE_CAP:
        raise SystemExit(f"wheel: {archive.name} has {archive.stat().st_size:,} bytes, the cap is {ARCHIVE_CAP:,}")


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    unwanted = [name for name in names if name.endswith(UNWANTED)]
    if unwanted:
        raise SystemExit(f"wheel: {wheel.name} holds {unwanted[:10]}")
    project = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))
    modules = [f"{name}.py" for name in project["tool"]["setuptools"]["py-modules"]]
    strangers = [name for name in names if not name.startswith(("wireproto/", "wireproto-")) and name not in modules]
    if strangers:
        raise SystemExit(f"wheel: {wheel.name} would install {strangers[:10]}")
    for needed in ("wireproto/py.typed", "wireproto/_codec.pyi", "wireproto/_net.pyi", *modules):
        if needed not in names:
            raise SystemExit(f"wheel: {wheel.name} lacks {needed}")
    if wheel.stat().st_size > WHEEL_CAP:
        raise SystemExit(f"wheel: {wheel.name} has {wheel.stat().st_size:,} bytes, the cap is {WHEEL_CAP:,}")


def try_out(python: str, wheel: Path, folder: Path) -> str:
    """Install the wheel into an empty environment; import it, ask its command, run the README's first example there."""
    home = folder / "env"
    run(python, "-m", "venv", home, cwd=folder)
    inside = home / "bin" / "python"
    run(inside, "-m", "pip", "--disable-pip-version-check", "install", "-q", wheel, cwd=folder)
    empty = folder / "empty"
    empty.mkdir()
    where = run(inside, "-W", "error", "-c", PROBE, cwd=empty).strip()
    if not where.startswith(str(home)):
        raise SystemExit(f"wheel: the environment imports {where}")
    run(home / "bin" / "wireproto", "--version", cwd=empty)
    return run(inside, "-W", "error", CLONE / "tests" / "first_example.py", cwd=empty)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="VERSION", help="only this CPython (may be repeated)")
    wanted = parser.parse_args().python
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="wireproto-wheel-") as name:
        top = Path(name)
        archive = source_archive(top)
        check_archive(archive)
        print(f"wheel: {archive.name}, {archive.stat().st_size:,} bytes", flush=True)
        sizes = []
        for version, python in interpreters(wanted).items():
            folder = top / version
            folder.mkdir()
            run(python, "-m", "venv", folder / "build", cwd=folder)
            wheel = wheel_of(folder / "build" / "bin" / "python", archive, folder)
            check_wheel(wheel)
            output = try_out(python, wheel, folder)
            sizes.append(wheel.stat().st_size)
            print(f"wheel: {wheel.name}, {wheel.stat().st_size:,} bytes; on {version} the README's first example prints")
            print("".join(f"    {line}\n" for line in output.splitlines()), end="", flush=True)
        print(f"wheel: {len(sizes)} wheels, of {max(sizes) / 1e6:.2f} MB at most")


if __name__ == "__main__":
    main()
