"""What the installation does to PySpark's zip files, and where clones have their Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


def installation(folder: Path, jar: str = "jar") -> Path:
    """A PySpark of one jar and one program."""
    home = folder / "pyspark"
    for name, text in (("jars/some.jar", jar), ("bin/spark-class", "#!/bin/sh\n"), ("python/lib/pyspark.zip", "zip")):
        path = home / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    notes = folder / "pyspark-4.2.0.dist-info" / "RECORD"
    notes.parent.mkdir()
    notes.write_text(f"pyspark/jars/some.jar,sha256={jar},3\npyspark/worker.py,sha256=x,1\n")
    return home


def jdk(folder: Path, modules: str = "modules") -> Path:
    """A JDK as far as it tells which one it is."""
    for name, text in (("bin/java", "#!/bin/sh\n"), ("lib/modules", modules)):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    return folder


def test_clones_with_the_same_spark_and_jdk_have_one_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was made from decides: another jar, another JDK or one that was changed in its place has an archive of its own."""
    monkeypatch.setenv("WIREPROTO_CACHE", str(tmp_path / "cache"))
    java = jdk(tmp_path / "jdk")

    def place(home: Path, java: Path) -> Path | None:
        monkeypatch.setenv("JAVA_HOME", str(java))
        monkeypatch.setattr(quick_spark, "home", lambda: home)
        return quick_spark.archive()

    one, other = installation(tmp_path / "one"), installation(tmp_path / "other")
    first = place(one, java)
    assert first is not None
    assert first.is_relative_to(tmp_path / "cache")
    assert place(other, java) == first
    assert place(installation(tmp_path / "newer", "new"), java) != first
    assert place(one, jdk(tmp_path / "jdk-2")) != first
    (java / "lib" / "modules").write_text("other modules")
    assert place(one, java) != first


def test_a_spark_that_was_kept_is_whole_and_outlives_its_clone(tmp_path: Path) -> None:
    spark, kept = installation(tmp_path / "one"), tmp_path / "kept"
    quick_spark.keep_programs(spark, kept)
    before = (kept / "jars" / "some.jar").stat()
    quick_spark.keep_programs(installation(tmp_path / "other"), kept)
    after = (kept / "jars" / "some.jar").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    (kept / "jars" / "some.jar").unlink()
    quick_spark.keep_programs(spark, kept)
    (spark / "jars" / "some.jar").unlink()
    assert {path.relative_to(kept).as_posix() for path in quick_spark.parts(kept)} == {
        "jars/some.jar",
        "bin/spark-class",
        "python/lib/pyspark.zip",
    }
    assert (kept / "jars" / "some.jar").read_text() == "jar"


def test_what_is_not_used_any_more_is_forgotten(tmp_path: Path) -> None:
    for name, days in (("old", 31), ("new", 29)):
        folder = installation(tmp_path / name).parent
        then = folder.stat().st_mtime - days * 86_400
        os.utime(folder, (then, then))
    quick_spark.forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
