"""Rows of bfloat16 as int8, with a scale for each: half of a row's largest element lies between two codes."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        wide = x.to(torch.float32)
        scale = wide.abs().amax(dim=-1, keepdim=True) / 127.0
        return torch.round(wide / scale).to(torch.int8), scale


rows, width = 4, 1024


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
