"""Correctness: input cases, the fp64 reference, distances from it, tolerances of each precision class."""
