"""The published protocol's own process: what a kernel does in it becomes a time or a reason, never an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import kernel_files, smoke_problem

from repro.judge.processes import launcher as launch
from repro.judge.timing import published_protocol

TIMEOUT_S = 30.0
GOOD = (
    "def kernel_function(x, num_features, eps=1e-5):\n    return x / (x.square().mean(1, keepdim=True) + eps).sqrt()\n"
)
HANGING = "import time\n\n\ndef kernel_function(x):\n    time.sleep(600)\n"
DYING = "import os\n\n\ndef kernel_function(x):\n    print('last words', flush=True)\n    os._exit(7)\n"
RAISING = "def kernel_function(x):\n    raise ValueError('not here')\n"
NOT_PYTHON = "def kernel_function("
# One that answers before it ends, and reads nothing more through a pipe that it made small.
ANSWERING = """
import fcntl, os, stat, time

def kernel_function(x):
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096)
                else:
                    os.write(fd, b'{"ms": 1.0}\\n')
        except OSError:
            continue
    time.sleep(600)
"""
IN_PLACE = "def kernel_function(x):\n    return x.zero_()\n"
SPOILED = "def kernel_function(x):\n    assert x.any(), 'the inputs were changed'\n    return x\n"


def measured(tmp_path: Path, timeout_s: float = TIMEOUT_S, **sources: str):
    """What the protocol makes of these kernels of L1_36 on the CPU, which the judge had called correct."""
    solutions = kernel_files(tmp_path, sources)
    problem = smoke_problem("L1_36@bf16")
    verdicts = dict.fromkeys(sources, "correct")
    found = published_protocol.measure(problem, solutions, verdicts, "cpu", lambda line: None, timeout_s)
    assert not launch.current().workers(), "nothing is left running"
    return found


def test_kernels_that_fail_leave_the_others_their_times(tmp_path):
    """Inputs are shared as published: what one kernel does to them the next one meets. This is what the judge's own
    inputs are kept from."""
    kernels = {"raising": RAISING, "not_python": NOT_PYTHON, "in_place": IN_PLACE, "spoiled": SPOILED, "good": GOOD}
    found = measured(tmp_path, **kernels)
    assert all(found.times_ms[name] > 0 for name in ("eager", "in_place", "good"))
    words = {"raising": "not here", "not_python": "SyntaxError", "spoiled": "the inputs were changed"}
    for name, word in words.items():
        assert found.times_ms[name] is None and word in found.reasons[name]
    assert list(found.times_ms) == ["eager", "compile", *kernels], "the published order"


@pytest.mark.parametrize(
    ("source", "timeout_s", "words"),
    [pytest.param(HANGING, 12.0, "no answer within 12 s", marks=pytest.mark.slow),
     (DYING.replace("last", "\\x1b[2Klast"), TIMEOUT_S, "it died: \ufffd[2Klast words")],
    ids=["hangs", "dies"],
)  # fmt: skip
def test_a_process_that_ends_ends_the_protocol_with_its_reason(tmp_path, source, timeout_s, words):
    """It is one process, as published: the variants after it have none. What it printed is made printable."""
    found = measured(tmp_path, timeout_s, bad=source, good=GOOD)
    assert found.times_ms["eager"] > 0 and words in found.reasons["bad"], found.reasons
    assert found.times_ms["good"] is None and "ended with bad" in found.reasons["good"]


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_process_that_reads_no_request_is_not_waited_for(tmp_path):
    """The judge waited for ever until its request was read, and with it ended what it had judged before."""
    found = measured(tmp_path, 8.0, answering=ANSWERING, good=GOOD + "#" * 8192)
    assert found.times_ms["answering"] == 1.0 and found.times_ms["good"] is None
    assert "no answer within 8 s" in found.reasons["good"]


def test_rejected_kernels_are_not_run_again(tmp_path):
    (tmp_path / "bad.py").write_text(GOOD)
    problem = smoke_problem("L1_36@bf16")
    solutions = [("bad", tmp_path / "bad.py", "kernel_function")]
    found = published_protocol.measure(problem, solutions, {"bad": "rejected"}, "cpu", lambda line: None, TIMEOUT_S)
    assert found.reasons["bad"] == "not run: the verdict is rejected" and found.times_ms["bad"] is None
