"""`repro doctor`: what this machine lacks, what it is, and what a dead run left on it."""

from __future__ import annotations

import argparse

from repro.cli import arguments, output
from repro.errors import ReproError
from repro.runs.progress import Progress
from repro.system.jsonio import Json
from repro.system.screen import Screen

TEXT = "check what a run lacks here, or clean up after a dead one"
_FINGERPRINT_S = 120


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
    """Exit 1 where something is missing that the default use needs.

    -v and --json describe the machine too, --json with every value.
    """
    from repro import doctor

    screen = Screen.of(args)
    if args.clean:
        return _clean(screen)
    report = doctor.examine(doctor.Setting(args.engine.partition(":")[0], args.device, args.gpus, args.results))
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


def _machine(args: argparse.Namespace, screen: Screen, progress: Progress) -> Json:
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
    machine = outcome.fingerprint.to_json()
    screen.line(fingerprint.headline(machine))
    return {"fingerprint": machine, "observed": outcome.result.to_json() if outcome.result else None}
