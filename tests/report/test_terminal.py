"""What people read: words of verdicts, tables that fit the terminal, the last line, progress."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import until
from rich.console import Console
from rich.text import Text
from test_report import bundle_of, result

from repro import config
from repro.bundle.write import Bundle
from repro.cli import arguments, ending, main, output
from repro.doctor import finding
from repro.judge.worker import no_gpu
from repro.records import wording
from repro.records.verdict import Reason
from repro.report import document, elements, terminal
from repro.runs import progress
from repro.system.screen import Column, Screen, fitting

RESULTS = config.ARTIFACTS_DIR / "results"
WIDTHS = (80, 100, 200)
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


# -- words


def raised() -> Iterator[str]:
    """Every reason code that a file of the package gives to a SolutionError, or writes as a `code`."""
    errors = ("SolutionError", "SolutionRejected", "SolutionTimeout", "SolutionDied")
    for file in sorted((config.ROOT / "repro" / "judge").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(ast.Name(name), [ast.Constant(str(code)), *_]) if name in errors:
                    yield code
                case ast.Call(ast.Name("Reason"), keywords=[ast.keyword("code", ast.Constant(str(code))), *_]):
                    yield code
                case ast.Dict(keys, values):
                    for key, value in zip(keys, values, strict=True):
                        match key, value:
                            case ast.Constant("code"), ast.Constant(str(code)):
                                yield code
                case ast.Assign([ast.Name("DISTURBED_CODE" | "code" | "reason")], value):
                    yield from (
                        each.value
                        for each in ast.walk(value)
                        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isidentifier()
                        and each.value not in ("SIGKILL", "SIGSEGV", "code")
                    )  # fmt: skip
                case ast.FunctionDef("_code", body=[*_, ast.Return(value)]):
                    yield next(each.value for each in ast.walk(value) if isinstance(each, ast.Constant))


# Codes that are computed: `wrong_{key}`, the guards of a distance, the status of a row.
COMPUTED = {"wrong_dtype", "wrong_shape", "wrong_device", "rel_l2", "max", "row", "zero_region", "bias", "stale",
            "differs", "shapes", "failed", "unmet", "lost", "interrupted"}  # fmt: skip


def test_every_reason_code_of_the_judge_has_a_sentence():
    known = set(raised()) | COMPUTED
    assert {"needs_cuda", "timeout", "segfault", "baseline_disturbed", "below_floor"} <= known
    assert known == set(wording.REASONS)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            {"code": "rel_l2", "trial": "spiked", "detail": "…", "value": 0.215, "limit": 0.0121, "class": "bf16"},
            "wrong: relative L2 error 0.215 on spiked inputs; even bf16 allows 0.012",
        ),
        (
            {"code": "rel_l2", "trial": "spiked", "detail": "0.215 over the limit 0.0121 of class bf16"},
            "wrong: relative L2 error 0.215 over the limit 0.0121 of class bf16 on spiked inputs",
        ),
        *(({"code": "max", "trial": "native", "value": value, "limit": 0.5, "class": "bf16"},
           "wrong: not finite, or far beyond any value of the reference on the published inputs")
          for value in ("nan", 2.8e36)),
        ({"code": "syntax_error", "trial": "import", "detail": "line 2: expected ':'"},
         "line 2: expected ':' (syntax error)"),
        ({"code": "timeout", "trial": "native", "detail": "run took longer than 3 s"},
         "timed out on the published inputs: run took longer than 3 s"),
        ({"code": "needs_cuda", "trial": "import", "detail": "no nvcc"}, "not judged: needs CUDA (no nvcc)"),
        ({"code": "a code {x} of a worker", "detail": "{where}\x1b[2K\r"}, "stopped with an error: {where}\ufffd[2K"),
    ],
)  # fmt: skip
def test_a_reason_is_a_sentence(reason, sentence):
    assert wording.reason(Reason.model_validate(reason)) == sentence


@pytest.mark.parametrize(
    ("code", "detail", "problem", "said"),
    [
        ("import_error", "ModuleNotFoundError: No module named 'my_ops'", "L1_36", "a solution is one file"),
        ("exception", "ImportError: attempted relative import with no known parent package", "L1_36", "one file"),
        ("exception", "TypeError: x must be torch.bfloat16 or torch.float16 (line 6)", "L1_36", "--dtype bfloat16"),
        ("exception", "AssertionError: assert x.dtype == torch.float16 (line 6)", "L1_36", "--dtype float16"),
        ("exception", "RuntimeError: expected Half but found Float (line 6)", "L1_36", "--dtype float16"),
        ("exception", "TypeError: x must be torch.bfloat16 (line 6)", "L1_36@bf16", "--explain"),
        ("exception", "TypeError: parameter 'W' of kernel_function is no input", "L1_36", "Call its parameters as"),
        ("exception", "TypeError: ModelNew.forward() missing 1 required argument", "L1_36", "the problem's Model"),
        ("exception", "ZeroDivisionError: division by zero (line 6)", "L1_36", "--explain"),
    ],
)
def test_what_to_do_follows_what_an_error_says(code, detail, problem, said):
    assert said in wording.remedy(Reason(code=code, detail=detail), problem)


def test_every_sentence_stands_without_a_detail():
    for code in wording.REASONS:
        text = wording.reason(Reason(code=code))
        assert text and "{" not in text and "()" not in text and not text.endswith((":", " ")), (code, text)


def test_a_solution_that_needs_cuda_is_counted_apart():
    needs = wording.Told("error", [Reason(code="needs_cuda", detail="AssertionError")])
    entries = [wording.Told("correct", []), wording.Told("incorrect", []), needs]
    assert wording.word(needs) == "not judged" and wording.not_judged(needs)
    assert wording.counted(entries) == "1 of 2 correct (1 wrong), 1 not judged: needs CUDA"
    assert wording.counted([needs]) == "1 not judged: needs CUDA"
    assert wording.counted([]) == "nothing judged"


# -- tables and the last line


def screen(width: int, *, terminal: bool = True, **options: bool) -> tuple[Screen, io.StringIO]:
    """A screen of this width, and what it prints."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, no_color=True, highlight=False, markup=False)
    return Screen(console=console, **options), out


COLUMNS = (Column("problem", least=8), Column("verdict", whole=True), Column("ms", number=True),
           Column("over eager", number=True), Column("over best", 1, number=True), Column("why", 2))  # fmt: skip


def test_a_table_drops_columns_by_priority_and_never_wraps_a_number():
    row = ["L2_34_ConvTranspose3d_LayerNorm_GELU_Scaling", Text("✓ correct"), "0.1234", "3.97x [3.95, 4.01]",
           "1.09x [1.08, 1.10]", "a long reason " * 9]  # fmt: skip
    for width in (60, *WIDTHS):
        drawn, out = screen(width)
        drawn.table(COLUMNS, [row])
        text = ANSI.sub("", out.getvalue())
        assert max(map(len, text.splitlines())) <= width
        assert "3.97x [3.95, 4.01]" in text and "0.1234" in text and "✓ correct" in text
        assert ("1.09x [1.08, 1.10]" in text) == (width >= 80), width
        assert ("Wider terminals also show over best, why." in text) == (width == 60)


def test_columns_without_a_priority_stay():
    lines = [[value if not isinstance(value, str) else Text(f"✓ {value}") for value in ["x" * 90, "ok"]]]
    assert fitting((Column("a"), Column("b", 3)), lines, 10) == [0]


def test_the_last_line_breaks_between_its_parts_on_a_narrow_terminal_alone():
    parts = ("10 of 10 correct", "3.97x over eager, 1.09x over the best torch baseline")
    drawn, out = screen(80)
    drawn.last(*parts, report="results/20261123T130313Z-run/report.html")
    assert all(len(ANSI.sub("", line)) <= 80 for line in out.getvalue().splitlines())
    piped, out = screen(80, terminal=False)
    piped.last(*parts, report="results/20261123T130313Z-run/report.html")
    assert out.getvalue() == " · ".join((*parts, "report: results/20261123T130313Z-run/report.html")) + "\n"


def test_quiet_prints_the_last_line_alone():
    drawn, out = screen(80, terminal=False, quiet=True, verbose=True)
    drawn.title("title")
    drawn.line("line")
    drawn.item("item")
    drawn.table(COLUMNS, [["x"] * 6])
    drawn.last("done")
    assert out.getvalue() == "done\n" and not drawn.verbose


def test_a_cell_cannot_steer_the_terminal():
    drawn, out = screen(80, terminal=False)
    drawn.table((Column("a"),), [["\x1b[2K\r[bold]x"]])
    assert "\x1b" not in out.getvalue() and "[bold]x" in out.getvalue()


# -- verbs


def bundles(verb: str) -> list[Path]:
    """The published bundles of a verb, newest last."""
    return sorted(RESULTS.rglob(f"*-{verb}"), key=lambda path: path.name)


def shown(argv: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a terminal of this width shows of a command, without colour."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    main.main(argv)
    return ANSI.sub("", capsys.readouterr().out)


def line_with(text: str, *words: str) -> str:
    """The first line in which all these words stand."""
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert found, f"no line with {words} in\n{text}"
    return found[0]


def fits(text: str, width: int) -> None:
    """No line is wider than the terminal, none is markdown."""
    assert text.strip()
    for line in text.splitlines():
        assert len(line) <= width, line
        assert not line.startswith(("|", "#")), line


@pytest.mark.parametrize("width", WIDTHS)
def test_verbs_that_run_nothing_fit_the_terminal(width, monkeypatch, capsys):
    benchmark, run = bundles("benchmark")[-1], bundles("run")[-1]
    compared = ["compare", str(bundles("benchmark")[0]), str(benchmark)]
    claimed = ["compare", "--claims", str(benchmark), str(run)]
    doctor = ["doctor", "--device", "cpu", "--engine", "local"]
    lint, listed = ["verify", str(config.ARTIFACTS_DIR)], ["report", str(config.ARTIFACTS_DIR / "results")]
    for argv in (["problems"], doctor, lint, compared, ["verify", str(run)], claimed, listed):
        drawn = shown(argv, width, monkeypatch, capsys)
        fits(drawn, width)
        assert not re.search(r"^[\s…]*…\s*$", drawn, re.MULTILINE), argv
    assert "10 of 10 correct · 7.38x over eager" in " ".join(drawn.split())


@pytest.mark.parametrize(
    ("verdict", "code", "shown"),
    [
        ("unjudgeable", "degenerate", "○ unjudgeable"),
        ("error", "missing", "✗ missing"),
        ("error", "needs_cuda", "○ not"),
    ],
)
def test_a_verdict_has_one_sign_and_a_finding_a_line(tmp_path, verdict, code, shown):
    judged = result("L1_36", {"mine": 4.0}, device="cpu")
    changed = {"verdict": verdict, "reasons": [{"code": code, "detail": "x"}]}
    judged["results"][0] |= changed | {"labels": ["nonfinite", "reuses_output", "triton"]}
    bundle = bundle_of(
        tmp_path, "evaluate", {"a": judged}, {"a": {"problem": "L1_36", "file": "mine.py"}}, device="cpu"
    )
    drawn, out = screen(200)
    terminal.draw(document.build([bundle]), drawn)
    row, hides, reuses, why = (line for line in ANSI.sub("", out.getvalue()).splitlines() if "mine.py" in line)
    assert shown in row and why.startswith(f"{shown[0]} L1_36 mine.py: ")
    assert elements.written("verdict", shown[2:]).startswith(shown[0])
    assert "mine.py: nonfinite: a NaN of the inputs" in hides and "mine.py: reuses_output: a later call" in reuses


def test_of_a_whole_suite_the_table_shows_what_stands_out(monkeypatch):
    """The rest is in the report, or on the screen with -v."""
    monkeypatch.setattr(terminal, "MANY", 12)
    whole = document.build([*map(Bundle.open, bundles("fixtures"))])
    drawn, out = screen(100)
    terminal.draw(whole, drawn)
    text = ANSI.sub("", out.getvalue())
    assert "3 more are in the report; -v shows all here." in text
    assert "L3_20" in text and "L1_04" not in text, "a cheat comes nearest to passing on the first"
    drawn, out = screen(100, verbose=True)
    terminal.draw(whole, drawn)
    assert "L1_04" in out.getvalue() and "more are in" not in out.getvalue()


def test_doctor_shows_the_remedy_under_what_fails(monkeypatch, capsys):
    from repro import doctor

    monkeypatch.setattr(
        doctor,
        "CHECKS",
        {
            "gpu": (lambda _: finding.fail("no GPU here", "Use DEVICE=cpu."), ""),
            "disk": (lambda _: finding.ok("71 GiB free"), ""),
        },
    )
    assert main.main(["doctor", "--engine", "local"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("✗") and "no GPU here" in line)
    assert "→ Use DEVICE=cpu." in lines[at + 1] and lines[-1] == "not ready: gpu"


def test_verify_takes_folders_of_bundles_and_prints_a_line_each_and_a_sum(
    capsys,
):
    folder = bundles("fixtures")[0].parent
    held = sorted({file.parent for file in folder.rglob("manifest.json")})
    main.main(["verify", str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(held) + 1 and lines[-1].startswith(f"{len(held)} bundles: ")
    for path, line in zip(held, lines, strict=False):
        assert path.name in line and line.split()[1] in ("ok", "FAILED", "interrupted")


# -- progress


def progress_on(**console: Any) -> tuple[progress.Progress, io.StringIO]:
    """Progress on a console with these options, and what it prints."""
    out = io.StringIO()
    return progress.Progress(console=Console(file=out, **console)), out


def test_progress_elsewhere_than_on_a_terminal_is_plain_lines_with_count_and_times():
    told, out = progress_on(width=40, soft_wrap=True)
    with told.live():
        told.at(1, 2)
        told.step("compiling")
        told.done("L1_36/oracle/0: correct " + "and more " * 9)
        told.at(2, 2)
        told.done("L1_82/oracle/0: wrong")
    told.say("no GPU")
    told.say("no GPU")
    first, second, last = out.getvalue().splitlines()
    assert first.startswith("[1/2] L1_36/oracle/0: correct") and first.endswith("(0:00)")
    assert second == "[2/2] L1_82/oracle/0: wrong (0:00)" and last == "no GPU"
    assert "\x1b" not in out.getvalue()


def test_a_long_job_in_a_log_file_says_that_it_runs(monkeypatch):
    monkeypatch.setattr(progress, "_BEAT_S", 0.05)
    told, out = progress_on(width=40, soft_wrap=True)
    with told.live(), told.lane(["L1_36/oracle/0", "L1_82/oracle/0"]) as step:
        step("timing")
        until(out.getvalue)
    assert out.getvalue().startswith("running: L1_36/oracle/0 and 1 more, timing, 0:0")


def test_progress_expects_the_rest_from_what_this_run_has_done(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    pace = progress.Pace()
    pace.at(6, 10)  # five were there before
    assert pace.rest_s is None
    now[0] = 30.0
    pace.at(7, 10)
    assert pace.rest_s == pytest.approx(120.0) and pace.text() == "0:30, about 2:00 left"
    now[0] = 40.0
    assert pace.rest_s == pytest.approx(110.0)
    assert progress.spoken(3725) == "1:02:05"


def test_quiet_progress_says_nothing(capsys):
    told = progress.Progress(quiet=True)
    with told.live():
        told.at(1, 1)
        told.done("x")
        told.say("y")
    assert capsys.readouterr().err == ""


# -- errors


def test_an_error_is_one_line_and_with_v_also_the_traceback(capsys):
    assert main.main(["verify", "/nowhere"]) == 1
    assert capsys.readouterr().err == "repro: /nowhere is not a bundle: it does not exist\n"
    assert main.main(["verify", "-v", "/nowhere"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith("\nrepro: /nowhere is not a bundle: it does not exist\n")


def test_an_error_is_broken_between_words_on_a_terminal():
    ours, theirs = pty.openpty()  # a terminal that knows no width
    with open(theirs, "w") as terminal, contextlib.redirect_stderr(terminal):
        ending.complain("x" * 90 + " it is")
        said = b""
        while not said.endswith(b"is\r\n"):  # a terminal may hand over a part at a time
            said += os.read(ours, 999)
        assert said.endswith(b"x it\r\nis\r\n")
    os.close(ours)


def test_an_interrupt_leaves_one_line_that_says_how_to_go_on(monkeypatch, capsys):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(arguments, "choose", interrupt)
    assert main.main(["run"]) == 130
    assert "Repeat the command with --resume to go on" in capsys.readouterr().err


def test_the_live_line_does_not_reach_the_edge_of_the_terminal():
    """Else the terminal's own ^C begins a new line, and the live line stays on the screen."""
    told, out = progress_on(width=80, force_terminal=True, no_color=True)
    with told.live():
        told.at(3, 120)
        told.step("L2_34/oracle/0: L2_34_ConvTranspose3d_LayerNorm_GELU_Scaling: perturbed_spiked " * 3)
        assert told._live is not None
        told._live.refresh()
    lines = ANSI.sub("", out.getvalue()).replace("\r", "\n").splitlines()
    assert any("2/120" in line and "…" in line for line in lines)
    assert all(len(line.rstrip()) < 78 for line in lines), lines


# -- what a machine without a GPU cannot judge


def raised_by(file: Path) -> BaseException:
    """What running a file raises."""
    try:
        exec(compile(file.read_text(), str(file), "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        ("raise AssertionError('Torch not compiled with CUDA enabled')", True),
        ("raise RuntimeError('Found no NVIDIA driver on your system. Please check')", True),
        ("raise OSError('CUDA_HOME environment variable is not set.')", True),
        ("raise RuntimeError('x must be a CUDA tensor')", True),
        ("raise NotImplementedError('inline_asm not supported in interpreter mode')", True),
        ("raise AttributeError(\"'InterpreterBuilder' object has no attribute 'create_x'\")", True),
        ("try:\n raise OSError('No CUDA GPUs are available')\nexcept OSError as e:\n raise ValueError() from e", True),
        ("libdevice = None\nraise TypeError('cannot convert None of type NoneType')", False),
        ("raise ValueError('shapes differ')", False),
        ("raise IndexError('list index out of range')", False),
        ("assert 1 == 2, 'cudnn'", False),
        ("raise RuntimeError('Error building extension')", False),
        ("class X:\n    is_cuda = False\n\nassert X.is_cuda\n", True),
        ("assert 1 == 2\n", False),
    ],
)
def test_an_error_that_asks_for_a_gpu_is_told_from_one_that_does_not(tmp_path, source, lacks):
    file = tmp_path / "solution.py"
    file.write_text(source)
    assert no_gpu.lacks_gpu(raised_by(file)) == lacks


def test_strict_leaves_out_what_needs_cuda():
    bundle = type("Told", (), {"manifest": {"plan": []}})()
    needs = wording.Told("error", [Reason(code="needs_cuda")])
    assert output.exit_code(bundle, [wording.Told("correct", []), needs]) == 0
    assert output.exit_code(bundle, [wording.Told("incorrect", []), needs]) == 3
