"""Makes clients and roles context managers.

`Closing` closes at the end of a ``with`` block, and never hides the error that ended the block: an error of the close becomes a note of it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

INTERRUPTED = 5.0
"""Seconds for the close of a block that Ctrl-C or an exit ended: short, since the user does not want to wait for a broker then."""


class Closing:
    """A context manager over `close`."""

    def close(self, timeout: float = 30.0) -> None:
        """Close the client or role, in `timeout` seconds; defined by the derived class."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        try:
            if isinstance(error, Exception):
                self.close()
            else:
                self.close(INTERRUPTED)
        except Exception as why:
            error.add_note(f"closing failed, too: {type(why).__name__}: {why}")
