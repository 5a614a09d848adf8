"""The NERSC tutorial's vision transformer in PyTorch, written from its published description: the oracle of
tools/make_golden.py and the opponent in bench/cpu_step.py. Parameter names and layouts are those of its state_dict.
A forward pass that is given Drops draws isobar's masks: kernels/common/rng.h has the generator, kernels/dropout.h and
kernels/attention/attention.h say which number decides on which element, models/vit/vit.cc and models/layers/
number the places.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LAYERNORM_EPS = 1e-6


def philox(seed, stream, blocks):
    """Philox 4x32 with 10 rounds (Salmon et al. 2011): blocks [n] -> words [n, 4], as uint64 below 2^32."""
    low, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    blocks = np.asarray(blocks, np.uint64)
    c = [blocks & low, blocks >> word, np.full_like(blocks, stream & 0xFFFFFFFF), np.full_like(blocks, stream >> 32)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, third = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)  # 32 x 32 bits: no overflow
        c = [(third >> word) ^ c[1] ^ np.uint64(keys[0]), third & low,
             (first >> word) ^ c[3] ^ np.uint64(keys[1]), first & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1)


class Drops:
    """The masks of one forward pass: dropout, attention dropout and drop path, which rises from 0 to `rate`."""

    EMBEDDING, ATTENTION, PROJECTION, ATTENTION_PATH, HIDDEN, OUTPUT, MLP_PATH = 0, 8, 9, 10, 11, 12, 13

    def __init__(self, rate, depth, seed, stream):
        self.rate, self.depth, self.seed, self.stream = rate, depth, seed, stream

    def __call__(self, x, site, block=0):
        return x * self._factors(x.shape, self.rate, site + 8 * block).to(x.dtype)

    def path(self, x, site, block):
        factors = self._factors(x.shape[:1], self.rate * block / (self.depth - 1), site + 8 * block)
        return x * factors.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))

    def _factors(self, shape, rate, site):
        """0 or 1 / (1 - rate) for every element, row-major."""
        count, rate = int(np.prod(shape)), float(np.float32(rate))
        bits = philox(self.seed, self.stream + site, np.arange((count + 3) // 4)).reshape(-1)[:count]
        return torch.from_numpy((bits >= int(rate * 2**32)) / (1 - rate)).reshape(shape)


class NoDrops:
    """A forecast: nothing is dropped."""

    rate = 0

    def __call__(self, x, site, block=0):
        return x

    def path(self, x, site, block):
        return x


class PatchEmbed(nn.Module):
    """[B, V, LAT, LON] -> [B, T, C], patches in row-major order."""

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

    def forward(self, x, drops=NoDrops(), block=0):
        def heads(t):  # [B, T, C] -> [B, NH, T, HS]
            return t.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        if drops.rate:
            scores = q @ k.transpose(2, 3) / (q.shape[-1]**0.5)
            y = drops(scores.softmax(-1), Drops.ATTENTION, block) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return drops(self.proj(y.transpose(1, 2).flatten(2)), Drops.PROJECTION, block)


class Mlp(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)

    def forward(self, x, drops=NoDrops(), block=0):
        hidden = drops(F.gelu(self.fc1(x)), Drops.HIDDEN, block)  # the exact GELU, by erf
        return drops(self.fc2(hidden), Drops.OUTPUT, block)


class Block(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=LAYERNORM_EPS)
        self.attn = Attention(embed_dim, num_heads)
        self.norm2 = nn.LayerNorm(embed_dim, eps=LAYERNORM_EPS)
        self.mlp = Mlp(embed_dim)

    def forward(self, x, drops=NoDrops(), block=0):
        x = x + drops.path(self.attn(self.norm1(x), drops, block), Drops.ATTENTION_PATH, block)
        return x + drops.path(self.mlp(self.norm2(x), drops, block), Drops.MLP_PATH, block)


class ViT(nn.Module):
    """Fields [B, V, LAT, LON] to the next fields [B, out_channels, LAT, LON].

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

    def forward(self, image, drops=NoDrops()):
        x = drops(self.patch_embed(image) + self.pos_embed, Drops.EMBEDDING)
        for index, block in enumerate(self.blocks):
            x = block(x, drops, index)
        (h, w), p = self.grid, self.patch_size
        x = self.head(self.norm(x)).unflatten(2, (p, p, self.out_channels)).unflatten(1, (h, w))
        x = x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)  # [B, h, w, p, q, C] -> [B, C, h·p, w·q]
        return image[:, :self.out_channels] + x if self.predict_change else x


class Classifier(nn.Module):
    """Grey images [B, 1, H, W], pixels as they are stored, to logits [B, classes]: the same trunk, then one linear head
    that reads all tokens. mean, std: of the pixels of the training set.
    """

    def __init__(self, img_size, patch_size, classes, embed_dim, depth, num_heads, mean, std):
        super().__init__()
        tokens = (img_size[0] // patch_size) * (img_size[1] // patch_size)
        self.mean, self.std = mean, std
        self.patch_embed = PatchEmbed(1, embed_dim, patch_size)
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, embed_dim))
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(embed_dim, eps=LAYERNORM_EPS)
        self.head = nn.Linear(tokens * embed_dim, classes)

    def forward(self, pixels):
        x = self.patch_embed((pixels - self.mean) / self.std) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(1))


def relative_l2(pred, target, row_weights=None, channel_weights=None):
    """mean_b √(Σ w·a·(pred - target)²) / √(Σ w·a·target²); row_weights [LAT], channel_weights [V], both 1 if absent."""
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
