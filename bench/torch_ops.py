#!/usr/bin/env python3
"""The ops of isobar-bench beside PyTorch's, on the CPU or an NVIDIA GPU: the same shapes and dtype, cold caches, and
turns that alternate, so that both meet the same machine. On a GPU, tf32 is fp32 whose products may round, and
ISOBAR_CONV=own times isobar's own kernels of a convolution, not cuDNN's.

    cmake --build --preset release --target isobar-bench
    pip install torch
    python3 bench/torch_ops.py [--op NAME ...] [--shape SHAPE ...] [--dtype fp32] [--threads N] [--rounds 3] [--json]
                               [--device cuda]

Prints both medians, their ratio (below 1: isobar is quicker), and how far the medians of the rounds lie apart.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LEAST_CALLS, MOST_CALLS = 3, 50  # as isobar-bench


def uniform(*shape, dtype=torch.float32, low=-1.0, high=1.0):
    return (torch.rand(*shape) * (high - low) + low).to(dtype)


# ---- the ops: each returns a function that computes what isobar's kernel of that name does ---------------------------


def cast(dtype, n):
    x, y = uniform(n), torch.empty(n, dtype=dtype)
    return lambda: y.copy_(x)


def fill(dtype, n):
    y = torch.empty(n, dtype=dtype)
    return lambda: y.fill_(1)


def add(dtype, n):
    a, b, y = uniform(n, dtype=dtype), uniform(n, dtype=dtype), torch.empty(n, dtype=dtype)
    return lambda: torch.add(a, b, out=y)


def add_row(dtype, groups, n):
    x, row, y = uniform(groups, n, dtype=dtype), uniform(n, dtype=dtype), torch.empty(groups, n, dtype=dtype)
    return lambda: torch.add(x, row, out=y)


def column_sum(dtype, rows, cols):
    x = uniform(rows, cols, dtype=dtype)
    return lambda: x.sum(0, dtype=torch.float32)


def gelu_fwd(dtype, n):
    x = uniform(n, dtype=dtype, low=-3, high=3)
    return lambda: F.gelu(x)


def gelu_bwd(dtype, n):
    dy, x = uniform(n, dtype=dtype), uniform(n, dtype=dtype, low=-3, high=3)
    return lambda: torch.ops.aten.gelu_backward(dy, x)


def dropout(dtype, n):
    x = uniform(n, dtype=dtype)
    return lambda: F.dropout(x, 0.1)


def layernorm_fwd(dtype, rows, cols):
    """With the residual add, as isobar's."""
    x, branch = uniform(rows, cols), uniform(rows, cols, dtype=dtype)
    weight, bias = uniform(cols), uniform(cols)
    return lambda: F.layer_norm(x + branch, (cols,), weight, bias).to(dtype)


def layernorm_bwd(dtype, rows, cols):
    dy, x, dsum = uniform(rows, cols, dtype=dtype), uniform(rows, cols), uniform(rows, cols)
    weight, bias = uniform(cols), uniform(cols)
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, [cols], weight, bias, 1e-5)

    def call():
        dx, _, _ = torch.ops.aten.native_layer_norm_backward(dy.float(), x, [cols], mean, rstd, weight, bias,
                                                             [True, True, True])
        return dx.add_(dsum).to(dtype)

    return call


def gemm(dtype, m, n, k):
    a, b, c = uniform(m, k, dtype=dtype), uniform(n, k, dtype=dtype), torch.empty(m, n, dtype=dtype)
    return lambda: torch.mm(a, b.t(), out=c)


def attention_fwd(dtype, batch, heads, q_tokens, kv_tokens, head_size):
    q, k, v = (uniform(batch, tokens, heads, head_size, dtype=dtype).transpose(1, 2)
               for tokens in (q_tokens, kv_tokens, kv_tokens))
    return lambda: F.scaled_dot_product_attention(q, k, v)


def attention_bwd(dtype, *shape):
    batch, heads, q_tokens, kv_tokens, head_size = shape
    q, k, v = (uniform(batch, tokens, heads, head_size, dtype=dtype).transpose(1, 2).requires_grad_()
               for tokens in (q_tokens, kv_tokens, kv_tokens))
    with torch.enable_grad():
        o = F.scaled_dot_product_attention(q, k, v)
    d_o = uniform(batch, q_tokens, heads, head_size, dtype=dtype).transpose(1, 2)
    return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)


def patchify(dtype, batch, channels, height, width, patch):
    x = uniform(batch, channels, height, width)
    cut = x.view(batch, channels, height // patch, patch, width // patch, patch).permute(0, 2, 4, 1, 3, 5)
    return lambda: cut.to(dtype).contiguous()


def adam(dtype, n):
    """PyTorch's fused optimizer keeps no 16-bit copy: one is made after it, as isobar's kernel does."""
    weight = uniform(n).requires_grad_()
    weight.grad = uniform(n)
    copy = torch.empty(n, dtype=dtype)
    optimizer = torch.optim.AdamW([weight], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.05, fused=True)

    def call():
        optimizer.step()
        if dtype != torch.float32:
            copy.copy_(weight)

    return call


def sum_of_squares(dtype, n):
    """PyTorch's norm takes the root too."""
    x = uniform(n, dtype=dtype)
    return lambda: torch.linalg.vector_norm(x)


class Convolution:
    """Channels last in 16 bits, as PyTorch's guides advise."""

    def __init__(self, dtype, batch, inputs, outputs, *geometry):
        (*extent, kernel, self.stride, self.pad) = geometry
        layout = torch.channels_last_3d if dtype.itemsize == 2 else torch.contiguous_format
        self.x, self.weight = (uniform(*shape, dtype=dtype).contiguous(memory_format=layout)
                               for shape in ((batch, inputs, *extent), (outputs, inputs, *[kernel] * 3)))
        self.bias = uniform(outputs, dtype=dtype)

    def forward(self):
        return F.conv3d(self.x, self.weight, self.bias, self.stride, self.pad)

    def backward(self, of_input):
        """A function: of the input's gradient or the weight's."""
        dy = torch.rand_like(self.forward())
        axes = [self.stride] * 3, [self.pad] * 3, [1] * 3, False, [0] * 3, 1
        return lambda: torch.ops.aten.convolution_backward(dy, self.x, self.weight, None, *axes,
                                                           [of_input, not of_input, False])


def conv_fwd(dtype, *shape):
    of = Convolution(dtype, *shape)
    return lambda: F.leaky_relu_(of.forward())


def conv_bwd_data(dtype, *shape):
    return Convolution(dtype, *shape).backward(of_input=True)


def conv_bwd_weight(dtype, *shape):
    return Convolution(dtype, *shape).backward(of_input=False)


OPS = {f.__name__: f for f in (cast, fill, add, add_row, column_sum, gelu_fwd, gelu_bwd, dropout, layernorm_fwd,
                               layernorm_bwd, gemm, attention_fwd, attention_bwd, patchify, adam, sum_of_squares,
                               conv_fwd, conv_bwd_data, conv_bwd_weight)}


# ---- timing ----------------------------------------------------------------------------------------------------------


class TorchClock:
    """Times calls of PyTorch as isobar-bench times its own: caches emptied before each, by a large copy or, on a GPU,
    by reading; the median of a few."""

    def __init__(self, seconds, device):
        self.seconds, self.is_cuda = seconds, device == "cuda"
        self.source = torch.rand(1 << 26)
        self.target = torch.empty_like(self.source)

    def microseconds(self, call):
        if not self.is_cuda:
            self.target.copy_(self.source)
            begin = time.perf_counter()
            call()
            return (time.perf_counter() - begin) * 1e6
        self.source.sum()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def time(self, call):
        """Median microseconds."""
        with torch.no_grad():
            call()
            times = []
            while len(times) < LEAST_CALLS or (sum(times) < self.seconds * 1e6 and len(times) < MOST_CALLS):
                times.append(self.microseconds(call))
        return statistics.median(times)


def time_isobar(options, op, shape):
    command = [options.program, "--json", "--op", op, "--dtype", options.dtype, "--seconds", options.seconds,
               "--threads", options.threads, "--device", options.device] + (["--shape", shape] if shape else [])
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def compare(options, clock, op, shape):
    isobar, others = [], []
    call = None
    for _ in range(options.rounds):
        isobar.append(time_isobar(options, op, shape))
        if call is None:
            call = OPS[op](DTYPES[options.dtype], *(int(size) for size in isobar[0]["shape"].split("x")))
        others.append(clock.time(call))
    ours = [result["microseconds"] for result in isobar]
    return isobar[0] | {"microseconds": statistics.median(ours), "torch_microseconds": statistics.median(others),
                        "ratio_to_torch": statistics.median(ours) / statistics.median(others),
                        "spread": max(max(times) / min(times) for times in (ours, others)),
                        "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", nargs="+", choices=list(OPS), default=list(OPS), metavar="NAME", help=", ".join(OPS))
    parser.add_argument("--shape", nargs="+", help="one an op; default the base ViT's")
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--seconds", type=float, default=0.5, help="to spend on each measurement")
    parser.add_argument("--program", default=ROOT / "build" / "bench" / "isobar-bench")
    parser.add_argument("--json", action="store_true", help="one JSON object a line: isobar-bench's, and torch_*")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"{options.program} is not there: build the target isobar-bench first")
    if options.shape and len(options.shape) != len(options.op):
        sys.exit("give one --shape an --op, or none")
    torch.set_num_threads(options.threads)
    torch.set_default_device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.dtype == "tf32"
    torch.backends.cudnn.benchmark = True
    clock = TorchClock(options.seconds, options.device)
    if not options.json:
        print(f"{'op':16} {'shape':24} {'isobar us':>12} {'torch us':>12} {'ratio':>7} {'spread':>7}")
    for op, shape in zip(options.op, options.shape or [None] * len(options.op)):
        r = compare(options, clock, op, shape)
        print(json.dumps(r) if options.json else
              f"{op:16} {r['shape']:24} {r['microseconds']:12.1f} {r['torch_microseconds']:12.1f} "
              f"{r['ratio_to_torch']:7.2f} {r['spread']:7.2f}", flush=True)


if __name__ == "__main__":
    main()
