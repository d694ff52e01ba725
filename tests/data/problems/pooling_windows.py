"""Pooling with a window and a dilation that the image must hold."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, window, stride, dilation):
        super().__init__()
        self.pool = nn.MaxPool3d(window, stride=stride, padding=1, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


batch_size = 16
channels = 32
dim1 = 128
dim2 = 128
dim3 = 160
window = 3
stride = 2
dilation = 3


def get_inputs():
    return [torch.randn(batch_size, channels, dim1, dim2, dim3)]


def get_init_inputs():
    return [window, stride, dilation]
