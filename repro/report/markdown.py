"""A report as markdown: a pure function of the model. Tables by tabulate."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from repro.report import outline, study

NOT_A_MEASUREMENT = (
    "This run used the CPU, Triton's interpreter and small shapes: its verdicts are real, its times are **not a "
    "measurement** and are left out here (the rows keep them)."
)
# What torch.compile is told, beside its default.
MORE_BASELINES = {"reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune"}
PARITY = (
    "Published: mean of `do_bench(warmup=500, rep=100)` (milliseconds), all variants in one process on shared inputs, "
    "nothing verified, the bare word of that process. Ours: median device time of verified calls, cold L2, inputs that "
    "no call saw before. The published script's grad mode is not known; here it is torch's default, enabled. A "
    "speedup is over torch.compile, or over eager where that is absent."
)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _ratio(entry: dict[str, Any] | None) -> str:
    """A speedup with its 95 % interval."""
    if not entry:
        return "–"
    low, high = entry["ci95"]
    return f"{entry['ratio']:.3g}x [{low:.3g}, {high:.3g}]"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    told = [[outline.plain(" ".join(cell.split())) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return tabulate(told, headers=head, tablefmt="github", disable_numparse=True)


def render(report: dict[str, Any]) -> str:
    """The whole report."""
    parts = [f"# {report['verb']}: {_headline(report)}", _facts(report)]
    if not report["measurement"] and report["verb"] != "fixtures":
        parts.append(NOT_A_MEASUREMENT)
    if "fixtures" in report:
        parts.append(_fixtures(report["fixtures"]))
    if "cases" in report:
        parts.append(_cases(report))
    if "study" in report:
        parts.append(outline.section(study.section(report["study"])))
    for arm in report.get("arms", []):
        parts.append(_arm(arm, report["measurement"]))
    if "artifacts" in report:
        parts.append(_artifacts(report))
    if report["not_measured"]:
        rows = [[entry["row"], entry["reason"]] for entry in report["not_measured"]]
        parts.append("## Not measured\n\n" + _table(["row", "reason"], rows))
    parts.append(NOTES)
    return "\n\n".join(parts) + "\n"


NOTES = """## How to read this

- A verdict comes from relative L2, max-norm and per-row distance to an fp64 reference over secret inputs, signed and
  spiked inputs and perturbed weights; the class (fp32, tf32, bf16) is measured. tf32 also holds fp16 operands with fp32
  sums.
- A time is the median device time of one call with a cold L2, its launch hidden, on inputs that no call saw before.
- A speedup is the geometric mean over paired blocks, baseline over solution, with its 95 % interval: the wider of
  Student's and the studentised bootstrap's, and what two processes of the same code differ by (docs/judging.md). `best`
  is the fastest torch baseline that is at least as precise as the solution. FAST and SLOW lie beyond 1 by more than the
  A/A control (eager against eager in another process), SAME within 1 %.
- `floor` is the time that this GPU's measured ceilings allow; `of floor` is that time over the solution's.
- `margin` is how much further the best cheat is from passing than the worst honest kernel.
- What each trust level stops and does not: docs/judging.md."""


def _headline(report: dict[str, Any]) -> str:
    done = f"{report['finished']} of {report['planned']} rows measured"
    if "arms" in report:
        words = [f"{arm['name'] or 'solutions'} {arm['correct']}/{arm['attempted']} correct" for arm in report["arms"]]
        return "; ".join([*words, done])
    return done + (f" ({report['status']})" if report["status"] != "complete" else "")


def _facts(report: dict[str, Any]) -> str:
    engine = report["engine"]
    lines = [
        f"- bundle `{report['bundle']}`, started {report['started']}, status {report['status']}"
        + (f": {report['error']}" if report["error"] else ""),
        f"- engine {engine.get('engine', '?')} ({engine.get('isolation', '?')}), "
        f"size {report['parameters'].get('size')}",
    ]
    if report["parameters"].get("quick"):
        options = report["parameters"]["options"]
        lines.append(
            f"- **a quick look**: at most {options['timing_budget_s']:g} s and {options['max_blocks']} blocks, "
            f"baselines {', '.join(options['modes'])} alone; verdicts are the full ones"
        )
    control = report["control"]
    if control:
        lines.append(
            f"- A/A control: {control['cover']} of {control['n']} intervals cover 1, the widest ±"
            f"{100 * control['widest']:.2f} %, the furthest ratio {100 * control['furthest']:.2f} % from 1"
        )
    trusts = sorted({f"{e['trust']}, separation {e['separation']}" for a in report.get("arms", []) for e in a["entries"]
                     if e.get("separation")})  # fmt: skip
    lines += [f"- trust {trust}" for trust in trusts]
    lines += [f"- machine `{name}`: {line}" for name, line in report["machines"].items()]
    return "\n".join(lines)


def _name(arm: dict[str, Any], entry: dict[str, Any]) -> str:
    """Problem, file where there is no arm to tell solutions apart, and repeat."""
    file = f" {entry['solution']}" if not arm["name"] and entry["solution"] else ""
    return f"{entry['problem']}{file}" + (f" #{entry['repeat']}" if entry["repeat"] else "")


def _verdicts(arm: dict[str, Any]) -> str:
    """Verdicts without times."""
    rows = [
        [
            _name(arm, e),
            e["verdict"],
            e.get("precision_class") or "–",
            "–" if e.get("rel_l2") is None else f"{float(e['rel_l2']):.1e}",
            f"{e['margin']:.0f}" if "margin" in e else "–",
            e["why"],
        ]
        for e in arm["entries"]
    ]
    return _table(["problem", "verdict", "class", "rel L2", "margin", "why"], rows)


def _arm(arm: dict[str, Any], measurement: bool) -> str:
    title = f"## {arm['name'] or 'Solutions'}" + (f": {arm['label']}" if arm["label"] else "")
    if arm["control"]:
        rows = [[_name(arm, e), e["verdict"], e["why"]] for e in arm["entries"]]
        return f"{title}\n\n" + _table(["problem", "verdict", "why"], rows)
    if not measurement:
        return title + "\n\n" + _verdicts(arm)
    head = ["problem", "verdict", "class", "rel L2", "eager ms", "compile ms", "solution ms", "vs eager", "vs compile",
            "vs best", "word", "of floor", "own kernels", "margin"]  # fmt: skip
    rows = []
    for e in arm["entries"]:
        if "speedup" not in e:
            rows.append([_name(arm, e), e["verdict"], *["–"] * 12])
            continue
        best = e["speedup"].get("best_same_class")
        told = [
            _name(arm, e),
            e["verdict"],
            e["precision_class"] or "–",
            "–" if e["rel_l2"] is None else f"{float(e['rel_l2']):.1e}",
        ]
        if e.get("no_measurement"):
            rows.append([*told, *["–"] * 8, _percent(e["own_kernel_share"]), f"{e['margin']:.0f}"])
            continue
        rows.append([
            *told,
            _ms(e["eager_ms"]),
            _ms(e["compile_ms"]),
            _ms(e["solution_ms"]) + ("" if e["timing_status"] in ("converged", "not_timed") else " *"),
            _ratio(e["speedup"].get("eager")),
            _ratio(e["speedup"].get("compile")),
            _ratio(best) + (f" ({best['baseline']})" if best else ""),
            e["word"] or "–",
            _percent(e["floor_fraction"]),
            _percent(e["own_kernel_share"]),
            f"{e['margin']:.0f}",
        ])  # fmt: skip
    text = f"{title}\n\n" + _table(head, rows)
    if any(e.get("timing_status") == "not_converged" for e in arm["entries"]):
        text += "\n\n\\* the 95 % interval of a median was still wider than ±0.5 % when the time budget ended."
    faults = [[_name(arm, e), "; ".join(filter(None, (e["why"], _no_times(e))))] for e in arm["entries"]
              if e["why"] or _no_times(e)]  # fmt: skip
    if faults:
        text += "\n\n" + _table(["problem", "why"], faults)
    return text + "\n\n" + _geomean(arm["geometric_mean"], arm)


def _no_times(entry: dict[str, Any]) -> str:
    """Why the times of a row that was measured are left out, or ""."""
    why = entry.get("no_measurement")
    return f"times are no measurement: {why}" if why else ""


def _geomean(means: dict[str, Any], arm: dict[str, Any] | None = None) -> str:
    if not means:
        return "No geometric mean: nothing correct was timed."
    names = {"eager": "eager", "compile": "torch.compile", "best_same_class": "best torch baseline of the same class"}
    rows = [[names[name], _ratio(mean), f"{mean['n']} of {mean['of']}"] for name, mean in means.items()]
    return _table(["geometric mean over", "speedup", "problems"], rows)


def _artifacts(report: dict[str, Any]) -> str:
    if not report["measurement"]:
        rows = [[a["problem"], *[a["kernels"].get(k, {}).get("verdict", "–") for k in ("input_kernel", "optimized")],
                 "; ".join(a["reasons"])] for a in report["artifacts"]]  # fmt: skip
        text = "## Artifacts\n\n" + _table(["problem", "input kernel", "optimised kernel", "reasons"], rows)
        return text + _parity(report["artifacts"])
    more = [name for name in MORE_BASELINES if any(name in a["times_ms"] for a in report["artifacts"])]
    head = ["problem", "eager ms", "compile ms", *(f"{MORE_BASELINES[name]} ms" for name in more), "input ms",
            "optimised ms", "95 %", "n", "verdicts", "opt vs compile", "opt vs best", "best", "floor ms",
            "of floor"]  # fmt: skip
    rows = []
    for a in report["artifacts"]:
        optimized = a["kernels"].get("optimized", {})
        verdicts = ", ".join(k["verdict"] for k in a["kernels"].values()) or "–"
        if a.get("no_measurement"):
            rows.append([a["problem"], *["–"] * (6 + len(more)), verdicts, *["–"] * 5])
            continue
        speedup, best = optimized.get("speedup", {}), a["best_baseline"]
        rows.append([
            a["problem"],
            _ms(a["eager_ms"]),
            _ms(a["compile_ms"]),
            *(_ms(a["times_ms"].get(name, {}).get("median")) for name in more),
            _ms(a["input_kernel_ms"]),
            _ms(a["optimized_ms"]),
            _half(optimized.get("ci95_ms")),
            optimized.get("n") or "–",
            verdicts,
            _ratio(speedup.get("compile")),
            _ratio(best),
            best["baseline"] if best else "–",
            _ms(a["floor_ms"]),
            _percent(optimized.get("floor_fraction")),
        ])  # fmt: skip
    text = "## Artifacts\n\n" + _table(head, rows)
    reasons = [[a["problem"], reason] for a in report["artifacts"] for reason in a["reasons"]]
    if reasons:
        text += "\n\n" + _table(["problem", "reason"], reasons)
    return text + "\n\n" + _geomean(report["benchmark"]) + _parity(report["artifacts"])


def _half(interval: list[float] | None) -> str:
    """Half the width of a time's 95 % interval, in per cent of its middle."""
    if interval is None:
        return "–"
    low, high = interval
    return f"±{100 * (high - low) / (high + low):.2f} %"


def _parity(artifacts: list[dict[str, Any]]) -> str:
    """The published protocol's times beside ours, where `--parity` took them."""
    found = [a for a in artifacts if a["parity"] is not None and not a.get("no_measurement")]
    if not found:
        return ""
    text = "\n\n### By the published protocol\n\n"
    rows = []
    for a in found:
        pairs = [" / ".join(map(_ms, pair)) for pair in a["parity"]["ms"].values()]
        speedups = ["–" if value is None else f"{value:.2f}x" for value in a["parity"]["speedup"]]
        rows.append([a["problem"], *pairs, " / ".join(speedups)])
    if any(a["parity"]["measurement"] for a in found):
        head = ["published / ours", "eager ms", "compile ms", "input ms", "optimised ms", "speedup"]
        text += _table(head, rows) + "\n\n" + PARITY
    else:
        text += "There is no do_bench without a GPU: the host's clock stood in, which is not a measurement either."
    reasons = [[a["problem"], name, why] for a in found for name, why in a["parity"]["reasons"].items()]
    return text + ("\n\n" + _table(["problem", "variant", "why it has no time"], reasons) if reasons else "")


def _cases(report: dict[str, Any]) -> str:
    wrong = [case for case in report["cases"] if case["complaints"]]
    rows = [
        [case["case"], case["problem"], case["verdict"], ", ".join(r["code"] for r in case["reasons"]) or "–",
         "; ".join(case["complaints"]) or "as it must be"]
        for case in report["cases"]
    ]  # fmt: skip
    text = f"## Self-test\n\n{len(report['cases'])} cases, {len(wrong)} wrong, {len(report['skipped'])} skipped.\n\n"
    text += _table(["case", "problem", "verdict", "reasons", "judged"], rows)
    if report["skipped"]:
        text += "\n\n" + _table(["skipped", "because"], [[name, why] for name, why in report["skipped"].items()])
    return text


def _fixtures(fixtures: list[dict[str, Any]]) -> str:
    rows = [
        [f["problem"], f"{f['margin']:.1f}", f["best_cheat"], ", ".join(f["trials"]), _ms(f["eager_ms"]),
         f"{f['build_s']:.1f}", f["refused"] or "no"]
        for f in fixtures
    ]  # fmt: skip
    head = ["problem", "margin", "best cheat", "trials", "eager ms", "s", "refused"]
    return "## Fixtures\n\n" + _table(head, rows)
