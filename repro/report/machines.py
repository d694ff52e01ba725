"""Sections on what measured: comparability, fingerprints."""

from __future__ import annotations

from typing import Any

from repro.analysis.compare import OTHER_GPU
from repro.fingerprint import classes
from repro.fingerprint.difference import differences
from repro.records.claim import Claim
from repro.report import clocks, elements
from repro.report.elements import Section, Table
from repro.report.sources import Source


def comparability(sources: list[Source], published: list[Claim]) -> Section:
    """What may be compared with what: with the published machines, and between these bundles."""
    tables = [table for table in (_from_published(sources, published), _between(sources)) if table]
    told: dict[str, list[str]] = {}
    for source in sources:
        told.setdefault(clocks.throttled(source), []).append(source.letter)
    text = [f"{', '.join(letters)}: {what}" for what, letters in told.items()]
    machines = {source.machine for source in sources}
    if len(machines) > 1:
        text.insert(0, "The machines differ: absolute times of different machines are shown and not compared.")
    text += _other_texts(sources)
    units = {f["values"].get("gpu_uuid_hash", {}).get("value") for s in sources for f in s.fingerprints.values()}
    if len(sources) > 1 and (len(units) > 1 or None in units):
        text.append(f"Not known to be one GPU: two of one kind differ by up to {100 * OTHER_GPU:.0f} %.")
    return elements.section("comparability", "What may be compared", text=text, tables=tables)


def _other_texts(sources: list[Source]) -> list[str]:
    """Rows that several bundles have and that were not measured from the same solutions and problem files."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for source in sources:
        for row in source.done:
            if source.measured is not None:
                found.setdefault((source.verb, row.row), {}).setdefault(row.content, []).append(source.letter)
    told: dict[str, list[str]] = {}
    for (_, name), contents in found.items():
        if len(contents) > 1:
            told.setdefault(" against ".join(", ".join(letters) for letters in contents.values()), []).append(name)
    return [
        f"Not the same texts, {letters}: solutions or problem files of {', '.join(names)} differ by their recorded "
        "hash, so that differences between these bundles are not of machine and stack alone."
        for letters, names in told.items()
    ]


def _from_published(sources: list[Source], published: list[Claim]) -> Table | None:
    """How every machine differs from those that the studies were published on."""
    studies = {claim.study: claim for claim in published}
    found: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        for value in source.fingerprints.values():
            for study, claim in studies.items():
                away = claim.elsewhere(value["values"])
                verdict = "hard: times do not compare, ratios do" if away else "nothing hard differs"
                line = (source.machine, f"{study} study, {claim.machine}", verdict, "; ".join(away), claim.stack)
                found.setdefault(line, []).append(source.letter)
    rows = [[f"{machine} ({', '.join(dict.fromkeys(letters))})", *line] for (machine, *line), letters in found.items()]
    columns = ["measured on", "published on", ("comparison", "verdict"), "differs in", "published stack"]
    return elements.table("from-published", "These machines and the published ones", columns, rows) if rows else None


def _between(sources: list[Source]) -> Table | None:
    """Hard, configuration and version differences of every machine from the first."""
    named = [(s.letter, value) for s in sources for value in s.fingerprints.values()]
    rows = []
    seen = set()
    for letter, value in named[1:]:
        for found in differences(named[0][1], value):
            told = (found.name, str(found.a), str(found.b))
            if found.klass in "HC" and told not in seen:
                seen.add(told)
                kind = "hard" if found.hard else classes.NAMES.get(found.klass, found.klass)
                kind += "" if found.known else ", one side did not record it"
                rows.append([found.name, kind, _told(found.a), _told(found.b), letter])
    if len(named) < 2:
        return None
    columns = ["field", ("class", "verdict"), f"in {named[0][0]}", "there", "bundle"]
    caption = f"Hard and configuration differences from {named[0][0]}" + ("" if rows else ": none")
    return elements.table("between", caption, columns, rows) if rows else None


def _told(value: Any) -> str:
    return "; ".join(f"{k} {v}" for k, v in value.items()) or "none" if isinstance(value, dict) else str(value)


def fingerprints(sources: list[Source]) -> Section:
    """Every recorded field of every machine, side by side, by class; the state at that moment left out."""
    letters: dict[str, list[str]] = {}
    values: dict[str, dict[str, Any]] = {}
    for source in sources:
        for name, value in source.fingerprints.items():
            letters.setdefault(name, []).append(source.letter)
            values.setdefault(name, value)
    named = [(", ".join(letters[name]), name, value) for name, value in values.items()]
    fields: dict[str, str] = {}
    for _, _, value in named:
        fields |= {name: classes.of(name, entry) for name, entry in value["values"].items() if name not in fields}
    order = list(classes.NAMES)
    rows = []
    for field in sorted(fields, key=lambda f: (order.index(fields[f]) if fields[f] in order else len(order), f)):
        if fields[field] == "D":
            continue
        cells = [_field(value["values"].get(field)) for _, _, value in named]
        same = "same" if len(set(cells)) == 1 else "differs"
        rows.append(
            [field, classes.NAMES.get(fields[field], fields[field]), *([same] if len(named) > 1 else []), *cells]
        )
    columns = ["field", "class", *(["all"] if len(named) > 1 else []), *(f"{told}: {name}" for told, name, _ in named)]
    table = elements.table("fingerprints", "Fingerprints of the machines; identities are salted hashes", columns, rows)
    return elements.section("fingerprints", "Fingerprints", tables=[table], paper=False)


def _field(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not recorded"
    return str(entry["status"]) if entry["value"] is None else _told(entry["value"])
