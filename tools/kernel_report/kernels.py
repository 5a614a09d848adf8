"""The kernels of a training step of `base` and `mp` (batch 16, bf16, residual stream in fp32): how each is launched,
what it must move and multiply, and its budget. Bytes are those that no order of work can avoid."""
import dataclasses

from prediction import Launch

TOKENS = 4050  # a sample
BATCH, HEADS = 16, 8


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    source: str  # in kernels/
    pattern: str  # of the demangled name
    launch: Launch
    flops: float  # in products of 16-bit numbers
    budget: dict  # {name of a GPU: microseconds that the prediction must not exceed}
    gpus: tuple = ("A100", "H100", "H200")  # that choose it
    instead: str = ""  # of the kernel of this pattern, which GPUs of compute capability 8.0 choose and steps record


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Of a block (the structs of that name in kernels/attention/): tokens that it owns, streams a stage and computes a
    turn of its innermost loop, and shared memory besides these tokens, in bytes."""
    owned: int
    stage: int
    turn: int
    more_bytes: int = 0

    def launch(self, head, owned_tensors, moved):
        shared = (owned_tensors * self.owned + 4 * self.stage) * 2 * (head + 8) + self.more_bytes
        return Launch(-(-TOKENS // self.owned) * HEADS * BATCH, 128, shared, -(-TOKENS // self.turn), moved)


@dataclasses.dataclass(frozen=True)
class Warpgroups:
    """Of a block of kernels/attention/sm90_*.cuh: tokens that it owns and of a turn, threads that compute, slots of the
    ring; tiles of the owned tokens and in a slot, and bytes of a slot's terms. A turn streams two tiles."""
    owned: int
    streamed: int
    threads: int
    slots: int
    tiles: int = 1
    terms: int = 0

    def launch(self, head, moved):
        row = 128 * -(-head // 64)  # bytes of a token
        tiles = row * self.tiles * (self.owned + self.slots * self.streamed)
        shared = tiles + self.slots * self.terms + 8 * (1 + 2 * self.slots)
        return Launch(-(-TOKENS // self.owned) * HEADS * BATCH, self.threads, shared, -(-TOKENS // self.streamed),
                      moved, copied=2 * row * self.streamed + self.terms)


def attention(config, head, mma_sync, wgmma, budgets):
    """The kernels of attention and the one before the backward pass, without dropout. `mma_sync` and `wgmma` are blocks
    of forward, dkdv and dq."""
    tensor = 2 * BATCH * TOKENS * HEADS * head  # bytes of one of q, k, v, o
    rows = 4 * BATCH * TOKENS * HEADS  # bytes of lse or delta
    pairs = BATCH * HEADS * TOKENS * TOKENS * head
    of, source = f"{config}, head {head}", f"attention/head_{head}.cu"
    lanes = 8 if head <= 64 else 16  # of a query, kernels/attention/delta.cu
    delta = Launch(-(-TOKENS // 128) * 128 // (256 // lanes) * HEADS * BATCH, 128, 0, 1, 2 * tensor + 3 * rows,
                   streams=True)
    fwd_budget, delta_budget, dkdv_budget, dq_budget = budgets

    def both(name, kernel, blocks, tensors, moved, flops, of_it):
        """By mma.sync, and by wgmma where GPUs choose that."""
        tiles, groups = blocks
        pattern = rf"{kernel}_kernel<isobar::bf16, {head}, false>"
        return [
            Kernel(f"{name} ({of})", source, f"::{pattern}", tiles.launch(head, tensors, moved), flops, of_it,
                   ("A100",)),
            Kernel(f"{name} by wgmma ({of})", f"attention/sm90_head_{head}.cu", f"::sm90_{pattern}",
                   groups.launch(head, moved), flops, of_it, ("H100", "H200"), f"::{pattern}"),
        ]

    fwd, dkdv, dq = zip(mma_sync, wgmma)
    return [
        *both("attention_fwd", "forward", fwd, 1, 4 * tensor + rows, 4 * pairs, fwd_budget),
        Kernel(f"attention_delta ({of})", "attention/delta.cu", rf"delta_kernel<isobar::bf16, isobar::bf16, {lanes}>",
               delta, 0, delta_budget),
        *both("attention_dkdv", "dkdv", dkdv, 2, 6 * tensor + 2 * rows, 8 * pairs, dkdv_budget),
        *both("attention_dq", "dq", dq, 2, 5 * tensor + 2 * rows, 6 * pairs, dq_budget),
    ]


def column_sum(config, rows, columns, of):
    """The gradient of the bias of the patches, in fp32: those in 16 bits are made by a product that reads them."""
    tiles = columns // 64  # kernels/column_sum.cu
    return Kernel(f"column_sum ({config}, {columns} columns)", "column_sum.cu", "::column_sum_kernel<float, 16>",
                  Launch(256 * tiles, 256, 0, tiles * -(-rows // 128), 4 * rows * columns, streams=True, an_sm=3,
                         side=tiles), 0, of)


def streaming(config, width, parameters, budgets):
    """The kernels that memory binds."""
    rows, elements = BATCH * TOKENS, BATCH * TOKENS * width
    norm_warps, norm_slots, norm_bwd_an_sm = (1, 3, 2) if width <= 384 else (4, 2, 3)  # kernels/layernorm.cu
    norm_turns = rows * norm_warps // 8
    norm_types = rf"<float, isobar::bf16, .*Group<{norm_warps}, {norm_slots}>"
    blocks = 1 << 14  # the most of a kernel that strides over its grid
    fwd, bwd, gelu_fwd, gelu_bwd, adam, sums = budgets
    return [
        column_sum(config, rows, width, sums),
        Kernel(f"layernorm_fwd ({config}, {width} columns)", "layernorm.cu",
               "::layernorm_fwd_kernel" + norm_types,
               Launch(norm_turns, 256, 0, norm_turns, 12 * elements + 8 * rows, streams=True, an_sm=3), 0, fwd),
        Kernel(f"layernorm_bwd ({config}, {width} columns)", "layernorm.cu",
               "::layernorm_bwd_kernel" + norm_types,
               Launch(528, 256, 32 * width // norm_warps, norm_turns, 16 * elements + 8 * rows, streams=True,
                      an_sm=norm_bwd_an_sm), 0, bwd),
        Kernel(f"gelu_fwd ({config})", "gelu.cu", "gelu_fwd_kernel",
               Launch(blocks, 256, 0, 4 * elements / 8 / 256 / blocks, 16 * elements, streams=True), 0, gelu_fwd),
        Kernel(f"gelu_bwd ({config})", "gelu.cu", "gelu_bwd_kernel",
               Launch(blocks, 256, 0, 4 * elements / 8 / 256 / blocks, 24 * elements, streams=True), 0, gelu_bwd),
        Kernel(f"adam ({config})", "adam.cu", "adam_kernel",
               Launch(blocks, 256, 0, parameters / 4 / 256 / blocks, 30 * parameters, streams=True), 0, adam),
    ]


def fields(width, parameters, budgets):
    """The kernels around the transformer of `base`, on batches of 20 fields of 360 x 720, and the norm of the gradient.
    Turns of patchify and of the loss, which reads rows of patches, are those of the loops on both sides of their shared
    memory."""
    channels, height, columns = 20, 360, 720
    elements = BATCH * channels * height * columns
    tokens = BATCH * TOKENS * width
    tiles = BATCH * height * 6  # of 128 pixels, kernels/patchify.cu
    loss_bwd = tiles // 4

    def kernel(name, source, pattern, blocks, turns, moved, of, threads=256, shared=0):
        launch = Launch(blocks, threads, shared, turns, moved, streams=True)
        return Kernel(f"{name} (base)", source, pattern, launch, 0, of)

    return [
        kernel("normalize", "normalize.cu", "::normalize_kernel", 64 * BATCH * channels, 4, 8 * elements, budgets[0]),
        kernel("patchify", "patchify.cu", "::patchify_kernel<float, isobar::bf16>", tiles, 10, 6 * elements, budgets[1],
               128, 4 * channels * 129),
        kernel("add_row", "elementwise.cu", "::add_row_kernel", -(-TOKENS * width // 2048), BATCH,
               8 * tokens + 4 * TOKENS * width, budgets[2]),
        kernel("forecast_loss_sums", "forecast_loss.cu", "::patch_sums_kernel<float>", 128 * BATCH,
               10 * tiles / 128 / BATCH, 8 * elements, budgets[3], 128, 4 * channels * 129),
        kernel("forecast_loss_bwd", "forecast_loss.cu", "::patch_bwd_kernel<float, isobar::bf16>", loss_bwd,
               10 * tiles / loss_bwd, 10 * elements, budgets[4], 128, 4 * channels * 129),
        kernel("cast", "elementwise.cu", "::cast_kernel", -(-tokens // 2048), 1, 6 * tokens, budgets[5]),
        kernel("sum_of_squares", "grad_norm.cu", "::square_sums_kernel", 512, parameters / 1024 / 512, 4 * parameters,
               budgets[6]),
    ]


def budget(a100, h100):
    """Microseconds; 2 % more than was predicted when the kernel was last worked on."""
    return {"A100": a100, "H100": h100}


KERNELS = [
    *attention("base", 48, (Tiles(128, 64, 64), Tiles(128, 64, 32, 2 * 64 * 8), Tiles(128, 64, 32)),
               (Warpgroups(192, 128, 384, 8), Warpgroups(192, 64, 384, 4, 2, 64 * 8), Warpgroups(192, 64, 384, 4, 2)),
               [budget(1867, 857), budget(64, 37), budget(3072, 1493), budget(2670, 1051)]),
    *attention("mp", 128, (Tiles(128, 32, 32), Tiles(64, 32, 32, 2 * 32 * 8), Tiles(64, 32, 32)),
               (Warpgroups(128, 128, 256, 4), Warpgroups(128, 64, 256, 4, 2, 64 * 8), Warpgroups(128, 64, 256, 4, 2)),
               [budget(4777, 1795), budget(164, 96), budget(11453, 3713), budget(8639, 2655)]),
    *streaming("base", 384, 23.83e6,
               [budget(180, 106), budget(240, 141), budget(240, 141), budget(360, 212), budget(431, 253),
                budget(60, 35)]),
    *fields(384, 23.83e6,
            [budget(399, 234), budget(299, 176), budget(124, 73), budget(399, 234), budget(498, 292),
             budget(90, 53), budget(58, 34)]),
    *streaming("mp", 1024, 157.93e6,
               [budget(479, 281), budget(638, 374), budget(639, 375), budget(957, 561), budget(2844, 1668),
                budget(160, 94)]),
]
