"""Options from URLs and keywords, the address map, the retry policy: no sockets."""

from __future__ import annotations

import random
import socket
import time
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from wireproto.auth.secrets import Secret
from wireproto.errors import BrokerError, BufferFull, ConnectError, OptionError, TimedOut
from wireproto.net.address import interleave, parse_map, translate
from wireproto.net.debug import describe_first_bytes, hexdump
from wireproto.net.dial import dial
from wireproto.net.options import CommonOptions, convert
from wireproto.net.retry import Policy, Verdict, Waits, run, verdict
from wireproto.url import parse


@dataclass(frozen=True, kw_only=True)
class Some(CommonOptions):
    acks: Literal["all", "leader"] = "all"
    linger: float = 0.0
    batch: int = 1000
    topics: tuple[str, ...] = ()
    level: int | None = None


def read(query: str, **keywords: object) -> Some:
    return Some.from_url(parse(f"kafka://h:1/t?{query}"), **keywords)


def test_text_becomes_typed_values() -> None:
    got = read("timeout=2.5&tls=yes&fetch-memory=8MB&linger=5ms&batch=64k&topics=a,b&level=3&acks=leader")
    assert (got.timeout, got.tls, got.fetch_memory, got.linger, got.batch) == (2.5, True, 8 << 20, 0.005, 65536)
    assert (got.topics, got.level, got.acks) == (("a", "b"), 3, "leader")
    assert read("level=none").level is None
    assert read("batch=5", batch=6).batch == 6
    assert read("timeout=1m").timeout == 60.0


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("timeot=1", "did you mean timeout"),
        ("completely_else=1", "no option 'completely_else'"),
        ("timeout=soon", "timeout is a number of seconds"),
        ("timeout=0", "above 0"),
        ("tls=maybe", "tls is true or false"),
        ("acks=some", "one of all, leader"),
        ("batch=1.5", "batch is a number"),
        ("address_map=x", "from=to"),
        ("fetch_memory=1", "at least"),
    ],
)
def test_bad_options_say_what_is_wrong(query: str, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read(query)


def test_secrets_are_not_shown() -> None:
    options = Some.from_url(parse("kafka+tls://alice:hunter2@h/t"), token="hunter2")
    assert options.tls
    assert options.user == "alice"
    assert options.password is not None
    assert options.password.text() == "hunter2"
    assert isinstance(options.token, Secret)
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize("option", ["token", "password", "sasl_password", "secret_key", "security_token", "tls_key_password", "Token"])
def test_a_url_that_is_shown_has_no_secrets(option: str) -> None:
    shown = str(parse(f"kafka://alice:hunter2@h:1/t?{option}=hunter2&timeout=5"))
    assert shown == "kafka://h:1/t?timeout=5"
    assert "hunter2" not in repr(parse("kafka://alice:hunter2@h:1/t"))


def test_wrong_keyword_types_are_refused() -> None:
    with pytest.raises(OptionError, match=r"batch is a number"):
        read("", batch="many")
    with pytest.raises(OptionError, match="client_id is str"):
        read("", client_id=5)
    with pytest.raises(OptionError, match="batch is int"):
        read("", batch=True)
    assert read("", timeout=3).timeout == 3.0


def test_address_map() -> None:
    table = parse_map("a:9092=127.0.0.1:19092,b=c,[::1]:5=d:6")
    assert translate(("a", 9092), table) == ("127.0.0.1", 19092)
    assert translate(("a", 9093), table) == ("a", 9093)
    assert translate(("b", 7), table) == ("c", 7)
    assert translate(("::1", 5), table) == ("d", 6)
    assert translate(("x", 1), lambda address: (address[0] + "y", address[1] + 1)) == ("xy", 2)
    assert translate(("x", 1), None) == ("x", 1)


def test_interleave_takes_families_in_turn() -> None:
    four, six = socket.AF_INET, socket.AF_INET6
    assert interleave([(six, 1), (six, 2), (four, 3), (six, 1)]) == [(six, 1), (four, 3), (six, 2)]
    assert interleave([]) == []


def test_a_name_that_does_not_resolve_is_one_line() -> None:
    with pytest.raises(ConnectError, match=r"nowhere\.invalid does not resolve"):
        dial(("nowhere.invalid", 1), time.monotonic() + 20)


class Flaky(BrokerError):
    retriable = True
    refresh = True


class Fatal(BrokerError):
    pass


class Fenced(BrokerError):
    retriable = True
    fenced = True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def outcomes(
    clock: Clock, *steps: BaseException | str, deadline: float = 100.0, policy: Policy | None = None
) -> tuple[object, list[object]]:
    queue = list(steps)
    refreshed: list[object] = []

    def attempt() -> str:
        step = queue.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    chosen = policy or Policy(first=1.0, factor=2.0, ceiling=5.0, jitter=0.0)
    return run(attempt, deadline, chosen, refresh=refreshed.append, pause=clock.sleep, clock=clock), refreshed


def test_retry_backs_off_and_refreshes() -> None:
    clock = Clock()
    result, refreshed = outcomes(clock, Flaky("1"), ConnectError("2"), Flaky("3"), Flaky("4"), "done")
    assert result == "done"
    assert clock.slept == [1.0, 2.0, 4.0, 5.0]
    assert len(refreshed) == 4


@pytest.mark.parametrize("error", [Fatal("no"), Fenced("replaced"), TimedOut("late"), ValueError("bug")])
def test_retry_stops_at_once_for_what_cannot_help(error: Exception) -> None:
    clock = Clock()
    with pytest.raises(type(error)):
        outcomes(clock, error, "never")
    assert clock.slept == []


def test_retry_raises_the_cause_when_time_or_attempts_run_out() -> None:
    clock = Clock()
    with pytest.raises(Flaky, match="3"):
        outcomes(clock, Flaky("1"), Flaky("2"), Flaky("3"), "never", deadline=4.0)
    assert clock.now <= 4.0
    with pytest.raises(Flaky, match="2"):
        outcomes(Clock(), Flaky("1"), Flaky("2"), "never", policy=Policy(attempts=2))


class Gone(BrokerError):
    refresh = True


class Moved(BrokerError):
    retriable = True
    refresh = True
    moved = True


@pytest.mark.parametrize(
    ("error", "given", "found"),
    [
        (Flaky("later"), {}, Verdict.REFRESH),
        (BufferFull("later"), {}, Verdict.LATER),
        (Moved("there"), {}, Verdict.NOW),
        (Fatal("no"), {}, Verdict.NEVER),
        (Fenced("replaced"), {}, Verdict.NEVER),
        (ValueError("bug"), {"transient": (ValueError,)}, Verdict.NEVER),
        (Gone("perhaps"), {}, Verdict.NEVER),
        (Gone("perhaps"), {"brief": True}, Verdict.REFRESH),
        (Fatal("no"), {"brief": True}, Verdict.NEVER),
        (TimedOut("the caller's"), {}, Verdict.NEVER),
        (TimedOut("the attempt's"), {"transient": (TimedOut,)}, Verdict.REFRESH),
        (Fatal("here it passes"), {"transient": (Fatal,)}, Verdict.LATER),
        (Fenced("replaced"), {"transient": (Fenced,)}, Verdict.NEVER),
        (Flaky("not here"), {"final": (Flaky,)}, Verdict.NEVER),
        (Flaky("not here"), {"final": (Flaky,), "transient": (Flaky,)}, Verdict.NEVER),
    ],
)
def test_one_place_judges_what_is_tried_again(error: Exception, given: dict[str, Any], found: Verdict) -> None:
    assert verdict(error, **given) is found


def test_an_answer_that_tells_where_is_followed_at_once_and_no_faster_than_the_rest_after_that() -> None:
    clock = Clock()
    result, refreshed = outcomes(clock, Moved("1"), Moved("2"), "done")
    assert (result, clock.slept, refreshed) == ("done", [2.0], [])


def test_who_knows_more_of_a_request_judges_by_it() -> None:
    clock, pauses = Clock(), []

    def attempt() -> None:
        raise Flaky("gone for good")

    with pytest.raises(Flaky):
        run(attempt, 100.0, judge=lambda why: verdict(why, final=(Flaky,)), pause=pauses.append, clock=clock)
    assert pauses == []


def test_jitter_stays_within_its_share() -> None:
    policy = Policy(first=1.0, jitter=0.2, ceiling=1.0)
    chance = random.Random(1)
    waits = [policy.delay(n, chance.random) for n in range(1, 500)]
    assert 0.8 <= min(waits) < 0.85
    assert 1.15 < max(waits) <= 1.2


def test_waits_grow_with_each_failure_and_begin_anew_when_it_went_well() -> None:
    waits = Waits(Policy(first=1.0, factor=2.0, ceiling=3.0, jitter=0.0))
    assert [waits.next() for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
    waits.over()
    assert (waits.next(), waits.failures) == (1.0, 1)


def test_first_bytes_tell_who_answers() -> None:
    assert "TLS" in describe_first_bytes(b"\x15\x03\x03\x00\x02\x02\x46")
    assert "HTTP" in describe_first_bytes(b"HTTP/1.1 400")
    assert "SSH" in describe_first_bytes(b"SSH-2.0-x")
    assert describe_first_bytes(b"\x00\x00\x00\x10\x00") == ""
    assert describe_first_bytes(b"") == ""


def test_hexdump_shows_and_cuts() -> None:
    shown = hexdump(bytes(range(40)) + b"text", 32)
    assert "000010  10 11 12" in shown
    assert shown.endswith("… 12 bytes more")


def test_of_several_kinds_the_first_that_fits_is_taken() -> None:
    assert [convert("x", given, int | str) for given in ("7", "seven", 7)] == [7, "seven", 7]
    assert convert("x", None, int | None) is None
    with pytest.raises(OptionError, match="x cannot be None"):
        convert("x", None, int | str)
    with pytest.raises(OptionError, match="x is a number, not 'seven'"):
        convert("x", "seven", int | bool)
    with pytest.raises(OptionError, match="x is true or false, not 'maybe'"):
        convert("x", "maybe", bool)
    with pytest.raises(OptionError, match="x is int, not bool"):
        convert("x", True, int)
