# Requests whose frame begins with their token, as ZooKeeper's: put together here, without a tuple of buffers in between.
#
#     [int32 length][int32 token][int32 word][body]
#
# May assume: the GIL. Must not: wait.

cdef Call start_numbered(Connection conn, int32_t word, bytes body, Mailbox mailbox, object timeout_at, object context):
    """As Connection.start, which see; there is room."""
    cdef object token = conn.next_number()
    cdef Call call
    while token in conn.calls:
        token = conn.next_number()
    call = new_call(conn, token, mailbox, context)
    if conn.failure is not None:
        raise conn.describe(conn.failure)
    try:
        queue_numbered(conn.out, token, word, body)
    except MemoryError:
        conn.fail(errors.Disconnected, "no memory to send")
        raise
    if conn.loop.tap is not None:
        conn.loop.tap.deliver((">", conn.peer, numbered_head(token, word) + body), 8 + len(body), None)
    conn.expect(call, timeout_at)
    return call


cdef int queue_numbered(Output out, int32_t token, int32_t word, bytes body) except -1:
    """[int32 length][int32 token][int32 word][body]"""
    cdef uint8_t head[12]
    cdef size_t n = len(body)
    if n > 0x7fffffff - 8:
        raise errors.ValueUnsupported(f"a message of {n + 8} bytes: a frame holds at most {0x7fffffff}")
    put_u32(head, <uint32_t>(n + 8))
    put_u32(head + 4, <uint32_t>token)
    put_u32(head + 8, <uint32_t>word)
    out.copy(head, 12)
    if n < COPY_BELOW:
        out.copy(<uint8_t *>PyBytes_AS_STRING(body), n)
    else:
        out.hold(body, <uint8_t *>PyBytes_AS_STRING(body), n)
    return 0


cdef bytes numbered_head(int32_t token, int32_t word):
    cdef uint8_t head[8]
    put_u32(head, <uint32_t>token)
    put_u32(head + 4, <uint32_t>word)
    return (<char *>head)[:8]
