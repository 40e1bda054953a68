# Lets the threads that close a role or a client in one after another.
#
#     with turns.by(deadline) as mine: ── another thread's turn: waits for its end, TimedOut ── this thread's own (a signal handler): False
#
# In C, as one_thread.pyx is: what a signal handler raises behind `lock.acquire()` in Python would keep everybody out for good.

cdef class OneAfterAnother:
    """See _net.pyi."""

    def __init__(self, what not None):
        self.what = what
        self.turn = threading.Lock()

    def by(self, double deadline):
        cdef Turn made = Turn.__new__(Turn)
        made.turns, made.deadline = self, deadline
        return made


cdef class Turn:
    """See OneAfterAnother.by."""

    def __enter__(self):
        cdef OneAfterAnother turns = self.turns
        if turns.owner == PyThread_get_thread_ident():
            return False
        if not turns.turn.acquire(True, min(max(0.0, self.deadline - now()), threading.TIMEOUT_MAX)):
            raise errors.TimedOut(f"another thread is closing this {turns.what}")
        turns.owner = PyThread_get_thread_ident()
        self.mine = True
        return True

    def __exit__(self, kind, error, trace):
        if self.mine:
            self.mine = False
            self.turns.owner = 0
            self.turns.turn.release()
