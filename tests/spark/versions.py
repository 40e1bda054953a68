"""`make spark-versions`: the tour (`tour.py`) on other PySparks, each in an environment of its own under .cache, and here by Connect.

    python -m spark.versions [4.0 4.1 4.2.1 4.3 connect]     all without a name; what it downloads (450 MB a version) is kept

Beside PySpark, everything has the versions of constraints.txt. The extension must be built for the Python that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import constraints

CLONE = Path(__file__).parents[2]
OTHERS = ("4.0", "4.1", "4.2.1", "4.3")
CONNECT = "connect"
NEEDS = ("pyarrow", "pandas", "cramjam", "python-snappy", "protobuf")


def python(version: str) -> Path:
    """The interpreter of an environment with that PySpark; made where it is not there."""
    folder = CLONE / ".cache" / f"spark-{version}"
    ready, found = folder / "ready", folder / "bin" / "python"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pinned = folder / "constraints.txt"
        pinned.write_text(constraints.without("pyspark", "py4j"), encoding="utf-8")
        exactly = f"pyspark=={version}" if version.count(".") > 1 else f"pyspark=={version}.*"
        subprocess.run([str(found), "-m", "pip", "install", "-q", "-c", str(pinned), exactly, *NEEDS], check=True)
        ready.touch()
    return found


def command(version: str) -> list[str]:
    """The tour on one of them."""
    return [sys.executable, "-m", "spark.tour", "--remote"] if version == CONNECT else [str(python(version)), "-m", "spark.tour"]


def main() -> int:
    """Run all; 0 when each saw what it must see, and none was ended by a signal."""
    environment = {**os.environ, "PYTHONPATH": f"{CLONE / 'src'}:{CLONE / 'tests'}"}
    codes = []
    for version in sys.argv[1:] or (*OTHERS, CONNECT):
        codes.append(subprocess.run(command(version), env=environment, cwd=CLONE, timeout=600, check=False).returncode)
        print(f"{version}: {'as it must be' if not codes[-1] else f'FAILED with {codes[-1]}'}", flush=True)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
