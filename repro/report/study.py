"""The sections on an agent study: arms, uncertainty, endings, costs.

Its arms are an agent's, or solutions from folders, of which only the judge's results are known. Torch controls stand
beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from repro.analysis import published as figures
from repro.analysis import statistics
from repro.analysis.records import Source
from repro.analysis.statistics import ArmSpeeds, Observation, Paired, Speeds
from repro.records import reading, wording
from repro.records.agent import AgentConfig, AgentRecord
from repro.records.row import Row
from repro.report import elements
from repro.report.elements import Cell, Head, Section, Table

_OVER = "eager"
PUBLISHED_ARMS = ("baseline", "with_kb")
_TOKENS = ("input", "output", "cache_read", "cache_write")
# Calls of the knowledge base, as this machine counted them.
_USES = {"calls": "calls", "hits": "hits", "errors": "errors", "denied": "calls over budget"}
_THREATS = (
    "One machine and one stretch of time: intervals say how problems and repeats scatter, not how machines or dates "
    "do.",
    "Models cannot be seeded and may change behind their name: Inspect's log keeps every reply, and the model that it "
    "names.",
    "Problems and well-known solutions of them are public and may be in a model's training data, in every arm alike.",
    "An arm with knowledge has more tools to call, and its prompt is longer by their descriptions: the arm `placebo` "
    "(the same tools over unrelated pages) tells that from what the pages say.",
    "Pages were written by people who knew which problems are judged; a test holds them apart from the solutions, and "
    "none of them is one.",
    "Attempts that failed by the machine's or the provider's fault are repeated; the record of a sitting says why.",
)
_THREATS_OF_FOLDERS = (
    _THREATS[0],
    "How the solutions came about is not known: with which model, tools, budget, tries and choice among them.",
    _THREATS[2],
)
_NO_TF32 = "No torch control: TF32 does not exist on the CPU."


@dataclass(frozen=True)
class Arm:
    """An arm or a torch control, which has a label and no sittings. sittings: of its agent, finished or not."""

    label: str
    verdicts: dict[str, int]
    speeds: ArmSpeeds
    sittings: list[AgentRecord]

    @property
    def finished(self) -> list[AgentRecord]:
        """Its finished sittings."""
        return [sitting for sitting in self.sittings if sitting.finished]

    @property
    def usd(self) -> float | None:
        """What its finished sittings cost; None where a price is not known."""
        return _sum([sitting.meter.usd for sitting in self.finished])

    @property
    def discarded_usd(self) -> float | None:
        """What the attempts that do not count cost."""
        thrown = (a for sitting in self.sittings for a in sitting.attempts[: -1 if sitting.finished else None])
        return _sum([attempt.usd if attempt.turns else 0.0 for attempt in thrown])


@dataclass(frozen=True)
class Study:
    """A study. design: of an agent; None for solutions from folders. left_out: row -> why it is in no speedup.

    sittings: in the order in which they started.
    """

    source: Source
    design: AgentConfig | None
    arms: dict[str, Arm]
    controls: dict[str, Arm]
    comparisons: list[Paired]
    sittings: list[AgentRecord]
    left_out: dict[str, str]

    @property
    def unfinished(self) -> list[str]:
        """Sittings of the design that have not finished."""
        finished = {sitting.job for sitting in self.sittings if sitting.finished}
        return [job for job in self.design.order_of_cells if job not in finished] if self.design else []


def _sum(values: list[float | None]) -> float | None:
    """None where one is unknown: a sum without it would look like the whole."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _timed(source: Source) -> bool:
    """Whether a study's times are a measurement."""
    return source.timed and bool(source.parameters["options"]["timing"])


def build(source: Source) -> Study | None:
    """Return the study of an agent or of solutions from folders; None for any other bundle."""
    parameters = source.parameters
    design = reading.agent_config(parameters["study"]) if "study" in parameters else None
    if design is None and "solutions" not in parameters:
        return None
    rows = source.recorded
    observations, left_out = _observations(rows if _timed(source) else [])
    sittings = _sittings(source, design.order_of_cells if design else [])
    names: list[str] = design.arms if design else parameters["solutions"]
    torch = dict.fromkeys(row.arm or "" for row in rows if row.torch_control)
    controls = {name: parameters["arms"].get(name, "") for name in torch}
    arms, torch_arms = (
        {name: _arm(name, label, rows, observations, sittings) for name, label in labels.items()}
        for labels in (dict.fromkeys(names, ""), controls)
    )
    compared = _pairs(names, list(controls))
    return Study(
        source, design, arms, torch_arms,
        list(filter(None, (statistics.paired(observations, *pair) for pair in compared))), sittings, left_out,
    )  # fmt: skip


def _arm(
    name: str, label: str, rows: list[Row], observations: list[Observation], sittings: list[AgentRecord]
) -> Arm:  # fmt: skip
    words = Counter(wording.word(v) for row in rows if row.arm == name for v in row.verdicts)
    speeds = statistics.arm(observations, name) if observations else ArmSpeeds()
    return Arm(label, dict(words), speeds, [sitting for sitting in sittings if sitting.arm == name])


def _pairs(arms: list[str], controls: list[str]) -> list[tuple[str, str]]:
    """Which arms are compared: every one with the first and with the controls, knowledge with the placebo."""
    pairs = [(arms[0], other) for other in arms[1:]]
    pairs += [("placebo", "with_kb")] if {"placebo", "with_kb"} <= set(arms[1:]) else []
    return pairs + [(control, name) for control in controls for name in arms]


def _sittings(source: Source, jobs: list[str]) -> list[AgentRecord]:
    files = [f"agents/{job}/job.json" for job in jobs]
    contents = ((source.bundle.read(name), name) for name in files)
    return [reading.agent_record(content, name) for content, name in contents if content is not None]


def _observations(rows: list[Row]) -> tuple[list[Observation], dict[str, str]]:
    """One observation a judged solution; what was correct and could not be timed is left out, with the reason."""
    found, left_out = [], {}
    for row in rows:
        if row.judged is None:
            left_out[row.row] = f"{row.status}: {row.error}"
            continue
        for verdict in row.judged.results:
            ratio = verdict.speedup.get(_OVER)
            correct, no_measurement = verdict.verdict == "correct", row.judged.no_measurement
            if correct and (no_measurement or ratio is None):
                left_out[row.row] = no_measurement or "no time over eager"
                continue
            speedup = ratio.counted.ratio if correct and ratio else None
            found.append(Observation(row.problem, row.arm or "", row.repeat, speedup))
    return found, left_out


def published() -> list[Observation]:
    """Return the published study's speedups."""
    claims = (claim for claim in figures.load() if claim.study == "agent" and claim.measure == "speedup")
    return [Observation(claim.problem, claim.variant, 0, claim.value) for claim in claims]


def sections(sources: list[Source]) -> list[Section]:
    """The comparison of arms, which is read first, and the study with all of its tables."""
    return [section for source in sources if (study := build(source)) for section in _sections(study)]


def _sections(study: Study) -> list[Section]:
    tables = [_outcomes(study)]
    if _timed(study.source):
        tables.append(_problems(study))
    if study.design:
        tables += [_costs(study, study.design), _every(study)]
    prefix = f"{study.source.letter.lower()}-"
    compared = [_comparisons(study)] if study.comparisons else []
    text = ["detectable: the ratio that 80 % of such studies would find; a failure is 1x."] if compared else []
    compared, tables = (
        [table.model_copy(update={"id": prefix + table.id}) for table in of] for of in (compared, tables)
    )
    return [
        elements.section(f"{prefix}compared", "Arms compared", text=[*text, *_left_out(study)], tables=compared,
                         opened=True),
        elements.section(f"{prefix}study", "Agent study", text=_text(study), tables=tables),
    ]  # fmt: skip


def unused(source: Source) -> list[str]:
    """What in the folders of arms is no solution of the study."""
    files: dict[str, list[str]] = source.bundle.manifest.get("unused_files", {})
    return [wording.unused(arm, names) for arm, names in files.items()]


def _left_out(study: Study) -> list[str]:
    rows = "; ".join(f"{row} ({why})" for row, why in study.left_out.items())
    return [f"Left out of speedups: {rows}."] if rows else []


def _text(study: Study) -> list[str]:
    lines = _of_agent(study, study.design) if study.design else [
        f"Arms {', '.join(study.arms)}: {wording.FROM_FOLDER}. Every file of a problem is a repeat. A problem "
        "without a file is missing and counts as not solved."
    ]  # fmt: skip
    if study.controls:
        controls = "; ".join(f"{name}: {arm.label}" for name, arm in study.controls.items())
        lines.append(f"Torch controls, which are no agent's: {controls}.")
    elif study.source.parameters.get("device") == "cpu":
        lines.append(_NO_TF32)
    if not _timed(study.source):
        lines.append("No speedup is shown: this run's times are not a measurement. Its verdicts are.")
    lines += _left_out(study)
    return lines + [f"Threat that remains: {threat}" for threat in (_THREATS if study.design else _THREATS_OF_FOLDERS)]


def _of_agent(study: Study, design: AgentConfig) -> list[str]:
    places = ", ".join(f"{arm} {place:.2f}" for arm, place in design.balance.items())
    bounds = (f"{name} {'none' if value is None else f'{value:g}'}" for name, value in design.budgets.items())
    lines = [
        f"Agent {design.agent}, model {design.model}, arms {', '.join(design.arms)}, mode {design.mode}, "
        f"{elements.count(design.repeats, 'repeat')}, order abba (mean place of each arm from 0 to 1: "
        f"{places}).",
        f"Budgets of one cell: {', '.join(bounds)}.",
    ]
    if study.unfinished:
        lines.append(f"Unfinished cells, in no number here: {', '.join(study.unfinished)}.")
    return lines


def _listed(counts: Mapping[str, int]) -> str:
    return wording.counts(counts) or "none"


def _outcomes(study: Study) -> Table:
    rows = []
    for name, arm in (study.arms | study.controls).items():
        ends = Counter(str(sitting.status) for sitting in arm.finished)
        of_agent = study.design is not None and name in study.arms
        rows.append([
            _named(name, study), study.design.knowledge[name] if study.design and of_agent else None,
            len(arm.finished) if of_agent else None, _listed(ends) if of_agent else None,
            arm.verdicts.get("correct", 0), sum(arm.verdicts.values()), _listed(arm.verdicts),
            *(arm.speeds.fast_p.get(p) for p in statistics.FAST_P),
        ])  # fmt: skip
    columns = ["arm", "knowledge", ("cells", "integer"), "how they ended", ("correct", "integer"),
               ("judged", "integer"), "verdicts",
               *((f"fast_p, p = {p:g}", "percent") for p in statistics.FAST_P)]  # fmt: skip
    caption = "Arms; a problem without a solution is not solved. fast_p: correct and more than p times as fast"
    return elements.table("study-arms", caption, columns, rows)


def _named(arm: str, study: Study) -> str:
    return f"{arm} (no custom kernel)" if arm in study.controls else arm


def _solved(speeds: Speeds) -> str | None:
    return None if speeds.n is None else f"{speeds.correct}/{speeds.n}"


def _problems(study: Study) -> Table:
    shown = {_named(name, study): arm.speeds for name, arm in (study.arms | study.controls).items()}
    columns: list[Head] = ["problem"]
    for arm in shown:
        columns += [(arm, "ratio"), f"{arm} correct"]
    columns += [("published baseline", "ratio"), ("published with_kb", "ratio")]
    there = [statistics.arm(published(), arm) for arm in PUBLISHED_ARMS]
    rows = []
    for name in dict.fromkeys(problem for speeds in shown.values() for problem in speeds.problems):
        row: list[Cell] = [name]
        for mine in (speeds.problems.get(name, Speeds()) for speeds in shown.values()):
            row += [mine.fail_is_1, _solved(mine)]
        rows.append([*row, *(each.problems.get(name, Speeds()).fail_is_1 for each in there)])
    every, right = (
        [cell for speeds in shown.values() for cell in (mean(speeds.overall), _solved(speeds.overall))]
        for mean in (lambda overall: overall.fail_is_1, lambda overall: overall.correct_only)
    )
    rows.append(["geometric mean, a failure is 1x", *every, *(each.overall.fail_is_1 for each in there)])
    rows.append(["correct ones only", *right, None, None])
    caption = "Speedup over eager, geometric means of repeats; published ones are of another machine and another judge"
    return elements.table("study-problems", caption, columns, rows)


def _comparisons(study: Study) -> Table:
    columns = ["comparison", ("problems", "integer", 2), ("ratio", "ratio", 0),
               ("sign-flip p", "quantity", 1), ("up", "integer", 4), ("down", "integer", 4),
               ("detectable", "ratio", 1)]  # fmt: skip
    rows = []
    theirs = statistics.paired(published(), *PUBLISHED_ARMS)
    for pair in [*study.comparisons, theirs]:
        if pair:
            name = f"{pair.other} over {_named(pair.base, study)}" + (", published" if pair is theirs else "")
            ratio = elements.quantity(pair.ratio, pair.ci95) or pair.ratio
            rows.append([name, pair.n, ratio, pair.sign_flip, pair.up, pair.down, pair.detectable])
    caption = "Arms paired by problem, with Student's 95 % intervals"
    return elements.table("study-comparisons", caption, columns, rows)


def _costs(study: Study, design: AgentConfig) -> Table:
    columns = ["arm", ("turns", "integer"), *((kind.replace("_", " "), "integer") for kind in _TOKENS),
               ("USD", "quantity"), ("USD of attempts thrown away", "quantity"), ("agents' s", "seconds"),
               *((f"knowledge {title}", "integer") for title in _USES.values()), "knowledge calls by tool"]  # fmt: skip
    rows = []
    for name, arm in study.arms.items():
        meters = [sitting.meter for sitting in arm.finished]
        calls = Counter[str]()
        for sitting in arm.finished:
            calls.update({tool: use.calls for tool, use in sitting.consulted.items()})
        rows.append([
            name, sum(meter.turns for meter in meters),
            *(sum(meter.tokens.get(kind, 0) for meter in meters) for kind in _TOKENS), arm.usd, arm.discarded_usd,
            sum(sitting.attempts[-1].wall_s for sitting in arm.finished),
            *(sum(getattr(meter.kb, kind) for meter in meters) for kind in _USES), _listed(dict(sorted(calls.items()))),
        ])  # fmt: skip
    as_of = design.prices.get("as_of", "")
    priced = f"prices of {as_of}" if as_of else "no price table"
    caption = f"Tokens as the provider counted them, and money by {priced}; empty where a price is not known"
    if design.scripted:
        caption += ". Scripted: no model was paid"
    return elements.table("study-costs", caption, columns, rows)


def _every(study: Study) -> Table:
    columns = ["job", "ended", ("attempts", "integer"), ("turns", "integer"), ("tokens", "integer"),
               ("USD", "quantity"), ("s", "seconds"), "solutions", ("knowledge calls", "integer"), "isolation",
               "tools shown"]  # fmt: skip
    rows = []
    for sitting in study.sittings:
        meter = sitting.meter
        rows.append([
            sitting.job, sitting.status + (f": {sitting.detail}" if sitting.detail else ""), len(sitting.attempts),
            meter.turns, sum(meter.tokens.values()), meter.usd, sitting.attempts[-1].wall_s,
            f"{len(sitting.solutions)}/{len(sitting.problems)}", meter.kb.calls, sitting.isolation.get("isolation"),
            ", ".join(sitting.tools),
        ])  # fmt: skip
    return elements.table("study-cells", "Every sitting of an agent", columns, rows)
