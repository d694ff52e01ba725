"""The agent study of a bundle, and its section: arms, uncertainty, endings, retries, costs.

Its arms are an agent's, or solutions from folders, of which only the judge's results are known. Torch controls stand
beside them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import Field

from repro.analysis import published as claims
from repro.analysis import statistics
from repro.analysis.statistics import Observation
from repro.bundle.write import Bundle
from repro.records import reading, wording
from repro.records.agent import AgentAttempt, AgentConfig, AgentRecord
from repro.records.base import Amount, Record
from repro.records.row import Row
from repro.report import elements
from repro.report.elements import Cell, Head, Quantity, Section, Table

OVER = "eager"
TOKENS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
THREATS = (
    "One machine and one stretch of time: intervals say how problems and repeats scatter, not how machines or dates "
    "do.",
    "Models cannot be seeded and may change behind their name: the journal keeps every reply, the meter the model that "
    "each reply names.",
    "Problems and well-known solutions of them are public and may be in a model's training data, in every arm alike.",
    "An arm with knowledge has more tools to call, and its prompt is longer by their descriptions: the arm `placebo` "
    "(the same tools over unrelated pages) tells that from what the pages say.",
    "Pages were written by people who knew which problems are judged; a test holds them apart from the solutions, and "
    "none of them is one.",
    "Attempts that failed by the machine's or the provider's fault are repeated; the table of retries says which, and "
    "what they had cost.",
)
THREATS_OF_FOLDERS = (
    THREATS[0],
    "How the solutions came about is not known: with which model, tools, budget, tries and choice among them.",
    THREATS[2],
)
NO_TF32 = "No torch control: TF32 does not exist on the CPU."


class Speeds(Record):
    """Speedups over eager: geometric means with a failure as 1x and of correct solutions alone, correct and all."""

    fail_is_1: float
    correct_only: float | None
    correct: int
    n: int


class Arm(Record):
    """An arm or a torch control, which has a label and nothing of an agent.

    problems and what follows are known of timed runs alone; fast_p: threshold -> share.
    """

    label: str = ""
    cells: int = 0
    statuses: dict[str, int] = {}
    verdicts: dict[str, int] = {}
    judged: int = 0
    judged_correct: int = 0
    tokens: dict[str, int] = {}
    usd: Amount | None = None
    discarded_usd: Amount | None = None
    turns: int = 0
    agent_s: Amount = 0
    kb_calls: int = 0
    kb_hits: int = 0
    kb_errors: int = 0
    kb_tools: dict[str, int] = {}
    denied: dict[str, int] = {}
    problems: dict[str, Speeds] = {}
    fail_is_1: float | None = None
    correct_only: float | None = None
    correct: int = 0
    n: int | None = None
    fast_p: dict[str, float | None] = {}


class SignFlip(Record):
    """A two-sided p-value. exact: whether all signs were counted."""

    p: float
    exact: bool


class Paired(Record):
    """A comparison of two arms by `statistics.paired`. needed: ratio -> pairs that would find it."""

    base: str
    other: str
    n: int
    ratio: float
    differences: dict[str, float]
    up: int
    down: int
    ci95: list[float] | None
    t_ci95: list[float] | None
    sign_flip: SignFlip
    sd: float | None
    detectable: float | None
    needed: dict[str, int]


class Published(Record):
    """The published study's own numbers, and what they say by the same statistics."""

    machine: str = ""
    problems: dict[str, dict[str, float]] = {}
    means: dict[str, float | None] = {}
    comparison: Paired | None = None


class Design(AgentConfig):
    """A configuration without what a report has elsewhere or needs not."""

    prices: dict[str, Any] = Field({}, exclude=True)
    order_of_cells: list[str] = Field([], exclude=True)


class Sitting(Record):
    """A sitting of an agent in short."""

    job: str
    arm: str
    status: str
    detail: str
    finished: bool
    attempts: int
    turns: int
    usd: float | None
    tokens: int
    wall_s: float
    solutions: int
    problems: int
    kb_calls: int
    models: dict[str, int]
    agent_version: str
    preflight: dict[str, Any]
    isolation: dict[str, Any]
    knowledge: str


class Retry(Record):
    """An attempt that does not count."""

    job: str
    attempt: int
    klass: str = Field(alias="class")
    status: str
    detail: str
    waited_s: float
    turns: int
    usd: float | None


class Study(Record):
    """A study. folders: arms of solutions from folders; without them, the agent's design and its sittings."""

    timed: bool
    cpu: bool
    arms: dict[str, Arm]
    controls: dict[str, Arm]
    comparisons: list[Paired]
    left_out: dict[str, str]
    published: Published
    folders: list[str] = []
    design: Design | None = None
    prices_as_of: str = ""
    order: list[str] = []
    scripted: bool
    unused_files: dict[str, list[str]] = {}
    cells: list[Sitting] = []
    unfinished: list[str] = []
    retries: list[Retry] = []


def build(bundle: Bundle, rows: list[Row]) -> Study | None:
    """Return what a report says of a study with an agent or with solutions from folders; None for any other bundle."""
    parameters = bundle.manifest["parameters"]
    folders = parameters.get("solutions")
    design = reading.agent_config(parameters["study"]) if "study" in parameters else None
    if design is None and folders is None:
        return None
    timed = parameters.get("device") == "cuda" and parameters.get("size") == "full" and parameters["options"]["timing"]
    records = _records(bundle, design) if design else []
    observations, left_out = _observations(rows) if timed else ([], {})

    def arm(name: str, **more: Any) -> Arm:
        """Return an arm with its verdicts and speedups. more: what else is known of it."""
        words = Counter(wording.word(v) for row in rows if row.arm == name and row.judged for v in row.judged.results)
        return Arm(verdicts=dict(words), judged=words.total(), judged_correct=words["correct"], **more,
                   **(statistics.arm(observations, name) if observations else {}))  # fmt: skip

    names = list(design.arms if design else folders)
    arms = {name: arm(name, **_sittings([record for record in records if record.arm == name])) for name in names}
    told = dict.fromkeys(row.arm or "" for row in rows if row.torch_control)
    controls = {name: arm(name, label=parameters["arms"].get(name, "")) for name in told}
    pairs = [(names[0], other) for other in names[1:]]
    pairs += [("placebo", "with_kb")] if {"placebo", "with_kb"} <= set(names[1:]) else []
    pairs += [(control, name) for control in controls for name in names]
    comparisons = [found for base, other in pairs if (found := _paired(observations, base, other))]
    if design is None:
        own: dict[str, Any] = {"folders": names, "scripted": False}
        own["unused_files"] = bundle.manifest.get("unused_files", {})
    else:
        own = {
            "design": Design.model_validate(design.to_json()),
            "prices_as_of": design.prices.get("as_of", ""),
            "order": design.order_of_cells,
            "scripted": design.scripted,
            "cells": [_cell(record) for record in records],
            "unfinished": [
                name for name in design.order_of_cells if not any(r.job == name and r.finished for r in records)
            ],
            "retries": [
                _retry(record, attempt) for record in records for attempt in record.attempts if attempt.klass != "agent"
            ],
        }
    return Study(timed=timed, cpu=parameters.get("device") == "cpu", arms=arms, controls=controls,
                 comparisons=comparisons, left_out=left_out, published=published(), **own)  # fmt: skip


def _records(bundle: Bundle, design: AgentConfig) -> list[AgentRecord]:
    names = [f"agents/{name}/job.json" for name in design.order_of_cells]
    return [reading.agent_record(content, name) for name in names if (content := bundle.read(name)) is not None]


def _paired(observations: list[Observation], base: str, other: str) -> Paired | None:
    found = statistics.paired(observations, base, other)
    return Paired.model_validate(found) if found else None


def _observations(rows: list[Row]) -> tuple[list[Observation], dict[str, str]]:
    """One observation a judged solution; what was correct and could not be timed is left out, with the reason."""
    found, left_out = [], {}
    for row in rows:
        if row.judged is None:
            left_out[row.row] = f"{row.status}: {row.error}"
            continue
        for entry in row.judged.results:
            speedup = None
            if entry.verdict == "correct":
                ratio = entry.speedup.get(OVER)
                if row.judged.no_measurement or ratio is None:
                    left_out[row.row] = row.judged.no_measurement or "no time over eager"
                    continue
                # a speedup that the judge's clock does not confirm counts as none
                speedup = 1.0 if ratio.word == "UNCONFIRMED" else ratio.ratio
            found.append(Observation(row.problem, row.arm or "", row.repeat, speedup))
    return found, left_out


def _sum(values: list[float | None]) -> float | None:
    """None where one is unknown: a sum without it would look like the whole."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _sittings(every: list[AgentRecord]) -> dict[str, Any]:
    """Return the fields of an arm that its sittings give, if it has any."""
    records = [record for record in every if record.finished]
    thrown = [a for record in every for a in record.attempts[: -1 if record.finished else None]]
    meters = [record.meter for record in records]
    calls: Counter[str] = Counter()
    for record in records:
        calls.update({tool: told.calls for tool, told in record.consulted.items()})
    return {
        "cells": len(records),
        "statuses": dict(Counter(record.status for record in records)),
        "tokens": {kind: sum(meter.tokens.get(kind, 0) for meter in meters) for kind in TOKENS},
        "usd": _sum([meter.usd for meter in meters]),
        "discarded_usd": _sum([each.usd if each.turns else 0.0 for each in thrown]),
        "turns": sum(meter.turns for meter in meters),
        "agent_s": sum(record.attempts[-1].wall_s for record in records),
        "kb_calls": sum(meter.kb.calls for meter in meters),
        "kb_hits": sum(meter.kb.hits for meter in meters),
        "kb_errors": sum(meter.kb.errors for meter in meters),
        "kb_tools": dict(calls),
        "denied": dict(sum((Counter(meter.denied) for meter in meters), Counter())),
    }


def _cell(record: AgentRecord) -> Sitting:
    meter, outcome = record.meter, record.outcome
    return Sitting(
        job=record.job, arm=record.arm, status=record.status, detail=record.detail, finished=record.finished,
        attempts=len(record.attempts), turns=meter.turns, usd=meter.usd, tokens=sum(meter.tokens.values()),
        wall_s=record.attempts[-1].wall_s, solutions=len(record.solutions), problems=len(record.problems),
        kb_calls=meter.kb.calls, models=meter.models, agent_version=outcome.agent_version, preflight=outcome.preflight,
        isolation=record.isolation, knowledge=record.knowledge,
    )  # fmt: skip


def _retry(record: AgentRecord, attempt: AgentAttempt) -> Retry:
    return Retry(
        job=record.job, attempt=attempt.attempt, klass=attempt.klass, status=attempt.status, detail=attempt.detail,
        waited_s=attempt.waited_s, turns=attempt.turns, usd=attempt.usd,
    )  # fmt: skip


def published() -> Published:
    """Return the published study's numbers; none where claims are no part of the installation."""
    try:
        found = [claim for claim in claims.load() if claim.study == "agent" and claim.measure == "speedup"]
    except OSError:
        return Published()
    problems: dict[str, dict[str, float]] = {}
    for claim in found:
        problems.setdefault(claim.problem, {})[claim.variant] = claim.value
    seen = [Observation(p, arm, 0, value) for p, arms in problems.items() for arm, value in arms.items()]
    return Published(
        machine=found[0].machine if found else "",
        problems=problems,
        means={arm: statistics.arm(seen, arm)["fail_is_1"] for arm in ("baseline", "with_kb")},
        comparison=_paired(seen, "baseline", "with_kb"),
    )


def section(study: Study, prefix: str = "") -> Section:
    """The study as a section. prefix: of table names, where several bundles stand in one document."""
    tables = [_outcomes(study, prefix)]
    if study.timed:
        tables += [_problems(study, prefix), *_comparisons(study, prefix), _fast(study, prefix)]
    if study.design:
        tables += [_costs(study, prefix), _knowledge(study, study.design, prefix), _cells(study, prefix)]
        tables += [_retries(study, prefix)] if study.retries else []
    return elements.section(f"{prefix}study", "Agent study", text=_text(study), tables=tables)


def notes(study: Study) -> list[str]:
    """What is in no number of the study, and why."""
    lines = []
    if study.left_out:
        lines.append("Left out of speedups: " + "; ".join(f"{r} ({w})" for r, w in study.left_out.items()) + ".")
    return lines + [f"{wording.unused(arm, names)}." for arm, names in study.unused_files.items()]


def _text(study: Study) -> list[str]:
    lines = _of_agent(study, study.design) if study.design else _of_folders(study)
    if study.controls:
        told_ = "; ".join(f"{name}: {each.label}" for name, each in study.controls.items())
        lines.append(f"Torch controls, which are no agent's: {told_}.")
    elif study.cpu:
        lines.append(NO_TF32)
    if not study.timed:
        lines.append("No speedup is shown: this run's times are not a measurement. Its verdicts are.")
    lines += [told(found) for found in study.comparisons if found.base not in study.controls]
    lines += notes(study)
    there = study.published
    if there.comparison:
        lines.append(
            f"Published ({there.machine}, another machine, one run an arm, graded by the agent itself): "
            f"{there.means['baseline']:.2f}x and {there.means['with_kb']:.2f}x. " + told(there.comparison)
        )
    return lines + [f"Threat that remains: {each}" for each in (THREATS_OF_FOLDERS if study.folders else THREATS)]


def _of_folders(study: Study) -> list[str]:
    return [
        f"Arms {', '.join(study.folders)}: {wording.FROM_FOLDER}. Every file of a problem is a repeat. A problem "
        "without a file is missing and counts as not solved."
    ]


def _of_agent(study: Study, design: Design) -> list[str]:
    lines = []
    places = ", ".join(f"{arm} {place:.2f}" for arm, place in design.balance.items())
    lines.append(
        f"Agent {design.agent}, model {design.model}, arms {', '.join(design.arms)}, mode {design.mode}, "
        f"{elements.count(design.repeats, 'repeat')}, order {design.order} (seed {design.seed}; mean place of "
        f"each arm from 0 to 1: {places})."
    )
    bounds = (f"{name} {'none' if value is None else f'{value:g}'}" for name, value in design.budgets.items())
    lines.append(f"Budgets of one cell: {', '.join(bounds)}.")
    if study.unfinished:
        lines.append(f"Unfinished cells, in no number here: {', '.join(study.unfinished)}.")
    return lines


def told(found: Paired) -> str:
    """A paired comparison in a sentence."""
    text = f"{found.other} over {found.base}: {found.ratio:.3g}x on {elements.count(found.n, 'problem')}"
    if found.ci95 is None or found.t_ci95 is None:
        return text + "; one problem has no interval."
    low, high = found.ci95
    test = found.sign_flip
    text += f", 95 % interval {low:.2f} to {high:.2f} by bootstrap and {found.t_ci95[0]:.2f} to "
    text += f"{found.t_ci95[1]:.2f} by Student's t, sign-flip p {test.p:.3f}{'' if test.exact else ' (sampled)'}"
    text += f", {found.up} up and {found.down} down. With {found.n} problems that scatter so (standard deviation "
    text += f"of the log {found.sd:.2f}) a ratio of {found.detectable:.2f} would be found in 80 % of studies"
    needed = " and ".join(f"{ratio} in {n}" for ratio, n in found.needed.items())
    verdict = "lies" if low > 1 or high < 1 else "does not lie"
    return f"{text}; pairs that it takes: {needed}. The interval {verdict} to one side of 1."


def _outcomes(study: Study, prefix: str) -> Table:
    rows = []
    for arm, each in study.arms.items():
        ends = ", ".join(f"{n} {status}" for status, n in each.statuses.items()) or "none"
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in each.verdicts.items()) or "none"
        of_agent = (study.design.knowledge[arm], each.cells, ends) if study.design else (None, None, None)
        rows.append([arm, *of_agent, each.judged_correct, each.judged, verdicts])
    for name, each in study.controls.items():
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in each.verdicts.items()) or "none"
        rows.append([named(name, study), None, None, None, each.judged_correct, each.judged, verdicts])
    columns = ["arm", "knowledge", ("cells", "integer"), "how they ended", ("correct", "integer"),
               ("judged", "integer"), "verdicts"]  # fmt: skip
    return elements.table(f"{prefix}study-arms", "Arms; a problem without a solution is not solved", columns, rows)


def _shown(study: Study) -> dict[str, Arm]:
    """Every arm with speedups by its name in tables, controls last."""
    return {named(name, study): each for name, each in (study.arms | study.controls).items()}


def named(arm: str, study: Study) -> str:
    """An arm as tables name it."""
    return f"{arm} (no custom kernel)" if arm in study.controls else arm


def _solved(found: Speeds | Arm) -> str | None:
    return None if found.n is None else f"{found.correct}/{found.n}"


def _problems(study: Study, prefix: str) -> Table:
    shown = _shown(study)
    columns: list[Head] = ["problem"]
    for arm in shown:
        columns += [(f"{arm}", "ratio"), f"{arm} correct"]
    columns += [("published baseline", "ratio"), ("published with_kb", "ratio")]
    there, means = study.published.problems, study.published.means
    names = dict.fromkeys(p for each in shown.values() for p in each.problems)
    rows: list[list[Cell]] = []
    for name in names:
        row: list[Cell] = [name]
        for each in shown.values():
            found = each.problems.get(name)
            row += [found.fail_is_1, _solved(found)] if found else [None, None]
        rows.append([*row, *(there.get(name, {}).get(arm) for arm in ("baseline", "with_kb"))])
    every, right = (
        [cell for each in shown.values() for cell in (value(each), _solved(each))]
        for value in (lambda arm: arm.fail_is_1, lambda arm: arm.correct_only)
    )
    rows.append(["geometric mean, a failure is 1x", *every, means.get("baseline"), means.get("with_kb")])
    rows.append(["correct ones only", *right, None, None])
    caption = "Speedup over eager, geometric means of repeats; published ones are of another machine and another judge"
    return elements.table(f"{prefix}study-problems", caption, columns, rows)


def _comparisons(study: Study, prefix: str) -> list[Table]:
    found = study.comparisons
    if not found:
        return []
    columns = ["comparison", ("problems", "integer"), ("ratio", "ratio"), "Student's t", ("sign-flip p", "quantity"),
               ("detectable", "ratio")]  # fmt: skip
    rows: list[list[Cell]] = []
    for one in [*found, study.published.comparison]:
        if one:
            name = f"{one.other} over {named(one.base, study)}" + (", published" if one not in found else "")
            ratio = Quantity(value=one.ratio, ci95=one.ci95) if one.ci95 else one.ratio
            t = "{:.3g} to {:.3g}".format(*one.t_ci95) if one.t_ci95 else None
            rows.append([name, one.n, ratio, t, one.sign_flip.p, one.detectable])
    return [elements.table(f"{prefix}study-comparisons", "Paired comparisons with 95 % intervals", columns, rows)]


def _fast(study: Study, prefix: str) -> Table:
    levels = [f"{p:g}" for p in statistics.FAST_P]
    columns = ["arm", *((f"fast_p, p = {level}", "percent") for level in levels)]
    rows = [[arm, *(each.fast_p.get(level) for level in levels)] for arm, each in _shown(study).items()]
    return elements.table(
        f"{prefix}study-fast", "Share that is correct and more than p times as fast; a failure is 0", columns, rows
    )


def _costs(study: Study, prefix: str) -> Table:
    columns = ["arm", ("turns", "integer"), *((kind.replace("_", " "), "integer") for kind in TOKENS),
               ("USD", "quantity"), ("USD of attempts thrown away", "quantity"), ("agents' s", "seconds")]  # fmt: skip
    rows = [
        [arm, each.turns, *(each.tokens[kind] for kind in TOKENS), each.usd, each.discarded_usd, each.agent_s]
        for arm, each in study.arms.items()
    ]
    priced = f"prices of {study.prices_as_of}" if study.prices_as_of else "no price table"
    caption = f"Tokens as the upstream counted them, and money by {priced}; empty where a price is not known"
    if study.scripted:
        caption += ". Scripted: no model was paid"
    return elements.table(f"{prefix}study-costs", caption, columns, rows)


def _knowledge(study: Study, design: Design, prefix: str) -> Table:
    columns = ["arm", "knowledge", ("calls", "integer"), ("hits", "integer"), ("errors", "integer"), "by tool",
               "refused at the gateway"]  # fmt: skip
    rows: list[list[Cell]] = []
    for arm, each in study.arms.items():
        tools = ", ".join(f"{tool} {n}" for tool, n in sorted(each.kb_tools.items()))
        denied = ", ".join(f"{code} {n}" for code, n in sorted(each.denied.items()))
        rows.append([arm, design.knowledge[arm], each.kb_calls, each.kb_hits, each.kb_errors, tools, denied])
    return elements.table(f"{prefix}study-knowledge", "What the gateways saw of the knowledge base", columns, rows)


def _cells(study: Study, prefix: str) -> Table:
    columns = ["job", "ended", ("attempts", "integer"), ("turns", "integer"), ("tokens", "integer"),
               ("USD", "quantity"), ("s", "seconds"), "solutions", ("knowledge calls", "integer"), "isolation",
               "seen before it"]  # fmt: skip
    rows = []
    for cell in study.cells:
        seen = cell.preflight
        tools = f"{len(seen['tools'])} knowledge tools" if seen.get("tools") else "no knowledge tool"
        if "mcp_status" in seen:
            tools += f", /mcp {seen['mcp_status']}"
        rows.append([
            cell.job, cell.status + (f": {cell.detail}" if cell.detail else ""), cell.attempts,
            cell.turns, cell.tokens, cell.usd, cell.wall_s, f"{cell.solutions}/{cell.problems}",
            cell.kb_calls, cell.isolation.get("isolation"), tools if seen else None,
        ])  # fmt: skip
    return elements.table(f"{prefix}study-cells", "Every sitting of an agent", columns, rows)


def _retries(study: Study, prefix: str) -> Table:
    columns = ["job", ("attempt", "integer"), "class", "status", ("waited s", "seconds"),
               ("turns thrown away", "integer"), ("USD", "quantity"), "why"]  # fmt: skip
    rows = [[r.job, r.attempt, r.klass, r.status, r.waited_s, r.turns, r.usd, r.detail] for r in study.retries]
    counts = Counter(r.klass for r in study.retries)
    told_ = ", ".join(f"{n} {klass}" for klass, n in sorted(counts.items()))
    return elements.table(f"{prefix}study-retries", f"Attempts that do not count: {told_}", columns, rows)


def flags(design: AgentConfig, row: Row) -> list[str]:
    """The arguments of `repro run` that make one row of a study again."""
    words = ["--arms", row.arm or " ".join(design.arms), "--kb", design.kb, "--mode", design.mode,
             "--model", design.model]  # fmt: skip
    words += ["--upstream", design.upstream + (":SCRIPT" if design.upstream == "replay" else "")]
    for name, value in design.budgets.items():
        words += [f"--budget-{name.replace('_', '-')}", f"{value or 0:g}"]
    return words
