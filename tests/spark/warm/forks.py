"""Forks the planners of streams, each of which is a Python process of its own, from one that has imported PySpark and Arrow already.

Spark starts a planner for each run of a stream, and no daemon for them: 0.3 s of imports each time. `sitecustomize.py` hands the standard
streams, environment and path of such a process over to here, and waits for the fork to end.

    python forks.py SOCKET      until standard input ends
    handed_over(SOCKET)         in the process that Spark has started: the fork's exit code, None where nothing listens there

What it is: the forking process, and what others ask of it. A fork ends when the process that asked for it does.
Must not: import wireproto before the fork, or have a thread then.
"""

from __future__ import annotations

import array
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
ASKS = 1 << 20
"""Bytes of environment and path at most."""


def handed_over(place: str) -> int | None:
    """Have a fork do this process's work, with its standard streams."""
    folder = os.getcwd()  # noqa: PTH109  (pathlib takes longer to import than all else)
    asked = json.dumps({"environment": dict(os.environ), "path": sys.path, "folder": folder}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        try:
            link.connect(place)
            link.sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        except OSError:
            return None
        return int(link.recv(8) or b"1")


def serve(place: str) -> None:
    """Fork as asked until standard input ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(place)
        server.listen(16)
        asking: dict[int, tuple[socket.socket, int]] = {}  # by the handle of a fork
        while True:
            links = {link.fileno(): handle for handle, (link, _) in asking.items()}
            ready, _, _ = select.select([0, server, *asking, *links], [], [])
            if 0 in ready:
                os._exit(0)  # forks end with Spark
            for one in ready:
                if one is server:
                    link, _ = server.accept()
                    pid = forked(link, server)
                    asking[os.pidfd_open(pid)] = (link, pid)
                elif one in asking:
                    link, pid = asking.pop(one)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    os.close(one)
                    links.pop(link.fileno())
                    with suppress(OSError):  # it has ended
                        link.send(b"%d" % (code if code >= 0 else 1))
                    link.close()
                elif one in links:  # it asks for nothing more: it has ended
                    os.kill(asking[links[one]][1], signal.SIGKILL)


def forked(link: socket.socket, server: socket.socket) -> int:
    """Start a fork; its process id."""
    asked, streams, _, _ = socket.recv_fds(link, ASKS, 3)
    pid = os.fork()
    if pid:
        for one in streams:
            os.close(one)
        return pid
    try:
        for standard, one in enumerate(streams):
            os.dup2(one, standard)
        os.closerange(3, 256)
        given = json.loads(asked)
        os.environ.clear()
        os.environ.update(given["environment"])
        os.chdir(given["folder"])
        sys.path[:] = [given["folder"], *given["path"]]
        sys.argv[:] = [MODULE]
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as why:
        code = why.code if isinstance(why.code, int) else int(why.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else NumPy starts threads, which are not there behind a fork
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # and Arrow one
    import pyarrow.compute  # noqa: F401
    import pyspark.sql.datasource_internal
    import pyspark.sql.pandas.serializers
    import pyspark.sql.streaming.datasource
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker_util  # noqa: F401

    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        print("the process that forks planners has threads, which would be missing in them", file=sys.stderr, flush=True)
        sys.exit(1)
    serve(sys.argv[1])


if __name__ == "__main__":
    main()
