"""Types the makers and calls of a protocol's own client for asyncio by those of its synchronous one, so that no signature is written twice.

For type checkers alone: nothing here is called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(Generic[P, R_co]):
    """A method with the parameters of another one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the method."""
        raise NotImplementedError


def makes(method: Callable[Concatenate[Any, P], object], role: type[R]) -> Callable[[Callable[[Any], None]], Call[P, R]]:
    """Return the decorator of a maker for asyncio, which takes what the synchronous maker does.

    Args:
        method: the synchronous maker. role: what is made here.
    """
    raise NotImplementedError


def awaited(method: Callable[Concatenate[Any, P], R]) -> Call[P, Coroutine[Any, Any, R]]:
    """Return the awaited form of a synchronous method.

    Args:
        method: of the synchronous role.
    """
    raise NotImplementedError
