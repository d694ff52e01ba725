"""Hostile inputs: every verb that reads a stranger's file answers soon, in one clear line, and leaves nothing behind.

Each case makes one input; commands of its kind are then run on it, each in a fork of this process.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import lzma
import os
import resource
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CPU, ROOT, WHOLE

from repro.bundle import seal, storage
from repro.bundle.write import plan_digest
from repro.cli import entry
from repro.system import jsonio, removal
from repro.system.jsonio import Json

Make = Callable[[Path], object]
PUBLISHED = ROOT / "artifacts" / "results" / "h200-pinned" / "20261122T040411Z-benchmark"
# A command starts with less than 300 MiB, and may take 1 GiB with them.
WITHIN_S, MOST_MEMORY = 10, 724 << 20
RAW = "\x1b[31m\u202eevil\x07\r"
SURROGATE = "\udc80"
BYTES = os.fsdecode(b"\xff\xfe")


# -- files that are no plain text


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


FILES = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link out": lambda path: path.symlink_to("/etc/passwd"),
    "link in a circle": lambda path: path.symlink_to(path.name),
    "sparse": _sparse,
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\x00bad"),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "deep": lambda path: path.write_bytes(b"x = " + b"[" * 100_000),
    "deep program": lambda path: path.write_text("x = " + "-" * 20_000 + "1\n"),
    "long chain": lambda path: path.write_text("x = a" + ".b" * 100_000 + "\n"),
    "wide": lambda path: path.write_text("x = [" + "0," * 1_900_000 + "]\n"),
}


# -- bundles


def _whole(folder: Path) -> Path:
    """A small bundle as a folder: one row of a published one."""
    path = folder / PUBLISHED.name
    _write(path, _made())
    return path


@functools.cache
def _made() -> dict[str, bytes]:
    _, files = storage.unpack((PUBLISHED / storage.ARCHIVE).read_bytes())
    files["rows.jsonl"] = files["rows.jsonl"].split(b"\n")[0] + b"\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        _write(path, files)
        _edit(path, lambda known: known.update(plan=[json.loads(files["rows.jsonl"])["row"]]))
        _seal(path)
        return {name: (path / name).read_bytes() for name in [*seal.names(path), "manifest.json"]}


def _write(path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)


def _edit(path: Path, change: Callable[[Json], object]) -> None:
    manifest = json.loads((path / "manifest.json").read_bytes())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def _seal(path: Path) -> None:
    """Make every hash of a bundle anew, as far as its values allow it."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    rows = jsonio.lines_of((path / "rows.jsonl").read_text())
    manifest["plan_digest"] = plan_digest(manifest["plan"], manifest["parameters"])
    seal.close(
        path,
        manifest,
        {row["row"]: row for row in rows},
        {name: seal.digest(path, name) or "" for name in seal.names(path)},
    )
    (path / "manifest.json").write_bytes(jsonio.render(manifest))


def manifest(**values: Any) -> Make:
    return lambda path: _edit(path, lambda known: known.update(values))


def row(*at: str | int, value: Any) -> Make:
    """Set a value in the bundle's row, and make the hashes anew."""

    def change(path: Path) -> None:
        whole = json.loads((path / "rows.jsonl").read_text())
        inner = whole
        for key in at[:-1]:
            inner = inner[key]
        inner[at[-1]] = value
        (path / "rows.jsonl").write_text(json.dumps(whole) + "\n")
        _edit(path, lambda known: known.update(plan=[whole["row"]]) if isinstance(whole["row"], str) else None)
        with contextlib.suppress(Exception):  # of a value that cannot be sealed: the hashes stay those of before
            _seal(path)

    return change


def document(name: str, value: Any) -> Make:
    return lambda path: (path / _first(path, name)).write_text(value if isinstance(value, str) else json.dumps(value))


def file(name: str, kind: str) -> Make:
    """Put a file of a kind of FILES in the place of the bundle's."""

    def change(path: Path) -> None:
        target = path / _first(path, name)
        target.unlink(missing_ok=True)
        FILES[kind](target)

    return change


def _first(path: Path, name: str) -> Path:
    return next(iter(sorted(path.glob(name))), path / name)


def _fingerprint(**values: Any) -> Make:
    def change(path: Path) -> None:
        found = _first(path, "fingerprints/*.json")
        found.write_text(json.dumps(json.loads(found.read_text()) | values))

    return change


def archive(content: bytes | Callable[[tarfile.TarFile], object]) -> Make:
    """Replace a bundle by an archive: of these bytes, or of what is put into it."""

    def change(path: Path) -> None:
        shutil.rmtree(path)
        path.mkdir()
        (path / storage.ARCHIVE).write_bytes(packed(content) if callable(content) else content)

    return change


def packed(put: Callable[[tarfile.TarFile], object]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        put(tar)
    return lzma.compress(plain.getbuffer(), preset=0)


def member(name: str, content: bytes = b"{}", kind: bytes = tarfile.REGTYPE) -> Callable[[tarfile.TarFile], object]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
    return lambda tar: tar.addfile(info, io.BytesIO(content))


@functools.cache
def _bomb() -> bytes:
    """Return an archive of 10 million empty lists, in 5 kB."""
    row = b'{"row":"a","result":[' + b"[]," * 900_000 + b"[]]}\n"
    known = {"schema_version": 2, "plan": ["a"], "plan_digest": "", "verb": "run", "status": "complete"}
    return packed(lambda tar: (member("x/manifest.json", json.dumps(known).encode())(tar),
                                member("x/rows.jsonl", row * 11)(tar)))  # fmt: skip


@functools.cache
def _zeros() -> bytes:
    """Return an archive of more zeros than a bundle may have bytes, in 40 kB."""
    return packed(member("x/rows.jsonl", bytes(storage._MAX_BYTES)))


R, S = ("result", "results", 0), ("result", "results", 1)
BUNDLES = {
    **{f"{name.partition('.')[0]}: {kind}": file(name, kind) for name, kinds in {
        "manifest.json": "pipe, folder, socket, device, link out, link in a circle, sparse, not UTF-8, zeros, deep",
        "rows.jsonl": "pipe, device, link out, sparse, not UTF-8, deep",
        "fingerprints/*.json": "pipe, device, sparse, zeros, deep",
        "statement.json": "pipe, folder, sparse, deep",
        "report.json": "pipe, device, sparse, deep",
        "claims.toml": "pipe, link out, sparse",
        storage.ARCHIVE: "pipe, device, link out, sparse, zeros",
    }.items() for kind in kinds.split(", ")},
    "schema_version: true": manifest(schema_version=True),
    "schema_version: 2.0": manifest(schema_version=2.0),
    "schema_version: [2]": manifest(schema_version=[2]),
    "parameters: nested deep": lambda path: _edit(
        path, lambda known: known["parameters"].update(x=json.loads("[" * 900 + "]" * 900))),
    "manifest: NaN": lambda path: _edit(path, lambda known: known["parameters"].update(x=float("nan"))),
    "manifest: infinite": document("manifest.json", '{"schema_version": 1e999}'),
    "manifest: huge number": manifest(schema_version=10**400),
    "manifest: a list": document("manifest.json", []),
    "manifest: half": document("manifest.json", '{"schema_version": 2, "plan": ['),
    "manifest: lone surrogate": manifest(verb="run" + SURROGATE),
    "plan: text": manifest(plan="all"),
    "plan: objects": manifest(plan=[{}, [], None, 1.5]),
    "plan: raw": manifest(plan=[RAW]),
    "plan: surrogate": manifest(plan=[SURROGATE]),
    "parameters: list": manifest(parameters=[1]),
    "parameters: arms": manifest(verb="run", parameters={"arms": [1], "device": "cuda", "size": "full"}),
    "parameters: study": manifest(verb="run", parameters={"study": {"arms": 1}, "device": "cuda", "size": "full"}),
    "status: list": manifest(status=["complete"]),
    "status: running": manifest(status="running"),
    "verb: raw": manifest(verb=RAW),
    "verb: object": manifest(verb={"a": 1}),
    "started: number": manifest(started=3),
    "tool: raw": manifest(tool=RAW),
    "error: raw": manifest(status="failed", error=RAW),
    "files: list": manifest(files=["rows.jsonl"]),
    "files: outside": manifest(files={"../../../../etc/passwd": "0" * 64, "/etc/passwd": "0" * 64, RAW: 3}),
    "claims: list": manifest(claims=["claims.toml"]),
    "claims: outside": manifest(claims={"file": "/dev/zero", "sha256": 1, "declared": 2}),
    "engine: text": manifest(engine="local"),
    "bundle_id: object": manifest(bundle_id={"a": []}),
    "rows: a list": document("rows.jsonl", "[1]\n"),
    "rows: no id": document("rows.jsonl", '{"a": 1}\n'),
    "rows: deep line": document("rows.jsonl", '{"row": "a", "x": ' + "[" * 900 + "]" * 900 + "}\n"),
    "row: number": row("row", value=7),
    "row: raw": row("row", value=RAW),
    "row: surrogate": row("row", value=SURROGATE),
    "row: status": row("status", value=["done"]),
    "row: error": row("error", value={"a": RAW}),
    "row: result list": row("result", value=[1]),
    "row: no result": row("result", value=None),
    "row: fingerprint elsewhere": row("fingerprint_id", value="../../../../etc/passwd"),
    "row: huge number": row("number", value=10**300),
    "row: inputs outside": row("inputs", value=[{"name": "x", "sha256": "0" * 64, "kept": "/etc/passwd"}]),
    "solution: raw": row(*R, "solution", value=RAW),
    "solution: long": row(*R, "solution", value="x" * 1_000_000),
    "problem: raw": row(*R, "problem", value=RAW),
    "reason: raw": row(*R, "reasons", value=[{"code": RAW, "detail": RAW, "trial": RAW}]),
    "verdict: unknown": row(*R, "verdict", value="perfect"),
    "ratio: 0": row(*R, "speedup", "eager", "ratio", value=0),
    "ratio: negative": row(*S, "speedup", "eager", "ratio", value=-1.0),
    "ratio: infinite": row(*S, "speedup", "eager", "ratio", value="inf"),
    "ratio: interval negative": row(*S, "speedup", "eager", "ci95", value=[-1.0, 2.0]),
    "ratio: interval empty": row(*S, "speedup", "eager", "ci95", value=[]),
    "ratio: tiny": row(*S, "speedup", "eager", value={"ratio": 1e-320, "ci95": [1e-320, 1e308]}),
    "at_least: 0": row(*S, "speedup", "eager", "at_least", value=0.0),
    "time: 0": row(*S, "time_ms", value={"median": 0.0, "ci95": [0.0, 0.0], "iqr": 0.0, "n": 1}),
    "time: negative": row(*S, "time_ms", value={"median": -1.0, "ci95": [-2.0, -1.0], "iqr": 0.0, "n": 1}),
    "time: huge": row(*S, "time_ms", value={"median": 1e308, "ci95": [1e308, 1e308], "iqr": 1e308, "n": 10**18}),
    "baseline: 0": row("result", "baselines", "eager", "time_ms",
                       value={"median": 0.0, "ci95": [0.0, 0.0], "iqr": 0.0, "n": 1}),
    "samples: text": row("result", "samples_ms", value={"optimized": {"gated": {"device_ms": ["1"]}}}),
    "samples: none": row("result", "samples_ms", value={"optimized": {"gated": {"device_ms": []}}}),
    "aa: 0": row("result", "timing", "aa", value={"ratio": 0.0, "ci95": [0.0, 0.0]}),
    "ceilings: 0": row("result", "ceilings", value={"copy_tb_s": 0.0, "fp32_tflop_s": 0.0, "bf16_tflop_s": -1.0}),
    "floor: nan": row(*S, "floor_fraction", value="nan"),
    "share: huge": row(*S, "own_kernel_share", value=1e308),
    "telemetry: outside": row("result", "telemetry", value={"file": "../../../../dev/zero"}),
    "telemetry: object": row("result", "telemetry", value={"file": {"a": 1}, "windows": [1], "marks": 3}),
    "margin: text": row("result", "margin", value="-inf"),
    "memory: raw": row(*S, "memory", value={RAW: RAW}),
    "labels: raw": row(*S, "labels", value=[RAW, SURROGATE]),
    "fingerprint: list": document("fingerprints/*.json", []),
    "fingerprint: values a list": _fingerprint(values=[1]),
    "fingerprint: values of text": _fingerprint(values={"gpu_name": RAW, "driver": 3}),
    "fingerprint: value an object": _fingerprint(values={"gpu_name": {"value": {"a": RAW}, "class": "Q"}}),
    "fingerprint: off_pin a list": _fingerprint(off_pin=[1]),
    "fingerprint: off_pin raw": _fingerprint(off_pin={RAW: RAW}),
    "fingerprint: ids": _fingerprint(sku_id=[1], fingerprint_id={}),
    "statement: a list": document("statement.json", []),
    "statement: subject": document("statement.json", {"subject": 3}),
    "report: a list": document("report.json", [1]),
    "report: no headline": document("report.json", {"schema_version": 3}),
    "report: text": document("report.json", {"schema_version": 3, "headline": "x", "verdicts": 7}),
    "archive: cut": archive((PUBLISHED / storage.ARCHIVE).read_bytes()[:9000]),
    "archive: link": archive(member("x/manifest.json", b"", tarfile.SYMTYPE)),
    "archive: device": archive(member("x/manifest.json", b"", tarfile.CHRTYPE)),
    "archive: outside": archive(member("x/../../manifest.json")),
    "archive: raw": archive(member(f"x/{RAW}")),
    "archive: deep": archive(member("x/manifest.json", b"[" * 100_000)),
    "archive: nothing": archive(lambda tar: None),
    "archive: bomb of zeros": lambda path: archive(_zeros())(path),
    "archive: bomb of lists": lambda path: archive(_bomb())(path),
    "entry: not UTF-8": lambda path: (path / BYTES).touch(),
    "entry: raw": lambda path: (path / RAW).touch(),
    "entry: link to itself": lambda path: (path / "inner").symlink_to(path),
    "entry: pipe": lambda path: os.mkfifo(path / "pipe"),
}  # fmt: skip
# The commands that read a bundle; the last one's B is the whole bundle.
LOOKED = [["verify", "{}"], ["report", "--format", "md", "{}"], ["share", "{}"], ["compare", "--claims", "{}"],
          ["compare", "{}", str(PUBLISHED)], ["report", "--format", "html,tex", "{}"]]  # fmt: skip

# -- solutions and problems


def solution(kind: str) -> Make:
    return lambda folder: FILES[kind](folder / "L1_36_x.py")


def problem(kind: str) -> Make:
    return lambda folder: (FILES[kind](folder / "p.py"), named("s.py")(folder))


def named(name: str) -> Make:
    return lambda folder: (folder / name).write_text("class ModelNew: pass\n")


def nothing(folder: Path) -> None:
    """The command alone is hostile."""


JUDGED = [*CPU, "--no-timing"]
ONE, ALL = [["evaluate", "{}/L1_36_x.py", *JUDGED]], [["evaluate", "{}", *JUDGED]]
SOLUTIONS = {
    **{f"solution: {kind}": (solution(kind), [*ONE, *ALL, ["optimize", "L1_36", "--from", "{}/L1_36_x.py"]])
       for kind in ("pipe", "folder", "socket", "device", "link out", "link in a circle", "sparse")},
    **{f"problem: {kind}": (problem(kind), [["evaluate", "{}/s.py", "--problem", "{}/p.py", *JUDGED]])
       for kind in FILES},
    "solution: raw name": (named(f"L1_36_{RAW}.py"), ALL),
    "solution: name of two lines": (named("L1_36_a\nb.py"), ALL),
    "solution: name not UTF-8": (named(f"L1_36_{BYTES}.py"), ALL),
    "solutions: raw names": (named(f"{RAW}.py"), ALL),
    "words: raw": (nothing, [["evaluate", f"{{}}/{RAW}.py"], ["problems", "--suite", RAW], [RAW]]),
    "words: not UTF-8": (nothing, [["evaluate", f"{{}}/{BYTES}.py"], ["problems", "--suite", BYTES], [BYTES]]),
    "words: zero byte": (nothing, [["evaluate", "x\0y.py"], ["verify", "x\0y"]]),
    "words: --shapes nested deep": (named("L1_36_x.py"), [[*ONE[0], "--shapes", "dim=" + "[" * 5000]]),
    "folder: a pipe": (solution("pipe"), [["report", "--live", "{}"], ["verify", "{}"], ["report", "{}"]]),
}  # fmt: skip

# -- folders in the published layout

TRACED = "optimization_trace/round_1/"
LINTED = [["verify", "{}"], ["report", "{}"]]


def _artifact(folder: Path) -> Path:
    path = folder / "36_RMSNorm"
    shutil.copytree(ROOT / "artifacts" / "36_RMSNorm", path, ignore=shutil.ignore_patterns("optimization_trace"))
    (path / TRACED).mkdir(parents=True)
    return path


def put(name: str, content: str) -> Make:
    return lambda path: (path / TRACED / name).write_text(content)


def _times(value: str) -> Make:
    return put("benchmark_results.json", f'{{"kernels": {{"k": {{"time_ms": {value}}}}}}}')


def _metrics(value: object) -> Make:
    return put("input_ncu_metrics.json", json.dumps({"metrics": value}))


def _rename(name: str) -> Make:
    return lambda path: path.rename(path.parent / name)


def _round(name: str, *, to: str = "") -> Make:
    """Make a further round, or a link to a folder."""
    return lambda path: (path / TRACED / ".." / name).symlink_to(to) if to else (path / TRACED).with_name(name).mkdir()


ARTIFACTS = {
    **{f"problem.py: {kind}": file("problem.py", kind) for kind in FILES},
    **{f"input_kernel.py: {kind}": file("input_kernel.py", kind)
       for kind in ("pipe", "link out", "sparse", "wide", "deep program")},
    **{f"times: {kind}": file(f"{TRACED}benchmark_results.json", kind)
       for kind in ("pipe", "device", "sparse", "deep", "folder")},
    **{f"prompt: {kind}": file(f"{TRACED}opt_prompt.txt", kind) for kind in ("pipe", "device", "link out")},
    "trace: pipe": lambda path: (shutil.rmtree(path / "optimization_trace"), os.mkfifo(path / "optimization_trace")),
    "trace: link to itself": _round("round_2", to="."),
    "trace: link out": _round("round_2", to="/proc/self"),
    "round: 200 digits": _round("round_" + "9" * 200),
    "round: 9 digits": _round("round_999999999"),
    "round: raw": _round(f"round_2{RAW}"),
    "times: huge integer": _times("1" + "0" * 400),
    "times: infinite": _times("1e999"),
    "times: tiny": _times("1e-320"),
    "times: digits": _times("9" * 5000),
    "times: object": _times('{"a": []}'),
    "metrics: raw": _metrics({RAW: {RAW: [SURROGATE]}}),
    "metrics: huge integer": _metrics({"k": {"m": [10**400]}}),
    "facts: raw": put("benchmark_results.json", json.dumps({"dtype": RAW, "device": {"a": RAW}, "warmup": [1]})),
    "prompt: fences": put("opt_prompt.txt", "```python\n" * 100_000),
    "prompt: nested": put("opt_prompt.txt", "```\ndef kernel_function(): return " + "-" * 9000 + "1\n```\n"),
    "name: raw": _rename(f"36_{RAW}"),
    "name: not UTF-8": _rename(f"36_{BYTES}"),
    "name: digits": _rename("9" * 200 + "_x"),
}  # fmt: skip

# -- sources, settings and searches


def at(place: str, kind: str) -> Make:
    """Make a file of a kind of FILES below new folders."""
    return lambda folder: ((folder / place).parent.mkdir(parents=True, exist_ok=True), FILES[kind](folder / place))


LEVEL1 = "sources/kernelbench/KernelBench/level1/1_x.py"
SUITE = [["problems", "--suite", "kernelbench"], ["problems", "--audit", *CPU], ["evaluate", "--suite", "kernelbench"]]
OTHERS = {
    **{f".env: {kind}": (at(".env", kind), [["verify", "nothing"]])
       for kind in ("pipe", "folder", "device", "sparse", "not UTF-8")},
    **{f"source: {kind}": (at("s/x", kind), [["claims", "--device", "cpu", "--engine", "local", "--from", "{}/s"]])
       for kind in ("pipe", "device", "sparse", "socket")},
    **{f"kernelbench: {kind}": (at(LEVEL1, kind), SUITE)
       for kind in ("pipe", "device", "link out", "sparse", "deep program")},
    **{f"journal: {kind}": (at("r/journal.jsonl", kind), [["optimize", "--replay", "{}/r"]])
       for kind in ("pipe", "device", "sparse", "deep", "zeros")},
    **{f"recording: {kind}": (at("r.tar.xz", kind), [["optimize", "--replay", "{}/r.tar.xz"]])
       for kind in ("pipe", "device", "sparse", "zeros")},
    "recording: bomb": (lambda folder: (folder / "r.tar.xz").write_bytes(_bomb()),
                        [["optimize", "--replay", "{}/r.tar.xz"]]),
}  # fmt: skip


def _in(make: Make, whole: Callable[[Path], Path]) -> Make:
    return lambda folder: make(whole(folder))


CASES = {
    **{f"bundle, {name}": (_in(make, _whole), [[word.replace("{}", f"{{}}/{PUBLISHED.name}") for word in words]
                                               for words in LOOKED]) for name, make in BUNDLES.items()},
    **SOLUTIONS,
    **{f"artifact, {name}": (_in(make, _artifact), LINTED) for name, make in ARTIFACTS.items()},
    **OTHERS,
}  # fmt: skip
# One case of three is in the quick tests, one in the slow ones, and all in test-all.
QUICK = 3
# What is read without harm: a text that is drawn without control characters, a folder that is no round.
HARMLESS = ("bundle, row: raw", "bundle, problem: raw", "bundle, memory: raw", "bundle, margin: text",
            "artifact, round: ", "artifact, trace: ", "artifact, times: tiny", "artifact, metrics: ",
            "artifact, prompt: fences", "artifact, prompt: nested")  # fmt: skip


def _run(words: list[str], folder: Path) -> tuple[int, str, str, float, int]:
    """Run a command in a fork: its exit code, what it printed, seconds, and bytes of memory beyond this process."""
    out, err = folder / "out", folder / "err"
    begin, resident = time.monotonic(), int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(WITHIN_S)
            here = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (16 << 30, here))
            for number, file in ((1, out), (2, err)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
            os.chdir(folder / "work")
            for name in [name for name in os.environ if name.startswith("REPRO_")]:
                del os.environ[name]
            os.environ |= {"TMPDIR": str(folder / "tmp"), "REPRO_STATE": str(folder / "state"), "COLUMNS": "120"}
            tempfile.tempdir = None
            code = entry.main(words)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    told = [file.read_bytes().decode(errors="surrogateescape") for file in (out, err)]
    code = os.waitstatus_to_exitcode(status)
    return code, told[0], told[1], time.monotonic() - begin, (usage.ru_maxrss << 10) - resident


def _left(folder: Path) -> list[str]:
    """Return temporary files and folders, and what was written by half."""
    half = (".partial", ".manifest", ".report", f".{PUBLISHED.name}")
    written = [name for _, below, names in os.walk(folder / "work") for name in [*below, *names]]
    return list(map(str, (folder / "tmp").rglob("*"))) + [name for name in written if name.startswith(half)]


def faults(name: str, folder: Path, chosen: slice) -> Iterator[str]:
    """Yield what is wrong with the answers to the chosen commands of a case."""
    make, commands = CASES[name]
    work = folder / "work"
    for words in commands[chosen]:
        for inner in (work, folder / "tmp"):
            removal.remove(inner)
            inner.mkdir()
        make(work)
        code, out, err, seconds, memory = _run([word.replace("{}", str(work)) for word in words], folder)
        told = out + err
        # `compare` says that a bundle fails `verify`, and compares; `share` looks at files and not at verdicts
        warned = words[0] == "share" or (words[0] == "compare" and "fails repro verify" in out)
        wrong = {
            f"exit {code}": code not in (1, 2) and not (code == 0 and (warned or name.startswith(HARMLESS))),
            "a traceback": "Traceback" in err or "internal error" in err,
            "control characters": any(not line.isprintable() for line in told.replace("\u00a0", " ").split("\n")),
            "not one clear line": sum(line.startswith("repro: ") for line in err.split("\n")) > 1 or not told.strip(),
            f"{seconds:.1f} s": seconds > WITHIN_S,
            f"{memory >> 20} MB": memory > MOST_MEMORY,
            f"left {_left(folder)[:3]}": bool(_left(folder)),
        }
        yield from (f"{' '.join(words)!r}: {what}: {told[-400:]!r}" for what, holds in wrong.items() if holds)


@pytest.fixture(scope="module")
def imported() -> None:
    """Import once what every fork would import for itself."""
    from repro.analysis import claims, compare
    from repro.artifacts import lint
    from repro.bundle import share
    from repro.optimize import runner
    from repro.report import figures, output, terminal, verified
    from repro.runs import fixtures
    from repro.studies import artifact_study

    modules = (claims, compare, figures, lint, share, runner, output, terminal, verified, fixtures, artifact_study)
    assert all(modules)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * bool(at % QUICK)) for at, name in enumerate(CASES)
    if WHOLE or at % QUICK < 2
])  # fmt: skip
def test_a_hostile_input_is_answered_soon_in_one_clear_line(name, tmp_path):
    """By the first command that reads it, and by another in turn."""
    turn = 1 + list(CASES).index(name) % max(1, len(CASES[name][1]) - 1)
    assert [*faults(name, tmp_path, slice(1)), *faults(name, tmp_path, slice(turn, turn + 1))] == []


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", CASES)
def test_every_command_answers_a_hostile_input(name, tmp_path):
    assert list(faults(name, tmp_path, slice(1, None))) == []


def test_the_real_command_line_answers_alike(tool):
    (tool.folder / "L1_36_x.py").symlink_to("/dev/zero")
    assert "it is a device" in tool("evaluate", "L1_36_x.py").complaint
