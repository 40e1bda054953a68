"""Checks the arguments of an admin's calls, so that a value of a wrong type is refused before any broker is asked.

Without these checks a wrong value would fail somewhere below with an error of Python's, or mean something that was not asked for: the text
"false" is true, and a text is also a sequence of its letters. Each function returns the value, or raises OptionError with the name of the
argument, the value, and what is allowed. The module knows errors only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from .errors import OptionError

T = TypeVar("T")
MOST = 0x7FFFFFFF
"""The greatest number of partitions that any protocol can carry."""


def text(name: str, value: Any) -> str:
    """Return a name, such as that of a topic or a group.

    Args:
        name: the argument, for errors. value: as given.

    Raises:
        OptionError: it is not a str.
    """
    if not isinstance(value, str):
        raise OptionError(f"{name} is text, not {value!r}")
    return value


def texts(name: str, value: Any, *, one: bool = False) -> list[str]:
    """Return several names as a list, in their order.

    Args:
        name: the argument, for errors. value: as given. one: a str is one name; else it is refused.

    Raises:
        OptionError: it is no iterable of str.
    """
    if isinstance(value, str) and one:
        return [value]
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise OptionError(f"{name} is {'a name, or ' if one else ''}several names, not {value!r}")
    return [text(f"each of {name}", item) for item in value]


def boolean(name: str, value: Any) -> bool:
    """Return a boolean argument.

    Args:
        name: the argument, for errors. value: as given.

    Raises:
        OptionError: it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise OptionError(f"{name} is True or False, not {value!r}")
    return value


def number(name: str, value: Any, least: int, most: int = MOST) -> int:
    """Return a whole number.

    Args:
        name: the argument, for errors. value: as given. least, most: the bounds, both allowed.

    Raises:
        OptionError: it is not an int (a boolean is not one), or out of bounds.
    """
    if type(value) is not int or not least <= value <= most:
        raise OptionError(f"{name} is a whole number from {least} to {most}, not {value!r}")
    return value


def numbers(name: str, value: Any) -> Collection[int] | None:
    """Return numbers of partitions, or None.

    Args:
        name: the argument, for errors. value: as given.

    Raises:
        OptionError: it is neither None nor a collection of int.
    """
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Collection) or not all(type(item) is int for item in value):
        raise OptionError(f"{name} is None, or several numbers of partitions, not {value!r}")
    return value


def each(name: str, value: Any, kind: type[T], what: str) -> list[T]:
    """Return several objects of one type as a list, in their order.

    Args:
        name: the argument, for errors. value: as given. kind: the type. what: the objects, in words.

    Raises:
        OptionError: it is no iterable, or has another object.
    """
    if isinstance(value, str | bytes | Mapping | kind) or not isinstance(value, Iterable):
        raise OptionError(f"{name} is several {what}, not {value!r}")
    items = list(value)
    for item in items:
        if not isinstance(item, kind):
            raise OptionError(f"each of {name} is one of {what}, not {item!r}")
    return items


def one_partition(name: str, value: Any) -> tuple[str, int]:
    """Return a (topic, partition).

    Args:
        name: the argument, for errors. value: as given.

    Raises:
        OptionError: it is none.
    """
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], str) or type(value[1]) is not int:
        raise OptionError(f"{name} is a (topic, partition), not {value!r}")
    return value


def settings(value: Any, name: str = "config") -> dict[str, str]:
    """Return a topic's settings as a dict; empty for None.

    Args:
        value: as given. name: the argument, for errors.

    Raises:
        OptionError: it is no mapping, or has a name or a value that is not a str.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} is a mapping of names to texts, not {value!r}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise OptionError(f"{name} has names and values of text, not {key!r}: {item!r}")
    return dict(value)


def by_partition(name: str, value: Any) -> Mapping[tuple[str, int], Any]:
    """Return a mapping whose keys are (topic, partition).

    Args:
        name: the argument, for errors. value: as given.

    Raises:
        OptionError: it is no mapping, or has another key.
    """
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} is a mapping of (topic, partition), not {value!r}")
    for key in value:
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], str) or type(key[1]) is not int:
            raise OptionError(f"{name} is a mapping of (topic, partition), which {key!r} is not")
    return value
