"""A knowledge base for those who write GPU kernels: pages in files, a search over them and eight tools. No model, no
network, no torch."""
