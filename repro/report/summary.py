"""The head of a document: title, headline, banners, cards, and the summary that is read first."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from repro.analysis import claims, records, workloads
from repro.analysis.records import Fingerprint, Implementation, Interval, Source
from repro.artifacts import layout
from repro.problems import catalogue
from repro.records import wording
from repro.records.base import Drawn
from repro.records.claim import Claim, JudgedClaims
from repro.records.result import NOT_REQUESTED
from repro.records.row import Row
from repro.records.verdict import Verdict
from repro.report import against, artifacts, correctness, elements, sources, study
from repro.report.elements import (
    Banner,
    Card,
    Cell,
    Figure,
    ForestRow,
    Item,
    Kind,
    Point,
    Quantity,
    Section,
    Table,
    Tone,
)
from repro.report.sources import Group, Mean

_TITLES = {"run": "Agent study", "evaluate": "Judged solutions", "benchmark": "Artifact study", "fixtures": "Fixtures",
           "self-test": "Self-test of the judge"}  # fmt: skip
_BASELINES = {"eager": "eager", "compile": "torch.compile", "best_same_class": "the best torch baseline"}
# What a verdict on a Triton kernel says where there is no GPU.
_INTERPRETED = (
    "Triton's interpreter ran the kernels, a program at a time in random order. Not covered: races within a program, "
    "programs that run at once, limits of a GPU's registers and shared memory, and what its compiler makes of the "
    "source. An autotuned kernel ran its first configuration alone."
)
# Verb -> the baseline that its published figures are over, and the study that they are of.
_OVER = {"run": "eager", "evaluate": "eager", "benchmark": "compile"}
STUDY = {"run": "agent", "benchmark": "artifact"}
_UNCONFIRMED = "?: faster by the solution's own clock, which the judge's clock cannot confirm; 1x in means."
_Warning = tuple[Kind, str]


class Headline(Drawn):
    """The verdict in a few words, and how many rows were planned, finished and throttled."""

    parts: list[str]
    planned: int = 0
    finished: int = 0
    throttled: int = 0

    @property
    def text(self) -> str:
        """The verdict in one line."""
        return "; ".join(self.parts)


def id_and_name(key: str) -> tuple[str, str]:
    """A problem's id and name: `L1_36`, `RMSNorm`; of a folder `77 conv transposed 3D` and no other name."""
    bare = key.partition("@")[0]
    if bare in catalogue.ids():
        return key, catalogue.load(bare).name
    return claims.short(re.sub("__+", "_", key).rstrip("_")), ""


def _named(key: str) -> str:
    return " ".join(filter(None, id_and_name(key)))


def title(of: list[Source]) -> str:
    """Study and machine."""
    verbs = " and ".join(dict.fromkeys(_TITLES[source.verb] for source in of))
    machines = ", ".join(dict.fromkeys("the CPU" if s.machine == "no GPU" else s.machine for s in of))
    return f"{verbs} on {machines}" if machines != "not recorded" else verbs


def _groups(of: list[Source]) -> list[Group]:
    return [group for source in of for group in sources.groups(source)]


# -- the headline


def headline(of: list[Source], claimed: JudgedClaims) -> Headline:
    """The verdict on everything that was read."""
    groups = _groups(of)
    planned, finished = sum(len(source.plan) for source in of), sum(len(source.done) for source in of)
    throttled = sum(map(sources.slowed, of))
    tried = any(claims.tried(outcome) for _, outcome in claimed.pairs())
    rest = {
        f"claims: {claims.told(claimed.counts)}": tried,
        f"{finished} of {elements.count(planned, 'row')} measured": finished < planned,
        f"times of {elements.count(throttled, 'row')} left out, the GPU was throttled": throttled,
        "times are not a measurement": groups and not any(source.on_gpu for source in of),
    }
    parts = ["fails verification, do not trust its numbers"] * any(source.failed for source in of)
    parts += [sentence for source in of for sentence in against.sentences(source)] or (
        _counts(groups) if len(of) == 1 else map(_spoken, _correct(of))
    )
    parts += [*_of_cases(of), *_of_fixtures(of), *(part for part, holds in rest.items() if holds)]
    return Headline(parts=parts, planned=planned, finished=finished, throttled=throttled)  # fmt: skip


def _counts(groups: list[Group]) -> list[str]:
    """`9 of 10 correct`, `3.97x over eager, 1.09x over the best torch baseline`: of each arm of one bundle."""
    arms = [group for group in groups if group.studied] or groups
    parts = [part for group in arms for part in _of_arm(group, f"{group.name}: " if len(arms) > 1 else "")]
    return parts + [
        f"no kernel, {group.name}: {group.means['eager'].ratio:.2f}x over eager"
        for group in groups
        if group.torch_control and group not in arms and "eager" in group.means and group.source.on_gpu
    ]


def _of_arm(group: Group, name: str) -> list[str]:
    counted = wording.counted(group.verdicts)
    if group.source.verb == "benchmark":
        counted = counted.replace(" correct", " kernels correct", 1)
    means = [f"{mean.ratio:.2f}x over {_BASELINES[over]}" + f" ({mean.n} of {mean.of})" * (mean.n < mean.of)
             for over, mean in group.means.items() if over != "compile" and group.source.on_gpu]  # fmt: skip
    return [name + counted, *[name + ", ".join(means)] * bool(means)]


def _control_verdicts(groups: list[Group]) -> Counter[str]:
    return Counter(verdict.verdict for group in groups if group.control for verdict in group.verdicts)


def _refused(controls: Counter[str]) -> int:
    """How many negative controls were refused."""
    return controls["incorrect"] + controls["rejected"]


def _spoken(card: Card) -> str:
    """`9 of 10 kernels correct (1 wrong)`."""
    return f"{card.value} {card.label.lower()}" + f" ({card.detail})" * bool(card.detail)


def _of_cases(of: list[Source]) -> list[str]:
    """`247 cases: 201 caught, 4 no time bought, 46 accepted, 0 wrong; 8 skipped`."""
    cases = [case for case, _ in correctness.cases(of)]
    if not cases:
        return []
    words = Counter(case.outcome for case in cases if not case.complaints)
    counts = wording.counts({**words, "wrong": len(cases) - words.total()})
    skipped = len(_skipped(of))
    return [f"{elements.count(len(cases), 'case')}: {counts}" + (f"; {skipped} skipped" if skipped else "")]


def _of_fixtures(of: list[Source]) -> list[str]:
    planned = sum(len(source.plan) for source in of if source.verb == "fixtures")
    usable = sum(not fixture.refused for fixture, _ in correctness.measured(of))
    return [f"{usable} of {elements.count(planned, 'fixture')} usable"] if planned else []


def _skipped(of: list[Source]) -> dict[str, str]:
    """Case of the self-test that cannot run here -> why."""
    return {name: why for source in of for name, why in source.parameters.get("skipped", {}).items()}


# -- what stands before any number


def banners(of: list[Source]) -> list[Banner]:
    """What keeps a reader from trusting or reading the numbers as they stand."""
    letters = records.grouped((warning, source.letter) for source in of for warning in _warnings(source))
    found = [
        Banner(kind=kind, text=f"{', '.join(mine)}: {text}" if len(of) > 1 else text)
        for (kind, text), mine in letters.items()
    ]
    return sorted(found, key=lambda banner: get_args(Kind).index(banner.kind))


def _warnings(source: Source) -> Iterator[_Warning]:
    parameters, slowed = source.parameters, sources.slowed(source)
    off_pin = dict.fromkeys(f"{name} {version}" for value in source.fingerprints.values()
                            for name, version in value["off_pin"].items())  # fmt: skip
    yield from _untrusted(source)
    if parameters.get("solutions"):
        yield "note", f"{wording.listed(parameters['solutions'])}: {wording.FROM_FOLDER}."
    if parameters.get("study", {}).get("scripted"):
        yield "warning", "Scripted: replies come from a file. Nothing here is an agent's or a model's result."
    if off_pin:
        yield "warning", f"Off-pin: this is not the pinned software ({', '.join(off_pin)})."
    if slowed:
        rows = elements.count(slowed, "row")
        yield "warning", f"Times of {rows} are left out: the GPU was throttled while they were measured."
    if again := [row.row for row in source.done if row.measured_again]:
        yield "note", f"Measured again, because the GPU was throttled: {wording.listed(again)}."
    yield from _without(source)
    if any(each.judgement.trust == "dev" for each in source.solutions):
        yield "warning", "Judged with --trust dev, in one process with the solution: not for publication."
    if parameters.get("quick"):
        yield "note", "A quick look: fewer measurements, against eager and torch.compile alone. Verdicts are full."
    yield from _sizes(source)


def _untrusted(source: Source) -> Iterator[_Warning]:
    if source.failed:
        first, *others = source.failed
        more = f", and {elements.count(len(others), 'more check')}" if others else ""
        why = f"{first.check}: {wording.listed(first.reasons, 1)}{more}"
        yield "error", f"This bundle fails `repro verify`; do not trust its numbers ({why})."
    if missing := list(sources.not_measured(source)):
        count = f"{len(source.done)} of {elements.count(len(source.plan), 'row')} measured"
        status = "" if source.status == "complete" else f", the run is {source.status}"
        why = f": {source.error.rstrip('.')}" if source.error and status else ""
        yield "warning", f"{count}{status}{why}. Missing: {wording.listed(missing, 5)}."


def _without(source: Source) -> Iterator[_Warning]:
    """Torch baselines that failed: the best of the others may be slower than theirs."""
    failed = records.grouped((why, f"{name} of {row.row}") for row in source.done if row.judged
                             for name, why in row.judged.timing.left_out.items() if why != NOT_REQUESTED)  # fmt: skip
    for why, names in failed.items():
        brief = textwrap.shorten(why, 160, placeholder=" …").rstrip(".")
        yield "warning", f"Compared without {wording.listed(names, 3)}: {brief}."


def _sizes(source: Source) -> Iterator[_Warning]:
    stamps = {each.problem: each.result.sizes.stamp for group in sources.groups(source) for each in group.solutions
              if each.result.sizes and ":" in each.result.sizes.stamp and not each.shapes}  # fmt: skip
    if stamps and source.verb == "evaluate":
        yield "note", f"Sizes: {'; '.join(f'{problem} at {stamp}' for problem, stamp in stamps.items())}."
    if not source.on_gpu and source.verb in _OVER:
        size = f", size {source.parameters.get('size')}" if source.parameters.get("size") else ""
        where = "on the CPU" if source.parameters.get("device") == "cpu" else "on a GPU"
        yield "note", f"Not a measurement: it ran {where}{size}. Verdicts are real; times are left out."
    interpreted = any("triton" in each.judgement.labels for each in source.solutions)
    if interpreted and source.parameters.get("device") == "cpu":
        yield "note", _INTERPRETED


# -- cards


def cards(of: list[Source], claimed: JudgedClaims) -> list[Card]:
    """The figures of a report's head."""
    return [*_correct(of), *_means(of), *_claims(claimed), *_machines(of)]


def _all_or(right: int, of: int, otherwise: Tone = "bad") -> Tone:
    return "good" if right == of else otherwise


def _correct(of: list[Source]) -> Iterator[Card]:
    """Correct solutions of all that were planned, and negative controls that were refused."""
    groups = _groups(of)
    mine = [group for group in groups if group.studied]
    words = Counter(wording.word(verdict) for group in mine for verdict in group.verdicts)
    controls = _control_verdicts(groups)
    what = "Kernels correct" if all(source.verb == "benchmark" for source in of) else "Correct"
    if words:
        correct = words.pop("correct", 0)
        tone: Tone = "bad" if words else "open"
        if unstarted := sum(group.unstarted for group in mine):
            words["not run"] += unstarted
        planned = correct + words.total()
        tone = _all_or(correct, planned, tone)
        yield elements.card(what, f"{correct} of {planned}", wording.counts(words), tone)
    if controls:
        refused, count = _refused(controls), controls.total()
        yield elements.card("Negative controls refused", f"{refused} of {count}", "", _all_or(refused, count))


def _means(of: list[Source]) -> Iterator[Card]:
    """Geometric means: a card a baseline, or a card an arm or bundle where there are several."""
    means = [(_group_title(group, several=len(of) > 1), group.means if not group.torch_control else
              {over: mean for over, mean in group.means.items() if over == "eager"})
             for group in _groups(of) if group.source.timed]  # fmt: skip
    means = [(name, mean) for name, mean in means if mean]
    if len(means) == 1:
        for over, mean in means[0][1].items():
            yield elements.card(f"Speedup over {_BASELINES[over]}", f"{mean.ratio:.2f}x", _covered(mean), _tone(mean))
        return
    for name, by_baseline in means:
        over, mean = list(by_baseline.items())[-1]
        rest = [f"{each.ratio:.2f}x over {_BASELINES[other]}" for other, each in by_baseline.items() if other != over]
        detail = "; ".join([_covered(mean), *rest])
        yield elements.card(f"{name}: over {_BASELINES[over]}", f"{mean.ratio:.2f}x", detail, _tone(mean))


def _group_title(group: Group, *, several: bool) -> str:
    start = f"{group.source.letter} " if several else ""
    if group.torch_control:
        return f"{start}no kernel, {group.name}"
    return start + ("optimised kernels" if group.source.verb == "benchmark" else group.name or "solutions")


def _covered(mean: Mean) -> str:
    low, high = mean.ci95
    return f"95 % interval {low:.2f} to {high:.2f}, geometric mean of {mean.n} of {mean.of}"


def _tone(mean: Mean) -> Tone:
    low, high = mean.ci95
    return "good" if low > 1 else "bad" if high < 1 else "open"


def _claims(claimed: JudgedClaims) -> Iterator[Card]:
    titles = ("Claims reproduced as published", "Claims that hold as judged")
    for side, title in zip(claims.SIDES, titles, strict=True):
        counts = claimed.counts[side]
        tried, right = sum(counts[verdict] for verdict in claims.TRIED), counts["REPRODUCED"]
        others = (*claims.TRIED[1:], "NOT-COMPARABLE")
        detail = [f"{wording.CLAIM[side][verdict]} {counts[verdict]}" for verdict in others if counts[verdict]]
        tone = _all_or(right, tried, "bad" if counts["DIFFERS"] else "open")
        if tried:
            yield elements.card(title, f"{right} of {tried}", ", ".join(detail), tone)


def _machines(of: list[Source]) -> list[Card]:
    """A card for every machine and stack, with its stamps."""
    stacks = records.grouped((_machine(s, value), s.letter) for s in of for value in s.fingerprints.values())
    return [
        elements.card("GPU and stack" if name != "CPU" else "Machine and stack", name,
                      (f"{', '.join(letters)}: " if len(stacks) > 1 else "") + detail, tone)
        for (name, detail, tone), letters in stacks.items()
    ]  # fmt: skip


def _machine(source: Source, found: Fingerprint) -> tuple[str, str, Tone]:
    values = {name: str(each.get("value") or "") for name, each in found["values"].items()}
    gpu = found["device"] == "cuda"
    words = [f"torch {values.get('torch')}", f"Triton {values.get('triton')}",
             f"driver {values.get('driver')}" if gpu else values.get("cpu_model", ""),
             "off-pin" if found["off_pin"] else "pinned"]  # fmt: skip
    if not source.on_gpu:
        words.append(f"{source.parameters.get('size') or 'smoke'}: not a measurement")
    name = values.get("gpu_name", "").removeprefix("NVIDIA ") if gpu else "CPU"
    return name, ", ".join(filter(None, words)), "open" if found["off_pin"] or not source.on_gpu else ""


# -- the summary


@dataclass(frozen=True)
class _Line:
    """One line of the summary: a solution of a problem in one bundle, its repeats together.

    timed: those that are correct and have times. published: the figures of the study; reproduced, holds: the two
    verdicts of the claim that it tests; protocol: its speedup by the published protocol, which has no interval. shape:
    with `--shapes` that of a line beneath another, or how many lines are beneath it.
    """

    group: Group
    problem: str
    solution: str
    verdict: str
    repeats: list[Implementation]
    correct: list[Implementation]
    timed: list[Implementation]
    published: str
    protocol: float | None = None
    reproduced: str = ""
    holds: str = ""
    remark: str = ""
    shape: str = ""

    @property
    def source(self) -> Source:
        return self.group.source

    @property
    def distance(self) -> tuple[float | None, str | None]:
        """Its largest relative L2 error, and its precision class."""
        verdicts = [each.judgement for each in self.correct]
        errors = (verdict.rel_l2 for verdict in verdicts if verdict.rel_l2 is not None)
        return max(errors, default=None), verdicts[0].precision_class if verdicts else None

    @property
    def kernelbench(self) -> str | None:
        """What KernelBench's protocol says of it."""
        return next((correctness.kernelbench(each.judgement) for each in self.repeats), None)

    @property
    def measured(self) -> Quantity | None:
        """Its speedup over the baseline of the published figures."""
        return self._speedup(_OVER[self.source.verb])

    @property
    def best(self) -> Quantity | None:
        """Its speedup over the best torch baseline of its class."""
        return self._speedup("best_same_class")

    def _speedup(self, over: str) -> Quantity | None:
        speedups = [each.judgement.speedup[over] for each in self.timed if over in each.judgement.speedup]
        if len(speedups) < 2:
            return elements.speedup(speedups[0] if speedups else None)
        every = records.together([Interval(each.ratio, *each.ci95) for each in speedups])
        return Quantity(value=every.value, ci95=every.ci95)


def section(of: list[Source], published: list[Claim], claimed: JudgedClaims) -> Section:
    """What a reader looks at first: a table, why things are not as they should be, and one figure."""
    lines = [line for group in _groups(of) for line in _lines(group, published, claimed)]
    items = [*_complaints(of)]
    for source in of:
        start = f"{source.letter}: " if len(of) > 1 else ""
        items += [Item(tone=item.tone, text=f"{start}{item.text}")
                  for item in (*_why(source), *artifacts.items(source), *_lost(source))]  # fmt: skip
    fixtures = correctness.fixtures(of)
    tables = [_table(of, lines, published), _suites(of), fixtures]
    text = _text(lines, published) if lines else []
    if fixtures.rows:
        text.append("Margin: the best cheat's error over the worst honest kernel's, each as a multiple of its limit.")
    return elements.section("summary", "Summary", text=text, items=items, figures=_figure(of, lines), tables=tables,
                            opened=True)  # fmt: skip


def _lines(group: Group, published: list[Claim], claimed: JudgedClaims) -> list[_Line]:
    """One line a problem and solution, in the order of the plan; none of negative controls."""
    if group.control:
        return []
    benchmark = group.source.verb == "benchmark"
    repeats = records.grouped(
        ((each.row.problem, "") if benchmark else (each.problem, group.name or each.file), each)
        for each in group.solutions
    )
    lost = records.grouped(
        ((row.problem, "" if benchmark else group.name or row.file or ""), row) for row in group.lost
    )
    order = [row.problem for row in group.source.rows.values()]
    keys = sorted(dict.fromkeys([*repeats, *lost]), key=lambda key: order.index(key[0]) if key[0] in order else 0)
    held = [] if group.torch_control else published  # no figure was published of it
    if benchmark:
        return [_artifact(group, key[0], repeats.get(key, []), lost.get(key, []), held, claimed) for key in keys]
    lines = (_solution(group, *key, repeats.get(key, []), lost.get(key, []), held) for key in keys)
    return [each for line in lines for each in _shaped(line)]


def _shaped(line: _Line) -> Iterator[_Line]:
    """Yield a line, and one for each shape of its solution beneath it."""
    shapes = [one for each in line.repeats for one in each.shapes]
    told = ", ".join(workloads.told(each.judgement, "eager") for each in line.repeats)
    yield replace(line, verdict=line.verdict.partition(":")[0], shape=told) if shapes else line
    for each in shapes:
        one = _solution(line.group, line.problem, line.solution, [each], [], [])
        yield replace(one, shape=each.row.at.name)


def _verdict(verdict: Verdict) -> str:
    """A verdict with its first reason; its word comes first."""
    word, why = wording.word(verdict), wording.why(verdict)
    return (why if why.startswith(word) else f"{word}: {why}") if why else word


def _solution(
    group: Group, problem: str, solution: str, repeats: list[Implementation], lost: list[Row], published: list[Claim]
) -> _Line:  # fmt: skip
    correct = [each for each in repeats if each.outcome == "correct"]
    wrong = [_verdict(each.judgement) for each in repeats if each.outcome != "correct"]
    wrong += [f"not measured: {row.error}" for row in lost]
    of = len(repeats) + len(lost)
    verdict = wrong[0] if wrong else "correct"
    if wrong and of > 1:
        verdict += f" ({len(correct)} of {of} repeats correct)"
    timed = [each for each in correct if group.source.timed and not each.result.no_measurement]
    figures = _published(group.source, published, problem, solution)
    return _Line(group, problem, solution, verdict, repeats, correct, timed, figures)


def _artifact(
    group: Group, problem: str, kernels: list[Implementation], lost: list[Row], published: list[Claim],
    claimed: JudgedClaims,
) -> _Line:  # fmt: skip
    by_name = {each.name: each for each in kernels}
    own, given = by_name.get("optimized"), by_name.get("input_kernel")
    verdict = _verdict(own.judgement) if own else f"not measured: {_absent(kernels, lost)}"
    words, remark = _claimed(group.source, claimed, problem)
    if given and given.outcome != "correct":
        remark = "; ".join(filter(None, (remark, f"input kernel {_verdict(given.judgement)}")))
    timed = [own] if own and own.timed and not own.result.no_measurement else []
    parity = own.result.parity if own and timed else None
    times = parity.times_ms if parity and parity.measurement else {}
    protocol = artifacts.published_speedup(times)
    figures = _published(group.source, published, problem)
    correct = [own] if own and own.outcome == "correct" else []
    return _Line(group, problem, "", verdict, kernels, correct, timed, figures, protocol, *words, remark)


def _absent(kernels: list[Implementation], lost: list[Row]) -> str:
    """Why an artifact has no optimised kernel."""
    rows = [*lost, *(each.row for each in kernels)]
    missing = [f"{name} is missing" for row in rows[:1] for name in row.missing]
    return "; ".join(filter(None, [*missing, *(row.error for row in lost)])) or "its row holds no such kernel"


def _claimed(source: Source, claimed: JudgedClaims, problem: str) -> tuple[tuple[str, str], str]:
    """Return the words of both verdicts of an artifact's speedup in one bundle, "" if untried, and why they differ."""
    number = layout.number(problem)
    outcomes = (outcome for claim in claimed.claims for outcome in claim.outcomes
                if claim.family == "artifact-speedup" and layout.number(claim.problem) == number)  # fmt: skip
    for outcome in outcomes:
        for trial in outcome.trials:
            if trial.bundle == source.name:
                verdicts = {side: getattr(trial, side).verdict for side in claims.SIDES}
                published, judged = (wording.CLAIM[side][verdict] if verdict in claims.TRIED else ""
                                     for side, verdict in verdicts.items())  # fmt: skip
                return (published, judged), outcome.difference if published or judged else ""
    return ("", ""), ""


def _published(source: Source, published: list[Claim], problem: str, solution: str = "") -> str:
    """The published speedups of a problem: of the arm itself, or of both arms where none of them ran."""
    number = layout.number(problem)
    mine = {
        claim.variant: claim for claim in published
        if claim.study == STUDY.get(source.verb) and claim.measure == "speedup" and source.timed
        and (claim.number == number if number is not None else claim.problem == problem)
    }  # fmt: skip
    chosen = [mine[solution]] if solution in mine else list(mine.values())
    return " / ".join(f"{claim.value:.2f}x" for claim in chosen)


def _table(of: list[Source], lines: list[_Line], published: list[Claim]) -> Table:
    """One line a solution. What is the same in all lines stands in the caption and has no column."""
    overs = list(dict.fromkeys(_BASELINES[_OVER[line.source.verb]] for line in lines if line.measured))
    several = len({line.solution for line in lines if line.solution}) > 1
    columns = ["problem", ("name", "text", 5), ("solution", "text", 0), ("shape", "text", 0), ("bundle", "text", 0),
               ("measured", "ratio", 0), ("over", "text", 0), ("over best torch", "ratio", 1),
               ("ms", "ms", 2), (_published_title(lines, published), "text", 5),
               ("published protocol here", "ratio", 7), ("reproduced as published", "verdict", 8),
               ("holds as judged", "verdict", 6), ("verdict", "verdict"), ("KernelBench", "text", 4),
               ("remark", "text", 9), ("relative L2 error", "scientific", 2), ("precision", "text", 1)]  # fmt: skip
    rows = [_cells(line, overs, several=several, lettered=len(of) > 1)
            for mine in records.grouped((_named(line.problem), line) for line in lines).values()
            for line in mine]  # fmt: skip
    caption = "Verdict of every solution"
    if overs:
        machines = ", ".join(
            dict.fromkeys(line.source.machine.removeprefix("NVIDIA ") for line in lines if line.measured)
        )
        caption = "Speedup of every solution" + (f" over {overs[0]}" if len(overs) == 1 else "")
        caption += f", measured on {machines}, with its 95 % interval"
    return elements.table("summary", caption, columns, rows)


def _cells(line: _Line, overs: list[str], *, several: bool, lettered: bool) -> list[Cell]:
    """A line as the cells of the table. overs: the baselines of all lines; without one, distances stand for times."""
    measured, (rel_l2, precision) = line.measured, line.distance if not overs else (None, None)
    ms = line.timed[0].time_ms if len(line.timed) == 1 else None
    return [
        *id_and_name(line.problem), line.solution if several or not line.group.name else None, line.shape,
        line.source.letter if lettered else None, measured,
        _BASELINES[_OVER[line.source.verb]] if len(overs) > 1 and measured else None, line.best,
        ms.value if ms else None, line.published if overs else None, line.protocol, line.reproduced, line.holds,
        line.verdict, line.kernelbench, line.remark, rel_l2, precision,
    ]  # fmt: skip


def _published_title(lines: list[_Line], published: list[Claim]) -> str:
    """`published (L4)`: with the machine, where all figures are of one."""
    studies = {STUDY.get(line.source.verb) for line in lines if line.published}
    machines = {claim.hard["gpu_name"] for claim in published if claim.study in studies}
    return f"published ({machines.pop()})" if len(machines) == 1 else "published"


def _text(lines: list[_Line], published: list[Claim]) -> list[str]:
    """What the columns mean here."""
    verdicts = [each.judgement for line in lines for each in line.repeats]
    unconfirmed = any(each and each.unconfirmed for line in lines for each in (line.measured, line.best))
    late = any(not each.converged for line in lines for each in line.timed)
    text = [
        " ".join([*_of_published(lines, published), *_of_measured(lines)]),
        _UNCONFIRMED if unconfirmed else "",
        correctness.sentence(verdicts),
        "The 95 % interval of some medians was still wider than ±0.5 % when the time budget ended: the run log names "
        "their rows." if late else "",
    ]  # fmt: skip
    return list(filter(None, text))


def _of_published(lines: list[_Line], published: list[Claim]) -> list[str]:
    names = {line.solution for line in lines}
    shown = {line.source.verb for line in lines if line.measured} & {
        line.source.verb for line in lines if line.published
    }
    machines = {claim.study: claim.hard["gpu_name"] for claim in published}
    figures = "" if names & set(study.PUBLISHED_ARMS) else ", without and with the knowledge base"
    sentences = {
        "run": f"Published: an AI agent's kernels over eager, one run on an {machines.get('agent')}{figures}.",
        "benchmark": f"Published: the study's optimised kernels over torch.compile, on an {machines.get('artifact')}.",
    }
    return [sentence for verb, sentence in sentences.items() if verb in shown]


def _of_measured(lines: list[_Line]) -> list[str]:
    groups = {
        group.name: group.label
        for line in lines
        for group in sources.groups(line.source)
        if group.label and not group.control
    }
    sentences = sorted(f"Measured, {name}: {label}." for name, label in groups.items())
    if any(line.source.parameters.get("shipped") for line in lines):
        sentences.append("Measured, optimised kernels: those that ship with repro, not the published ones.")
    return sentences


def _figure(of: list[Source], lines: list[_Line]) -> list[Figure]:
    """Speedup over the best torch baseline of every solution, as points with intervals. A torch control is itself such
    a baseline and has no point."""
    lines = [line for line in lines if not line.group.torch_control]
    several = len({line.solution for line in lines if line.best and line.solution}) > 1
    points = records.grouped(
        (" ".join(filter(None, [_named(line.problem), line.solution * several, line.shape.partition(";")[0]])),
         Point(series=line.source.letter, **best.to_json()))
        for line in lines if (best := line.best)
    )  # fmt: skip
    shown = {point.series for mine in points.values() for point in mine}
    legend = {
        source.letter: f"{source.letter}: {source.verb}, {source.machine}, {sources.stack(source)}"
        for source in of if source.letter in shown
    }  # fmt: skip
    rows = [ForestRow(label=label, points=mine) for label, mine in points.items()]
    lead = "Speedup over the best torch baseline of the same precision, with its 95 % interval"
    return elements.forest("forest", "Speedup over the best torch baseline", lead, rows, legend)


def _why(source: Source) -> Iterator[Item]:
    """Negative controls, one line each; of every other solution why it is wrong or has no times, and what to do."""
    for group in sources.groups(source):
        if group.control:
            refused, count = _refused(_control_verdicts([group])), len(group.verdicts)
            expected = "as expected" if refused == count else "expected: all of them"
            text = f"negative control {group.name}: {refused} of {count} refused, {expected}"
            yield Item(tone=_all_or(refused, count), text=text)
            continue
        for each in group.solutions:
            name = f"{each.row.problem} {'' if group.name else each.file}".rstrip()
            if source.verb == "benchmark":
                name = f"{each.row.problem}, {artifacts.KERNELS.get(each.name, each.name)}"
            yield from _faults(f"{name} #{each.row.repeat}" if each.row.repeat else name, each)


def _faults(name: str, each: Implementation) -> Iterator[Item]:
    verdict = each.judgement
    if each.result.no_measurement:
        yield Item(tone="open", text=f"{name}: times are no measurement: {each.result.no_measurement}")
    if verdict.precision_class == "bf16" and verdict.verdict == "correct" and "@" not in verdict.problem:
        yield Item(tone="open", text=f"{name}: {wording.COARSER}")
    for label in sorted(set(verdict.labels) & set(wording.FINDINGS)):
        yield Item(tone="open", text=f"{name}: {label}: {wording.FINDINGS[label]}")
    if verdict.verdict != "correct":
        located = wording.located(verdict.where) if verdict.where else []
        advice = wording.remedy(verdict.reasons[0], verdict.problem) if verdict.reasons and not located else ""
        text = f"{name}: {wording.sentence(verdict)}. {advice}".rstrip()
        yield Item(tone=elements.tone(wording.word(verdict)), text=text)
        yield from (Item(tone="", text=line) for line in located)


def _lost(source: Source) -> Iterator[Item]:
    """Why rows were not measured: one line a reason."""
    rows = records.grouped((why, row) for row, why in sources.not_measured(source).items())
    for why, names in rows.items():
        yield Item(tone="open", text=f"{wording.listed(names, 1)}: not measured: {why}")
    yield from (Item(tone="open", text=f"{note}.") for note in study.unused(source))


def _suites(of: list[Source]) -> Table:
    """The self-test by suite."""
    cases, skipped = [case for case, _ in correctness.cases(of)], _skipped(of)
    words = list(dict.fromkeys(case.outcome for case in cases if not case.complaints))
    rows = []
    for suite in sorted({name.partition("/")[0] for name in [*skipped, *(case.case for case in cases)]}):
        mine = [case for case in cases if case.case.startswith(f"{suite}/")]
        counts = Counter(case.outcome for case in mine if not case.complaints)
        wrong = len(mine) - counts.total()
        rows.append([suite, len(mine), *(counts[word] for word in words), wrong,
                     sum(name.startswith(f"{suite}/") for name in skipped),
                     f"wrong: {wrong}" if wrong else "as expected"])  # fmt: skip
    columns = ["suite", *((title, "integer", 0) for title in ("cases", *words, "wrong", "skipped")),
               ("verdict", "verdict", 1)]  # fmt: skip
    return elements.table("suites", "What the judge said of kernels whose verdict is known", columns, rows)


def _complaints(of: list[Source]) -> Iterator[Item]:
    """Every case that the judge got wrong, and why cases were skipped."""
    for case, _ in correctness.cases(of):
        if case.complaints:
            yield Item(tone="bad", text=f"{case.case} ({case.problem}): {'; '.join(case.complaints)}")
    for why, count in Counter(_skipped(of).values()).items():
        yield Item(tone="open", text=f"{count} skipped: {why}")
