"""What the installation does to PySpark's zip files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import quick_spark

SOURCES = {"outer/__init__.py": "", "outer/inner.py": "here = 1\n", "broken.py": "def\n", "notes.txt": "as it was"}


def made(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in SOURCES.items():
            file.writestr(name, text)
    return path


def imported(path: Path, name: str = "outer.inner") -> str:
    """Where another process has the module from."""
    words = f"import sys; sys.path.insert(0, {str(path)!r}); import {name} as m; print(m.__file__)"
    return subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout.strip()


def test_what_lies_in_a_zip_file_is_imported_without_being_compiled_anew(tmp_path: Path) -> None:
    path = made(tmp_path / "some.zip")
    assert imported(path) == f"{path}/outer/inner.py"
    quick_spark.compiled(path)
    assert imported(path) == f"{path}/outer/inner.pyc"
    with zipfile.ZipFile(path) as file:
        assert {name: file.read(name).decode() for name in SOURCES} == SOURCES
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_done_once(tmp_path: Path) -> None:
    path = made(tmp_path / "some.zip")
    quick_spark.compiled(path)
    before = path.stat()
    quick_spark.compiled(path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_byte_code_of_another_interpreter_is_passed_by(tmp_path: Path) -> None:
    path = made(tmp_path / "some.zip")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("outer/inner.pyc", b"\0" * 32)
    assert imported(path) == f"{path}/outer/inner.py"


def test_spark_s_python_processes_have_it_here() -> None:
    import pyspark

    path = Path(pyspark.__file__).with_name("python") / "lib" / "pyspark.zip"
    assert imported(path, "pyspark.worker_util") == f"{path}/pyspark/worker_util.pyc"
