"""The judge's own processes: `python -m repro.judge launcher FD JUDGE`, `... forkserver FD DEVICE [compiles]`.

FD connects a launcher to its judge, and a fork server to its launcher.
"""

from __future__ import annotations

import socket
import sys

from repro.judge.processes import forkserver, launcher

if __name__ == "__main__":
    role, fd, of, *more = sys.argv[1:]
    connection = socket.socket(fileno=int(fd))
    if role == "launcher":
        launcher.serve_below(connection, int(of))
    else:
        forkserver.work(connection, of, compiles=bool(more))
