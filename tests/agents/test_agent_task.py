"""The study as a task of Inspect's own command, in a checkout and installed, with scripted replies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLEAN_ENV, ROOT
from inspect_ai.log import EvalLog, read_eval_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]
ARGUMENTS = (
    "-T",
    "problems=L1_36",
    "-T",
    "arms=with_kb",
    "-T",
    "engine=local",
    "-T",
    "device=cpu",
    "--display",
    "none",
)


def evaluated(folder: Path, *words: str) -> EvalLog:
    """Run `inspect eval` in a folder; return its log."""
    command = [sys.executable, "-m", "inspect_ai", "eval", *words, *ARGUMENTS, "--display", "none"]
    done = subprocess.run(command, cwd=folder, env=CLEAN_ENV, capture_output=True, text=True, check=False)
    logs = list((folder / "logs").glob("*.eval"))
    assert done.returncode == 0 and len(logs) == 1, done.stdout + done.stderr
    return read_eval_log(str(logs[0]))


def test_inspect_eval_of_a_fresh_checkout_measures_what_it_lacks_and_judges(tmp_path):
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "repro", checkout / "repro")
    for name in ("problems", "artifacts", "requirements", "docs"):
        (checkout / name).symlink_to(ROOT / name)
    (checkout / "tests").mkdir()
    (checkout / "tests" / "agent_scripts").symlink_to(ROOT / "tests" / "agent_scripts")
    log = evaluated(checkout, "repro/agents", "-T", "script=tests/agent_scripts")
    assert log.status == "success" and log.eval.model == "replay/scripted"
    (sample,) = log.samples or []
    assert sample.scores and sample.scores["judged"].value == 1.0, sample.scores
    assert (checkout / "results" / "fixtures").is_dir(), "paths count from the checkout"
