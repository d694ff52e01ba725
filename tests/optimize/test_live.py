"""What a person sees of a search: on a terminal a live line and lines that stay, elsewhere the latter."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from test_loop import KERNEL, ToldJudge, ended, options

from repro.bundle.storage import Folder
from repro.errors import UsageError
from repro.optimize import runner
from repro.optimize.journal import Journal
from repro.optimize.loop import Search as Loop
from repro.optimize.proposers.search import Search
from repro.problems import catalogue
from repro.runs.progress import Progress


def test_a_terminal_shows_a_live_line_and_other_output_plain_lines(tmp_path):
    written = {}
    for terminal in (True, False):
        out = io.StringIO()
        view = Progress(console=Console(file=out, width=200, force_terminal=terminal, no_color=True, highlight=False))
        with view.live(counted=False), view.live():  # a job of the search opens another block
            Loop(options(rounds=1), KERNEL, "kernel_function", Journal.new(tmp_path / str(terminal)), ToldJudge,
                 [Search()], view, clock=lambda: 0.0).run()  # fmt: skip
        written[terminal] = out.getvalue()
    assert "round 1: 4 finalists in full" in written[True] and "\x1b[" in written[True]
    lines = written[False].splitlines()
    assert [line.split(":")[0] for line in lines] == ["input kernel", "round 1", "stopped"]
    assert all(line in written[True] for line in lines)


def test_a_search_that_runs_is_not_resumed(tmp_path):
    problem = catalogue.load("L1_82", dtype="bfloat16")
    ended(tmp_path / "20261127T000000Z-optimize-L1_82@bf16", rounds=1)
    folder = Folder(tmp_path / "20261127T000000Z-optimize-L1_82@bf16")
    release = folder.hold(folder)
    assert release is not None
    with pytest.raises(UsageError, match="is still searched"):
        runner._journal(problem, options(rounds=1), tmp_path, resume=True, replay=None)
