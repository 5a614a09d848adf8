"""The kernels of a training step of `base` and `mp` (batch 16, bf16, residual stream in fp32): how each is launched,
what it must move and multiply, and its budget. Bytes are those that no order of work can avoid."""
import dataclasses

from prediction import Launch

TOKENS = 4050  # a sample
BATCH, HEADS, OWNED = 16, 8, 64  # OWNED: tokens of a block, kernels/attention/tiles.cuh


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    source: str  # in kernels/
    pattern: str  # of the demangled name
    launch: Launch
    flops: float  # in products of 16-bit numbers
    budget: dict  # {name of a GPU: microseconds that the prediction must not exceed}


def attention(config, head, streamed_fwd, streamed_bwd, shared_fwd, shared_bwd, budgets):
    """The three kernels of attention and the one before the backward pass."""
    blocks = -(-TOKENS // OWNED) * HEADS * BATCH
    tensor = 2 * BATCH * TOKENS * HEADS * head  # bytes of one of q, k, v, o
    rows = 4 * BATCH * TOKENS * HEADS  # bytes of lse or delta
    pairs = BATCH * HEADS * TOKENS * TOKENS * head
    of = f"{config}, head {head}"
    turns_fwd, turns_bwd = -(-TOKENS // streamed_fwd), -(-TOKENS // streamed_bwd)
    fwd, delta, dkdv, dq = budgets
    return [
        Kernel(f"attention_fwd ({of})", "attention/forward.cu", rf"forward_kernel<isobar::bf16, {head}>",
               Launch(blocks, 128, shared_fwd, turns_fwd, 4 * tensor + rows), 4 * pairs, fwd),
        Kernel(f"attention_delta ({of})", "attention/backward.cu", r"delta_kernel<isobar::bf16, isobar::bf16>",
               Launch(BATCH * TOKENS * HEADS // 4, 128, 0, 1, 2 * tensor + rows, streams=True), 0, delta),
        Kernel(f"attention_dkdv ({of})", "attention/dkdv.cu", rf"dkdv_kernel<isobar::bf16, {head}>",
               Launch(blocks, 128, shared_bwd, turns_bwd, 6 * tensor + 2 * rows), 8 * pairs, dkdv),
        Kernel(f"attention_dq ({of})", "attention/dq.cu", rf"dq_kernel<isobar::bf16, {head}>",
               Launch(blocks, 128, shared_bwd, turns_bwd, 5 * tensor + 2 * rows), 6 * pairs, dq),
    ]


def streaming(config, width, parameters, budgets):
    """The kernels that memory binds."""
    rows, elements = BATCH * TOKENS, BATCH * TOKENS * width
    slots = width // 128
    norm_bwd_blocks = 264  # kLayernormBlocks
    blocks = 1 << 14  # the most of a kernel that strides over its grid
    fwd, bwd, gelu_fwd, gelu_bwd, adam = budgets
    return [
        Kernel(f"layernorm_fwd ({config}, {width} columns)", "layernorm.cu",
               rf"layernorm_fwd_kernel<.*WarpGroup, {slots}>",
               Launch(rows // 8, 256, 0, 1, 12 * elements + 8 * rows, streams=True), 0, fwd),
        Kernel(f"layernorm_bwd ({config}, {width} columns)", "layernorm.cu",
               rf"layernorm_bwd_kernel<.*WarpGroup, {slots}>",
               Launch(norm_bwd_blocks, 256, 32 * width, rows / 8 / norm_bwd_blocks, 16 * elements + 8 * rows,
                      streams=True), 0, bwd),
        Kernel(f"gelu_fwd ({config})", "gelu.cu", "gelu_fwd_kernel",
               Launch(blocks, 256, 0, 4 * elements / 8 / 256 / blocks, 16 * elements, streams=True), 0, gelu_fwd),
        Kernel(f"gelu_bwd ({config})", "gelu.cu", "gelu_bwd_kernel",
               Launch(blocks, 256, 0, 4 * elements / 8 / 256 / blocks, 24 * elements, streams=True), 0, gelu_bwd),
        Kernel(f"adam ({config})", "adam.cu", "adam_kernel",
               Launch(blocks, 256, 0, parameters / 4 / 256 / blocks, 30 * parameters, streams=True), 0, adam),
    ]


def budget(a100, h100):
    """Microseconds; 2 % more than was predicted when the kernel was last worked on."""
    return {"A100": a100, "H100": h100}


KERNELS = [
    *attention("base", 48, 64, 64, 35840, 43008,
               [budget(4181, 2668), budget(204, 142), budget(7821, 5595), budget(5850, 3885)]),
    *attention("mp", 128, 64, 32, 87040, 69632,
               [budget(11112, 4800), budget(204, 142), budget(15627, 11148), budget(11439, 8735)]),
    *streaming("base", 384, 23.83e6,
               [budget(181, 107), budget(240, 182), budget(240, 141), budget(360, 212), budget(431, 253)]),
    *streaming("mp", 1024, 157.93e6,
               [budget(480, 282), budget(1701, 919), budget(639, 375), budget(957, 561), budget(2844, 1668)]),
]
