"""Sections on what measured: comparability, the GPUs' controls, clocks during the run, fingerprints."""

from __future__ import annotations

import math
from collections.abc import Iterator

from repro import fingerprint
from repro.analysis import records
from repro.analysis.compare import OTHER_GPU
from repro.analysis.records import Fingerprint, Source
from repro.fingerprint import classes, difference, series
from repro.judge.timing import intervals
from repro.records.result import Window
from repro.report import elements
from repro.report.elements import Cell, Section
from repro.system.jsonio import Json

# A unit counts as disturbed if so few of its 95 % intervals hold 1 by chance less often than this.
_UNLIKELY = 0.01


# -- what may be compared


def comparability(sources: list[Source]) -> Section:
    """What may be compared between these bundles."""
    text = _other_texts(sources)
    if len({source.machine for source in sources}) > 1:
        text.insert(0, "The machines differ: absolute times of different machines are shown and not compared.")
    units = {fingerprint.value(found, "gpu_uuid_hash") for source in sources for found in source.fingerprints.values()}
    if len(sources) > 1 and (len(units) > 1 or None in units):
        text.append(f"Not known to be one GPU: two of one kind differ by up to {100 * OTHER_GPU:.0f} %.")
    return elements.section("comparability", "What may be compared", text=text)


def _other_texts(sources: list[Source]) -> list[str]:
    """Rows that several bundles have and that were not measured from the same solutions and problem files."""
    judged = [source for source in sources if source.verb in records.VERBS]
    contents = records.grouped(
        ((source.verb, row.row), (row.content, source.letter)) for source in judged for row in source.done
    )
    sides = ((name, records.grouped(mine).values()) for (_, name), mine in contents.items())
    rows = records.grouped((" against ".join(map(", ".join, mine)), name) for name, mine in sides if len(mine) > 1)
    return [
        f"Not the same texts, {letters}: solutions or problem files of {', '.join(names)} differ by their recorded "
        "hash, so that differences between these bundles are not of machine and stack alone."
        for letters, names in rows.items()
    ]


def fingerprints(sources: list[Source]) -> Section:
    """Every recorded field of every machine, side by side, by class; the state at that moment left out."""
    named = records.grouped((name, (s.letter, value)) for s in sources for name, value in s.fingerprints.items())
    values = {name: of[0][1]["values"] for name, of in named.items()}
    fields: dict[str, str] = {}
    for value in reversed(values.values()):
        fields |= {name: classes.of(name, entry) for name, entry in value.items()}
    order = list(classes.NAMES.values())
    several = len(values) > 1
    rows = []
    for name, klass in sorted(fields.items(), key=lambda pair: (order.index(pair[1]), pair[0])):
        if klass != "dynamic":
            cells = [_field(value.get(name)) for value in values.values()]
            same = ["same" if len(set(cells)) == 1 else "differs"] * several
            rows.append([name, klass, *same, *cells])
    columns = [
        "field",
        "class",
        *["all"] * several,
        *(f"{', '.join(letter for letter, _ in of)}: {name}" for name, of in named.items()),
    ]
    caption = "Fingerprints of the machines; identities are salted hashes"
    return elements.tabled("fingerprints", "Fingerprints", caption, columns, rows, paper=False)


def _field(entry: Fingerprint | None) -> str:
    value = difference.told(entry)
    return "; ".join(f"{k} {v}" for k, v in value.items()) or "none" if isinstance(value, dict) else str(value)


# -- the GPUs of a run


def gpus(sources: list[Source]) -> Section:
    """One line a GPU that timed something: its A/A controls, eager against eager."""
    rows = []
    for source in sources:
        timed = ((row, row.judged and row.judged.timing.aa) for row in source.done if source.timed)
        # node and GPU, both as hashes
        of_gpu = records.grouped(((row.node or "", row.gpu_uuid_hash or "not recorded"), aa) for row, aa in timed if aa)
        for (node, unit), controls in sorted(of_gpu.items()):
            cover, widest, furthest = intervals.controls(controls)
            rows.append([unit, source.letter, source.machine, node, str(len(controls)), str(cover), widest, furthest,
                         disturbed(cover, len(controls))])  # fmt: skip
    columns = [("GPU", "code"), "bundle", "kind", ("node", "code"), "A/A controls", "hold 1", ("widest, ±", "percent"),
               ("furthest from 1", "percent"), ("verdict", "verdict")]  # fmt: skip
    text = (
        "The A/A control of a row times eager "
        "against eager in another process, so that its interval holds 1 unless other jobs disturbed it."
    )
    return elements.tabled("gpus", "GPUs", "A/A control of every GPU", columns, rows, note=text)


def disturbed(cover: int, count: int) -> str:
    """Return whether so few intervals of 95 % that hold 1 are no chance."""
    chance = sum(math.comb(count, hold) * 19**hold for hold in range(cover + 1)) / 20**count  # exact; 19 of 20 hold 1
    return "disturbed" if chance < _UNLIKELY else "undisturbed"


# -- clocks during the run


def clocks(sources: list[Source]) -> Section:
    """The clocks, power and temperature of the GPU while rows were timed."""
    rows = [_sampled(source, *each) for source in sources for each in _windows(source)]
    columns = ["row", "bundle", ("samples", "integer", 7), ("SM MHz", "spread", 1),
               ("memory MHz", "spread", 4), ("W", "spread", 2), ("°C", "spread", 3), ("J", "quantity"),
               ("s slowed by heat", "quantity"), ("event reasons, share of samples", "text", 5),
               ("times", "verdict")]  # fmt: skip
    caption = "While rows were timed: median (lowest to highest)"
    text = (
        "Times of a row that heat or a power brake slowed while it was timed are no measurement. A power cap is how a "
        "large GPU works. Every sample is in the bundle's `telemetry/`."
    )
    table = elements.table("sampled", caption, columns, rows)
    return elements.section("clocks", "Clocks during the run", note=text, tables=[table])


def _windows(source: Source) -> Iterator[tuple[str, Window]]:
    """Every row that was sampled while it was timed, and what was seen."""
    for row in source.done:
        telemetry: Json = (row.result.telemetry if row.result else None) or {}
        window = (telemetry.get("windows") or {}).get("timing") or {}
        if window.get("samples"):
            yield row.row, Window.model_validate(window)


def _sampled(source: Source, name: str, window: Window) -> list[Cell]:
    spreads = window.sm_mhz, window.memory_mhz, window.power_w, window.temperature_c
    known = {key: value for key, value in window.deltas.items() if isinstance(value, int | float)}
    joules, slowed = (known[key] / scale if key in known else None
                      for key, scale in (("energy_mj", 1e3), ("violation_thermal_ns", 1e9)))  # fmt: skip
    reasons = ", ".join(f"{why} {share:.0%}" for why, share in window.reasons.items())
    why = series.throttled({"windows": {"timing": window.to_json()}})
    return [name, source.letter, window.samples, *spreads, joules, slowed, reasons or "none",
            "throttled" if why else "not throttled"]  # fmt: skip
