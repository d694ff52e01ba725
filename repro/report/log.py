"""Sections on the runs themselves: what ran and what did not, how to run one row again, and the files' hashes."""

from __future__ import annotations

import shlex
from typing import Any

from repro.problems import constants
from repro.records import reading
from repro.records.fixture import FixtureRecord
from repro.records.options import Options
from repro.records.result import JudgeResult
from repro.records.row import Row
from repro.report import elements, study
from repro.report.elements import Section
from repro.report.model import Facts
from repro.report.sources import Source
from repro.studies import artifact_study


def bundles(sources: list[Source]) -> Section:
    """The bundles of the document, each with its letter."""
    columns = ["bundle", ("name", "code"), "verb", ("status", "verdict"), "started", "rows", "machine", "stack",
               "isolation", "trust", ("bundle id", "code")]  # fmt: skip
    rows = []
    for source in sources:
        report, engine = source.report, source.report.engine
        stacks = "; ".join(report.machines.values()) or "not recorded"
        rows.append([source.letter, report.bundle, source.verb, report.status, report.started,
                     f"{report.finished} of {report.planned}", source.machine, stacks,
                     f"{engine.get('engine', '?')}, {engine.get('isolation', '?')}", _trust(report),
                     str(source.bundle.manifest.get("bundle_id", "")) or "none"])  # fmt: skip
    text = [f"{s.letter} was stopped: {s.report.error}" for s in sources if s.report.error]
    return elements.section(
        "bundles", "Bundles", text=text, tables=[elements.table("bundles", "What was read", columns, rows)], paper=False
    )


def missing(sources: list[Source]) -> Section:
    """Planned rows without a result that the summary does not name, and why."""
    rows = [[each["row"], source.letter, each["reason"]] for source in sources for each in source.report.not_measured
            if source.measured is None or each["row"] not in source.bundle.rows]  # fmt: skip
    columns = ["row", "bundle", "why"]
    table = elements.table("missing", "Planned rows without a result", columns, rows)
    return elements.section("missing", "Not measured", tables=[table], opened=True)


# What a row has that did not run.
UNRUN: dict[str, Any] = {
    "content": "0" * 16,
    "status": "lost",
    "error": "",
    "wall_s": 0.0,
    "fingerprint_id": None,
    "result": None,
}


def _trust(report: Facts) -> str:
    """How far the judge was from the solutions: every trust level and separation of a bundle."""
    found = {f"{entry.trust}, separation {entry.separation}"
             for arm in report.arms for entry in arm.entries if entry.separation}  # fmt: skip
    return "; ".join(sorted(found))


def run(sources: list[Source]) -> Section:
    """Every planned row: what became of it, how long it took, what was left out, and why."""
    rows = []
    for source in sources:
        for name in source.bundle.manifest["plan"]:
            row = source.rows.get(name)
            if row is None:
                why = str(source.bundle.manifest.get("error") or "the run ended before it")
                rows.append([name, source.letter, "not run", None, None, why])
                continue
            rows.append([name, source.letter, row.status, row.wall_s, row.ended, "; ".join(_notes(row))])
        skipped = source.report.skipped
        rows += [[name, source.letter, "skipped", None, None, why] for name, why in skipped.items()]
    columns = ["row", "bundle", ("status", "verdict"), ("seconds", "seconds"), "ended", "notes, skips and reasons"]
    table = elements.table("log", "Every planned row and what became of it", columns, rows)
    return elements.section("log", "Run log", tables=[table], paper=False)


def _notes(row: Row) -> list[str]:
    if row.status != "done":
        return [row.error]
    notes = [f"{name} is missing" for name in row.missing]
    if row.judged:
        notes += [f"baseline {name} left out: {why}" for name, why in row.judged.timing.left_out.items()]
    reasons: dict[str, list[str]] = {}
    if isinstance(row.result, JudgeResult | FixtureRecord):
        for trial, why in row.result.trials_left_out.items():
            reasons.setdefault(why, []).append(trial)
    notes += [f"trials {', '.join(names)} left out: {why}" for why, names in reasons.items()]
    if row.judged and row.judged.timing.status == "not_converged":
        notes.append("a median was not known to ±0.5 % when the time budget ended")
    if row.judged and row.judged.no_measurement:
        notes.append(f"its times are no measurement: {row.judged.no_measurement}")
    return notes


def again(sources: list[Source]) -> Section:
    """The exact command of every row. Fixtures come first."""
    rows = [
        [name, source.letter, command(source, name)] for source in sources for name in source.bundle.manifest["plan"]
    ]
    columns = ["row", "bundle", ("command", "code")]
    text = [
        "Each command measures one row again, with the options of its run, into a bundle of its own; what needs "
        "fixtures finds those of `repro fixtures`, and a solution's path begins at its bundle. `repro compare` then "
        "holds the two bundles against each other."
    ]
    return elements.section("again", "One row again", text=text, paper=False,
                         tables=[elements.table("again", "The command of every row", columns, rows)])  # fmt: skip


def command(source: Source, name: str) -> str:
    """The command line that measures one planned row of a bundle again."""
    given = source.bundle.manifest["parameters"]
    row = source.rows.get(name) or Row(row=name, **UNRUN)
    words = ["repro", source.verb]
    problem = row.problem or name.split("/")[0]
    if source.verb == "benchmark":
        words += [problem if row.number is None else str(row.number)]
        if not given.get("shipped", True) or given.get("artifacts", "artifacts") != "artifacts":
            words += ["--artifacts", str(given.get("artifacts"))]
        words += [f"--{part}" for part in ("rounds", "profile") if name.endswith(f"/{part}")]
    elif source.verb == "evaluate":
        bare, _, dtype = problem.partition("@")
        words += [_kept(source, row, "solution_", row.file or "SOLUTION.py")]
        words += ["--problem", _kept(source, row, "problem.py", bare)] + (
            ["--dtype", "bfloat16"] if dtype == "bf16" else []
        )
    elif source.verb == "self-test":
        words = ["repro", "evaluate", "--self-test", name]
    else:
        words += ["--problem", problem.partition("@")[0]]
        arm = row.arm or ""
        beside = row.control and ("solutions" in given or "study" in given)
        if beside or row.torch_control:  # it needs no folder and no key
            words += ["--controls", arm]
        elif arm and arm in given.get("solutions", ()):
            words += ["--solutions", f"{arm}={_folder(source, row)}"]
        else:
            words += ["--agent", str(given["agent"])] if given.get("agent") else []
            words += study.flags(reading.agent_config(given["study"]), row) if "study" in given else []
    chosen = {"size": given.get("size"), "device": given.get("device"), "engine": source.report.engine.get("engine")}
    words += [word for flag, value in chosen.items() if value for word in (f"--{flag}", str(value))]
    words += [
        word for name, value in given.get("set", {}).items() for word in ("--set", constants.listed({name: value}))
    ]
    return shlex.join([*words, *_options(source.verb, given)])


def _folder(source: Source, row: Row) -> str:
    """The folder in the bundle that holds a row's solution under its problem's name, or DIR."""
    kept = [given.kept for given in row.inputs or [] if given.kept and given.kept.startswith("solutions/")]
    return f"{source.report.bundle}/{kept[0].rpartition('/')[0]}" if kept else "DIR"


def _kept(source: Source, row: Row, part: str, otherwise: str) -> str:
    """Where the bundle keeps what a row was measured from, or else its name."""
    mine = [given.kept for given in row.inputs or [] if part in given.name and given.kept]
    return f"{source.report.bundle}/{mine[0]}" if mine else otherwise


def _options(verb: str, given: dict[str, Any]) -> list[str]:
    """The judge's options that are not what the verb has by itself."""
    told = given.get("options")
    if not told:
        return []
    whole = Options(
        timing_budget_s=artifact_study.BUDGET_S if verb == "benchmark" else 10.0,
        compile_timeout_s=artifact_study.COMPILE_TIMEOUT_S if verb == "benchmark" else 60.0,
        trust=told.get("trust", "audited"),
    )
    usual = (whole.quick() if given.get("quick") else whole).on(str(given.get("device"))).to_json()
    words = ["--trust", "dev"] if told.get("trust") == "dev" else []
    words += ["--no-timing"] if not told.get("timing", True) else []
    modes = told.get("modes", told.get("baselines", []))
    words += ["--no-compile"] if modes == ["eager"] and usual["modes"] != ["eager"] else []
    words += ["--quick"] * bool(given.get("quick")) + ["--parity"] * bool(told.get("parity"))
    words += ["--parity", "kernelbench"] * bool(told.get("kernelbench"))
    words += ["--strict-nonfinite"] * bool(told.get("strict_nonfinite"))
    for flag, name in (
        ("--timeout-s", "timeout_s"),
        ("--budget-s", "timing_budget_s"),
        ("--compile-timeout-s", "compile_timeout_s"),
    ):
        if name in told and told[name] != usual[name]:
            words += [flag, f"{told[name]:g}"]
    return words


def files(sources: list[Source]) -> Section:
    """The sha256 of every file of every bundle, from its manifest."""
    rows = [[name, source.letter, digest]
            for source in sources for name, digest in source.bundle.manifest.get("files", {}).items()]  # fmt: skip
    text = ["`repro verify` holds these against the files."]
    table = elements.table("files", "Files and their sha256", [("file", "code"), "bundle", ("sha256", "code")], rows)
    return elements.section("files", "Files", text=text if rows else [], tables=[table], paper=False)
