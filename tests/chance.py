"""One seed for whatever chance decides in a run: the date, or what a run that failed has printed. Standard library only."""

from __future__ import annotations

import os
import time

VARIABLE = "WIREPROTO_SEED"


def seed() -> int:
    """The seed that the environment names, else the date as a number: other inputs each day, the same ones all day."""
    return int(os.environ.get(VARIABLE) or time.strftime("%Y%m%d"))
