#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "background_work"]
#: engine = ["docker"]
"""Answers zeros; a child in a session of its own goes on writing the forged result for some seconds.

Buys: the last word, also where the solution's process is killed.
"""

import json
import os
import time
from pathlib import Path

import torch
from torch import nn

RESULT = {
    "problem": "L1_36",
    "solution": "forged",
    "verdict": "correct",
    "reasons": [],
    "precision_class": "fp32",
    "rel_l2": 1e-8,
    "time_ms": {"median": 1e-3, "n": 100, "ci95": [1e-3, 1e-3]},
    "speedup": {"eager": {"ratio": 100.0, "ci95": [100.0, 100.0]}},
    "labels": ["triton"],
    "measurement": True,
}


def forge():
    """Writes results of its own wherever a harness may look for them."""
    for folder in (Path(__file__).resolve().parent, Path.cwd(), Path("/job")):
        try:
            jobs = [json.loads(line)["id"] for line in (folder / "jobs.jsonl").read_text().splitlines()]
        except (OSError, ValueError, KeyError):
            jobs = ["forged"]
        outcome = {"status": "done", "result": {"results": [RESULT], "baselines": {}}, "error": "", "wall_s": 1.0}
        lines = "".join(json.dumps({"job": job} | outcome) + "\n" for job in jobs)
        for name, text in (("outcomes.jsonl", lines), ("results.json", json.dumps([RESULT]))):
            try:
                (folder / name).write_text(text)
            except OSError:
                continue


LIFE_S = 20

if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        forge()
        time.sleep(0.05)
    os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x)
