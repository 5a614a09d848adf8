"""How far predictions of kernels that memory binds are right: PyTorch's layer norm and RMS norm as its public wheel
holds them, and kernels that read each row once, against speeds that others have published.

PyTorch's kernel is vectorized_layer_norm_kernel (aten/src/ATen/native/cuda/layer_norm_kernel.cu). A block of 128
threads has a row. It goes over it once for mean and variance, and once more for the output; a thread takes four
elements a turn.

Published milliseconds, forward passes alone:
- layer norm in fp32, 4096 rows, PyTorch ("huggingface") and Liger 0.5.2:
  benchmark/data/{a100,h100}_all_benchmark_data.csv of github.com/linkedin/Liger-Kernel, January 2025
- norms in bf16, PyTorch and cuDNN: benchmark/norms/results/h200/all_models_20260227_035147.csv of
  github.com/NVIDIA/cudnn-frontend
Left out are norms of less than 64 MB read and written, which caches hold, and whose times are those of a launch.
"""
import collections
import dataclasses
import zipfile

import fatbin
import gpus
import loops
import simulator
import validation

THREADS, VECTOR = 128, 4
LIBRARY = "torch/lib/libtorch_cuda.so"
# The cards of the tables: other memory and clock than those of the report (NVIDIA's data sheets).
A100_PCIE = dataclasses.replace(gpus.A100, name="A100 80 GB PCIe", copy_rate=gpus.A100.copy_rate * 1935 / 2039)
H100_NVL = dataclasses.replace(gpus.H100, name="H100 NVL", copy_rate=gpus.H100.copy_rate * 3938 / 3352, clock=1.785)
CACHES = {A100_PCIE: 40e6, H100_NVL: 50e6, gpus.H200: 50e6}  # bytes of L2, NVIDIA's whitepapers


@dataclasses.dataclass(frozen=True)
class Norm:
    """What there is of a norm, and PyTorch's instance for it."""
    pattern: str  # of the mangled name
    element: int  # bytes
    vectors: int  # beside the rows: weight, and bias where there is one
    statistics: int  # numbers that it writes for each row
    wheel: str = "torch==2.9.1"
    arch: int = 0

    def bytes_of(self, rows, columns):
        return 2 * self.element * rows * columns + 4 * self.statistics * rows


_NAME = r"_ZN2at6native\w*28vectorized_layer_norm_kernelI"
LAYER_NORM, RMS_NORM = Norm(_NAME + "ffLb0E", 4, 2, 2), Norm(_NAME + "N3c108BFloat16EfLb1E", 2, 1, 1)
NAMES = {LAYER_NORM: "layer norm, fp32", RMS_NORM: "RMS norm, bf16"}
PYTORCH = {  # (norm, GPU): {(rows, columns): milliseconds}
    (LAYER_NORM, A100_PCIE): {(4096, 2048): 0.0563, (4096, 4096): 0.1219, (4096, 8192): 0.2580,
                              (4096, 16384): 0.5079},
    (LAYER_NORM, H100_NVL): {(4096, 2048): 0.0383, (4096, 4096): 0.0630, (4096, 8192): 0.1409,
                             (4096, 16384): 0.2952},
    (RMS_NORM, gpus.H200): {(8192, 4096): 0.043, (16384, 4096): 0.080, (8192, 5120): 0.054, (4096, 6144): 0.036,
                            (4096, 8192): 0.053, (8192, 8192): 0.102, (4096, 16384): 0.112},
}
ONE_PASS = {  # (whose, norm, GPU): the same
    ("Liger", LAYER_NORM, A100_PCIE): {(4096, 2048): 0.0481, (4096, 4096): 0.0881, (4096, 8192): 0.1669,
                                       (4096, 16384): 0.3226},
    ("Liger", LAYER_NORM, H100_NVL): {(4096, 2048): 0.0260, (4096, 4096): 0.0455, (4096, 8192): 0.0830,
                                      (4096, 16384): 0.1824},
    ("cuDNN", RMS_NORM, gpus.H200): {(131072, 128): 0.021, (8192, 4096): 0.035, (16384, 4096): 0.072,
                                     (8192, 5120): 0.045, (4096, 6144): 0.029, (4096, 8192): 0.041,
                                     (8192, 8192): 0.071, (4096, 16384): 0.070},
}


# ---- predictions ----------------------------------------------------------------------------------------------------


def turns_of(function, vectors):
    """({loads a turn: instructions of a turn} of the loops that sum up, {stores a turn: ...} of those that write the
    output with so many vectors): the compiler has unrolled some by four."""
    blocks = loops.blocks_of(function)
    sums, outputs = {}, {}
    for loop in loops.loops_of(blocks):
        turn = loops.turn_of(blocks, loop)
        names = collections.Counter(instruction.name for instruction in turn)
        if names["LDG"] and not names["STG"]:
            sums[names["LDG"]] = turn
        elif names["STG"] and names["LDG"] == names["STG"] * (1 + VECTOR * vectors):
            outputs[names["STG"]] = turn
    if 1 not in sums or 1 not in outputs:
        raise ValueError(f"{function.name}: its loops are not those of PyTorch 2.9")
    return sums, outputs


def cycles_of(gpu, turns, count, blocks, memory):
    """Of `count` vectors a thread in a loop: as many of the unrolled turns as there are, then single ones."""
    total = 0
    for unrolled, turn in sorted(turns.items(), reverse=True):
        gone, count = divmod(count, unrolled)
        if gone:
            total += gone * simulator.cycles_a_turn(gpu, turn, blocks, THREADS // gpus.WARP // gpus.QUARTERS, memory)
    return total


def prediction_of(gpu, norm, code, rows, columns):
    """Seconds: of blocks in rounds, each as long as its two loops and the wait for its first and last data; or in which
    the bytes are copied. Rows are read from memory twice where those of all blocks at work, read and written, are more
    than the L2 cache holds."""
    function, resources = code
    sums, outputs = turns_of(function, norm.vectors)
    resident = gpus.blocks_an_sm(gpu, resources.registers, resources.shared, THREADS)

    def life(together):
        count = -(-columns // (VECTOR * THREADS))
        return cycles_of(gpu, sums, count, together, "memory") + cycles_of(gpu, outputs, count, together, "l2") + \
            2 * gpu.latencies["memory"]

    rounds, rest = divmod(rows, gpu.sms * resident)
    cycles = rounds * life(resident) + (life(-(-rest // gpu.sms)) if rest else 0)
    row = norm.element * columns
    again = row * rows if 2 * row * min(rows, gpu.sms * resident) > CACHES[gpu] else 0
    return max(cycles / gpu.clock, (norm.bytes_of(rows, columns) + again) / gpu.copy_rate) * 1e-9


# ---- beside what was published --------------------------------------------------------------------------------------


def compiled(folder):
    """{(norm, "sm_80" or "sm_90"): (Function, Resources)} of PyTorch's wheel."""
    with zipfile.ZipFile(validation.wheel_file(LAYER_NORM.wheel, folder)) as archive:
        cubins = fatbin.cubins_in(archive.read(LIBRARY), b"vectorized_layer_norm")
    return {(norm, gpu.code): validation.kernel_in(cubins, dataclasses.replace(norm, arch=int(gpu.code[3:5])))
            for norm, gpu in PYTORCH}


def points(code):
    """[(whose kernel, norm, GPU, (rows, columns), predicted seconds, published)]"""
    for (norm, gpu), published in PYTORCH.items():
        for shape, milliseconds in published.items():
            predicted = prediction_of(gpu, norm, code[norm, gpu.code], *shape)
            yield "PyTorch", norm, gpu, shape, predicted, milliseconds / 1e3
    for (whose, norm, gpu), published in ONE_PASS.items():
        for shape, milliseconds in published.items():
            yield whose, norm, gpu, shape, norm.bytes_of(*shape) / gpu.copy_rate * 1e-9, milliseconds / 1e3


def table(folder):
    """The lines of a markdown table, and a sentence for the kernels of each author."""
    lines = ["| kernel | GPU | rows × columns | predicted µs | published | published / predicted |",
             "| --- | --- | --- | --- | --- | --- |"]
    ratios = {}
    for whose, norm, gpu, (rows, columns), predicted, published in points(compiled(folder)):
        ratios.setdefault(whose, []).append(published / predicted)
        lines.append(f"| {whose}, {NAMES[norm]} | {gpu.name} | {rows} × {columns} | {predicted * 1e6:.0f} | "
                     f"{published * 1e6:.0f} | {published / predicted:.2f} |")
    return [*lines, ""] + [f"{whose}: {len(values)} points, published / predicted {min(values):.2f} to "
                           f"{max(values):.2f}, mean {sum(values) / len(values):.2f}."
                           for whose, values in ratios.items()]
