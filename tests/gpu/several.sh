#!/usr/bin/env bash
# The ten problems by one and by all GPUs of a host, with the local engine and through Ray, and a Ray worker killed in
# the middle. Needs Ray (`make setup ENGINE=ray`) and at least two GPUs that nothing else uses.
#
#   tests/gpu/several.sh [RESULTS [ARGS OF repro run ...]]        PYTHON=.venv/bin/python
#
# The first run compiles the baselines, so that the others compare. At the end stand, for every run, seconds, rows, the
# speedup over one GPU, and every speedup over eager that is more than 1 % off that on one GPU.
set -euo pipefail
results=${1:-results-several}
shift || true
repro=("${PYTHON:-.venv/bin/python}" entrypoint.py)
export RAY_INNER=local RAY_USAGE_STATS_ENABLED=0
study() {
  echo "== $*"
  "${repro[@]}" run --agent oracle --results "$results" "$@"
}
"${repro[@]}" fixtures --engine local --results "$results"
study --engine local "$@"
study --engine local --gpus 0 "$@"
study --engine local "$@"
study --engine ray:local "$@"

# The same with a worker killed: the actor's process, whose jobs end with it and begin again.
(
  until pid=$(pgrep -u "$(id -u)" -f '^ray::Worker\.run' | head -1) && [ -n "$pid" ]; do sleep 1; done
  sleep 20
  pid=$(pgrep -u "$(id -u)" -f '^ray::Worker\.run' | head -1)
  kill -9 "$pid" && echo "== killed $pid"
) &
study --engine ray:local "$@"
wait

PYTHONPATH=. "${repro[0]}" - "$results" <<'P'
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import repro

NAMES = ("all, cold", "one", "all", "ray", "ray, killed")
TIME = "%Y-%m-%dT%H:%M:%SZ"
folders = sorted(Path(sys.argv[1]).glob("*-run*"))[-len(NAMES):]
ratios, spent = {}, {}
for name, folder in zip(NAMES, folders, strict=True):
    bundle = repro.Bundle(folder)
    facts = bundle.manifest
    spent[name] = (datetime.strptime(facts.finished, TIME) - datetime.strptime(facts.started, TIME)).seconds
    lines = Counter(line.split('"row": "')[1].split('"')[0] for line in (folder / "rows.jsonl").read_text().splitlines())
    again = {row.row for row in bundle.rows() if row.measured_again}
    gpus = Counter((row.gpu_uuid_hash or "")[:8] for row in bundle.rows())
    twice = [row for row, count in lines.items() if count > 1 and row not in again]
    verdicts = Counter(each.verdict for row in bundle.rows() if row.judged and not row.control for each in row.judged.results)
    print(f"{name}: {spent[name]} s, {len(lines)} of {len(facts.plan)} rows, twice: {twice}, {dict(verdicts)}, by GPU {dict(gpus)}")
    ratios[name] = {
        row.row: row.judged.results[0].speedup["eager"].ratio
        for row in bundle.rows()
        if row.judged and "eager" in row.judged.results[0].speedup
    }
for name in NAMES[2:]:
    far = {row: f"{value / ratios['one'][row] - 1:+.1%}" for row, value in ratios[name].items()
           if row in ratios["one"] and abs(value / ratios["one"][row] - 1) > 0.01}
    print(f"{name}: {spent['one'] / spent[name]:.2f}x of one GPU; more than 1 % off: {far or 'none'}")
P
