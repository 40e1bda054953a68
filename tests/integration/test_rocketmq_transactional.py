"""Our transactional messages on real brokers: what RocketMQ's own client reads of them, and who answers check-backs.

Brokers here ask for the first time after 1 s, and then each second. They store a half anew each time before they ask, and do not look
whether one was ended before; so who has no end, one too many, or one with old numbers, is seen by what Java reads, and how often.
"""

from __future__ import annotations

import base64
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ, java, judge
from patience import until
from wireproto.errors import Aborted, OutcomeUnknown, TransportError, UsageError, ValueUnsupported
from wireproto.rocketmq import codes
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.errors import NoMaster
from wireproto.rocketmq.half import CheckedMessage, HalfMessage, State
from wireproto.rocketmq.messages import UpdateBrokerConfigRequest

SECONDS = 30.0
PATIENCE = 90.0
SLOW = 10
"""Seconds in which a late broker has asked twice what it asks each second, and an end of ours has come to it."""
_numbers = itertools.count()
LINES = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"tx-{os.getpid()}-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    return name


class Decides:
    """A check that says what it was told, by the message's key."""

    def __init__(self, **words: Any) -> None:
        self.words = words
        self.asked: list[CheckedMessage] = []
        self.threads: set[str] = set()

    def __call__(self, message: CheckedMessage) -> Any:
        self.asked.append(message)
        self.threads.add(threading.current_thread().name)
        word = self.words.get((message.key or b"").decode())
        if isinstance(word, Exception):
            raise word
        return word

    def keys(self) -> list[str]:
        return [(message.key or b"").decode() for message in self.asked]


def seen(broker: RocketMQ, topic: str) -> list[dict[str, Any]]:
    """What Java's client reads, from the first message to the last there is."""
    return judge.ask(broker.version, "pull", broker.name_server, topic)


def keys(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["keys"] for message in messages)


def ours(client: RocketClient, topic: str) -> list[str]:
    """The keys that are there to read."""
    with client.reader(topic, start=wireproto.EARLIEST, stop=wireproto.LATEST) as reader:
        return sorted((record.key or b"").decode() for batch in reader for record in batch)


def comes(client: RocketClient, topic: str, expected: list[str]) -> None:
    """Until these are there to read, and nothing else ever was."""

    def there() -> bool:
        time.sleep(0.1)  # each look costs the broker and us some
        found = ours(client, topic)
        assert not Counter(found) - Counter(expected), found
        return found == sorted(expected)

    until(there, f"not {expected}", PATIENCE)


def asked_again(half: HalfMessage) -> None:
    """Until the broker has stored this half anew, and asked: the next time is some seconds away."""
    before = half.place
    until(lambda: half.place != before, "the broker did not ask", PATIENCE)


@contextmanager
def answer_lost(proxy: Any, recording: Any, name: str) -> Iterator[None]:
    """The next command of this name comes to its broker, and no answer comes back: the connection is lost."""
    before = len(recording.requests(name))
    proxy.drop("down")

    def cut() -> None:
        until(lambda: len(recording.requests(name)) > before)
        proxy.cut()  # before it is healed: the answer may be about to come
        proxy.heal()

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        yield
    finally:
        cutting.join()


# --- ends ---


@LINES
@pytest.mark.parametrize("codec", ["none", "zlib", "lz4", "zstd"])
def test_what_is_committed_is_seen_as_it_was_sent_and_nothing_else(broker: RocketMQ, client: RocketClient, topic: str, codec: str) -> None:
    check = Decides()
    value = b"body " * 2000
    with client.transactional(f"g-{topic}", check, compression=codec) as work:
        with work.send(value, topic=topic, key=b"block", headers={"TAGS": b"t", "colour": b"red"}) as half:
            assert half.state is State.OPEN
            assert ours(client, topic) == []
        with pytest.raises(ValueUnsupported, match="empty value"):
            work.send(b"", topic=topic)
        by_hand = work.send(b"b", topic=topic, key=b"by-hand", partition=1)
        by_hand.commit()
        away = work.send(value, topic=topic, key=b"away")
        away.abort()
        states = half.state, by_hand.state, away.state
    assert states == (State.COMMITTED, State.COMMITTED, State.ABORTED)
    found = {message["keys"]: message for message in seen(broker, topic)}
    assert sorted(found) == ["block", "by-hand"]
    assert base64.b64decode(found["block"]["body"]) == value
    assert found["block"]["properties"]["colour"] == "red"
    assert found["block"]["tag"] == "t"
    assert base64.b64decode(found["by-hand"]["body"]) == b"b"
    assert [found[key]["msgId"] for key in ("block", "by-hand")] == [half.transaction_id, by_hand.transaction_id]
    assert check.asked == []


@LINES
def test_a_message_bears_the_properties_that_it_has_from_java(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    group = f"g-{topic}"
    words = ("transact", broker.name_server, topic, f"j-{group}", "commit", "commit")
    with java.Program(f"rocketmq-{broker.version}", "RocketJudge", *words) as program, client.transactional(group, Decides()) as work:
        lines = program.lines()
        assert next(lines) == {"ready": True}
        program.send({"body": base64.b64encode(b"v").decode(), "keys": "java", "properties": {"a": "b"}})
        assert next(lines)["status"] == "SEND_OK"
        with work.send(b"v", topic=topic, key=b"ours", headers={"a": b"b"}):
            pass
        comes(client, topic, ["java", "ours"])
    first, second = (message["properties"] for message in sorted(seen(broker, topic), key=lambda message: str(message["keys"])))
    assert first.keys() == second.keys()
    own = {"KEYS", "PGROUP", "REAL_QID", "UNIQ_KEY", "__transactionId__"}  # either producer takes the queues in its own turns
    assert {name: value for name, value in first.items() if name not in own} == {
        name: value for name, value in second.items() if name not in own
    }
    assert second["PGROUP"] == group
    assert second["TRAN_MSG"] == "true"


@LINES
def test_an_end_leaves_once_and_is_never_repeated(broker: RocketMQ, client: RocketClient, topic: str, fault_proxy: Any) -> None:
    """Its answer is lost: the broker has carried it out, and a second one would be a second message."""
    check = Decides()
    recording = fault_proxy.record("rocketmq")
    options = {"address_map": fault_proxy.address_map(broker.addresses)}
    with wireproto.connect(broker.url, **options) as through, through.transactional(f"g-{topic}", check) as work:
        half = work.send(b"v", topic=topic, key=b"once")
        with (
            answer_lost(fault_proxy, recording, "EndTransaction"),
            pytest.raises(OutcomeUnknown, match="it is not sent again, the broker checks back"),
        ):
            half.commit()
        assert half.state is State.UNKNOWN
        for again in (half.commit, half.abort):
            with pytest.raises(UsageError, match="its end is sent only once"):
                again()
        comes(client, topic, ["once"])
        assert len(recording.requests("EndTransaction")) == 1
        assert recording.requests("EndTransaction")[0].message.from_transaction_check is False
    assert keys(seen(broker, topic)) == ["once"]


@LINES
def test_an_end_that_was_lost_is_said_again_when_the_broker_asks(
    broker: RocketMQ, client: RocketClient, topic: str, fault_proxy: Any
) -> None:
    """By the process that sent it, without asking the check, which may know less."""
    check = Decides(yes="abort", no="commit")
    options = {"address_map": fault_proxy.address_map(broker.addresses)}
    with wireproto.connect(broker.url, **options) as through, through.transactional(f"g-{topic}", check) as work:
        yes, no = (work.send(b"v", topic=topic, key=key) for key in (b"yes", b"no"))
        fault_proxy.drop("up")
        with pytest.raises(OutcomeUnknown):
            yes.commit(timeout=1.0)
        with pytest.raises(OutcomeUnknown):
            no.abort(timeout=1.0)
        fault_proxy.heal()
        fault_proxy.cut()
        recording = fault_proxy.record("rocketmq")
        comes(client, topic, ["yes"])
        until(lambda: len({seen.message.transaction_id for seen in recording.requests("EndTransaction")}) == 2, limit=PATIENCE)
    assert check.asked == []
    assert keys(seen(broker, topic)) == ["yes"]


# --- checks ---


@LINES
def test_the_check_decides_what_nobody_ended(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    check = Decides(yes="commit", no="abort")
    with client.transactional(f"g-{topic}", check) as work:
        left = work.send(b"v" * 9000, topic=topic, key=b"yes", headers={"a": b"b"})
        name = left.transaction_id
        del left  # nobody has it in hand any more
        with pytest.raises(ZeroDivisionError), work.send(b"w", topic=topic, key=b"no") as half:
            1 / 0  # noqa: B018
        assert half.state is State.UNKNOWN
        with pytest.raises(UsageError, match="left to the check"):
            half.commit()
        comes(client, topic, ["yes"])
        until(lambda: {*check.keys()} == {"yes", "no"}, limit=PATIENCE)
        again = work.send(b"late", topic=topic, key=b"marker")
        asked_again(again)  # a round of checks later nothing is asked of them
        again.abort()
    assert sorted(check.keys()) == ["no", "yes"]
    message = next(message for message in check.asked if message.key == b"yes")
    assert (message.topic, message.value, message.transaction_id) == (topic, b"v" * 9000, name)
    assert message.headers == (("a", b"b"),)
    assert all("offload" in name for name in check.threads)
    assert keys(seen(broker, topic)) == ["yes"]


@LINES
def test_a_check_that_fails_or_knows_nothing_is_asked_again(
    broker: RocketMQ, client: RocketClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    check = Decides(raises=KeyError("no such row"), none=None, truth=True)
    with caplog.at_level(logging.INFO, "wireproto.rocketmq"), client.transactional(f"g-{topic}", check) as work:
        for key in (b"raises", b"none", b"truth"):
            work.send(b"v", topic=topic, key=key)
        until(lambda: Counter(check.keys()).keys() == {"raises", "none", "truth"}, limit=PATIENCE)
        assert ours(client, topic) == []
        check.words = dict.fromkeys(("raises", "none", "truth"), "commit")
        comes(client, topic, ["none", "raises", "truth"])
    told = [record.getMessage() for record in caplog.records]
    assert any("the check of" in line and "failed" in line and "no such row" in line for line in told)
    assert any("its outcome is not known yet" in line for line in told)
    assert any("returned True, which is neither 'commit', 'abort' nor None" in line for line in told)


@LINES
def test_what_is_open_here_is_not_decided_by_the_check_and_ends_with_the_newest_numbers(
    broker: RocketMQ, client: RocketClient, topic: str
) -> None:
    """An end with the first numbers would be carried out as well, and the copy would be asked about again, and seen twice."""
    check = Decides(open="abort", away="commit")
    with client.transactional(f"g-{topic}", check) as work:
        half, away, marker = (work.send(b"v", topic=topic, key=key) for key in (b"open", b"away", b"marker"))
        for each in (half, away):
            asked_again(each)
        asked_again(half)
        half.commit()
        asked_again(away)
        away.abort()
        asked_again(marker)
        asked_again(marker)
        marker.abort()
    assert check.asked == []
    assert keys(seen(broker, topic)) == ["open"]


@LINES
def test_javas_client_answers_for_our_halves(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    group = f"g-{topic}"
    for word in ("commit", "rollback"):
        with client.transactional(group, Decides()) as work:
            work.send(b"ours", topic=topic, key=f"ours-{word}".encode(), headers={"a": b"b"})
        words = ("transact", broker.name_server, topic, group, "rollback", word)
        with java.Program(f"rocketmq-{broker.version}", "RocketJudge", *words) as program:
            checked = next(line["checked"] for line in program.lines() if "checked" in line)
            assert checked["keys"] == f"ours-{word}"
            assert base64.b64decode(checked["body"]) == b"ours"
            assert checked["properties"]["a"] == "b"
            comes(client, topic, ["ours-commit"])
    assert keys(seen(broker, topic)) == ["ours-commit"]


@LINES
def test_we_answer_for_javas_halves(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    group = f"g-{topic}"
    check = Decides(yes="commit", no="abort")
    words = ("transact", broker.name_server, topic, group, "unknow", "unknow")
    with java.Program(f"rocketmq-{broker.version}", "RocketJudge", *words) as program:
        lines = program.lines()
        assert next(lines) == {"ready": True}
        sent = []
        for key in ("yes", "no"):
            program.send({"body": base64.b64encode(b"java's").decode(), "keys": key, "properties": {"a": "b"}})
            sent.append(next(line for line in lines if "msgId" in line)["msgId"])
    with client.transactional(group, check):
        comes(client, topic, ["yes"])
        until(lambda: {*check.keys()} == {"yes", "no"}, limit=PATIENCE)
    assert {message.transaction_id for message in check.asked} == {*sent}
    assert {(message.topic, message.value, message.headers) for message in check.asked} == {(topic, b"java's", (("a", b"b"),))}
    assert keys(seen(broker, topic)) == ["yes"]


WRITERS = """
import os
import sys
import wireproto
import wireproto.rocketmq.client
url, group, topic, *names = sys.argv[1:]
for first in range(0, len(names), 4):
    for name in names[first : first + 4]:
        if not os.fork():
            with wireproto.connect(url) as client, client.transactional(group, lambda message: None) as work:
                half = work.send(b"of the dead", topic=topic, key=name.encode())
                os.write(1, b"%d\\n" % os.getpid())  # whole lines: others write to this pipe at the same time
                sys.stdin.read()
                os._exit(1)
    for name in names[first : first + 4]:
        _, how = os.wait()
        assert os.waitstatus_to_exitcode(how) == -9, how
"""
"""Processes, four at a time, each of which sends a half, prints its id, and waits for its end; they share what importing costs."""


def killed_between_half_and_end(broker: RocketMQ, client: RocketClient, topic: str, times: int) -> None:
    """Processes that send a half and are killed; another one of their group knows which of them did their work."""
    group = f"g-{topic}"
    names = [f"{number}-{'yes' if number % 2 else 'no'}" for number in range(times)]
    check = Decides(**{name: "commit" if name.endswith("yes") else "abort" for name in names})
    with client.transactional(group, check):
        command = [sys.executable, "-c", WRITERS, broker.url, group, topic, *names]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writers:
            assert writers.stdout is not None
            for _ in names:
                os.kill(int(writers.stdout.readline()), signal.SIGKILL)
            assert writers.wait(PATIENCE) == 0
        wanted = {name for name in names if name.endswith("yes")}

        def all_there() -> bool:
            time.sleep(0.1)
            found = {*ours(client, topic)}
            assert found <= wanted, "what was to be rolled back"
            return found == wanted

        until(all_there, limit=PATIENCE)
        until(lambda: {*check.keys()} == {*names}, limit=PATIENCE)
    found = Counter(keys(seen(broker, topic)))
    assert found.keys() == wanted
    print(f"{times} killed, {len(wanted)} committed, {found.total() - len(wanted)} repeated")


@LINES
def test_another_process_answers_for_one_that_was_killed(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    killed_between_half_and_end(broker, client, topic, 8)


@pytest.mark.soak
@LINES
def test_a_hundred_kills_lose_and_invent_nothing(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    killed_between_half_and_end(broker, client, topic, 100)


# --- what brokers are set to ---


@contextmanager
def set_to(client: RocketClient, broker: RocketMQ, lines: dict[str, str], back: dict[str, str]) -> Iterator[None]:
    """A broker's settings, for a while."""

    def tell(what: dict[str, str]) -> None:
        body = "".join(f"{name}={value}\n" for name, value in what.items())
        client.request(UpdateBrokerConfigRequest(), body=body, to=f"127.0.0.1:{broker.broker_ports[0]}")

    tell(lines)
    try:
        yield
    finally:
        tell(back)


UNSAFE = {
    "4.9.7": ({"brokerRole": "SYNC_MASTER"}, {"brokerRole": "ASYNC_MASTER"}, codes.SlaveNotAvailable),
    "5.5.0": (
        {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"},
        {"brokerRole": "ASYNC_MASTER", "totalReplicas": "1", "inSyncReplicas": "1"},
        codes.FlushSlaveTimeout,
    ),
}


@LINES
def test_a_half_that_was_stored_less_safely_is_rolled_back(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    lines, back, kind = UNSAFE[broker.version]
    check = Decides(less="commit")
    with client.transactional(f"g-{topic}", check) as work:
        with set_to(client, broker, lines, back), pytest.raises(Aborted, match="without the configured flush or replication") as told:
            work.send(b"v", topic=topic, key=b"less")
        assert isinstance(told.value.__cause__, kind)
        marker = work.send(b"v", topic=topic, key=b"marker")
        asked_again(marker)
        asked_again(marker)
        marker.commit()
        comes(client, topic, ["marker"])
    assert check.asked == []


@LINES
def test_checks_wait_for_check_after_and_newer_brokers_refuse_an_end_behind_it(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """Meanwhile the broker stores it anew, without a word; its end with the first numbers counts for the copy as well."""
    check = Decides()
    with (
        client.transactional(f"g-{topic}", check, check_after=1) as work,
        client.transactional(f"h-{topic}", check, check_after=SLOW) as slow,
    ):
        patient, begun = slow.send(b"v", topic=topic, key=b"patient"), time.monotonic()
        place = patient.place
        half = work.send(b"v", topic=topic, key=b"late")
        asked_again(half)
        asked_again(half)
        assert patient.place == place or time.monotonic() - begun > SLOW
        if broker.version.startswith("5"):
            with pytest.raises(OutcomeUnknown) as told:
                half.commit()
            assert isinstance(told.value.__cause__, codes.IllegalOperation)
        else:
            half.commit()
        patient.commit()
        comes(client, topic, ["late", "patient"])  # the former by the answer to the next check, where its end was refused
        until(lambda: time.monotonic() > begun + SLOW, limit=PATIENCE)
        with client.transactional(f"m-{topic}", check) as last:
            marker = last.send(b"v", topic=topic, key=b"marker")
            asked_again(marker)
            asked_again(marker)
            marker.abort()
    assert keys(seen(broker, topic)) == ["late", "patient"]
    assert check.asked == []


# --- outages ---


def killed_with_halves(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """broker-b dies with a half that is in hand and two that nobody ends; broker-a goes on."""
    until(lambda: len({queue.broker for queue in client.cluster.route(topic, client.deadline(10.0), fresh=True).queues}) == 2)
    homes = [queue.broker for queue in client.cluster.route(topic, client.deadline(10.0)).queues]
    there, away = homes.index("broker-a"), homes.index("broker-b")
    check = Decides(left="commit", gone="abort")
    with client.transactional(f"g-{topic}", check, request_timeout=3.0) as work:
        half = work.send(b"v", topic=topic, key=b"half", partition=away)
        for key in (b"left", b"gone"):
            work.send(b"v", topic=topic, key=key, partition=away)
        broker.kill(2)
        try:
            with pytest.raises((TransportError, NoMaster)):
                half.commit(timeout=1.0)
            assert half.state is State.OPEN, "nothing was sent"
            for _ in range(4):
                free = work.send(b"free", topic=topic)
                assert free.broker == "broker-a"
                free.abort()
            with work.send(b"v", topic=topic, key=b"near", partition=there):
                pass
        finally:
            broker.start(2)
        until(lambda: ended(half.commit), limit=PATIENCE)
        # perhaps twice: it asks about them as soon as it is there, when nobody may be connected to hear of the new numbers
        until(lambda: time.sleep(0.1) or {*ours(client, topic)} >= {"half", "left", "near"}, limit=PATIENCE)
        until(lambda: {*check.keys()} == {"left", "gone"}, limit=PATIENCE)
    assert {*keys(seen(broker, topic))} == {"half", "left", "near"}


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
def test_a_master_that_is_killed_has_its_halves_ended_when_it_is_back(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    killed_with_halves(broker, client, topic)


@pytest.mark.soak
@pytest.mark.broker("rocketmq-4.9.7")
def test_a_master_of_the_older_line_that_is_killed_has_its_halves_ended_when_it_is_back() -> None:
    with RocketMQ("4.9.7", nodes=2) as broker, wireproto.connect(broker.url) as client:
        topic = f"tx-{os.getpid()}-{next(_numbers)}"
        client.admin().create_topic(topic, partitions=2)
        killed_with_halves(broker, client, topic)


def ended(end: Callable[..., None]) -> bool:
    """Whether it left, and was carried out."""
    try:
        end(timeout=5.0)
    except (TransportError, NoMaster):
        return False
    return True


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
def test_who_has_sent_nothing_yet_is_asked_by_every_master(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    until(lambda: len({queue.broker for queue in client.cluster.route(topic, client.deadline(10.0), fresh=True).queues}) == 2)
    group = f"g-{topic}"
    with client.transactional(group, Decides()) as work:
        for number in range(4):
            work.send(b"v", topic=topic, key=b"%d" % number, partition=number % 2)
    check = Decides(**{str(number): "commit" for number in range(4)})
    with wireproto.connect(broker.url) as other, other.transactional(group, check):
        comes(client, topic, ["0", "1", "2", "3"])
    assert {message.topic for message in check.asked} == {topic}


@LINES
def test_a_connection_that_is_cut_is_made_again_so_that_the_broker_can_ask(
    broker: RocketMQ, client: RocketClient, topic: str, fault_proxy: Any
) -> None:
    check = Decides(v="commit")
    options = {"address_map": fault_proxy.address_map(broker.addresses), "heartbeat_interval": 3600.0, "header": "binary"}
    with wireproto.connect(broker.url, **options) as through, through.transactional(f"g-{topic}", check) as work:
        work.send(b"v", topic=topic, key=b"v")
        fault_proxy.cut()
        comes(client, topic, ["v"])


@LINES
def test_a_half_whose_answer_is_lost_is_not_sent_again(broker: RocketMQ, client: RocketClient, topic: str, fault_proxy: Any) -> None:
    """It may be stored, and no work is done for it: asked here, the answer is abort, whatever the check would say."""
    check = Decides(lost="commit")
    recording = fault_proxy.record("rocketmq")
    options = {"address_map": fault_proxy.address_map(broker.addresses)}
    with wireproto.connect(broker.url, **options) as through, through.transactional(f"g-{topic}", check) as work:
        work.send(b"v", topic=topic, key=b"first").commit()
        with (
            answer_lost(fault_proxy, recording, "SendMessageV2"),
            pytest.raises(Aborted, match="whether the half message is stored is not known"),
        ):
            work.send(b"v", topic=topic, key=b"lost")
        assert len(recording.requests("SendMessageV2")) == 2
        until(lambda: len(recording.requests("EndTransaction")) > 1, limit=PATIENCE)
        first, lost = recording.requests("EndTransaction")[:2]  # asked again before it has heard, it is told again
        assert [end.message.commit_or_rollback for end in (first, lost)] == [8, 12]
        assert lost.message.from_transaction_check is True
    assert check.asked == []
    assert keys(seen(broker, topic)) == ["first"]
