"""A comparison of two bundles as markdown: a pure function of what `compare` found."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

NOTES = """## How to read this

- B/A of a speedup divides two speedups, each measured within its own run; SLOWER says that it fell, be it that the
  kernel is slower or the baseline faster. B/A of a time under 1 is FASTER.
- Intervals are 95 %; those of A and B, independent, add in quadrature. FASTER and SLOWER lie beyond 1 by more than 1 %
  and than both A/A controls, SAME within that, everything else is AMBIGUOUS.
- Fields of a fingerprint: identity (another unit), hard (times do not compare), configuration (may change speed),
  dynamic (the state at that moment), version."""


def render(found: dict[str, Any]) -> str:
    """The whole comparison."""
    parts = [f"# compare: {found['a']['bundle']} (A) and {found['b']['bundle']} (B)", _facts(found)]
    parts += [_changes(found["verdict_changes"])]
    parts += [text for text in (_speedups(found["rows"]), _times(found["rows"])) if text]
    for side, other in (("a", "b"), ("b", "a")):
        rows = [[o["row"], o["variant"] or "–", o["reason"]] for o in found[f"only_{side}"]]
        if rows:
            parts.append(f"## Only in {side.upper()}\n\n" + _table(["row", "variant", f"{other.upper()}"], rows))
    if found["unmeasured"]:
        rows = [[o["row"], o["a"], o["b"]] for o in found["unmeasured"]]
        parts.append("## Measured in neither\n\n" + _table(["row", "A", "B"], rows))
    parts += [_machines(pair) for pair in found["fingerprints"]]
    return "\n\n".join([*parts, NOTES]) + "\n"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)


def _facts(found: dict[str, Any]) -> str:
    lines = []
    for side in ("a", "b"):
        each = found[side]
        stacks = "; ".join(each["stacks"]) or "nothing measured"
        lines.append(f"- {side.upper()}: `{each['verb']}`, started {each['started']}, {each['status']}, {stacks}")
        lines += [f"  - machine `{name}`: {line}" for name, line in each["machines"].items()]
    return "\n".join(lines + [f"- **{caveat}**" for caveat in found["caveats"]])


def _changes(changes: list[dict[str, Any]]) -> str:
    if not changes:
        return "No verdict changed."
    rows = [[c["row"], c["variant"], *c["verdict"], "; ".join(filter(None, c["why"]))] for c in changes]
    return "## Verdicts that changed\n\n" + _table(["row", "variant", "A", "B", "why"], rows)


def _star(row: dict[str, Any]) -> str:
    return "" if all(row["converged"]) else " *"


def _interval(found: dict[str, Any] | None, name: str = "value", unit: str = "") -> str:
    if found is None or found[name] is None:
        return "–"
    low, high = found["ci95"]
    return f"{found[name]:.4g}{unit} [{low:.4g}, {high:.4g}]"


def _speedups(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        for over, found in row["speedup"].items():
            best = found.get("baseline")
            if best and best[0] == best[1] and best[0] in row["speedup"]:
                continue  # that baseline has a line of its own
            name = f"best ({best[0]} in A, {best[1]} in B)" if best else over
            lines.append([row["row"], row["variant"] + _star(row), name, _interval(found["a"], unit="x"),
                          _interval(found["b"], unit="x"), _interval(found, "ratio"), found["word"]])  # fmt: skip
    if not lines:
        return ""
    return "## Speedups\n\n" + _table(["row", "variant", "over", "A", "B", "B/A", "word"], lines)


def _times(rows: list[dict[str, Any]]) -> str:
    lines = [
        [row["row"], row["variant"] + _star(row), _interval(row["time_ms"]["a"]), _interval(row["time_ms"]["b"]),
         _interval(row["time_ms"], "ratio"), row["time_ms"]["word"] or "–"]
        for row in rows
        if row["time_ms"] is not None
    ]  # fmt: skip
    reasons: dict[str, int] = {}
    for row in rows:
        if row["time_reason"]:
            reasons[row["time_reason"]] = reasons.get(row["time_reason"], 0) + 1
    told = "\n".join(f"- {count} of {len(rows)}: {reason}" for reason, count in reasons.items())
    text = "## Times\n\n"
    if lines:
        text += _table(["row", "variant", "A ms", "B ms", "B/A", "word"], lines)
    if told:
        text += ("\n\n" if lines else "") + "Not compared:\n\n" + told
    return text if lines or told else ""


def _machines(pair: dict[str, Any]) -> str:
    """Differences by class; dynamic values in one line, because they differ between any two runs."""
    title = f"## Fingerprints `{pair['a']}` (A) and `{pair['b']}` (B)\n\n"
    told = [d for d in pair["differences"] if d["class"] != "dynamic"]
    rows = [[d["class"] + (" !" if d["hard"] else ""), d["name"], d["a"], d["b"]] for d in told]
    dynamic = [f"{d['name']} {d['a']} → {d['b']}" for d in pair["differences"] if d["class"] == "dynamic"]
    text = title + (_table(["class", "field", "A", "B"], rows) if rows else "Nothing but the machine's state differs.")
    return text + (f"\n\nState when taken: {', '.join(dynamic)}." if dynamic else "")
