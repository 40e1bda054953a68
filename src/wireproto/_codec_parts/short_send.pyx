# What a record sent one by one goes through: the plain case of flow/queue.py and flow/sender.py, in the core.
#
#     QueueCore    base of PartitionQueue: a batch leaves, and is stored (`acked`)
#     SequencerCore    base of a sequencer, and UnnumberedCore of one without numbers
#     Outlet       a link, and whose turn it is to send by it
#     WireCore     base of a wire, and QuickWireCore of one whose hooks are the core's
#     SenderCore   base of Sender: the open batch of a key, a batch that is waited for (`set_off`), and one that is stored (`stored`)
#     unbroken     a method of a Sender, or of what sends by one, after which the I/O thread mends what a signal handler left half done
#
# Everything else is Python's, and shares the attributes declared here: what they mean stands there. A signal handler runs only where a
# callable is called from here, so that nothing is half done between two lines that call none.
# May assume: hooks as flow/queue.py and flow/verdicts.py describe them. Must not: know a protocol, read a clock of its own, or wait.

cimport cython
from cpython.dict cimport PyDict_Contains, PyDict_GetItemWithError
from cpython.object cimport PyObject_DelItem, PyObject_SetItem
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uintptr_t

from copy import copy
from functools import wraps

from wireproto.errors import WireprotoError


cdef double FOREVER = float("inf")
cdef int TRIES = 1000                    # to set an alarm, each ended by a signal handler


def unbroken(method):
    """A method of a Sender, or of what has one in `_sender`, that a signal handler may break into; see `SenderCore.break_off`."""
    @wraps(method)
    def done(self, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except WireprotoError:
            raise
        except BaseException:
            (<SenderCore>(self if isinstance(self, SenderCore) else self._sender)).break_off()
            raise
    return done


cdef inline bint put_out(object ordered, object item) except -1:
    """Take an item out of an OrderedDict; whether it was there."""
    if not PyDict_Contains(ordered, item):
        return False
    PyObject_DelItem(ordered, item)
    return True


cdef inline Py_ssize_t sealed_count(OutBatch batch) noexcept:
    """Seal a batch; how many records it has."""
    with cython.critical_section(batch):
        batch.sealed = True
    return batch.count


cdef class QueueCore:
    """See above.

    Args:
        ready, in_flight: deques. gate: what `gate` is while it is open.
    """

    cdef readonly object key
    cdef readonly SequencerCore sequencer
    cdef public object open
    cdef readonly object ready
    cdef readonly object in_flight
    cdef public dict beside
    cdef public object error
    cdef public object gate
    cdef public object mark
    cdef public double held_until
    cdef public int64_t failures
    cdef public int64_t sent
    cdef object opened_gate

    def __init__(self, key, sequencer, ready, in_flight, gate):
        self.key = key
        self.sequencer = sequencer
        self.ready = ready
        self.in_flight = in_flight
        self.gate = self.opened_gate = gate

    cdef bint leave(self, double now) except -1:
        """Have the open batch, which is not empty, leave at once if it may and if nothing is before it; whether it is in flight now, as by
        `take`. It is sealed before it is numbered: a record may join without the lock."""
        cdef OutBatch batch = self.open
        if batch is None or self.ready or self.in_flight or self.held_until or self.gate is not self.opened_gate:
            return False
        if self.sequencer.room(self) < 1:
            return False
        self.open = None
        if not sealed_count(batch):
            return False
        self.ready.append(batch)         # where it stays if a signal handler raises in `admit`
        if not self.sequencer.may_leave(self, batch, now):
            return False
        self.set_out()
        return True

    def set_out(self):
        """The first of the ready ones is in flight: sent once more; the first time it gets its number."""
        cdef OutBatch batch = self.ready.popleft()
        if not batch.number:
            self.sent += 1
            batch.number = self.sent
        batch.attempts += 1
        batch.taker = PyThread_get_thread_ident()
        self.in_flight.append(batch)
        return batch

    def seal_open(self):
        """No more records into the open batch, which is ready then; whether there are any in it."""
        cdef OutBatch batch = self.open
        self.open = None
        if batch is None or not sealed_count(batch):
            return False
        self.ready.append(batch)
        return True

    def acked(self, OutBatch batch not None):
        """Note that a batch is stored. May be called twice for one batch."""
        self.mark_stored(batch)

    cdef int mark_stored(self, OutBatch batch) except -1:
        cdef object flying = self.in_flight
        self.failures = 0
        self.held_until = 0.0
        self.sequencer.note_stored(self, batch)
        if self.gate is self.opened_gate and not self.ready and flying and flying[0] is batch:
            batch.over = True
            flying.popleft()
        else:
            self.dropped(batch)
        return 0


cdef class SequencerCore:
    """Base of a sequencer: see `wireproto.flow.queue.Sequencer`, whose methods a subclass has."""

    cdef int64_t room(self, QueueCore queue) except -1:
        """As `window`."""
        return self.window(queue)

    cdef bint may_leave(self, QueueCore queue, OutBatch batch, double now) except -1:
        """As `admit`."""
        return self.admit(queue, batch, now)

    cdef int note_stored(self, QueueCore queue, OutBatch batch) except -1:
        """As `acked`."""
        self.acked(queue, batch)
        return 0


cdef class UnnumberedCore(SequencerCore):
    """Base of UnnumberedSequencer: batches without numbers, at most `window` of a queue in flight. A subclass may replace `admit` alone."""

    cdef int64_t in_flight

    def __init__(self, int64_t window=1):
        self.in_flight = window

    cdef int64_t room(self, QueueCore queue) except -1:
        return self.in_flight

    cdef int note_stored(self, QueueCore queue, OutBatch batch) except -1:
        return 0

    def window(self, queue):
        """How many batches of the queue may be in flight."""
        return self.in_flight

    def admit(self, queue, batch, double now):
        """Any batch may leave."""
        return True

    def acked(self, queue, batch):
        """Nothing is kept."""


@cython.final
cdef class Outlet:
    """Marks which thread sends by a link; `again`: another thread wanted to meanwhile."""

    cdef readonly object link
    cdef public bint again
    cdef bint taken
    cdef unsigned long taker     # the thread that has it

    def __init__(self, link):
        self.link = link

    def try_take(self):
        """Take the right to send, unless another thread has it."""
        cdef bint free
        with cython.critical_section(self):
            free = not self.taken
            self.taken = True
            if free:
                self.taker = PyThread_get_thread_ident()
        return free

    def release(self):
        """Give the right to send back."""
        with cython.critical_section(self):
            self.taken = False


cdef class WireCore:
    """See `wireproto.flow.verdicts.Wire`, whose methods a subclass has."""

    cdef object aim(self, object key):
        """As `target`."""
        return self.target(key)

    cdef bint is_congested(self, object link) except -1:
        return self.congested(link)

    cdef int send(self, object link, list batches) except -1:
        """As `transmit`."""
        self.transmit(link, batches)
        return 0

    def settled(self, list batches not None):
        """Their outcomes are known: what they hold is free."""
        cdef OutBatch batch
        for batch in batches:
            if batch.owner is not None:
                batch.owner.settled(batch.free())


cdef class QuickWireCore(WireCore):
    """Base of a wire whose `aim`, `is_congested` and `send` are the core's: the same by the names that Python calls."""

    def target(self, key):
        """The connection that a queue's batches may be sent by now; None: there is none."""
        return self.aim(key)

    def congested(self, link):
        """Whether what is sent now would wait there."""
        return self.is_congested(link)

    def transmit(self, link, list batches not None):
        """Send a request with these batches."""
        self.send(link, batches)


cdef class SenderCore:
    """See above."""

    cdef public WireCore _wire
    cdef public object _make_batch, _clock
    cdef public BriefLock _lock
    cdef public dict _queues, _outlets, _due, _unlinked
    cdef public object _lingering, _alive    # OrderedDicts of batches
    cdef public double _armed, _lifetime, _linger    # when the timer rings; the delivery timeout
    cdef public int64_t _serial
    cdef public object _arm
    cdef readonly list broken    # by signal handlers: links that may hold half a request; batches perhaps sent, and which sending
    cdef list interrupted_links            # such links

    def __cinit__(self, *_, **__):
        self.broken = []
        self.interrupted_links = []

    def current(self, key):
        """The open batch of a key, a new one if need be. Lock held. Raises what the queue failed with."""
        return self.opening(key)

    cdef OutBatch opening(self, object key):
        cdef PyObject *found = PyDict_GetItemWithError(self._queues, key)
        cdef QueueCore queue = self.queue(key) if found == NULL else <object>found
        cdef OutBatch batch = queue.open
        if batch is None:
            if queue.error is not None:
                raise copy(queue.error)
            self._serial += 1
            batch = self._make_batch(queue, self._serial, self._clock())
            queue.open = batch
            PyObject_SetItem(self._alive, batch, None)
            PyObject_SetItem(self._lingering, batch, None)
        return batch

    def opened(self, OutBatch batch not None):
        """Set the timer for a batch that has its first record: for the end of its linger, or of its delivery timeout."""
        cdef double when = batch.created + (self._lifetime if batch.sealed else self._linger)
        if when < self._armed:
            self.wake(when)

    def hurry(self, batch):
        """End the linger of a batch that a caller waits for."""
        self.set_off(batch)
        if self._due:
            self.drain()

    def set_off(self, OutBatch batch not None):
        """This batch does not wait for more records, but takes them until it may leave, at once if its queue is idle."""
        try:
            self.send_off(batch)
        except WireprotoError:
            raise
        except BaseException:
            self.break_off()
            raise

    cdef int send_off(self, OutBatch batch) except -1:
        cdef QueueCore queue = batch._queue
        cdef Outlet outlet = None
        cdef double when
        cdef list batches
        cdef bint going = False
        if queue.beside:
            self._set_off_all(queue, batch)
            return 0
        self._lock.take()
        try:
            if queue.open is not batch:
                return 0
            put_out(self._lingering, batch)
            try:
                if not self._due and (not self._unlinked or not PyDict_Contains(self._unlinked, queue.key)):
                    outlet = self.idle(queue.key)
                going = outlet is not None and queue.leave(self._clock())
            finally:
                if not going:
                    self._note(queue)
                    if outlet is not None:
                        outlet.release()
        finally:
            self._lock.leave()
        try:
            when = batch.created + self._lifetime
            if when < self._armed:
                self.wake(when)
            if going:
                batches = [batch]
                try:
                    self.send_request(outlet.link, batches)
                except WireprotoError as why:
                    self._unsent(batches, why)
        finally:
            if going:
                outlet.release()
        if self._due:
            self.drain()
        return 0

    def send_request(self, link, list batches not None):
        """Have the wire send a request. What a signal handler breaks off in here is in doubt; see `break_off`."""
        cdef OutBatch batch
        try:
            self._wire.send(link, batches)
        except WireprotoError:
            raise
        except BaseException:
            self.interrupted_links.append(link)
            raise
        for batch in batches:
            batch.attempts_sent = batch.attempts

    def _wake_at(self, double when):
        """`tick` is to be called then, or sooner."""
        self.wake(when)

    cdef int wake(self, double when) except -1:
        if when < self._armed:
            self._armed = when
            try:
                self._arm(when)
            except BaseException:        # nothing rings then
                self._armed = FOREVER
                raise
        return 0

    # A signal handler may raise wherever Python code runs, and leave there what it broke into. It runs in the main thread alone: so the
    # I/O thread restores order (`flow.interrupt_recovery`). Nothing in here runs Python code but the alarm, which is set until that succeeds.

    cdef int break_off(self) except -1:
        """What this thread had begun is left half done: note it, and have the I/O thread restore it."""
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef Outlet outlet
        cdef QueueCore queue
        cdef OutBatch batch
        cdef list links = self.interrupted_links, batches = []
        cdef int _tries
        self.interrupted_links = []
        for outlet in list(self._outlets.values()):
            if outlet.taken and outlet.taker == me:
                outlet.release()
        try:
            self._lock.take()
        except WireprotoError:           # this thread holds it: nothing is sent under it
            pass
        else:
            try:
                for queue in self._queues.values():
                    for batch in queue.in_flight:
                        if batch.taker == me and batch.attempts_sent != batch.attempts and not batch.over:
                            batches.append((batch, batch.attempts))
            finally:
                self._lock.leave()
        self.broken.append((links, batches))
        for _tries in range(TRIES):
            try:
                self._arm(0.0)
                break
            except WireprotoError:       # the client is closed
                break
            except BaseException:        # one more: the first is raised
                continue
        return 0

    cdef Outlet idle(self, object key):
        """The link of a key, whose turn is ours now; None: there is none, or it cannot take more at once. Lock held."""
        cdef object link = self._wire.aim(key)
        cdef PyObject *found = PyDict_GetItemWithError(self._outlets, <uintptr_t><void *>link)
        cdef Outlet outlet
        if found == NULL:
            return None
        outlet = <object>found
        if outlet.link is not link or self._wire.is_congested(link):
            return None
        return outlet if outlet.try_take() else None

    def stored(self, OutBatch batch not None, base):
        """As `answered` for one batch that is stored."""
        self.store(batch, base)

    cdef int store(self, OutBatch batch, object base) except -1:
        cdef QueueCore queue = batch._queue
        self._lock.take()
        try:
            queue.mark_stored(batch)
            put_out(self._alive, batch)
            if queue.ready or (queue.open is not None and not PyDict_Contains(self._lingering, queue.open)):
                self._note(queue)
        finally:
            self._lock.leave()
        self._wire.settled([batch])
        batch.outcome.set(base)
        if self._due:
            self.drain()
        return 0
