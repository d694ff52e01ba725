"""Tests of `import repro`: its names, the examples of docs/api.md, and a notebook-like script, from another folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLEAN_ENV, ROOT

import repro
from repro import face

ORACLE = ROOT / "artifacts" / "oracle" / "L1_36_RMSNorm.py"
EXAMPLES = """
import doctest, sys
import repro
from repro import face

finder = doctest.DocTestFinder(exclude_empty=True)
runner = doctest.DocTestRunner()
found = [test for test in finder.find(face, "face", globs={"repro": repro}) if test.examples]
wanted = sys.argv[1:]
for test in sorted(found, key=lambda test: test.lineno):
    if not wanted or test.name in wanted:
        test.globs = {"repro": repro}
        runner.run(test)
print(runner.tries, "examples")
sys.exit(runner.failures > 0)
"""
NOTEBOOK = """
import repro

problem = repro.problem("L1_36", size="smoke")
x = problem.inputs(seed=3)
y = problem.reference(*x)

KERNEL = '''
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + self.eps)
'''
rewards = []
with repro.Session("L1_36", size="smoke", device="cpu", engine="local") as session:
    for source in (KERNEL, KERNEL.replace("mean", "sum"), "class ModelNew: broken"):
        rewards.append(session.check(source).verdict)
    timed = session.time(KERNEL)
print(tuple(y.shape), rewards, timed.verdict, timed.time_ms is not None)
"""


def run(code: str, folder: Path, *args: str) -> str:
    """What a script prints in a folder that is not the checkout."""
    environment = CLEAN_ENV | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_import_is_quick_and_every_name_is_there(tmp_path):
    code = "import sys, repro; assert not {'torch', 'pydantic'} & set(sys.modules); print(sorted(repro.__all__))"
    assert run(code, tmp_path).strip() == str(sorted(repro.__all__))
    assert [name for name in repro.__all__ if not getattr(repro, name)] == []
    assert "Session" in dir(repro)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = repro.nothing


def test_the_face_alone_imports_no_torch(tmp_path):
    assert run("import sys, repro; repro.Session; print('torch' in sys.modules)", tmp_path).strip() == "False"


def test_a_bundle_that_ships_is_read_verified_and_compared():
    path = next((ROOT / "artifacts" / "results" / "h200-pinned").glob("*-run"))
    bundle = repro.Bundle(path)
    rows, verdicts = bundle.rows(), bundle.verdicts()
    assert bundle.verify().passed and bundle.manifest.status == "complete"
    assert len(rows) == len(bundle.manifest.plan) and {verdict.verdict for verdict in verdicts} >= {"correct"}
    assert repro.compare(bundle, path).verdict_changes == []


def test_every_public_name_of_the_face_has_a_docstring():
    for name in repro.__all__:
        if name != "__version__":
            assert getattr(repro, name).__doc__, name
    assert face.__doc__ and "repro.evaluate" in face.__doc__


@pytest.mark.slow
def test_a_notebook_uses_the_face_from_another_folder(tmp_path):
    words = run(NOTEBOOK, tmp_path).splitlines()[-1]
    assert words == "(4, 64, 12, 20) ['correct', 'incorrect', 'error'] correct True"


@pytest.mark.slow
def test_the_examples_of_the_docstrings_do_what_they_say(tmp_path, smoke_results):
    shutil.copy(ORACLE, tmp_path / "my_rmsnorm.py")
    shutil.copytree(smoke_results / "fixtures", tmp_path / "results" / "fixtures")
    assert "examples" in run(EXAMPLES, tmp_path)
