"""The generated files are what the schema says, and the generator refuses what the grammar forbids."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gen():
    """The generator, imported from the repository's root."""
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("proto.gen.__main__")
    finally:
        sys.path.remove(str(ROOT))


def test_generated_files_are_current(gen):
    stale = [str(path) for path, text in gen.generate().items() if not path.exists() or path.read_text() != text]
    assert not stale, "run `python -m proto.gen`"
    assert not gen.leftovers(gen.generate())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("request A api 1 versions 0\n  a int32\n  a int32\n", "same version"),
        ("request A api 1 versions 0\n  Big int32\n", "snake_case"),
        ("request A api 1 versions 0\n  a int31\n", "no struct 'int31'"),
        ("request A api 1 versions 0\n  a int8 default 128\n", "does not fit"),
        ("request A api 1 versions 0\n  a string default null\n", "never nullable"),
        ("request A api 1 versions 0\n  a [A]\n    b int8\n  c [A]\n    d int8\n", "already defined"),
        ("struct A\n  a [A]\n", "recursive"),
        ("request A api 1 versions 0\n  a int8 colour\n", "colour"),
        ("request A api 1 versions 0 flexible 0+\n  a int8 tag 1\n", "gap"),
        ("errors\n  1 X\n  1 Y\n", "code 1"),
        ("response A\n  a int8\n", "without its request"),
    ],
)
def test_wrong_schema_is_refused_with_file_and_line(gen, tmp_path, text, complaint):
    folder = tmp_path / "proto" / "kafka"
    folder.mkdir(parents=True)
    (folder / "01_a.wire").write_text(text)
    with pytest.raises(gen.SchemaError, match=complaint) as caught:
        gen.generate(tmp_path)
    assert "kafka/01_a.wire:" in str(caught.value)
