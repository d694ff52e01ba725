"""`repro doctor`: what this machine lacks, what it is, and what a dead run left on it."""

from __future__ import annotations

import argparse
from typing import Any

from repro.cli import arguments, output
from repro.errors import ReproError
from repro.records.fingerprint import Fingerprint
from repro.runs.progress import Progress
from repro.system.screen import Column, Screen

TEXT = "check what this machine lacks for a run, describe it, or clean up after a dead run"
_SHOWN_CHARS, _FINGERPRINT_S = 100, 120


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    arguments.place(parser)
    arguments.results_option(parser)
    parser.add_argument(
        "--clean",
        action="store_true",
        help="remove compiled baselines, and folders, containers and volumes that a dead run left behind",
    )
    arguments.json_option(parser, "write every check, and the fingerprint of GPU, driver, software and container")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 1 where something is missing that the default use needs. -v and --json describe the machine too."""
    from repro import doctor

    screen = Screen.of(args)
    if args.clean:
        return _clean(screen)
    engine = args.engine.partition(":")[0]
    report = doctor.examine(doctor.Setting(engine, args.device, args.gpus, args.results))
    if args.json or screen.verbose:
        held = any(check["check"] == "lease" and check["status"] == "warn" for check in report["checks"])
        busy = {"fingerprint": None, "why": "another run holds the GPU"}  # a job would wait for its end
        report |= busy if held else _machine(args, screen, progress)
    output.write_json(args.json, report)
    doctor.draw(report, screen)
    return 0 if report["ready"] else 1


def _clean(screen: Screen) -> int:
    from repro import config
    from repro.engines import docker, local

    removed = [f"folder {path}" for path in local.sweep(config.compiled_dir())]
    for name in removed:
        screen.line(f"removed {name}")
    containers = docker.collect_garbage()
    for name in containers:
        screen.line(f"removed {name}")
    screen.last(f"{len(removed) + len(containers)} removed")
    return 0


def _machine(args: argparse.Namespace, screen: Screen, progress: Progress) -> dict[str, Any]:
    """Return the fingerprint as a job sees it, with what the job observed, or why there is none."""
    from repro import fingerprint
    from repro.records.job import Job

    try:
        engine = arguments.engine_of(args, progress)
        job = Job("fingerprint", "fingerprint", device=engine.device, timeout_s=_FINGERPRINT_S)
        (outcome,) = engine.submit([job], progress.step)
    except ReproError as error:
        return {"fingerprint": None, "why": str(error)}
    if outcome.fingerprint is None:
        return {"fingerprint": None, "why": outcome.error}
    if screen.verbose:
        _draw(outcome.fingerprint, screen)
    machine = outcome.fingerprint.to_json()
    screen.line(fingerprint.headline(machine))
    return {"fingerprint": machine, "observed": outcome.result.to_json() if outcome.result else None}


def _draw(machine: Fingerprint, screen: Screen) -> None:
    """Print every value; `--json` holds long ones whole."""
    rows = []
    for name, found in machine.values.items():
        text = str(found.value if found.value is not None else found.status)
        shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
        rows.append([name, shown, found.klass, found.source])
    columns = (Column("name", whole=True), Column("value"), Column("class", 2, whole=True), Column("source", 1))
    screen.table(columns, rows)
