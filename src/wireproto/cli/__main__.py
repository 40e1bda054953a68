"""Runs the command as ``python -m wireproto.cli``, without its script."""

import sys

from wireproto.cli import main

sys.exit(main())
