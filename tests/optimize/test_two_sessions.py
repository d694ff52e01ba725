"""A search on two GPUs, whose sessions judge by the source: its journal must be that of one session."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from conftest import WHOLE, smoke_problem
from test_loop import KERNEL, ToldJudge, options, search, unasked

from repro.engines import resources
from repro.engines.base import Engine, Slots
from repro.errors import EngineError
from repro.optimize import journal, judging, runner
from repro.optimize.journal import Journal, ReplayEnded
from repro.optimize.proposers.replay import Recorded
from repro.optimize.proposers.search import Search
from repro.records.search import Confirmation
from repro.runs.progress import Progress
from repro.studies.evaluation import Submission

PROBLEM = smoke_problem("L1_82", dtype="bfloat16")
CHOSEN = options(rounds=1)


class TwoGpus(Engine):
    """dies: order of opening -> after how many requests a session ends. free: how many GPUs others leave. slower: how
    much longer everything takes in the second session."""

    device = "cpu"

    def __init__(self, dies: Mapping[int, int] | None = None, free: int = 2, slower: float = 1.0) -> None:
        self.dies, self.slower, self.free, self.opened, self.open, self.working, self.most = (
            dies or {},
            slower,
            free,
            0,
            0,
            0,
            0,
        )
        self.stopped = threading.Event()

    def capacity(self) -> Slots:
        return Slots({"GPU-a": "", "GPU-b": ""})

    @contextlib.contextmanager
    def session(self, job: object, progress: Callable[[str], None]) -> Iterator[Any]:
        if self.open == self.free:
            progress(resources.WAITING)
        session = ToldJudge(dies_after=self.dies.get(self.opened), slower=self.slower if self.opened == 1 else 1.0)
        told, session._count = session._count, lambda: (self.works(), told())  # type: ignore[method-assign]
        self.opened, self.open = self.opened + 1, self.open + 1
        yield session
        self.open -= 1

    def works(self) -> None:
        self.working += 1
        self.most = max(self.most, self.working)
        time.sleep(0.05)  # the other session begins meanwhile
        self.working -= 1

    def close(self, *, now: bool = False) -> None:
        self.stopped.set()


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions need no fixture, and further ones are waited for."""
    monkeypatch.setattr(judging.evaluation, "session_job", lambda *_: None)
    monkeypatch.setattr(judging.EngineJudge, "ensure_fixture", lambda _: None)
    ready = judging._Further.ready
    monkeypatch.setattr(judging._Further, "ready", property(lambda each: each._opening.result() or ready.fget(each)))


def run(record: Journal, engine: TwoGpus) -> bytes:
    judge = judging.EngineJudge(PROBLEM, record.folder, engine, Progress(quiet=True), trust="audited")
    search(record, lambda: judge, Search(), chosen=CHOSEN).run()
    judge.close()
    assert engine.open == 0
    return (record.folder / journal.FILE).read_bytes()


def test_two_sessions_at_once_write_the_journal_of_one_which_replays(tmp_path):
    """Also where one of them ends, in the screening or in the contest of the finalists."""
    one = TwoGpus(free=1)
    whole = run(Journal.new(tmp_path / "one"), one)
    assert (one.opened, one.most) == (1, 1)
    lines = whole.splitlines(keepends=True)
    assert sum(b'"timed"' in line and b'"tier": "full"' in line for line in lines) == 3, "two after that of the input"
    for dies in {}, {0: 0}, {1: 0}, {0: 4}, {1: 2}, {1: 3}:
        two = TwoGpus(dies)
        assert run(Journal.new(tmp_path / f"two{dies}"), two) == whole
        assert two.most == 2 and two.opened == 2 + len(dies)
    for part in whole, b"".join(lines[: [b'"tier": "screen"' in line for line in lines].index(True)]):
        (tmp_path / "one" / journal.FILE).write_bytes(part)
        again = Journal.replay(tmp_path / "one", tmp_path / str(len(part)))
        with pytest.raises(ReplayEnded) if part != whole else contextlib.nullcontext():
            search(again, unasked, Recorded("search"), chosen=CHOSEN).run()
        assert (again.folder / journal.FILE).read_bytes() == part


def test_gpus_of_different_speed_make_the_same_selections(tmp_path):
    """Every ratio is of one session."""
    found = []
    for slower in 1.0, 0.5, 2.0:
        record = Journal.new(tmp_path / str(slower))
        run(record, TwoGpus(slower=slower))
        selected = (line.facts for line in journal.read(record.folder) if line.kind == "selected")
        found.append([(facts["best"], facts["finalists"], facts["accepted"]) for facts in selected])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("points", [3] + [pytest.param(20, marks=pytest.mark.slow)] * WHOLE)
def test_a_search_killed_at_random_points_resumes_to_the_same_journal(points, tmp_path):
    whole = run(Journal.new(tmp_path), TwoGpus())
    for cut in random.Random(20).sample(range(whole.index(b"\n") + 1, len(whole)), points):
        (tmp_path / journal.FILE).write_bytes(whole[:cut])
        assert run(Journal.resume(tmp_path), TwoGpus()) == whole, cut


def test_ctrl_c_ends_every_session_and_a_search_resumes(tmp_path, monkeypatch):
    class Interrupted(TwoGpus):
        def works(self) -> None:
            super().works()
            if threading.current_thread() is not threading.main_thread():
                assert self.stopped.wait(60)
                raise EngineError("killed")
            if self.most > 1:
                raise KeyboardInterrupt

    def confirm(*_: object) -> Confirmation:
        assert engine.open == 0, "every session ended before, which frees its GPU"
        return Confirmation()

    monkeypatch.setattr(judging.EngineJudge, "confirm", confirm)
    kernel = Submission("input", KERNEL.encode(), "kernel_function")
    view, made = Progress(quiet=True), [Search()]
    engine = Interrupted()
    with contextlib.suppress(KeyboardInterrupt):
        runner.optimize(PROBLEM, kernel, CHOSEN, lambda _: made, tmp_path, engine, view)
    (file,) = tmp_path.glob(f"*/{journal.FILE}")
    before = file.read_bytes()
    assert engine.open == 0 and engine.stopped.is_set() and b'"proposed"' in before
    engine = TwoGpus()
    finished = runner.optimize(PROBLEM, kernel, CHOSEN, lambda _: made, tmp_path, engine, view, resume=True)
    assert finished.confirmed is not None and file.read_bytes().startswith(before)
