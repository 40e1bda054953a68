"""``python -m wireproto.cli``: the command without its script."""

import sys

from wireproto.cli import main

sys.exit(main())
