#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = [
#:     "input_modified", "background_work", "nondeterministic_wrong", "timed_output_wrong", "baseline_disturbed",
#:     "distance",
#: ]
#: labels = ["threads"]
"""Right; a thread damages the inputs a little later, when a check right after the call has passed.

Buys: as B05_corrupt_inputs_afterwards, behind the check's back.
"""

import threading
import time

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        def damage():
            time.sleep(0.01)
            for _ in range(2000):
                x.data[-1].zero_()
                time.sleep(0.001)

        threading.Thread(target=damage, daemon=True).start()
        return self.right(x)
