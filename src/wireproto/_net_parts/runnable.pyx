# What the I/O thread runs, and what that waits for. net.task.Task is one.
#
#     run() in the I/O thread -> hang_on(what) -> … what.wake() -> queued -> run() in the I/O thread
#
# Nobody but the I/O thread runs them, never the thread that reads: a signal handler may raise at any bytecode of a caller's thread, and steps
# that were interrupted cannot be done again.
# May assume: the GIL. Must not: allocate or run Python code between `wake` and the queue; wake is called with replies in hand.

cdef class Runnable(Waitable):
    """See _net.pyi."""

    def __init__(self, Loop loop not None):
        self.loop = loop

    @property
    def done(self):
        return self.ready

    @property
    def waited_for(self):
        return bool(self.hook is not None or self.seats or self.loop.target is self)

    def run(self):
        raise NotImplementedError

    def stop(self, error):
        raise NotImplementedError

    def start(self):
        self.loop.usable()
        self.loop.start_io_thread()
        if not self.begun:                       # no signal handler runs from here on
            self.begun = True
            self.loop.living.add(self)
            enqueue(self.loop, self)

    def attend(self):
        self.loop.usable()
        self.loop.living.add(self)

    def make_runnable(self):
        enqueue(self.loop, self)

    def finish(self):
        if not self.ready:
            self.loop.living.discard(self)
            self.wake()

    def hang_on(self, Waitable what not None):
        cdef list hooks
        if self.hung is not None:
            raise RuntimeError("it waits for something already")
        self.loop.start_io_thread()
        if what.ready or (isinstance(what, Call) and (<Call>what).late):
            return False
        if what.hook is None:
            what.hook = self
        else:
            hooks = what.hooks
            if hooks is None:
                hooks = []                       # the collector may run, and other threads: looked at again below
                if what.hooks is None:
                    what.hooks = hooks
                hooks = what.hooks
            if what.hook is None:
                what.hook = self
            else:
                hooks.append(self)
        self.hung = what
        what.awaited()
        if what.ready:
            self.take_off()
            return False
        return True

    def take_off(self):
        cdef Waitable what = self.hung
        if what is None:
            return
        self.hung = None
        if what.hook is not self:
            what.hooks.remove(self)
        elif what.hooks:
            what.hook = what.hooks.pop(0)
        else:
            what.hook = None
            what.unawaited()


cdef void enqueue(Loop loop, Runnable one) noexcept:
    """Have the I/O thread run it: once, however often it is asked before that."""
    if one.queued:
        return
    one.queued = True
    if loop.last is None:
        loop.first = one
    else:
        loop.last.next = one
    loop.last = one
    loop.kick()


cdef int run_runnable(Loop loop) except -1:
    """What is runnable now; what becomes so meanwhile comes after timers, mailboxes and reading."""
    cdef Runnable end = loop.last
    cdef Runnable one = None
    while one is not end and not loop.closed:
        one = loop.first
        loop.first = one.next
        if loop.first is None:
            loop.last = None
        one.next = None
        one.queued = False
        try:
            one.run()
        except BaseException as why:
            tell_unraisable(why, one)
    if loop.errands > 0:
        loop.urgent = True                   # only the I/O thread waits for the replies to what they sent
    return 0


cdef int stop_living(Loop loop) except -1:
    """The loop is closed: end the tasks, as many as time allows; the rest is dropped."""
    cdef double until = now() + STOPPING
    for one in list(loop.living):
        if now() > until:
            break
        try:
            one.stop(errors.Closed(f"client {loop.name!r} is closed"))
        except BaseException as why:
            tell_unraisable(why, one)
    return 0


cdef class Timer:
    """See _net.pyi."""

    def __init__(self):
        raise TypeError("timers are made by Loop.call_at")

    def cancel(self):
        if self.fn is not None:
            self.fn = None
            self.args = ()
            self.loop.timers_dead += 1
