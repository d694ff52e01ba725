"""How a verb ends: the bundle's tables on the terminal, files that were asked for, the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.bundle.write import Bundle, latest
from repro.cli import ending
from repro.errors import UsageError, refusing
from repro.records import wording
from repro.records.base import Record
from repro.system import jsonio
from repro.system.jsonio import Json
from repro.system.screen import Screen

_BUNDLES = ("run", "evaluate", "benchmark", "fixtures", "self-test")


def write_json(path: Path | None, value: Any) -> None:
    """Write what `--json` asks for; `-` is the terminal. Raises UsageError where the file cannot be written."""
    if path == Path("-"):
        print(jsonio.render(value).decode(), end="")
    elif path is not None:
        with refusing(UsageError, f"cannot write {path}"):
            jsonio.write(path, value)


def write_text(path: Path, text: str) -> None:
    """Write a text file. Raises UsageError where it cannot be written."""
    with refusing(UsageError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def listed(bundle: Bundle, what: str, records: Iterable[Record]) -> Json:
    """Return the records of a bundle as `--json` writes them."""
    return {"schema_version": 1, "bundle": str(bundle.path), what: [each.to_json() for each in records]}


def newest(results: Path) -> Bundle:
    """Return the newest bundle of a results folder. Raises UsageError where there is none."""
    bundle = latest(results, _BUNDLES)
    if bundle is None:
        raise UsageError(f"no bundle in {results}", "", "Run `repro run` first, or name a bundle.")
    return bundle


def formats(args: argparse.Namespace) -> list[str]:
    """Return the formats asked for, else markdown and the page, with -o also LaTeX."""
    from repro.report import output

    usual = "md,html" if getattr(args, "output", None) is None else output.USUAL
    return output.formats(getattr(args, "format", None) or usual)


def conclude(
    args: argparse.Namespace, bundle: Bundle, value: Any = None, judged: Iterable[wording.Judged] = (),
    shown: str | None = None,
) -> int:  # fmt: skip
    """Write the report into a bundle, print its table and the last line, write --json, and return the exit code.

    value: what `--json` gets, by default the report. judged: the verdicts that `--strict` looks at. shown: what is
    printed in place of table and last line.
    """
    from repro.report import output, terminal

    document, files = output.into(bundle, ["md"])
    if shown is None:
        screen = Screen.of(args)
        terminal.draw(document, screen, also=("trials",) if getattr(args, "explain", False) else ())
        terminal.last(document, screen, files)
    else:
        print(shown, end="")
    write_json(getattr(args, "json", None), document.to_json() if value is None else value)
    return exit_code(bundle, judged if getattr(args, "strict", False) else ())


def exit_code(bundle: Bundle, judged: Iterable[wording.Judged]) -> int:
    """Where rows were not measured, say why and return 1 (a prerequisite) or 2 (the tool). Else return 3 where a
    verdict is not correct, or 0.

    A solution that this machine cannot judge because it needs CUDA counts neither way.
    """
    plan = bundle.manifest["plan"]
    missing = [row for name in plan if not bundle.done(name) and not (row := bundle.record(name)).left_out]
    if not missing:
        return 3 if any(each.verdict != "correct" and not wording.not_judged(each) for each in judged) else 0
    reason = missing[0].error.rstrip(".")
    unmet = all(row.status == "unmet" for row in missing)
    advice = "" if unmet else "Mend that and repeat with --resume."
    died, options = "signal" in reason or "no outcome" in reason, bundle.manifest["parameters"].get("options", {})
    if died and options.get("trust") == "dev":
        advice = "With --explain the solution runs in that process: without it a crash is a verdict."
    count = f"{len(missing)} of {len(plan)} rows were not measured"
    ending.complain(f"{count}, first {missing[0].row}: {reason}. {advice}".rstrip())
    return 1 if unmet else 2
