# SendFuture: what `send` of the asyncio face hands out, which asyncio takes for a future of its own.
#
# What it is: a Receipt (batch, index) with callbacks, which the *batch* keeps a list of: one wake-up of the event loop settles all futures of
# a batch, so that a record costs neither a Task nor a call_soon. A record that waits for room in the send budget has no batch yet.
# May assume: the event loop's thread. Must not: know a protocol; the producer's `intake` knows places and sees that the batch is sent.
#
#     add_done_callback ── first of a batch: intake.awaited(batch), which has settle_futures(batch.waiters) called at its outcome

# asyncio is imported with the first future, not with this module.

from _contextvars import copy_context
from copy import copy


cdef object not_yet():
    from asyncio import InvalidStateError
    return InvalidStateError("the record is not acknowledged yet")


@cython.final
@cython.freelist(256)
cdef class SendFuture:
    """See `wireproto.aio.roles.SendFuture`.

    Args:
        intake: of the producer. It has ``io`` (the event loop), ``awaited(batch)``, ``place(batch, index)`` and ``reason(batch, index)``.
    """

    cdef readonly object intake
    cdef OutBatch batch              # None while the record waits for room, or when it never got any
    cdef Py_ssize_t index
    cdef public object _asyncio_future_blocking
    cdef object callback, context    # the first one
    cdef list more                   # (callback, context)
    cdef object failure              # its own: why it was not taken, or what a CancelledError is made of
    cdef bint given_up

    def __init__(self, intake):
        self.intake = intake
        self._asyncio_future_blocking = False

    def get_loop(self):
        return self.intake.io

    def done(self):
        """Whether the outcome is known, either way."""
        return self.failure is not None or (self.batch is not None and bool(self.batch.outcome.done))

    def cancelled(self):
        return self.given_up

    def result(self):
        """The record's place. Raises what it failed with, CancelledError, InvalidStateError."""
        if self.failure is not None:
            raise self._make_cancelled_error() if self.given_up else copy(self.failure)
        if self.batch is None or not self.batch.outcome.done:
            raise not_yet()
        return self.intake.place(self.batch, self.index)

    def exception(self):
        if self.given_up:
            raise self._make_cancelled_error()
        if self.failure is not None:
            return self.failure
        if self.batch is None or not self.batch.outcome.done:
            raise not_yet()
        return self.intake.reason(self.batch, self.index)

    def cancel(self, msg=None):
        """Wait no longer. A record that waits for room is not sent; one that was taken may be stored all the same."""
        if self.done():
            return False
        self.given_up = True
        self.fail(() if msg is None else (msg,))
        return True

    @property
    def _cancel_message(self):
        """What `cancel` was given: gather asks for it."""
        return self.failure[0] if self.given_up and self.failure else None

    def _make_cancelled_error(self):
        """Return a new copy for each caller: a shared error's traceback would keep the frames of all callers alive."""
        from asyncio import CancelledError
        return CancelledError(*self.failure)

    def fail(self, error):
        """It ends so, whatever becomes of its record."""
        self.failure = error
        io = self.intake.io
        for callback, context in self.take_callbacks():
            io.call_soon(callback, self, context=context)

    def bind(self, OutBatch batch not None, Py_ssize_t index):
        """The record has room now, in this batch."""
        self.batch = batch
        self.index = index
        if self.callback is not None and self.failure is None:
            self.enlist()

    def follow(self, SendFuture other not None):
        """The record went in as this one."""
        self.bind(other.batch, other.index)

    def add_done_callback(self, fn, *, context=None):
        if self.done():
            self.intake.io.call_soon(fn, self, context=context)
            return
        if context is None:
            context = copy_context()
        if self.callback is None:
            self.callback, self.context = fn, context
            if self.batch is not None:
                self.enlist()
        elif self.more is None:
            self.more = [(fn, context)]
        else:
            self.more.append((fn, context))

    def remove_done_callback(self, fn):
        cdef list every = self.take_callbacks()
        cdef list kept = [pair for pair in every if pair[0] != fn]
        if kept:
            self.callback, self.context = kept[0]
            self.more = kept[1:]
        return len(every) - len(kept)

    cdef int enlist(self) except -1:
        if self.batch.waiters is None:
            self.batch.waiters = [self]
            self.intake.awaited(self.batch)
        else:
            self.batch.waiters.append(self)
        return 0

    cdef list take_callbacks(self):
        cdef list found = []
        if self.callback is not None:
            found.append((self.callback, self.context))
            self.callback = self.context = None
        if self.more is not None:
            found.extend(self.more)
            self.more = None
        return found

    def __await__(self):
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__

    def __repr__(self):
        state = "cancelled" if self.given_up else "failed" if self.failure is not None else "waits for room" if self.batch is None else None
        return f"<SendFuture {state}>" if state is not None else f"<SendFuture {self.batch.describe(self.index)}>"


cdef inline SendFuture new_future(object intake, OutBatch batch, Py_ssize_t index):
    cdef SendFuture future = SendFuture.__new__(SendFuture)
    future.intake = intake
    future.batch = batch
    future.index = index
    future._asyncio_future_blocking = False
    return future


def settle_futures(OutBatch batch not None):
    """Resolve the futures of a batch's records, whose outcome is known. Called by the event loop.

    What a callback raises goes to the event loop, which then is asked to go on with the rest.
    """
    cdef list waiters = batch.waiters
    cdef SendFuture future
    if waiters is None:
        return
    batch.waiters = None
    waiters.reverse()
    try:
        while waiters:
            future = <SendFuture>waiters.pop()
            callback, context, more = future.callback, future.context, future.more
            future.callback = future.context = future.more = None
            if more is not None:
                for fn, where in more:
                    future.intake.io.call_soon(fn, future, context=where)
            if callback is not None:
                context.run(callback, future)
    finally:
        if waiters:
            waiters.reverse()
            batch.waiters = waiters
            future.intake.io.call_soon(settle_futures, batch)
