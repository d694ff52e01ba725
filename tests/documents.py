"""The generated parts of the documentation, from published bundles, the claims, the parser and the schemas.

A part stands in its document between `<!-- NAME -->` and `<!-- /NAME -->`. `tests/docs/test_docs.py` compares each with
what these functions return; `make docs` rewrites them.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import repro
from repro import config, face
from repro.analysis import claims, published, records
from repro.bundle.write import Bundle
from repro.cli.main import GROUPS, parser
from repro.judge.timing import intervals
from repro.optimize import runner
from repro.optimize.proposers.replay import Recorded
from repro.problems import catalogue
from repro.records import wording
from repro.records.claim import ClaimVerdict
from repro.records.options import Options
from repro.records.schema import RECORDS
from repro.records.verdict import Ratio, Verdict
from repro.report import search
from repro.runs.progress import Progress

PUBLISHED = config.ARTIFACTS_DIR / "results"
RUN = PUBLISHED / "h200-pinned" / "20261130T221458Z-run"
# The published kernels of the artifact study, by machine and stack: one machine each.
THEIRS = {
    "H100": [PUBLISHED / "h100-pinned" / "20261124T055615Z-benchmark"],
    "H200": [PUBLISHED / "h200-pinned" / "20261124T133107Z-benchmark"],
    "H200, newer stack": [PUBLISHED / "h200-newer" / "20261124T032150Z-benchmark"],
}
# The kernels that ship, on the pinned stack. Those on a newer stack are lines of history.csv.
BENCHMARK = PUBLISHED / "h200-pinned" / "20261122T040411Z-benchmark"
NEWER = "h200-newer/20261122T040000Z-benchmark"
BASELINES = {"eager": "eager", "compile": "torch.compile", "best_same_class": "best torch baseline"}
HELP_COLUMNS = 100


def table(rows: list[list[Any]], headers: list[str]) -> str:
    """A GitHub table. Columns are not aligned: their padding was 28 KB of spaces."""
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in [headers, ["---"] * len(headers), *rows])


def link(path: Path, start: Path) -> str:
    """The path of a file or folder as a document in `start` links to it."""
    up = "../" * len(start.relative_to(config.ROOT).parts)
    return up + str(path.relative_to(config.ROOT))


def machine(bundle: Bundle) -> str:
    """The machine and stack of a bundle's first fingerprint."""
    values = next(iter(bundle.fingerprints().values()))["values"]

    def of(name: str) -> Any:
        return values[name]["value"]

    return f"{of('gpu_name')}, driver {of('driver')}, torch {of('torch')}, Triton {of('triton')}"


# -- the agent study


def solutions(path: Path, arm: str) -> dict[str, Verdict]:
    """Problem id -> the row's one result, for the rows of an arm."""
    rows = Bundle.open(path).records().values()
    return {row.problem: row.judged.results[0] for row in rows if row.arm == arm}


def mean(results: dict[str, Verdict], baseline: str) -> float:
    """The geometric mean of speedups. A gain that the judge's clock does not confirm counts as 1."""
    unconfirmed = {"ratio": 1.0, "ci95": [1.0, 1.0]}
    found = [entry.speedup[baseline] for entry in results.values()]
    counted = [unconfirmed if each.word == "UNCONFIRMED" else each.to_json() for each in found]
    return float(intervals.geometric_mean(counted)["ratio"])


def times(value: float) -> str:
    """A speedup with two decimals."""
    return f"{value:.2f}x"


def published_and_measured() -> str:
    """The agent study: the published table beside the hand-written kernels."""
    known = {(claim.id.split("/")[0], claim.problem): claim.value for claim in published.load()}
    ours = solutions(RUN, "oracle")
    rows = []
    for problem, entry in ours.items():
        name = catalogue.load(problem).path.stem.split("_", 2)[2]
        shown = [known[f"agent-speedup-{arm}", problem] for arm in ("baseline", "with-kb")]
        speedups = [entry.speedup[baseline].ratio for baseline in BASELINES]
        rows.append([f"{problem} {name}", *(f"{value:.2f}x" for value in shown), *map(times, speedups)])
    means = [known[f"agent-mean-{arm}", "all"] for arm in ("baseline", "with-kb")]
    last = [*(f"**{value:.2f}x**" for value in means), *(f"**{times(mean(ours, name))}**" for name in BASELINES)]
    rows.append(["**geometric mean**", *last])
    headers = [
        "problem",
        "agent, over eager",
        "agent with knowledge",
        *(f"ours, over {name}" for name in BASELINES.values()),
    ]
    return table(rows, headers)


SIGNS = {"REPRODUCED": "✓", "DIFFERS": "✗", "AMBIGUOUS": "○"}


def signed(side: ClaimVerdict) -> str:
    """A figure with the sign of its verdict."""
    return f"{SIGNS[side.verdict]} {times(side.measured)}"


def read(paths: dict[str, list[Path]]) -> dict[str, list[records.Source]]:
    """The bundles of every stack."""
    return {name: [records.read(Bundle.open(path)) for path in of] for name, of in paths.items()}


def replicated() -> str:
    """The artifact study: published speedups over torch.compile, then a column a machine.

    A cell holds both verdicts of the published kernel and its speedup over the best torch baseline.
    """
    bundles = read(THEIRS)
    rows = []
    for claim in published.load():
        if not claim.id.startswith("artifact-speedup/"):
            continue
        row = [claims.short(claim.problem), f"{claim.value:.2f}x"]
        for of in bundles.values():
            (told,) = claims.judge([claim], of).claims
            (outcome,) = told.outcomes
            both = (signed(outcome.side(side)) for side in claims.SIDES)
            row.append(" / ".join([*both, times(outcome.over_best.ratio)]))
        rows.append(row)
    return table(rows, ["problem", "published", *bundles])


def families() -> str:
    """The artifact study's claims by family, a column a machine. A cell holds both verdicts.

    Families of which no machine can compare anything are named below the table.
    """
    of = [claim for claim in published.load() if claim.study == "artifact"]
    rows = {}
    for bundles in read(THEIRS).values():
        outcomes = {}
        for claim in claims.judge(of, bundles).claims:
            outcomes.setdefault(claim.family, []).extend(claim.outcomes)
        for name, each in outcomes.items():
            both = " / ".join(claims.counted(each, side) for side in claims.SIDES)
            rows.setdefault(name, [f"`{name}`", len(each)]).append(both)
    elsewhere = [row for row in rows.values() if set(row[2:]) == {f"not comparable {row[1]} / not comparable {row[1]}"}]
    compared = table([row for row in rows.values() if row not in elsewhere], ["claims", "n", *THEIRS])
    named = ", ".join(f"{count} of {name}" for name, count, *_ in elsewhere)
    return f"{compared}\n\nNot comparable on any of the three: {named}."


def differences() -> str:
    """Why the two verdicts of a speedup differ, or differ from the study's, by stack."""
    problems = {}
    for stack, bundles in read(THEIRS).items():
        for claim in claims.judge(published.load(), bundles).claims:
            (outcome,) = claim.outcomes
            if claim.id.startswith("artifact-speedup/") and outcome.difference:
                why = f"{stack}: {outcome.difference}."
                problems.setdefault(why, []).append(claims.short(claim.problem))
    return "\n".join(f"- {', '.join(of)}, {why}" for why, of in problems.items())


def rounds_table() -> str:
    """Every round of the published traces: verdicts and the fastest correct round, by machine."""
    rows = {}
    machines = ("H100", "H200")
    for of in machines:
        for name, row in Bundle.open(THEIRS[of][0]).records().items():
            if not name.endswith("/rounds"):
                continue
            found = [entry for entry in row.judged.results if entry.solution.startswith("round_")]
            right = [entry for entry in found if entry.verdict == "correct"]
            best = min(right, key=lambda entry: entry.time_ms.median)
            number = name.split("_")[0]
            rows.setdefault(number, [number]).extend(
                [f"{len(right)} of {len(found)}", best.solution.removeprefix("round_"),
                 f"{best.time_ms.median:.4g}"]
            )  # fmt: skip
    what = ("rounds correct", "fastest round", "its time, ms")
    return table(list(rows.values()), ["problem", *(f"{of}: {column}" for of in machines for column in what)])


def run_table() -> str:
    """Every oracle of the published run."""
    bundle = Bundle.open(RUN)
    rows = []
    for row in bundle.records().values():
        if row.arm != "oracle":
            continue
        entry, baselines = row.judged.results[0], row.judged.baselines
        best = entry.speedup["best_same_class"]
        rows.append(
            [
                row.problem, entry.precision_class, f"{entry.rel_l2:.1e}",
                *(f"{baselines[name].time_ms.median:.4g}" for name in ("eager", "compile")),
                f"{entry.time_ms.median:.4g}", *(interval(entry.speedup[name]) for name in ("eager", "compile")),
                f"{interval(best)} {best.baseline}", best.word, f"{100 * entry.floor_fraction:.0f} %",
            ]
        )  # fmt: skip
    headers = ["problem", "class", "rel. L2", "eager ms", "compile ms", "solution ms", "over eager", "over compile",
               "over best", "word", "of floor"]  # fmt: skip
    over = ", ".join(f"{times(mean(solutions(RUN, 'oracle'), name))} over {said}" for name, said in BASELINES.items())
    where = f"[{RUN.name}]({link(RUN, config.ROOT / 'docs' / 'records')})"
    return f"{where}: {machine(bundle)}.\n\n{table(rows, headers)}\n\nGeometric means over 10 problems: {over}."


def interval(found: Ratio) -> str:
    """A speedup and its 95 % interval."""
    low, high = found.ci95
    return f"{found.ratio:.3g}x [{low:.3g}, {high:.3g}]"


def zeros() -> str:
    """The all-zero solution: its verdicts, and where `allclose` passes."""
    results = solutions(RUN, "nop")
    said = sorted({f"`{entry.verdict}`, relative L2 error {entry.rel_l2:.2f}" for entry in results.values()})
    passes = {
        at: ", ".join(problem for problem, entry in results.items() if entry.legacy[f"allclose_{at}"]) or "none"
        for at in ("1e-2", "1e-4")
    }
    where = ", ".join(f"at {at} on {problems}" for at, problems in passes.items())
    return f"All {len(results)} verdicts: {'; '.join(said)}. `allclose` passes {where}."


# -- the artifact study


def artifact_tables() -> str:
    """The shipped kernels of the artifact study: the pinned stack from its bundle, a newer one from history.csv."""
    bundle = Bundle.open(BENCHMARK)
    rows = []
    for name, row in bundle.records().items():
        kernels = {entry.solution: entry for entry in row.judged.results}
        first, last = kernels["input_kernel"], kernels["optimized"]
        base, best = row.judged.baselines, last.speedup["best_same_class"]
        rows.append(
            [claims.short(name), *(f"{base[each].time_ms.median:.4g}" for each in ("eager", "compile")),
             f"{first.time_ms.median:.4g}", f"{last.time_ms.median:.4g}", interval(last.speedup["compile"]),
             f"{interval(best)} {best.baseline}", f"{100 * last.floor_fraction:.0f} %"]
        )  # fmt: skip
    where = f"[{BENCHMARK.name}]({link(BENCHMARK, config.ROOT / 'docs' / 'records')})"
    pinned = f"On the pinned stack, {where}: {machine(bundle)}.\n\n{table(rows, SHIPPED)}"
    newer = f"On the newer stack, one H200, {NEWER.partition('/')[2]} (figures from history.csv, without intervals)"
    return f"{pinned}\n\n{newer}:\n\n{table(list(remembered(NEWER)), SHIPPED)}"


SHIPPED = ["problem", "eager ms", "compile ms", "input ms", "optimised ms", "over compile", "over best", "of floor"]


def remembered(bundle: str) -> Iterator[list[str]]:
    """The lines of `SHIPPED` for a bundle that is no longer kept, from history.csv."""
    with (PUBLISHED / "history.csv").open(newline="") as stream:
        lines = [line for line in csv.DictReader(stream) if line["bundle"] == bundle]
    first = {line["problem"]: line for line in lines if line["solution"] == "input_kernel"}
    for line in lines:
        if line["solution"] == "optimized":
            shown = [line["eager_ms"], line["compile_ms"], first[line["problem"]]["time_ms"], line["time_ms"]]
            yield [
                claims.short(line["problem"]), *shown, f"{float(line['speedup_compile']):.3g}x",
                f"{float(line['speedup_best']):.3g}x {line['best']}", f"{100 * float(line['floor_share']):.0f} %",
            ]  # fmt: skip


# -- the command line


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Every verb that the help lists, in its order, with its parser."""
    (group,) = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return {name: group.choices[name] for modules in GROUPS.values() for name in modules}


def _options(text: str) -> dict[str, str]:
    """Return an option's words -> its lines, for each option of a help text."""
    return {" ".join(found.split()): found for found in re.findall(r"^  -.*\n(?: {6,}.*\n)*", text, re.MULTILINE)}


def _help(text: str, shared: dict[str, str]) -> str:
    """A verb's help: its usage without options, which follow, and of those that it shares the names alone."""
    head, _, rest = text.partition("\n\n")
    words = re.sub(r" \[-(?:[^][]|\[[^]]*\])*\]", "", " ".join(head.split())).split()
    rest, names = rest.rstrip() + "\n", []
    for told, lines in _options(rest).items():
        flags, what = re.split(r"\s{2,}", lines.strip(), maxsplit=1)
        if told in shared:
            names.append(told.split()[0].rstrip(","))
        rest = rest.replace(lines, "" if told in shared else _filled(f"{flags}  {' '.join(what.split())}"), 1)
    if names:
        rest += _filled(f"as in repro evaluate: {' '.join(names)}")
    return f"{' '.join([*words[:3], '[option ...]', *words[3:]])}\n\n{rest}"


def _filled(text: str) -> str:
    return (
        textwrap.fill(text, HELP_COLUMNS, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
        + "\n"
    )


def command_line() -> str:
    """The help of the tool and of every verb."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(HELP_COLUMNS)
    try:
        every = {f"repro {name}": sub.format_help() for name, sub in verbs().items()}
        shared = _options(every["repro evaluate"])
        parts = [f"## repro\n\n```\n{parser().format_help().rstrip()}\n```"]
        for name, text in every.items():
            told = _help(text, {} if name == "repro evaluate" else shared)
            parts.append(f"## {name}\n\n```\n{told}```")
        return "\n\n".join(parts)
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


# -- JSON


def record_table() -> str:
    """Every record: its name, and where it stands."""
    return table([[f"`{name}`", title] for name, (_, title) in RECORDS.items()], ["record", "is"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def reason_table() -> str:
    """Every reason code with what is printed for it and what to do, unless the row above says the same."""
    rows = []
    above = ""
    for code, reason in wording.REASONS.items():
        said = re.sub(r" *\(\{\w+\}\)|[:,]? *\{\w+\}", "", reason.text).strip() or code.replace("_", " ")
        rows.append(
            [f"`{code}`", _cell(said.strip("()")), "as above" if reason.remedy == above else _cell(reason.remedy)]
        )
        above = reason.remedy
    return table(rows, ["code", "printed", "what to do"])


def result_table() -> str:
    """The fields of one result of `evaluate --json`, without those of older bundles alone."""
    found = {name: " ".join(str(field.description).split()) for name, field in Verdict.model_fields.items()}
    return table([[f"`{n}`", told] for n, told in found.items() if "older bundles" not in told], ["field", "meaning"])


# -- the picture of a search


# The search of L1_82's input kernel that ships beside it.
SEARCH = config.ARTIFACTS_DIR / "82_conv_depthwise_2D_square_input_square_kernel" / "search.tar.xz"


def replayed(run: Path, folder: Path) -> runner.Finished:
    """Repeat the decisions of a recorded search below a folder."""
    chosen, kernel = runner.recorded(run)
    problem = catalogue.resolve(chosen.problem, size=chosen.size, dtype=chosen.dtype)
    return runner.optimize(problem, kernel, chosen, lambda _: [Recorded(n) for n in chosen.proposers], folder, None,
                           Progress(quiet=True), replay=run)  # fmt: skip


def tree() -> str:
    """The candidates of the shipped search of L1_82, as SVG."""
    with runner.unpacked(SEARCH) as run, tempfile.TemporaryDirectory() as folder:
        return search.svg(replayed(run, Path(folder)))


# document -> name of the part -> what it must be
PARTS = {
    "README.md": {"published": published_and_measured},
    "docs/records/results.md": {
        "replicated": replicated,
        "families": families,
        "differences": differences,
        "rounds": rounds_table,
        "run": run_table,
        "zeros": zeros,
        "artifacts": artifact_tables,
    },
    "docs/command-line.md": {"help": command_line},
    "docs/judging.md": {"reasons": reason_table},
    "docs/json.md": {"result": result_table, "records": record_table},
}


def api_page() -> str:
    """docs/api.md: the names that `import repro` gives, with their docstrings."""
    head = inspect.getdoc(face) or ""
    title = "# From Python\n\nWritten by `make docs` from `repro/face.py`; the tests run every example.\n"
    records = (
        "## Records\n\n`Verdict`, and what else is returned, are the records of [json.md](json.md): the same "
        "fields, as attributes. `Options` says how solutions are judged and timed:\n"
    )
    options = [
        [f"`{name}`", _default(field.default), " ".join(str(field.description).split())]
        for name, field in Options.model_fields.items()
    ]
    shown = {name: getattr(repro, name) for name in repro.__all__ if name not in ("Options", "Verdict", "__version__")}
    in_order = sorted(shown.items(), key=lambda each: inspect.getsourcelines(each[1])[1])
    parts = [_described(name, value) for name, value in in_order]
    return "\n".join([title, _prose(head), "", *parts, records, table(options, ["option", "default", "meaning"]), ""])


def _default(value: Any) -> str:
    return f"`{', '.join(value)}`" if isinstance(value, tuple) else f"`{value}`"


def _described(name: str, value: Any) -> str:
    """The section of one name; a class has its methods in it."""
    lines = [
        f"## {name}",
        "",
        *([] if value is face.Problem else [_signature(name, value), ""]),
        _prose(inspect.getdoc(value) or ""),
        "",
    ]
    if inspect.isclass(value):
        for member, found in vars(value).items():
            function = found.__func__ if isinstance(found, staticmethod) else found
            if inspect.isfunction(function) and not member.startswith("_"):
                lines += [_signature(f".{member}", function), "", _prose(inspect.getdoc(function) or ""), ""]
    return "\n".join(lines)


def _signature(name: str, value: Any) -> str:
    parameters = [each for each in inspect.signature(value).parameters.values() if each.name != "self"]
    words, starred = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            words, starred = [*words, "*"], True
        star = "*" if each.kind is each.VAR_POSITIONAL else ""
        words.append(star + each.name + ("" if each.default is each.empty else f"={each.default!r}"))
    return f"**`{name}({', '.join(words)})`**"


def _prose(text: str) -> str:
    """A docstring as markdown: its examples and its indented code become blocks."""
    lines, block = [], False
    for line in text.splitlines():
        code = line.startswith((">>> ", "... ", "    ")) or (block and bool(line.strip()))
        if code != block:
            lines.append("```python" if code else "```")
        block = code
        lines.append(line.removeprefix("    ") if code and not line.startswith((">>> ", "... ")) else line)
    return "\n".join([*lines, "```"] if block else lines).replace("```\n\n```python\n", "\n")


FILES = {
    "docs/api.md": api_page,
    "docs/records/optimise-82.svg": tree,
}


def block(name: str) -> re.Pattern[str]:
    """Where a part stands in its document."""
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.S)
