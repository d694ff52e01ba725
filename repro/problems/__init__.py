"""Problems: the catalogue of files and suites, their inputs and weights, and what is derived from them: sizes,
arithmetic, traffic.
"""
