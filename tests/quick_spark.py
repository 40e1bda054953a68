"""Compiles what Spark's Python processes import: they find it in zip files without byte code, and compile it anew each time.

    python tests/quick_spark.py    by the Makefile, behind the installation; the installed PySpark's zip files, once

That is a second of the processor for each of them, and each has ten seconds of the clock to call back (tests/spark/late.py). May assume:
PySpark is installed for this interpreter. Must not: change what is imported, or leave half a file.
"""

from __future__ import annotations

import compileall
import importlib.util
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path


def compiled(path: Path) -> None:
    """Put byte code beside the sources of this file, where there is none; another interpreter passes it by."""
    with zipfile.ZipFile(path) as found, tempfile.TemporaryDirectory(dir=path.parent) as folder:
        if any(name.endswith(".pyc") for name in found.namelist()):
            return
        root = Path(folder, "files")
        found.extractall(root)
        never = py_compile.PycInvalidationMode.UNCHECKED_HASH  # times within a zip are local ones
        compileall.compile_dir(root, quiet=2, legacy=True, stripdir=str(root), prependdir=str(path), invalidation_mode=never)
        fresh = Path(folder, path.name)
        with zipfile.ZipFile(fresh, "w") as made:
            for file in sorted(root.rglob("*")):
                made.write(file, file.relative_to(root))
        fresh.replace(path)


def main() -> int:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        print("quick_spark: PySpark is not installed here", file=sys.stderr)
        return 1
    for path in sorted(Path(spec.origin).with_name("python").joinpath("lib").glob("*.zip")):
        compiled(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
