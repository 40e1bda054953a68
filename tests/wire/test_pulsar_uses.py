"""What Pulsar's roles are told to do: which partitions, from where to where, and what they refuse; on the embedded broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from patience import until
from wireproto import EARLIEST, LATEST
from wireproto._codec import Columns
from wireproto.devbroker import Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import Closed, ConcurrentUse, OptionError, Revoked, TimedOut, UsageError, ValueUnsupported
from wireproto.position import AtTime, LogOffset, MessageId
from wireproto.pulsar.codes import TopicNotFound

PROTOCOL, BROKER, CLIENT = "pulsar", {"auto_create": False}, {"timeout": 10.0}
_numbers = itertools.count()


@pytest.fixture
def topic(client: Any) -> str:
    """Two partitions with 6 records each, `<partition>:<number>`, in batches of 3."""
    name = f"uses-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    with client.producer(name, batch_records=3, linger=60.0) as out:
        for number in range(6):
            for partition in range(2):
                out.send(b"%d:%d" % (partition, number), partition=partition)
        out.flush(10.0)
    return name


def values(role: Any, count: int | None = None) -> list[bytes]:
    """What a reader reads to its end, or so many records."""
    found: list[bytes] = []
    for _ in range(2000):
        if (count is None and role.done) or (count is not None and len(found) >= count):
            return sorted(found)
        batch = role.poll(0.5)
        found += batch.values() if batch is not None else []
    raise AssertionError(f"no end: {found}")


def of(partition: int, start: int, stop: int) -> list[bytes]:
    return [b"%d:%d" % (partition, number) for number in range(start, stop)]


def ids(client: Any, topic: str) -> dict[bytes, MessageId]:
    """Where each record stands."""
    with client.reader(topic, stop=LATEST) as reader:
        return {record.value: record.position for batch in reader for record in batch}


def test_a_mapping_restricts_a_reader_to_its_partitions(client: Any, topic: str) -> None:
    at = ids(client, topic)
    with client.reader(topic, start={(topic, 1): at[b"1:4"]}, stop=LATEST) as reader:
        assert set(reader.positions) == {(topic, 1)}
        assert values(reader) == of(1, 4, 6), "from within a batch"
        assert reader.done
        assert reader.poll(0.0) is None
    with client.reader(topic, start=at[b"0:1"], stop=at[b"0:5"]) as reader:
        assert values(reader) == of(0, 1, 5)
    with client.reader(topic, start=at[b"0:3"], stop=at[b"0:3"]) as reader:
        assert reader.done
    with client.reader(topic, start=EARLIEST, stop={(topic, 0): at[b"0:2"], (topic, 1): at[b"1:0"]}) as reader:
        assert values(reader) == of(0, 0, 2)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (LogOffset("T", 0, 1), "ledger:entry:index"),
        (MessageId("T", 7, 1, 1), r"\[7\], which is not among the partitions here"),
        (MessageId("other", 0, 1, 1), "other"),
        ("earliest", "is EARLIEST, LATEST, AtTime, a position or a mapping"),
    ],
)
def test_what_is_no_place_in_the_topic_is_refused(client: Any, topic: str, where: Any, text: str) -> None:
    put = where
    if isinstance(where, LogOffset):
        put = LogOffset(topic, 0, 1)
    elif isinstance(where, MessageId) and where.topic == "T":
        put = MessageId(topic, where.partition, 1, 1)
    with pytest.raises(OptionError, match=text):
        client.reader(topic, start=put)
    with pytest.raises(OptionError, match=text):
        client.reader(topic, stop=put)
    with client.reader(topic) as reader, pytest.raises(OptionError, match=text):
        reader.seek(put)
    with pytest.raises(TopicNotFound):
        client.reader("nowhere", create_topic=False)


def test_a_seek_moves_what_it_names(client: Any, topic: str) -> None:
    at = ids(client, topic)
    with client.reader(topic, stop=LATEST) as reader:
        assert len(values(reader)) == 12
        reader.seek({(topic, 1): at[b"1:2"]})
        assert not reader.done
        assert values(reader) == of(1, 2, 6)
        reader.seek(EARLIEST)
        assert len(values(reader)) == 12
        reader.seek(AtTime(int(time.time() * 1000) + 60_000))
        assert reader.done or values(reader) == []


def test_iterating_yields_no_empty_batches_and_ends(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        sizes = [len(batch) for batch in reader]
    assert sum(sizes) == 12
    assert min(sizes) > 0
    with pytest.raises(Closed):
        reader.poll(0.0)
    reader.close()


def test_a_closed_reader_closes_its_consumers_at_the_broker(client: Any, topic: str, seen: Recording) -> None:
    with client.reader(topic) as reader:
        reader.poll(2.0)
    opened = {one.message.consumer_id for one in seen.requests("subscribe")}
    closed = {one.message.consumer_id for one in seen.wait("close_consumer", 2, timeout=5.0)}
    assert len(opened) == 2
    assert closed == opened


# consumers


@pytest.fixture
def member(client: Any, topic: str) -> Iterator[Any]:
    with client.consumer(topic, "g", start=EARLIEST) as made:
        yield made


def test_a_commit_is_one_cumulative_ack_for_each_partition(client: Any, topic: str, member: Any, seen: Recording) -> None:
    assert len(values(member, 12)) == 12
    assert not seen.requests("ack")
    member.commit()
    acks = [one.message for one in seen.requests("ack")]
    assert len(acks) == 2
    assert {one.ack_type for one in acks} == {1}, "cumulative"
    assert all(len(one.message_id) == 1 for one in acks)
    assert set(member.lag().values()) == {0}
    member.commit()
    assert len(seen.requests("ack")) == 2, "nothing was handed out since"


def test_a_commit_within_a_batch_says_which_of_it_are_wanted_still(client: Any, topic: str, member: Any, seen: Recording) -> None:
    at = ids(client, topic)
    assert len(values(member, 12)) == 12
    member.commit({(topic, 0): at[b"0:4"]})
    [ack] = [one.message for one in seen.requests("ack")]
    [place] = ack.message_id
    assert (place.ledgerId, place.entryId, place.batch_size) == (at[b"0:4"].ledger, at[b"0:4"].entry, 3)
    assert list(place.ack_set) == [0b110], "the first of three is done"
    assert member.committed()[topic, 0] == at[b"0:4"]
    member.commit({(topic, 0): at[b"0:3"]})
    whole = seen.requests("ack")[-1].message.message_id[0]
    assert whole.entryId == at[b"0:3"].entry - 1, "before a batch is behind the one before"
    with pytest.raises(OptionError, match="is not read by this consumer"):
        member.commit({(topic, 9): at[b"0:3"]})
    with pytest.raises(OptionError, match="ledger:entry:index"):
        member.commit({(topic, 0): LogOffset(topic, 0, 1)})


def test_a_group_resumes_where_it_was(client: Any, topic: str) -> None:
    at = ids(client, topic)
    with client.consumer(topic, "resumes", start=EARLIEST) as first:
        assert len(values(first, 12)) == 12
        first.commit({(topic, 0): at[b"0:3"], (topic, 1): at[b"1:3"]})
    with client.consumer(topic, "resumes", start=LATEST) as second:
        assert values(second, 6) == of(0, 3, 6) + of(1, 3, 6)
        assert second.poll(0.2) is None


def test_a_member_moves_its_subscription(client: Any, topic: str, member: Any, seen: Recording) -> None:
    at = ids(client, topic)
    assert len(values(member, 12)) == 12
    for where, found in (
        ({(topic, 1): at[b"1:4"]}, of(1, 4, 6)),
        (EARLIEST, of(0, 0, 6) + of(1, 0, 6)),
        (LATEST, []),
        (AtTime(1), of(0, 0, 6) + of(1, 0, 6)),
    ):
        member.seek(where)
        assert values(member, len(found)) == found
        assert member.poll(0.2) is None
    with pytest.raises(Revoked, match=r"\[7\] is not assigned to this consumer"):
        member.seek(MessageId(topic, 7, 1, 1))
    times = [one.message.message_publish_time for one in seen.requests("seek")]
    assert times.count(1) == 2


def test_a_paused_partition_waits_and_goes_on_where_it_stood(topic: str, member: Any) -> None:
    member.pause([(topic, 1)])
    assert values(member, 6) == of(0, 0, 6)
    assert member.poll(0.2) is None
    member.resume([(topic, 1)])
    assert values(member, 6) == of(1, 0, 6)
    assert member.assignment == {(topic, 0), (topic, 1)}
    for change in (member.pause, member.resume):
        with pytest.raises(Revoked, match=r"\[9\] is not assigned to this consumer"):
            change([(topic, 9)])


@pytest.mark.parametrize(
    ("role", "options", "text"),
    [
        ("consumer", {"mode": "shared"}, "mode is failover or exclusive, not shared"),
        ("queue", {"mode": "failover"}, "mode is shared or key-shared, not failover"),
    ],
)
def test_a_mode_of_another_role_is_refused(client: Any, topic: str, role: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        getattr(client, role)(topic, "g", **options)
    with pytest.raises(OptionError, match="needs a topic"):
        client.consumer((), "g")


def test_closing_commits_only_where_that_is_automatic(client: Any, topic: str, seen: Recording) -> None:
    for automatic in (False, True):
        seen.clear()
        with client.consumer(topic, f"g{automatic}", start=EARLIEST, auto_commit=automatic, auto_commit_interval=0.0) as one:
            values(one, 12)
            acked = len(seen.requests("ack"))
        assert (len(seen.requests("ack")) > acked) is automatic
        with pytest.raises(Closed):
            one.poll(0.0)
        one.close()


def test_a_role_is_one_threads_at_a_time(client: Any, topic: str) -> None:
    for opened in (client.reader(topic), client.consumer(topic, "c"), client.queue(topic, "q")):
        with opened._only, pytest.raises(ConcurrentUse):
            opened.receive(0.0) if hasattr(opened, "receive") else opened.poll(0.0)
        opened.close()


def test_a_worker_ends_each_message_once(client: Any, topic: str, seen: Recording) -> None:
    with client.queue(topic, "workers") as worker:
        first = worker.receive(10.0)
        first.ack()
        with pytest.raises((Revoked, UsageError)):
            first.ack()
        taken = [worker.receive(10.0) for _ in range(11)]
        taken[0].release()
        again = worker.receive(10.0)
        assert again.value in {one.value for one in taken}, "what was given back comes again"
        assert seen.requests("redeliverUnacknowledgedMessages")
        for one in (*taken[1:], again):
            one.ack()
    with pytest.raises(Closed):
        worker.receive(0.0)
    assert {one.message.ack_type for one in seen.requests("ack")} == {0}, "one by one"


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_is_not_there_takes_nothing(client: Any, topic: str, partition: int) -> None:
    with client.producer(topic) as out, pytest.raises(OptionError, match="has 2"):
        out.send(b"x", partition=partition)
    with pytest.raises((Closed, UsageError)):
        out.send(b"x")


def test_what_a_message_cannot_have_is_refused_before_it_goes(client: Any, topic: str, seen: Recording) -> None:
    with client.producer(topic) as out:
        before = len(seen.requests("send"))
        for given in ({"timestamp": -1}, {"headers": {"a": None}}):
            with pytest.raises(ValueUnsupported):
                out.send(b"x", **given)
        out.flush(5.0)
        assert len(seen.requests("send")) == before


@pytest.mark.parametrize("rows", [False, True], ids=["record", "rows"])
@pytest.mark.parametrize("options", [{"batching": False}, {"batch_records": 1}], ids=["unbatched", "batch of one"])
def test_a_batch_that_its_first_record_fills_keeps_its_delivery_timeout(
    client: Any, topic: str, faults: Faults, options: dict[str, Any], rows: bool
) -> None:
    out = client.producer(topic, delivery_timeout=0.3, **options)
    faults.stall("send")
    receipt = out.send_batch(Columns.from_rows([b"x"]), partition=0)[0] if rows else out.send(b"x", partition=0)
    until(lambda: receipt.done, "nobody asks for its place, and yet its time is over")
    with pytest.raises(TimedOut, match=r"not acknowledged within 0\.3 s"):
        receipt.position(0.0)
    out.flush(0.0)


def test_a_producer_without_a_topic_takes_records_for_any(client: Any, topic: str, seen: Recording) -> None:
    other = f"{topic}-other"
    client.admin().create_topic(other, partitions=0)
    with client.producer(linger=5.0) as out:
        receipts = [out.send(b"%d" % number, topic=name, partition=0) for number in range(3) for name in (topic, other)]
        receipts += out.send_batch(Columns.from_rows([b"3", b"4"]), topic=other)
        out.flush(10.0)
        assert [(one.position(0.0).topic, one.position(0.0).partition) for one in receipts] == [(topic, 0), (other, -1)] * 3 + [(other, -1)]
        with pytest.raises(TopicNotFound):
            out.send(b"x", topic="nowhere-at-all", timeout=5.0)
        assert out.to(other) is out.to(other)
    with pytest.raises(Closed):
        out.send(b"x", topic=topic)
    with pytest.raises(Closed):
        out.send(b"x", topic="another")
    with client.reader(other, stop=LATEST) as reader:
        assert values(reader) == [b"%d" % number for number in range(5)]
    assert client.cluster.budget.used == 0
