"""The source of a solution: resolved names, labels, bans, and where its kernels come from."""
