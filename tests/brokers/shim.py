"""Run as a script: asks the kernel to kill this process when its parent ends, then becomes the given command.

``python -S shim.py PARENT_PID command…``: the request survives exec, so a JVM cannot outlive the session that started it, even when
that is killed with SIGKILL. Elsewhere than on Linux it only execs; process groups and atexit must do there. The command hears of Ctrl-C
even where the parent was told to ignore it (``nohup``, or ``&`` in a script): that would be inherited.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getppid() != parent:
        sys.exit("the parent ended before its child had started")
    os.execvp(command[0], command)
