"""L3_20, MobileNetV2: its block and its constructor."""

from torch import nn

# expansion, channels out, blocks, stride of the first block
INVERTED_RESIDUALS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def inverted_residual(channels_in, channels_out, stride, expansion):
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


class Frame(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        channels = 32
        features: list[nn.Module] = [
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU6(inplace=True),
        ]
        for expansion, channels_out, blocks, first_stride in INVERTED_RESIDUALS:
            for block in range(blocks):
                features.append(inverted_residual(channels, channels_out, first_stride if block == 0 else 1, expansion))
                channels = channels_out
        features += [
            nn.Conv2d(channels, 1280, 1, bias=False),
            nn.BatchNorm2d(1280),
            nn.ReLU6(inplace=True),
            nn.AdaptiveAvgPool2d((1, 1)),
        ]
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(1280, num_classes))
