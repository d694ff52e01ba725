"""The block of MobileNetV2."""

from torch import nn


def inverted_residual(channels_in: int, channels_out: int, stride: int, expansion: int) -> nn.Sequential:
    """Expand, depthwise, project; no skip connection."""
    hidden = channels_in * expansion
    layers: list[nn.Module] = []
    if expansion != 1:
        layers += [nn.Conv2d(channels_in, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
    layers += [
        nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
        nn.BatchNorm2d(hidden),
        nn.ReLU6(inplace=True),
        nn.Conv2d(hidden, channels_out, 1, bias=False),
        nn.BatchNorm2d(channels_out),
    ]
    return nn.Sequential(*layers)
