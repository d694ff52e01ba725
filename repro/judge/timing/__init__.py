"""Timing: the paired experiment, one timed call, an idle GPU, intervals, speedups, the roofline, the published
protocol.
"""
