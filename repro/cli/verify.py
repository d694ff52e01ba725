"""`repro verify`: every check of bundles, or of a folder of kernels in the published layout."""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from pathlib import Path

from rich.text import Text

from repro.cli import arguments, output
from repro.errors import printable
from repro.runs.progress import Progress
from repro.system.screen import BAD, OPEN, Screen

TEXT = "check bundles or folders of kernels, without running them"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "path", type=Path, nargs="*",
        help="bundles, folders of bundles, or one folder in the published layout (default: the newest bundle)",
    )  # fmt: skip
    arguments.results_option(parser, "bundles")
    parser.add_argument("--key", type=Path, metavar="PUB", help="the public key, a PEM file, that signed the bundles")
    arguments.json_option(parser, "write every check")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 2 where a check fails. An interrupted bundle is whole as far as it goes, and fails nothing."""
    from repro.artifacts import layout

    if len(args.path) == 1 and layout.holds(args.path[0]):
        return _artifacts(args, args.path[0])
    return _bundles(args)


def _bundles(args: argparse.Namespace) -> int:
    from repro.bundle import signature, verify
    from repro.report import terminal, verified

    screen = Screen.of(args)
    paths = verified.bundles(args.path) or [output.newest(args.results).path]
    public = args.key and signature.key(args.key, private=False)
    reports = []
    for path in paths:
        reports.append(verify.verify(path, public))
        terminal.section(verified.section(reports[-1], whole=screen.verbose), screen, titled=False)
    entries = [report.to_json() for report in reports]
    output.write_json(args.json, {"schema_version": verify.SCHEMA_VERSION, "bundles": entries})
    screen.last(verified.summary(reports))
    return 0 if all(report.passed for report in reports) else 2


def _artifacts(args: argparse.Namespace, folder: Path) -> int:
    """Print what a reviewer must know of a folder of kernels. Exit 2 where a finding is an error."""
    from repro.artifacts import lint
    from repro.report.elements import count

    screen = Screen.of(args)
    report = lint.lint(folder)
    tones = {lint.ERROR: BAD, lint.WARNING: OPEN, lint.NOTE: ""}
    for (severity, _), found in itertools.groupby(report.findings, lambda finding: (finding.severity, finding.code)):
        group = list(found)
        for each in group:
            level = Text(f" {severity}: ", tones[severity])
            screen.line(Text.assemble(printable(f"{each.where}:"), level, printable(f"{each.what} [{each.code}]")))
        screen.item(group[0].why)
    sums = Counter(finding.severity for finding in report.findings)
    screen.last(*(count(sums[name], name) for name in tones), f"in {count(len(report.artifacts), 'artifact')}")
    output.write_json(args.json, report.to_json())
    return 2 if report.errors else 0
