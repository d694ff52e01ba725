"""Every recorded search that lies here gives the same selections again: no GPU, no network, no model, byte for byte."""

from __future__ import annotations

import re
import shutil
import socket

import documents
import pytest
import searches
from conftest import smoke_problem
from test_loop import options

from repro import config
from repro.artifacts import lint
from repro.cli import optimize
from repro.errors import BundleError, UsageError
from repro.optimize import journal, runner
from repro.optimize.state import INPUT, Program, State
from repro.problems import catalogue
from repro.records.search import Selected
from repro.report import search as report

# Searches of input kernels on a GPU ship beside them.
RUNS = sorted(config.ARTIFACTS_DIR.glob("*/search*.tar.xz"))


def test_what_is_no_archive_is_told_in_a_line(tmp_path):
    (tmp_path / "mine.py").write_text("import torch\n")
    with pytest.raises(BundleError) as caught, runner.unpacked(tmp_path / "mine.py"):
        pass
    assert str(caught.value).endswith("file could not be opened successfully. Name a run's folder or its .tar.xz.")


@pytest.mark.parametrize("archive", [RUNS[0], *(pytest.param(path, marks=pytest.mark.slow) for path in RUNS[1:])])
def test_a_recorded_search_gives_the_same_selections(archive, tmp_path, monkeypatch):
    def offline(*_: object, **__: object) -> None:
        raise AssertionError("a replay opened a socket")

    monkeypatch.setattr(socket, "socket", offline)
    with runner.unpacked(archive) as folder:
        finished = documents.replayed(folder, tmp_path)
        assert (finished.folder / journal.FILE).read_bytes() == (folder / journal.FILE).read_bytes()
        selected = [Selected.model_validate(each.facts) for each in journal.read(folder) if each.kind == "selected"]
    assert selected and selected[-1].best == finished.state.best
    best = [each.gain.ratio if each.gain else 1.0 for each in selected]
    assert best == sorted(best) and best[-1] > 1.4
    if finished.exported is not None:
        found = lint.lint(finished.exported)
        assert found.errors == 0, found.findings


def test_a_shipped_run_ends_with_its_speedups(tool, tmp_path):
    with runner.unpacked(RUNS[0].parent) as run, runner.unpacked(RUNS[0]) as same:
        assert (run / journal.FILE).read_bytes() == (same / journal.FILE).read_bytes()
    done = tool.within("optimize", "--replay", RUNS[0], "--results", tmp_path / "r", "--output", "tree.svg")
    (folder,) = (tmp_path / "r").glob("*-replay-*")
    last = done.out.splitlines()[-1]
    assert done.code == 0 and re.match(r"\d+\.\d\dx the input kernel, \d+\.\d\dx torch\.compile · ", last)
    assert (tool.folder / "tree.svg").read_text().startswith("<svg ")
    assert "best.diff" in done.out and (folder / "best.diff").read_text().startswith("--- input kernel\n+++ best.py\n")
    with runner.unpacked(RUNS[0]) as run:
        done = tool.within("verify", run)
    assert done.code == 1 and "is a search, not a bundle" in done.complaint, done.err


@pytest.mark.parametrize(
    ("file", "name"),
    [("63_Gemm_ReLU_Divide.py", "63_Gemm_ReLU_Divide"), ("7_Sum.py", "07_Sum"), ("mine.py", "00_mine")],
)
def test_a_run_of_a_file_is_exported_with_the_files_number(file, name, tmp_path):
    shutil.copy(smoke_problem().path, tmp_path / file)
    assert runner.export_name(catalogue.load_file(tmp_path / file, size="smoke")) == name
    assert runner.export_name(smoke_problem()) == "36_RMSNorm"


def test_packing_the_same_run_gives_the_same_bytes(tmp_path):
    with runner.unpacked(RUNS[0]) as run:
        searches.pack(run, tmp_path / "again.tar.xz")
    assert (tmp_path / "again.tar.xz").read_bytes() == RUNS[0].read_bytes()


@pytest.mark.slow
def test_a_replay_draws_its_tree(tool):
    (archive,) = (archive for archive in RUNS if archive.parent.name.startswith("43"))
    done = tool.within("optimize", "L1_43", "--replay", archive, "--output", "tree.html")
    done.succeeded()
    page = (tool.folder / "tree.html").read_text()
    assert "not a measurement" not in page and "<title>r1.c40: hand_written" in page and "tl.constexpr" in page


@pytest.mark.parametrize(
    ("stopped", "told"),
    [
        ("the time is used up: 1 min", "no candidate was tried: raise --minutes"),
        ("nothing is left to expand", "no candidate was tried: no rewrite fits the input kernel"),
    ],
)
def test_a_search_without_a_candidate_says_why(stopped, told, tmp_path):
    state = State(options(), {INPUT: Program(INPUT, "0", "0", "kernel_function", verdict="correct")})
    assert optimize._ending(runner.Finished(state, tmp_path, stopped, False, None, None, {})) == told


def test_a_search_whose_input_kernel_is_incorrect_has_a_page_without_a_tree(tmp_path):
    state = State(options(), {INPUT: Program(INPUT, "0", "0", "kernel_function", verdict="incorrect", reason="off")})
    finished = runner.Finished(state, tmp_path, "not correct", False, None, None, {})
    page = report.drawn(finished, ".html")
    assert "Every candidate" in page and "Drawn from the journal of a search" in page
    assert "Evidence" not in page and "report.json" not in page, "it is no report of a bundle"
    with pytest.raises(UsageError, match="no program of this search was timed"):
        report.svg(finished)
