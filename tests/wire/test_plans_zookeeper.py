"""ZooKeeper's records by plan, judged by kazoo's serialization."""

import random

import kazoo.protocol.serialization as kazoo
import pytest
from kazoo import security
from kazoo.protocol import states

from wireproto._codec import Slice
from wireproto.errors import Malformed, ProtocolError, Truncated, ValueUnsupported
from wireproto.zookeeper import messages as zk

STAT = zk.Stat(
    czxid=1 << 40, mzxid=2, ctime=3, mtime=4, version=5, cversion=6, aversion=-7, ephemeral_owner=-8, data_length=9, num_children=10
)


def test_requests_are_kazoos_bytes():
    path = "/fl ights/ünï"
    acl = security.OPEN_ACL_UNSAFE
    ours = [zk.ACL(perms=a.perms, id=zk.Id(scheme=a.id.scheme, id=a.id.id)) for a in acl]
    cases = [
        (kazoo.GetData(path, None), zk.GetDataRequest(path=path, watch=False)),
        (kazoo.Exists(path, lambda event: None), zk.ExistsRequest(path=path, watch=True)),
        (kazoo.Create(path, b"data", acl, 3), zk.CreateRequest(path=path, data=b"data", acl=ours, flags=3)),
        (kazoo.Create(path, None, acl, 0), zk.CreateRequest(path=path, data=None, acl=ours, flags=0)),
        (kazoo.SetData(path, b"", -1), zk.SetDataRequest(path=path, data=b"", version=-1)),
        (kazoo.Delete(path, 7), zk.DeleteRequest(path=path, version=7)),
        (kazoo.SetACL(path, acl, 2), zk.SetACLRequest(path=path, acl=ours, version=2)),
        (kazoo.GetChildren2(path, None), zk.GetChildren2Request(path=path, watch=False)),
        (kazoo.Auth(0, "digest", "u:p"), zk.AuthPacket(type=0, scheme="digest", auth=b"u:p")),
    ]
    for theirs, message in cases:
        assert message.encode() == bytes(theirs.serialize()), theirs
        assert theirs.type == message.OP_CODE


def test_replies_read_as_kazoo_reads_them():
    reply = zk.GetDataResponse(data=b"abc", stat=STAT).encode()
    data, stat = kazoo.GetData.deserialize(reply, 0)
    assert data == b"abc"
    assert stat == states.ZnodeStat(1 << 40, 2, 3, 4, 5, 6, -7, -8, 9, 10, 0)
    again = zk.GetDataResponse.decode(b"header" + reply, start=6)
    assert again == zk.GetDataResponse(data=b"abc", stat=STAT)
    children = zk.GetChildrenResponse(children=["a", "ü"]).encode()
    assert kazoo.GetChildren.deserialize(children, 0) == ["a", "ü"]
    assert kazoo.ReplyHeader.deserialize(zk.ReplyHeader(xid=-1, zxid=1 << 33, err=-101).encode(), 0)[0] == (-1, 1 << 33, -101)


def test_null_and_empty_stay_apart():
    for data in (None, b"", b"x"):
        got = zk.GetDataResponse.decode(zk.GetDataResponse(data=data, stat=STAT).encode()).data
        assert got == data
        assert (got is None) == (data is None)


def test_null_texts_and_vectors_are_read_but_not_sent():
    null = b"\xff\xff\xff\xff"
    assert zk.GetChildrenResponse.decode(null).children is None
    assert zk.GetChildrenResponse.decode(b"\0\0\0\1" + null).children == (None,)
    with pytest.raises(ValueUnsupported, match="null"):
        zk.GetDataRequest(path=None).encode()


def test_supplementary_characters_as_java_writes_them():
    """Java's jute writes an emoji as two surrogates of three bytes each: the character that they stand for; a lone one is kept."""
    assert zk.GetDataRequest.decode(b"\0\0\0\6\xed\xa0\xbd\xed\xb8\x80\0").path == "\U0001f600"
    lone = b"\0\0\0\3\xed\xa0\xbd\0"
    request = zk.GetDataRequest.decode(lone)
    assert request.path == "\ud83d"
    assert request.encode() == lone


def test_every_cut_and_mutations():
    rng = random.Random(2)
    data = zk.CreateRequest(path="/a", data=b"xyz", acl=[zk.ACL(perms=31, id=zk.Id(scheme="world", id="anyone"))], flags=0).encode()
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            zk.CreateRequest.decode(data[:cut])
    with pytest.raises(Malformed, match="left over"):
        zk.CreateRequest.decode(data + b"\0")
    refused = 0
    for _ in range(5000):
        mutant = bytearray(data)
        mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        try:
            zk.CreateRequest.decode(mutant)
        except ProtocolError:
            refused += 1
    assert 500 < refused < 5000


def test_frames_of_any_buffer_type_and_slices_that_keep_them():
    data = zk.GetDataResponse(data=b"abc", stat=STAT).encode()
    for frame in (data, bytearray(data), memoryview(data), Slice(data)):
        assert zk.GetDataResponse.decode(frame).stat == STAT
