"""`repro share`: copies of bundles to give away, without identities or as one archive."""

from __future__ import annotations

import argparse
from pathlib import Path

from repro.cli import arguments, output
from repro.cli.ending import complain
from repro.errors import UsageError
from repro.runs.progress import Progress
from repro.system.screen import Screen

TEXT = "copy bundles without identities, or pack them as they are"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("bundle", type=Path, nargs="+", help="bundles to copy")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder of the copies (default: `shared` or "
                        "`packed` beside each bundle)")  # fmt: skip
    parser.add_argument(
        "--pack", action="store_true", help="copy every byte, as one archive beside its manifest and report"
    )
    parser.add_argument(
        "--hide", action="append", default=[], metavar="NAME", help="replace this name too (repeatable)"
    )
    parser.add_argument(
        "--without", action="append", choices=("texts",), default=[],
        help="texts: keep the hashes of what was judged, not its text",
    )  # fmt: skip
    arguments.json_option(parser, "write a record of each copy")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 2 where a bundle was changed, or a check fails in the shared copy alone."""
    return _pack(args) if args.pack else _share(args)


def _pack(args: argparse.Namespace) -> int:
    from repro.bundle import share
    from repro.report.elements import count

    for option, given in (("--hide", args.hide), ("--without", args.without)):
        if given:
            raise UsageError(f"{option} does not go with --pack", "packing changes nothing", "Share it, then pack it.")
    packed = share.pack(args.bundle, args.output)
    screen = Screen.of(args)
    for copy in packed:
        screen.line(f"written: {copy.bundle} (bundle id {copy.bundle_id}, {copy.bytes / 1e3:.0f} kB)")
    screen.last(f"{count(len(packed), 'bundle')} packed")
    output.write_json(args.json, {"schema_version": 1, "bundles": [copy.to_json() for copy in packed]})
    return 0


def _share(args: argparse.Namespace) -> int:
    from repro.bundle import share
    from repro.report.elements import count

    copies = share.share(args.bundle, args.output, hide=args.hide, texts="texts" not in args.without)
    screen = Screen.of(args)
    for copy in copies:
        counts = ", ".join(f"{n} {kind}" for kind, n in copy.shared.identities.items()) or "none"
        screen.line(f"written: {copy.bundle} (bundle id {copy.bundle_id}); identities replaced: {counts}")
        for name, why in copy.shared.left_out.items():
            screen.item(f"left out {name}: {why}")
        if copy.failed:
            complain(f"in {copy.bundle} alone these checks fail: {', '.join(copy.failed)}")
    output.write_json(args.json, {"schema_version": 1, "bundles": [copy.to_json() for copy in copies]})
    screen.last(f"{count(len(copies), 'bundle')} copied", ", ".join(c.bundle for c in copies))
    return 2 if any(copy.failed for copy in copies) else 0
