"""A transformer's attention: the width is divisible by the heads, the sequence no longer than the mask."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        assert width % heads == 0, "the width must be divisible by the heads"
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.project(x).chunk(3, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, t, c)


batch_size = 64
longest = 1024
length = 512
width = 768
heads = 8


def get_inputs():
    return [torch.randn(batch_size, length, width)]


def get_init_inputs():
    return [width, heads, longest]
