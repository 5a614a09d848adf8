"""GPT-2 written from its published description: an oracle of tools/make_golden.py. Parameter names are isobar's;
matrices are [out, in].
"""
import torch
import torch.nn.functional as F
from torch import nn

IGNORED = -100


class Attention(nn.Module):
    def __init__(self, width, heads, head_size, bias):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, heads * head_size, bias) for _ in range(3))
        self.proj = nn.Linear(heads * head_size, width, bias)

    def forward(self, x, seen):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, NH, T, HS]
        how = {"is_causal": True} if seen is None else {"attn_mask": seen}
        o = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)), **how)
        return self.proj(o.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, hidden, gelu, bias):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden, bias), nn.Linear(hidden, width, bias)
        self.form = "tanh" if gelu == "tanh" else "none"

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate=self.form))


class Block(nn.Module):
    def __init__(self, width, heads, head_size, hidden, gelu, bias):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, head_size, bias)
        self.norm2 = nn.LayerNorm(width, bias=bias)
        self.mlp = Mlp(width, hidden, gelu, bias)

    def forward(self, x, seen):
        x = x + self.attn(self.norm1(x), seen)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Ids [B, T] to logits [B·T, columns], of which the first `vocabulary` have tokens; live: the others count too."""

    def __init__(self, vocabulary, columns, positions, width, depth, heads, head_size, hidden, gelu, bias, tied, live):
        super().__init__()
        self.counted = columns if live else vocabulary
        self.wte, self.wpe = nn.Embedding(columns, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList([Block(width, heads, head_size, hidden, gelu, bias) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, bias=bias)
        self.head = None if tied else nn.Linear(width, columns, bias=False)
        self.begins = None  # [B, T]: where the document of a token begins, of packed samples

    def forward(self, ids):
        place, seen = torch.arange(ids.shape[1]), None
        if self.begins is None:
            x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        else:
            x = self.wte(ids) + self.wpe(place - self.begins)
            seen = ((place <= place[:, None]) & (place >= self.begins[:, :, None]))[:, None]  # [B, 1, T, T]
        for block in self.blocks:
            x = block(x, seen)
        x = self.norm(x).flatten(0, 1)
        return F.linear(x, self.wte.weight) if self.head is None else self.head(x)

    def loss(self, logits, target):
        logits = logits[:, :self.counted]
        return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), target.flatten(),
                               ignore_index=IGNORED)
