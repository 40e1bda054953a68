"""Every public method of a client, a role, a transaction and what they return says what it takes, in which units, and what it raises."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

MODULES = ("client", "producer", "reader", "consumer", "queue", "admin", "tree", "transactions", "transactional", "half", "staged", "roles")
PACKAGES = ("kafka", "pulsar", "rocketmq", "zookeeper", "aio")
MORE = (
    "roles",
    "records",
    "flow.role",
    "flow.producer",
    "flow.topics",
    "flow.transactions",
    "kafka.admin_transactions",
    "aio.plain",
    "aio.roles",
)
SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Attributes):$", re.MULTILINE)


def classes() -> Iterator[type]:
    for name in [*(f"{package}.{module}" for package in PACKAGES for module in MODULES), *MORE]:
        if importlib.util.find_spec(f"wireproto.{name}") is None:
            continue
        module = importlib.import_module(f"wireproto.{name}")
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__ and not kind.__name__.startswith("_"):
                yield kind


def methods() -> Iterator[tuple[str, Any]]:
    for kind in dict.fromkeys(classes()):
        for name, method in vars(kind).items():
            if not name.startswith("_") and callable(method) and inspect.isfunction(inspect.unwrap(method)):
                yield f"{kind.__module__.removeprefix('wireproto.')}.{kind.__name__}.{name}", method


def sections(text: str) -> dict[str, str]:
    """Each section of a docstring in Google's form, by its heading; what stands before the first one by ""."""
    parts = SECTION.split(text)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def parameters(method: Any) -> list[str]:
    """Those that a caller gives, but for a role's options (`**given`), which docs/*.md list."""
    found = inspect.signature(method).parameters.values()
    return [one.name for one in list(found)[1:] if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and not one.name.startswith("_")]


def lacking(method: Any) -> list[str]:
    """What the docstring of a method does not say. `xing` beside `x` is `x` as steps, and refers to that."""
    text = inspect.cleandoc(method.__doc__ or "")
    if re.match(r"Run `\w+` as steps\b", text):
        return []
    found, names = sections(text), parameters(method)
    explained = found.get("Args", "")
    wrong = [f"{name} is not explained" for name in names if not re.search(rf"(^\s*|[.;] |, ){name}\b[^\n]*:", explained, re.MULTILINE)]
    if "timeout" in names and not re.search(r"timeout: [^\n]*seconds", explained):
        wrong.append("the unit of timeout is not said")
    if "timeout" in names and "Raises" not in found:
        wrong.append("it waits, and names no error")
    return wrong if found[""].strip() else ["it has no docstring"]


FOUND = dict(methods())


def test_methods_are_found_in_all_protocols() -> None:
    assert {name.partition(".")[0] for name in FOUND} >= {*PACKAGES, "roles", "records", "flow"}
    assert len(FOUND) > 400


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_method_of_a_role_says_what_it_takes_and_raises(name: str) -> None:
    assert lacking(FOUND[name]) == []


def test_what_a_docstring_lacks_is_found() -> None:
    def poll(self: Any, timeout: float, most: int = 1) -> None:
        """Return the next batch.

        Args:
            timeout: how long to wait.
        """

    assert lacking(poll) == ["most is not explained", "the unit of timeout is not said", "it waits, and names no error"]

    def full(self: Any, timeout: float, most: int = 1) -> None:
        """Return the next batch.

        Args:
            timeout: seconds to wait. most: records at most.

        Raises:
            TimedOut: nothing came.
        """

    assert lacking(full) == []
    assert lacking(lambda self: None) == ["it has no docstring"]
