"""Sections of the artifact study: the published protocol, the rounds of searches, profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from repro.analysis.records import Source
from repro.report import elements
from repro.report.elements import Head, Item, Section
from repro.studies import artifact_study

KERNELS = {"input_kernel": "input kernel", "optimized": "optimised kernel"}
_PROTOCOL = (
    "Published protocol: mean of `do_bench(warmup=500, rep=100)` (milliseconds), all variants in one process on shared "
    "inputs, nothing verified, times as that process reports them. Ours: median device time of verified calls, cold "
    "L2, inputs that no call saw before. The published script's grad mode is not known; here it is torch's default, "
    "enabled. A speedup is over torch.compile, or over eager where that is absent."
)
_UNMEASURED = "The published protocol ran too. Its times here are not a measurement; `benchmark --json` holds them."
_VARIANTS = {"eager": "eager", "compile": "compile", "input_kernel": "input", "optimized": "optimised"}
# Shares that a profile shows, by their columns.
SHARES = {"dram_pct": "DRAM", "sm_pct": "SM", "compute_memory_pct": "compute-memory", "tensor_pct": "tensor",
          "warps_pct": "occupancy", "l1_hit_pct": "L1 hit"}  # fmt: skip


def published_speedup(times_ms: Mapping[str, float | None]) -> float | None:
    """The published script's speedup: torch.compile, else eager, over the optimised kernel."""
    base, own = times_ms.get("compile") or times_ms.get("eager"), times_ms.get("optimized")
    return base / own if base and own else None


def items(source: Source) -> Iterator[Item]:
    """The rounds of each search in one line, and how many profiles there are."""
    for row in source.rounds.values():
        yield Item(tone="", text=f"rounds of {row.problem.partition('_')[0]}: {artifact_study.rounds_line(row)}")
    profiles = [profile for row in source.profiles.values() for profile in row.profiles]
    taken = sum(profile.state == "profiled" for profile in profiles)
    if profiles:
        yield Item(tone="", text=f"profiles: {taken} of {len(profiles)} taken")


def parity(sources: list[Source]) -> Section:
    """The published protocol's times beside ours, where `--parity` took them: one line an artifact."""
    rows, text = [], list[str]()
    for source in sources:
        for row in source.done if source.verb == "benchmark" else []:
            if row.judged is None or not artifact_study.own(row):  # not an artifact's own kernels
                continue
            theirs, ours = row.judged.parity, row.judged.medians_ms
            if theirs is None or row.judged.no_measurement or not theirs.measurement:
                text = [_UNMEASURED] if theirs else text
                continue
            pairs = [ms for name in _VARIANTS for ms in (theirs.times_ms.get(name), ours.get(name))]
            speeds = [published_speedup(theirs.times_ms), published_speedup(ours)]
            rows.append([row.problem, source.letter, *pairs, *speeds])
    columns: list[Head] = ["problem", "bundle"]
    columns += [(f"{name} ms, {of}", "ms") for name in _VARIANTS.values() for of in ("published protocol", "ours")]
    columns += [(f"speedup, {of}", "ratio", 1) for of in ("published protocol", "ours")]
    caption = "Times by both protocols"
    return elements.tabled("parity", "By the published protocol", caption, columns, rows, text=text, note=_PROTOCOL)


def rounds(sources: list[Source]) -> Section:
    """Every kernel of a search's rounds, where `benchmark --rounds` judged them: one line a kernel."""
    rows = []
    for source in sources:
        for row in source.rounds.values():
            rows += [
                [row.problem, source.letter, str(each.round) if each.round else "input", each.why or each.verdict,
                 each.time_ms.median if each.time_ms else None, each.published_protocol_ms, each.published_ms,
                 elements.quantity(ratio.ratio, ratio.ci95) if (ratio := each.over_input) else None,
                 "best so far" if each.best else None]
                for each in artifact_study.rounds(row)
            ]  # fmt: skip
    columns = ["problem", "bundle", ("round", "text", 0), ("verdict", "verdict"), ("ms", "ms", 1),
               ("published protocol here, ms", "ms"), ("published, ms", "ms", 2), ("over input kernel", "ratio", 1),
               "running best"]  # fmt: skip
    text = "Each round's kernel was judged and timed here, beside its input kernel. Published times are its trace's."
    return elements.tabled("measured-rounds", "Rounds", "Rounds of every search", columns, rows, note=text)


def profiles(sources: list[Source]) -> Section:
    """Hardware counters of every kernel, where `benchmark --profile` read them: one line a kernel and dtype."""
    rows = []
    for source in sources:
        for row in source.profiles.values():
            for each in row.profiles:
                totals = each.totals
                rate, ns = totals["dram_bytes_per_s"], totals["duration_ns"]
                shares = [None if (share := totals[key]) is None else share / 100 for key in SHARES]
                rows.append([
                    row.problem, source.letter, artifact_study.KERNEL_WORDS[each.kernel], each.dtype,
                    None if ns is None else ns / 1e6, None if rate is None else rate / 1e9, *shares, each.told,
                ])  # fmt: skip
    columns = ["artifact", "bundle", ("kernel", "text", 0), ("dtype", "text", 0), ("ms", "ms"),
               ("DRAM GB/s", "quantity"), *((title, "percent") for title in SHARES.values()),
               ("state", "text", 1)]  # fmt: skip
    text = (
        "One call of each kernel under Nsight Compute, cold caches, clocks as the machine runs them; all launches "
        "together. Shares are of what the GPU can sustain, weighted by duration. The figures are the profiled "
        "process's own and decide nothing."
    )
    return elements.tabled("profiles", "Profiles", "Hardware counters", columns, rows, note=text)
