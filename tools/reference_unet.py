"""The 3-D U-Net of NERSC's tutorials from N-body to hydrodynamic simulations in PyTorch, written from its published
description: an oracle of tools/make_golden.py. Parameter names and layouts are those of its state_dict.
"""
import math

import torch
from torch import nn


def down(inputs, outputs):
    return nn.Sequential(nn.Conv3d(inputs, outputs, 4, stride=2, padding=1), nn.LeakyReLU())


def up(inputs, outputs):
    return nn.Sequential(nn.ConvTranspose3d(inputs, outputs, 4, stride=2, padding=1), nn.ReLU())


class UNet(nn.Module):
    """Six levels (full_scale) or five; `width` channels in the first one, 64 in the tutorials."""

    def __init__(self, in_channels, out_channels, width=64, full_scale=True, lambda_rho=0.0):
        super().__init__()
        self.levels, self.lambda_rho = 6 if full_scale else 5, lambda_rho
        channels = [in_channels] + [width * min(2**i, 8) for i in range(self.levels)]
        for level in range(1, self.levels + 1):
            setattr(self, f"conv_down{level}", down(channels[level - 1], channels[level]))
        for level in range(self.levels, 1, -1):
            joined = 1 if level == self.levels else 2
            setattr(self, f"conv_up{level}", up(joined * channels[level], channels[level - 1]))
        self.conv_last = nn.ConvTranspose3d(2 * channels[1], out_channels, 4, stride=2, padding=1)

    def forward(self, x):
        outputs = []
        for level in range(1, self.levels + 1):
            x = getattr(self, f"conv_down{level}")(x)
            outputs.append(x)
        outputs.pop()
        for level in range(self.levels, 1, -1):
            x = torch.cat([getattr(self, f"conv_up{level}")(x), outputs.pop()], dim=1)
        return torch.tanh(self.conv_last(x))

    def loss(self, output, target):
        output = output.to(target.dtype)
        loss = (output - target).abs().mean()
        if self.lambda_rho:
            loss = loss + self.lambda_rho * ((14 * output[:, 0]).exp() - (14 * target[:, 0]).exp()).abs().mean()
        return loss


def rate(iteration, start, end, batch, base_batch, scaling, warmup, total):
    """The learning rate of an iteration, which counts from 1."""
    factor = {"none": 1.0, "linear": batch / base_batch, "sqrt": math.sqrt(batch / base_batch)}[scaling]
    first = start * factor
    if batch <= base_batch or scaling == "none":
        warmup = 0
    if iteration < warmup:
        return first * iteration / warmup
    return end + 0.5 * (first - end) * (1 + math.cos(math.pi * (iteration - warmup) / total))
