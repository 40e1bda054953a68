"""Fetch sessions: what is named, and what begins anew. The broker's half is the dev broker's, which real ones agree with (integration)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from wireproto._codec import KafkaBatchBuilder
from wireproto.devbroker.kafka.sessions import Fetching, Sessions
from wireproto.kafka import messages as m
from wireproto.kafka.fetch import Fetches, FetchSettings
from wireproto.kafka.messages.fetch import FetchForgottenTopic
from wireproto.kafka.sessions import FROM, FetchSession, Want
from wireproto.net.retry import Policy

ID = b"i" * 16
SETTINGS = FetchSettings(
    committed=False,
    max_wait=0.5,
    min_bytes=1,
    max_bytes=1 << 20,
    partition_bytes=1000,
    largest=1 << 24,
    backoff=Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.0),
    unknown_topic_timeout=5.0,
    trouble=30.0,
)


def wants(count: int, offset: int = 0, topic_id: bytes = ID) -> dict[Any, Want]:
    return {("t", number): Want(topic_id, 0, offset, -1, 1000) for number in range(count)}


def begun(count: int = FROM) -> FetchSession:
    """One that was granted, as number 5."""
    session = FetchSession()
    assert session.answered(session.name(wants(count), by_id=True), 0, 5)
    return session


def test_few_partitions_take_no_place_at_the_broker() -> None:
    session = FetchSession()
    named = session.name(wants(FROM - 1), by_id=True)
    assert (named.session_id, named.session_epoch, len(named.wanted), named.some) == (0, -1, FROM - 1, False)
    assert session.answered(named, 0, 0)
    named = session.name(wants(FROM), by_id=True)
    assert (named.session_id, named.session_epoch, len(named.wanted), named.some) == (0, 0, FROM, False)


def test_only_changes_are_named() -> None:
    session = begun()
    wanted = wants(FROM)
    named = session.name(wanted, by_id=True)
    assert (named.session_id, named.session_epoch, named.wanted, named.forgotten, named.some) == (5, 1, {}, {}, True)
    assert session.answered(named, 0, 5)
    moved = wanted["t", 3]._replace(offset=9)
    named = session.name({**wanted, ("t", 3): moved, ("t", FROM): moved}, by_id=True)
    assert (named.session_epoch, named.wanted, named.forgotten) == (2, {("t", 3): moved, ("t", FROM): moved}, {})
    assert session.answered(named, 0, 5)
    assert session.name(wanted, by_id=True).forgotten == {("t", FROM): ID}


@pytest.mark.parametrize("field", Want._fields[1:])
def test_whatever_of_a_partition_is_asked_in_another_way_is_named(field: str) -> None:
    session = begun()
    wanted = wants(FROM)
    another: dict[str, Any] = {field: 77}
    wanted["t", 1] = wanted["t", 1]._replace(**another)
    assert session.name(wanted, by_id=True).wanted == {("t", 1): wanted["t", 1]}


def test_a_topic_made_again_is_forgotten_by_its_old_id_and_named_by_the_new_one() -> None:
    session = begun()
    wanted = wants(FROM, topic_id=b"n" * 16)
    named = session.name(wanted, by_id=True)
    assert (named.session_epoch, named.wanted, named.forgotten) == (1, wanted, dict.fromkeys(wanted, ID))


def test_few_that_are_left_of_many_stay_in_the_session() -> None:
    named = begun().name(wants(1), by_id=True)
    assert (named.session_epoch, named.wanted, len(named.forgotten)) == (1, {}, FROM - 1)


def test_epochs_begin_at_one_again() -> None:
    session = begun()
    session._epoch = 0x7FFFFFFF
    named = session.name(wants(FROM), by_id=True)
    assert named.session_epoch == 0x7FFFFFFF
    assert session.answered(named, 0, 5)
    assert session.name(wants(FROM), by_id=True).session_epoch == 1


@pytest.mark.parametrize(("error", "number"), [(70, 0), (71, 5), (106, 5)])
def test_a_session_that_is_over_is_begun_anew_at_once(error: int, number: int) -> None:
    session = begun()
    assert not session.answered(session.name(wants(FROM), by_id=True), error, 0)
    named = session.name(wants(FROM), by_id=True)
    assert (named.session_id, named.session_epoch, len(named.wanted)) == (number, 0, FROM)
    assert session.answered(named, error, 0), "a broker that says so of a Fetch that begins one is not asked at once again"
    assert session.name(wants(FROM), by_id=True).session_epoch == 0


def test_another_error_of_the_whole_answer_is_the_callers_and_ends_the_session() -> None:
    session = begun()
    assert session.answered(session.name(wants(FROM), by_id=True), -1, 0)
    named = session.name(wants(FROM), by_id=True)
    assert (named.session_id, named.session_epoch) == (5, 0)


def test_an_answer_that_never_came_or_came_late_leaves_nothing_to_rely_on() -> None:
    session = begun()
    lost = session.name(wants(FROM, 1), by_id=True)
    anew = session.name(wants(FROM, 2), by_id=True)
    assert (anew.session_id, anew.session_epoch, anew.wanted) == (5, 0, wants(FROM, 2))
    assert session.answered(lost, 0, 5), "late"
    assert session.answered(lost, 70, 0), "late: its partitions are nobody's by then"
    assert session.answered(anew, 0, 6)
    named = session.name(wants(FROM, 2), by_id=True)
    assert (named.session_id, named.session_epoch, named.wanted) == (6, 1, {})


def test_what_was_not_taken_in_is_asked_for_anew() -> None:
    session = begun()
    assert session.answered(session.name(wants(FROM), by_id=True), 0, 5)
    session.doubt()
    assert session.name(wants(FROM), by_id=True).session_epoch == 0


def test_names_and_ids_are_not_mixed() -> None:
    session = begun()
    named = session.name(wants(FROM, topic_id=bytes(16)), by_id=False)
    assert (named.session_id, named.session_epoch, len(named.wanted)) == (5, 0, FROM)


def test_a_broker_that_grants_none_is_asked_in_full_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        named = session.name(wants(FROM), by_id=True)
        assert (named.session_id, named.session_epoch, len(named.wanted)) == (0, 0, FROM)
        assert session.answered(named, 0, 0)


# --- the plan's Fetches ---


def fetches(partitions: int = FROM, stop: int | None = None) -> Fetches:
    asking = Fetches(SETTINGS, lambda cursor: 1)
    for number in range(partitions):
        asking.add("t", number, 0, stop)
    return asking


def ask(asking: Fetches, now: float = 0.0, version: int = 17) -> Any:
    (due,) = asking.due(now)
    return asking.request(due, lambda name: ID, lambda topic, partition: 0, version)


def reply(numbers: Any, session: int = 5, version: int = 17, **facts: Any) -> m.FetchResponse:
    """These partitions' part; the first of them has what `facts` say."""
    parts = [m.FetchPartitionData(partition_index=number, high_watermark=3) for number in numbers]
    parts[:1] = [part.replace(**facts) for part in parts[:1]]
    topics = (m.FetchableTopicResponse(topic="" if version > 12 else "t", topic_id=ID, partitions=tuple(parts)),) if parts else ()
    return m.FetchResponse(session_id=session, responses=topics)


def batch(*values: bytes) -> bytes:
    builder = KafkaBatchBuilder()
    for value in values:
        builder.append(None, value, None, 1)
    return bytes(builder.finish())


@pytest.mark.parametrize("version", [12, 17])
def test_records_of_one_partition_have_that_one_named_again(version: int) -> None:
    asking = fetches()
    request, asked = ask(asking, version=version)
    assert (request.session_id, request.session_epoch, len(request.topics[0].partitions)) == (0, 0, FROM)
    asking.answer(asked, reply(range(FROM), version=version), version, 0.0)
    request, asked = ask(asking, version=version)
    assert (request.session_id, request.session_epoch, request.topics) == (5, 1, ())
    asking.answer(asked, reply([2], version=version, records=batch(b"a", b"b"), high_watermark=2), version, 0.0)
    request, asked = ask(asking, version=version)
    (topic,) = request.topics
    assert [(part.partition, part.fetch_offset) for part in topic.partitions] == [(2, 2)]
    assert topic.topic_id == (ID if version > 12 else bytes(16))
    assert topic.topic == "t"
    chunk = asking.plan.take()[0]
    assert (chunk.cursor.partition, chunk.next) == (2, 2)


def test_a_partition_that_is_not_wanted_for_now_is_forgotten() -> None:
    asking = fetches()
    asking.answer(ask(asking)[1], reply(range(FROM)), 17, 0.0)
    asking.plan.cursors["t", 4].paused = True
    request, asked = ask(asking)
    (gone,) = request.forgotten_topics_data
    assert (gone.topic_id, gone.partitions, request.topics) == (ID, (4,), ())
    assert isinstance(gone, FetchForgottenTopic)
    asking.answer(asked, reply([]), 17, 0.0)
    asking.plan.cursors["t", 4].paused = False
    request, _ = ask(asking)
    assert [part.partition for part in request.topics[0].partitions] == [4]


def test_silence_about_a_partition_says_that_it_is_well_and_has_nothing() -> None:
    """A refused one is told of again and again; so who is left out is well."""
    asking = fetches()
    cursor = asking.plan.cursors["t", 0]
    asking.answer(ask(asking)[1], reply(range(FROM), error_code=6), 17, 0.0)
    assert cursor.failures == 1
    asking.answer(ask(asking, 5.0)[1], reply([]), 17, 5.0)
    assert (cursor.failures, cursor.missing_since, cursor.end) == (0, 0.0, -1)


def test_silence_about_a_partition_with_more_below_its_stop_is_an_answer_without_records() -> None:
    asking = fetches(stop=3)
    asking.answer(ask(asking)[1], reply(range(FROM)), 17, 0.0)
    assert {cursor.empty_responses for cursor in asking.plan.cursors.values()} == {1}
    asking.answer(ask(asking, 1.0)[1], reply([]), 17, 1.0)
    assert {cursor.empty_responses for cursor in asking.plan.cursors.values()} == {2}
    _, asked = ask(asking, 2.0)
    asking.answer(asked, reply([1], records=batch(b"a")), 17, 2.0)
    assert asking.plan.cursors["t", 0].empty_responses == 2, "there was no room for it"
    assert asking.plan.cursors["t", 0].asked_at == asked.tickets[0].before, "it keeps its place"


def test_silence_before_there_is_a_session_says_nothing() -> None:
    asking = fetches(1, stop=3)
    asking.answer(ask(asking)[1], reply([0], session=0), 17, 0.0)
    asking.answer(ask(asking, 1.0)[1], reply([], session=0), 17, 1.0)
    assert asking.plan.cursors["t", 0].empty_responses == 1


def test_who_was_sought_while_an_answer_was_on_its_way_is_told_anew() -> None:
    """The broker thinks that we know where its log ends."""
    asking = fetches()
    asking.answer(ask(asking)[1], reply(range(FROM)), 17, 0.0)
    _, asked = ask(asking)
    asking.plan.seek(("t", 1), 2)
    asking.answer(asked, reply([1], high_watermark=9), 17, 0.0)
    request, _ = ask(asking)
    assert (request.session_id, request.session_epoch, len(request.topics[0].partitions)) == (5, 0, FROM)


def test_a_session_that_is_gone_costs_nothing_but_a_fetch() -> None:
    asking = fetches()
    asking.answer(ask(asking)[1], reply(range(FROM)), 17, 0.0)
    asking.answer(ask(asking)[1], m.FetchResponse(error_code=70), 17, 0.0)
    request, asked = ask(asking)
    assert (request.session_id, request.session_epoch, len(request.topics[0].partitions)) == (0, 0, FROM)
    assert not asking.stale
    asking.answer(asked, m.FetchResponse(error_code=70), 17, 0.0)
    assert asking.due(0.0) == [], "said of a Fetch that begins one, it is a refusal like others"


def test_a_fetch_that_was_not_sent_or_not_answered_is_followed_by_a_whole_one() -> None:
    asking = fetches()
    asking.answer(ask(asking)[1], reply(range(FROM)), 17, 0.0)
    (due,) = asking.due(0.0)
    asking.request(due, lambda name: ID, lambda topic, partition: 0)
    asking.dropped(due)
    request, asked = ask(asking)
    assert (request.session_id, request.session_epoch) == (5, 0)
    asking.answer(asked, reply(range(FROM), session=6), 17, 0.0)
    request, _ = ask(asking)
    assert (request.session_id, request.session_epoch) == (6, 1)


def test_each_node_has_a_session_of_its_own_and_is_told_good_bye() -> None:
    asking = Fetches(SETTINGS, lambda cursor: cursor.partition % 2)
    for number in range(3 * FROM):
        asking.add("t", number, 0)
    for due in asking.due(0.0):
        _, asked = asking.request(due, lambda name: ID, lambda topic, partition: 0)
        numbers = [ticket.cursor.partition for ticket in due.tickets]
        asking.answer(asked, reply(numbers, session=10 + due.link), 17, 0.0)
    found = {due.link: asking.request(due, lambda name: ID, lambda topic, partition: 0)[0] for due in asking.due(0.0)}
    assert {node: (request.session_id, request.session_epoch) for node, request in found.items()} == {0: (10, 1), 1: (11, 1)}
    parting = asking.end_session(1)
    assert parting is not None
    assert (parting.session_id, parting.session_epoch, parting.topics, parting.max_wait_ms) == (11, -1, (), 0)
    assert asking.end_session(1) is None
    assert asking.end_session(7) is None


# --- beside a broker ---


class Broker:
    """Logs of numbers, read by sessions as the dev broker keeps them; its answers hold at most `room` partitions' records."""

    def __init__(self, chance: random.Random, partitions: int) -> None:
        self.chance, self.sessions = chance, Sessions(places=2)
        self.ends = [0] * partitions

    def answer(self, request: m.FetchRequest) -> m.FetchResponse:
        fetching = self.sessions.begin(request)
        if not isinstance(fetching, Fetching):
            return m.FetchResponse(error_code=fetching)
        room, parts = 2, {}
        for key, part in fetching.wanted.items():
            end = self.ends[part.partition]
            records = b"r" * (end - part.fetch_offset) if room else b""
            room -= bool(records)
            parts[key] = m.FetchPartitionData(partition_index=part.partition, high_watermark=end, log_start_offset=0, records=records)
        answer: m.FetchResponse = fetching.answer(parts)
        return answer


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_every_partition_is_read_to_its_end(seed: int) -> None:
    """Records that come, answers that are lost, brokers started again, partitions that are left out for a while, seeks."""
    chance = random.Random(seed)
    broker, session = Broker(chance, 20), FetchSession()
    at, out = [0] * 20, set[int]()

    def fetch() -> None:
        wanted = {("t", n): Want(bytes(16), 0, at[n], -1, 1000) for n in range(20) if n not in out}
        named = session.name(wanted, by_id=False)
        request = m.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=named.session_id,
            session_epoch=named.session_epoch,
            topics=tuple(
                m.FetchTopic(
                    topic=topic, partitions=(m.FetchPartition(partition=number, fetch_offset=want.offset, partition_max_bytes=1000),)
                )
                for (topic, number), want in named.wanted.items()
            ),
            forgotten_topics_data=tuple(FetchForgottenTopic(topic=topic, partitions=(number,)) for topic, number in named.forgotten),
        )
        answer = broker.answer(request)
        if chance.random() < 0.1:
            return  # lost on its way
        if session.answered(named, answer.error_code, answer.session_id) and not answer.error_code:
            for topic in answer.responses:
                for part in topic.partitions:
                    if part.records:
                        assert part.partition_index not in out
                        at[part.partition_index] += len(part.records)
                        assert at[part.partition_index] == part.high_watermark

    for _ in range(300):
        doing = chance.random()
        if doing < 0.3:
            broker.ends[chance.randrange(20)] += chance.randrange(5)
        elif doing < 0.35:
            broker.sessions.forget()
        elif doing < 0.45:
            out ^= {chance.randrange(20)}
        elif doing < 0.5:
            at[chance.randrange(20)] = 0
        fetch()
    out.clear()
    chance = random.Random(1)
    for _ in range(60):
        fetch()
    assert at == broker.ends
