"""repro: re-run, judge and publish GPU-kernel results."""

__version__ = "0.1.0"
