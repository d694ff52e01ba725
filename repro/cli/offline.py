"""Verbs that look at what lies on disk and run nothing: their arguments and one function each. `cli` adds them."""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.text import Text

from repro import config
from repro.bundle.write import Bundle, latest
from repro.cli.ending import complain
from repro.errors import ReproError, UsageError
from repro.runs.progress import Progress
from repro.system import jsonio
from repro.system.screen import BAD, OPEN, Column, Screen, shortest

Run = Callable[[argparse.Namespace, Progress], int]
# Longer names of artifacts are cut in the table of findings; --json has them whole.
NAME_COLUMNS = 24
# Rows without a result that `status` lists.
SHOWN = 10
# How many of the newest searches `repro status` names.
SEARCHES = 3
BUNDLES = ("run", "evaluate", "benchmark", "fixtures", "self-test")


def json_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --json."""
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"{what} as JSON")


def results_option(parser: argparse.ArgumentParser, what: str = "bundles") -> None:
    """Adds --results."""
    parser.add_argument("--results", type=Path, default=config.results_dir(), help=f"folder of {what}")


def write_json(path: Path | None, value: Any) -> None:
    """Writes what `--json` asks for. Raises UsageError where that file cannot be written."""
    if path == Path("-"):
        print(jsonio.render(value).decode(), end="")
    elif path is not None:
        try:
            jsonio.write(path, value)
        except OSError as error:
            raise UsageError(f"cannot write {path}", error.strerror or str(error)) from error


def write_text(path: Path, text: str) -> None:
    """Writes a text file. Raises UsageError where that file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}", error.strerror or str(error)) from error


def newest(results: Path) -> Bundle:
    """The newest bundle of a results folder. Raises UsageError where there is none."""
    found = latest(results, BUNDLES)
    if found is None:
        raise UsageError(f"no bundle in {results}", "", "Run `repro run` first, or name a bundle.")
    return found


def add(verb: Callable[[str, str, Run], argparse.ArgumentParser]) -> None:
    """Adds the verbs of this module to a command line."""
    fetch = verb("fetch", "bring a public source below sources/ and check its hash", _fetch)
    fetch.add_argument("name", nargs="?", help="kernelagent-artifacts, kernelbench, ...; without a name, list them all")
    fetch.add_argument(
        "--from", dest="origin", default="", metavar="DIR|URL", help="another copy or address of the source"
    )
    artifacts = verb("artifacts", "check or draw folders in the published layout without running them", _artifacts)
    artifacts.add_argument("action", choices=("lint", "figure"), help="lint: report what a reviewer must know; "
                           "figure: draw the convergence of every trace as SVG")  # fmt: skip
    artifacts.add_argument("folder", type=Path, help="a folder of artifacts, or one of them")
    artifacts.add_argument("name", nargs="*", help="artifacts by number or name (default: all)")
    json_option(artifacts, "lint: write the findings")
    artifacts.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="figure: folder of the pictures (default: here)"
    )
    compare = verb("compare", "compare two bundles row by row, or bundles with the published claims", _compare)
    compare.add_argument("bundle", type=Path, nargs="*", help="A B; with --claims any number (default: the newest)")
    compare.add_argument("--claims", action="store_true", help="compare bundles with every published figure")
    results_option(compare)
    json_option(compare, "write the comparison")
    compare.add_argument("--strict", action="store_true", help="exit 3 where a claim is not reproduced, or a solution "
                         "that is correct in A is not in B")  # fmt: skip
    verify = verb("verify", "check bundles: schemas, hashes, plan, solutions, verdicts, times", _verify)
    verify.add_argument("bundle", type=Path, nargs="*", help="bundles, or folders of bundles (default: the newest)")
    results_option(verify)
    verify.add_argument(
        "--id", default="", metavar="ID", help="the published bundle id, or its beginning, that the bundle must have"
    )
    json_option(verify, "write every check")
    status = verb("status", "show what a run in another terminal does: done, running, failed, expected end", _status)
    status.add_argument(
        "bundle", type=Path, nargs="?", help="a bundle (default: the newest that runs, else the newest)"
    )
    results_option(status)
    json_option(status, "write it")
    bundle = verb("bundle", "copy bundles to give them away", _bundle)
    bundle.add_argument("action", choices=("share", "pack"), help="share: copy with identities replaced by salted "
                        "hashes; pack: copy as one archive beside its manifest and report")  # fmt: skip
    bundle.add_argument("bundle", type=Path, nargs="+", help="bundles to copy")
    bundle.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder of the copies (default: `shared` or "
                        "`packed` beside each bundle)")  # fmt: skip
    bundle.add_argument(
        "--hide", action="append", default=[], metavar="NAME", help="share: replace this name too (repeatable)"
    )
    bundle.add_argument(
        "--no-texts", action="store_true", help="share: keep the hashes of what was judged, not its text"
    )
    bundle.add_argument(
        "--brief",
        action="store_true",
        help="share: leave out the report, telemetry, host's clocks and self-test samples; "
        "of fixtures keep what `repro audit` shows",
    )
    json_option(bundle, "write a record of each copy")


def problems(args: argparse.Namespace, progress: Progress) -> int:
    """The shipped problems and the suites that hold them, or one suite with what its problems take."""
    from repro.problems import catalogue as shipped

    if args.suite:
        return _suite(args, progress)
    suites = shipped.suites()
    member = {i: ", ".join(s for s, of in suites.items() if i in of) for i in shipped.ids()}
    rows = [[i, shipped.load(i).name, member[i]] for i in shipped.ids()]
    screen = Screen.of(args)
    screen.table((Column("id", whole=True), Column("name"), Column("suites", 1)), rows)
    sizes = ", ".join(f"{name} ({len(of)})" for name, of in suites.items())
    screen.last(f"{len(rows)} problems", f"suites: {sizes}")
    return 0


def _suite(args: argparse.Namespace, progress: Progress) -> int:
    """One suite: traffic, arithmetic and memory by runs on the meta device, and what the fixtures on disk say.

    A problem that does not ship is first run at a reduced size, to see whether its batch can be split.
    """
    import torch

    from repro.fixtures import store
    from repro.problems import catalogue, derive, sizes

    torch.set_num_threads(1)
    rows: list[list[str]] = []
    reasons: dict[str, str] = {}
    found = catalogue.suite(args.suite, size=args.size)
    screen = Screen.of(args)
    columns = (Column("id", whole=True), Column("name"), Column("GB", number=True), Column("GFLOP", number=True),
               Column("memory GB", number=True), Column("status", 1))  # fmt: skip
    try:
        with progress.live(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the problem's own code
            for number, problem in enumerate(found, 1):
                progress.at(number, len(found))
                progress.step(problem.key)
                taken: tuple[str, ...] = ("–", "–", "–")
                status = store.status(args.results, problem, args.device)
                try:
                    known = problem
                    if not catalogue.is_shipped(problem):
                        known = derive.complete(sizes.settle(problem, {}, known=False))
                    taken = sizes.listed(known, args.device)
                except Exception as error:  # whatever the problem's own code does, the others are listed
                    status = "not judged"
                    reasons[problem.key] = str(error) if isinstance(error, ReproError) else repr(error)
                rows.append([problem.key, problem.name, *taken, status])
    finally:  # what is known is shown after Ctrl-C too
        screen.table(columns, rows)
        for key, reason in reasons.items():
            screen.item(f"{key}: not judged: {reason}")
    screen.line("GB: inputs, weights and outputs once. Memory: what judging takes at least.", "dim")
    screen.last(f"{len(rows)} problems of {args.suite}", f"{args.size} size on {args.device}")
    return 0


def _fetch(args: argparse.Namespace, progress: Progress) -> int:
    """Without a name: what can be fetched, and what is here."""
    from repro.artifacts import sources

    screen = Screen.of(args)
    if not args.name:
        rows = [[s.name, "yes" if s.folder.is_dir() else "no", s.licence, s.purpose] for s in sources.load().values()]
        columns = (Column("source", whole=True), Column("fetched"), Column("licence", 1), Column("what it is"))
        screen.table(columns, rows)
        screen.last(f"{len(rows)} sources, {sum(row[1] == 'yes' for row in rows)} fetched")
        return 0
    progress.step(f"fetching {args.name}")
    source, before = sources.fetch(args.name, args.origin)
    screen.line(f"commit {source.commit[:12]}, tree {source.tree[:12]}, licence {source.licence}")
    screen.last(f"{source.name} {'was here' if before else 'fetched'} and is verified", shortest(source.folder))
    return 0


def _artifacts(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 2 where a finding is an error: the folder does not say what its tables say."""
    screen = Screen.of(args)
    if args.action == "figure":
        from repro.artifacts import figure

        files, left_out = figure.draw(args.folder, args.name, args.output)
        for name, why in left_out.items():
            complain(f"no figure of {name}: {why}")
        for file in files:
            screen.line(f"written: {shortest(file)}")
        screen.last(f"{len(files)} figures written")
        return 0
    from repro.artifacts import lint
    from repro.report.elements import count

    report = lint.lint(args.folder, args.name)
    tones = {lint.ERROR: BAD, lint.WARNING: OPEN, lint.NOTE: ""}
    columns = (
        Column("severity", whole=True),
        Column("where", least=20),
        Column("what", least=20),
        Column("why", least=24),
        Column("code", 1),
    )
    names = [artifact.problem for artifact in report.artifacts if len(artifact.problem) > NAME_COLUMNS]

    def short(where: str) -> str:
        return functools.reduce(lambda text, name: text.replace(name, name[: NAME_COLUMNS - 1] + "…"), names, where)

    rows = [[Text(f.severity, tones[f.severity]), short(f.where), f.what, f.why, f.code] for f in report.findings]
    screen.table(columns, rows)
    counts = report.counts
    if counts.rounds:
        dtypes = ", ".join(f"{n} {dtype}" for dtype, n in counts.profile_dtypes.items())
        kernels = f"{counts.parents_found} parents found, {counts.repaired} kernels repaired"
        screen.line(f"{counts.rounds} rounds: {kernels}, {counts.profiles} profiles ({dtypes})")
    findings = f"{count(len(report.findings), 'finding')} in {count(len(report.artifacts), 'artifact')}"
    screen.last(count(report.errors, "error"), findings)
    write_json(args.json, report.to_json())
    return 2 if report.errors else 0


def _compare(args: argparse.Namespace, progress: Progress) -> int:
    from repro.analysis import claims, compare, published, records
    from repro.report import claims as drawn
    from repro.report import comparison

    screen = Screen.of(args)
    if args.claims:
        newest = [latest(args.results, (verb,)) for verb in ("run", "benchmark")] if not args.bundle else []
        bundles = [Bundle.open(path) for path in args.bundle] or [bundle for bundle in newest if bundle is not None]
        found = claims.judge(published.load(), [records.read(bundle) for bundle in bundles])
        write_json(args.json, found.to_json())
        _warn(bundles, screen)
        drawn.draw(found, screen)
        return 3 if args.strict and not claims.reproduced(found) else 0
    if len(args.bundle) != 2:
        raise UsageError(
            f"compare needs two bundles, {len(args.bundle)} given", remedy="Name A and B, or add --claims."
        )
    both = [Bundle.open(path) for path in args.bundle]
    compared = compare.compare(*map(records.read, both))
    write_json(args.json, compared.to_json())
    _warn(both, screen)
    comparison.draw(compared, screen)
    return 3 if args.strict and compare.worse(compared) else 0


def _warn(bundles: list[Bundle], screen: Screen) -> None:
    """Says which bundles fail `repro verify`."""
    from repro.report import sources

    for bundle in bundles:
        if failed := sources.failed(bundle):
            where, first = shortest(bundle.path) or bundle.path.name, failed[0].check
            screen.line(f"! {where} fails repro verify ({first}): do not trust its numbers.", BAD)


def _verify(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 2 where a check fails. An interrupted bundle is whole as far as it goes, and fails nothing."""
    from repro.bundle import verify
    from repro.report import verified

    screen = Screen.of(args)
    paths = verified.bundles(args.bundle) or [newest(args.results).path]
    if args.id and len(paths) > 1:
        raise UsageError("--id is of one bundle", f"{len(paths)} were named", "Verify them one by one.")
    reports = []
    for path in paths:
        reports.append(verify.verify(path, args.id).to_json())
        verified.draw(reports[-1], screen)
    write_json(args.json, {"schema_version": verify.SCHEMA_VERSION, "bundles": reports})
    screen.last(verified.summary(reports))
    return 0 if all(report["passed"] for report in reports) else 2


def _status(args: argparse.Namespace, progress: Progress) -> int:
    import time

    from repro.optimize import journal
    from repro.records.wording import listed
    from repro.runs import status
    from repro.runs.progress import spoken

    screen = Screen.of(args)
    searches = [] if args.bundle else sorted(args.results.glob("*-optimize-*"))[-SEARCHES:]
    for folder in searches:
        screen.item(f"{folder.name}: {journal.standing(folder)}")
    try:
        bundle = args.bundle or status.find(args.results)
    except UsageError:
        if searches and not args.json:
            return 0
        raise
    found = status.read(bundle)
    rows = [[listed(lane["what"], 2), spoken(time.time() - lane["since"]), lane["line"]] for lane in found["running"]]
    screen.table((Column("running", whole=True), Column("for", number=True), Column("what it does", 1)), rows)
    if names := found["finished"]:
        screen.line(f"done: {listed(names, len(names) if screen.verbose else 3)}", "dim")
    failed = [[Text(name, BAD), why] for name, why in found["failed"].items()]
    screen.table((Column("not measured", whole=True), Column("why")), failed if screen.verbose else failed[:SHOWN])
    if len(failed) > SHOWN and not screen.verbose:
        screen.line(f"{len(failed) - SHOWN} more are not measured; -v lists them.")
    rest = found["expected_s"]
    screen.last(
        f"{found['status']}: {found['done']} of {found['planned']} rows done",
        f"{len(failed)} not measured" if failed else "",
        f"{len(found['running'])} running" if found["running"] else "",
        f"about {spoken(rest)} left" if rest is not None else "",
        "repeat its command with --resume"
        if found["status"] in ("died", "interrupted", "incomplete", "failed")
        else "",
        shortest(found["bundle"]),
    )
    write_json(args.json, found)
    return 0


def _bundle(args: argparse.Namespace, progress: Progress) -> int:
    """Shares or packs bundles. Exit 2 where a bundle was changed, or a check fails in the shared copy alone."""
    return _share(args) if args.action == "share" else _pack(args)


def _pack(args: argparse.Namespace) -> int:
    from repro.bundle import share

    if args.hide or args.no_texts or args.brief:
        option = "--hide" if args.hide else "--no-texts" if args.no_texts else "--brief"
        raise UsageError(f"{option} is of `bundle share`", "packing changes nothing", "Share the bundle, then pack it.")
    packed = share.pack(args.bundle, args.output)
    screen = Screen.of(args)
    for told in packed:
        screen.line(f"written: {told.bundle} (bundle id {told.bundle_id}, {told.bytes / 1e3:.0f} kB)")
    screen.last(f"{len(packed)} bundle{'' if len(packed) == 1 else 's'} packed")
    write_json(args.json, {"schema_version": 1, "bundles": [told.to_json() for told in packed]})
    return 0


def _share(args: argparse.Namespace) -> int:
    from repro.bundle import share

    done = share.share(args.bundle, args.output, hide=args.hide, texts=not args.no_texts, brief=args.brief)
    screen = Screen.of(args)
    for told in done:
        counts = ", ".join(f"{n} {kind}" for kind, n in told.shared.identities.items()) or "none"
        screen.line(f"written: {told.bundle} (bundle id {told.bundle_id}); identities replaced: {counts}")
        for name, why in told.shared.left_out.items():
            screen.item(f"left out {name}: {why}")
        if told.failed:
            complain(f"in {told.bundle} alone these checks fail: {', '.join(told.failed)}")
    write_json(args.json, {"schema_version": 1, "bundles": [told.to_json() for told in done]})
    screen.last(f"{len(done)} bundle{'' if len(done) == 1 else 's'} copied", ", ".join(told.bundle for told in done))
    return 2 if any(told.failed for told in done) else 0
