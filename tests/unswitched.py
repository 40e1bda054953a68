"""A pytest plugin for `make coverage ARGS="--parts cython"`: threads take turns where they wait, not in the middle of what they do.

The core and the engine count on the interpreter's lock where no Python code runs; a build with line tracing runs the tracer's everywhere,
and the interpreter may give the lock away in it, which no other build does.
"""

from __future__ import annotations

import sys

sys.setswitchinterval(5.0)
