"""The verbs that engines start, each with a folder: jobs, a session, an agent, a gateway.

Help and messages do not list them."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Any

from repro.runs.progress import Progress
from repro.system.prctl import PR_SET_PDEATHSIG, prctl

NAMES = ("job", "session", "agent", "gateway")


def add(parsers: Any) -> None:
    """Adds the verbs to a command line's subparsers."""
    for name, serve in zip(NAMES, (_job, _session, _agent, _gateway), strict=True):
        inner = parsers.add_parser(name)
        inner.add_argument("folder", type=Path)
        inner.set_defaults(run=serve)
        if name == "session":
            inner.add_argument("--temporary", type=Path)


def _job(args: argparse.Namespace, progress: Progress) -> int:
    from repro.engines import job

    job.serve(args.folder)
    return 0


def _session(args: argparse.Namespace, progress: Progress) -> int:
    from repro.engines import session_server

    return session_server.serve(args.folder, args.temporary)


def _agent(args: argparse.Namespace, progress: Progress) -> int:
    """Ends with the process that started it, as its gateway does: without it, nothing reads the outcome."""
    from repro.agents import session

    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return session.serve(args.folder)


def _gateway(args: argparse.Namespace, progress: Progress) -> int:
    from repro.gateway import server

    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return server.serve(args.folder)
