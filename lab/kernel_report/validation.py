"""How far the predictions are right: FlashAttention-2 and -3 as public wheels hold them, against published speeds.

Published speeds, TFLOP/s, no mask, 16 bits, 16384 tokens and 2048 channels in all (assets/ of
github.com/Dao-AILab/flash-attention at 0251105 for forward on an H100 and for A100; figures of arXiv 2407.08608 for
backward on an H100). Products are counted as 4·h a pair of tokens forward and 10·h backward (Dao 2023).
"""
import dataclasses
import io
import re
import subprocess
import sys
import tempfile
import zipfile

import fatbin
import gpus
import prediction
import toolkit

TOKENS, CHANNELS = 16384, 2048


@dataclasses.dataclass(frozen=True)
class Kernel:
    wheel: str  # as pip names it
    library: str  # in the wheel
    arch: int
    pattern: str  # of the mangled name
    head: int
    flops: int  # a pair of tokens and channel
    owned: int  # tokens that a block owns
    streamed: int  # tokens of a turn
    threads: int  # of a block that go round the main loop
    shared: int
    bytes: int = 0  # an element: of smaller kernels around this one, that memory binds
    copied: int = 0  # bytes a turn and channel that TMA writes into and reads from shared memory
    persistent: bool = False


_FA2, _FA3 = "xformers==0.0.23.post1", "xformers==0.0.31.post1"
_FA2_LIBRARY, _FA3_LIBRARY = "xformers/_C_flashattention.so", "xformers/flash_attn_3/_C.so"
_BACKWARD = 14  # delta reads dO and O and clears dQ in fp32, a last kernel turns that to 16 bits
KERNELS = {
    ("FA2", "forward", 64): Kernel(
        _FA2, _FA2_LIBRARY, 80, r"_Z16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128ELi128ELi4E\w*6half_t\w*"
        r"EELb0ELb0ELb0ELb1ELb1ELb0EEv16", 64, 4, 128, 128, 128, 48 << 10),
    ("FA2", "forward", 128): Kernel(
        _FA2, _FA2_LIBRARY, 80, r"_Z16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4E\w*6half_t\w*"
        r"EELb0ELb0ELb0ELb1ELb1ELb0EEv16", 128, 4, 128, 64, 128, 64 << 10),
    ("FA2", "backward", 64): Kernel(
        _FA2, _FA2_LIBRARY, 80, r"_Z44flash_bwd_dq_dk_dv_loop_seqk_parallel_kernelI23Flash_bwd_kernel_traitsILi64ELi128"
        r"ELi128ELi8ELi4ELi4ELi4E\w*6half_t\w*EELb0ELb0ELb0ELb1ELb1EEv16", 64, 10, 128, 128, 256, 144 << 10, _BACKWARD),
    ("FA2", "backward", 128): Kernel(
        _FA2, _FA2_LIBRARY, 80, r"_Z44flash_bwd_dq_dk_dv_loop_seqk_parallel_kernelI23Flash_bwd_kernel_traitsILi128ELi64"
        r"ELi128ELi8ELi2ELi4ELi2E\w*6half_t\w*EELb0ELb0ELb0ELb1ELb1EEv16", 128, 10, 128, 64, 256, 144 << 10, _BACKWARD),
    ("FA3", "forward", 64): Kernel(
        _FA3, _FA3_LIBRARY, 90, r"_ZN\w*16FlashAttnFwdSm90\w*NS6_IJNS7_ILi192EEESA_NS7_ILi64EEEEEELi64ENS_6half_tEfNS_"
        r"4arch4Sm90ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELb1ELb1\w*",
        64, 4, 192, 192, 384, 200 << 10, copied=4, persistent=True),
    ("FA3", "forward", 128): Kernel(
        _FA3, _FA3_LIBRARY, 90, r"_ZN\w*16FlashAttnFwdSm90\w*ILi2EEENS7_ILi1EEES9_EEENS6_IJNS7_ILi128EEENS7_ILi176EEE"
        r"SB_EEELi128ENS_6half_tEfNS_4arch4Sm90ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELb1ELb1ELb0ELb0ELb0E\w*",
        128, 4, 128, 176, 256, 200 << 10, copied=4, persistent=True),
    ("FA3", "backward", 64): Kernel(
        _FA3, _FA3_LIBRARY, 90, r"_ZN\w*16FlashAttnBwdSm90\w*Li128EEE\w{3,5}NS7_ILi64EEEEEENS_6half_tEfNS_4arch4Sm90E"
        r"Lb0ELb0ELb0ELb0ELb0E\w*21CollectiveEpilogueBwdI\w*", 64, 10, 128, 128, 256, 200 << 10, _BACKWARD, copied=8),
    ("FA3", "backward", 128): Kernel(
        _FA3, _FA3_LIBRARY, 90, r"_ZN\w*16FlashAttnBwdSm90\w*Li80EEENS7_ILi128EEESB_EEENS_6half_tEfNS_4arch4Sm90E"
        r"Lb0ELb0ELb0ELb0ELb0E\w*21CollectiveEpilogueBwdI\w*", 128, 10, 128, 80, 256, 200 << 10, _BACKWARD, copied=8),
}
LENGTHS = (1024, 4096, 16384)
PUBLISHED = {  # (what, passes, head): TFLOP/s at LENGTHS
    ("FA2", gpus.A100, ("forward", "backward"), 64): (153, 171, 176),
    ("FA2", gpus.A100, ("forward", "backward"), 128): (173, 196, 203),
    ("FA2", gpus.H100, ("forward",), 64): (306, 321, 324),
    ("FA2", gpus.H100, ("forward",), 128): (350, 368, 370),
    ("FA2", gpus.H100, ("backward",), 64): (238, 279, 291),
    ("FA2", gpus.H100, ("backward",), 128): (260, 310, 322),
    ("FA3", gpus.H100, ("forward",), 64): (392, 476, 497),
    ("FA3", gpus.H100, ("forward",), 128): (565, 638, 648),
    ("FA3", gpus.H100, ("backward",), 64): (363, 453, 474),
    ("FA3", gpus.H100, ("backward",), 128): (424, 542, 561),
}


def wheel_file(wheel, folder):
    """The wheel in a folder, downloaded by pip where it is not there yet."""
    name, version = wheel.split("==")
    if not list(folder.glob(f"{name}-{version}-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                        "--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--platform",
                        "manylinux2014_x86_64", "--dest", folder, wheel], check=True)
    return next(folder.glob(f"{name}-{version}-*.whl"))


def compiled(kernels, folder):
    """{key: (Function, Resources)} of public kernels."""
    found = {}
    for wheel, library in sorted({(kernel.wheel, kernel.library) for kernel in kernels.values()}):
        with zipfile.ZipFile(io.BytesIO(wheel_file(wheel, folder).read_bytes())) as archive:
            cubins = fatbin.cubins_in(archive.read(library))
        for key, kernel in kernels.items():
            if (kernel.wheel, kernel.library) == (wheel, library):
                found[key] = kernel_in(cubins, kernel)
    return found


def kernel_in(cubins, kernel):
    section = re.compile(rb"\.text\.(" + kernel.pattern.encode() + rb"\w*)\0")
    for arch, code in cubins:
        if arch == kernel.arch and (match := section.search(code)):
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(code)
                file.flush()
                ((function, resources),) = toolkit.kernels_in(file.name, names=[match.group(1).decode()])
                return function, resources
    raise ValueError(f"{kernel.wheel}: no kernel {kernel.pattern}")


def seconds_of(gpu, kernel, function, resources, length):
    """Predicted, for all tokens in sequences of a length."""
    sequences = TOKENS // length * (CHANNELS // kernel.head)
    launch = prediction.Launch(blocks=-(-length // kernel.owned) * sequences, threads=kernel.threads,
                               shared=kernel.shared, turns=-(-length // kernel.streamed), persistent=kernel.persistent,
                               copied=kernel.copied * kernel.streamed * kernel.head)
    around = kernel.bytes * TOKENS * CHANNELS / gpu.copy_rate * 1e-9
    return prediction.predict(gpu, function, resources, launch).seconds + around


def points(folder):
    """[(family, GPU, passes, head, length, predicted TFLOP/s, published TFLOP/s)]"""
    code = compiled(KERNELS, folder)
    for (family, gpu, passes, head), speeds in PUBLISHED.items():
        for length, published in zip(LENGTHS, speeds):
            keys = [(family, one, head) for one in passes]
            seconds = sum(seconds_of(gpu, KERNELS[key], *code[key], length) for key in keys)
            flops = sum(KERNELS[key].flops for key in keys) * TOKENS * length * CHANNELS
            yield family, gpu.name, " + ".join(passes), head, length, flops / seconds * 1e-12, published


def table(folder):
    """The lines of a markdown table, and a sentence a family."""
    lines = ["| kernel | GPU | pass | head size | tokens | predicted TFLOP/s | published | ratio |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    ratios = {}
    for family, gpu, passes, head, length, predicted, published in points(folder):
        ratios.setdefault(family, []).append(predicted / published)
        lines.append(f"| {family} | {gpu} | {passes} | {head} | {length} | {predicted:.0f} | {published} | "
                     f"{predicted / published:.2f} |")
    lines.append("")
    for family, values in sorted(ratios.items()):
        mean = sum(values) / len(values)
        lines.append(f"{family}: {len(values)} points, mean ratio {mean:.2f}, largest / smallest "
                     f"{max(values) / min(values):.2f}.")
    return lines
