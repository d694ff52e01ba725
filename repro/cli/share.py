"""`repro share`: copies of bundles to give away, without identities or as one archive."""

from __future__ import annotations

import argparse
from pathlib import Path

from repro.cli import arguments, output
from repro.errors import UsageError
from repro.records import wording
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
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign the copies with this private key, a PEM file")
    arguments.json_option(parser, "write a record of each copy")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 2 where a bundle was changed."""
    from repro.bundle import share
    from repro.report.elements import count

    if args.pack and (args.hide or args.sign):
        why = "packing changes nothing"
        raise UsageError("--hide and --sign do not go with --pack", why, "Share it, then pack it.")
    copies = (share.pack(args.bundle, args.output) if args.pack
              else share.share(args.bundle, args.output, hide=args.hide, sign=args.sign))  # fmt: skip
    screen = Screen.of(args)
    for copy in copies:
        screen.line(f"written: {copy.bundle} (bundle id {copy.bundle_id})")
        if copy.shared is not None:
            screen.item(f"identities replaced: {wording.counts(copy.shared.identities) or 'none'}")
            for name, why in copy.shared.left_out.items():
                screen.item(f"left out {name}: {why}")
    output.write_json(args.json, {"schema_version": 1, "bundles": [copy.to_json() for copy in copies]})
    screen.last(f"{count(len(copies), 'bundle')} {'packed' if args.pack else 'copied'}")
    return 0
