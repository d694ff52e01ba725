"""A recurrent network that is handed its state, whose first dimension is not the batch."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, input_size, hidden_size, layers):
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, layers, bidirectional=True)

    def forward(self, x, h, c):
        out, state = self.lstm(x, (h, c))
        return out, state[1]


sequence_length = 512
batch_size = 10
input_size = 128
hidden_size = 256
layers = 3


def get_inputs():
    state = (2 * layers, batch_size, hidden_size)
    return [torch.randn(sequence_length, batch_size, input_size), torch.randn(state), torch.randn(state)]


def get_init_inputs():
    return [input_size, hidden_size, layers]
