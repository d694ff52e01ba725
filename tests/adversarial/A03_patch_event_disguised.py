#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "rejected"]
#: expect.reasons = ["banned", "clocks_disagree", "impossible_time", "below_floor"]
#: max_speedup = 1.3
"""Patches event, record and synchronisation with no name of torch in the file that a parser could connect.

Buys: as A03_patch_event_setattr where only the source is checked.
"""

import importlib

from frames.L1_82 import Frame
from frames.plain import plain

library = importlib.import_module(plain("gbepu"))
cuda = getattr(library, plain("phqn"))
for name, fake in ((plain("ryncfrq_gvzr"), lambda start, end: 1e-3), (plain("erpbeq"), lambda *ignored: None)):
    type.__setattr__(getattr(cuda, plain("Rirag")), name, fake)
vars(cuda)[plain("flapuebavmr")] = lambda *ignored: None


class ModelNew(Frame):
    pass
