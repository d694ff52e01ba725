"""Runs the searches that the project publishes, one archive each: `python tests/searches.py OUT`; again to go on.

    own          from the five input kernels of artifacts/
    published    from the five published input kernels: --published DIR, brought by `repro fetch kernelagent-artifacts`
    naive        from the kernels of tests/naive.py: --kernelbench DIR, brought by `repro fetch kernelbench`
    designs      as own; after two thirds of the time the hand-written kernel of the folder is put into the inbox

Each search is a `repro optimize` of its own. A search with an archive in OUT is done and is left out; one with a
journal is resumed. `summary.json` and the printed table hold gains by seed, times, and rates of judging.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import math
import queue
import shutil
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import naive  # noqa: E402

from repro.artifacts import layout  # noqa: E402
from repro.bundle import storage  # noqa: E402
from repro.optimize import journal, runner  # noqa: E402
from repro.records.search import CLOCK, OPENED  # noqa: E402
from repro.system import jsonio  # noqa: E402
from repro.system.jsonio import Json  # noqa: E402

SETS = ("own", "published", "naive", "designs")
# What an archive says of the machine.
SHARED = ("gpu_name", "compute_capability", "driver", "cuda_runtime", "torch", "triton", "python", "repro")
# When a hand-written kernel comes into the inbox, as a share of the minutes, and how it is labelled there.
DESIGNED, LABEL = 2 / 3, "hand_written.py"


@dataclass(frozen=True)
class Case:
    """One search. problem: a shipped id or a file."""

    name: str
    problem: str
    kernel: Path
    seed: int
    design: Path | None = None


def cases(args: argparse.Namespace) -> list[Case]:
    """Return every search of the chosen sets: all problems of a seed before the next seed."""
    starts = []
    for chosen in args.only.split(","):
        ours = ROOT / "artifacts"
        folder = {"own": ours, "designs": ours, "published": args.published}.get(chosen)
        if chosen == "naive" and args.kernelbench is not None:
            for name, text in naive.kernels().items():
                kernel = args.out / "naive" / f"{name}.py"
                jsonio.replace(kernel, text.encode())
                (problem,) = args.kernelbench.glob(f"**/level[12]/{kernel.name}")
                starts.append((f"naive-{problem.parent.name}-{name}", str(problem), kernel, None))
        elif folder is not None:
            for each in layout.find(folder):
                first, last = (each.path / layout.KERNELS[name] for name in ("input_kernel", "optimized"))
                starts.append((f"{chosen}-{each.known}", str(each.known), first, last if chosen == "designs" else None))
        else:
            print(f"{chosen}: left out, no folder was named")
    return [Case(f"{name}-s{seed}", problem, kernel, seed, design) for seed in args.seeds
            for name, problem, kernel, design in starts if args.named in name]  # fmt: skip


def run(case: Case, args: argparse.Namespace) -> str:
    """Run or resume one search and pack its journal; return a line about it."""
    archive, folder = args.out / f"{case.name}.tar.xz", args.out / case.name
    if archive.exists():
        return f"{case.name}: done before"
    runs = sorted(folder.glob(f"*/{journal.FILE}"))
    command = [sys.executable, "-m", "repro", "optimize", case.problem, "--from", str(case.kernel)]
    command += ["--seed", str(case.seed), "--minutes", str(args.minutes), "--results", str(folder)]
    gpu = args.free.get()  # of its own, since a search takes every free one
    command += ["--engine", "local", "--json", str(args.out / f"{case.name}.json"), "--gpus", gpu, *args.more]
    command += ["--resume"] if runs else []
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "fixtures").exists():  # one measurement of a problem's fixture serves all of its searches
        (folder / "fixtures").symlink_to(args.out / "fixtures")
    inbox, timer = folder / "inbox", None
    if case.design is not None:
        inbox.mkdir(exist_ok=True)
        command += ["--proposer", f"search,inbox={inbox}"]
        timer = threading.Timer(60 * args.minutes * DESIGNED, shutil.copy, (case.design, inbox / LABEL))
        timer.start()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    args.free.put(gpu)
    if timer is not None:
        timer.cancel()
    (args.out / f"{case.name}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        return f"{case.name}: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    (found,) = folder.glob(f"*/{journal.FILE}")
    pack(found.parent, archive)
    return f"{case.name}: {done.stdout.strip().splitlines()[-1]}"


def pack(run: Path, archive: Path) -> None:
    """Write journal and kernels of a run to an archive, the same bytes for the same run.

    Of a machine's fingerprint it keeps SHARED alone.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for file in (run / journal.FILE, *sorted((run / journal.KERNELS).glob("*.py"))):
            info = tarfile.TarInfo(str(file.relative_to(run)))
            content = _shared(file) if file.name == journal.FILE else file.read_bytes()
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    jsonio.replace(archive, lzma.compress(stream.getvalue(), filters=storage.FILTERS))


def _shared(file: Path) -> bytes:
    lines = jsonio.lines_of(file.read_text())
    for line in lines:
        if line["kind"] == "opened" and (machine := OPENED.validate_python(line["result"]).fingerprint):
            kept = {name: {"value": machine.values[name].value} for name in SHARED if name in machine.values}
            line["result"]["fingerprint"] = {"values": kept}
    return jsonio.lines(lines)


def facts(out: Path, name: str) -> Json:
    """Return what the summary says of one search."""
    told = json.loads((out / f"{name}.json").read_text())
    programs = {p["id"]: p for p in told["programs"]}
    best = programs[told["best"]]
    lines = journal.read(next((out / name).glob(f"*/{journal.FILE}")).parent)
    minutes = max((CLOCK.validate_python(line.result) for line in lines if line.kind == "clock"), default=0.0) / 60
    full = [p for p in told["programs"] if p["gain"] and p["id"] != "input"]
    screened = [p for p in told["programs"] if p["verdict"] not in ("duplicate", "refused", "not judged")]
    confirmed = told["confirmed"] or {}
    baselines = {k: v for k, v in confirmed.get("baselines_ms", {}).items() if v}
    return {
        "name": name, "measurement": told["measurement"], "gain": best["gain"]["ratio"] if best["gain"] else 1.0,
        "ci95": best["gain"]["ci95"] if best["gain"] else None, "best_ms": best["time_ms"],
        "best_baseline": min(baselines.items(), key=lambda kv: kv[1], default=None),
        "confirmed": (confirmed.get("best") or {}).get("verdict"), "stopped": told["stopped"],
        "minutes": round(minutes, 2), "full_a_minute": round(len(full) / minutes, 1) if minutes else None,
        "screened_a_minute": round(len(screened) / minutes, 1) if minutes else None,
    }  # fmt: skip


def summarise(out: Path) -> list[Json]:
    """Write summary.json and print it: each search, then each set's geometric mean by seed."""
    found = [facts(out, path.name.removesuffix(".tar.xz")) for path in sorted(out.glob("*.tar.xz"))]
    (out / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    for each in found:
        stamp = "" if each["measurement"] else "  (not a measurement)"
        print(f"{each['name']:48} {each['gain']:7.2f}x {each['best_ms'] or 0:9.4g} ms {each['minutes']:6.1f} min "
              f"{each['stopped']}{stamp}")  # fmt: skip
    for chosen in SETS:
        for seed in sorted({each["name"].rpartition("-s")[2] for each in found}):
            some = [e["gain"] for e in found if e["name"].startswith(f"{chosen}-") and e["name"].endswith(f"-s{seed}")]
            if some:
                mean = math.exp(math.fsum(map(math.log, some)) / len(some))
                print(f"{chosen}, seed {seed}: geometric mean {mean:.2f}x over {len(some)} problems")
    return found


def ship(out: Path) -> None:
    """Copy the search of seed 0 of each input kernel, and its rounds, into its artifact folder."""
    for each in layout.find(ROOT / "artifacts"):
        both = [f"{chosen}-{each.known}-s0" for chosen in ("designs", "own")]
        names = [name for name in both if (out / f"{name}.tar.xz").exists()]
        if names:
            with runner.unpacked(out / f"{names[0]}.tar.xz") as found:
                pack(found, each.path / runner.ARCHIVE)
            for trace in (out / names[0]).glob(f"*/{each.path.name}/{layout.TRACE}"):
                shutil.copytree(trace, each.path / layout.TRACE, dirs_exist_ok=True)
                shutil.copy(trace.parent / "manifest.json", each.path / "manifest.json")
            print(f"{each.path.name}: search.tar.xz and its rounds")


def main() -> None:
    """Run what is left, then print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="own,published,naive", help="sets, separated by commas")
    parser.add_argument("--named", default="", metavar="TEXT", help="only searches whose name holds this: L1_04")
    parser.add_argument("--published", type=Path, default=None, metavar="DIR")
    parser.add_argument("--kernelbench", type=Path, default=None, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[0, 1, 2],
        metavar="N,N",
        help="default: 0,1,2",
    )
    parser.add_argument("--at-once", type=int, default=1, help="searches at the same time: one for each GPU")
    parser.add_argument("--ship", action="store_true", help="copy the searches of seed 0 into artifacts/, and end")
    parser.epilog = "Arguments after -- are those of repro optimize."
    ours, more = sys.argv[1:], []
    if "--" in ours:  # argparse would end the positional arguments at the first option
        ours, more = ours[: ours.index("--")], ours[ours.index("--") + 1 :]
    args = parser.parse_args(ours)
    args.more, args.free = more, queue.SimpleQueue()
    for gpu in range(args.at_once) if args.at_once > 1 else ["all"]:
        args.free.put(str(gpu))
    args.out = args.out.resolve()
    (args.out / "fixtures").mkdir(parents=True, exist_ok=True)
    if not args.ship:
        with ThreadPoolExecutor(args.at_once) as pool:
            for line in pool.map(lambda case: run(case, args), cases(args)):
                print(line, flush=True)
        summarise(args.out)
    else:
        ship(args.out)


if __name__ == "__main__":
    main()
