"""The search with a judge whose verdicts and times follow from the source: journal, replay, resume, export."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from repro import config
from repro.artifacts import layout, lint
from repro.errors import BundleError, EngineError, UsageError
from repro.judge.timing import sampling
from repro.optimize import export, journal, judging, runner
from repro.optimize.journal import Journal
from repro.optimize.kernel_source import ast_hash
from repro.optimize.loop import Search as Loop
from repro.optimize.proposers.base import Proposer
from repro.optimize.proposers.inbox import Inbox
from repro.optimize.proposers.replay import Recorded
from repro.optimize.proposers.search import Search, ask, directions
from repro.optimize.state import DUPLICATE, INPUT, REFUSED, State
from repro.problems import catalogue
from repro.records.result import Baseline, JudgeResult, Samples, Series, Timing
from repro.records.search import Confirmation, Confirmed, Options, Proposed
from repro.records.session import Checked, Opened, PackedMachine
from repro.records.verdict import Distances, Reason, Summary, Verdict
from repro.runs.progress import Progress
from repro.studies.evaluation import Submission
from repro.system.digest import sha256
from repro.system.jsonio import Json

FOLDER = next(config.ARTIFACTS_DIR.glob("82_*"))
KERNEL = (FOLDER / "input_kernel.py").read_text()


class ToldJudge:
    """Judges by the source: `wrong` anywhere in it is incorrect, and its hash decides its time."""

    def __init__(self, *, dies_after: int | None = None, slower: float = 1.0) -> None:
        self.asked = 0
        self.dies_after, self.slower = dies_after, slower

    @property
    def opened(self) -> Opened:
        return Opened(fingerprint=PackedMachine(values={}), ceilings=None, room=8)

    @property
    def spent_s(self) -> dict[str, float]:
        return {"trials": 1.5}

    def _count(self) -> None:
        self.asked += 1
        if self.dies_after is not None and self.asked > self.dies_after:
            raise EngineError("killed")

    def check(self, submissions: Sequence[Submission], tier: str, keep: Sequence[str]) -> list[Checked]:
        self._count()
        return [
            Checked(problem="", solution=s.name, verdict="incorrect" if b"wrong" in s.source else "correct",
                    labels=["triton"], reasons=[Reason(code="rel_l2", detail="off")] if b"wrong" in s.source else [],
                    distances={"native": [Distances(rel_l2=0.25, max=0.25, row=0.25)]},
                    bits=[int(b"other bits" in s.source)])
            for s in submissions
        ]  # fmt: skip

    def time(self, submissions: Sequence[Submission], tier: str) -> JudgeResult:
        self._count()
        results, samples = [], {}
        for s in submissions:
            ms = time_of(s.source.decode()) * self.slower
            samples[s.name] = Series(gated=Samples(device_ms=[ms * (1 + 0.001 * (i % 3)) for i in range(24)]))
            results.append(Verdict(problem="", solution=s.name, verdict="correct", reasons=[], time_ms=summary(ms)))
        return JudgeResult(results=results, samples_ms=samples, baselines={"eager": Baseline(time_ms=summary(2.0))},
                           timing=Timing(clock="told"))  # fmt: skip


def summary(ms: float) -> Summary:
    return Summary(median=ms, ci95=[ms, ms], iqr=0.0, n=24)


def time_of(source: str) -> float:
    """A time in ms between 1 and 3, from the program alone; the input kernel takes 3."""
    if source == KERNEL:
        return 3.0
    return 1.0 + 2.0 * int.from_bytes(hashlib.sha256(ast_hash(source).encode()).digest()[:2]) / 65536


def options(**changed: Any) -> Options:
    usual = {"rounds": 3, "screen": 12, "minutes": 10.0}
    return Options("L1_82@bf16", "smoke", "bfloat16", "cpu", sha256(KERNEL), **(usual | changed))


def search(
    record: Journal, judge: Callable[[], Any], *proposers: Proposer, chosen: Options | None = None, **more: Any
) -> Loop:
    record.clock = lambda: 0.0
    return Loop(chosen or options(), KERNEL, "kernel_function", record, judge, list(proposers), Progress(quiet=True),
                clock=lambda: 0.0, **more)  # fmt: skip


def ended(folder: Path, **changed: Any) -> tuple[State, Loop]:
    judge = ToldJudge()
    loop = search(Journal.new(folder), lambda: judge, Search(), chosen=options(**changed))
    return loop.run(), loop


def unasked() -> Any:
    raise AssertionError("the judge was asked")


def test_keeps_what_is_faster_and_records_every_program(tmp_path):
    state, loop = ended(tmp_path / "run")
    best = state.winner
    assert best.accepted and best.gain is not None and best.gain.ci95[0] > 1.5
    assert loop.stopped == "3 rounds are done"
    timed = [p for p in state.programs.values() if p.gain and p.id != INPUT]
    assert best.time_ms == min(p.time_ms for p in timed if p.time_ms)
    for program in timed:
        parent = program.parent or INPUT
        assert {*program.strategy.split("+")} <= {d.strategy for d in directions(parent, state.source(parent))}
    asts = [p.ast for p in state.programs.values() if p.verdict != DUPLICATE]
    assert len(asts) == len(set(asts))
    for program in state.programs.values():
        assert (tmp_path / "run" / "kernels" / f"{program.address}.py").is_file()


class Contests(ToldJudge):
    """Refuses the times of some programs in some contests: {(number of the contest, name): reason}."""

    def __init__(self, refused: Callable[[int, str], bool]) -> None:
        super().__init__()
        self.refused, self.contests = refused, 0

    def time(self, submissions: Sequence[Submission], tier: str) -> JudgeResult:
        told = super().time(submissions, tier)
        self.contests += tier == "full"
        for at, entry in enumerate(told.results):
            if tier == "full" and self.refused(self.contests, entry.solution):
                refused = {"verdict": "rejected", "time_ms": None, "reasons": [Reason(code="background_work")]}
                told.results[at] = entry.model_copy(update=refused)
                told.samples_ms.pop(entry.solution)
        return told


def test_a_gain_is_known_through_another_program_where_the_input_kernel_got_no_time(tmp_path):
    whole, _ = ended(tmp_path / "whole", rounds=2, seed=3)  # which finds its best in the second round
    judge = Contests(lambda contest, name: contest == 3 and name == INPUT)
    state = search(Journal.new(tmp_path / "run"), lambda: judge, Search(), chosen=options(rounds=2, seed=3)).run()
    best, usual = state.winner, whole.winner
    assert judge.contests == 3 and best.round == 2 and best.id == usual.id
    assert best.gain is not None and usual.gain is not None
    assert best.gain.ratio == pytest.approx(usual.gain.ratio, rel=1e-3)
    assert best.gain.ci95[0] <= usual.gain.ci95[0] and best.gain.ci95[1] >= usual.gain.ci95[1]
    assert state.programs[INPUT].correct and state.programs[INPUT].time_ms == 3.0


@pytest.mark.slow
def test_a_best_that_a_contest_rejects_is_the_best_no_more(tmp_path):
    """Then the best of the others is found, also without the input."""
    whole, _ = ended(tmp_path / "whole", rounds=1)
    best = whole.winner
    others = {p.id for p in whole.programs.values() if p.accepted and p is not best}
    assert best.accepted and others

    def run(refused: Callable[[int, str], bool]) -> State:
        folder, again = tmp_path / "run", tmp_path / "again"
        judge = Contests(refused)
        state = search(Journal.new(folder), lambda: judge, Search(), chosen=options(rounds=2)).run()
        search(Journal.replay(folder, again), unasked, Recorded("search"), chosen=options(rounds=2)).run()
        assert (again / journal.FILE).read_bytes() == (folder / journal.FILE).read_bytes()
        shutil.rmtree(folder)
        shutil.rmtree(again)
        return state

    rejected = run(lambda contest, name: contest > 2 and name in (best.id, INPUT))
    assert rejected.programs[best.id].verdict == "rejected"
    assert rejected.best not in (best.id, INPUT) and rejected.winner.correct
    alone = run(lambda contest, name: contest > 2 and name not in others)
    assert alone.best in others and alone.winner.ratio > 1


def test_two_programs_of_the_beam_differ_and_directions_are_taken_once(tmp_path):
    state, _ = ended(tmp_path / "run", rounds=4)
    assert len({state.programs[name].ast for name in state.beam}) == len(state.beam) == 2
    rounds = {}
    for program in state.programs.values():
        if program.id != INPUT:
            rounds.setdefault((program.parent, program.strategy), set()).add(program.round)
    assert all(len(each) == 1 for each in rounds.values())


def test_the_same_seed_gives_the_same_journal_and_another_does_not(tmp_path):
    texts = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        ended(tmp_path / name, seed=seed, rounds=1)
        texts.append((tmp_path / name / journal.FILE).read_bytes())
    assert texts[0] == texts[1] != texts[2].replace(b'"seed": 1', b'"seed": 0')


def test_a_replay_with_other_times_or_kernels_is_refused(tmp_path):
    ended(tmp_path / "run", rounds=1)
    file = tmp_path / "run" / journal.FILE
    text = file.read_text()
    assert '"best_ms": ' in text
    file.write_text(text.replace('"best_ms": ', '"best_ms": 1', 1))
    loop = search(Journal.replay(tmp_path / "run", tmp_path / "x"), unasked, Search(), chosen=options(rounds=1))
    with pytest.raises(BundleError, match="another decision"):
        loop.run()
    file.write_text(text)
    kernel = next(k for k in (tmp_path / "run" / "kernels").glob("*.py") if k.stem != sha256(KERNEL))
    kernel.write_text("# another\n")
    loop = search(Journal.replay(tmp_path / "run", tmp_path / "y"), unasked, Search(), chosen=options(rounds=1))
    with pytest.raises(BundleError, match="was changed"):
        loop.run()


@pytest.mark.slow
def test_a_run_with_other_options_is_not_resumed_and_a_replay_is_no_run(tmp_path):
    problem = catalogue.load("L1_82", size="smoke", dtype="bfloat16")
    ended(tmp_path / "2-optimize-L1_82@bf16")
    replayed = runner._journal(problem, options(), tmp_path, resume=False, replay=tmp_path / "2-optimize-L1_82@bf16")
    assert "-replay-" in replayed.folder.name
    assert runner._journal(problem, options(), tmp_path, resume=True, replay=None).folder.name.startswith("2-")
    with pytest.raises(UsageError, match="2-optimize-L1_82@bf16 has other options: screen 12, now 4"):
        runner._journal(problem, options(screen=4), tmp_path, resume=True, replay=None)


def test_a_kernel_that_is_not_python_begins_no_search(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def kernel_function(:")
    with pytest.raises(UsageError, match=r"mine.py is not Python"):
        runner.read_kernel(file)


def test_the_exported_folder_has_no_error_of_lint(tmp_path):
    state, _ = ended(tmp_path / "run", seed=3)
    root = export.export(
        state, catalogue.load("L1_82").path, FOLDER.name, tmp_path, measured=False, counters=None, fingerprint=None,
        confirmed=None, journal_sha256="0",
    )  # fmt: skip
    assert root is not None
    report = lint.lint(root)
    assert report.errors == 0, report.findings
    best = lint.running_best(lint.times(layout.Artifact(root)))
    assert [*best] == [1, 2, 3] and best[3] == state.winner.time_ms


def test_without_a_gain_nothing_is_exported(tmp_path):
    state = State(options())
    assert export.export(state, FOLDER, "82_x", tmp_path, measured=False, counters=None, fingerprint=None,
                         confirmed=None, journal_sha256="0") is None  # fmt: skip


def test_candidates_of_the_inbox_are_judged_and_bad_ones_never_become_parents(tmp_path, monkeypatch):
    folder = tmp_path / "inbox"
    folder.mkdir()
    texts = {
        "banned.py": KERNEL + "\ntorch.cuda.Event.record = print\n",
        "broken.py": "def kernel_function(:",
        "wrong.py": KERNEL.replace("block = 256", "block = 64") + "\nwrong = 1\n",
        "copy.py": KERNEL + "\n# the same\n",
        "good.py": KERNEL.replace("block = 256", "block = 128"),
        "deep.py": KERNEL + "\nx = " + " + ".join(["'a'"] * 1000) + "\n",
        b"n\xe4me.py".decode(errors="surrogateescape"): KERNEL.replace("block = 256", "block = 512"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    clock = iter([0.0] * 8 + [1e6] * 100)
    judge = ToldJudge()
    board = Progress(quiet=True)
    said = []
    monkeypatch.setattr(board, "say", said.append)
    loop = Loop(options(proposers=("inbox",)), KERNEL, "kernel_function", Journal.new(tmp_path / "run"),
                lambda: judge, [Inbox(folder)], board, clock=lambda: next(clock),
                sleep=lambda _: None)  # fmt: skip
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    state = loop.run()
    found = {p.strategy: p for p in state.programs.values() if p.id != INPUT}
    assert found["banned"].verdict == REFUSED and "torch.cuda.Event.record" in found["banned"].reason
    assert found["broken"].verdict == REFUSED and "line 1" in found["broken"].reason
    assert found["copy"].verdict == DUPLICATE
    for name in ("broken.py", "wrong.py", "good.py"):
        (line,) = (each for each in said if each.startswith(f"{name} in the inbox: "))
        assert found[name[:-3]].verdict in line and found[name[:-3]].reason in line
    assert found["wrong"].verdict == "incorrect" and "rel_l2" in found["wrong"].reason
    assert found["good"].verdict == found["n\ufffdme"].verdict == "correct"
    assert found["deep"].verdict == REFUSED, "a tree that is too deep to be compared"
    assert all(f"{p.strategy} {p.why}".encode() for p in found.values())
    parents = {p.parent for p in state.programs.values()}
    assert not parents & {found[name].id for name in ("banned", "broken", "copy", "wrong")}


def test_an_exact_rewrite_with_other_bits_is_refused_before_it_is_timed(tmp_path):
    class Other(Search):
        def propose(self, state: State, count: int) -> Proposed:
            found = super().propose(state, count).proposals
            return Proposed(proposals=[replace(p, source=p.source + "\n# other bits\n") for p in found])

    state = search(Journal.new(tmp_path / "run"), ToldJudge, Other(), chosen=options(rounds=1)).run()
    exact = [p for p in state.programs.values() if p.kind == "E"]
    assert exact and all(p.verdict in (REFUSED, DUPLICATE) and p.quick is None for p in exact)
    assert any("bit for bit" in p.reason for p in exact)


@pytest.mark.parametrize("sampler", ["optuna", "coordinate sweep"])
def test_samplers_ask_for_new_configurations_and_repeat_themselves(sampler):
    if sampler == "optuna":
        pytest.importorskip("optuna")
    space = directions(INPUT, KERNEL)[0].knobs
    now = {k.name: k.now for k in space}
    first = ask(space, [(now, 1.0)], 5, 7, sampler, lambda params: params != now)
    assert len(first) == 5 and now not in first
    assert first == ask(space, [(now, 1.0)], 5, 7, sampler, lambda params: params != now)
    trials, known = [(now, 1.0), *((params, 0.5) for params in first)], [now, *first]
    assert not [p for p in ask(space, trials, 5, 8, sampler, lambda params: params not in known) if p in first]


def test_nothing_left_to_expand_ends_the_search(tmp_path):
    class Once:
        name, waits = "once", False

        def propose(self, state: State, count: int) -> Proposed:
            return Proposed()

    loop = search(Journal.new(tmp_path / "run"), ToldJudge, Once())
    loop.run()
    assert loop.stopped == "nothing is left to expand"


def test_a_contest_gets_no_second_budget_of_sampling(tmp_path):
    judge = judging.EngineJudge(
        catalogue.load("L1_36"), tmp_path, cast(Any, None), Progress(quiet=True), trust="audited"
    )
    assert judge._run.options.on("cuda").max_blocks < sampling._MAX_BLOCKS


@pytest.mark.parametrize("full", ["", "verdict", "job"])
def test_kernels_that_memory_cannot_hold_together_are_confirmed_alone(full, tmp_path, monkeypatch):
    asked = []

    def judged(judge: judging.EngineJudge, kernels: Json) -> Confirmation:
        roles = list(kernels)
        asked.append(roles)
        if full == "job" and len(roles) == 2:
            return Confirmation(error="CUDA out of memory")
        reasons = [{"code": "out_of_memory", "detail": ""}] if full and len(roles) == 2 else []
        fields = dict.fromkeys(Confirmed.model_fields) | {
            "verdict": "error" if reasons else "correct",
            "reasons": reasons,
        }
        return Confirmation.model_validate(dict.fromkeys(roles, fields) | {"baselines_ms": {"eager": 2.0}})

    monkeypatch.setattr(judging.EngineJudge, "_confirmed", judged)
    kernels = {"input": None, "best": None}
    nothing = None
    found = judging.EngineJudge(nothing, tmp_path, nothing, Progress(quiet=True), trust="audited").confirm(kernels)
    assert found.best and found.input and found.best.verdict == found.input.verdict == "correct"
    assert not found.error and found.baselines_ms == {"eager": 2.0}
    assert asked == [["input", "best"]] + ([["input"], ["best"]] if full else [])
