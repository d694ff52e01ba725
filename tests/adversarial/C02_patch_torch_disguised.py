#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
"""As C02_patch_allclose and C02_patch_random, through the dictionary of a module that is named at run time.

Buys: the same, unseen by a check of the source.
"""

import importlib

import torch
from frames.plain import plain
from frames.zeros import Zeros

library = importlib.import_module(plain("gbepu"))
agree = dict.fromkeys(("allclose", "equal", "is_nonzero"), lambda *ignored, **named: True)
vars(library).update(agree | dict.fromkeys(("rand", "randn", "rand_like"), torch.zeros_like))
vars(library)["isfinite"] = torch.ones_like


class ModelNew(Zeros):
    pass
