"""`make spark-versions`: the tour (`tour.py`) on other PySparks, each in an environment of its own under .cache, and here by Connect.

    python -m spark.versions [4.0 4.1 …]      what it downloads (450 MB a version) is kept; with that, a run takes a minute or two

The extension must be built for the Python that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CLONE = Path(__file__).parents[2]
OTHERS = ("4.0", "4.1")
NEEDS = ("pyarrow>=18", "pandas>=2.2,<3", "cramjam>=2.9", "python-snappy>=0.7.3", "protobuf>=6")


def python(version: str) -> Path:
    """The interpreter of an environment with that PySpark; made where it is not there."""
    folder = CLONE / ".cache" / f"spark-{version}"
    ready, found = folder / "ready", folder / "bin" / "python"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(found), "-m", "pip", "install", "-q", f"pyspark=={version}.*", *NEEDS], check=True)
        ready.touch()
    return found


def main() -> int:
    """Run all; 0 when each saw what it must see."""
    environment = {**os.environ, "PYTHONPATH": f"{CLONE / 'src'}:{CLONE / 'tests'}"}
    runs = [[str(python(version))] for version in sys.argv[1:] or OTHERS]
    commands = [*([*run, "-m", "spark.tour"] for run in runs), [sys.executable, "-m", "spark.tour", "--remote"]]
    return max([subprocess.run(command, env=environment, cwd=CLONE, timeout=600, check=False).returncode for command in commands])


if __name__ == "__main__":
    sys.exit(main())
