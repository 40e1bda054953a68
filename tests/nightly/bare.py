"""A Debian with nothing in it but what the README names, and the suite in it: `python -m nightly.bare [--suite sid] --parts unit wire`.

What it is: a system made once by mmdebstrap under .cache/nightly, with clang for the C compiler, no gcc, no git and no locale; `.ci/run`
there by an ordinary user, in mount and process namespaces of its own, SIGINT ignored by its parent. `--shell` gives a shell there.
May assume: root, mmdebstrap, a network; what this machine trusts and how it finds names is taken over. Must not: touch the machine beside
that folder.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from . import work
from .copies import mirror

PACKAGES = (  # the README's list
    *("python3", "python3-dev", "python3-venv", "clang", "libclang-rt-dev", "make", "default-jdk-headless", "maven", "valgrind"),
    "ca-certificates",
)
MIRROR = os.environ.get("WIREPROTO_DEBIAN", "http://deb.debian.org/debian")
USER, HOME = "somebody", "/home/somebody"
TREE = f"{HOME}/wireproto"
TRUSTED = "usr/local/share/ca-certificates"
ENTER = """set -eu
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
hostname bare
root=$1; shift
exec chroot "$root" "$@"
"""
RUN = f"""trap '' INT
cd {TREE}
for absent in git gcc; do if command -v $absent; then echo "$absent is here"; exit 1; fi; done
exec bash .ci/run
"""


def made(suite: str) -> Path:
    """The system's root; made where there is none of just these packages."""
    packages = hashlib.sha256(repr((PACKAGES, MIRROR)).encode()).hexdigest()[:8]
    root = work.CLONE / ".cache" / "nightly" / f"bare-{suite}-{packages}"
    if not root.exists():
        fresh = root.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        wanted = ["--variant=minbase", "--skip=check/empty", f"--include={','.join(PACKAGES)}"]
        wanted.append('--aptopt=Acquire::Check-Valid-Until "false"')  # a mirror of a suite that moves may be days behind
        subprocess.run(["mmdebstrap", "-q", *wanted, suite, str(fresh), MIRROR], check=True)
        for certificate in Path("/", TRUSTED).glob("*.crt"):
            shutil.copy(certificate, fresh / TRUSTED)
        for command in (["update-ca-certificates", "--fresh"], ["useradd", "--create-home", "--shell", "/bin/bash", USER]):
            inside(fresh, *command, stdout=subprocess.DEVNULL).check_returncode()
        fresh.rename(root)
    shutil.copy("/etc/resolv.conf", root / "etc")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n127.0.1.1 bare\n::1 localhost\n", encoding="ascii")  # as installers write it
    return root


def inside(root: Path, *command: str, user: str = "root", parts: str = "", **keywords: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command in the system, with nothing of our environment."""
    clean = ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=POSIX", f"PARTS={parts}"]
    clean.append(f"HOME={HOME if user == USER else '/root'}")
    switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user != "root" else []
    spaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child"]
    return subprocess.run([*spaces, "sh", "-c", ENTER, "sh", str(root), *clean, *switch, *command], check=False, **keywords)


class Memory:
    """The most that the system's processes had at a time, looked at every few seconds: what they share counts once."""

    def __init__(self, root: Path) -> None:
        self.most, self._root, self._over = 0, str(root), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(3):
            self.most = max(self.most, sum(map(self._of, Path("/proc").glob("[0-9]*"))))

    def _of(self, process: Path) -> int:
        with contextlib.suppress(OSError):  # it has ended
            if str((process / "root").readlink()) == self._root:
                found = re.search(r"^Pss: +(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
                return int(found[1]) * 1024 if found else 0
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="nightly.bare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="bookworm", help="of Debian; a newer one has a newer CPython")
    parser.add_argument("--parts", nargs="+", default=[], help="of make test; all without")
    parser.add_argument("--shell", action="store_true")
    given = parser.parse_args()
    lacking = [name for name in ("mmdebstrap", "unshare", "setpriv") if shutil.which(name) is None]
    if lacking or os.geteuid():
        sys.exit(f"a bare system needs {' and '.join(lacking) or 'root'}")
    root = made(given.suite)
    if given.shell:
        return inside(root, "bash", "-i", user=USER).returncode
    mirror(root / TREE.lstrip("/"))
    inside(root, "chown", "-R", f"{USER}:", TREE).check_returncode()
    print(f"{root}: {' '.join(given.parts) or 'everything'}, as {USER}", flush=True)
    with Memory(root) as memory:
        code = inside(root, "bash", "-c", RUN, user=USER, parts=" ".join(given.parts), stdin=subprocess.DEVNULL).returncode
    print(f"{memory.most / 1e9:.1f} GB of memory at most", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
