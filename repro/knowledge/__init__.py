"""A knowledge base for authors of GPU kernels: pages in files, a search over them and eight tools.

It needs no model, no network and no torch.
"""
