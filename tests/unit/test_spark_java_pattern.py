"""Java's patterns as ours: what is translated, what is refused, and never an answer other than Java's."""

from __future__ import annotations

import pytest

from wireproto.errors import OptionError
from wireproto.spark.java_pattern import java_pattern


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("orders", "pre-orders-eu"),
        ("^orders$", "orders"),
        (r"(?<kind>a)-\k<kind>", "a-a"),
        (r"\p{Alpha}\p{Digit}", "x9"),
        (r"\Qa.b\E.", "xa.bc"),
        (r"a.b\z", "a-b"),
        (r"[\p{Upper}_]x", "_x"),
        (r"\x{61}\u0062\0143", "abc"),
        ("(?i)ORDERS", "orders"),
        (r"a++b", "aab"),
    ],
)
def test_a_pattern_finds_its_name(pattern: str, name: str) -> None:
    assert java_pattern(pattern).search(name)


@pytest.mark.parametrize("pattern", ["^orders$", r"\QORDERS\E", r"\p{Upper}", r"a.b"])
def test_a_pattern_does_not_find_another(pattern: str) -> None:
    assert not java_pattern(pattern).search("my-orders")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("[a-z&&[^b]]", "&&"),
        ("[a[bc]]", "a class within a class"),
        ("[a", "not closed"),
        (r"\p{Greek}", "Greek"),
        (r"[\P{Alpha}]", "within a class"),
        (r"\G", r"\\G"),
        ("(?P<n>a)", "no group of Java"),
        ("(?x)a", "flag"),
        ("a(?i)b", "middle"),
        ("(a", "missing"),
        ("a\\", "backslash"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(pattern: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        java_pattern(pattern)
