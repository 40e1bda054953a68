# What each record sent one by one asks of its producer: the plain case of flow/producer.py and flow/budget.py, in the core.
#
#     BudgetCore, AccountCore   bases of Budget and Account: bytes given back
#     ProducerCore              base of BatchProducer: a new batch of a partition, and the place of a record
#
# May assume: attributes as flow/producer.py and flow/budget.py describe them. Must not: know a protocol, or read a clock of its own.

from libc.stdint cimport int64_t

from wireproto.deadlines import deadline_after
from wireproto.errors import WireprotoError


cdef class BudgetCore:
    """See above."""

    cdef public int64_t used
    cdef public object limit, _line
    cdef public BriefLock _lock

    def __init__(self, limit, BriefLock lock not None, line):
        self.limit = limit
        self._lock = lock
        self._line = line

    @property
    def waiting(self):
        """Return whether a producer waits in line."""
        return bool(self._line)


cdef class AccountCore:
    """See above."""

    cdef public int64_t held
    cdef public object _refused          # why it takes no more
    cdef readonly BudgetCore _budget

    def __init__(self, BudgetCore budget not None):
        self._budget = budget

    def try_take(self, int64_t size):
        """Take `size` bytes if it fits now and no producer waits in line; False, too, when the account takes no more."""
        return self.takes(size)

    cdef bint takes(self, int64_t size) except -1:
        cdef BudgetCore budget = self._budget
        budget._lock.take()
        try:
            if budget._line or self._refused is not None or (budget.used and budget.used + size > budget.limit):
                return 0
            budget.used += size
            self.held += size
        finally:
            budget._lock.leave()
        return 1

    def give(self, int64_t size):
        """Give bytes back; the first producer in line gets them."""
        self.free(size)

    cdef int free(self, int64_t size) except -1:
        cdef BudgetCore budget = self._budget
        budget._lock.take()
        try:
            size = min(size, self.held)          # nothing is held any more when the account is closed
            budget.used -= size
            self.held -= size
            if budget._line:
                budget._serve()
        finally:
            budget._lock.leave()
        return 0


cdef class ProducerCore:
    """See above.

    Attributes:
        _offsets: the class of positions, a frozen dataclass, where a batch's outcome is its first record's `offset` (0 and above); None:
            places are `_place`'s. _others: names of its other fields. _fixed: their values, by the sender's key (`_about`).
        _keys: by number the sender's key of a partition, which never changes; None: `_key` tells it each time.
    """

    cdef public SenderCore _sender
    cdef public Appender _appender
    cdef public AccountCore _account
    cdef public BriefLock _lock
    cdef public type _offsets
    cdef public dict _keys, _fixed
    cdef public tuple _others
    cdef public bint _closed

    def _begin(self, Py_ssize_t number):
        """The open batch of a partition, which takes records from now on; for the core."""
        cdef OutBatch batch
        self._lock.take()
        try:
            if self._closed:
                self._usable()
            batch = self._sender.opening(self.key_of(number))
            self._appender.opened(number, batch)
        finally:
            self._lock.leave()
        return batch

    cdef object key_of(self, object number):
        if self._keys is None:
            return self._key(number)
        key = self._keys.get(number)
        if key is None:
            key = self._keys[number] = self._key(number)
        return key

    def settled(self, int64_t size):
        """A batch that held so many bytes has its outcome."""
        self._account.free(size)

    def position_in(self, OutBatch batch not None, Py_ssize_t index, timeout):
        """The place of a batch's record, as `Receipt.position`."""
        cdef object outcome = batch.outcome
        cdef object until = self._until(timeout)
        if not outcome.done:
            if not batch.sealed or self._sender._due:
                self._sender.hurry(batch)
            try:
                outcome.wait(until)
            except WireprotoError as why:
                if not outcome.done:
                    raise self._late(batch, why) from None
        return self._known_place(batch, index)

    cdef object _until(self, timeout):
        if timeout is None:                      # without a timeout it fails a little before its batch does
            return self._sender._clock() + self._sender._lifetime + 1.0
        return deadline_after(timeout)

    def _known_place(self, OutBatch batch not None, Py_ssize_t index):
        """The place of a record whose outcome is known."""
        cdef object value
        cdef int64_t base
        if self._offsets is not None and batch.outcome.error is None:
            value = batch.outcome.value
            if type(value) is int:
                base = value
                if base >= 0:
                    return self.made(batch.key, base + index)
        return self._find_place(batch, index)

    cdef object made(self, object key, int64_t offset):
        """A position of this key."""
        cdef tuple fixed = self._fixed.get(key)
        if fixed is None:
            fixed = self._fixed[key] = self._about(key)
        return new_place(self._offsets, self._others, fixed, offset)
