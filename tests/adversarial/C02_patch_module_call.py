#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "timed_output_wrong", "nondeterministic_wrong", "banned"]
"""Replaces what happens when any module is called: the second call and all later ones return the first output.

Buys: every later call, also those of a reference that runs in this process.
"""

import importlib

from frames.L1_36 import Frame
from frames.plain import plain

kept = {}
module = getattr(importlib.import_module(plain("gbepu.aa")), plain("Zbqhyr"))
call = vars(module)["_call_impl"]


def once(self, *inputs, **named):
    if id(self) not in kept:
        kept[id(self)] = call(self, *inputs, **named)
    return kept[id(self)].clone()


type.__setattr__(module, "__call__", once)


class ModelNew(Frame):
    pass
