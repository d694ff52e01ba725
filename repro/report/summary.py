"""The head of a document: title, headline, banners, cards, and the one table and figure that are read first."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from repro.analysis import claims
from repro.artifacts import layout
from repro.problems import catalogue
from repro.records import wording
from repro.records.claim import Claim, JudgedClaims
from repro.records.verdict import CaseOutcome, Speedup
from repro.report import cells, elements
from repro.report.elements import Banner, Card, Cell, Figure, Forest, ForestRow, Kind, Point, Quantity, Section, Table
from repro.report.model import Artifact, Kernel, Mean, Solution
from repro.report.sources import Source

TITLES = {"run": "Agent study", "evaluate": "Judged solutions", "benchmark": "Artifact study", "fixtures": "Fixtures",
          "self-test": "Self-test of the judge"}  # fmt: skip
BASELINES = {"eager": "eager", "compile": "torch.compile", "best_same_class": "the best torch baseline"}
# Verb -> the baseline that its published figures are over, and the study that they are of.
OVER = {"run": "eager", "evaluate": "eager", "benchmark": "compile"}
STUDY = {"run": "agent", "benchmark": "artifact"}
ARMS = ("baseline", "with_kb")
# A bar reaches from this ratio to its inverse at least.
NARROWEST = 2.0


@dataclass(frozen=True)
class Line:
    """One row of the summary: a solution of a problem in one bundle, its repeats together.

    measured: speedup over the baseline `over`; best: over the best torch baseline of its class; protocol: over `over`
    by the published protocol, which has no interval. reproduced, holds: the two verdicts of the claim that it tests.
    """

    source: Source
    problem: str
    solution: str
    verdict: str
    rel_l2: float | None = None
    klass: str | None = None
    published: str = ""
    protocol: float | None = None
    measured: Quantity | None = None
    best: Quantity | None = None
    ms: float | None = None
    reproduced: str = ""
    holds: str = ""
    remark: str = ""
    torch_control: bool = False

    @property
    def over(self) -> str:
        return BASELINES[OVER[self.source.verb]]


def named(key: str) -> str:
    """A problem by id and name: `L1_36 RMSNorm`; of a folder `77 conv transposed 3D`."""
    bare, at, dtype = key.partition("@")
    if bare in catalogue.ids():
        return f"{bare} {catalogue.load(bare).name}{at}{dtype}"
    return claims.short(re.sub("__+", "_", key).rstrip("_"))


def title(sources: list[Source]) -> str:
    """Study and machine."""
    verbs = " and ".join(dict.fromkeys(TITLES[source.verb] for source in sources))
    machines = ", ".join(dict.fromkeys("the CPU" if s.machine == "no GPU" else s.machine for s in sources))
    return f"{verbs} on {machines}" if machines != "not recorded" else verbs


# -- what stands before any number


def banners(sources: list[Source]) -> list[Banner]:
    """What keeps a reader from trusting or reading the numbers as they stand."""
    several = len(sources) > 1
    told: dict[tuple[Kind, str], list[str]] = {}
    for source in sources:
        for kind, text in _warnings(source):
            told.setdefault((kind, text), []).append(source.letter)
    found = [
        Banner(kind=kind, text=f"{', '.join(letters)}: {text}" if several else text)
        for (kind, text), letters in told.items()
    ]
    return sorted(found, key=lambda each: get_args(Kind).index(each.kind))


def _warnings(source: Source) -> Iterator[tuple[Kind, str]]:
    report = source.report
    if source.failed:
        first, *others = source.failed
        more = f", and {elements.count(len(others), 'more check')}" if others else ""
        why = f"{first.check}: {wording.listed(first.reasons, 1)}{more}"
        yield "error", f"This bundle fails `repro verify`; do not trust its numbers ({why})."
    missing = [each["row"] for each in report.not_measured]
    if missing:
        count = f"{report.finished} of {elements.count(report.planned, 'row')} measured"
        status = "" if report.status == "complete" else f", the run is {report.status}"
        yield "warning", f"{count}{status}. Missing: {wording.listed(missing, 5)}."
    if report.parameters.get("solutions"):
        yield "note", f"{wording.listed(report.parameters['solutions'])}: {wording.FROM_FOLDER}."
    if report.study and report.study.scripted:
        yield "warning", "Scripted: replies come from a file. Nothing here is an agent's or a model's result."
    off_pin = dict.fromkeys(
        f"{name} {version}" for value in source.fingerprints.values() for name, version in value["off_pin"].items()
    )
    if off_pin:
        yield "warning", f"Off-pin: this is not the pinned software ({', '.join(off_pin)})."
    if source.slowed:
        rows = elements.count(source.slowed, "row")
        yield "warning", f"Times of {rows} are left out: the GPU was throttled while they were measured."
    entries = [entry for arm in report.arms for entry in arm.entries]
    if any(entry.trust == "dev" for entry in entries):
        yield "warning", "Judged with --trust dev, in one process with the solution: not for publication."
    if report.parameters.get("quick"):
        yield "note", "A quick look: fewer measurements, against eager and torch.compile alone. Verdicts are full."
    if report.verb == "evaluate":
        stamps = {e.problem: e.sizes for e in entries if ":" in e.sizes}
        if stamps:
            yield "note", f"Sizes: {'; '.join(f'{problem} at {stamp}' for problem, stamp in stamps.items())}."
    if not report.measurement and report.verb in OVER:
        size = f", size {report.parameters.get('size')}" if report.parameters.get("size") else ""
        where = "on the CPU" if report.parameters.get("device") == "cpu" else "on a GPU"
        yield "note", f"Not a measurement: it ran {where}{size}. Verdicts are real; times are left out."


# -- cards


def cards(sources: list[Source], claimed: JudgedClaims) -> list[Card]:
    """The figures of a report's head."""
    found = [*_correct(sources), *_means(sources), *_claims(claimed), *_others(sources)]
    return [*found, *_machines(sources)]


def _correct(sources: list[Source]) -> list[Card]:
    """Correct solutions of all that were planned, and negative controls that were refused."""
    solutions = [e for s in sources for e in s.entries if not e.control]
    controls = [e for s in sources for e in s.entries if e.control]
    found = []
    if solutions:
        planned = len(solutions) + sum(s.unstarted for s in sources)
        correct = sum(e.verdict == "correct" for e in solutions)
        others = Counter(e.outcome for e in solutions if e.verdict != "correct")
        if planned > len(solutions):
            others["not run"] += planned - len(solutions)
        detail = ", ".join(f"{n} {word}" for word, n in others.items())
        tone = "good" if correct == planned else "bad" if correct < len(solutions) else "open"
        what = "Kernels correct" if all(s.verb == "benchmark" for s in sources) else "Correct"
        found.append(elements.card(what, f"{correct} of {planned}", detail, tone))
    if controls:
        refused = sum(e.verdict in ("incorrect", "rejected") for e in controls)
        tone = "good" if refused == len(controls) else "bad"
        found.append(elements.card("Negative controls refused", f"{refused} of {len(controls)}", "", tone))
    return found


def _means(sources: list[Source]) -> list[Card]:
    """Geometric means: a card a baseline, or a card an arm or bundle where there are several."""
    means = []
    for source in sources:
        if source.measured is None or source.measured.why_not:
            continue
        start = f"{source.letter} " if len(sources) > 1 else ""
        for arm in source.report.arms:
            if not arm.torch_control:
                means.append((start + (arm.name or "solutions"), arm.geometric_mean))
            elif "eager" in arm.geometric_mean:
                means.append((f"{start}no kernel, {arm.name}", {"eager": arm.geometric_mean["eager"]}))
        means.append((start + "optimised kernels", source.report.benchmark))
    means = [(name, mean) for name, mean in means if mean]
    if len(means) == 1:
        return [elements.card(f"Speedup over {BASELINES[over]}", f"{mean.ratio:.2f}x", _covered(mean), _tone(mean))
                for over, mean in means[0][1].items()]  # fmt: skip
    found = []
    for name, of in means:
        over, mean = list(of.items())[-1]
        rest = [f"{each.ratio:.2f}x over {BASELINES[other]}" for other, each in of.items() if other != over]
        detail = "; ".join([_covered(mean), *rest])
        found.append(elements.card(f"{name}: over {BASELINES[over]}", f"{mean.ratio:.2f}x", detail, _tone(mean)))
    return found


def _covered(mean: Mean) -> str:
    low, high = mean.ci95
    return f"95 % interval {low:.2f} to {high:.2f}, geometric mean of {mean.n} of {mean.of}"


def _tone(mean: Mean) -> str:
    low, high = mean.ci95
    return "good" if low > 1 else "bad" if high < 1 else "open"


def _claims(claimed: JudgedClaims) -> list[Card]:
    found = []
    titles = ("Claims reproduced as published", "Claims that hold as judged")
    for side, title in zip(claims.SIDES, titles, strict=True):
        counts = claimed.counts[side]
        tried = sum(counts[verdict] for verdict in claims.TRIED)
        if tried:
            right = counts[claims.REPRODUCED]
            others = (*claims.TRIED[1:], claims.NOT_COMPARABLE)
            detail = [f"{wording.CLAIM[side][verdict]} {counts[verdict]}" for verdict in others if counts[verdict]]
            tone = "good" if right == tried else "bad" if counts[claims.DIFFERS] else "open"
            found.append(elements.card(title, f"{right} of {tried}", ", ".join(detail), tone))
    return found


def _others(sources: list[Source]) -> list[Card]:
    """Cards of the self-test and of fixtures."""
    found = []
    cases = [case for s in sources for case in s.report.cases]
    if cases:
        right = sum(not case.complaints for case in cases)
        skipped = sum(len(s.report.skipped) for s in sources)
        detail = f"{skipped} cannot run here" if skipped else ""
        tone = "good" if right == len(cases) else "bad"
        found.append(elements.card("Cases judged as expected", f"{right} of {len(cases)}", detail, tone))
    fixtures = [fixture for s in sources for fixture in s.report.fixtures]
    if fixtures:
        usable = sum(not fixture.refused for fixture in fixtures)
        tone = "good" if usable == len(fixtures) else "bad"
        found.append(elements.card("Usable fixtures", f"{usable} of {len(fixtures)}", "", tone))
        narrowest = min(fixtures, key=lambda each: each.margin)
        found.append(elements.card("Smallest margin", f"{narrowest.margin:.3g}", named(narrowest.problem)))
    return found


def _machines(sources: list[Source]) -> list[Card]:
    """A card for every machine and stack, with its stamps."""
    stacks: dict[tuple[str, str, str], list[str]] = {}
    for source in sources:
        for value in source.fingerprints.values():
            values = {name: str(each.get("value") or "") for name, each in value["values"].items()}
            gpu = value["device"] == "cuda"
            name = values.get("gpu_name", "").removeprefix("NVIDIA ") if gpu else "CPU"
            words = [f"torch {values.get('torch')}", f"Triton {values.get('triton')}"]
            words += [f"driver {values.get('driver')}"] if gpu else [values.get("cpu_model", "")]
            words.append("off-pin" if value["off_pin"] else "pinned")
            if not source.report.measurement:
                words.append(f"{source.report.parameters.get('size') or 'smoke'}: not a measurement")
            tone = "open" if value["off_pin"] or not source.report.measurement else ""
            stacks.setdefault((name, ", ".join(filter(None, words)), tone), []).append(source.letter)
    return [
        elements.card("GPU and stack" if name != "CPU" else "Machine and stack", name,
                      (f"{', '.join(letters)}: " if len(stacks) > 1 else "") + detail, tone)
        for (name, detail, tone), letters in stacks.items()
    ]  # fmt: skip


# -- the table and the figure


def lines(sources: list[Source], published: list[Claim], claimed: JudgedClaims) -> list[Line]:
    """One line a solution of every bundle that judges solutions, in the order of the plan."""
    found: list[Line] = []
    for source in sources:
        if source.verb == "benchmark":
            found += [_artifact(source, each, published, claimed) for each in source.report.artifacts]
        for arm in source.report.arms:
            groups: dict[tuple[str, str], list[Solution]] = {}
            for each in arm.entries:
                if not arm.control:
                    groups.setdefault((each.problem, arm.name or each.solution), []).append(each)
            held = [] if arm.torch_control else published  # no figure was published of it
            of_arm = [_solution(source, *key, of, held) for key, of in groups.items()]
            found += [replace(line, torch_control=arm.torch_control) for line in of_arm]
    return found


def _cell(found: Speedup | None) -> Quantity | None:
    if not found:
        return None
    unconfirmed = {"unconfirmed": True} if found.word == "UNCONFIRMED" else {}
    return Quantity(value=found.ratio, ci95=found.ci95, **unconfirmed)


def _together(found: list[Quantity | None]) -> Quantity | None:
    """Repeats as one: their geometric mean, from the lowest edge of any to the highest."""
    known = [each for each in found if each]
    if len(known) < 2:
        return known[0] if known else None
    mean = math.exp(sum(math.log(each.value) for each in known) / len(known))
    return Quantity(value=mean, ci95=[min(e.ci95[0] for e in known), max(e.ci95[1] for e in known)])


def _verdict(entry: Solution | Kernel) -> str:
    """A verdict with its first reason; its word comes first."""
    outcome, why = entry.outcome, entry.why
    return (why if why.startswith(outcome) else f"{outcome}: {why}") if why else outcome


def _solution(source: Source, problem: str, solution: str, of: list[Solution], published: list[Claim]) -> Line:
    correct = [each for each in of if each.verdict == "correct"]
    timed = [each for each in correct if source.timed and not each.no_measurement]
    wrong = next((each for each in of if each.verdict != "correct"), None)
    verdict = _verdict(wrong) if wrong else "correct"
    if wrong and len(of) > 1:
        verdict += f" ({len(correct)} of {len(of)} repeats correct)"
    errors = [each.rel_l2 for each in correct if each.rel_l2 is not None]
    return Line(
        source, problem, solution, verdict, max(errors, default=None),
        correct[0].precision_class if correct else None,
        _published(source, published, problem=problem, solution=solution), None,
        _together([_cell(each.speedup.get(OVER[source.verb])) for each in timed]),
        _together([_cell(each.speedup.get("best_same_class")) for each in timed]),
        timed[0].solution_ms if len(timed) == 1 else None,
    )  # fmt: skip


def _claimed(source: Source, claimed: JudgedClaims, number: int | None) -> tuple[list[str], str]:
    """Return the words of both verdicts of an artifact's speedup in one bundle, "" if untried, and why they differ."""
    for claim in claimed.claims:
        if claim.family == "artifact-speedup" and layout.number(claim.problem) == number:
            for outcome in claim.outcomes:
                for trial in outcome.trials:
                    if source.measured is not None and trial.bundle == source.measured.name:
                        verdicts = {"as_published": trial.as_published.verdict, "as_judged": trial.as_judged.verdict}
                        tried = {side: word for side, word in verdicts.items() if word in claims.TRIED}
                        words = [wording.CLAIM[side][tried[side]] if side in tried else "" for side in verdicts]
                        return words, outcome.difference if tried else ""
    return ["", ""], ""


def _artifact(source: Source, found: Artifact, published: list[Claim], claimed: JudgedClaims) -> Line:
    kernels = found.kernels
    own, given = kernels.get("optimized"), kernels.get("input_kernel")
    verdict = _verdict(own) if own else f"not measured: {'; '.join(found.reasons)}"
    (reproduced, holds), difference = _claimed(source, claimed, layout.number(found.problem))
    wrong = f"input kernel {_verdict(given)}" if given and given.verdict != "correct" else ""
    remark = "; ".join(filter(None, (difference, wrong)))
    timed = own if own and own.verdict == "correct" and source.timed and not found.no_measurement else None
    speedup, parity = timed.speedup if timed else {}, found.parity
    return Line(
        source, found.problem, "", verdict, published=_published(source, published, folder=found.problem),
        protocol=parity.speedup[0] if timed and parity and parity.measurement else None,
        measured=_cell(speedup.get("compile")), best=_cell(speedup.get("best_same_class")),
        ms=timed.ms if timed else None, reproduced=reproduced, holds=holds, remark=remark,
    )  # fmt: skip


def _published(
    source: Source, published: list[Claim], *, problem: str = "", solution: str = "", folder: str = ""
) -> str:
    """The published speedups of a problem: of the arm itself, or of both arms where none of them ran."""
    number = layout.number(folder) if folder else None
    found = {
        claim.variant: claim for claim in published
        if claim.study == STUDY.get(source.verb) and claim.measure == "speedup" and source.timed
        and (claim.number == number if folder else claim.problem == problem)
    }  # fmt: skip
    chosen = [found[solution]] if solution in found else list(found.values())
    return " / ".join(f"{claim.value:.2f}x" for claim in chosen)


def section(sources: list[Source], every: list[Line], published: list[Claim]) -> Section:
    """What a reader looks at first."""
    if every:
        tables, text = [_table(sources, every, published)], _text(every, published)
        figures = _figure(sources, every)
        if any(each and each.unconfirmed for line in every for each in (line.measured, line.best)):
            text.append("?: faster by the solution's own clock, which the judge's clock cannot confirm; 1x in means.")
    else:
        figures, text = [], []
        cases = [case for s in sources for case in s.report.cases]
        tables = [_cases(cases)] if cases else [_fixtures(sources)]
    return elements.section("summary", "Summary", text=text, figures=figures, tables=tables, opened=True)


def _table(sources: list[Source], every: list[Line], published: list[Claim]) -> Table:
    """One line a solution. What is the same in all lines stands in the caption and has no column."""
    overs = list(dict.fromkeys(line.over for line in every if line.measured))
    machines = ", ".join(dict.fromkeys(_hardware(line.source) for line in every if line.measured))
    solutions = {line.solution for line in every if line.solution}
    columns = ["problem", "solution", "bundle", (_published_title(every, published), "text"),
               ("published protocol here", "ratio"), ("reproduced as published", "verdict"), ("measured", "ratio"),
               "over", ("holds as judged", "verdict"), ("against 1x", cells.BAR), ("over best torch", "ratio"),
               ("verdict", "verdict"), "remark", ("relative L2 error", "scientific"), "precision"]  # fmt: skip
    timed = bool(overs)
    order = list(dict.fromkeys(line.problem for line in every))
    rows = [
        [named(line.problem), line.solution if len(solutions) > 1 else None,
         line.source.letter if len(sources) > 1 else None, line.published if timed else None, line.protocol,
         line.reproduced or None, line.measured, line.over if len(overs) > 1 and line.measured else None,
         line.holds or None, line.measured, line.best, line.verdict, line.remark or None,
         None if timed else line.rel_l2, None if timed else line.klass]
        for line in sorted(every, key=lambda each: order.index(each.problem))
    ]  # fmt: skip
    caption = "Verdict of every solution"
    if timed:
        caption = "Speedup of every solution" + (f" over {overs[0]}" if len(overs) == 1 else "")
        caption += f", measured on {machines}, with its 95 % interval"
    table = elements.table("summary", caption, columns, rows)
    scale = _scale([line.measured for line in every if line.measured])
    heads = [head.model_copy(update=scale) if head.kind == cells.BAR else head for head in table.columns]
    return table.model_copy(update={"columns": heads})


def _published_title(every: list[Line], published: list[Claim]) -> str:
    """`published, L4`: with the machine, where all figures are of one."""
    studies = {STUDY.get(line.source.verb) for line in every if line.published}
    machines = {claim.hard["gpu_name"] for claim in published if claim.study in studies}
    return f"published, {machines.pop()}" if len(machines) == 1 else "published"


def _hardware(source: Source) -> str:
    return source.machine.removeprefix("NVIDIA ")


def _scale(found: list[Quantity]) -> dict[str, float]:
    """The ends of the bars' logarithmic axis, which holds 1."""
    high = max([NARROWEST, *(each.ci95[1] for each in found)])
    low = min([1.0, *(each.ci95[0] for each in found)])
    return {"low": min(low, high**-0.15), "high": high}


def _text(every: list[Line], published: list[Claim]) -> list[str]:
    """What `published` and `solution` mean here."""
    found = []
    names = {line.solution for line in every}
    for study, verb in (("agent", "run"), ("artifact", "benchmark")):
        of = [line for line in every if line.source.verb == verb]
        claim = next((c for c in published if c.study == study and c.measure == "speedup"), None)
        if claim is None or not any(line.measured for line in of) or not any(line.published for line in of):
            continue
        machine = claim.hard["gpu_name"]
        if study == "agent":
            figures = "" if names & set(ARMS) else ", without and with the knowledge base"
            found.append(f"Published: an AI agent's kernels over eager, one run on an {machine}{figures}.")
        else:
            found.append(f"Published: the study's optimised kernels over torch.compile, on an {machine}.")
    labels = {
        f"{arm.name}: {arm.label}." for line in every for arm in line.source.report.arms
        if arm.label and not arm.control
    }  # fmt: skip
    found += sorted(f"Measured, {label}" for label in labels)
    if any(s.report.parameters.get("shipped") for s in {line.source.letter: line.source for line in every}.values()):
        found.append("Measured, optimised kernels: those that ship with repro, not the published ones.")
    return [" ".join(found)] if found else []


def _figure(sources: list[Source], every: list[Line]) -> list[Figure]:
    """Speedup over the best torch baseline of every solution, as points with intervals. A torch control is itself such
    a baseline and has no point."""
    every = [line for line in every if not line.torch_control]
    solutions = {line.solution for line in every if line.solution}
    rows: dict[str, list[Point]] = {}
    for line in every:
        if line.best:
            label = named(line.problem) + (f" {line.solution}" if len(solutions) > 1 and line.solution else "")
            low, high = line.best.ci95
            rows.setdefault(label, []).append(Point(series=line.source.letter, value=line.best.value, low=low,
                                                    high=high, unconfirmed=line.best.unconfirmed))  # fmt: skip
    if not rows:
        return []
    told = [
        f"{label} " + ", ".join(
            f"{p.value:.3g}x" + (" (unconfirmed)" if p.unconfirmed else "")
            + (f" in {p.series}" if len(sources) > 1 else "") for p in points
        )
        for label, points in rows.items()
    ]  # fmt: skip
    legend = {s.letter: f"{s.letter}: {s.verb}, {s.machine}, {s.stack}" for s in sources
              if any(line.best and line.source is s for line in every)}  # fmt: skip
    every_row = [ForestRow(label=label, points=points, band=None) for label, points in rows.items()]
    return [Figure(
        id="forest", kind="forest", title="Speedup over the best torch baseline",
        alt=f"Speedup over the best torch baseline of the same precision, with its 95 % interval: {'; '.join(told)}.",
        data=Forest(rows=every_row, series=legend, line=1.0, x=""),
    )]  # fmt: skip


def _cases(every: list[CaseOutcome]) -> Table:
    """The self-test by suite, and every case that the judge got wrong."""
    suites: dict[str, list[CaseOutcome]] = {}
    for case in every:
        suites.setdefault(case.case.partition("/")[0], []).append(case)
    rows: list[list[Cell]] = []
    for suite, cases in suites.items():
        wrong = [case for case in cases if case.complaints]
        rows.append([suite, len(cases), len(cases) - len(wrong), f"wrong: {len(wrong)}" if wrong else "as expected"])
        rows += [[case.case, None, None, f"wrong: {'; '.join(case.complaints)}"] for case in wrong]
    columns = ["cases", ("judged", "integer"), ("as expected", "integer"), ("verdict", "verdict")]
    return elements.table("summary", "What the judge said of kernels whose verdict is known", columns, rows)


def _fixtures(sources: list[Source]) -> Table:
    rows = [
        [named(f.problem), f.margin, f.best_cheat, f.build_s, f"refused: {f.refused}" if f.refused else "usable"]
        for source in sources
        for f in source.report.fixtures
    ]
    columns = ["problem", ("margin", "quantity"), "best cheat", ("seconds", "seconds"), ("verdict", "verdict")]
    caption = "Margin: the best cheat's error over the worst honest kernel's, each as a multiple of its limit"
    return elements.table("summary", caption, columns, rows)
