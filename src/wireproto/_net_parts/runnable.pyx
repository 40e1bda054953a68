# What the keeper runs, and what that waits for. net.task.Task is one.
#
#     run() in the keeper -> hang_on(what) -> … what.wake() -> queued -> run() in the keeper
#
# Nobody but the keeper runs them, never the thread that reads: a signal handler may raise at any bytecode of a caller's thread, and steps
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
        self.loop.living.add(self)
        self.loop.start_keeper()
        self.loop.enqueue(self)

    def make_runnable(self):
        self.loop.enqueue(self)

    def finish(self):
        if not self.ready:
            self.loop.living.discard(self)
            self.wake()

    def hang_on(self, Waitable what not None):
        cdef list hooks
        if self.hung is not None:
            raise RuntimeError("it waits for something already")
        self.loop.start_keeper()
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
