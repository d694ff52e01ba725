"""A fork server and its workers: `python -m repro.judge FD DEVICE [baselines]`. FD connects it to the launcher.

A worker is confined before it reads anything from its judge. Landlock binds the calling thread and what it starts; a
fork has one thread, whatever the imports started. Only the process that becomes a profiler leaves that to its child.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from repro import config
from repro.judge.isolation import confinement
from repro.judge.processes import forkserver


def work(connection: socket.socket, device: str, *, compiles: bool) -> None:
    """Fork workers. In each, confine the process, then serve the judge."""
    us = forkserver.serve(connection, device, compiles=compiles)
    scratch = Path(us.scratch)
    os.chdir(scratch)
    if os.geteuid() == 0:  # child processes of confined root, in which torch compiles, have no CUDA
        config.compile_alone()
    if us.serves == "profile":
        from repro.judge.timing import counters

        counters.become_ncu(us.fds[0], us.fds[1], scratch, us.shielded)
    confined = confinement.confine(scratch, [], us.shielded)
    if us.serves == "parity":
        from repro.judge.timing import published_protocol

        published_protocol.serve(us.fds[0], us.fds[1], us.device, scratch)
    elif us.serves == "kernelbench":
        from repro.judge.timing import kernelbench_protocol

        kernelbench_protocol.serve(us.fds[0], us.fds[1], us.device, scratch)
    else:
        from repro.judge.worker import server

        server.serve(us.fds[0], us.fds[1], us.device, scratch, confined, compiles=us.serves == forkserver.COMPILES)


if __name__ == "__main__":
    work(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], compiles=forkserver.COMPILES in sys.argv[3:])
