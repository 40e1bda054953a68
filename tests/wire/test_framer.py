"""The framer: any pieces in, whole frames out, nothing allocated by an announced length."""

import random
import struct

import pytest

from wireproto._codec import Framer
from wireproto.errors import FrameTooLarge

FRAMES = [b"", b"a", bytes(range(256)), b"x" * 70_000, b"", b"end"]
STREAM = b"".join(struct.pack(">i", len(frame)) + frame for frame in FRAMES)


def frames_of(pieces, cap=1 << 20):
    framer = Framer(cap)
    out = []
    for piece in pieces:
        framer.feed(piece)
        out.extend(framer)
    return out, framer


def test_whole():
    out, framer = frames_of([STREAM])
    assert out == FRAMES
    assert framer.pending == 0


def test_byte_by_byte():
    small = STREAM[: 4 + 5 + 260] + STREAM[-11:]
    assert frames_of(small[i : i + 1] for i in range(len(small)))[0] == [b"", b"a", bytes(range(256)), b"", b"end"]


def test_cut_at_each_point():
    head = STREAM[:300]
    for cut in range(len(head)):
        assert frames_of([head[:cut], head[cut:]])[0] == FRAMES[:3]


def test_random_pieces_of_any_buffer_type():
    rng = random.Random(3)
    for kind in (bytes, bytearray, memoryview):
        pieces, at = [], 0
        while at < len(STREAM):
            size = rng.choice([1, 3, 4, 5, 1000, 40_000])
            pieces.append(kind(STREAM[at : at + size]))
            at += size
        assert frames_of(pieces)[0] == FRAMES


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_bad_length_is_refused_with_its_place_and_stays_refused(length):
    framer = Framer(100)
    framer.feed(struct.pack(">i", 3) + b"abc" + struct.pack(">i", length))
    assert framer.next() == b"abc"
    for _ in range(2):
        with pytest.raises(FrameTooLarge, match=str(length)) as caught:
            framer.next()
        assert caught.value.offset == 7


def test_cap_itself_is_allowed():
    framer = Framer(3)
    framer.feed(b"\0\0\0\3abc")
    assert framer.next() == b"abc"
    assert framer.next() is None
