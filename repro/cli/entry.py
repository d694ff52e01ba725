"""Where every command starts. A verb that an engine starts imports its own modules alone; all others go to `main`.

An engine starts `job` and `session`, each with a folder.
Help and messages do not list them. Their environment comes from the engine, so no `.env` is read.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from repro.cli import ending
from repro.errors import UsageError

# New objects before a command looks for garbage: at Python's 700 that takes a tenth of a report's time. Jobs look as
# often as ever: garbage may hold memory of the GPU.
_GARBAGE = 100_000
STARTED_BY_ENGINES = ("job", "session")


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] not in STARTED_BY_ENGINES:
        gc.set_threshold(_GARBAGE, 50, 50)
        from repro.cli import main as command_line

        return command_line.main(words)

    def run(_: argparse.Namespace) -> int:
        if len(words) not in (2, 3):
            raise UsageError(f"repro {words[0]} takes one folder")
        from repro.engines import job, session_server

        serve = job.serve if words[0] == "job" else session_server.serve
        return serve(Path(words[1]), *words[2:])

    return ending.exit_code(run)
