#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["incorrect", "correct", "rejected"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance", "banned"]
#: max_speedup = 1.3
"""As A07_stack_inspect, reading the callers' names from the traceback of an exception of its own.

Buys: the same with no name that a ban knows. Returns the last output where it thinks that it is timed.
"""

from frames.L1_82 import Frame
from frames.plain import plain


def callers():
    try:
        raise LookupError
    except LookupError as error:
        frame = getattr(error.__traceback__, plain("go_senzr"))
    while frame is not None:
        yield frame.f_code.co_name
        frame = getattr(frame, plain("s_onpx"))


class ModelNew(Frame):
    last = None

    def forward(self, x):
        if self.last is not None and any("time" in name or "bench" in name for name in callers()):
            return self.last.clone()
        self.last = self.conv2d(x)
        return self.last.clone()
