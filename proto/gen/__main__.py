"""`python -m proto.gen [--check] [protocol …]`: writes the generated files, or says which are not current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import pulsar
from .check import check
from .emit_codes import emit_codes
from .emit_messages import emit_messages
from .emit_options import emit_option_types
from .emit_package import emit_package
from .emit_plans import emit_plans
from .emit_reference import emit_pulsar, emit_reference
from .model import SchemaError
from .parse import read_protocol

ROOT = Path(__file__).resolve().parents[2]
IN_PACKAGES = {"kafka"}  # so many messages that a module for all of them takes too long to import


def generate(root: Path = ROOT, names: list[str] | None = None) -> dict[Path, str]:
    """What the generated files should hold, by path."""
    files: dict[Path, str] = {}
    for folder in sorted((root / "proto").iterdir()):
        if not folder.is_dir() or not any(folder.glob("*.wire")) or (names and folder.name not in names):
            continue
        protocol = check(read_protocol(folder))
        target = root / "src" / "wireproto" / folder.name
        if folder.name in IN_PACKAGES:
            files |= {target / "messages" / name: text for name, text in emit_package(protocol).items()}
        else:
            files[target / "messages.py"] = emit_messages(protocol)
            files[target / "plans.py"] = emit_plans(protocol)
        files[target / "codes.py"] = emit_codes(protocol)
        files[root / "docs" / "reference" / f"{protocol.name}.md"] = emit_reference(protocol)
    if not names or "pulsar" in names:
        files |= pulsar.generate()
        files[root / "docs" / "reference" / "pulsar.md"] = emit_pulsar((pulsar.SOURCE / "PulsarApi.proto").read_text(encoding="utf-8"))
    if not names and root == ROOT:
        files |= emit_option_types(root)
    return files


def leftovers(files: dict[Path, str]) -> list[Path]:
    """Modules in a package of messages that no .wire file stands for any more."""
    folders = {path.parent for path in files if path.parent.name == "messages"}
    return sorted(path for folder in folders for path in folder.glob("*.py*") if path not in files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proto.gen", description=__doc__)
    parser.add_argument("protocols", nargs="*", help="only these")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is not current")
    options = parser.parse_args()
    try:
        files = generate(names=options.protocols)
    except SchemaError as error:
        print(error, file=sys.stderr)
        return 2
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(("not current: " if options.check else "wrote ") + str(path.relative_to(ROOT)))
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text := files[path], encoding="utf-8")
            assert text
    left = leftovers(files)
    for path in left:
        print(("no longer generated: " if options.check else "removed ") + str(path.relative_to(ROOT)))
        if not options.check:
            path.unlink()
    return 1 if options.check and (stale or left) else 0


if __name__ == "__main__":
    sys.exit(main())
