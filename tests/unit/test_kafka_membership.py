"""What a coordinator's refusals make of a Kafka membership, and what old formats cannot carry: sans-IO."""

from __future__ import annotations

import pytest

from wireproto._codec import Columns
from wireproto.errors import BrokerError, Malformed, ValueUnsupported
from wireproto.kafka import assignor, outgoing
from wireproto.kafka import messages as m
from wireproto.kafka.group import LEFT, STABLE, SYNCING, UNJOINED, GroupSettings, Membership
from wireproto.kafka.options import KafkaOptions

REBALANCING, ILLEGAL_GENERATION, UNKNOWN_MEMBER, DENIED, MEMBER_ID_REQUIRED = 27, 22, 25, 30, 79


def joined(leader: str = "m") -> Membership:
    made = Membership(GroupSettings("g", ("t", "u"), 10_000, 60_000, "static"))
    part = m.JoinGroupResponseMember(member_id="m", metadata=assignor.encode_subscription(("t", "u")))
    made.on_join(m.JoinGroupResponse(generation_id=4, protocol_name="range", leader=leader, member_id="m", members=(part,)))
    return made


def stable() -> Membership:
    made = joined()
    made.on_sync(m.SyncGroupResponse(assignment=assignor.encode_assignment([("t", 0)])))
    return made


def test_what_a_member_asks_for() -> None:
    made = Membership(GroupSettings("g", ("t", "u"), 10_000, 60_000, "static"))
    asked = made.join_request()
    assert (asked.group_id, asked.session_timeout_ms, asked.rebalance_timeout_ms) == ("g", 10_000, 60_000)
    assert (asked.member_id, asked.group_instance_id, asked.protocol_type) == ("", "static", "consumer")
    assert [one.name for one in asked.protocols] == list(assignor.ASSIGNORS)
    made.on_join(m.JoinGroupResponse(error_code=79, member_id="m"))
    assert made.state == UNJOINED
    assert made.join_request().member_id == "m", "as it was told"
    synced = joined().sync_request({"t": 1, "u": 1})
    assert (synced.group_id, synced.generation_id, synced.member_id, synced.group_instance_id) == ("g", 4, "m", "static")
    assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert [one.member_id for one in synced.assignments] == ["m"]
    assert not joined("other").sync_request({}).assignments, "only the leader hands out"
    assert joined("other").wanted_topics() == ("t", "u")
    beat = stable().heartbeat_request()
    assert (beat.group_id, beat.generation_id, beat.member_id, beat.group_instance_id) == ("g", 4, "m", "static")


def test_an_assignor_that_was_not_offered_is_refused() -> None:
    made = joined()
    made.protocol = "sticky"
    with pytest.raises(Malformed, match="the assignor 'sticky', which we did not offer"):
        made.sync_request({"t": 1})


@pytest.mark.parametrize("step", ["join", "sync", "commit"])
@pytest.mark.parametrize(
    ("code", "state", "member"), [(REBALANCING, UNJOINED, "m"), (ILLEGAL_GENERATION, UNJOINED, ""), (UNKNOWN_MEMBER, UNJOINED, "")]
)
def test_a_refusal_that_means_to_join_again(step: str, code: int, state: str, member: str) -> None:
    made = joined() if step != "commit" else stable()
    if step == "join":
        made.on_join(m.JoinGroupResponse(error_code=code))
    elif step == "sync":
        made.on_sync(m.SyncGroupResponse(error_code=code))
    else:
        assert made.refused_commit(code)
    assert (made.state, made.member) == (state, member)
    assert made.lost is (code != REBALANCING), "what was held is another's only where we are not known"
    assert made.generation == (4 if code == REBALANCING else -1)


def test_other_refusals_are_errors() -> None:
    for refuse in (
        lambda one: one.on_join(m.JoinGroupResponse(error_code=DENIED)),
        lambda one: one.on_sync(m.SyncGroupResponse(error_code=DENIED)),
    ):
        with pytest.raises(BrokerError) as refused:
            refuse(joined())
        assert refused.value.code == DENIED
    assert not stable().refused_commit(DENIED)


@pytest.mark.parametrize(
    ("code", "news", "state"),
    [(0, False, STABLE), (REBALANCING, True, UNJOINED), (ILLEGAL_GENERATION, True, UNJOINED), (UNKNOWN_MEMBER, True, UNJOINED)],
)
def test_what_a_heartbeat_brings(code: int, news: bool, state: str) -> None:
    made = stable()
    assert made.on_heartbeat(m.HeartbeatResponse(error_code=code), 4) is news
    assert made.state == state
    later = stable()
    assert later.on_heartbeat(m.HeartbeatResponse(error_code=code), 3) is False, "of a generation that is over"
    assert later.state == STABLE


def test_who_left_stays_out() -> None:
    made = stable()
    new, old = made.leave_request(3), made.leave_request(2)
    assert [(one.member_id, one.group_instance_id) for one in new.members] == [("m", "static")]
    assert (old.group_id, old.member_id, old.members) == ("g", "m", ())
    made.leave()
    made.rejoin()
    assert made.state == LEFT


def test_an_answer_that_comes_after_the_state_it_was_asked_in_changes_nothing() -> None:
    share = m.SyncGroupResponse(assignment=assignor.encode_assignment([("t", 0)]))
    again, gone = joined(), joined()
    again.rejoin()
    again.on_sync(share)
    assert (again.state, again.assignment) == (UNJOINED, frozenset())
    gone.leave()
    gone.on_sync(share)
    gone.on_join(m.JoinGroupResponse(generation_id=5, protocol_name="range", leader="n", member_id="m"))
    assert (gone.state, gone.generation, gone.assignment) == (LEFT, 4, frozenset())


def test_who_left_before_it_had_a_member_id_takes_it_to_leave_by() -> None:
    gone = Membership(GroupSettings("g", ("t",), 45_000, 300_000))
    gone.leave()
    gone.on_join(m.JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="m"))
    assert (gone.state, gone.generation, gone.member) == (LEFT, -1, "m")
    assert gone.leave_request(3).members[0].member_id == "m"


def test_a_member_that_syncs_holds_what_it_was_given() -> None:
    made = stable()
    assert made.assignment == {("t", 0)}
    assert made.state == STABLE
    assert joined().state == SYNCING


@pytest.mark.parametrize(
    ("message_format", "headers", "stamp", "text"),
    [
        (1, {"a": b"b"}, None, "format 1 have no headers"),
        (0, {"a": b"b"}, None, "format 0 have no headers"),
        (0, None, 5, "format 0 have no timestamps"),
        (1, None, -1, "before 1970"),
        (2, None, -1, "before 1970"),
    ],
)
def test_what_old_message_sets_cannot_carry(message_format: int, headers: dict[str, bytes] | None, stamp: int | None, text: str) -> None:
    options = KafkaOptions(message_format=message_format)
    with pytest.raises(ValueUnsupported, match=text):
        outgoing.check_record(options, 10, headers, stamp, "t")
    rows = Columns.from_rows([b"a", b"b"], headers=[None, headers] if headers else None, timestamps=[None, stamp] if stamp else None)
    with pytest.raises(ValueUnsupported, match=text):
        outgoing.check_columns(options, rows, "t")
    outgoing.check_record(options, 10, None, None, "t")


def test_the_largest_record_fits_to_the_byte() -> None:
    options = KafkaOptions(max_request_size=1000)
    outgoing.check_record(options, 1000 - outgoing.BATCH_OVERHEAD, None, None, "t")
    with pytest.raises(ValueUnsupported, match="larger than max_request_size"):
        outgoing.check_record(options, 1001 - outgoing.BATCH_OVERHEAD, None, None, "t")
