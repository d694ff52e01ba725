"""`repro benchmark`: the artifact study."""

from __future__ import annotations

import argparse
from pathlib import Path

from repro import config
from repro.cli import arguments, output
from repro.errors import UsageError
from repro.records import wording
from repro.runs.progress import Progress

TEXT = "run the artifact study: torch, input and optimised kernels"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from repro.studies.artifact_study import OPTIONS

    parser.add_argument("name", nargs="*", help="problems by number or name (default: all)")
    parser.add_argument(
        "--artifacts", type=Path, default=config.ARTIFACTS_DIR,
        help="folder in the published layout (default: the shipped one)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="time for 1.5 s a problem, against eager and torch.compile alone"
    )
    parser.add_argument("--rounds", action="store_true", help="also judge and time the kernel of every round")
    parser.add_argument(
        "--profile", action="store_true",
        help="also read hardware counters of both kernels by Nsight Compute (ncu), in bfloat16 and float32",
    )  # fmt: skip
    arguments.measuring(parser)
    arguments.judging(parser, usual=OPTIONS, parity=True)


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Judge and time every folder."""
    from repro.artifacts import layout
    from repro.engines import resources
    from repro.studies import artifact_study

    layout.find(args.artifacts, args.name)  # wrong use comes before any line on an engine
    options = arguments.options(args)
    if args.size == args.device == "auto" and config.in_container() and not resources.visible():
        raise UsageError(
            "no GPU in this container", "it was started without --gpus all, or the host has none",
            "For the smoke size on the CPU: docker run repro benchmark --device cpu --size smoke",
        )  # fmt: skip
    run = arguments.run_of(args, progress, options.quick() if args.quick else options)
    bundle, entries = artifact_study.run(
        run, args.artifacts, args.name, with_rounds=args.rounds, with_profiles=args.profile
    )
    judged = [kernel for entry in entries for kernel in entry.kernels.values()]
    return output.conclude(args, bundle, [entry.to_json() for entry in entries], judged or [wording.Told("none", [])])
