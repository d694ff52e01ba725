"""The optimisation loop: profile, analyse, rewrite, judge, keep what is faster.

A run is a function of its options and of its journal, which records everything that came from outside: verdicts, times,
candidates, model replies and elapsed time. So a journal can be replayed without a GPU, and a killed run goes on.
"""
