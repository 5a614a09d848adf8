"""The GPUs for which times are predicted.

Rates are cycles for which one instruction of a warp keeps a unit of its quarter of a multiprocessor (SM) busy. They
follow from results a cycle and SM: CUDA C++ Programming Guide 13.0, table "Throughput of native arithmetic
instructions" (16 a cycle and SM = 4 lanes a quarter = 8 cycles a warp). Tensor units: NVIDIA A100 and H100 whitepapers
(1024 and 2048 fused multiply-adds in 16 bits a cycle and SM); mma.sync reaches 0.63 of that on an H100 (Luo et al.
2024, arXiv 2402.13499). wgmma reaches 0.83: cuBLAS multiplies 8192³ matrices of bf16 at 790 of an H200's 949 TFLOP/s
at 1.755 GHz, since the clock falls under full power; for cuBLAS on an A100 0.87 of the peak is assumed. Latencies: the
same paper. From the host: PCIe 4 and 5 as they are used, 25 and 52 GB/s.
"""
import dataclasses


@dataclasses.dataclass(frozen=True, eq=False)
class Gpu:
    name: str
    code: str  # the architecture that its kernels are compiled for; sm_90 is sm_90a as well
    sms: int
    clock: float  # GHz under load
    copy_rate: float  # bytes a nanosecond: what a copy from device memory to device memory reaches, read and written
    shared: int  # bytes of shared memory an SM
    rates: dict  # cycles a warp instruction
    latencies: dict  # cycles until a result is there
    tensor: int  # fused multiply-adds of 16-bit operands a cycle and quarter
    mma_sync: float  # share of it that HMMA reaches
    wgmma: float  # share of it that HGMMA reaches
    cublas: float  # TFLOP/s that cuBLAS reaches in bf16, of large products
    host_rate: float  # bytes a nanosecond from pinned memory of the host


_RATES = {"alu": 2, "imad": 2, "mufu": 8, "uniform": 1, "control": 1}
_LATENCIES = {"mufu": 22, "shared": 30, "shuffle": 24, "l2": 260, "memory": 560, "barrier": 20, "local": 36}

A100 = Gpu("A100", "sm_80", 108, 1.41, 1700, 164 << 10, {**_RATES, "fma": 2, "fp64": 4}, _LATENCIES, 256, 1.0, 0.0,
           271, 25)
H100 = Gpu("H100", "sm_90", 132, 1.755, 2900, 228 << 10, {**_RATES, "fma": 1, "fp64": 2}, _LATENCIES, 512, 0.63, 0.83,
           790, 52)
H200 = dataclasses.replace(H100, name="H200", copy_rate=4300)
GPUS = (A100, H100, H200)

WARP = 32
QUARTERS = 4  # of an SM: each has its own scheduler and units; shared memory is common
REGISTERS = 64 << 10  # an SM
MOST_WARPS, MOST_BLOCKS = 64, 32  # an SM
SHARED_OF_SYSTEM = 1 << 10  # bytes that CUDA takes of each block's shared memory


def blocks_an_sm(gpu, registers, shared, threads):
    """How many blocks an SM holds at once. Registers are given to warps in units of 256."""
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // 256) * 256
    by_registers = REGISTERS // QUARTERS // of_warp * QUARTERS // warps
    by_shared = gpu.shared // (shared + SHARED_OF_SYSTEM)
    return max(0, min(by_registers, by_shared, MOST_WARPS // warps, MOST_BLOCKS))
