"""The convolutional network of NERSC's course on training with several GPUs in PyTorch, written from its published
description: an oracle of tools/make_golden.py. Parameter names and layouts are those of its state_dict.
"""
import torch.nn.functional as F
from torch import nn

KERNEL = 3


def layer(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, KERNEL, padding="same"), nn.LeakyReLU())


class CNN(nn.Module):
    """`depth` convolutions on one grid, each with its activation, the last one too."""

    def __init__(self, in_channels, out_channels, depth=5, width=64):
        super().__init__()
        self.conv_in = layer(in_channels, width)
        self.conv_hidden = nn.ModuleList([layer(width, width) for _ in range(depth - 2)])
        self.conv_out = layer(width, out_channels)

    def forward(self, x):
        for step in (self.conv_in, *self.conv_hidden, self.conv_out):
            x = step(x)
        return x

    @staticmethod
    def loss(output, target):
        return F.mse_loss(output.to(target.dtype), target)
