"""A worker, confined before all other imports.

`python -m repro.judge SERVES READ_FD WRITE_FD DEVICE SCRATCH JUDGE_PID`; SERVES is `judge`; `baselines`
for the judge's own torch baselines, which compile; or `parity` for the published protocol.

Landlock binds the thread that asks for it and what that starts, and importing torch starts threads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from repro import settings
from repro.judge import confine


def main() -> None:
    """Confines this process, then serves the judge."""
    serves, read_fd, write_fd, device, scratch, judge = sys.argv[1:7]
    os.chdir(scratch)
    if os.geteuid() == 0:  # confined root has no CUDA in child processes, where torch would compile
        settings.compile_alone()
    confined = confine.confine(Path(scratch), [], [int(judge)])
    if serves == "parity":
        from repro.judge import parity

        parity.serve(int(read_fd), int(write_fd), device, Path(scratch))
    else:
        from repro.judge import worker

        worker.serve(int(read_fd), int(write_fd), device, Path(scratch), confined, compiles=serves == "baselines")


if __name__ == "__main__":
    main()
