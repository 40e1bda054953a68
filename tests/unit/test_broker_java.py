"""Judges in Java (brokers/java.py): compiled once, and booted from the archive that their first run has left."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from brokers import java, maven, plugin

ECHO = """import java.util.*;
public class Echo { public static void main(String[] words) {
if (words[0].equals("fail")) System.exit(3);
Scanner in = new Scanner(System.in);
System.out.println("{\\"word\\": \\"" + words[0] + "\\"}"); System.out.flush();
while (in.hasNextLine()) { System.out.println("{\\"read\\": " + in.nextLine() + "}"); System.out.flush(); } } }
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of the program is to be; it has a cache of its own, and a pom without jars."""
    if shutil.which("javac") is None or shutil.which("jcmd") is None:
        plugin.missing("a JDK", "javac or jcmd is not on PATH")
    monkeypatch.setenv("WIREPROTO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "Echo.java").write_text(ECHO)
    with zipfile.ZipFile(tmp_path / "other.jar", "w") as out:
        out.writestr("nothing", "")
    monkeypatch.setattr(java, "SOURCES", tmp_path)
    monkeypatch.setattr(java, "classpath", lambda pom: str(tmp_path / "other.jar"))
    return maven.archive(java.compiled("pom", "Echo"), "Echo")


def test_a_run_that_ends_well_leaves_its_classes_to_the_next(kept: Path) -> None:
    with pytest.raises(RuntimeError, match="Echo fail ended with 3"):
        java.run("pom", "Echo", "fail")
    assert not kept.exists()
    for _ in range(2):
        assert java.run("pom", "Echo", "hello", input=[{"a": 1}]) == [{"word": "hello"}, {"read": {"a": 1}}]
        assert f"-XX:SharedArchiveFile={kept}" in java.command("pom", "Echo", (), "/")


def test_a_program_that_stays_leaves_its_classes_when_it_is_ended(kept: Path) -> None:
    with java.Program("pom", "Echo", "hello"):
        pass
    assert not kept.exists()  # it may not have been at work yet
    with java.Program("pom", "Echo", "hello") as program:
        assert next(program.lines()) == {"word": "hello"}
    assert kept.exists()
    with java.Program("pom", "Echo", "again") as program:
        assert next(program.lines()) == {"word": "again"}
        program.send({"b": 2})
        assert next(program.lines()) == {"read": {"b": 2}}
