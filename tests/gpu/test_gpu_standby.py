"""The standby of a sitting on a GPU: `python -m pytest tests/gpu/test_gpu_standby.py -m gpu -s -p no:cacheprovider`.

A process that has called the CUDA driver cannot use it in its forks, so the imports of the standby must not call it.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from repro import config
from repro.agents.standby import Standby

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DEVICE, PROBLEM = "cuda", "L1_36"


def test_forks_of_a_standby_judge_on_the_gpu() -> None:
    """Prints the seconds of a new process, of the first fork and of later ones."""
    (oracle,) = config.ORACLE_DIR.glob(f"{PROBLEM}_*.py")
    words = ["evaluate", str(oracle), "--problem", PROBLEM, "--trust", "dev", "--engine", "local", "--device", DEVICE]
    with tempfile.TemporaryDirectory(prefix="repro-test-") as name:  # the path of a socket must be short
        folder = Path(name)
        standby = Standby(folder)
        env = config.worker_env(folder / "scratch", interpret=DEVICE == "cpu")
        env |= {"REPRO_RESULTS": str(folder / "results"), "REPRO_STATE": str(folder / "state")}
        env["REPRO_STANDBY"] = str(standby.path)
        standby.open(env)
        try:
            seconds = []
            for start in (config.COMMAND, config.COMMAND, *[config.STANDBY_COMMAND] * 3):  # the first makes the fixture
                begin = time.monotonic()
                command = [*start, *words, "--size", "smoke", "--json", str(folder / "found.json"), "-v"]
                cold = env | ({"REPRO_STANDBY": ""} if start == config.COMMAND else {})
                with subprocess.Popen(command, env=cold, stderr=subprocess.PIPE, text=True) as running:
                    while running.poll() is None:
                        standby.tend()
                        time.sleep(0.02)
                    assert running.stderr is not None
                    said = running.stderr.read()
                seconds.append(round(time.monotonic() - begin, 2))
                assert running.returncode == 0 and "new process" not in said, said
                (entry,) = json.loads((folder / "found.json").read_text())["results"]
                assert entry["verdict"] == "correct", entry
            assert standby._starts == 1
        finally:
            standby.close()
    print(json.dumps({"new": seconds[1], "first": seconds[2], "later": seconds[3:]}))
