# The one rule of frames, for the codec's Framer and the engine's loop.
#
#     frame   [int32 length, big endian][length bytes]       the same for all four protocols
#
# A length is negative or above the cap: refused, before anything is allocated for it. Touches no Python.

from libc.stdint cimport int32_t, int64_t, uint8_t

from wireproto._codec_parts.endian cimport get_i32

cdef enum FrameState:
    FRAME_BAD = -1       # `length` is what was announced
    FRAME_PARTIAL = 0    # `length` is what was announced, -1 while that is not known
    FRAME_WHOLE = 1      # `length` bytes follow the four


cdef inline int frame_state(const uint8_t *p, Py_ssize_t have, int64_t cap, int64_t *length) noexcept nogil:
    """What stands at `p`, of which `have` bytes are there."""
    if have < 4:
        length[0] = -1
        return FRAME_PARTIAL
    length[0] = get_i32(p)
    if length[0] < 0 or length[0] > cap:
        return FRAME_BAD
    return FRAME_WHOLE if have - 4 >= length[0] else FRAME_PARTIAL
