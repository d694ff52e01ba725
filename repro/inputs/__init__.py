"""Inputs: recipes of random draws, and the generator that makes them with the same bits on CPU and GPU."""
