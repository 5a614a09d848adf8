"""The NERSC tutorial's vision transformer in PyTorch, written from its published description: the oracle of
tools/make_golden.py and the opponent in bench/cpu_step.py. Parameter names and layouts are those of its state_dict.
Drop rates are left out: they are 0 in every configuration that the tutorial ships.
"""
import torch
import torch.nn.functional as F
from torch import nn

LAYERNORM_EPS = 1e-6


class PatchEmbed(nn.Module):
    """[B, C, H, W] -> [B, N, E], patches in row-major order."""

    def __init__(self, channels, embed_dim, patch_size):
        super().__init__()
        self.proj = nn.Conv2d(channels, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, image):
        return self.proj(image).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x):
        def heads(t):  # [B, N, E] -> [B, heads, N, E / heads]
            return t.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

        y = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
        return self.proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))  # the exact GELU, by erf


class Block(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=LAYERNORM_EPS)
        self.attn = Attention(embed_dim, num_heads)
        self.norm2 = nn.LayerNorm(embed_dim, eps=LAYERNORM_EPS)
        self.mlp = Mlp(embed_dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Fields [B, C, H, W] to the next fields [B, out_channels, H, W].

    predict_change adds the first out_channels planes of the input to the output (isobar's option, not the tutorial's).
    """

    def __init__(self, img_size=(360, 720), patch_size=8, in_channels=20, out_channels=20, embed_dim=384, depth=12,
                 num_heads=8, predict_change=False):
        super().__init__()
        self.grid = [side // patch_size for side in img_size]
        self.patch_size, self.out_channels, self.predict_change = patch_size, out_channels, predict_change
        self.patch_embed = PatchEmbed(in_channels, embed_dim, patch_size)
        self.pos_embed = nn.Parameter(torch.zeros(1, self.grid[0] * self.grid[1], embed_dim))
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(embed_dim, eps=LAYERNORM_EPS)
        self.head = nn.Linear(embed_dim, out_channels * patch_size**2, bias=False)
        nn.init.normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image):
        x = self.patch_embed(image) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        (h, w), p = self.grid, self.patch_size
        x = self.head(self.norm(x)).unflatten(2, (p, p, self.out_channels)).unflatten(1, (h, w))
        x = x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)  # [B, h, w, p, q, C] -> [B, C, h·p, w·q]
        return image[:, :self.out_channels] + x if self.predict_change else x


def relative_l2(pred, target, row_weights=None, channel_weights=None):
    """mean_b √(Σ w·a·(pred - target)²) / √(Σ w·a·target²); row_weights [H], channel_weights [C], both 1 if absent."""
    weight = _weight(target, row_weights, channel_weights)
    error = (weight * (pred.to(target.dtype) - target)**2).flatten(1).sum(1)
    return (error.sqrt() / (weight * target**2).flatten(1).sum(1).sqrt()).mean()


def weighted_mse(pred, target, row_weights=None, channel_weights=None):
    """mean over samples, channels and grid of w·a·(pred - target)²."""
    return (_weight(target, row_weights, channel_weights) * (pred.to(target.dtype) - target)**2).mean()


def latitude_weights(height, dtype=torch.float64):
    """[H], mean 1: the tutorial's cosine of evenly spaced latitudes from pole to pole, with its π of 3.1416."""
    latitude = 90 - 180 * torch.arange(height, dtype=dtype) / (height - 1)
    cosine = torch.cos(3.1416 / 180 * latitude)
    return height * cosine / cosine.sum()


def _weight(like, row_weights, channel_weights):
    weight = torch.ones((), dtype=like.dtype)
    if row_weights is not None:
        weight = weight * row_weights.to(like.dtype)[:, None]
    if channel_weights is not None:
        weight = weight * channel_weights.to(like.dtype)[:, None, None]
    return weight
