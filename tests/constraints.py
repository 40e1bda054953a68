"""`make constraints`: constraints.txt anew, the exact version of everything that tests, lint, benches and the nightly pieces install.

    python tests/constraints.py [--newest]      --newest: newer versions of all; without it only what is missing or no longer fits
    python tests/constraints.py --users         print what an installation of wireproto with every extra brings; changes nothing

What it is: the groups, extras and build requirements of pyproject.toml, resolved by uv for CPython 3.11 to 3.13 at once (a line that
holds for some of them has a marker), then looked at again for each of them: what is not pure Python must come as a wheel, so that no
machine needs more than a C compiler. May assume: a network, any Python 3.11+ with venv. Must not: change an environment that is in use.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

CLONE = Path(__file__).resolve().parents[1]
FILE = CLONE / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13")
ARCHIVES = ("pyspark",)  # pure Python, published as source archives alone
INSTALLERS = ["pip>=25.1"]  # named by the Makefile alone
HEAD = "# What `make` installs, exactly; by `make constraints`, which says how. Users' installations do not read it.\n"


def project() -> dict[str, Any]:
    return tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))


def users() -> list[str]:
    """What an installation with every extra brings."""
    facts = project()["project"]
    return [*facts["dependencies"], *(text for texts in facts["optional-dependencies"].values() for text in texts)]


def wanted() -> list[str]:
    """Every requirement that pyproject.toml and the Makefile name."""
    groups = [text for texts in project()["dependency-groups"].values() for text in texts]
    return [*INSTALLERS, *project()["build-system"]["requires"], *users(), *groups]


def without(*names: str) -> str:
    """The file's text without the lines of these packages, for an environment that has another version of them."""
    return "".join(line for line in FILE.read_text(encoding="utf-8").splitlines(True) if line.partition("=")[0] not in names)


def uv() -> str:
    """The resolver, in an environment of its own under .cache."""
    home = CLONE / ".cache" / "uv"
    found = home / "bin" / "uv"
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pinned = ["-c", str(FILE)] if FILE.exists() else []
        subprocess.run([str(home / "bin" / "python"), "-m", "pip", "install", "-q", *pinned, "uv"], check=True)
    return str(found)


def resolve(*arguments: str, given: list[str]) -> str:
    """What uv makes of these requirements."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV"))}
    command = [uv(), "pip", "compile", "-q", "--no-annotate", "--no-header", *arguments, "-"]
    done = subprocess.run(command, cwd=CLONE, env=plain, input="\n".join(given), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"constraints: {' '.join(arguments)}: no versions fit")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="make constraints", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newest", action="store_true", help="newer versions of everything, not only of what no longer fits")
    parser.add_argument("--users", action="store_true", help="print what an installation of wireproto with every extra brings, and end")
    given = parser.parse_args()
    newest = given.newest
    if given.users:
        print("\n".join(users()))
        return
    fresh = FILE.with_suffix(".new")
    fresh.write_text("" if newest or not FILE.exists() else FILE.read_text(encoding="utf-8"), encoding="utf-8")
    try:
        # uv keeps what the output file names, as far as it fits.
        resolve("--universal", "--python-version", PYTHONS[0], "-o", str(fresh), given=wanted())
        for python in PYTHONS:
            platform = ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
            resolve(*platform, "--no-build", "-c", str(fresh), given=[text for text in wanted() if not text.startswith(ARCHIVES)])
            print(f"constraints: CPython {python}: everything comes as a wheel", flush=True)
        fresh.write_text(HEAD + fresh.read_text(encoding="utf-8"), encoding="utf-8")
        before = set(FILE.read_text(encoding="utf-8").splitlines()) if FILE.exists() else set()
        fresh.replace(FILE)
    finally:
        fresh.unlink(missing_ok=True)
    after = set(FILE.read_text(encoding="utf-8").splitlines())
    for line in sorted(before - after):
        print(f"- {line}")
    for line in sorted(after - before):
        print(f"+ {line}")


if __name__ == "__main__":
    main()
