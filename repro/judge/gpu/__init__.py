"""The GPU: the CUDA driver, memory shared between processes, commitment to an output, kernels in PTX."""
