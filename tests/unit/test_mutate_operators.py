"""The faults that `make mutate` puts in: what each operator changes, what it leaves alone, and that keys outlive changes elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutate import engine, options, sample, walk
from mutate.source import Mutant, Source, applied

ERRORS = '__import__("wireproto.errors", fromlist=["-"])'
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def everything() -> dict[str, list[Mutant]]:
    return sample.everything(CHECKOUT)


def with_fault(source: Source, mutant: Mutant) -> bytes:
    return applied(source.data, [edit for edit in mutant.edits if edit.path == source.path])


def found(code: str, operator: str) -> list[str]:
    """The code as each mutant of one operator has it; all must still be Python."""
    source = Source("src/wireproto/x/x.py", code.encode())
    changed = [applied(source.data, list(one.edits)).decode() for one in walk.changes(source, "x") if one.operator == operator]
    for text in changed:
        ast.parse(text)
    return changed


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("bound", "def f(a, b):\n    return a < b", ["def f(a, b):\n    return a <= b"]),
        ("bound", "def f(a, b):\n    return (a) >= b", ["def f(a, b):\n    return (a) > b"]),
        ("bound", "def f(a):\n    return (a | 2) - 1", ["def f(a):\n    return (a | 2)"]),
        ("bound", "def f(now, a):\n    return now < a.created_at", []),
        ("negate", "def f(a):\n    if a:\n        g()", ["def f(a):\n    if not (a):\n        g()"]),
        ("negate", "x = [a for a in b if a]", ["x = [a for a in b if not (a)]"]),
        ("either", "x = a and b and c", ["x = a or b and c"]),
        ("member", "RETRIABLE = {1, 2, 3}", ["RETRIABLE = { 2, 3}", "RETRIABLE = {1,  3}", "RETRIABLE = {1, 2}"]),
        ("member", "RETRIABLE = frozenset((1, 2))", ["RETRIABLE = frozenset(( 2))", "RETRIABLE = frozenset((1))"]),
        ("member", "def f(a):\n    return a in b", ["def f(a):\n    return False"]),
        ("member", "def f(a):\n    return a not in b", ["def f(a):\n    return True"]),
        ("member", "NAMES = {1: 'a', 2: 'b'}", ["NAMES = { 2: 'b'}", "NAMES = {1: 'a'}"]),
        ("drop", "def f(a):\n    a.commit()\n    return a.x()", ["def f(a):\n    pass\n    return a.x()"]),
        ("drop", "def f(a):\n    a.debug('x')", []),
        ("forget", "def f(a):\n    a.x = 1\n    b = 2", ["def f(a):\n    pass\n    b = 2"]),
        ("forget", "def __init__(a):\n    a.x = 1", []),
        ("leave", "def f(a) -> None:\n    a()\n    a.b()", ["def f(a) -> None:\n    a()\n    return\n    a.b()"]),
        ("leave", "def f(a) -> int:\n    a()\n    return 1", []),
        ("leave", "def f(a) -> bool:\n    return True", ["def f(a) -> bool:\n    return False\n    return True"]),
        ("swap", "def f():\n    g()\n    raise TimedOut()", [f"def f():\n    g()\n    raise {ERRORS}.Disconnected()"]),
        ("catch", "try:\n    f()\nexcept (A, B):\n    g()", [f"try:\n    f()\nexcept {one}:\n    g()" for one in ("((), B)", "(A, ())")]),
        ("times", "_PAUSE = 0.5", ["_PAUSE = 0.5 * 10", "_PAUSE = 0.5 / 10"]),
        ("times", "def f(a, timeout):\n    return a + timeout", ["def f(a, timeout):\n    return a + (timeout * 10)"]),
        ("flip", "def f(a):\n    g(a, b=True)", ["def f(a):\n    g(a, b=False)"]),
        ("field", "from .messages import Beat\nx = Beat(group=1, member=2)", ["from .messages import Beat\nx = Beat( member=2)"]),
        ("field", "x = Other(group=1, member=2)", []),
    ],
)
def test_an_operator_changes_what_it_is_for(operator: str, before: str, after: list[str]) -> None:
    changed = found(before, operator)
    assert changed[: len(after)] == after
    assert bool(changed) is bool(after)


def test_what_is_no_fault_of_a_client_is_passed_by() -> None:
    code = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    X = {1, 2}
class A:
    def __repr__(self):
        return self.a and self.b
    def f(self, a: "int | bool" = 3) -> None:
        assert a < 3 and a
        return f"{a < 3 and a}"
"""
    source = Source("src/wireproto/x/x.py", code.encode())
    assert [one.key for one in walk.changes(source, "x")] == []


def test_a_key_outlives_changes_elsewhere_and_tells_faults_alike_apart() -> None:
    body = "def f(a):\n    a.g()\n    a.g()\n"
    now = [one.key for one in walk.changes(Source("src/wireproto/x/x.py", body.encode()), "x")]
    later = [one.key for one in walk.changes(Source("src/wireproto/x/x.py", f"import os\n\n\n{body}".encode()), "x")]
    assert now == later
    assert len(set(now)) == 2


def test_an_option_is_dropped_wherever_it_is_read_but_not_where_it_is_parsed() -> None:
    module = Source(
        "src/wireproto/x/options.py",
        b"""class XOptions:
    linger: float = 0.5
    def __post_init__(self):
        check(self.linger)
    @property
    def slow(self):
        return self.linger > 1
""",
    )
    role = Source("src/wireproto/x/producer.py", b"def f(self, options):\n    return self._options.linger + options.linger + self.linger\n")
    common = Source(options.COMMON, b"class CommonOptions:\n    user: str | None = None\n")
    [mutant] = options.dropped("x", [module, role], [common])
    assert mutant.always
    assert b"return (0.5) + (0.5) + self.linger\n" in with_fault(role, mutant)
    assert b"check(self.linger)" in with_fault(module, mutant)
    assert b"return (0.5) > 1" in with_fault(module, mutant)


def test_a_keyword_of_a_role_is_set_to_its_default_first() -> None:
    code = b'class XProducer:\n    def send(self, a, *, key=None):\n        """Doc."""\n        return a, key\n'
    role = Source("src/wireproto/x/producer.py", code)
    [mutant] = options.keywords("x", [role])
    assert applied(role.data, list(mutant.edits)).decode().endswith('"""Doc."""\n        key = None\n        return a, key\n')


def test_every_option_of_every_adapter_that_is_read_is_in_every_sample(everything: dict[str, list[Mutant]]) -> None:
    import dataclasses

    from wireproto.kafka.options import KafkaOptions
    from wireproto.pulsar.options import PulsarOptions
    from wireproto.rocketmq.options import RocketOptions
    from wireproto.zookeeper.options import ZooKeeperOptions

    classes = {"kafka": KafkaOptions, "pulsar": PulsarOptions, "rocketmq": RocketOptions, "zookeeper": ZooKeeperOptions}
    for adapter, kind in classes.items():
        dropped = {one.key.split()[2] for one in sample.always(everything[adapter]) if one.operator == "option"}
        own = set(kind.__annotations__) - {"ROLES", "PEER_NAMES"}
        assert own <= dropped, f"{adapter}: nothing reads {sorted(own - dropped)}"
        assert dropped <= {field.name for field in dataclasses.fields(kind)}


def test_every_fault_of_the_adapters_is_python_and_has_a_key_of_its_own(everything: dict[str, list[Mutant]]) -> None:
    keys = [one.key for mutants in everything.values() for one in mutants]
    assert len(set(keys)) == len(keys)
    for group in (*sample.ADAPTERS, "net"):
        picked = list(sample.ranked(everything[group], 1))[:30] + sample.always(everything[group])
        for mutant in picked:
            for path in {edit.path for edit in mutant.edits}:
                ast.parse(with_fault(Source.read(CHECKOUT, path), mutant))


def test_a_seed_picks_the_same_faults_again_and_another_seed_others() -> None:
    mutants = [Mutant(f"{kind}{i}", "x", kind, (), "", "", "") for kind in ("a", "b") for i in range(40)]
    first = [one.key for one in sample.ranked(mutants, 1)]
    assert first == [one.key for one in sample.ranked(list(reversed(mutants)), 1)]
    assert first != [one.key for one in sample.ranked(mutants, 2)]
    assert [key[0] for key in first[:4]] == ["a", "b", "a", "b"], "kinds take turns"


def test_the_engine_is_changed_by_lines() -> None:
    head = 'cdef class A:\n    """If a < b:\n    """\n    cdef int f(self, int a) except -1:\n'
    code = f"{head}        if a < 3:\n            self.kick()\n        self.x = True\n"
    source = Source("src/wireproto/_net_parts/x.pyx", code.encode())
    changed = {(one.operator, one.after) for one in engine.changes(source)}
    assert changed == {
        ("bound", "if a <= 3:"),
        ("negate", "if not (a < 3):"),
        ("drop", "pass"),
        ("forget", "pass"),
        ("flip", "self.x = False"),
    }
