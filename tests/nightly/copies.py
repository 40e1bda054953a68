"""The tree again, for another Python or compiler: `python -m nightly.copies NAME [--python 3.12] [--cc clang] --parts unit wire`.

What it is: a copy of the work's files under .cache/nightly/trees/NAME, with an environment and extensions of its own, in which parts of
`make test` run. `mirror` keeps such a copy current and touches only what changed, so that little is built again. Must not: change the
clone.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import wheel

from . import work

TREES = work.CLONE / ".cache" / "nightly" / "trees"
FOREIGN = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "ARGS", "PARTS", "TABLE", "PIECES")  # of who calls us
LIST = ".copied"  # in a copy: what was put there, so that what is gone from the work goes there, too


def mirror(target: Path, clone: Path = work.CLONE) -> list[str]:
    """Make the copy current; the names that it put there or took away."""
    names = work.files((".",), clone)
    before = (target / LIST).read_text(encoding="utf-8").split("\n") if (target / LIST).exists() else []
    changed = []
    for name in sorted(set(before) - set(names)):
        (target / name).unlink(missing_ok=True)
        changed.append(name)
    for name in names:
        path = target / name
        if not path.exists() or not filecmp.cmp(clone / name, path, shallow=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            shutil.copy(clone / name, path)  # with the time of now: what is built from it is older
            changed.append(name)
    target.mkdir(parents=True, exist_ok=True)
    (target / LIST).write_text("\n".join(names), encoding="utf-8")
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(prog="nightly.copies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the copy")
    parser.add_argument("--python", metavar="VERSION", help="which CPython (default: the clone's own)")
    parser.add_argument("--cc", metavar="COMPILER", help="which C compiler (default: CC, else cc)")
    parser.add_argument("--parts", nargs="+", required=True)
    given = parser.parse_args()
    target = TREES / given.name
    mirror(target)
    python = wheel.interpreters([given.python])[given.python] if given.python else os.path.realpath(sys.executable)
    environment = dict(os.environ) | {"WIREPROTO_CACHE": str(work.CLONE / ".cache")}  # Java classes and jars are the same
    for name in FOREIGN:
        environment.pop(name, None)
    if given.cc:
        if shutil.which(given.cc) is None:
            sys.exit(f"no {given.cc} here")
        environment["CC"] = given.cc
    print(f"{target}: {python}, {environment.get('CC', 'cc')}", flush=True)
    command = ["make", "--no-print-directory", f"PYTHON={python}", f"PARTS={' '.join(given.parts)}", "test"]
    return subprocess.run(command, cwd=target, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
