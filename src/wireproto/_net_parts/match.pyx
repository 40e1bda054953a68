# Which request or channel a frame belongs to, from its first bytes.
#
#     kafka      [int32 correlation id]…                                                     reply
#     zookeeper  [int32 xid][int64 zxid][int32 err]…   -1 watch event, -2 ping's reply (SERVICE), others (-4: auth) replies
#     rocketmq   [uint8 type][uint24 header length][header]…   flag bit 0: reply to `opaque`; else a request of the broker
#     lines      any bytes but a line feed     reply to the oldest request: their tokens are 1, 2, 3 … (`next_token`)
#     pulsar     [uint32 size][BaseCommand]…    request_id: reply; producer_id or consumer_id: their channel; PING is answered here
#
# May assume nothing of the bytes: every read has an end. Must not: touch a Python object.

cdef enum:
    KAFKA = 0
    ZOOKEEPER = 1
    ROCKETMQ = 2
    PULSAR = 3
    LINES = 4

FRAMINGS = {"kafka": KAFKA, "zookeeper": ZOOKEEPER, "rocketmq": ROCKETMQ, "pulsar": PULSAR, "lines": LINES}

cdef enum:
    REPLY = 0
    PUSH = 1
    DROP = 2
    PONG = 3
    UNREADABLE = 4

cdef enum:
    WATCHES_CHANNEL = -1
    REQUESTS_CHANNEL = -2
    SERVICE_CHANNEL = -3

WATCHES = WATCHES_CHANNEL
REQUESTS = REQUESTS_CHANNEL
SERVICE = SERVICE_CHANNEL


def consumer_channel(uint32_t consumer_id):
    return <int64_t>consumer_id * 2


def producer_channel(uint32_t producer_id):
    return <int64_t>producer_id * 2 + 1


cdef const char *PONG_BYTES = b"\x00\x00\x00\x09\x00\x00\x00\x05\x08\x13\x9a\x01\x00"     # BaseCommand {type: PONG, pong: {}} as a frame


cdef int match(int framing, const uint8_t *p, size_t n, int64_t *number) noexcept nogil:
    """What the frame p[:n] is; `number` becomes its token or channel."""
    if framing == PULSAR:
        return match_pulsar(p, n, number)
    if framing == ROCKETMQ:
        return match_rocketmq(p, n, number)
    if framing == LINES:
        return REPLY
    if n < 4:
        return UNREADABLE
    number[0] = get_i32(p)
    if framing == ZOOKEEPER:
        if number[0] == -2:
            number[0] = SERVICE_CHANNEL
            return PUSH if n >= 16 else DROP
        if number[0] == -1:
            return PUSH
    return REPLY


# ---- Pulsar -------------------------------------------------------------------------------------------------------------------
#
#     BaseCommand    1 type (enum); field number `type` holds the command itself
#     where the command keeps what matters: request_id is field 1 but for those listed; producer_id and consumer_id are field 1

cdef int pulsar_reply_field(uint64_t type) noexcept nogil:
    """Field number of request_id in a command that is a reply, or 0."""
    if type in (13, 14, 17, 26, 33, 35, 40, 51, 53, 55, 57, 59, 61, 63, 65, 74):
        return 1           # SUCCESS ERROR PRODUCER_SUCCESS CONSUMER_STATS, TOPICS_OF_NAMESPACE, GET_SCHEMA, GET_OR_CREATE_SCHEMA, txn …_RESPONSE
    if type == 22 or type == 30:
        return 2           # PARTITIONED_METADATA_RESPONSE, GET_LAST_MESSAGE_ID_RESPONSE
    if type == 24:
        return 4           # LOOKUP_RESPONSE
    if type == 38:
        return 6           # ACK_RESPONSE
    return 0


cdef int tagged_field(const uint8_t *p, const uint8_t *end, uint64_t wanted, uint64_t *number, const uint8_t **inner, size_t *size) noexcept nogil:
    """Find a field of a protobuf message: 1 a varint (in number), 2 a block (inner, size), 0 not there, -1 unreadable. The last one wins."""
    cdef uint64_t key = 0, value = 0
    cdef int found = 0
    while p < end:
        if read_uvarint64(&p, end, &key) <= 0:
            return -1
        if key & 7 == 0:
            if read_uvarint64(&p, end, &value) <= 0:
                return -1
            if key >> 3 == wanted:
                number[0] = value
                found = 1
        elif key & 7 == 2:
            if read_uvarint64(&p, end, &value) <= 0 or value > <uint64_t>(end - p):
                return -1
            if key >> 3 == wanted:
                inner[0] = p
                size[0] = <size_t>value
                found = 2
            p += value
        elif key & 7 == 1 or key & 7 == 5:
            value = 8 if key & 7 == 1 else 4
            if value > <uint64_t>(end - p):
                return -1
            p += value
        else:
            return -1
    return found


cdef int match_pulsar(const uint8_t *p, size_t n, int64_t *number) noexcept nogil:
    cdef uint64_t type = 0, value = 0, whose = 0
    cdef const uint8_t *inner = NULL
    cdef size_t size = 0
    cdef int field
    if n < 4 or get_u32(p) > n - 4:
        return UNREADABLE
    n = get_u32(p)
    p += 4
    if tagged_field(p, p + n, 1, &type, &inner, &size) != 1:
        return UNREADABLE
    if type == 18:
        return PONG
    if type == 19:
        return DROP
    number[0] = SERVICE_CHANNEL
    field = pulsar_reply_field(type)
    if not field and type not in (7, 8, 9, 15, 16, 27, 31, 68):
        return PUSH
    inner = NULL
    if tagged_field(p, p + n, type, &value, &inner, &size) != 2:
        return UNREADABLE
    if tagged_field(inner, inner + size, field if field else 1, &value, &p, &n) != 1:
        return PUSH if field else UNREADABLE         # an ACK_RESPONSE to an ack without request_id
    if field:
        number[0] = <int64_t>value
        return REPLY
    number[0] = <int64_t>(value * 2)
    if type == 68 and tagged_field(inner, inner + size, 2, &whose, &p, &n) != 1:
        return UNREADABLE
    if type == 7 or type == 8 or type == 15 or (type == 68 and whose == 0):     # SEND_RECEIPT, SEND_ERROR, CLOSE_PRODUCER, TOPIC_MIGRATED
        number[0] += 1
    return PUSH


# ---- RocketMQ -----------------------------------------------------------------------------------------------------------------
#
#     [uint8 type: 0 JSON, 1 binary][uint24 header length][header][body]
#     binary header   int16 code, uint8 language, int16 version, int32 opaque, int32 flag, …
#     JSON header     {"code":…,"flag":1,"opaque":7,…}: the two names at depth 1, in any order

cdef int match_rocketmq(const uint8_t *p, size_t n, int64_t *number) noexcept nogil:
    cdef uint32_t word, size
    cdef int64_t flag = 0
    if n < 4:
        return UNREADABLE
    word = get_u32(p)
    size = word & 0xffffff
    p += 4
    if size > n - 4:
        return UNREADABLE
    if word >> 24 == 1:
        if size < 13:
            return UNREADABLE
        number[0] = get_i32(p + 5)
        flag = get_i32(p + 9)
    elif word >> 24 == 0:
        if not json_numbers(p, p + size, number, &flag):
            return UNREADABLE
    else:
        return UNREADABLE
    if flag & 1:
        return REPLY
    number[0] = REQUESTS_CHANNEL
    return PUSH


cdef bint json_numbers(const uint8_t *p, const uint8_t *end, int64_t *opaque, int64_t *flag) noexcept nogil:
    """The numbers named opaque and flag at depth 1 of a JSON object (0 when absent); whether it is one."""
    cdef int depth = 0
    cdef const uint8_t *name = NULL
    cdef size_t size = 0
    cdef bint key = False                            # the string just read is a name at depth 1
    while p < end:
        if p[0] == c'"':
            p += 1
            name = p
            p = plain_end(p, end)
            while p < end and p[0] != c'"':
                p = plain_end(p + (2 if p[0] == c'\\' else 1), end)
            if p >= end:
                return False
            size = p - name
            key = depth == 1
        elif p[0] == c'{' or p[0] == c'[':
            depth += 1
            key = False
        elif p[0] == c'}' or p[0] == c']':
            depth -= 1
            if depth <= 0:
                return depth == 0
        elif p[0] == c',':
            key = False
        elif key and (p[0] == c'-' or c'0' <= p[0] <= c'9'):
            if size == 6 and memcmp(name, b"opaque", 6) == 0:
                opaque[0] = json_integer(p, end)
            elif size == 4 and memcmp(name, b"flag", 4) == 0:
                flag[0] = json_integer(p, end)
            key = False
        p += 1
    return False


cdef int64_t json_integer(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef bint minus = p[0] == c'-'
    cdef int64_t value = 0
    cdef int digits = 0
    if minus:
        p += 1
    while p < end and c'0' <= p[0] <= c'9' and digits < 18:
        value = value * 10 + (p[0] - c'0')
        digits += 1
        p += 1
    return -value if minus else value


def _match(str framing, bytes frame):
    """For tests: (what, number) of a frame."""
    cdef int64_t number = 0
    cdef int kind = match(FRAMINGS[framing], <const uint8_t *>PyBytes_AS_STRING(frame), len(frame), &number)
    return ("reply", "push", "drop", "ping", "unreadable")[kind], number if kind == REPLY or kind == PUSH else None
