#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "error"], reasons = [] }
#: labels = ["no_custom_kernel"]
#: max_speedup = 1.3
"""Finds the problem's own module among the loaded ones, or its file on disk, and calls its model.

Buys: a right answer without a kernel. Legal where the file is readable; never faster than the baseline, and labelled.
"""

import importlib.util
import sys
from pathlib import Path

from torch import nn


def reference():
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if "get_inputs" in names and "Model" in names:
            return names["Model"]
    folders = [Path(entry) for entry in sys.path] + [Path(__file__).resolve().parent]
    path = next(p for folder in folders for p in (folder / "problems").glob("L1_82_*.py"))
    spec = importlib.util.spec_from_file_location("found", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.model = reference()(*arguments)

    def forward(self, x):
        return self.model(x)
