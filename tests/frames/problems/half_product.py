"""A product that is returned in float16."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return (a @ b).half()


size = 128


def get_inputs():
    return [torch.randn(size, size), torch.randn(size, size)]


def get_init_inputs():
    return []
