"""The folder that a run leaves: rows, fingerprints, solutions, manifest with hashes, report."""
