"""Pulsar's transactions on the embedded broker: what holds on a real broker holds here, by the same tests and the official client's
readers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pulsar_embedded
import wireproto
from integration import test_pulsar_handed_over as handed
from integration import test_pulsar_transaction_acks as acks
from integration import test_pulsar_transactional as real
from integration import test_pulsar_transactional_aio as aio
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut
from wireproto.pulsar import codes

pytestmark = pytest.mark.broker("dev-pulsar")
broker = pulsar_embedded.broker
client, judge, topic, source, raw = acks.client, acks.judge, acks.topic, acks.source, acks.raw


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    "check",
    [
        real.test_every_transaction_is_seen_as_a_whole,
        real.test_an_exception_rolls_all_of_it_back,
        real.test_one_that_is_rolled_back_at_once_leaves_nothing_to_the_next_one,
        real.test_nothing_is_sent_outside_of_a_transaction,
        real.test_threads_may_send_in_one_transaction,
        real.test_two_of_one_name_are_two,
        real.test_what_a_killed_program_left_open_is_rolled_back_when_its_time_is_over,
        real.test_a_transaction_that_took_too_long_is_told_and_the_next_one_works,
        real.test_one_that_an_operator_aborts_is_told_and_the_next_one_works,
        real.test_a_partition_that_joins_too_late_has_it_rolled_back,
        real.test_a_topic_that_is_deleted_before_the_commit_takes_its_part_with_it,
        acks.test_what_is_in_a_transaction_is_handed_to_nobody,
        acks.test_what_is_rolled_back_comes_again_once,
        acks.test_a_message_is_acknowledged_once,
        acks.test_what_another_transaction_has_acknowledged_has_ours_rolled_back,
        acks.test_positions_move_with_what_was_made_of_them,
        acks.test_places_within_a_batch_are_committed,
        acks.test_a_member_whose_partition_another_took_commits_nothing,
        acks.test_what_a_member_before_has_committed_meanwhile_is_not_committed_over,
        acks.test_no_ack_leaves_before_its_group_is_registered_or_behind_the_end,
        handed.test_another_client_commits_it,
        handed.test_another_client_rolls_it_back,
        handed.test_many_are_ended_together,
        handed.test_one_that_took_too_long_is_told,
        handed.test_which_can_still_be_committed_is_told,
        aio.test_every_transaction_is_seen_as_a_whole,
        aio.test_a_message_is_done_with_when_its_transaction_commits,
        aio.test_whenever_a_transaction_is_cancelled_it_is_whole_or_not_there,
    ],
)
def test_it_holds_as_on_real_brokers(check: Callable[..., None], request: pytest.FixtureRequest) -> None:
    check(**{name: request.getfixturevalue(name) for name in inspect.signature(check).parameters})


@pytest.mark.parametrize("mode", ["shared", "key-shared"])
@pytest.mark.parametrize("batching", [True, False])
def test_a_message_is_done_with_what_was_made_of_it(client: Any, judge: Any, source: str, topic: str, mode: Any, batching: bool) -> None:
    acks.test_a_message_is_done_with_what_was_made_of_it(client, judge, source, topic, mode, batching)


def test_they_can_be_switched_off() -> None:
    with DevBroker(["pulsar"]) as dev:
        dev.call("pulsar", "configure", transactions=False)
        with wireproto.connect(dev.url("pulsar")) as client, pytest.raises(codes.NotAllowedError, match="transactionCoordinatorEnabled"):
            client.transactions("work")


def test_what_was_rolled_back_stays_hidden_in_the_broker_s_next_life(tmp_path: Any) -> None:
    """One that is open when the broker stops is rolled back."""
    with DevBroker(["pulsar"], data_dir=tmp_path) as dev:
        with wireproto.connect(dev.url("pulsar")) as client:
            client.admin().create_topic("kept", partitions=0)
            with client.transactions("work", linger=0.0) as work:
                with work.begin() as turn:
                    turn.send(b"committed", topic="kept")
                turn = work.begin()
                turn.send(b"rolled back", topic="kept")
                turn.abort()
        other = wireproto.connect(dev.url("pulsar"))
        work = other.transactions("other", linger=0.0)
        work.begin().send(b"open", topic="kept")
        work.topics.flush()
    with pytest.raises(TimedOut):
        other.close(0.5)
    with DevBroker(["pulsar"], data_dir=tmp_path) as dev, wireproto.connect(dev.url("pulsar")) as client:
        with client.producer("kept") as out:
            out.send(b"behind")
        with client.reader("kept", stop=wireproto.LATEST) as reader:
            assert [value for batch in reader for value in batch.values()] == [b"committed", b"behind"]
