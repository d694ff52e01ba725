"""The untrusted side: a worker imports one solution and runs it. It imports nothing of correctness."""
