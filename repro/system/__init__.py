"""What any room may use: /proc, prctl, a stopwatch, safe removal of folders, delayed signals, strict JSON."""
