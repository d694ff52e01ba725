#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
"""Writes well-formed answers of its own to every descriptor, ahead of the worker's.

Buys: the judge reads the solution's word for the description of an output and for its times.
"""

import json
import os

from frames.zeros import Zeros

OUTPUT = {
    "kind": "tensor",
    "type": "Tensor",
    "plain": True,
    "layout": "torch.strided",
    "dtype": "float32",
    "shape": [4, 64, 12, 20],
    "dense": True,
    "order": [0, 1, 2, 3],
    "device": "cpu",
    "storage_bytes": 1 << 30,
    "aliases_input": False,
}
ANSWER = {"output": OUTPUT, "device_ms": [1e-3], "host_ms": [1e-3], "digest": 0, "ok": True}
for fd in range(3, 64):
    try:
        os.write(fd, (json.dumps(ANSWER) + "\n").encode() * 50)
    except OSError:
        continue


class ModelNew(Zeros):
    pass
