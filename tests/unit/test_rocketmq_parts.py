"""RocketMQ without sockets: signatures, allocation, routes, bodies, what a record may be."""

from __future__ import annotations

import calendar
import json
from dataclasses import replace

import pytest

from wireproto.errors import Malformed, OptionError, UsageError, ValueUnsupported
from wireproto.rocketmq import acl, bodies, record
from wireproto.rocketmq.allocate import average
from wireproto.rocketmq.bodies import BrokerData, ClusterInfo, HeartbeatData, SubscriptionData, TopicList, TopicRouteData, java_hash
from wireproto.rocketmq.route import NameServers, Route, RouteCache


class TestAcl:
    """Vectors come from RocketMQ's own Java classes."""

    def test_hmac(self) -> None:
        assert acl.signature("secret", b"TestRocketMQ") == "aZDWbz18LoQNahzAsypdxyKKpEI="

    def test_fields_in_order_of_their_names_then_body(self) -> None:
        ext = {"topic": "TopicTest", "b": "2", "A": "1"}
        signed = acl.sign(ext, b"body", acl.Credentials("ak", "sk12345"))
        assert acl.signed_text(signed, b"body") == b"1ak2TopicTestbody"
        assert signed["Signature"] == "9UKNuyl3dI8WZYeVMzGS4FLM2QU="

    def test_the_key_query_flag_is_signed_for_5x_only(self) -> None:
        ext = {"_UNIQUE_KEY_QUERY": "true", "key": "k"}
        assert acl.signed_text(ext, b"", peer_version=407) == b"k"
        assert acl.signed_text(ext, b"", peer_version=503) == b"truek"
        assert acl.signed_text(ext, b"") == b"truek"

    def test_a_token_is_signed_and_a_secret_is_not_shown(self) -> None:
        who = acl.Credentials("ak", "top-secret", "tok-en")
        signed = acl.sign({}, b"", who)
        assert acl.signed_text(signed, b"") == b"aktok-en"
        assert "top-secret" not in repr(who) + repr(signed)
        assert "tok-en" not in repr(who)


class TestAllocation:
    @pytest.mark.parametrize(
        ("queues", "members", "shares"),
        [
            (8, 3, [3, 3, 2]),
            (4, 2, [2, 2]),
            (2, 4, [1, 1, 0, 0]),
            (5, 5, [1] * 5),
            (0, 2, [0, 0]),
            (7, 1, [7]),
        ],
    )
    def test_shares_are_consecutive_and_complete(self, queues: int, members: int, shares: list[int]) -> None:
        names = [f"m{number}" for number in range(members)]
        found = [list(average(names[::-1], name, range(queues))) for name in names]
        assert [len(share) for share in found] == shares
        assert [queue for share in found for queue in share] == list(range(queues))

    def test_one_who_is_not_a_member_gets_nothing(self) -> None:
        assert list(average(["a"], "b", range(4))) == []
        assert list(average([], "b", range(4))) == []


@pytest.mark.parametrize(("text", "code"), [("TagA", 2598919), ("标签", 857175), ("", 0), ("polygenelubricants", -(2**31))])
def test_java_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


def route_data(*brokers: tuple[str, int, int, int]) -> TopicRouteData:
    """name, read queues, write queues, perm."""
    return TopicRouteData.decode(
        json.dumps(
            {
                "queueDatas": [{"brokerName": n, "readQueueNums": r, "writeQueueNums": w, "perm": p} for n, r, w, p in brokers],
                "brokerDatas": [{"cluster": "c", "brokerName": n, "brokerAddrs": {"0": f"{n}:1", "1": f"{n}:2"}} for n, *_ in brokers],
            }
        ).encode()
    )


class TestRoute:
    def test_queues_are_numbered_over_brokers_in_order_of_their_names(self) -> None:
        route = Route.build("t", route_data(("b", 2, 2, 6), ("a", 1, 1, 6)))
        assert [(q.partition, q.broker, q.queue_id, q.address) for q in route.queues] == [
            (0, "a", 0, "a:1"),
            (1, "b", 0, "b:1"),
            (2, "b", 1, "b:1"),
        ]
        assert route.masters == ("a:1", "b:1")
        assert route.find("b", 1) is route.queues[2]
        assert route.find("b", 2) is None

    def test_an_order_topic_s_keys_go_by_its_list_whoever_is_there(self) -> None:
        """As Java's: of these brokers, in this order, and of so many queues each."""
        data = replace(route_data(("a", 2, 2, 6), ("c", 4, 4, 6)), order=(("c", 2), ("b", 1), ("a", 1)))
        route = Route.build("t", data)
        assert [route.queues[number].home for number in route.keyed] == [("c", 0), ("c", 1), ("b", 0), ("a", 0)]
        assert route.queues[route.homes["b", 0]].address is None, "it is waited for, as a broker that is down"
        back = Route.build("t", replace(route_data(("a", 2, 2, 6), ("b", 1, 1, 6), ("c", 4, 4, 6)), order=data.order), route)
        assert back.keyed == route.keyed

    @pytest.mark.parametrize(
        ("text", "order"),
        [("a:4;b:2", (("a", 4), ("b", 2))), ("a:4;", (("a", 4),)), ("", ()), (None, ()), ("a", ()), ("a:x", ()), ("a:4;b:-1", ())],
    )
    def test_the_list_of_an_order_topic_is_read(self, text: str | None, order: tuple[object, ...]) -> None:
        """One that does not read is none: Java's producers fail then."""
        assert TopicRouteData.decode(json.dumps({"orderTopicConf": text}).encode()).order == order

    @pytest.mark.parametrize("mapping", [None, {}, {"a": {"topic": "t", "totalQueues": 8}}])
    def test_a_static_topic_is_refused(self, mapping: object) -> None:
        """Its queues have numbers and offsets of their own, which brokers turn into those of their stores."""
        queues = [{"brokerName": "a", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}]
        data = TopicRouteData.decode(json.dumps({"queueDatas": queues, "topicQueueMappingByBroker": mapping}).encode())
        if mapping:
            with pytest.raises(UsageError, match="t is a static topic"):
                Route.build("t", data)
        else:
            assert len(Route.build("t", data).queues) == 8

    def test_permissions_and_unequal_numbers_of_queues(self) -> None:
        route = Route.build("t", route_data(("a", 1, 3, 6), ("b", 2, 2, 4), ("c", 2, 2, 2)))
        assert [q.partition for q in route.readable()] == [0, 3, 4]
        assert [q.partition for q in route.writable()] == [0, 1, 2, 5, 6]

    def test_numbers_stay_when_brokers_come_and_go(self) -> None:
        first = Route.build("t", route_data(("b", 2, 2, 6), ("c", 2, 2, 6)))
        second = Route.build("t", route_data(("a", 2, 2, 6), ("c", 2, 2, 6)), first)
        assert [(q.broker, q.queue_id) for q in second.queues] == [("b", 0), ("b", 1), ("c", 0), ("c", 1), ("a", 0), ("a", 1)]
        assert [q.partition for q in second.writable()] == [2, 3, 4, 5]
        third = Route.build("t", route_data(("a", 2, 2, 6), ("b", 2, 2, 6)), second)
        assert [q.partition for q in third.writable()] == [0, 1, 4, 5]

    def test_queues_added_to_a_broker_in_the_middle_do_not_shift_others(self) -> None:
        first = Route.build("t", route_data(("a", 2, 2, 6), ("b", 2, 2, 6)))
        grown = Route.build("t", route_data(("a", 4, 4, 6), ("b", 4, 4, 6)), first)
        places = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("a", 3), ("b", 2), ("b", 3)]
        assert [(q.broker, q.queue_id) for q in grown.queues] == places
        assert [q.partition for q in grown.queues] == list(range(8))
        assert grown.brokers == {"a": 4, "b": 4}
        assert Route.build("t", route_data(("a", 2, 2, 6), ("b", 3, 3, 6)), grown).writable() == (*grown.queues[:4], grown.queues[6])

    def test_keys_go_where_a_client_that_never_saw_fewer_queues_sends_them(self) -> None:
        now = route_data(("a", 4, 4, 6), ("b", 4, 4, 6), ("c", 1, 1, 6))
        fresh = Route.build("t", now)
        for before in (route_data(("a", 2, 2, 6), ("b", 2, 2, 6)), route_data(("c", 1, 1, 6), ("b", 3, 3, 6))):
            grown = Route.build("t", now, Route.build("t", before))
            for number in range(50):
                ours, theirs = (route.queues[route.by_hash(number)] for route in (grown, fresh))
                assert (ours.broker, ours.queue_id) == (theirs.broker, theirs.queue_id)

    def test_key_goes_where_java_hash_says(self) -> None:
        route = Route.build("t", route_data(("a", 4, 4, 6)))
        assert route.by_key(b"TagA") == 2598919 % 4
        assert route.by_key(b"polygenelubricants") == 0
        assert route.by_key("标签".encode()) == 857175 % 4

    def test_a_broker_without_master_is_not_written_to(self) -> None:
        data = TopicRouteData.decode(
            b'{"queueDatas":[{"brokerName":"a","readQueueNums":1,"writeQueueNums":1,"perm":6}],'
            b'"brokerDatas":[{"brokerName":"a","brokerAddrs":{1:"s:1"},"cluster":"c"}]}'
        )
        assert Route.build("t", data).writable() == ()

    def test_cache_ages_and_keeps_numbers(self) -> None:
        cache = RouteCache(max_age=30)
        assert cache.fresh("t", 0.0) is None
        route = cache.learn("t", route_data(("b", 1, 1, 6)), 100.0)
        assert cache.fresh("t", 130.0) is route
        assert cache.fresh("t", 130.1) is None
        cache.stale("t")
        assert cache.fresh("t", 100.0) is None
        assert cache.known("t") is route
        assert cache.learn("t", route_data(("a", 1, 1, 6), ("b", 1, 1, 6)), 101.0).homes["b", 0] == 0
        cache.forget("t")
        assert cache.known("t") is None

    def test_name_servers_are_asked_in_turn(self) -> None:
        servers = NameServers(["a:1", "b:1", "a:1", "c:1"])
        assert list(servers.order()) == ["a:1", "b:1", "c:1"]
        servers.worked("b:1")
        assert list(servers.order()) == ["b:1", "c:1", "a:1"]
        with pytest.raises(OptionError):
            NameServers([])


class TestBodies:
    def test_cluster_info_with_bare_broker_ids(self) -> None:
        info = ClusterInfo.decode(
            b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:20911",1:"h:2"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
        )
        assert info.brokers["broker-a"].master == "127.0.0.1:20911"
        assert info.clusters == {"DefaultCluster": ("broker-a",)}

    def test_missing_parts_are_empty(self) -> None:
        assert TopicList.decode(b"{}").topics == ()
        assert ClusterInfo.decode(b'{"brokerAddrTable":null}').brokers == {}
        assert BrokerData.of({"brokerName": "x"}, "p").master is None

    @pytest.mark.parametrize(
        "body",
        [
            b"[]",
            b'{"queueDatas":{}}',
            b'{"queueDatas":[1]}',
            b'{"queueDatas":[{"readQueueNums":1}]}',
            b'{"queueDatas":[{"brokerName":"a","readQueueNums":"4"}]}',
            b'{"queueDatas":[{"brokerName":"a","readQueueNums":9999999999}]}',
            b'{"queueDatas":[{"brokerName":"a","readQueueNums":-1}]}',
            b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"h:1"}}]}',
            b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{{"x":1}:"h:1"}}]}',
        ],
    )
    def test_wrong_types_are_malformed(self, body: bytes) -> None:
        with pytest.raises(Malformed):
            TopicRouteData.decode(body)

    @pytest.mark.parametrize(
        "body",
        [
            b'{"brokerAddrTable":{{"a":1}:{"brokerName":"x"}}}',
            b'{"brokerAddrTable":{"x":{"brokerName":"x"},{"a":1}:{"brokerName":"x"}}}',
            b'{"clusterAddrTable":{{"a":1}:["x"]}}',
            b'{"brokerAddrTable":{"x":{"brokerName":{"a":1}}}}',
        ],
    )
    def test_a_broker_or_a_cluster_is_called_by_a_text(self, body: bytes) -> None:
        with pytest.raises(Malformed):
            ClusterInfo.decode(body)

    def test_heartbeat(self) -> None:
        sent = json.loads(HeartbeatData("c1", ("p",), {"g": (SubscriptionData("t", "A || 标签", 7),)}).encode())
        assert sent["clientID"] == "c1"
        assert sent["producerDataSet"] == [{"groupName": "p"}]
        (consumer,) = sent["consumerDataSet"]
        assert consumer["groupName"] == "g"
        (wanted,) = consumer["subscriptionDataSet"]
        assert wanted["codeSet"] == [java_hash("A"), java_hash("标签")]
        assert wanted["tagsSet"] == ["A", "标签"]

    def test_java_hash_of_bodies_is_the_route_one(self) -> None:
        assert bodies.java_hash is java_hash


class TestRecord:
    def test_properties(self) -> None:
        text = record.properties(b"k1", {"TAGS": b"A", "h": "é".encode()}, "ID")
        assert text == "KEYS\x01k1\x02TAGS\x01A\x02h\x01é\x02UNIQ_KEY\x01ID\x02WAIT\x01true\x02"

    @pytest.mark.parametrize("key", [b"", b"a b", b"a\tb", "a\u3000b".encode(), b"a\x01", b"a\x02", b"\xff"])
    def test_keys_that_would_not_come_back(self, key: bytes) -> None:
        with pytest.raises(ValueUnsupported):
            record.properties(key, None, "ID")

    @pytest.mark.parametrize(
        "headers",
        [
            {"KEYS": b"a"},
            {"UNIQ_KEY": b"a"},
            {"DELAY": b"1"},
            [("a", b"1"), ("a", b"2")],
            {"a": None},
            {"a": b""},
            {"": b"1"},
            {"a\x01": b"1"},
            {"a": b"\x02"},
            {"a": b"\xff"},
            {"\ud800": b"1"},
            {"a": b"x" * 40_000},
            {"a": "text"},
        ],
    )
    def test_headers_that_would_not_come_back(self, headers: object) -> None:
        with pytest.raises(ValueUnsupported):
            record.properties(None, headers, "ID")  # type: ignore[arg-type]

    @pytest.mark.parametrize("topic", ["", "a b", "a/b", "x" * 128, "日"])
    def test_topic_names(self, topic: str) -> None:
        with pytest.raises(ValueUnsupported):
            record.check_topic(topic)
        record.check_topic("%RETRY%a_b-1")

    def test_unique_ids_differ_and_have_the_known_form(self) -> None:
        ids = record.unique_ids(bytes([127, 0, 0, 1]), 0x1234, 0xCAFEBABE, 1_000)
        assert ids.next(1_005) == "7F0000011234CAFEBABE000000050001"
        assert len({ids.next(1_005) for _ in range(1000)}) == 1000

    @pytest.mark.parametrize(
        ("now", "begin", "end"),
        [
            ((2026, 11, 24, 13, 0, 0), (2026, 11, 1, 0, 0, 0), (2026, 12, 1, 0, 0, 0)),
            ((2026, 12, 31, 23, 59, 59), (2026, 12, 1, 0, 0, 0), (2027, 1, 1, 0, 0, 0)),
            ((2028, 2, 1, 0, 0, 0), (2028, 2, 1, 0, 0, 0), (2028, 3, 1, 0, 0, 0)),
        ],
    )
    def test_unique_ids_count_from_the_start_of_their_month(
        self, now: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...]
    ) -> None:
        now_ms = calendar.timegm(now) * 1000 + 7
        ids, over = record.ids_of_month(now_ms)
        assert int(ids.next(now_ms)[20:28], 16) == now_ms - calendar.timegm(begin) * 1000
        assert over == calendar.timegm(end) * 1000
