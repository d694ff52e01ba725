"""What torch.compile made of the baselines is kept between jobs, out of reach of every solution."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from types import SimpleNamespace as Named
from typing import Any, cast

import pytest
import torch
from conftest import WHOLE

from repro import config
from repro.engines import local
from repro.errors import SolutionError, SolutionTimeout
from repro.fixtures import calibration
from repro.judge.correctness.workers import Workers
from repro.judge.isolation import uids
from repro.judge.session import JudgeSession
from repro.judge.timing import compiled
from repro.problems import catalogue
from repro.records.options import Options

PROBLEM = """import torch
from torch import nn
from torch._inductor import config

config.cpp.vec_isa_ok, config.cpp.simdlen, config.cpp_cache_precompile_headers = True, 1, False  # one compilation


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x


def get_inputs():
    return [torch.rand(64, 32) - 0.5]


def get_init_inputs():
    return []
"""
ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def folder(open_folder, monkeypatch):
    """The folder of compiled baselines, with one file."""
    monkeypatch.setenv("REPRO_STATE", str(open_folder / "state"))
    config.shared_state()
    compiled._write("name", b"kept")
    return config.compiled_dir()


@ROOT_ALONE
@pytest.mark.parametrize("command", ["chmod g+x {}", "chown 61000 {}", "chown 61000 {}/.."])
def test_a_folder_that_another_user_may_have_written_to_is_not_used(folder, command):
    assert compiled._read("name") == b"kept"
    subprocess.run(command.format(folder).split(), check=True)
    assert not compiled._read("name")


@ROOT_ALONE
@pytest.mark.parametrize("command", ["ls {}", "cat {}/name", "touch {}/new", "rm -f {}/name", "mv {} {}-other"])
def test_a_workers_user_reaches_nothing_in_the_folder(folder, command):
    assert subprocess.run(command.format(folder, folder).split(), user=uids.LAST_UID).returncode
    assert [path.name for path in folder.iterdir()] == ["name"]


def test_the_files_used_longest_ago_go_first_and_clean_removes_all(folder, monkeypatch):
    monkeypatch.setattr(compiled, "MOST_BYTES", 8)
    compiled._write("second", b"also")
    os.utime(folder / "second", (0, 0))
    compiled._write("third", b"more")
    assert {path.name for path in folder.iterdir()} == {"name", "third"}
    assert str(folder) in local.sweep(folder) and not folder.exists()


def test_every_variant_and_problem_has_a_file_of_its_own():
    def named(variant, source, weights):
        problem, fixture = Named(message=lambda: source), Named(weights_sha256=weights)
        judged = Named(slots=Named(device=torch.device("cpu")), problem=problem, fixture=fixture)
        return compiled._name(judged, variant)

    assert len({named(*facts) for facts in ("aaa", "baa", "aba", "aab", "aaa")}) == 4


def first_call(workers, baseline, call):
    return compiled.first_call(cast("Any", Named(workers=workers)), cast("Any", baseline), "compile", call)


def test_a_result_that_cannot_be_kept_costs_no_baseline(monkeypatch):
    def ask(*_):
        raise SolutionError("error", "this torch keeps nothing")

    monkeypatch.setattr(compiled, "_name", lambda *_: "none")
    baseline = Named(hello={"uid": uids.FIRST_UID}, made={})
    assert first_call(Named(ask=ask), baseline, lambda: "answer") == "answer" and not baseline.made


@pytest.mark.parametrize(
    ("error", "again"), [(SolutionError("exception", "PermissionError"), True), (SolutionTimeout("timeout", ""), False)]
)
def test_a_kept_result_that_fails_costs_no_baseline(folder, monkeypatch, error, again):
    """The call is made again without it, unless its worker has ended; and it is not used again."""
    asked, answers = [], iter([error, "answer"])

    def call():
        answer = next(answers)
        if isinstance(answer, SolutionError):
            raise answer
        return answer

    def ask(_, message):
        asked.append(message["op"])
        return {"size": 0, "graphs": 0}

    monkeypatch.setattr(compiled, "_name", lambda *_: "name")
    baseline = Named(hello={"uid": uids.FIRST_UID}, made={})
    workers = Named(send=lambda *_: None, ask=ask, release=lambda _: None)
    with contextlib.nullcontext() if again else pytest.raises(SolutionTimeout):
        assert first_call(workers, baseline, call) == "answer"
    assert asked == (["take", "forget", "compiled"] if again else ["take"]) and not compiled._read("name")


@pytest.mark.slow
def test_a_worker_that_forgets_compiles_anew(tmp_path, monkeypatch):
    from repro.judge.worker.server import Worker

    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "problem.py").write_text(PROBLEM)
    worker = Worker(torch.device("cpu"), tmp_path)
    worker.problem, worker.entry = catalogue.load_file(tmp_path / "problem.py"), "Model"
    worker.problem_module = worker.problem.module()
    worker.model = worker.problem_module.Model()
    worker.bind(["compile"])
    for graphs in (1, 0, 1):
        worker.run("compile", cast("Any", [{"value": torch.rand(64, 32)}]))
        assert worker.compiled()["graphs"] == graphs
        if not graphs:
            worker.forget("compile")


@pytest.mark.parametrize("best", [64, 4096])
@pytest.mark.parametrize("count", [1, 3])
def test_a_kernel_is_tuned_once_though_the_folder_of_that_job_is_gone(tmp_path, monkeypatch, count, best):
    """count: the configurations that a kernel begins with, of 64 and more. best: what torch's tuner ends with."""
    from torch._inductor.codecache import StaticAutotunerFuture
    from torch._inductor.runtime import triton_heuristics as tuning
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    from repro.judge.worker import server

    for of, name in (AutotuneCache, "_setup_local_cache"), (tuning.CachingAutotuner, "recheck_autotune_cache"):
        monkeypatch.setattr(of, name, getattr(of, name))  # put back afterwards
    server._tuned_before()
    meta = {"autotune_local_cache": True, "autotune_remote_cache": False, "coordinate_descent_tuning": True}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))

    def loaded():
        """A kernel as torch loads it: compiled by a job whose folder is gone."""
        first = [tuning.Config({"XBLOCK": 64 << i}, num_warps=4, num_stages=1) for i in range(count)]
        of = Named(compile_results=[Named(config=each) for each in first], filename="/proc/none/ab/kernel.py",
                   inductor_meta=meta, is_statically_launchable=lambda: True, fn=Named(fn=None),
                   _precompile_config=lambda config: Named(config=config), precompile=lambda **_: None)  # fmt: skip
        of.recheck_autotune_cache = functools.partial(tuning.CachingAutotuner.recheck_autotune_cache, cast("Any", of))
        future = StaticAutotunerFuture(cast("Any", of))
        future.reload_kernel_from_src = lambda: Named(fn=Named(fn=1))
        return cast("Any", future.result())

    fresh = loaded()
    assert len(fresh.compile_results) == count
    fresh.save_cache_hook(tuning.Config({"XBLOCK": best}, num_warps=4, num_stages=1), 0, found_by_coordesc=True)
    (tuned,) = loaded().compile_results
    assert tuned.config.kwargs == {"XBLOCK": best} and tuned.config.found_by_coordesc


@pytest.mark.slow
def test_the_second_session_takes_what_the_first_one_compiled(folder, tmp_path, monkeypatch):
    """It comes back in pieces. In `make test-all` a damaged file is compiled anew too. Baselines count as those of
    another user."""
    options = Options(device="cpu", timeout_s=180, timing_budget_s=0.3, max_blocks=12, modes=("eager", "compile"))
    file, known, define, keep = tmp_path / "mine.py", tmp_path / "known.py", Workers._define, compiled._keep
    known.write_text(PROBLEM)
    problem = catalogue.load_file(known)
    fixture = calibration.build(problem, torch.device("cpu"))
    peeks = f"import os\ntry:\n    os.listdir({str(folder)!r})\nexcept OSError:\n    pass\nelse:\n    raise SystemError"
    file.write_text(f"{PROBLEM}\n{peeks}\n\nclass ModelNew(Model):\n    pass\n")

    def defined(self, early, implementation):
        error = define(self, early, implementation)
        implementation.hello["uid"] = uids.FIRST_UID
        return error

    def in_pieces(evaluation, *more):
        with monkeypatch.context() as small:
            small.setattr(evaluation.slots, "staging_bytes", 4096)
            keep(evaluation, *more)

    monkeypatch.setattr(Workers, "_define", defined)
    monkeypatch.setattr(compiled, "_keep", in_pieces)
    for graphs in (1, 0, 1) if WHOLE else (1, 0):
        with JudgeSession(problem, fixture, options) as judge:
            assert judge.check([("mine", file, "ModelNew")])[0].verdict == "correct"
            assert judge.time(["mine"]).timing.compiled_anew["compile"] == graphs
        for path in folder.iterdir() if not graphs else ():
            path.write_bytes(path.read_bytes()[:-99])
