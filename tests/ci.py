"""Whether this is CI, where what is missing is a failure and not a skip."""

from __future__ import annotations

import os


def here() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")
