"""`repro share`: a copy of a bundle without host, user, path, GPU and key, closed anew; and bundles packed as archives.

An allow-list decides what a copy holds. Of a record it keeps numbers, and the strings of the fields in `_STRINGS`; any
other string becomes LEFT_OUT. Of free-form values it keeps the keys in `_KEYS`. Files of other kinds than `_JOBS`,
`_TEXTS` and `_SERIES` are left out. Whatever is kept is looked through for names of this user and host and for the
forms of `_IDENTITY`: a string with one becomes LEFT_OUT, a text with one is left out, a name with one becomes a hash.
"""

from __future__ import annotations

import json
import pwd
import re
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import getuid
from pathlib import Path
from typing import Any

from repro import fingerprint
from repro.bundle import evidence, seal, signature, statement, storage, verify
from repro.bundle.evidence import Evidence
from repro.bundle.seal import MANIFEST
from repro.bundle.storage import ARCHIVE
from repro.bundle.write import CLAIMS, DRAWN, FINGERPRINTS, INPUTS, ROWS, SOLUTIONS, plan_digest
from repro.fingerprint import classes
from repro.records import reading
from repro.records.agent import AgentConfig, AgentRecord
from repro.records.base import Record
from repro.records.fingerprint import Fingerprint
from repro.records.manifest import Copy, Manifest, Shared
from repro.records.result import Discarded
from repro.records.verdict import Reason
from repro.system import foreign, jsonio
from repro.system.digest import sha256
from repro.system.jsonio import Json

LEFT_OUT = "left out of the shared copy"
_NOT_LISTED = "files of this kind may hold identities"
_HASHES = "left out of the copy, which keeps its hash"
# Files of a packed bundle that are copied beside the archive, where the bundle has them.
_BESIDE = (MANIFEST, "report.md")

# Fields whose strings are hashes, times, the program's own words, or names of rows, files and implementations.
_STRINGS = frozenset("""
    agent argv arm arms baseline baseline_classes best_cheat bundle_id cases class clock clock_control code
    code_sha256 compile_s confined content cut declared detail device dtype ended engine evidence exhausted file
    files fingerprint_id finished floor_reason folder generator git_commit git_dirty inconsistent inputs job kb kept
    kernel kind knowledge labels launched_late launches_not_hidden left_out measured_again measured_at missing mode
    model models name ncu no_measurement not_kept not_run off_pin order order_of_cells original_bundle_id
    other_inputs own_kernel_share_reason path plan plan_digest precision_class price_as_of problem problem_sha256
    problems proof record refused refused_classes region repeat requirements rewritten row script_sha256 separation
    sha256 size sku_id solution solutions source stamp started state status stop stopped taken time_reason
    tensor_key timed_again tool trial trials_left_out trust type unused_files upstream usage uuid verb verdict
    weights_sha256 word
    """.split())  # fmt: skip
# Keys of free-form values, and those of their strings that are kept. A key below one of `_NAMED` is a name.
_KEYS = frozenset("""
    after agent allocated allocator api arms artifacts before calls cell checksum64 class code columns constants
    compile_timeout_s control_options cudnn_benchmark cudnn_tf32 default_dtype deltas device device_over_start_bytes
    draws dtype eager_ms elements energy_mj engine_version failed_runs file grad honest idle image_id inputs
    held_out isolation job kind largest_change limits marks matmul_tf32 max max_blocks median memory_mhz min missing
    mode modes name options order overrides p5 parity passes pcie_replays period_ms power_mw power_w precision profile
    proof published_change python quick reasons remedy rep_ms repeats reserved rounds row_norms runs sampler samples
    seconds seed seen sensitivity set sha256_head shape shapes shipped size skipped sm_mhz solution solutions source
    statistic status stress suite suites t_ms temperature_c threads timed timeout_s timer timing timing_budget_s
    trust value variants verified violation_power_ns violation_thermal_ns warm warmup_ms warnings weights_change
    weight weights_sha256 windows workload zero_share
    """.split())  # fmt: skip
_NAMED = frozenset(
    "arms cheats columns constants deltas elements honest limits missing overrides reasons set skipped".split()
)
# Fields with names that several files must spell alike.
_ROW_NAMES = frozenset("row plan problem solution file kept name kernel job record folder files missing cases".split())
# Fields that identify one unit: hashed again, so that only copies that were shared together can be linked.
_UNITS = frozenset(("gpu_uuid_hash", "node"))
# Fields of a fingerprint whose values may name a folder, an account or a registry.
_PRIVATE_VALUES = frozenset(("repo_digests", "base_name", "container_id"))

_JOBS = re.compile(r"agents/(?:(?!attempt-)[^/]+/)+job\.json")
_TEXTS = re.compile(rf"{CLAIMS}|(?:{INPUTS}|{SOLUTIONS})/.+\.py")
_SERIES = re.compile(r"telemetry/[^/]+\.json")

_IDENTITY = re.compile(
    r"""
    -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----
    | \bsk-(?:ant-)?[\w-]{8,} | \b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abprs]-|AIza|AKIA|ASIA)[\w-]{10,}
    | \beyJ[\w-]{8,}\.[\w-]{8,} | (?i:\bbearer\s+[\w.~+/=-]{12,})
    | \b[A-Z0-9_]*(?:SECRET|PASSWORD|PASSWD|CREDENTIALS?)["']?\s*[=:]\s*["']?[^\s"',;]{6,}
    | \b[A-Z0-9_]*(?:KEY|TOKEN)["']?\s*[=:]\s*["']?(?=[^\s"',;]*\d)[^\s"',;]{6,}
    | (?i:\b(?:api_?key|auth_?token|password|x-api-key)["']?\s*[=:]\s*["']?[^\s"',;]{6,})
    | ://[^/\s:@]+:[^/\s@]+@                                                   # a password in an address
    | \b[\w.+-]+@(?:[\w-]+\.)+[a-zA-Z]{2,}\b                                   # mail
    | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b                 # the UUID of a GPU
    | (?i:\bserial(?:[ _-]?(?:number|no))?["':=\#\s]+[a-z0-9-]*\d{4})
    | (?<![\d.])(?:10|127|169\.254|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}(?![\d.])
    | (?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}
    | \b(?=[\w.-]*[\d-])[\w-]+(?:\.[\w-]+)*\.(?:local|internal|lan|corp|intra|localdomain)\b
    | /(?:home|Users|root)/ | \b[A-Za-z]:\\ | (?<![\w)\]])~[a-z_][\w-]*/
    | (?<![\w.~/*)\]}-])/(?!(?:usr|proc|dev|sys|etc|lib|lib64|bin|sbin|opt|results|job)\b)(?:[\w.@+~%=-]+/)+[\w.@+~%=-]*
    """,
    re.VERBOSE,
)
# Common names of accounts and hosts, which identify no person.
_COMMON = frozenset("root repro user users admin ubuntu debian ec2-user runner localhost nobody worker".split())


def _sharer() -> list[str]:
    """Return the names of this user and host."""
    account, host = pwd.getpwuid(getuid()), socket.gethostname()
    return [account.pw_name, host, host.partition(".")[0]]


@dataclass
class _Filter:
    """What one copy keeps. hide: names beside those of `_sharer`."""

    hide: Iterable[str] = ()
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    replaced: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {*self.hide, *(n for n in _sharer() if len(n) > 2 and n.lower() not in _COMMON)}
        any_name = "|".join(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])" for name in sorted(names))
        self._names = re.compile(any_name or r"(?!)", re.IGNORECASE)

    def identifies(self, text: str) -> bool:
        """Return whether a text has a name of the sharer or the form of an identity."""
        return bool(self._names.search(text) or _IDENTITY.search(text))

    def hashed(self, kind: str, value: str) -> str:
        """Return what replaces an identity: equal for equal identities of one call of `share`."""
        self.replaced.setdefault(kind, set()).add(value)
        return f"{kind}-{sha256(self.salt + value.encode())[:12]}"

    def name(self, text: str) -> str:
        """Return a name of a row, a file or an implementation, or its hash."""
        new = "/".join(self.hashed("name", part) if self.identifies(part) else part for part in text.split("/"))
        return self.hashed("name", text) if self.identifies(new) else new

    def value(self, value: Any, at: str = "", *, free: bool = False) -> Any:
        """Return what a copy keeps of a value. at: its field. free: its keys are not those of a record."""
        match value:
            case Record():
                return self._record(value)
            case dict():
                named = not free or at in _NAMED
                kept = {key: inner for key, inner in value.items() if named or key in _KEYS or key in classes.CLASS}
                return {self.name(key): self.value(inner, at if named else key, free=free)
                        for key, inner in kept.items()}  # fmt: skip
            case list() | tuple():
                return [self.value(inner, at, free=free) for inner in value]
            case str() if value:
                return self._string(value, at, free=free)
        return value

    def _string(self, text: str, at: str, *, free: bool) -> str:
        if at in _UNITS:
            return self.hashed("uuid", text)
        if at in _ROW_NAMES:
            return self.name(text)
        if at == "argv":  # of a path only the name, which the row has too
            text = text.rpartition("/")[2]
        listed = at in _STRINGS or (free and at in _KEYS)
        return text if listed and not self.identifies(text) else LEFT_OUT

    def _record(self, record: Record) -> Json:
        kept = {}
        for name, info in type(record).model_fields.items():
            if name in record.model_fields_set:
                key = info.alias or name
                if key == "detail" and not isinstance(record, Reason | Discarded):  # in words of an agent or a provider
                    key = "message"
                kept[info.alias or name] = self.value(getattr(record, name), key, free="Any" in str(info.annotation))
        more = {key: value for key, value in (record.model_extra or {}).items() if key in _KEYS}
        kept |= self.value(more, free=True)
        return kept


def share(
    paths: list[Path],
    output: Path | None = None,
    *,
    hide: Iterable[str] = (),
    sign: Path | None = None,
) -> list[Copy]:
    """Copy bundles, each to `<output>/<name>`, without identities.

    output: a folder, else `shared` beside each bundle. hide: names that must not be in it besides this user's and
    host's. sign: the PEM file of a private key. Raises UsageError for a path without a closed bundle or a target that
    exists, BundleError for a changed bundle, and as `signature.key`.
    """
    signer = sign and signature.key(sign, private=True)
    bundles = [verify.unchanged(path, "shared") for path in paths]
    kept = _Filter(hide)
    return [_Copy(bundle, kept, signer).write(output) for bundle in bundles]


def pack(paths: list[Path], output: Path | None = None) -> list[Copy]:
    """Pack bundles as archives, each into a folder `<output>/<name>` beside its manifest and report.

    output: a folder, else `packed` beside each bundle. Raises UsageError for a path without a closed bundle or a target
    that exists, BundleError for a changed bundle, PrerequisiteError where the folder cannot be written.
    """
    copies = []
    for bundle in [verify.unchanged(path, "packed") for path in paths]:
        target = (output or bundle.path.absolute().parent / "packed") / bundle.name
        with storage.whole(target) as half:
            files = {ARCHIVE: storage.pack(bundle.files_in)} | {name: bundle.bytes_of(name) for name in _BESIDE}
            for name, content in files.items():
                if content is not None:
                    jsonio.replace(half / name, content)
        copies.append(Copy(bundle=str(target), bundle_id=bundle.manifest.get("bundle_id")))
    return copies


@dataclass
class _Copy:
    """One copy while it is written. kept: copied file -> its name in the copy; left_out: file or folder -> why."""

    bundle: Evidence
    filter: _Filter
    signer: Any
    kept: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def write(self, output: Path | None) -> Copy:
        """Write the copy, whole or not at all."""
        bundle = self.bundle
        target = (output or bundle.path.absolute().parent / "shared") / self.filter.name(bundle.name)
        with storage.whole(target) as half:
            for name in statement.subjects(bundle.files):
                if name != ROWS and not name.startswith(f"{FINGERPRINTS}/"):
                    self._file(name, half)
            machines = {old: self._machine(old, half) for old in bundle.fingerprints}
            rows = [self._row(row, machines) for row in bundle.lines]
            jsonio.replace(half / ROWS, jsonio.lines(rows))
            manifest = self._manifest()
            seal.close(half, manifest, {row["row"]: row for row in rows}, seal.hashes(half, None, set()))
            jsonio.write(half / MANIFEST, manifest)
            if self.signer is not None:
                signature.sign(evidence.read(half), self.signer)
        return Copy(bundle=str(target), bundle_id=manifest["bundle_id"], shared=Shared(**manifest["shared"]))

    def _file(self, name: str, half: Path) -> None:
        """Copy one file if its kind is listed and it holds no identity; else say why not."""
        content, new = self.bundle.bytes_of(name) or b"", self.filter.name(name)
        place, why = self._refused(name, new, content)
        if why:
            self.left_out[place] = why
            return
        if _SERIES.fullmatch(name):
            content = jsonio.render(self._series(foreign.document(content)))
        elif _JOBS.fullmatch(name):
            content = jsonio.render(self.filter.value(AgentRecord.model_validate(foreign.document(content))))
        self.kept[name] = new
        jsonio.replace(half / new, content)

    def _refused(self, name: str, new: str, content: bytes) -> tuple[str, str]:
        """Return the place of a file that is not copied and why, which is empty for one that is."""
        if DRAWN.fullmatch(name):
            return name, "`repro report` draws it again"
        if _SERIES.fullmatch(name) or _JOBS.fullmatch(name):
            return new, ""
        if not _TEXTS.fullmatch(name):
            return new, _NOT_LISTED
        private = new != name or b"\0" in content or self.filter.identifies(content.decode(errors="replace"))
        return new, "it has an identity" if private else ""

    def _series(self, samples: Json) -> Json:
        columns = {name: values for name, values in samples["columns"].items() if name in _KEYS}
        missing = self.filter.value(dict.fromkeys(samples["missing"], LEFT_OUT))
        return {"schema_version": samples["schema_version"], "columns": columns, "missing": missing}

    def _machine(self, old: str, half: Path) -> Json:
        """Write a fingerprint without identities; return it."""
        record = Fingerprint.model_validate(self.bundle.fingerprints[old])
        values = {}
        for name, entry in record.values.items():
            if name in classes.CLASS:
                value, status = self._machine_value(name, entry.value), self._words(entry.status)
                gone = value is None and entry.value is not None
                values[name] = {"value": value, "source": self._words(entry.source),
                                "status": f"absent: {LEFT_OUT}" if gone else status, "class": entry.klass}  # fmt: skip
        new: Json = self.filter.value(record) | {"values": values}
        for klass, field_name in (("H", "sku_id"), ("HCV", "fingerprint_id")):
            new[field_name] = fingerprint.digest(values, klass)
        jsonio.write(half / FINGERPRINTS / f"{new['fingerprint_id']}.json", new)
        return new

    def _machine_value(self, name: str, value: Any) -> Any:
        """Return the value of a field of a fingerprint, None where it may be an identity."""
        match value:
            case dict():
                inner = {key: self._machine_value(name, part) for key, part in value.items()}
                return {key: part for key, part in inner.items() if part is not None}
            case None | bool() | float():
                return value
            case _ if classes.CLASS[name] == "I":
                return self.filter.hashed("uuid", str(value))
            case str() if re.fullmatch(r"\d+(?:\.\d+)+", value):  # a version, and no address
                return value
        return None if name in _PRIVATE_VALUES or self.filter.identifies(json.dumps(value)) else value

    def _words(self, text: str) -> str:
        return LEFT_OUT if self.filter.identifies(text) else text

    def _row(self, data: Json, machines: dict[str, Json]) -> Json:
        """Return a row without identities, with the ids of the copied fingerprints."""
        row: Json = self.filter.value(reading.row(data))
        if data.get("fingerprint_id") in machines:
            row["fingerprint_id"] = machines[data["fingerprint_id"]]["fingerprint_id"]
        for result in (row.get("result") or {}).get("results", []):
            if result["verdict"] == "error":  # what a solution said of itself
                result["reasons"] = [reason | {"detail": LEFT_OUT} for reason in result["reasons"]]
        if not row.get("inputs"):
            return row
        for given, was in zip(row["inputs"], data["inputs"], strict=True):
            if "kept" in given and was["kept"] not in self.kept:
                del given["kept"]
                given |= {"not_kept": _HASHES, "withheld": True}
        judged = [given for given in row["inputs"] if "kept" in given or "withheld" in given]
        row["content"] = seal.content((given["name"], given["sha256"]) for given in judged)
        return row

    def _manifest(self) -> Json:
        was = Manifest.model_validate(self.bundle.manifest)
        manifest: Json = self.filter.value(was)
        if study := was.parameters.get("study"):
            manifest["parameters"]["study"] = self.filter.value(AgentConfig.model_validate(study))
        if was.claims and was.claims.file not in self.kept:
            del manifest["claims"]
        manifest["plan_digest"] = plan_digest(manifest["plan"], manifest["parameters"])
        earlier = was.shared.left_out if was.shared else {}
        told = Shared(
            rewritten=[ROWS, MANIFEST, *sorted(new for new in self.kept.values() if new.endswith(".json"))],
            left_out={**earlier, **self.left_out},
            identities={kind: len(values) for kind, values in sorted(self.filter.replaced.items())},
            original_bundle_id=(was.shared and was.shared.original_bundle_id) or was.bundle_id,
        )
        manifest["shared"] = told.to_json()
        return manifest
