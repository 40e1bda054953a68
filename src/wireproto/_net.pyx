# cython: language_level=3, freethreading_compatible=False
"""The engine's loop: the thread that waits for a reply reads for all.

What it is: sockets, frames, deadlines and the hand-over of the reading role, for all four protocols. A caller sends on its own thread and,
while it waits, reads for all. When no caller waits, an I/O thread, which else sleeps, reads, runs timers and serves mailboxes.
May assume: the GIL guards its state (see _net.pxd). Must not: decode a message, run user code while the role of reading is held, or
execute a Python bytecode between reading bytes and completing their waiters: a signal handler could raise there and lose a reply.
"""

include "_net_parts/system.pyx"       # clock, poll, recv, sendmsg, raw locks
include "_net_parts/output.pyx"       # bytes on their way out: copied when small, held when big
include "_net_parts/input.pyx"        # poll, recv and frame scan without the GIL
include "_net_parts/match.pyx"        # which request or channel a frame belongs to
include "_net_parts/wait.pyx"         # seats, calls, events
include "_net_parts/runnable.pyx"     # what the I/O thread runs: tasks, by a queue without memory of its own
include "_net_parts/descriptors.pyx"  # sockets that are no connections yet
include "_net_parts/mailbox.pyx"      # queues of frames, and back-pressure
include "_net_parts/connection.pyx"   # one connection: submit, cork and send, receive, deliver, fail
include "_net_parts/secured.pyx"      # TLS over a connection's buffers
include "_net_parts/numbered.pyx"     # requests whose frame begins with their token
include "_net_parts/adopted.pyx"      # a loop that another event loop drives
include "_net_parts/loop.pyx"         # the role of reading; the I/O thread: timers, handlers, reading when no caller waits
include "_net_parts/one_thread.pyx"   # the guard that a role holds for one call
include "_net_parts/one_after_another.pyx"  # the turns of threads that close it
