"""The judge: makes inputs, computes the fp64 reference, compares, times, decides. It never imports a solution."""
