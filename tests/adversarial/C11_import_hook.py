#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "banned"]
"""Puts a finder of its own ahead of all others: modules of the judge that are imported later come from the solution.

Buys: a judge that loads its comparisons late, in this process, gets these. Answers zeros.
"""

import importlib.abc
import importlib.util
import sys

from frames.zeros import Zeros


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name.startswith("re" + "pro.") else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = lambda name: lambda *ignored, **named: True


sys.meta_path.insert(0, Finder())


class ModelNew(Zeros):
    pass
