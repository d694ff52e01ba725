"""`repro audit`: what every problem of a suite can tell, as one table, from a bundle of fixtures."""

from __future__ import annotations

from typing import Any

from repro.bundle.write import Bundle

HEAD = ("problem", "verdict", "classes", "signal", "best cheat", "margin", "zeros pass 1e-2", "zeros pass 1e-4",
        "influence of inputs", "why")  # fmt: skip
# Trials whose cheats say what the published comparison would let pass, in this order.
PUBLISHED = ("native", "perturbed")


def rows(bundle: Bundle) -> list[dict[str, Any]]:
    """Return one entry for each planned problem, in the order of the plan."""
    return [_row(name, bundle.rows.get(name)) for name in bundle.manifest["plan"]]


def _row(name: str, row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None or row["status"] != "done":
        why = "not run" if row is None else str(row["error"])
        return {"problem": (row or {}).get("problem", name), "verdict": "not measured", "why": why}
    fixture = row["result"]
    trial: dict[str, Any] = next((fixture["trials"][kind] for kind in PUBLISHED if kind in fixture["trials"]), {})
    zeros = trial.get("cheats", {}).get("zeros", {}).get("legacy", {})
    refused = fixture.get("refused_classes", {})
    classes = [klass for klass in fixture["margins"] if klass not in refused]
    found = fixture.get("degenerate", {})
    return {
        "problem": fixture["problem"],
        "verdict": "judged" if not fixture["refused"] else "unjudgeable",
        "classes": classes,
        "refused_classes": refused,
        "signal": trial.get("sensitivity"),
        "best_cheat": fixture["best_cheat"],
        "margin": fixture["margin"],
        "margins": fixture["margins"],
        "zeros_allclose": zeros,
        "influence": fixture.get("influence", []),
        "kind": found.get("kind", ""),
        "why": "; ".join(part for part in (found.get("kind", ""), found.get("proof", "")) if part)
        or "; ".join(f"{klass}: {why}" for klass, why in refused.items()),
    }


def cells(entry: dict[str, Any]) -> list[str]:
    """Return an entry as the cells of HEAD."""
    if entry["verdict"] == "not measured":
        return [entry["problem"], entry["verdict"], *[""] * (len(HEAD) - 3), " ".join(entry["why"].split())[:160]]
    zeros = entry["zeros_allclose"]
    return [
        entry["problem"],
        entry["verdict"],
        " ".join(entry["classes"]),
        _number(entry["signal"]),
        str(entry["best_cheat"]),
        _number(entry["margin"]),
        *({True: "yes", False: "no"}.get(zeros.get(f"allclose_{at}"), "") for at in ("1e-2", "1e-4")),
        ", ".join("no tensor" if x is None else _number(x) for x in entry["influence"]),
        entry["why"],
    ]


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.2g}" if isinstance(value, int | float) else str(value)


def counted(entries: list[dict[str, Any]]) -> str:
    """Return one sentence on all entries."""
    judged = [entry for entry in entries if entry["verdict"] == "judged"]
    whole = sum(not entry["refused_classes"] for entry in judged)
    unjudgeable = sum(entry["verdict"] == "unjudgeable" for entry in entries)
    zeros = sum(bool(entry.get("zeros_allclose", {}).get("allclose_1e-2")) for entry in entries)
    return (
        f"{len(entries)} problems: {whole} judged in every class, {len(judged) - whole} in some, {unjudgeable} "
        f"unjudgeable, {len(entries) - len(judged) - unjudgeable} not measured; zeros pass allclose at 1e-2 on {zeros}"
    )


def markdown(bundle: Bundle, entries: list[dict[str, Any]]) -> str:
    """Return the page of an audit: how it was measured, one sentence, the table."""
    given = bundle.manifest.get("parameters", {})
    lines = [
        f"# What the problems of {given.get('suite', 'a suite')} can tell",
        "",
        f"From the bundle `{bundle.path.name}`, at {given.get('size')} size on {given.get('device')}. "
        f"{counted(entries)}.",
        "",
        "- **signal**: relative L2 distance of the outputs for two draws of the published inputs.",
        "- **best cheat**: the built-in answer without the work that comes nearest to passing; **margin**: how much "
        "further it is from passing than the worst honest kernel, in the loosest class that is judged.",
        "- **zeros pass**: whether a kernel that returns zeros passes `allclose` with that tolerance, absolute and "
        "relative, on the published inputs.",
        "- **influence of inputs**: relative change of the output when one input alone is another draw.",
        "- **why**: the proof that a problem is unjudgeable, or why a class is not judged.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(entry)) + " |" for entry in entries]
    return "\n".join(lines) + "\n"
