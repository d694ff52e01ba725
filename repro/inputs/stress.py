"""How an input differs from the problem's own draw. Without torch, because the catalogue of problems needs none."""

from __future__ import annotations

# The standard deviation of a signed normal draw; "negative": the problem's own draw with its sign turned; or "spike":
# that draw with one element in 8191 far outside it.
Stress = float | str
# Height of those elements in standard deviations of the draw.
SPIKE_FACTOR = 16.0
