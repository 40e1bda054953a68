"""Acknowledgements in our transactions on a real broker: what the group still has afterwards, as the official client's consumer sees it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import wireproto
from brokers import java
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, new_topic, pulsar, read_theirs, theirs
from patience import LONG, soon, until
from wireproto.errors import Aborted, Revoked, TimedOut, UsageError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import codes

SECONDS = 20.0
JAVA = "pulsar-4.2.4"
MOMENT = 1.0
"""Seconds in which nothing comes that is not on its way."""

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def judge(broker: Pulsar) -> Iterator[Any]:
    with theirs(broker) as official:
        yield official


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


@pytest.fixture
def source(broker: Pulsar) -> str:
    return new_topic(broker)


def filled(client: Any, topic: str, count: int, **options: Any) -> None:
    with client.producer(topic, linger=LONG, **options) as producer:  # all in one batch, however late this thread is
        for number in range(count):
            producer.send(b"%02d" % number)


def received(queue: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        delivery = queue.receive(SECONDS)
        assert delivery is not None, f"{len(found)} of {count}"
        found.append(delivery)
    return found


def left(judge: Any, topic: str, group: str, count: int) -> list[bytes]:
    """What a group that nobody is in any more has not acknowledged: so many, and what comes in a moment behind them."""
    consumer = judge.subscribe(PREFIX + topic, group, consumer_type=pulsar.ConsumerType.Shared)
    found: list[bytes] = []
    try:
        while True:
            found.append(consumer.receive(int((MOMENT if len(found) >= count else LONG) * 1000)).data())
    except pulsar.Timeout:
        return sorted(found)
    finally:
        consumer.close()


def made(judge: Any, topic: str) -> list[bytes]:
    return [message.data() for message in read_theirs(judge, topic)]


def settled(judge: Any, topic: str, expected: list[bytes]) -> None:
    """A commit is seen a moment after its coordinator has answered."""
    until(lambda: made(judge, topic) == expected, f"{made(judge, topic)} is {expected}")


# --- queues ---


@pytest.mark.parametrize("mode", ["shared", "key-shared"])
@pytest.mark.parametrize("batching", [True, False])
def test_a_message_is_done_with_what_was_made_of_it(client: Any, judge: Any, source: str, topic: str, mode: Any, batching: bool) -> None:
    """Of six messages the first is rolled back, and comes again; three are committed."""
    filled(client, source, 6, batching=batching)
    with client.transactions("work") as work, client.queue(source, "g", mode=mode) as queue:
        first, *more = received(queue, 6)
        turn = work.begin()
        turn.ack(first)
        turn.send(b"of " + first.value, topic=topic)
        with pytest.raises(Revoked):
            first.ack()
        turn.abort()
        with pytest.raises(Revoked):
            first.release()
        with work.begin() as turn:
            for delivery in more[:3]:
                turn.send(b"of " + delivery.value, topic=topic)
                turn.ack(delivery)
        again = received(queue, 1)[0]
        assert (again.value, again.attempt) == (first.value, 2)
        with work.begin() as turn:
            turn.send(b"again " + again.value, topic=topic)
            turn.ack(again)
        assert queue.receive(MOMENT) is None
        more[3].ack()  # the other ones are as they were
    settled(judge, topic, [b"of 01", b"of 02", b"of 03", b"again 00"])
    assert left(judge, source, "g", 1) == [b"05"]


def test_what_is_in_a_transaction_is_handed_to_nobody(client: Any, judge: Any, source: str) -> None:
    filled(client, source, 4, batching=False)
    with client.transactions("work") as work:
        with client.queue(source, "g") as queue:
            turn = work.begin()
            for delivery in received(queue, 4)[:2]:
                turn.ack(delivery)
        with client.queue(source, "g") as other:
            assert sorted(delivery.value for delivery in received(other, 2)) == [b"02", b"03"]
            assert other.receive(MOMENT) is None
            turn.abort()
            assert sorted(delivery.value for delivery in received(other, 2)) == [b"00", b"01"]
    assert left(judge, source, "g", 4) == [b"00", b"01", b"02", b"03"]


def test_what_is_rolled_back_comes_again_once(broker: Pulsar, client: Any, source: str, fault_proxy: Any) -> None:
    """To any of the workers. It is not asked for: that would have its broker hand out again what it may have handed out by then."""
    filled(client, source, 40, batching=False)
    frames = fault_proxy.record("pulsar")
    with (
        wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as through,
        through.transactions("work") as work,
        through.queue(source, "g") as one,
        through.queue(source, "g") as two,
    ):
        for delivery in received(one, 10):
            turn = work.begin()
            turn.ack(delivery)
            turn.abort()
        found: list[bytes] = []
        deadline = soon(LONG)
        while (delivery := one.receive(MOMENT) or two.receive(MOMENT)) is not None or len(found) < 40:
            assert soon(0.0) < deadline, found
            found += [delivery.value] if delivery is not None else []
    assert sorted(found) == [b"%02d" % number for number in range(40)]
    assert frames.requests("redeliverUnacknowledgedMessages") == []


def test_a_message_is_acknowledged_once(broker: Pulsar, client: Any, source: str, topic: str) -> None:
    """What could not even be asked for leaves the transaction as it was."""
    filled(client, source, 3, batching=False)
    with client.transactions("work") as work, client.queue(source, "g") as queue:
        one, two, three = received(queue, 3)
        two.ack()
        with work.begin() as turn:
            turn.ack(one)
            with pytest.raises(Revoked, match="passed to a transaction"):
                turn.ack(one)
            with pytest.raises(UsageError, match="acknowledged before"):
                turn.ack(two)
            with wireproto.connect(broker.url) as other, other.queue(topic, "g") as stranger:
                filled(client, topic, 1)
                with pytest.raises(UsageError, match="own client"):
                    turn.ack(received(stranger, 1)[0])
        with pytest.raises(UsageError):
            turn.ack(three)
        three.ack()
        assert queue.receive(MOMENT) is None


def test_java_s_transactions_and_ours_share_a_group(broker: Pulsar, client: Any) -> None:
    """Each takes what the other has not committed, and Java's reader sees what either has: with batches, and without."""
    pairs = [(batching, new_topic(broker), new_topic(broker)) for batching in (True, False)]
    with client.transactions("work") as work:
        for batching, source, topic in pairs:
            filled(client, source, 6, batching=batching)
            with client.queue(source, "g") as queue:
                mine = received(queue, 6)
                turn = work.begin()
                turn.send(b"rolled back", topic=topic)
                turn.ack(mine[3])
                turn.abort()
                with work.begin() as turn:
                    for delivery in mine[:2]:
                        turn.send(b"ours of " + delivery.value, topic=topic)
                        turn.ack(delivery)
        done = judged(*(command for _, source, topic in pairs for command in works(broker, source, topic)))
        assert len(done) == 6
        theirs = {source: done[at + 1 : at + 3] for at, (_, source, _) in zip((0, 3), pairs, strict=True)}  # the first is rolled back
        for _, source, topic in pairs:
            with client.queue(source, "g") as queue:
                rest = [delivery.value.decode() for delivery in received(queue, 2)]
                assert queue.receive(MOMENT) is None
            with work.begin() as turn:
                turn.send(b"the last", topic=topic)
            assert sorted([*rest, *theirs[source]]) == ["02", "03", "04", "05"]
    found = judged(*(["read", broker.service, PREFIX + topic, "the last"] for *_, topic in pairs))
    expected = [["ours of 00", "ours of 01", *(f"java of {value}" for value in theirs[source])] for _, source, _ in pairs]
    assert found == [value for values in expected for value in values]


def works(broker: Pulsar, source: str, topic: str) -> Iterator[list[str]]:
    """What Java's client does: takes a message and rolls that back, then two and commits that."""
    for count, end in (("1", "abort"), ("2", "commit")):
        yield ["work", broker.service, PREFIX + source, "g", PREFIX + topic, count, end]


def judged(*commands: list[str]) -> list[str]:
    """The values that commands print, one after the other in one JVM."""
    words = [word for command in commands for word in ("then", *command)][1:]
    return [line["value"] for line in java.run(JAVA, "PulsarJudge", *words)]


def test_a_message_whose_consumer_was_lost_since_is_not_taken_for_done(
    broker: Pulsar, client: Any, judge: Any, source: str, topic: str, fault_proxy: Any
) -> None:
    """Its broker would say yes to the ACK, and do nothing."""
    filled(client, source, 2, batching=False)
    with (
        wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as through,
        through.transactions("work") as work,
        through.queue(source, "g") as queue,
    ):
        one, two = received(queue, 2)
        fault_proxy.cut()
        turn = work.begin()
        turn.send(b"of one", topic=topic)
        with pytest.raises(Aborted, match="lost since"):
            turn.ack(one)
        with pytest.raises(Aborted):
            turn.commit()
        two.ack()
    settled(judge, topic, [])
    assert left(judge, source, "g", 1) == [b"00"]


@pytest.mark.parametrize("registered", [False, True])
def test_an_ack_without_an_answer_has_it_rolled_back(
    broker: Pulsar, client: Any, judge: Any, source: str, topic: str, fault_proxy: Any, registered: bool
) -> None:
    """Be it of the group's registration, or of the ACK itself: the message comes again, once."""
    filled(client, source, 2, batching=False)
    with (
        wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as through,
        through.transactions("work") as work,
        through.queue(source, "g") as queue,
    ):
        one, two = received(queue, 2)
        turn = work.begin()
        turn.send(b"of one", topic=topic)
        work.topics.flush()
        if registered:
            turn.ack(two)
        fault_proxy.stall("down")
        with pytest.raises(TimedOut):
            turn.ack(one, timeout=0.5)
        with pytest.raises(TimedOut):
            turn.commit(timeout=0.5)  # the ACK is under way still
        fault_proxy.heal()
        turn.abort()
        with work.begin() as turn:
            turn.send(b"again", topic=topic)
            for delivery in received(queue, 1 + registered):
                turn.ack(delivery)
        assert queue.receive(MOMENT) is None
    settled(judge, topic, [b"again"])
    assert left(judge, source, "g", not registered) == ([] if registered else [b"01"])


def test_an_ack_that_was_cut_off_is_not_made_again(
    broker: Pulsar, client: Any, judge: Any, source: str, topic: str, fault_proxy: Any
) -> None:
    filled(client, source, 2, batching=False)
    frames = fault_proxy.record("pulsar")
    with (
        wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as through,
        through.transactions("work") as work,
        through.queue(source, "g") as queue,
    ):
        one, two = received(queue, 2)
        turn = work.begin()
        turn.send(b"of one", topic=topic)
        turn.ack(one)
        fault_proxy.stall("down")
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(turn.ack, two)
            frames.wait("ack", 2, timeout=LONG)
            fault_proxy.cut()
            fault_proxy.heal()
            with pytest.raises(Aborted):
                doing.result(LONG)
        with pytest.raises(Aborted):
            turn.commit()
        assert len(frames.requests("ack")) == 2
        with work.begin() as turn:
            turn.send(b"again", topic=topic)
            for delivery in received(queue, 2):
                turn.ack(delivery)
    settled(judge, topic, [b"again"])
    assert left(judge, source, "g", 0) == []


@pytest.fixture
def raw(client: Any) -> Any:
    """A transaction that is made by hand: its number, registered for a group."""

    def begin(topic: str, group: str) -> dict[str, int]:
        client.request(api.CommandTcClientConnectRequest(tc_id=0))
        begun = client.request(api.CommandNewTxn(tc_id=0, txn_ttl_millis=60_000))
        ids = {"txnid_least_bits": begun.txnid_least_bits, "txnid_most_bits": begun.txnid_most_bits}
        joined = api.Subscription(topic=PREFIX + topic, subscription=group)
        client.request(api.CommandAddSubscriptionToTxn(subscription=[joined], **ids))
        return ids

    return begin


def test_what_another_transaction_has_acknowledged_has_ours_rolled_back(client: Any, judge: Any, source: str, topic: str, raw: Any) -> None:
    """The first message of a batch, by a consumer of the group whose transaction is open."""
    filled(client, source, 3)
    with client.transactions("work") as work, client.queue(source, "g") as queue:
        deliveries = received(queue, 3)
        place = deliveries[0].position
        ids = raw(source, "g")
        client.request(api.CommandSubscribe(topic=PREFIX + source, subscription="g", subType="Shared", consumer_id=77))
        message = api.MessageIdData(ledgerId=place.ledger, entryId=place.entry, batch_index=0, ack_set=[0b110], batch_size=3)
        client.request(api.CommandAck(consumer_id=77, ack_type="Individual", message_id=[message], **ids), topic=source)
        turn = work.begin()
        turn.send(b"of one", topic=topic)
        turn.ack(deliveries[1])
        with pytest.raises(Aborted) as told:
            turn.ack(deliveries[0])
        assert isinstance(told.value.__cause__, codes.TransactionConflict)
        with pytest.raises(Aborted):
            turn.send(b"more", topic=topic)
        with pytest.raises(Aborted):
            turn.commit()
        with work.begin() as turn:
            turn.ack(deliveries[2])
            turn.send(b"of three", topic=topic)
        client.request(api.CommandEndTxn(txn_action="COMMIT", **ids))
        client.request(api.CommandCloseConsumer(consumer_id=77), topic=source)
    settled(judge, topic, [b"of three"])
    assert left(judge, source, "g", 1) == [b"01"]


# --- consumers ---


def test_positions_move_with_what_was_made_of_them(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    """Consume, process, produce: one transaction in three is rolled back, and worked on again."""
    source = new_topic(broker, 2)
    with client.producer(source, batch_records=7) as producer:
        for number in range(60):
            producer.send(b"%02d" % number, partition=number % 2)
    done, rounds = 0, 0
    with client.consumer(source, "g", receive_memory=1) as log, client.transactions("work") as work:
        while done < 60:
            batch = log.poll(SECONDS)
            assert batch is not None, f"{done} of 60"
            rounds += 1
            try:
                with work.begin() as turn:
                    for value in batch.values():
                        turn.send(b"out-" + value, topic=topic)
                    turn.commit_positions(log, batch.next_positions)
                    if rounds % 3 == 1:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                log.rewind()
            else:
                done += len(batch)
        assert log.poll(MOMENT) is None
        log.commit()  # nothing is left to be committed
    assert sorted(made(judge, topic)) == [b"out-%02d" % number for number in range(60)]
    for number in range(2):
        assert left(judge, f"{source}-partition-{number}", "g", 0) == []


def test_places_within_a_batch_are_committed(client: Any, judge: Any, source: str) -> None:
    filled(client, source, 6)
    with client.consumer(source, "g") as log, client.transactions("work") as work:
        batch = log.poll(SECONDS)
        places = [record.position for record in batch]
        with work.begin() as turn:
            for place in (places[1], places[2], places[2]):  # what was said before is not said again
                turn.commit_positions(log, dict.fromkeys(batch.next_positions, place))
        log.rewind()
        assert [record.value for record in log.poll(SECONDS)] == [b"02", b"03", b"04", b"05"]
        turn = work.begin()
        turn.commit_positions(log)
        turn.abort()
        log.rewind()
        assert [record.value for record in log.poll(SECONDS)] == [b"02", b"03", b"04", b"05"]
    assert left(judge, source, "g", 4) == [b"02", b"03", b"04", b"05"]


def test_a_consumer_that_commits_by_itself_is_refused(broker: Pulsar, client: Any, source: str) -> None:
    with client.transactions("work") as work, client.consumer(source, "g", auto_commit=True) as log:
        turn = work.begin()
        with pytest.raises(UsageError, match="auto_commit"):
            turn.commit_positions(log)
        with wireproto.connect(broker.url) as other, other.consumer(source, "h") as stranger, pytest.raises(UsageError, match="own client"):
            turn.commit_positions(stranger)
        turn.commit()  # nothing stands in its way


def first(log: Any) -> Any:
    batch = log.poll(SECONDS)
    assert batch is not None
    return batch


def test_a_member_whose_partition_another_took_commits_nothing(client: Any, judge: Any, source: str, topic: str) -> None:
    filled(client, source, 2)
    with client.transactions("work") as work, client.consumer(source, "g", priority=5) as log:
        batch = first(log)
        turn = work.begin()
        turn.send(b"begun", topic=topic)
        with client.consumer(source, "g", priority=0) as other:
            mine = first(other)
            with pytest.raises(Aborted) as told:
                turn.commit_positions(log, batch.next_positions)
            assert isinstance(told.value.__cause__, Revoked)
            with pytest.raises(Aborted):
                turn.commit()
            with work.begin() as turn:
                turn.send(b"made by the other", topic=topic)
                turn.commit_positions(other, mine.next_positions)
    settled(judge, topic, [b"made by the other"])
    assert left(judge, source, "g", 0) == []


def test_what_a_member_before_has_committed_meanwhile_is_not_committed_over(client: Any, judge: Any, source: str, topic: str) -> None:
    """Who took the partition has read what the one before was about to commit: broker and conflict tell of the place alone, and that is
    further on."""
    filled(client, source, 3, batching=False)
    with client.transactions("work") as work, client.transactions("others") as others, client.consumer(source, "g", priority=5) as log:
        turn = work.begin()
        taken = 0
        while taken < 3:  # a poll hands out as many as have come
            taken += len(first(log))
        turn.send(b"of the one before", topic=topic)
        turn.commit_positions(log)
        with client.consumer(source, "g", priority=0) as other:
            filled(client, source, 2, batching=False)
            got = 0
            while got < 5:
                got += len(first(other))
            theirs = others.begin()
            theirs.send(b"of the other", topic=topic)
            turn.commit()
            with pytest.raises(Aborted, match="another member"):
                theirs.commit_positions(other)
            with pytest.raises(Aborted):
                theirs.commit()
            other.rewind()
            with others.begin() as theirs:
                again = first(other)
                while len(again) < 2:
                    again = [*again, *first(other)]
                theirs.send(b"of what was left", topic=topic)
                theirs.commit_positions(other)
            assert len(again) == 2
    settled(judge, topic, [b"of the one before", b"of what was left"])
    assert left(judge, source, "g", 0) == []


def test_a_group_whose_positions_another_transaction_holds_has_ours_rolled_back(
    client: Any, judge: Any, source: str, topic: str, raw: Any
) -> None:
    filled(client, source, 2)
    with client.transactions("work") as work, client.consumer(source, "g") as log:
        batch = first(log)
        ids = raw(source, "g")
        waits = api.CommandSubscribe(topic=PREFIX + source, subscription="g", subType="Failover", consumer_id=78, priority_level=9)
        client.request(waits)
        place = next(iter(batch.next_positions.values()))
        message = api.MessageIdData(ledgerId=place.ledger, entryId=place.entry)
        client.request(api.CommandAck(consumer_id=78, ack_type="Cumulative", message_id=[message], **ids), topic=source)
        turn = work.begin()
        turn.send(b"made", topic=topic)
        with pytest.raises(Aborted) as told:
            turn.commit_positions(log)
        assert isinstance(told.value.__cause__, codes.TransactionConflict)
        with pytest.raises(Aborted):
            turn.commit()
        client.request(api.CommandEndTxn(txn_action="ABORT", **ids))
        client.request(api.CommandCloseConsumer(consumer_id=78), topic=source)
        log.rewind()
        assert [record.value for record in first(log)] == [b"00", b"01"]
        with work.begin() as turn:
            turn.send(b"made again", topic=topic)
            turn.commit_positions(log)
    settled(judge, topic, [b"made again"])
    assert left(judge, source, "g", 0) == []


def check_order(frames: list[Any]) -> int:
    """That each ACK of a transaction lies between the answer to its subscription's registration, which is asked for once, and END_TXN, and
    that this leaves when each is answered; how many there were."""
    consumers: dict[int, tuple[str, str]] = {}
    asked: dict[int, Any] = {}
    registered: set[Any] = set()
    waiting: dict[int, Any] = {}
    ended: set[Any] = set()
    acks = 0
    for frame in frames:
        said = frame.message
        number = (said.txnid_most_bits, said.txnid_least_bits) if hasattr(said, "txnid_least_bits") else None
        if frame.name == "subscribe":
            consumers[said.consumer_id] = said.topic, said.subscription
        elif frame.name == "addSubscriptionToTxn":
            joins = {(number, (one.topic, one.subscription)) for one in said.subscription}
            assert not joins & registered
            asked[said.request_id] = joins
        elif frame.name == "addSubscriptionToTxnResponse":
            registered |= asked.pop(said.request_id)
        elif frame.name == "ack" and frame.up:
            acks += 1
            assert (number, consumers[said.consumer_id]) in registered
            assert number not in ended
            waiting[said.request_id] = number
        elif frame.name == "ackResponse":
            waiting.pop(said.request_id, None)
        elif frame.name == "endTxn":
            assert number not in waiting.values()
            ended.add(number)
    return acks


def test_no_ack_leaves_before_its_group_is_registered_or_behind_the_end(
    broker: Pulsar, client: Any, judge: Any, source: str, topic: str, fault_proxy: Any
) -> None:
    """Two groups of two topics, whose messages threads acknowledge while others end the transactions."""
    filled(client, source, 40, batching=False)
    filled(client, topic, 40, batching=False)
    frames = fault_proxy.record("pulsar")
    acked: list[tuple[Any, bytes]] = []
    with (
        wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as through,
        through.transactions("work") as work,
    ):
        work.begin()

        def acks(name: str) -> None:
            with through.queue(name, "g") as queue:
                mine, deadline = 0, soon(2 * LONG)
                while (delivery := queue.receive(MOMENT)) is not None or mine < 40:  # each of them, and what comes again meanwhile
                    if delivery is None:
                        assert soon(0.0) < deadline, f"{mine} of 40"
                        continue
                    turn = work.now
                    try:
                        turn.ack(delivery)
                    except (UsageError, Aborted):
                        delivery.release()
                    else:
                        acked.append((turn, name.encode() + delivery.value))
                        mine += 1

        with ThreadPoolExecutor(2) as pool:
            doing = [pool.submit(acks, name) for name in (source, topic)]
            number = 0
            while not all(task.done() for task in doing):
                number += 1
                seen = len(frames.requests("ack"))
                until(lambda seen=seen: len(frames.requests("ack")) > seen or all(task.done() for task in doing))
                if number % 3 == 2:
                    work.now.abort()
                else:
                    work.now.commit()
                work.begin()
            for task in doing:
                task.result()
        work.now.commit()
    assert check_order(frames.all()) >= 80
    done = {value for turn, value in acked if turn.state.value == "committed"}
    over = {name: 40 - sum(value.startswith(name.encode()) for value in done) for name in (source, topic)}
    rest = {name.encode() + value for name in (source, topic) for value in left(judge, name, "g", over[name])}
    assert done | rest == {name.encode() + b"%02d" % number for name in (source, topic) for number in range(40)}
    assert not done & rest
    assert done
