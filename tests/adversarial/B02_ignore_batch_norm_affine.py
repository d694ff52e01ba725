#: problem = "L3_20"
"""Takes weight one and bias zero for every batch norm of the net, as published.

Buys: two loads a channel in 52 layers, and with them the fusion of norm and convolution.
"""

from torch import nn
from torch.nn import functional

# expansion, channels out, blocks, stride of the first block
BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class PlainNorm(nn.BatchNorm2d):
    def forward(self, x):
        return functional.batch_norm(x, self.running_mean, self.running_var, None, None, False, 0.0, self.eps)


def block(channels_in, channels_out, stride, expansion):
    hidden = channels_in * expansion
    layers = []
    if expansion != 1:
        layers += [nn.Conv2d(channels_in, hidden, 1, bias=False), PlainNorm(hidden), nn.ReLU6()]
    layers += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), PlainNorm(hidden), nn.ReLU6()]
    return nn.Sequential(*layers, nn.Conv2d(hidden, channels_out, 1, bias=False), PlainNorm(channels_out))


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        channels, layers = 32, [nn.Conv2d(3, 32, 3, 2, 1, bias=False), PlainNorm(32), nn.ReLU6()]
        for expansion, channels_out, blocks, stride in BLOCKS:
            for number in range(blocks):
                layers.append(block(channels, channels_out, 1 if number else stride, expansion))
                channels = channels_out
        layers += [nn.Conv2d(channels, 1280, 1, bias=False), PlainNorm(1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(1280, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))
