"""The facts of one bundle as plain data: what `reports` of a document holds, and `repro verify` holds to the rows."""

from __future__ import annotations

from typing import Any

from repro import fingerprint
from repro.bundle.write import Bundle
from repro.judge.timing import intervals
from repro.records import wording
from repro.records.benchmark import Entry, Times
from repro.records.verdict import Verdict
from repro.report import study
from repro.studies import artifact_study, self_test


def build(bundle: Bundle) -> dict[str, Any]:
    """The facts of a bundle of any verb."""
    manifest = bundle.manifest
    rows = [bundle.rows[name] for name in manifest["plan"] if name in bundle.rows]
    report: dict[str, Any] = {
        "bundle": bundle.name,
        "verb": manifest["verb"],
        "status": manifest["status"],
        "error": manifest.get("error", ""),
        "started": manifest["started"],
        "parameters": manifest["parameters"],
        "engine": manifest.get("engine", {}),
        "machines": {name: fingerprint.headline(value) for name, value in bundle.fingerprints().items()},
        "planned": len(manifest["plan"]),
        "finished": sum(row["status"] == "done" for row in rows),
        "not_measured": _not_measured(bundle),
        "measurement": manifest["parameters"].get("device") == "cuda",
    }
    report["control"] = _control(rows)
    if manifest["verb"] == "fixtures":
        return report | {"fixtures": [_fixture(row) for row in rows if row["status"] == "done"]}
    if manifest["verb"] == "self-test":
        cases = [each.to_json() for each in self_test.outcomes(bundle)]
        return report | {"cases": cases, "skipped": manifest["parameters"]["skipped"]}
    if manifest["verb"] == "benchmark":
        records = bundle.records()
        entries = artifact_study.entries(records[row["row"]] for row in rows)
        return report | {"artifacts": [_artifact(entry) for entry in entries], "benchmark": _benchmark_means(entries)}
    arms = [_arm(name, label, rows) for name, label in manifest["parameters"].get("arms", {"": ""}).items()]
    told = study.build(bundle, rows)
    return report | {"arms": arms} | ({"study": told} if told else {})


def _control(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The A/A controls of a run: eager against eager in another worker. Empty where none was timed."""
    timed = [row["result"].get("timing") or {} for row in rows if row["status"] == "done"]
    found = [facts["aa"] for facts in timed if "aa" in facts]
    if not found:
        return {}
    return {
        "n": len(found),
        "cover": sum(aa["ci95"][0] <= 1 <= aa["ci95"][1] for aa in found),
        "widest": max((aa["ci95"][1] - aa["ci95"][0]) / 2 for aa in found),
        "furthest": max(abs(aa["ratio"] - 1) for aa in found),
    }


def _not_measured(bundle: Bundle) -> list[dict[str, str]]:
    """Every planned row without a result, with its reason."""
    found = []
    for name in bundle.manifest["plan"]:
        row = bundle.rows.get(name)
        if row is None:
            found.append({"row": name, "reason": bundle.manifest.get("error") or "the run ended before it"})
        elif row["status"] != "done":
            status = "" if row["status"] == "unmet" else f"{row['status']}: "  # an unmet prerequisite explains itself
            found.append({"row": name, "reason": f"{status}{row['error']}"})
    return found


def _fixture(row: dict[str, Any]) -> dict[str, Any]:
    result = row["result"]
    keys = ("problem", "margin", "best_cheat", "refused", "trials_left_out", "build_s")
    return {key: result[key] for key in keys} | {
        "trials": list(result["trials"]),
        "eager_ms": result["reference_timing"].get("eager_ms"),
    }


def _arm(name: str, label: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [row for row in rows if row.get("arm", "") == name]
    entries = []
    for row in mine:
        if row["status"] != "done":
            entries.append({"problem": row["problem"], "solution": row.get("file", ""), "repeat": row.get("repeat", 0),
                            "verdict": "not measured", "outcome": "not measured",
                            "why": f"not measured: {row['error']}"})  # fmt: skip
            continue
        for verdict in row["result"]["results"]:
            entries.append(_solution(row, verdict))
    control = any(row.get("control") for row in mine)
    return {
        "name": name,
        "label": label,
        "control": control,
        "torch_control": any(row.get("torch_control") for row in mine),
        "entries": entries,
        "correct": sum(entry["verdict"] == "correct" for entry in entries),
        "attempted": len(entries),
        "geometric_mean": {} if control else _means(entries),
    }


def _solution(row: dict[str, Any], verdict: dict[str, Any]) -> dict[str, Any]:
    baselines = row["result"]["baselines"]
    time, told = verdict["time_ms"], wording.Told.of(verdict)
    return {
        "problem": verdict["problem"],
        "solution": row.get("file", verdict["solution"]),
        "repeat": row.get("repeat", 0),
        "verdict": verdict["verdict"],
        "outcome": wording.word(told),
        "why": wording.why(told),
        "reasons": verdict["reasons"],
        "precision_class": verdict["precision_class"],
        "rel_l2": verdict["rel_l2"],
        "margin": row["result"]["margin"],
        "eager_ms": baselines.get("eager", {}).get("time_ms", {}).get("median"),
        "compile_ms": baselines.get("compile", {}).get("time_ms", {}).get("median"),
        "solution_ms": time["median"] if time else None,
        "ci95_ms": time["ci95"] if time else None,
        "speedup": verdict["speedup"],
        "floor_ms": verdict["floor_ms"],
        "floor_fraction": verdict["floor_fraction"],
        "labels": verdict["labels"],
        "word": verdict.get("word"),
        "latency_ms": (verdict.get("latency_ms") or {}).get("median"),
        "hot_ms": verdict.get("hot_ms"),
        "own_kernel_share": verdict.get("own_kernel_share"),
        "trust": verdict["trust"],
        "separation": verdict.get("separation"),
        "timing_status": row["result"]["timing"]["status"],
        "no_measurement": row["result"].get("no_measurement", ""),
        "legacy": verdict["legacy"],
        **({"kernelbench": verdict["kernelbench"]} if verdict.get("kernelbench") else {}),
        **({"sizes": row["result"]["sizes"]["stamp"]} if "sizes" in row["result"] else {}),
    }


UNGAINED = {"ratio": 1.0, "ci95": [1.0, 1.0]}


def _means(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the geometric mean of correct solutions' speedups over each baseline, and how many problems it covers.

    Problems without a measured time are left out. A speedup too small for the judge's clock to confirm counts as 1.0:
    leaving it out would raise the mean of the others.
    """
    found = {}
    for baseline in ("eager", "compile", "best_same_class"):
        timed = [e for e in entries if e["verdict"] == "correct" and not e.get("no_measurement")]
        found_in = [e["speedup"][baseline] for e in timed if baseline in e["speedup"]]
        ratios = [UNGAINED if ratio.get("word") == "UNCONFIRMED" else ratio for ratio in found_in]
        if ratios:
            found[baseline] = intervals.geometric_mean(ratios) | {"of": len(entries)}
    return found


def _artifact(entry: Entry) -> dict[str, Any]:
    plain = entry.to_json()
    keys = (
        "problem",
        "eager_ms",
        "compile_ms",
        "input_kernel_ms",
        "optimized_ms",
        "times_ms",
        "best_baseline",
        "no_measurement",
        "reasons",
    )
    return {key: plain[key] for key in keys} | {
        "kernels": {name: _kernel(verdict) for name, verdict in entry.kernels.items()},
        "line": artifact_study.published_line(entry),
        "parity": _parity(entry),
        "rounds": [each.to_json() for each in entry.rounds],
        "profiles": [{k: v for k, v in each.to_json().items() if k != "launches"} for each in entry.profiles],
        "floor_ms": next((v.floor_ms for v in entry.kernels.values() if v.floor_ms), None),
    }


def _kernel(verdict: Verdict) -> dict[str, Any]:
    time, plain = verdict.time_ms, verdict.to_json()
    return {
        "verdict": verdict.verdict,
        "outcome": wording.word(verdict),
        "why": wording.why(verdict),
        "reasons": plain["reasons"],
        "ms": time.median if time else None,
        "ci95_ms": time.ci95 if time else None,
        "n": time.n if time else None,
        "speedup": plain.get("speedup", {}),
        "floor_fraction": verdict.floor_fraction,
    }


def _parity(entry: Entry) -> dict[str, Any] | None:
    """The published protocol's times beside ours: {"ms": {key: [theirs, ours]}, "speedup": [theirs, ours], "line",
    "reasons"}; None where it was not asked for."""
    theirs = entry.parity
    if theirs is None:
        return None
    return {
        "ms": {key: [getattr(theirs, key), getattr(entry, key)] for key in Times.model_fields},
        "speedup": [theirs.speedup, entry.speedup],
        "line": artifact_study.published_line(theirs),
        "protocol": theirs.protocol,
        "grad": theirs.grad,
        "measurement": theirs.measurement,
        "reasons": theirs.reasons,
    }


def _benchmark_means(entries: list[Entry]) -> dict[str, Any]:
    """Geometric mean of the optimised kernels' speedups, with how many of all folders it covers."""
    means = _means([e.kernels["optimized"].to_json() | {"no_measurement": e.no_measurement}
                    for e in entries if "optimized" in e.kernels])  # fmt: skip
    return {name: mean | {"of": len(entries)} for name, mean in means.items()}
