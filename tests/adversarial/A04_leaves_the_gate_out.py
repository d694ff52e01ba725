#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["timed_output_wrong", "not_finite"]
"""Does not wait at the gate: it computes while the judge's clock does not run yet.

Buys: all of the time, where the inputs of a call are there when it is launched.
"""

from frames.L1_82 import Frame
from frames.worker import Worker

driver = Worker.launch.__globals__["driver"]
type(driver).__setattr__(driver, "wait_for", lambda flag, number, stream: None)


class ModelNew(Frame):
    pass
