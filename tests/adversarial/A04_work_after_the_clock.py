#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["rejected", "incorrect"]
#: expect.reasons = ["deferred_write", "not_finite", "timed_output_wrong", "clocks_disagree", "banned"]
"""Replaces what answers a timed call: the answer goes out at once, with made-up states, and the rows that the judge
then asks for are computed when it asks for them.

Buys: all of the time, by every clock, for a judge that looks at outputs only after the clock has stopped.
"""

import base64
import codecs

import torch
from frames.L1_36 import Frame
from frames.worker import Worker


def norm(x, eps=1e-5):
    return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + eps)


fetch, tools = Worker.fetch, Worker.seal.__globals__["commitment"]


def go(self, **rest):
    self.late = True
    self.output = torch.empty_like(self.armed[0][0])
    modes = self.modes() | {"grad": False}
    return {"device_ms": 0.01, "host_ms": 0.012, "modes": [modes, modes]}


def seal(self, key, **rest):
    nbytes = self.output.numel() * 4
    self.made_up = bytes(tools.STATE_BYTES * -(-nbytes // tools.segment_bytes(nbytes)))
    return {"roots": [tools.root(self.made_up, nbytes, bytes.fromhex(key))]}


def look(self, **rest):
    described = {
        "kind": "tensor", "type": "Tensor", "plain": True, "layout": "torch.strided", "dtype": "float32",
        "shape": list(self.output.shape), "dense": True, "order": [0, 1, 2, 3], "device": self.output.device.type,
        "storage_bytes": self.output.numel() * 4, "aliases_input": False,
    }  # fmt: skip
    return {"output": described, "states": [base64.b64encode(self.made_up).decode()]}


def late_fetch(self, path, start, count, order=None):
    if getattr(self, "late", False):
        x = self.armed[0][0]
        row = x[0].numel()
        first, last = start // row, -(-(start + count) // row)
        self.output[first:last] = norm(x[first:last])
    return fetch(self, path, start, count)


for name, method in (("tb", go), ("frny", seal), ("ybbx", look), ("srgpu", late_fetch)):
    type.__setattr__(Worker, codecs.decode(name, "rot13"), method)


class ModelNew(Frame):
    def forward(self, x):
        return norm(x, self.eps)
