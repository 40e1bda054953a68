"""Kafka's 619 message classes are there when asked for, and cost nothing before."""

import copy
import pickle
import subprocess
import sys

import pytest

from wireproto.kafka import messages


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_a_client_imports_only_the_messages_that_it_uses():
    show = "print(sorted(name.rpartition('.')[2] for name in sys.modules if name.startswith('wireproto.kafka.messages.')))"
    assert python("import sys, wireproto.kafka; " + show) == "[]"
    assert python("import sys, wireproto.kafka.messages; " + show) == "['_index']"
    assert python("import sys; from wireproto.kafka.messages import HeartbeatRequest; " + show) == "['_base', '_index', 'heartbeat']"
    loaded = python("import sys, wireproto.kafka.client; " + show)
    assert "'metadata'" in loaded
    assert loaded.count(",") < 12, loaded
    for stranger in ("fetch", "produce", "common", "share_fetch"):
        assert f"'{stranger}'" not in loaded


def test_decoding_by_name_imports_one_file():
    code = "import sys; from wireproto import wire; wire.decode('kafka', 'HeartbeatResponse', 0, bytes(2)); "
    show = "print(sorted(name.rpartition('.')[2] for name in sys.modules if name.startswith('wireproto.kafka.messages.')))"
    assert python(code + show) == "['_base', '_index', 'heartbeat']"


def test_every_name_leads_to_its_class():
    assert len(messages.__all__) == len(set(messages.__all__)) > 600
    assert set(messages.__all__) <= set(dir(messages))
    for name in messages.__all__:
        cls = getattr(messages, name)
        assert cls.__name__ == name == cls.NAME
        assert cls.__module__.startswith("wireproto.kafka.messages.")
        assert getattr(messages, name) is cls
    with pytest.raises(AttributeError, match="no attribute 'NoSuchRequest'"):
        messages.NoSuchRequest  # noqa: B018
    with pytest.raises(ImportError):
        python_import("NoSuchRequest")


def python_import(name: str) -> None:
    exec(f"from wireproto.kafka.messages import {name}")


def test_messages_are_pickled_and_copied_across_processes():
    made = messages.MetadataRequest(topics=(messages.MetadataRequestTopic(name="t"),))
    frozen = messages.MetadataRequest.decode(made.encode(12), 12)
    for message in (made, frozen):
        assert pickle.loads(pickle.dumps(message)) == message
        assert copy.deepcopy(message) == message
    there = "import pickle; m = pickle.loads(bytes.fromhex(%r)); print(m.encode(12).hex())"
    assert python(there % pickle.dumps(frozen).hex()) == made.encode(12).hex()


def test_structs_of_other_files_are_found():
    """VoteResponse's nodes are described in common.wire."""
    vote = messages.VoteResponse(node_endpoints=(messages.NodeEndpoint(node_id=1, host="h", port=9),))
    assert messages.VoteResponse.decode(vote.encode(2), 2) == vote
    code = "from wireproto.kafka.messages import VoteResponse as V; print(V.decode(bytes.fromhex(%r), 2).node_endpoints[0].host)"
    assert python(code % vote.encode(2).hex()) == "h"


def test_a_users_subclass_is_coded_as_its_parent():
    class Mine(messages.HeartbeatRequest):
        __slots__ = ()

    assert Mine(group_id="g").encode(0) == messages.HeartbeatRequest(group_id="g").encode(0)


def test_threads_may_be_the_first_to_use_messages_together() -> None:
    """Plans are imported at first use; who comes in the middle of that waits for it."""
    code = """
import sys, threading
from wireproto.rocketmq.messages import GetBrokerClusterInfoRequest, GetRouteInfoByTopicRequest, HeartBeatRequest
sys.setswitchinterval(1e-6)
start, failed = threading.Barrier(12), []
def use(kind):
    start.wait()
    try:
        kind()
    except BaseException as why:
        failed.append(repr(why))
kinds = [GetBrokerClusterInfoRequest, GetRouteInfoByTopicRequest, HeartBeatRequest] * 4
threads = [threading.Thread(target=use, args=(kind,)) for kind in kinds]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("; ".join(failed) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
