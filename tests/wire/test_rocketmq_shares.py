"""A member's share of the queues that changes between its calls: what its commits tell, and what it keeps."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from patience import until
from wireproto.errors import Revoked
from wireproto.position import LogOffset
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.member import Share
from wireproto.rocketmq.messages import UpdateAndCreateTopicRequest

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
_numbers = itertools.count()


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"shares-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


def put(client: RocketClient, topic: str, count: int) -> None:
    with client.producer(topic) as out:
        for number in range(count):
            out.send(b"%d" % number)


def drained(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        batch = consumer.poll(0.3)
        found.extend(batch.values() if batch is not None else [])
        return len(found) >= count

    until(more)
    return found


def shared_out(client: RocketClient, topic: str, held: int) -> tuple[Any, str]:
    """A member that has handed out a record of each of two queues; its group."""
    group = f"g-{topic}"
    client.admin().create_topic(f"{topic}-two", partitions=2)
    with client.producer(f"{topic}-two") as out:
        for partition in range(2):
            out.send(b"%d" % partition, partition=partition)
    one = client.consumer(f"{topic}-two", group)
    assert sorted(drained(one, held)) == [b"0", b"1"]
    return one, group


def computed(member: Any, topic: str) -> int:
    """Queues of a topic in the share that was computed beside the member's owner, who has not looked yet; -1: there is none."""
    round_ = member._assignment._round
    return sum(name == topic for name, _ in round_.result().queues) if round_ is not None and round_.done else -1


def test_a_commit_of_all_tells_which_queues_fell_to_another_member_since(client: RocketClient, dial: Any, topic: str) -> None:
    one, group = shared_out(client, topic, 2)
    with one, dial().consumer(f"{topic}-two", group) as two:
        until(lambda: (two.poll(0.1), two.assignment)[1])
        until(lambda: computed(one, f"{topic}-two") == 1, "the broker has told nothing")
        with pytest.raises(Revoked) as caught:
            one.commit()
        assert {*caught.value.partitions} == {*two.assignment}
        assert "fell to another member" in str(caught.value)
        [ours] = one.assignment
        with pytest.raises(Revoked, match="is not this member's"):
            two.commit({ours: LogOffset(*ours, 1)})
        one.commit()
        assert client.admin().group_positions(group, f"{topic}-two").keys() == {*one.assignment}


def test_a_queue_that_was_another_member_s_for_a_while_is_known_for_lost(client: RocketClient, dial: Any, topic: str) -> None:
    """Though its owner did not look meanwhile: what it hands out and commits is what the group has not done."""
    one, group = shared_out(client, topic, 2)
    with one:
        with dial().consumer(f"{topic}-two", group) as two:
            until(lambda: (two.poll(0.1), two.assignment)[1])
            [theirs] = two.assignment
            two.commit({theirs: LogOffset(*theirs, 1)})
            until(lambda: one._assignment._round is not None and one._assignment._round.done)
        until(lambda: len(one._assignment._older) > 0)
        assert len(one.assignment) == 2, "as it saw last"
        with pytest.raises(Revoked) as caught:
            one.commit()
        assert caught.value.partitions == (theirs,)
        until(lambda: (one.poll(0.1), len(one.assignment) == 2)[1])
        assert {place.offset for place in client.admin().group_positions(group, f"{topic}-two").values()} == {1}
        assert not one._assignment._older


@pytest.mark.parametrize("how", ["commit", "seek"])
def test_a_queue_that_was_given_back_and_is_settled_by_position_is_no_loss(client: RocketClient, dial: Any, topic: str, how: str) -> None:
    """Its records were returned again, and committed where the program says, or the program has moved on from it itself."""
    one, group = shared_out(client, topic, 2)
    with one:
        with dial().consumer(f"{topic}-two", group) as two:
            until(lambda: (two.poll(0.1), two.assignment)[1])
            until(lambda: computed(one, f"{topic}-two") == 1, "the broker has told nothing")
            assert one.poll(0.0) is None
            [theirs] = two.assignment
            assert theirs not in one.assignment
        if how == "commit":
            places: dict[Any, Any] = {}

            def came() -> bool:
                batch = one.poll(0.1)
                places.update({} if batch is None else batch.next_positions)
                return theirs in places

            until(came)
            one.commit({theirs: places[theirs]})
        else:
            until(lambda: (one.poll(0.1), len(one.assignment) == 2)[1])
            one.seek({theirs: LogOffset(*theirs, 1)})
        one.commit()


def test_a_share_from_a_moment_without_its_broker_takes_no_queue_away(client: RocketClient, topic: str) -> None:
    """The name server knows it again when the owner looks: nobody else can have been given its queues."""
    put(client, topic, 3)
    with client.consumer(topic, f"g-{topic}") as consumer:
        drained(consumer, 3)
        sharing, ours = consumer._assignment, consumer.assignment
        sharing._shared(Share({}, frozenset(), frozenset({(topic, "dev"), (sharing.retry_topic, "dev")})))
        assert consumer.assignment == ours
        assert sharing.member.next_look <= time.monotonic() + 1.0
        consumer.commit()
        sharing._shared(Share({}, frozenset(), frozenset()))
        assert not consumer.assignment


def test_the_first_commits_of_a_group_all_stay(client: RocketClient, topic: str) -> None:
    """Of those that come at the same moment a broker acknowledges all and keeps one."""
    one, group = shared_out(client, topic, 2)
    with one:
        one.commit()
        assert set(client.admin().group_positions(group, f"{topic}-two")) == {(f"{topic}-two", 0), (f"{topic}-two", 1)}


def lowered(client: RocketClient, topic: str) -> None:
    """The topic has one queue of two, and the client knows."""
    request = UpdateAndCreateTopicRequest(
        topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6, topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0, order=False,
    )  # fmt: skip
    (address,) = client.cluster.drive(client.cluster.masters(client.deadline(10.0)), client.deadline(10.0))
    client.request(request, to=address)
    client.cluster.route(topic, client.deadline(10.0), fresh=True)


def test_who_loses_a_queue_that_is_not_to_be_read_is_not_told_of_another_member(client: RocketClient, dial: Any, topic: str) -> None:
    one, _ = shared_out(client, topic, 2)
    lost = f"{topic}-two"
    with one:
        lowered(client, lost)
        one._assignment.member.members_changed()
        until(lambda: (one.poll(0.1), len(one.assignment) == 1)[1])
        with pytest.raises(Revoked, match=r"two\[1\] is not to be read now, by its topic's route; the other positions are committed"):
            one.commit()
        with pytest.raises(Revoked, match=r"two\[1\] is not to be read now"):
            one.commit({(lost, 1): LogOffset(lost, 1, 1)})


def test_a_worker_that_lost_a_queue_is_told_why(client: RocketClient, dial: Any, topic: str) -> None:
    client.admin().create_topic(f"{topic}-w", partitions=2)
    with dial().producer(f"{topic}-w") as out:
        out.send(b"x", partition=1).position(10.0)
    with client.queue(f"{topic}-w", f"g-{topic}-w") as worker:
        message = worker.receive(10.0)
        lowered(client, f"{topic}-w")
        worker._assignment.member.members_changed()
        until(lambda: (worker.receive(0.1), len(worker._assignment.asked_for()) == 1)[1])
        for _ in range(2):  # said each time
            with pytest.raises(Revoked, match=r"w\[1\] is not to be read now, by its topic's route: the message comes again when it is"):
                message.ack()


def test_who_was_out_of_the_group_is_told_so(client: RocketClient, topic: str) -> None:
    put(client, topic, 3)
    with client.consumer(topic, f"g-{topic}", max_poll_interval=0.3) as consumer:
        drained(consumer, 3)
        until(lambda: consumer._assignment.member.left)
        with pytest.raises(Revoked, match="was given up, since nothing was polled for max_poll_interval"):
            consumer.commit()
