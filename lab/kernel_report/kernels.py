"""The kernels of a training step of `base` and `mp` (batch 16, bf16, residual stream in fp32), attention of fp32
operands in TF32, and convolutions on tensor cores: how each is launched, what it must move and multiply, and its
budget. Bytes are those that no order of work can avoid."""
import dataclasses

from prediction import Launch

TOKENS = 4050  # a sample
BATCH, HEADS = 16, 8


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    step: str  # of work.STEPS, that launches it; empty: none
    source: str  # in kernels/
    pattern: str  # of the demangled name
    launch: Launch
    flops: float  # in products of 16-bit numbers; tensor units take twice as long for each in TF32
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

    def launch(self, head, element, owned_tensors, moved, inner=0):
        shared = (owned_tensors * self.owned + 4 * self.stage) * (element * head + 16) + self.more_bytes
        return Launch(-(-TOKENS // self.owned) * HEADS * BATCH, 128, shared, -(-TOKENS // self.turn), moved,
                      inner=inner)


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

    def launch(self, head, moved, inner=0):
        row = 128 * -(-head // 64)  # bytes of a token
        tiles = row * self.tiles * (self.owned + self.slots * self.streamed)
        shared = tiles + self.slots * self.terms + 8 * (1 + 2 * self.slots)
        return Launch(-(-TOKENS // self.owned) * HEADS * BATCH, self.threads, shared, -(-TOKENS // self.streamed),
                      moved, copied=2 * row * self.streamed + self.terms, inner=inner)


def attention_parts(head, element):
    """[(kernel, its name in the code, tensors of owned tokens, bytes moved, flops)] of forward, dkdv and dq; `element`:
    bytes of one of q, k, v, o."""
    tensor = element * BATCH * TOKENS * HEADS * head
    rows = 4 * BATCH * TOKENS * HEADS  # bytes of lse or delta
    pairs = BATCH * HEADS * TOKENS * TOKENS * head
    return [("attention_fwd", "forward", 1, 4 * tensor + rows, 4 * pairs),
            ("attention_dkdv", "dkdv", 2, 6 * tensor + 2 * rows, 8 * pairs),
            ("attention_dq", "dq", 2, 5 * tensor + 2 * rows, 6 * pairs)]


def attention_delta(name, step, operand, element, head, of):
    """The kernel before the backward pass."""
    lanes = next(lanes for lanes in (8, 16, 32) if head * element <= 16 * lanes)  # of a query, attention/delta.cu
    moved = (2 * element * head + 3 * 4) * BATCH * TOKENS * HEADS
    launch = Launch(-(-TOKENS // 128) * 128 // (256 // lanes) * HEADS * BATCH, 128, 0, 1, moved, streams=True)
    return Kernel(name, step, "attention/delta.cu", f"delta_kernel<{operand}, {operand}, {lanes}>", launch, 0, of)


def attention(config, head, mma_sync, wgmma, budgets):
    """Without dropout, in bf16. `mma_sync` and `wgmma` are blocks of forward, dkdv and dq, by the one and, on GPUs that
    choose it, by the other."""
    of, (*budgets, of_delta) = f"{config}, head {head}", budgets
    found = [attention_delta(f"attention_delta ({of})", config, "isobar::bf16", 2, head, of_delta)]
    for (name, kernel, owned, moved, flops), tiles, groups, of_it in zip(attention_parts(head, 2), mma_sync, wgmma,
                                                                         budgets):
        pattern = rf"{kernel}_kernel<isobar::bf16, {head}, false"  # without a mask, and without limits on keys
        found += [Kernel(f"{name} ({of})", config, f"attention/head_{head}.cu", f"::{pattern}, false>",
                         tiles.launch(head, 2, owned, moved), flops, of_it, ("A100",)),
                  Kernel(f"{name} by wgmma ({of})", config, f"attention/sm90_head_{head}.cu", f"::sm90_{pattern}>",
                         groups.launch(head, moved), flops, of_it, ("H100", "H200"), f"::{pattern}, false>")]
    return found


def tf32_attention(config, head, blocks, budgets):
    """Without dropout, of operands in fp32 that tensor cores multiply in TF32, by mma.sync on all GPUs."""
    of, step, (*budgets, of_delta) = f"{config}, head {head}", f"{config}_tf32", budgets
    found = [attention_delta(f"attention_delta in fp32 ({of})", step, "float", 4, head, of_delta)]
    for (name, kernel, owned, moved, flops), tiles, of_it in zip(attention_parts(head, 4), blocks, budgets):
        found.append(Kernel(f"{name} in TF32 ({of})", step, f"attention/tf32_head_{head}.cu",
                            rf"::{kernel}_kernel<.*Tf32, {head}, false, false>", tiles.launch(head, 4, owned, moved),
                            2 * flops, of_it))
    return found


def column_sum(config, rows, columns, of):
    """The gradient of the bias of the patches, in fp32: those in 16 bits are made by a product that reads them."""
    tiles = columns // 64  # kernels/column_sum.cu
    return Kernel(f"column_sum ({config}, {columns} columns)", config, "column_sum.cu",
                  "::column_sum_kernel<float, 16>",
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
        Kernel(f"layernorm_fwd ({config}, {width} columns)", config, "layernorm.cu",
               "::layernorm_fwd_kernel" + norm_types,
               Launch(norm_turns, 256, 0, norm_turns, 12 * elements + 8 * rows, streams=True, an_sm=3), 0, fwd),
        Kernel(f"layernorm_bwd ({config}, {width} columns)", config, "layernorm.cu",
               "::layernorm_bwd_kernel" + norm_types,
               Launch(528, 256, 32 * width // norm_warps, norm_turns, 16 * elements + 8 * rows, streams=True,
                      an_sm=norm_bwd_an_sm), 0, bwd),
        Kernel(f"gelu_fwd ({config})", config, "gelu.cu", "gelu_fwd_kernel",
               Launch(blocks, 256, 0, 4 * elements / 8 / 256 / blocks, 16 * elements, streams=True), 0, gelu_fwd),
        Kernel(f"gelu_bwd ({config})", config, "gelu.cu", "gelu_bwd_kernel",
               Launch(blocks, 256, 0, 4 * elements / 8 / 256 / blocks, 24 * elements, streams=True), 0, gelu_bwd),
        Kernel(f"adam ({config})", config, "adam.cu", "adam_kernel",
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
        return Kernel(f"{name} (base)", "base", source, pattern, launch, 0, of)

    return [
        kernel("normalize", "normalize.cu", "::normalize_kernel", 64 * BATCH * channels, 4, 8 * elements, budgets[0]),
        kernel("patchify", "patchify.cu", "::patchify_kernel<float, isobar::bf16>", tiles, 10, 6 * elements, budgets[1],
               128, 4 * channels * 129),
        kernel("add_row", "elementwise.cu", "::add_row_kernel", -(-TOKENS * width // 2048), BATCH,
               8 * tokens + 4 * TOKENS * width, budgets[2]),
        kernel("forecast_loss_sums", "forecast_loss.cu", "::patch_sums_kernel<float, false>", 128 * BATCH,
               10 * tiles / 128 / BATCH, 8 * elements, budgets[3], 128, 4 * channels * 129),
        kernel("forecast_loss_bwd", "forecast_loss.cu", "::patch_bwd_kernel<float, isobar::bf16, false>", loss_bwd,
               10 * tiles / loss_bwd, 10 * elements, budgets[4], 128, 4 * channels * 129),
        kernel("cast", "elementwise.cu", "::cast_kernel", -(-tokens // 2048), 1, 6 * tokens, budgets[5]),
        kernel("sum_of_squares", "grad_norm.cu", "::square_sums_kernel", 512, parameters / 1024 / 512, 4 * parameters,
               budgets[6]),
    ]


def convolutions(budgets):
    """A layer of a U-Net in 3-D, in bf16: 256 to 512 channels, a kernel of 3³, 8³ points, batch 64."""
    points, taps, inputs, outputs, tile = 64 * 8**3, 27, 256, 512, 128
    x, y, weight = 2 * points * inputs, 2 * points * outputs, 2 * inputs * taps * outputs  # bytes
    stages, table = 3 * 2 * tile * 64, 16 * taps  # bytes of shared memory
    parts = 512 // (outputs // tile * (inputs * taps // tile))  # of the terms of bwd_weight
    products = [("conv_fwd", "Fwd", points, outputs, taps * inputs, 1, x + weight + y),
                ("conv_bwd_data", "BwdData", points, inputs, taps * outputs, 1, y + weight + x),
                ("conv_bwd_weight", "BwdWeight", outputs, taps * inputs, points, parts, x + y + 2 * parts * weight)]
    return [Kernel(f"{name} (256 to 512 channels)", "", "conv/tensor_core_bf16.cu",
                   rf"::product_kernel<isobar::bf16, .*::{operands}Operands<isobar::bf16>, 128, {tile}, true>",
                   Launch(m // tile * (n // tile) * of_terms, 128, stages + table, k // of_terms // 32, moved),
                   2 * m * n * k, of_it)
            for (name, operands, m, n, k, of_terms, moved), of_it in zip(products, budgets)]


def budget(a100, h100):
    """Microseconds; 2 % more than was predicted when the kernel was last worked on."""
    return {"A100": a100, "H100": h100}


KERNELS = [
    *attention("base", 48, (Tiles(128, 64, 64), Tiles(128, 64, 32, 2 * 64 * 8), Tiles(128, 64, 32)),
               (Warpgroups(192, 128, 384, 8), Warpgroups(192, 64, 384, 4, 2, 64 * 8), Warpgroups(192, 64, 384, 4, 2)),
               [budget(1867, 857), budget(3072, 1493), budget(2670, 1083), budget(64, 37)]),
    *tf32_attention("base", 48, (Tiles(128, 32, 32), Tiles(128, 32, 32, 2 * 32 * 8), Tiles(128, 32, 32)),
                    [budget(3714, 2289), budget(6607, 3882), budget(5296, 3248), budget(124, 73)]),
    *attention("mp", 128, (Tiles(128, 32, 32), Tiles(64, 32, 32, 2 * 32 * 8), Tiles(64, 32, 32)),
               (Warpgroups(128, 128, 256, 4), Warpgroups(128, 64, 256, 4, 2, 64 * 8), Warpgroups(128, 64, 256, 4, 2)),
               [budget(4777, 1795), budget(11453, 3713), budget(8639, 2655), budget(164, 96)]),
    *streaming("base", 384, 23.83e6,
               [budget(180, 106), budget(240, 141), budget(240, 141), budget(360, 212), budget(431, 253),
                budget(60, 35)]),
    *fields(384, 23.83e6,
            [budget(399, 234), budget(299, 176), budget(124, 73), budget(399, 234), budget(498, 292),
             budget(90, 53), budget(58, 34)]),
    *streaming("mp", 1024, 157.93e6,
               [budget(479, 281), budget(638, 374), budget(639, 375), budget(957, 561), budget(2844, 1668),
                budget(160, 94)]),
    *convolutions([budget(959, 552), budget(1035, 580), budget(1095, 658)]),
]


def with_dropout(config, head, mma_sync, wgmma):
    """[(kernel, scores of a lane in a turn)] of attention with dropout, in bf16.

    Of each block: its tiles, the rows that a warp has, and how often a lane goes through a loop of the generator: once
    for each eight columns, and, with such a number of tokens, once or twice more for the last keys (KeepMask of
    kernels/attention/tiles.cuh)."""
    found = []
    for (name, kernel, owned, moved, flops), (tiles, rows, draws), (groups, group_rows, group_draws) in \
            zip(attention_parts(head, 2), mma_sync, wgmma):
        pattern = rf"{kernel}_kernel<isobar::bf16, {head}, true"
        found.append((Kernel(f"{name} ({config}, head {head})", config, f"attention/head_{head}.cu",
                             f"::{pattern}, false>", tiles.launch(head, 2, owned, moved, draws), flops, {},
                             ("A100",)),
                      rows * tiles.turn / 32))
        found.append((Kernel(f"{name} by wgmma ({config}, head {head})", config, f"attention/sm90_head_{head}.cu",
                             f"::sm90_{pattern}>", groups.launch(head, moved, group_draws), flops, {}, ("H100",)),
                      group_rows * groups.streamed / 32))
    return found


DROPOUT = with_dropout(
    "base", 48,
    ((Tiles(128, 64, 64), 32, 9), (Tiles(128, 64, 16, 2 * 64 * 8), 32, 3), (Tiles(128, 64, 32), 32, 5)),
    ((Warpgroups(128, 128, 256, 8), 16, 9), (Warpgroups(128, 64, 256, 4, 2, 64 * 8), 16, 10),
     (Warpgroups(192, 64, 384, 4, 2), 16, 9)))
