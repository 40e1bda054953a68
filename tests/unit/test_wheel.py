"""What `make wheel` lets pass: the package, Spark's modules, and no file more or less."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import wheel as archives

WHOLE = (
    *("wireproto/__init__.py", "wireproto/py.typed", "wireproto/_codec.pyi", "wireproto/_net.pyi", "wireproto-0.1.0.dist-info/METADATA"),
    *(f"pyspark_wireproto_{protocol}.py" for protocol in ("kafka", "pulsar", "rocketmq", "zookeeper")),
)


def made(folder: Path, *names: str) -> Path:
    path = folder / "wireproto-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as opened:
        for name in names:
            opened.writestr(name, "")
    return path


def test_a_whole_wheel_passes(tmp_path: Path) -> None:
    archives.check_wheel(made(tmp_path, *WHOLE))


@pytest.mark.parametrize("name", WHOLE[1:4] + WHOLE[5:])
def test_one_that_lacks_a_file_does_not(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=rf"lacks {name}"):
        archives.check_wheel(made(tmp_path, *(other for other in WHOLE if other != name)))


@pytest.mark.parametrize("name", ["tests/conftest.py", "pyspark_wireproto_other.py", "setup.py"])
def test_one_that_would_install_more_does_not(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=rf"would install \['{name}'\]"):
        archives.check_wheel(made(tmp_path, *WHOLE, name))


@pytest.mark.parametrize("name", ["wireproto/_codec.pyx", "wireproto/_codec_parts/crc.c", "wireproto/__pycache__/x.pyc"])
def test_one_with_sources_or_byte_code_does_not(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"holds"):
        archives.check_wheel(made(tmp_path, *WHOLE, name))


def test_an_interpreter_that_is_not_here_fails_in_ci_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(archives, "answers", lambda path, version: version == "3.11")
    monkeypatch.setenv("CI", "")
    assert list(archives.interpreters([])) == ["3.11"]
    assert "no CPython 3.12 here, not tested" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    with pytest.raises(SystemExit, match=r"no CPython 3\.12 here"):
        archives.interpreters([])
