"""The shell steps of action.yml, run as a GitHub runner runs them: in a repository with an old kernel at its base."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLEAN_ENV, CPU, ROOT

yaml = pytest.importorskip("yaml")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
SHIPPED = ROOT / "artifacts" / "oracle" / "L1_36_RMSNorm.py"


def command(folder: Path, name: str, text: str):
    """An executable of this name, which the steps find first."""
    (folder / "bin").mkdir(exist_ok=True)
    file = folder / "bin" / name
    file.write_text(f"#!/usr/bin/env bash\n{text}\n")
    file.chmod(0o755)


def repository(folder: Path, *, has_old: bool = True) -> Path:
    """A repository whose last commit changes kernels/k.py, or adds it."""
    made = folder / "repository"
    (made / "kernels").mkdir(parents=True)
    kernel = made / "kernels" / "k.py"
    for number, text in enumerate([SHIPPED.read_text() if has_old else "", SHIPPED.read_text() + "\n# new\n"]):
        kernel.write_text(text) if text else None
        for words in (("init", "-q"), ("add", "."), ("commit", "-q", "--allow-empty", "-m", str(number))):
            subprocess.run([*GIT, *words], cwd=made, check=True)
    return made


def ran(folder: Path, **given: str) -> tuple[int, str]:
    """Run every step that has a command; return the last exit code and the comment."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | given
    known = {"github.action_path": str(ROOT), "steps.gate.outputs.code": ""}
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    env = CLEAN_ENV | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RUNNER_TEMP": str(folder / "temp")}
    (folder / "temp").mkdir(exist_ok=True)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_PATH"):
        env[name] = str(folder / name)
    code = 0
    for step in action["runs"]["steps"]:
        told = step["env"]
        values = {name: re.sub(r"\$\{\{ (\S+) \}\}", lambda m: known.get(m[1], ""), v) for name, v in told.items()}
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=folder / "repository",
                              env=env | values, check=False)  # fmt: skip
        code = done.returncode
        if (output := folder / "GITHUB_OUTPUT").exists():
            known["steps.gate.outputs.code"] = output.read_text().strip().partition("=")[2]
        assert code == 0 or step is action["runs"]["steps"][-1], step["name"]
    return code, (folder / "comment.md").read_text()


INPUTS = {"kernel": "kernels/k.py", "problem": "L1_36", "base": "HEAD~1", "options": "--dtype bfloat16"}


@pytest.mark.parametrize(("has_old", "code"), [(True, 3), (True, 0), (False, 0), (True, 2)])
def test_the_steps_ask_for_a_comparison_and_end_with_its_exit_code(has_old, code, tmp_path):
    table = "" if code == 2 else "echo '| problem |'"
    command(tmp_path, "repro", f'echo "$@" > "{tmp_path}/words"; {table}\nexit {code}')
    command(tmp_path, "gh", f'cp "${{@: -1}}" "{tmp_path}/comment.md"')
    repository(tmp_path, has_old=has_old)
    ended, comment = ran(tmp_path, **INPUTS)
    words = (tmp_path / "words").read_text()
    assert ended == code and ("exit code 2" if code == 2 else "| problem |") in comment
    assert words.startswith("evaluate kernels/k.py --problem L1_36 ") and "--dtype bfloat16" in words
    assert ("--against" in words) == has_old
    assert (tmp_path / "temp" / "base" / "k.py").read_text() == (SHIPPED.read_text() if has_old else "")


@pytest.mark.slow
def test_the_steps_judge_two_kernels(tmp_path, smoke_results):
    command(tmp_path, "repro", f'exec "{sys.executable}" "{ROOT}/entrypoint.py" "$@"')
    command(tmp_path, "gh", f'cp "${{@: -1}}" "{tmp_path}/comment.md"')
    repository(tmp_path)
    shutil.copytree(smoke_results / "fixtures", tmp_path / "temp" / "results" / "fixtures")
    code, comment = ran(tmp_path, **INPUTS | {"options": " ".join(CPU)})
    assert code == 0 and comment.count("✓ correct") == 2 and "times need a GPU" in comment
