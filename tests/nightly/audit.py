"""Known faults of what is installed, by pip-audit, which asks PyPI's own advisories.

    python -m nightly.audit pinned      every version in constraints.txt
    python -m nightly.audit user        the newest versions of what `pip install wireproto[arrow,spark]` brings

A package that PyPI tells nothing of has not passed; so nothing passes where the index is a mirror without advisories. `ARGUED` names an
advisory that does not concern us, with why. May assume: a network. Must not: install what it looks at.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import constraints

from . import work

HOME = work.CLONE / ".cache" / "nightly" / "audit"
ARGUED: dict[str, str] = {}


def tool() -> Path:
    """pip-audit, in an environment of its own."""
    python = HOME / "bin" / "python"
    if not (HOME / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-c", str(constraints.FILE), "pip-audit"], check=True)
        (HOME / "ready").touch()
    return HOME / "bin" / "pip-audit"


def requirements(what: str) -> str:
    """Exact versions, a line each."""
    if what == "pinned":
        return constraints.FILE.read_text(encoding="utf-8")
    return constraints.resolve("--python-version", constraints.PYTHONS[-1], given=constraints.users())


def main() -> int:
    parser = argparse.ArgumentParser(prog="nightly.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pinned", "user"))
    what = parser.parse_args().what
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements(what))
        file.flush()
        command = [str(tool()), "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "-r", file.name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        print(f"audit: pip-audit ended with {done.returncode} and said nothing")
        return 1
    packages = json.loads(done.stdout)["dependencies"]
    unknown = [f"{package['name']} ({package['skip_reason']})" for package in packages if "skip_reason" in package]
    found = [(package, fault) for package in packages for fault in package.get("vulns", ())]
    for package, fault in found:
        why = f": argued away: {ARGUED[fault['id']]}" if fault["id"] in ARGUED else ""
        print(f"{package['name']} {package['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'none'}{why}")
    for name in unknown[:5]:
        print(f"not looked up: {name}")
    if len(unknown) == len(packages):
        print(f"audit: nothing was looked up: the index here tells no advisories for any of {len(packages)} packages")
        return 1
    left = [fault["id"] for _, fault in found if fault["id"] not in ARGUED]
    counts = f"{len(left)} known faults, {len(found) - len(left)} argued away"
    print(f"audit: {len(packages) - len(unknown)} of {len(packages)} packages looked up: {counts}")
    return 1 if left or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
