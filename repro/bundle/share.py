"""`repro bundle share`: a copy of a bundle without host, user, path, GPU and key, closed anew.

Every identity becomes a salted hash. The same identity has the same hash in all bundles that are shared together; the
salt is not kept. Files that are not text are left out, and so are reports other than report.md, which `repro report`
draws again. Text that may be an identity, but has no known form, is listed.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro import fingerprint
from repro.bundle import seal, storage, verify
from repro.bundle.checks import SOLUTIONS
from repro.bundle.evidence import Evidence
from repro.bundle.identities import Identities
from repro.bundle.seal import MANIFEST, STATEMENT
from repro.bundle.write import DRAWN, FINGERPRINTS, INPUTS, ROWS, plan_digest
from repro.fingerprint import series
from repro.records.fixture import PUBLISHED
from repro.records.manifest import Doubt, Shared, SharedCopy
from repro.records.row import Input
from repro.system import jsonio

Mask = Callable[[str], str]
SOURCES = (".py",)
# The one report that a copy keeps; the others are often larger than the rows.
REPORT = "report.md"
BRIEF = "left out of a brief copy"
NOT_BRIEF_PARTS = {
    "fixtures": "limits and distances of fixtures",
    "self-test": "times, samples, distances and memory of cases",
}
OTHER_PARTS = "times of calls by the host's clocks"
# Of each call, by the host's clocks. The judge alone reads them.
HOST_CLOCKS = ("host_ms", "wall_ms", "seal_ms")
# What a brief copy keeps of the trial with published inputs, and what it leaves out beside the trials.
KEPT_OF_TRIALS = ("stress", "seed", "weights_sha256", "sensitivity", "cheats")
NOT_BRIEF = ("neighbour", "telemetry", "dynamic", "trials_left_out", "reference_timing", "build_s", "cell_spent_s")
# What a brief copy of a self-test keeps of a row and of its timing, and what it leaves out of a verdict.
KEPT_OF_CASES, KEPT_OF_TIMING = ("results", "timing", "margin", "wall_s", "sizes"), ("status", "aa", "clock")
NOT_BRIEF_VERDICT = ("distances", "speedup_all", "memory", "neighbour", "time_ms", "latency_ms", "hot_ms")
# Text that may be an identity but has no form of its own: public addresses, hosts of links, random-looking words.
HASHES = "left out of the copy, which keeps its hash"
DOUBTS = {
    "an address": re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
    "a host": re.compile(r"(?<=://)[\w.-]+"),
    "a random-looking word": re.compile(r"[A-Za-z0-9+]{24,}={0,2}"),
}
PUBLIC_HOSTS = frozenset("github.com arxiv.org slsa.dev in-toto.io json-schema.org www.apache.org pytorch.org "
                         "docs.nvidia.com developer.nvidia.com nvidia.com".split())  # fmt: skip


def share(
    paths: list[Path], output: Path | None, salt: bytes, hide: list[str], *, texts: bool = True, brief: bool = False
) -> list[SharedCopy]:
    """Copies bundles, each to `<output>/<name>`, and replaces their identities.

    texts: whether with what was judged. brief: without reports and telemetry; see `_brief`.
    output: a folder, else `shared` beside each bundle. hide: names to replace besides those that are found.
    Raises UsageError for a path without a closed bundle or a target that exists, BundleError for a changed bundle.
    """
    read = [verify.unchanged(path, "shared") for path in paths]
    who = Identities(salt, hide)
    for found in read:
        _learn(found, who)
    where = [output or found.path.absolute().parent / "shared" for found in read]
    return [_copy(found, at, who, texts=texts, brief=brief) for found, at in zip(read, where, strict=True)]


def _failed(path: Path) -> set[str]:
    return set(verify.verify(path).failed)


def _learn(found: Evidence, who: Identities) -> None:
    """Learns the identities in all files of a bundle: JSON by its fields, any other file as text."""
    who.walk(found.manifest)
    for name in found.files:
        who.read(name)
        text = _text(found, name)
        for part in (text or "").split("\n") if name.endswith(".jsonl") else [text or ""]:
            value: Any = None
            if name.endswith((".json", ".jsonl")):
                with contextlib.suppress(ValueError):
                    value = json.loads(part)
            who.walk(part if value is None else value)


def _text(found: Evidence, name: str) -> str | None:
    content = found.bytes_of(name) or b""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def masked(value: Any, mask: Mask, who: Identities) -> Any:
    """Returns parsed JSON without identities: in fields, in strings, and in numbers that a field marks as one."""
    if isinstance(value, dict):
        return {mask(str(name)): masked(inner, mask, who) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, mask, who) for inner in value]
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, int) and not isinstance(value, bool) and who.names.get(str(value)) in ("serial", "id"):
        return mask(str(value))
    return value


def _copy(found: Evidence, output: Path, who: Identities, *, texts: bool, brief: bool) -> SharedCopy:
    """Writes the copy of one bundle, whole or not at all."""
    mask = who.masker()
    machines = _machines(found, mask, who)
    target = output / mask(found.name)
    with storage.whole(target) as half:
        shared, closed_id, doubts = _write(found, half, machines, mask, who, texts=texts, brief=brief)
    new = sorted(_failed(target) - _failed(found.files_in.source))
    return SharedCopy(bundle=str(target), shared=shared, bundle_id=closed_id, not_judged=doubts, failed=new)


def _machines(found: Evidence, mask: Mask, who: Identities) -> dict[str, dict[str, Any]]:
    """Returns the fingerprints without identities, by their new ids. The old ids are to be replaced everywhere."""
    machines = {}
    for value in found.fingerprints.values():
        new = masked(value, mask, who)
        for classes, field in (("H", "sku_id"), ("HCV", "fingerprint_id")):
            new[field] = fingerprint.digest(new["values"], classes)
        who.exact |= {was: new[field] for field in ("sku_id", "fingerprint_id") if (was := value[field]) != new[field]}
        machines[new["fingerprint_id"]] = new
    return machines


def _write(
    found: Evidence, folder: Path, machines: dict[str, dict[str, Any]], mask: Mask, who: Identities, *,
    texts: bool, brief: bool,
) -> tuple[Shared, str, list[Doubt]]:  # fmt: skip
    """Writes the files of a copy. Returns what its manifest says of it, its bundle id, and what may be an identity."""
    doubts = [Doubt(file="", what=f"the name {n!r} is also a word of bundles and was left") for n in who.doubtful()]
    earlier = found.manifest.get("shared") or {}  # it may be a copy itself
    left_out: dict[str, str] = dict(earlier.get("left_out", {}))
    rewritten: list[str] = list(earlier.get("rewritten", []))
    digests: dict[str, str] = {}
    for name, machine in machines.items():
        jsonio.write(folder / FINGERPRINTS / f"{name}.json", machine)
    for name in sorted(found.files):
        if name in (STATEMENT, ROWS) or name.startswith(f"{FINGERPRINTS}/"):
            continue
        if DRAWN.fullmatch(name) and (brief or name != REPORT):
            left_out[name] = "`repro report` draws it again"
            continue
        if not texts and name.startswith((f"{INPUTS}/", f"{SOLUTIONS}/")):
            left_out[name.partition("/")[0]] = HASHES
            continue
        if brief and name.startswith("telemetry/"):
            left_out["telemetry"] = BRIEF
            continue
        text = _text(found, name)
        if text is None:
            left_out[mask(name)] = "it is not text, so it could hold identities"
            continue
        new = _masked_file(name, text, mask, who)
        if new != text:
            rewritten.append(mask(name))
            if name.endswith(SOURCES) and not _same_code(text, new):
                doubts.append(Doubt(file=mask(name), what="its code was changed, so it is not the measured one"))
        jsonio.replace(folder / mask(name), new.encode())
        digests[mask(name)] = seal.sha256(new.encode())
    rows = _rows(found, digests, mask, who)
    if brief:
        left_out[NOT_BRIEF_PARTS.get(str(found.manifest.get("verb")), OTHER_PARTS)] = BRIEF
        rows = [_brief(row) for row in rows]
    jsonio.replace(folder / ROWS, "".join(jsonio.dumps(row) + "\n" for row in rows).encode())
    manifest = _manifest(found, mask, who)
    shared = Shared(
        rewritten=sorted({*rewritten}),
        left_out=left_out,
        identities={kind: len(values) for kind, values in sorted(who.replaced.items())},
        original_bundle_id=earlier.get("original_bundle_id") or found.manifest.get("bundle_id"),
    )
    manifest["shared"] = shared.to_json()
    if manifest.get("claims"):
        manifest["claims"]["sha256"] = digests.get(manifest["claims"]["file"], manifest["claims"]["sha256"])
    files = {name: seal.digest(folder, name) or "" for name in seal.names(folder)}
    inputs = {row["row"]: [Input(**given) for given in row.get("inputs", [])] for row in rows}
    seal.close(folder, manifest, inputs, machines, files)
    jsonio.write(folder / MANIFEST, manifest)
    doubts += [Doubt(file=name, what=doubt) for name in seal.names(folder) for doubt in _doubts(folder / name)]
    return shared, manifest["bundle_id"], doubts


def _masked_file(name: str, text: str, mask: Mask, who: Identities) -> str:
    """Returns a file without identities: JSON by its strings, so that no escape hides one, other files as text."""
    with contextlib.suppress(ValueError):  # its name says JSON, its content is not
        if name.endswith(".json"):
            return jsonio.render(masked(json.loads(text), mask, who)).decode()
        if name.endswith(".jsonl"):
            lines = [masked(json.loads(line), mask, who) for line in text.split("\n") if line]
            return "".join(jsonio.dumps(line) + "\n" for line in lines)
    return mask(text)


def _rows(found: Evidence, digests: dict[str, str], mask: Mask, who: Identities) -> list[dict[str, Any]]:
    """Returns the rows without identities, with the hashes of the copied sources."""
    rows = []
    for row in found.lines:
        new = masked(row, mask, who)
        for given in new.get("inputs", []):
            if "kept" in given and given["kept"] not in digests:
                kept = given.pop("kept")
                binary = _text(found, kept) is None
                given["not_kept"] = "it is not text and was left out of the copy" if binary else HASHES
                given["withheld"] = True
            given["sha256"] = digests.get(given.get("kept", ""), given["sha256"])
        if new.get("inputs"):
            judged = [given for given in new["inputs"] if "kept" in given or "withheld" in given]
            new["content"] = seal.content((given["name"], given["sha256"]) for given in judged)
        elif "inputs" not in new:  # schema 1: the content is the hash of the one kept solution
            place = f"solutions/{new.get('arm')}/{new.get('repeat')}/{new.get('problem')}_"
            for name in digests:
                if name.startswith(place):
                    new["content"] = seal.content([("solution_0.py", digests[name])])
        rows.append(new)
    return rows


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row without telemetry and the host's clocks. Of a fixture it keeps what an audit shows, of a self-test
    the verdicts, speedups and A/A controls."""
    result = row.get("result") or {}
    throttled = series.throttled(result.get("telemetry"))
    if row.get("cases") is not None:
        kept = {name: value for name, value in result.items() if name in KEPT_OF_CASES}
        if isinstance(timing := kept.get("timing"), dict):
            kept["timing"] = {name: value for name, value in timing.items() if name in KEPT_OF_TIMING}
        kept["results"] = [
            {name: value for name, value in each.items() if name not in NOT_BRIEF_VERDICT}
            for each in kept.get("results", [])
        ]
        if throttled:
            kept["telemetry"] = _throttling(result["telemetry"])
        return row | {"result": kept} if result else row
    if "trials" not in result or "problem_sha256" not in result:
        kept = {name: value for name, value in result.items() if name != "telemetry"}
        if throttled:
            kept["telemetry"] = _throttling(result["telemetry"])
        if "samples_ms" in result:
            kept["samples_ms"] = {name: _device_times(each) for name, each in result["samples_ms"].items()}
        return row | {"result": kept} if result else row
    kept = {name: value for name, value in result.items() if name not in NOT_BRIEF}
    shown = next((kind for kind in PUBLISHED if kind in result["trials"]), None)
    if shown is None:
        return row | {"result": kept | {"trials": {}}}
    trial = {name: value for name, value in result["trials"][shown].items() if name in KEPT_OF_TRIALS}
    trial["cheats"] = {name: value for name, value in trial.get("cheats", {}).items() if "legacy" in value}
    return row | {"result": kept | {"trials": {shown: trial}}}


def _device_times(series: dict[str, Any]) -> dict[str, Any]:
    return {
        passes: {clock: ms for clock, ms in times.items() if clock not in HOST_CLOCKS}
        if isinstance(times, dict)
        else times
        for passes, times in series.items()
    }


def _throttling(telemetry: dict[str, Any]) -> dict[str, Any]:
    """Returns what makes a row's times no measurement: for what share of its timed samples the GPU was slowed."""
    return {"windows": {"timing": {"reasons": telemetry["windows"]["timing"]["reasons"]}}}


def _manifest(found: Evidence, mask: Mask, who: Identities) -> dict[str, Any]:
    told = {name: value for name, value in found.manifest.items() if name not in ("files", "bundle_id")}
    new: dict[str, Any] = masked(told, mask, who)
    return new | {"plan_digest": plan_digest(new["plan"], new["parameters"])}


def _same_code(old: str, new: str) -> bool:
    """Returns whether two sources differ only in comments and string literals."""

    def shape(text: str) -> str:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return ast.dump(tree)

    try:
        return shape(old) == shape(new)
    except (SyntaxError, ValueError, RecursionError):
        return False


def _doubts(file: Path) -> list[str]:
    """Returns each text of a shared file that could still be an identity, once."""
    found: dict[str, None] = {}
    for number, line in enumerate(file.read_text().split("\n"), 1):
        for what, pattern in DOUBTS.items():
            for match in pattern.finditer(line):
                if _doubtful(what, match[0]):
                    found.setdefault(f"{what}, line {number}: {match[0][:60]}")
    return list(found)


def _doubtful(what: str, text: str) -> bool:
    if what == "a host":
        return text not in PUBLIC_HOSTS and not re.fullmatch(r"[a-z]+-[0-9a-f]{12}", text)
    if what == "an address":
        return all(int(part) < 256 for part in text.split(".")) and int(text.split(".")[0]) > 16
    counts = [sum(map(kind, text)) for kind in (str.isdigit, str.isupper, str.islower)]
    return min(counts) >= 4
