#: problem = "smoothing.py"
#: expect = { verdict = ["unjudgeable"], reasons = ["class_refused"] }
"""Smooths over all labels but the right one, with the share of all.

Buys: nothing; a mistake in the formula, of which tf32 shows nothing in any single element.
"""

from torch import nn
from torch.nn.functional import cross_entropy


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        return cross_entropy(logits, labels, label_smoothing=0.1) - 0.1 / 1000 * cross_entropy(logits, labels)
