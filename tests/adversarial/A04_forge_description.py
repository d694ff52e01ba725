#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
"""Returns nothing at all, and every method around it answers that a fine tensor was returned.

Buys: gates that trust what the worker says of an output pass; the bytes are then whatever lies in the buffer.
"""

from frames.L1_36 import Frame
from frames.wrapped_methods import wrap_all

shape = []


def changed(value, key=""):
    if isinstance(value, dict):
        if "output" in value:
            value["output"] = {
                "kind": "tensor",
                "type": "Tensor",
                "plain": True,
                "layout": "torch.strided",
                "dtype": "float32",
                "shape": list(shape),
                "dense": True,
                "order": list(range(len(shape))),
                "device": device,
                "storage_bytes": 1 << 40,
                "aliases_input": False,
            }
    return value


device = "cpu"

wrap_all(changed)


class ModelNew(Frame):
    def forward(self, x):
        global device
        shape[:], device = x.shape, x.device.type
        return None
