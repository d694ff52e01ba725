"""A report on the terminal: banners, one table of what was measured, why rows are wrong, and with `-v` every section.

The tables are drawn from `reports`, the facts of each bundle; sections are drawn as every other renderer draws them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from repro.records import wording
from repro.records.verdict import Ratio, Speedup
from repro.report import cells, output, parity, study
from repro.report.document import Document
from repro.report.elements import Cell, Section, Table
from repro.report.model import Arm, Artifact, Facts, Kernel, Mean, Solution
from repro.report.summary import BASELINES, OVER, named
from repro.studies import artifact_study
from repro.system.screen import BAD, GOOD, OPEN, SIGNS, Column, Screen

Cells = list[Text | str | None]
TONES = {"good": GOOD, "bad": BAD, "open": OPEN}
KINDS = {"error": BAD, "warning": OPEN, "note": "dim"}
KERNELS = {"input_kernel": "input kernel", "optimized": "optimised kernel"}
DOUBT = " ?"


def draw(document: Document, screen: Screen, *, tables: bool = True) -> None:
    """Print a whole document except its last line. tables: not only its banners."""
    for banner in document.banners:
        screen.line(banner.text, KINDS[banner.kind])
    for facts in document.reports if tables else []:
        summary(facts, screen)
    if screen.verbose:
        for part in document.sections:
            section(part, screen)


def last(document: Document, screen: Screen, files: list[Path]) -> None:
    """The last line: the verdict, and the file that a reader opens: the page where it was written, else markdown."""
    screen.last(*verdict(document), report=output.first(files))


def verdict(document: Document) -> list[str]:
    """The parts of the last line."""
    reports = document.reports
    if len(reports) > 1:
        return [str(document.headline.text)]
    broken = ["fails verification, do not trust its numbers"] if not document.verified else []
    return broken + [part for facts in reports for part in _verdict(facts)]


# -- the last line


def _verdict(facts: Facts) -> Iterator[str]:
    if facts.verb == "fixtures":
        usable = sum(not fixture.refused for fixture in facts.fixtures)
        yield f"{usable} of {facts.planned} fixtures usable"
    elif facts.verb == "self-test":
        yield _judged(facts)
    elif facts.verb == "benchmark":
        kernels = [kernel for artifact in facts.artifacts for kernel in artifact.kernels.values()]
        yield wording.counted(kernels).replace(" correct", " kernels correct", 1)
        yield _means(facts.benchmark) if facts.measurement else ""
    else:
        arms = [arm for arm in facts.arms if not (arm.control or arm.torch_control)] or facts.arms
        for arm in arms:
            name = f"{arm.name}: " if len(arms) > 1 else ""
            yield name + wording.counted(arm.entries)
            if (means := _means(arm.geometric_mean)) and facts.measurement:
                yield name + means
        for arm in facts.arms if facts.measurement else []:
            if arm.torch_control and arm not in arms and "eager" in arm.geometric_mean:
                yield f"no kernel, {arm.name}: {arm.geometric_mean['eager'].ratio:.2f}x over eager"
    if facts.finished < facts.planned:
        yield f"{facts.finished} of {facts.planned} rows measured"
    if not facts.measurement and facts.verb in OVER:
        yield "times are not a measurement"


def _means(means: dict[str, Mean]) -> str:
    """`3.97x over eager, 1.09x over the best torch baseline`."""
    shown = [name for name in ("eager", "best_same_class") if name in means]
    parts = [(f"{means[name].ratio:.2f}x over {BASELINES[name]}", means[name]) for name in shown]
    return ", ".join(told + f" ({mean.n} of {mean.of})" * (mean.n < mean.of) for told, mean in parts)


def _judged(facts: Facts) -> str:
    """`247 cases: 201 caught, 4 no time bought, 46 accepted, 0 wrong; 8 skipped`."""
    wrong = sum(bool(case.complaints) for case in facts.cases)
    words = Counter(case.outcome for case in facts.cases if not case.complaints)
    counts = [f"{n} {word}" for word, n in words.items()] + [f"{wrong} wrong"]
    skipped = f"; {len(facts.skipped)} skipped" if facts.skipped else ""
    return f"{len(facts.cases)} case{'' if len(facts.cases) == 1 else 's'}: {', '.join(counts)}{skipped}"


# -- the tables of a bundle


def summary(facts: Facts, screen: Screen) -> None:
    """What one bundle says, as one table a bundle or arm, and the reasons of what is not correct."""
    machines = ", ".join(dict.fromkeys(facts.machines.values()))
    screen.line(f"repro {facts.verb}, {facts.bundle}" + (f": {machines}" if machines else ""), "dim")
    if facts.error:
        screen.line(f"The run is {facts.status}: {facts.error}", OPEN)
    if facts.verb == "fixtures":
        _fixtures(facts, screen)
    elif facts.verb == "self-test":
        _cases(facts, screen)
    elif facts.verb == "benchmark":
        _artifacts(facts, screen)
    else:
        for arm in facts.arms:
            _arm(arm, screen, timed=facts.measurement)
        if facts.study:
            _compared(facts.study, screen)
    reasons = Counter(entry["reason"] for entry in facts.not_measured)
    first = {entry["reason"]: entry["row"] for entry in reversed(facts.not_measured)}
    for reason, count in reasons.items():
        more = f" and {count - 1} more" if count > 1 else ""
        screen.item(f"{first[reason]}{more}: not measured: {reason}", Text(SIGNS[OPEN], OPEN))


COMPARED = [
    Column("other over base", whole=True),
    Column("ratio", number=True),
    Column("sign-flip p", 1, number=True),
    Column("detectable", number=True),
    Column("problems", 2, number=True),
]


def _compared(found: study.Study, screen: Screen) -> None:
    """Every pair of arms, paired by problem, and what is in no number."""
    rows = [
        [f"{each.other} over {study.named(each.base, found)}", _ratio(each),
         f"{each.sign_flip.p:.3f}", f"{each.detectable:.2f}x" if each.detectable else None,
         str(each.n)]
        for each in found.comparisons
    ]  # fmt: skip
    screen.table(COMPARED, rows, "Arms paired by problem, with 95 % intervals")
    if rows:
        screen.line("detectable: the ratio that 80 % of such studies would find; a failure is 1x.", "dim")
    for line in study.notes(found):
        screen.line(line)


def _arm(arm: Arm, screen: Screen, *, timed: bool) -> None:
    if arm.control and not screen.verbose:
        entries = arm.entries
        refused = sum(entry.verdict in ("incorrect", "rejected") for entry in entries)
        tone, told = (GOOD, "as expected") if refused == len(entries) else (BAD, "expected: all of them")
        told = f"negative control {arm.name}: {refused} of {len(entries)} refused, {told}"
        screen.line(Text(f"{SIGNS[tone]} {told}", tone))
        return
    title = f"{arm.name}: {arm.label}" if arm.name and arm.label else arm.name
    entries = arm.entries
    solutions = not arm.name and any(entry.solution for entry in entries)
    columns = [Column("problem", whole=True), *([Column("solution", least=12)] if solutions else []),
               Column("verdict", whole=True)]  # fmt: skip
    rows: list[Cells] = []
    beside = any(entry.kernelbench for entry in entries)
    shown = screen.first(entries, lambda entry: entry.verdict == "correct")
    for entry in shown:
        lead: Cells = [_repeat(entry), *([entry.solution] if solutions else []), _word(entry)]
        lead += [parity.kernelbench(entry)] * beside
        rows.append([*lead, *(_times(entry) if timed and not arm.control else []), *_distance(entry)])
    columns += [Column("KernelBench", 1, whole=True)] * beside
    columns += TIMES if timed and not arm.control else []
    screen.table([*columns, *DISTANCE], rows, title)
    screen.more(entries, shown)
    for entry in entries:
        _why(" ".join(filter(None, (_repeat(entry), entry.solution if solutions else ""))), entry, screen)
    _legend(rows, screen)
    if beside:
        screen.line(parity.sentence(entries))
    if timed and any(entry.timing_status == "not_converged" for entry in entries):
        screen.line("* the 95 % interval of a median was still wider than ±0.5 % when the time budget ended.", "dim")


def _repeat(entry: Solution) -> str:
    """The problem, with its repeat after the first."""
    return str(entry.problem) + (f" #{entry.repeat}" if entry.repeat else "")


def _legend(rows: list[Cells], screen: Screen) -> None:
    if any(isinstance(cell, str) and cell.endswith(DOUBT) for row in rows for cell in row):
        screen.line("? faster by the solution's own clock, which the judge's clock cannot confirm; 1x in means.", "dim")


TIMES = [Column("ms", number=True), Column("over eager", number=True), Column("over best", 1, number=True),
         Column("over compile", 2, number=True), Column("best baseline", 2, whole=True),
         Column("of floor", 3, number=True), Column("eager ms", 6, number=True), Column("compile ms", 7, number=True),
         Column("own kernels", 8, number=True), Column("word", 9, whole=True)]  # fmt: skip
DISTANCE = [
    Column("class", 4, whole=True),
    Column("relative L2 error", 5, number=True),
    Column("margin", 10, number=True),
]


def _times(entry: Solution) -> Cells:
    if entry.verdict == "not measured" or entry.no_measurement:
        return [None] * len(TIMES)
    speedup, best = entry.speedup, entry.speedup.get("best_same_class")
    star = "" if entry.timing_status in ("converged", "not_timed") else " *"
    ms = cells.text("ms", entry.solution_ms) + star if entry.solution_ms is not None else None
    return [ms, _ratio(speedup.get("eager")), _ratio(best), _ratio(speedup.get("compile")),
            best.baseline if best else None, cells.text("percent", entry.floor_fraction),
            cells.text("ms", entry.eager_ms), cells.text("ms", entry.compile_ms),
            cells.text("percent", entry.own_kernel_share), entry.word]  # fmt: skip


def _distance(entry: Solution) -> Cells:
    margin = None if entry.margin is None else f"{entry.margin:.0f}"
    return [entry.precision_class, cells.text("scientific", entry.rel_l2), margin]


def _ratio(found: Ratio | study.Paired | None) -> str | None:
    """A speedup with its 95 % interval, where it has one."""
    if not found:
        return None
    edges = ", ".join(_short(edge) for edge in found.ci95 or ())
    return (
        f"{_short(found.ratio)}x"
        + f" [{edges}]" * bool(edges)
        + (DOUBT if isinstance(found, Speedup) and found.word == "UNCONFIRMED" else "")
    )


def _short(ratio: float) -> str:
    """A ratio with three digits."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def _word(entry: wording.Judged) -> Text:
    return _sign(entry).append(f" {wording.word(entry)}")


def _sign(entry: wording.Judged) -> Text:
    tone = TONES[cells.tone(wording.word(entry))]
    return Text(SIGNS[tone], tone)


def _why(name: str, entry: Solution | Kernel, screen: Screen) -> None:
    """Why one solution is not correct or has no times, and what to do."""
    if isinstance(entry, Solution) and entry.no_measurement:
        screen.item(f"{name}: times are no measurement: {entry.no_measurement}", Text(SIGNS[OPEN], OPEN))
    for label in sorted(set(entry.labels if isinstance(entry, Solution) else ()) & set(wording.FINDINGS)):
        screen.item(f"{name}: {label}: {wording.FINDINGS[label]}", Text(SIGNS[OPEN], OPEN))
    if entry.verdict in ("correct", "not measured"):
        return
    advice = wording.remedy(entry.reasons[0]) if entry.reasons else ""
    told = wording.why(entry) or entry.why
    screen.item(f"{name}: {told}." + (f" {advice}" if advice else ""), _sign(entry))


def _artifacts(facts: Facts, screen: Screen) -> None:
    timed = facts.measurement
    rows = []
    for artifact in facts.artifacts:
        kernels = artifact.kernels
        words = [_word(kernels[name]) if name in kernels else None for name in KERNELS]
        rows.append([named(artifact.problem), *words, *(_artifact(artifact) if timed else [])])
    columns = [Column("problem", least=14), Column("input", 1, whole=True), Column("optimised", whole=True)]
    screen.table([*columns, *(ARTIFACT_TIMES if timed else [])], rows)
    _legend(rows, screen)
    for artifact in facts.artifacts:
        for name, kernel in artifact.kernels.items():
            _why(f"{artifact.problem}, {KERNELS.get(name, name)}", kernel, screen)
        told = [reason for reason in artifact.reasons if not reason.startswith(tuple(artifact.kernels))]
        for reason in told if screen.verbose or not artifact.kernels else []:
            screen.item(f"{artifact.problem}: {reason}")
    _parity(facts.artifacts, screen)
    for artifact in facts.artifacts:
        _rounds(artifact, screen)
    _profiles(facts.artifacts, screen)


ARTIFACT_TIMES = [
    Column("ms", number=True), Column("over eager", number=True), Column("over best", number=True),
    Column("over compile", 2, number=True), Column("input ms", 3, number=True), Column("eager ms", 4, number=True),
    Column("compile ms", 5, number=True), Column("of floor", 6, number=True), Column("best baseline", 7, whole=True),
]  # fmt: skip


def _artifact(artifact: Artifact) -> Cells:
    optimized = artifact.kernels.get("optimized")
    if artifact.no_measurement or not optimized:
        return [None] * 9
    speedup, best = optimized.speedup, artifact.best_baseline
    others = artifact.input_kernel_ms, artifact.eager_ms, artifact.compile_ms
    return [cells.text("ms", artifact.optimized_ms), _ratio(speedup.get("eager")), _ratio(best),
            _ratio(speedup.get("compile")), *(cells.text("ms", each) for each in others),
            cells.text("percent", optimized.floor_fraction), best.baseline if best else None]  # fmt: skip


def _parity(artifacts: list[Artifact], screen: Screen) -> None:
    """The published protocol's times beside ours, where `--parity` took them."""
    found = [(a, a.parity) for a in artifacts if a.parity is not None and not a.no_measurement]
    if not any(each.measurement for _, each in found):
        if any(a.parity is not None for a in artifacts):
            screen.line(parity.UNMEASURED, "dim")
        return
    rows = []
    for a, each in found:
        times = [" / ".join(cells.text("ms", value) for value in pair) for pair in each.ms.values()]
        speedups = " / ".join("–" if value is None else f"{value:.2f}x" for value in each.speedup)
        rows.append([_number(a), speedups, times[-1], *times[:-1]])
    columns = [Column("problem", whole=True), Column("speedup", number=True), Column("optimised ms", number=True),
               Column("eager ms", 1, number=True), Column("compile ms", 2, number=True),
               Column("input ms", 3, number=True)]  # fmt: skip
    screen.table(columns, rows, "By the published protocol (do_bench, one process, nothing verified) / by ours")


def _number(artifact: Artifact) -> str:
    """What an artifact's name begins with, its number: short, for a second table."""
    return str(artifact.problem).partition("_")[0]


def _profiles(artifacts: list[Artifact], screen: Screen) -> None:
    """How many profiles there are; each artifact's line where the screen is verbose, or none was taken."""
    found = {_number(artifact): artifact.profiles for artifact in artifacts}
    every = [each for of in found.values() for each in of]
    taken = sum(each.state == "profiled" for each in every)
    if taken and not screen.verbose:
        screen.item(f"profiles: {taken} of {len(every)} taken; the report has them")
        return
    for number, of in found.items():
        if line := artifact_study.profiles_line([*of]):
            screen.item(f"profiles of {number}: {line}")


def _rounds(artifact: Artifact, screen: Screen) -> None:
    """The rounds of a search, where `--rounds` judged them: one line, and every kernel where the screen is verbose."""
    rounds = [each for each in artifact.rounds if each.round]
    if not rounds:
        return
    if not screen.verbose:
        correct = sum(each.verdict == "correct" for each in rounds)
        told = f"rounds of {_number(artifact)}: {correct} of {len(rounds)} correct"
        if fastest := [each for each in rounds if each.best]:
            gain = f", {_ratio(fastest[-1].over_input)} over input" if fastest[-1].over_input else ""
            told += f", fastest {fastest[-1].round}{gain}"
        screen.item(told)
        return
    rows = []
    for each in artifact.rounds:
        time = each.time_ms.median if each.time_ms else None
        best = Text(f"{SIGNS[GOOD]} best so far", GOOD) if each.best else None
        times = [cells.text("ms", time), cells.text("ms", each.published_ms), _ratio(each.over_input)]
        rows.append(
            [str(each.round) if each.round else "input", _word(wording.Told(each.verdict, [])), *times, best, each.why]
        )
    columns = (Column("round", whole=True), Column("verdict", whole=True), Column("ms", number=True),
               Column("published ms", 1, number=True), Column("over input", number=True),
               Column("", 2, whole=True), Column("why", 3, least=24))  # fmt: skip
    screen.table(columns, rows, f"Rounds of {artifact.problem}")


def _fixtures(facts: Facts, screen: Screen) -> None:
    columns = (Column("problem", whole=True), Column("verdict", whole=True), Column("margin", number=True),
               Column("best cheat", 1, whole=True), Column("s", 2, number=True), Column("eager ms", 3, number=True),
               Column("input cases", 4))  # fmt: skip
    rows = []
    shown = screen.first(facts.fixtures, lambda each: each.margin)  # a cheat comes nearest to passing on the first
    for each in shown:
        word = Text(f"{SIGNS[BAD]} refused", BAD) if each.refused else Text(f"{SIGNS[GOOD]} usable", GOOD)
        rows.append([each.problem, word, f"{each.margin:.1f}", each.best_cheat or "–",
                     "–" if each.build_s is None else f"{each.build_s:.1f}",
                     cells.text("ms", each.eager_ms), ", ".join(each.trials)])  # fmt: skip
    screen.table(columns, rows)
    screen.more(facts.fixtures, shown)
    for each in facts.fixtures:
        if each.refused:
            screen.item(f"{each.problem}: refused: {each.refused}", Text(SIGNS[BAD], BAD))
    screen.line("Margin: the best cheat's error over the worst honest kernel's, in multiples of the limit.", "dim")


def _cases(facts: Facts, screen: Screen) -> None:
    """Counts by kind, then only what is wrong, and why cases were skipped; every case where the screen is verbose."""
    cases, skipped = facts.cases, facts.skipped
    suites = sorted({name.partition("/")[0] for name in [*skipped, *(case.case for case in cases)]})
    words = list(dict.fromkeys(case.outcome for case in cases if not case.complaints))
    rows = []
    for suite in suites:
        mine = [case for case in cases if case.case.startswith(f"{suite}/")]
        counts = Counter(case.outcome for case in mine if not case.complaints)
        left = sum(name.startswith(f"{suite}/") for name in skipped)
        wrong = len(mine) - counts.total()
        rows.append([suite, str(len(mine)), *(str(counts[word]) for word in words),
                     Text(str(wrong), BAD if wrong else ""), str(left)])  # fmt: skip
    screen.table(
        [Column("suite", whole=True), *(Column(title, number=True) for title in ("cases", *words, "wrong", "skipped"))],
        rows,
    )
    for case in cases:
        if case.complaints:
            screen.item(f"{case.case} ({case.problem}): {'; '.join(case.complaints)}", Text(SIGNS[BAD], BAD))
    for why, count in Counter(skipped.values()).items():
        screen.item(f"{count} skipped: {why}", Text(SIGNS[OPEN], OPEN))
    if screen.verbose:
        every = [[c.case, c.problem, "; ".join(c.complaints) or c.outcome,
                  "; ".join(map(wording.reason, c.reasons[:1]))] for c in cases]  # fmt: skip
        columns = (Column("case", least=24), Column("problem", 2, whole=True), Column("outcome"), Column("reason", 1))
        screen.table(columns, every, "Every case")


# -- sections of a document


def section(part: Section, screen: Screen) -> None:
    """A section: its text, the words of its figures, its tables."""
    screen.title(part.title)
    for text in part.text:
        screen.line(text)
    for figure in part.figures:
        screen.line(f"Figure, {figure.title}: {figure.alt}", "dim")
    screen.line()
    for each in part.tables:
        table(each, screen)


def table(part: Table, screen: Screen) -> None:
    """A table of a document. The first column and verdicts stay; of the others the last go first."""
    kinds = [head.kind for head in part.columns]
    kept = [at for at, kind in enumerate(kinds) if kind != "bar"]  # a bar repeats the number beside it
    columns = []
    for at in kept:
        verdict = kinds[at] == "verdict"
        columns.append(Column(part.columns[at].title, 0 if at == 0 or verdict else at,
                              number=cells.numeric(kinds[at]), least=24 if verdict else 16))  # fmt: skip
    rows = [[_cell(kinds[at], row[at]) for at in kept] for row in part.rows]
    screen.table(columns, rows, part.caption)


def _cell(kind: str, value: Cell) -> Text | str | None:
    text = cells.text(kind, value)
    return Text(text, TONES[cells.tone(value)]) if kind == "verdict" and text != cells.EMPTY else text
