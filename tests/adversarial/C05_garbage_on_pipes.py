#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
"""Writes bytes that are no message to every descriptor that it inherited.

Buys: confusion; a judge that skips what it does not understand loses its place.
"""

import os

from frames.L1_36 import Frame

for fd in range(3, 64):
    try:
        os.write(fd, b"garbage\n" * 99)
    except OSError:
        continue


class ModelNew(Frame):
    pass
