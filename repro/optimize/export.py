"""The published layout of a run: ten files a round where they exist, and a manifest with the reason for each absence.

A round publishes its fastest candidate that was timed in full, as the published folders do. Rounds without one are not
exported. The shipped kernel is the accepted best.
"""

from __future__ import annotations

from pathlib import Path

from repro.artifacts.layout import KERNEL, KERNELS, PROFILES, ROUND_FILES, TIMES, TRACE
from repro.optimize import calls
from repro.optimize.state import INPUT, Program, State
from repro.records.base import Record
from repro.records.search import Confirmation, Profiled
from repro.system import jsonio

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
PROTOCOL = "repro: paired samples behind a gate, cold L2, median of the device times"
NO_MODEL = "no language model took part: the candidate came from the proposer {proposer}"
NO_PROFILE = "this kernel was not profiled by Nsight Compute"


def export(
    state: State, problem: Path, name: str, folder: Path, *, measured: bool, counters: Profiled | None,
    fingerprint: Record | None, confirmed: Confirmation | None, journal_sha256: str,
) -> Path | None:  # fmt: skip
    """Write the folder `NAME` below `folder`; return its path, or None if no candidate was accepted.

    name: `NN_Name`. counters: what `EngineJudge.profile` said of the input kernel.
    """
    if state.best == INPUT or not state.winner.accepted:
        return None
    root = folder / name
    files = {
        "problem.py": problem.read_bytes(),
        KERNELS["input_kernel"]: state.source(INPUT).encode(),
        KERNELS["optimized"]: state.source(state.best).encode(),
    }
    rounds = []
    for number in range(1, state.round + 1):
        chosen = published(state, number)
        if chosen is None:
            rounds.append({"round": number, "exported": False, "why": "no candidate of this round was timed in full"})
            continue
        whole, absent = _round(state, chosen, counters if number == 1 else None)
        files |= {f"{TRACE}/round_{number}/{file}": content for file, content in whole.items()}
        rounds.append({"round": number, "exported": True, "absent": absent} | chosen.facts())
    manifest = {
        "schema_version": MANIFEST_VERSION, "problem": state.options.problem, "options": vars(state.options),
        "measurement": measured, "protocol": PROTOCOL, "input": state.programs[INPUT].facts(),
        "best": state.winner.facts(), "lineage": lineage(state, state.best), "rounds": rounds,
        "confirmed": confirmed and confirmed.to_json(), "counters_of_the_input": counters and counters.to_json(),
        "fingerprint": fingerprint and fingerprint.to_json(),
        "journal_sha256": journal_sha256, "spent": state.spent,
    }  # fmt: skip
    files[MANIFEST] = jsonio.render(manifest)
    for file, content in files.items():
        jsonio.replace(root / file, content)
    return root


def published(state: State, number: int) -> Program | None:
    """Return the candidate that a round publishes: the fastest that was timed in full; the best itself first."""
    timed = [p for p in state.programs.values() if p.round == number and p.gain and p.correct and p.time_ms]
    return min(timed, key=lambda p: (p.id != state.best, p.time_ms), default=None)


def lineage(state: State, name: str) -> list[str]:
    """Return a program and its parents, the input kernel last."""
    found, program = [name], state.programs[name]
    while program.parent:
        found.append(program.parent)
        program = state.programs[program.parent]
    return found


def _round(state: State, chosen: Program, counters: Profiled | None) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the files of a round, and the reason for each one that is absent."""
    dtype = f"torch.{state.options.dtype}"
    times = {
        "problem": "problem.py", "device": state.options.device, "dtype": dtype, "warmup": None, "repeat": None,
        "protocol": PROTOCOL,
        "kernels": {"kernel_round_1": {"time_ms": chosen.time_ms, "path": KERNEL}},
    }  # fmt: skip
    diagnosis = state.diagnoses.get(chosen.parent_id)
    strategy: object = [{
        "category": diagnosis.bound if diagnosis else "unknown",
        "summary": chosen.why,
        "reasoning": diagnosis.sentence() if diagnosis else "",
        "root_causes": [],
        "recommended_fixes": [{"fix": chosen.strategy, "rationale": chosen.why, "knobs": chosen.params}],
    }]  # fmt: skip
    if told := chosen.transcript.get("bottleneck_response.txt"):
        strategy = calls.DIRECTIONS.dump_python(calls.parsed(told, calls.DIRECTIONS))
    files = {
        TIMES: jsonio.render(times), KERNEL: state.source(chosen.id).encode(), "strategy.json": jsonio.render(strategy),
    }  # fmt: skip
    files |= {name: text.encode() for name, text in chosen.transcript.items() if name in ROUND_FILES}
    if counters and counters.state == "profiled":
        from repro.judge.timing.counters import METRICS

        # by ncu's names, as the published profiles hold them
        totals = counters.totals.items()
        known = {METRICS[name]: value for name, value in totals if name in METRICS and value is not None}
        metrics = {"input_kernel": known}
        files[PROFILES["input"]] = jsonio.render({"metrics": metrics, "metadata": {"dtype": state.options.dtype}})
    why = dict.fromkeys(PROFILES.values(), NO_PROFILE)
    absent = {name: why.get(name, NO_MODEL.format(proposer=chosen.proposer)) for name in ROUND_FILES
              if name not in files}  # fmt: skip
    return files, absent


def running_best(state: State) -> dict[int, float]:
    """Return round -> time (ms) of the fastest accepted program up to it; round 0 is the input kernel."""
    timed = [(p.round, p.time_ms) for p in state.programs.values() if p.time_ms and (p.accepted or p.id == INPUT)]
    return {n: min(ms for at, ms in timed if at <= n) for n in range(state.round + 1)} if timed else {}
