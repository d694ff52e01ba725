"""A nursery and its workers: `python -m repro.judge FD DEVICE [baselines]`, FD its connection to the launcher.

A worker is confined before it reads anything of its judge. Landlock binds the thread that asks for it and what that
starts, and a fork has one thread, whatever the imports started.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from repro import settings
from repro.judge import confine, nursery


def main() -> None:
    """Forks workers; in each, confines that process, then serves the judge."""
    connection, device = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    us = nursery.serve(connection, device, compiles=nursery.COMPILES in sys.argv[3:])
    scratch = Path(us.scratch)
    os.chdir(scratch)
    if os.geteuid() == 0:  # confined root has no CUDA in child processes, where torch would compile
        settings.compile_alone()
    confined = confine.confine(scratch, [], us.shielded)
    if us.serves == "parity":
        from repro.judge import parity

        parity.serve(us.fds[0], us.fds[1], us.device, scratch)
    else:
        from repro.judge import worker

        worker.serve(us.fds[0], us.fds[1], us.device, scratch, confined, compiles=us.serves == nursery.COMPILES)


if __name__ == "__main__":
    main()
