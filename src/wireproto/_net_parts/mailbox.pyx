# Queues of frames, and back-pressure.
#
# A mailbox without a handler is read by threads that wait on it; one with a handler by the I/O thread. What lies unread counts against the
# mailbox's limit and the loop's fetch_memory: above either, the connection that fed it is not read until half of it was taken away
# (unless a thread waits for a reply on that very connection). A thread that has emptied its own mailbox reads all the same:
# full mailboxes of others, whose owners may wait for that very thread, do not keep it from its frames.
#
# With `prompt`, a waiting thread that has read need not hand the item to the I/O thread: it gives the role of reading away and calls
# prompt(item). What prompt does not take (it returns false), or was interrupted in by a signal handler, goes back to the front for the
# I/O thread's handler: so prompt must leave things such that handler may do all of it again. One thread at a time is at a mailbox's items.

cdef size_t OVERHEAD = 128               # an item's own weight


cdef class Push:
    """A frame that answers no request; see _net.pyi."""

    def __repr__(self):
        return f"<Push of {len(self.frame)} bytes from {self.conn.peer}, channel {self.channel}>"


cdef class Mailbox(Waitable):
    """See _net.pyi."""

    def __init__(self, Loop loop not None, handler=None, limit=None, prompt=None):
        self.loop = loop
        self.handler = handler
        self.prompt = prompt
        self.limit = limit if limit is not None else 0
        self.items = deque()
        self.paused = []
        self.starving = []

    @property
    def unread(self):
        return self.bytes

    @property
    def idle(self):
        return not self.items and not self.serving

    def __len__(self):
        return len(self.items)

    def put(self, item, size_t size=0):
        self.deliver(item, size, None)

    cdef int deliver(self, object item, size_t size, Connection source) except -1:
        if self.shut:
            return 0
        size += OVERHEAD
        self.items.append((item, size))
        self.bytes += size
        if self.handler is not None:
            if self.prompt is not None and self.loop.turning and self.loop.leader_id == PyThread_get_thread_ident():
                if self not in self.loop.prompts:
                    self.loop.prompts.append(self)
            elif not self.queued:
                self.queued = True
                self.loop.task(self)
            if not self.limit:
                return 0
        else:
            self.loop.bytes += size
            if self.loop.bytes > self.loop.fetch_memory and source is not None:
                if source not in self.loop.starved:
                    self.loop.starved.append(source)
                    source.held += 1
                if source not in self.starving:
                    self.starving.append(source)
            self.wake()
        if self.limit and self.bytes > self.limit and source is not None and source not in self.paused:
            self.paused.append(source)
            source.held += 1
        return 0

    def _taken(self, size_t size):
        cdef Connection conn
        self.bytes -= size
        if self.handler is None:
            self.loop.bytes -= size
            if self.starving and not self.items:
                self.feed_on()
            self.loop.relieve()
        if self.paused and self.bytes <= self.limit // 2:
            paused, self.paused = self.paused, []
            for conn in paused:
                conn.held -= 1
            if self.loop.polling:
                self.loop.poke()

    cdef int feed_on(self) except -1:
        """It is empty: read what filled it again, however much lies in others."""
        cdef Connection conn
        starving, self.starving = self.starving, []
        for conn in starving:
            if conn in self.loop.starved:
                self.loop.starved.remove(conn)
                conn.held -= 1
        if self.loop.polling:
            self.loop.poke()
        return 0

    def _serve(self):
        """The I/O thread: handler(item) for everything there."""
        self.queued = False
        if self.serving:
            return                               # the thread that serves it comes to the end, or hands over
        self.serving = True
        try:
            while self.items and not self.shut:
                item, size = self.items.popleft()
                self._taken(size)
                try:
                    self.handler(item)
                except BaseException as why:
                    tell_unraisable(why, self.handler)
        finally:
            self.serving = False

    cdef int serve_promptly(self) except -1:
        """The waiting thread that reads: prompt(item) for everything there."""
        if self.serving or self.queued:
            return 0
        self.serving = True
        try:
            while self.items and not self.shut:
                item, size = self.items.popleft()
                try:
                    if not self.prompt(item):
                        self.put_back(item, size)
                        break
                except BaseException:
                    self.put_back(item, size)
                    raise
                self._taken(size)
        finally:
            self.serving = False
            if self.items and not self.queued and not self.shut:
                self.queued = True
                self.loop.task(self)
        return 0

    cdef int put_back(self, object item, size_t size) except -1:
        if not self.shut:
            self.items.appendleft((item, size))
        return 0

    def get(self, double deadline=0.0):
        while True:
            if self.items:
                item, size = self.items.popleft()
                self.ready = len(self.items) > 0
                self._taken(size)
                return item
            if self.shut:
                raise errors.Closed("the mailbox was closed")
            self.ready = False
            if not self.loop.wait(self, deadline):
                return None

    def close(self):
        if not self.shut:
            self.shut = True
            while self.items:
                _, size = self.items.popleft()
                self._taken(size)
            self.wake()
