"""`repro fixtures`: measure what judging needs besides the problems."""

from __future__ import annotations

import argparse

from repro.cli import arguments, output
from repro.runs.progress import Progress

TEXT = "measure what judging needs: checksums, bounds, limits, margins"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    arguments.measuring_problems(parser)


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Measure the fixtures of all suites, or of the problems asked for."""
    from repro.runs import fixtures

    run = arguments.run_of(args, progress, timed=False)
    return output.conclude(args, fixtures.measure(run, fixtures.chosen(args.problem, run.size)))
