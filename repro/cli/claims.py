"""`repro claims`: fetch the published folder, measure it by both protocols, and judge every claim."""

from __future__ import annotations

import argparse

from repro.cli import arguments, output
from repro.errors import UsageError
from repro.runs.progress import Progress
from repro.system.screen import Screen

TEXT = "test every published figure of the artifact study"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", nargs="*", help="problems by number or name (default: all)")
    parser.add_argument("--from", dest="origin", default="", metavar="DIR|URL",
                        help="another copy or address of the published folder")  # fmt: skip
    arguments.measuring(parser)
    arguments.json_option(parser, "write every claim with its verdicts")
    parser.add_argument("--strict", action="store_true", help="exit 3 where a claim is not reproduced")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Measure with rounds and profiles, and hold every figure against its claim."""
    from repro.analysis import claims as replication
    from repro.analysis import published, records
    from repro.artifacts import sources
    from repro.report import output as reports
    from repro.report import terminal
    from repro.studies import artifact_study

    measuring = arguments.run_of(args, progress, artifact_study.OPTIONS.but(parity=True))
    if measuring.engine.device == "cpu" and args.device == "auto":
        raise UsageError("no GPU here", "the published kernels run on CUDA alone",
                         "`repro verify DIR` checks their folder without one.")  # fmt: skip
    source, _ = sources.fetch(artifact_study.PUBLISHED, args.origin)
    bundle, _ = artifact_study.run(measuring, source.folder, args.name, with_rounds=True, with_profiles=True)
    declared = [claim for claim in published.load() if claim.study == "artifact"]
    judged = replication.judge(declared, [records.read(bundle)])
    _, files = reports.into(bundle, output.formats(args))
    terminal.draw_claims(judged, Screen.of(args), report=reports.first(files))
    output.write_json(args.json, judged.to_json())
    return output.exit_code(bundle, ()) or (3 if args.strict and not replication.reproduced(judged) else 0)
