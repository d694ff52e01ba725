"""Where every command starts. A verb that an engine starts imports its own modules alone; all others go to `main`.

An engine starts `job` and `session`, each with a folder.
Help and messages do not list them. Their environment comes from the engine, so no `.env` is read.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path

from repro.cli import ending
from repro.errors import UsageError


def _job(folder: Path, temporary: Path | None = None) -> int:
    """Run the jobs of a folder. temporary: a folder that the launcher removes at the end."""
    from repro.engines import job

    job.serve(folder, temporary)
    return 0


def _session(folder: Path, temporary: Path | None = None) -> int:
    """Serve a judge's session. temporary: a folder that the launcher removes at the end."""
    from repro.engines import session_server

    return session_server.serve(folder, temporary)


# New objects before a command looks for garbage: at Python's 700 that takes a tenth of a report's time. Jobs look as
# often as ever: garbage may hold memory of the GPU.
_GARBAGE = 100_000
# Each takes a folder; a job and a session also take the folder that they remove.
STARTED_BY_ENGINES: dict[str, Callable[..., int]] = {
    "job": _job,
    "session": _session,
}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    serve = STARTED_BY_ENGINES.get(words[0]) if words else None
    if serve is None:
        gc.set_threshold(_GARBAGE, 50, 50)
        from repro.cli import main as command_line

        return command_line.main(words)

    def run(_: argparse.Namespace) -> int:
        if len(words) != 2 and not (words[0] in ("job", "session") and len(words) == 3):
            raise UsageError(f"repro {words[0]} takes one folder")
        return serve(*map(Path, words[1:]))

    return ending.exit_code(run)
