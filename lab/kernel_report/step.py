"""Predicts a training step: every launch of it, products, copies, and the gaps between them.

The list of work is the program's own (work.py). A kernel takes the time that prediction.py finds for it. What is not
the project's own code is taken from published figures:

    products   RATE_OF_PRODUCTS of what cuBLAS reaches of large products in bf16 (gpus.py), or their bytes at that of
               a copy. No figure is published for products as narrow as these; 0.75 to 0.87 is what one may expect
    gaps       between two launches of a stream 1 to 2 µs pass
    waits      the host waits for the stream, and only then queues more: WAIT, of a wake-up and the first launch
    uploads    from pinned memory over PCIe at 25 GB/s (version 4, A100) and 52 GB/s (version 5); from the stream of
               the kernels they run alone, from another one beside them
"""
import collections
import dataclasses
import re

import gpus
import kernels
import loops
import prediction
import report
import sass
import toolkit
import work

# What another simulator and public measurements make of these figures: how much longer each kind of work takes, at
# best, as is expected, and at worst (docs/kernel_report.md, "Two opinions, and what would decide").
CORRECTED = {"products": (1.12, 1.21, 1.31), "memory": (1.05, 1.15, 1.30)}
# Attention: by mma.sync, and by wgmma for heads of 48 and of 128; forward, backward.
BY_MMA_SYNC = ((1.10, 1.15, 1.19), (1.10, 1.15, 1.19))
BY_WGMMA = {"base": ((1.19, 1.21, 1.25), (1.11, 1.28, 1.50)), "mp": ((1.01, 1.05, 1.09), (1.00, 1.08, 1.16))}
RATE_OF_PRODUCTS = 0.81
GAP, WAIT = 1.5e-6, 30e-6  # seconds
ATTENTION = ("attention_fwd", "attention_dkdv", "attention_dq")
PRODUCTS, GAPS, WAITS, UPLOADS = "products (cuBLASLt)", "gaps between launches", "waits of the host", "uploads"


@dataclasses.dataclass
class Share:
    """Of a step: what one kind of work takes."""
    launches: int = 0
    bytes: float = 0
    seconds: float = 0
    floor: float = 0  # seconds


def kind_of(entry):
    """What a line of the table is about: stages of a sum belong to the kernel before them."""
    return PRODUCTS if entry["work"] == "product" else entry["work"].split(":")[0]


def entry_of(step, name, moved=None):
    """The kernel of kernels.py that a function is, or None; where it is known how many bytes it moves, of several
    shapes the nearest one, and none that moves three times as much. (Where operands are one structure, less is known
    to be moved than that.)"""
    matches = [kernel for kernel in kernels.KERNELS if kernel.step == step and re.search(kernel.pattern, name)]
    if moved is None:
        return matches[0] if matches else None
    alike = [kernel for kernel in matches if kernel.launch.bytes <= 3 * moved]
    return min(alike, key=lambda kernel: abs(kernel.launch.bytes - moved), default=None)


def stand_in_of(step, gpu, name):
    """The kernel that a GPU chooses instead of a recorded one, or None."""
    return next((kernel for kernel in kernels.KERNELS if kernel.instead and gpu.name in kernel.gpus and
                 kernel.step == step and re.search(kernel.instead, name)), None)


def objects_of(build, step, name):
    """The objects in which a kernel may lie: its source's where kernels.py knows it, else all that hold its name."""
    if known := entry_of(step, name):
        return [report.object_of(build, known.source)]
    own = re.sub(r"<.*", "", name).rsplit("::", 1)[-1].encode()
    return [path for path in sorted(report.object_of(build, "").parent.rglob("*.cu.o")) if own in path.read_bytes()]


def compiled(build, step, names):
    """{plain name: {arch: (Function, Resources)}} of kernels anywhere in a build folder."""
    found, listed = {}, {}
    for name in sorted(names):
        for path in objects_of(build, step, name):
            if path not in listed:
                mangled = toolkit.names_of(path)
                listed[path] = {work.plain(shown): own for own, shown in zip(mangled, toolkit.demangled(mangled))}
            if name in listed[path]:
                codes = toolkit.kernels_of(path, (listed[path][name],))
                found[name] = {function.arch: (function, resources) for function, resources in codes}
                break
        else:
            raise ValueError(f"{build} holds no kernel {name}, which a step launches (lab/kernel_report/steps)")
    return found


def launch_of(step, entry, function):
    """How a kernel is launched. Turns of its loop and bytes come from kernels.py, where it knows the kernel; else from
    the bytes of its operands, and how many of them one turn moves."""
    blocks = entry["grid"][0] * entry["grid"][1] * entry["grid"][2]
    known = entry_of(step, entry["function"], entry["bytes"])
    moved = min(entry["bytes"], known.launch.bytes) if known else entry["bytes"]
    if known and known.launch.on(work.RECORDED_ON).blocks == blocks:
        return dataclasses.replace(known.launch, bytes=moved)
    turn = prediction.ways_of(function)[1]
    a_turn = sum(sass.width_of(one.opcode) for one in turn if loops.work_of(one)) * blocks * entry["threads"]
    return prediction.Launch(blocks, entry["threads"], entry["shared"], moved / a_turn if a_turn else 1, moved, True)


def product(gpu, entry):
    """(seconds, floor, bytes) of one product; in TF32, which operands of four bytes are, at half the rate."""
    flops = 2 * entry["m"] * entry["n"] * entry["k"] * (2 if entry["bytes_of_a"] == 4 else 1)
    outputs = entry["m"] * entry["n"] * entry["bytes_of_d"] * (2 if entry["reads_c"] else 1)
    moved = (entry["m"] + entry["n"]) * entry["k"] * entry["bytes_of_a"] + outputs
    peak = gpu.tensor * 4 * gpu.sms * gpu.clock * 2e9
    memory = moved / gpu.copy_rate * 1e-9
    return max(flops / (RATE_OF_PRODUCTS * gpu.cublas * 1e12), memory), max(flops / peak, memory), moved


def shares(gpu, step, works, code, known_code=None):
    """{kind: Share} of a step. `code` is that of the kernels that were recorded, `known_code` that of kernels.py."""
    found = collections.defaultdict(Share)
    kernel_streams = {entry["stream"] for entry in works if "function" in entry}

    def add(kind, entry, seconds, floor=0.0, moved=0.0):
        share, count = found[kind], entry["count"]
        share.launches += count
        share.bytes += count * moved
        share.seconds += count * seconds
        share.floor += count * floor

    for entry in works:
        if "function" in entry:
            known = stand_in_of(step, gpu, entry["function"])
            if known:
                function, resources = known_code[known.source, known.pattern, gpu.code]
                launch = known.launch
            else:
                function, resources = code[entry["function"]][gpu.code]
                launch = launch_of(step, entry, function)
                known = entry_of(step, entry["function"], entry["bytes"])
            predicted = prediction.predict(gpu, function, resources, launch)
            floor = report.floor_of(gpu, dataclasses.replace(known, launch=launch)) if known else predicted.floor
            add(kind_of(entry), entry, predicted.seconds, floor, launch.bytes)
            add(GAPS, entry, GAP)
        elif entry["work"] == "product":
            add(PRODUCTS, entry, *product(gpu, entry))
            add(GAPS, entry, GAP)
        elif entry["work"] == "synchronisation":
            add(WAITS, entry, WAIT)
        elif entry["work"].startswith("copy to") and entry["stream"] in kernel_streams:
            add(UPLOADS, entry, entry["bytes"] / gpu.host_rate * 1e-9 + GAP, moved=entry["bytes"])
        elif entry["work"] == "copy within the device":
            add(kind_of(entry), entry, 2 * entry["bytes"] / gpu.copy_rate * 1e-9 + GAP, moved=2 * entry["bytes"])
    return beside(gpu, works, found, kernel_streams)


def corrected(gpu, step, found):
    """(at best, as is expected, at worst): the seconds of a step, of the shares of its kinds of work."""
    forward, backward = BY_WGMMA.get(step, BY_MMA_SYNC) if gpu.wgmma else BY_MMA_SYNC

    def factors(kind):
        if kind in (GAPS, WAITS, UPLOADS):
            return (1, 1, 1)
        if kind in ATTENTION:
            return forward if kind == "attention_fwd" else backward
        return CORRECTED["products" if kind == PRODUCTS else "memory"]

    return tuple(sum(share.seconds * factors(kind)[i] for kind, share in found.items()) for i in range(3))


def beside(gpu, works, found, kernel_streams):
    """Uploads in a stream of their own take only what is longer than all else."""
    apart = [entry for entry in works
             if entry["work"] == "copy to the device" and entry["stream"] not in kernel_streams]
    if apart:
        seconds = sum(entry["count"] * entry["bytes"] for entry in apart) / gpu.host_rate * 1e-9
        rest = sum(share.seconds for share in found.values())
        found[UPLOADS].launches += sum(entry["count"] for entry in apart)
        found[UPLOADS].seconds += max(0.0, seconds - rest)
    return dict(found)


def bytes_an_element(step, batch, works, code, gpu):
    """Of passes over memory in the blocks: what kernels move, other than attention and products, that run at least once
    a block (the last block's may differ), over numbers of one activation and layer."""
    of, moved = work.STEPS[step], 0
    for entry in works:
        if "function" in entry and entry["count"] >= of.depth - 1 and entry["work"] not in ATTENTION:
            moved += entry["count"] * launch_of(step, entry, code[entry["function"]][gpu.code][0]).bytes
    return moved / (of.depth * of.width * batch * kernels.TOKENS)


def page_lines(build):
    """What docs/kernel_report.md says about steps."""
    tables = [table(step, kernels.BATCH, gpus.GPUS, build) for step in work.STEPS]
    return [line for lines in tables for line in ["", *lines]][1:]


def table(step, batch, gpus_, build):
    """Markdown: a line a kind of work, the longest on the last GPU first, and a sentence."""
    works = work.read(step, batch)
    code = compiled(build, step, {entry["function"] for entry in works if "function" in entry})
    known_code = report.compiled(build)
    of = {gpu.name: shares(gpu, step, works, code, known_code) for gpu in gpus_}
    last = gpus_[-1].name
    seconds = {name: sum(share.seconds for share in found.values()) for name, found in of.items()}
    head = ["kind of work", "launches", "GB", *(f"{gpu.name} ms" for gpu in gpus_), f"share ({last})",
            f"floor ms ({last})"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for kind, share in sorted(of[last].items(), key=lambda item: -item[1].seconds):
        cells = [kind, share.launches, f"{share.bytes / 1e9:.2f}",
                 *(f"{found[kind].seconds * 1e3:.2f}" for found in of.values()),
                 f"{100 * share.seconds / seconds[last]:.1f} %", f"{share.floor * 1e3:.2f}" if share.floor else ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    floor = sum(share.floor for share in of[last].values())
    lines.append("| **step** |  |  | " + " | ".join(f"**{value * 1e3:.1f}**" for value in seconds.values()) +
                 f" |  | {floor * 1e3:.1f} |")
    after = {gpu.name: corrected(gpu, step, of[gpu.name]) for gpu in gpus_}
    lines.append("| **step, corrected** |  |  | " +
                 " | ".join(f"**{expected * 1e3:.1f}**" for _, expected, _ in after.values()) + " |  |  |")
    rates = ", ".join(f"{batch / expected:.0f} ({batch / worst:.0f} to {batch / best:.0f}) on {name}"
                      for name, (best, expected, worst) in after.items())
    raw = ", ".join(f"{batch / value:.0f}" for value in seconds.values())
    lines += ["", f"`{step}`, batch {batch}, predicted: {rates} samples a second after correction; {raw} before it. "
              "Passes over memory in the blocks "
              f"move {bytes_an_element(step, batch, works, code, gpus_[-1]):.0f} bytes an element and layer."]
    return lines
