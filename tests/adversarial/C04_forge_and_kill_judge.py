#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "error", "rejected", "inconclusive"], reasons = [] }
#: engine = ["docker"]
"""Writes a forged result, then kills the judge before it can write its own.

Buys: everything, where judge and solution share a user and a folder. No judge that does so can stop it.
"""

import json
import os
import signal
from pathlib import Path

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


def judges():
    """The parent of this process and its other children: the launcher and the judge."""
    parent = os.getppid()
    found = [parent] if parent > 1 else []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) == parent and parent > 1:
                        found.append(int(entry))
            except OSError:
                continue
    return found


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        forge()
        for pid in judges():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        return x.new_zeros(x.shape)
