"""The board of a search on a terminal, and its plain lines elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from test_loop import KERNEL, ToldJudge, ended, options

from repro.bundle.storage import Folder
from repro.errors import UsageError
from repro.optimize import runner
from repro.optimize.journal import Journal, standing
from repro.optimize.live import Board
from repro.optimize.loop import Search as Loop
from repro.optimize.proposers.search import Search
from repro.problems import catalogue


def drawn(board: Board) -> str:
    out = io.StringIO()
    Console(file=out, width=110, no_color=True).print(board.board())
    return out.getvalue()


def searched(folder: Path, *, terminal: bool) -> tuple[str, Board]:
    """Run a search of one round; return what was written, and its board."""
    out, judge = io.StringIO(), ToldJudge()
    board = Board(console=Console(file=out, width=200, force_terminal=terminal, no_color=True, highlight=False))
    with board.live(), board.live():  # a job of the search opens another block
        loop = Loop(options(rounds=1), KERNEL, "kernel_function", Journal.new(folder), lambda: judge, [Search()],
                    board, clock=lambda: 0.0)  # fmt: skip
        loop.run()
    return out.getvalue(), board


def test_a_terminal_shows_a_board_and_other_output_plain_lines(tmp_path):
    live, board = searched(tmp_path / "terminal", terminal=True)
    plain, _ = searched(tmp_path / "file", terminal=False)
    assert "running:" in live and "\x1b[" in live
    assert "running:" not in plain and "\x1b[" not in plain
    lines = plain.splitlines()
    assert [line.split(":")[0] for line in lines] == ["input kernel", "round 1", "stopped"]
    assert all(line in live for line in lines)
    assert "running: round 1: 4 finalists in full" in drawn(board)


def test_where_a_search_stands(tmp_path, tool):
    run = tmp_path / "20261127T000000Z-optimize-L1_82@bf16"
    ended(run, rounds=1)
    told, file = standing(run), run / "journal.jsonl"
    assert told.startswith("round 1, best r1.") and told.endswith("(not a measurement); stopped: 1 round is done")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    said = tool("report", "--live", "--results", tmp_path)
    assert (said.code, said.err) == (0, "") and "-optimize-L1_82@bf16: no round is done; interrupted: " in said.out
    folder = Folder(run)
    held = folder.hold(folder)
    assert held and standing(run) == "no round is done; it runs"
    with pytest.raises(UsageError, match="is still searched"):
        problem = catalogue.load("L1_82", dtype="bfloat16")
        runner._journal(problem, options(rounds=1), tmp_path, resume=True, replay=None)


def test_the_board_says_where_a_search_stands(tmp_path, snapshot):
    state, _ = ended(tmp_path / "run", rounds=2, usd=1.0)
    best = state.programs[state.best]
    best.floor_ms = (best.time_ms or 0.0) / 2
    state.spent_by["anthropic"] = {"usd": 0.25, "tokens": 1200.0}
    board = Board()
    assert drawn(board) == "running: nothing\n"
    board.watch(state, lambda: 75.0)
    board.step("judging <r2.c01>")
    assert drawn(board) == snapshot
