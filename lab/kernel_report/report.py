"""The table of the project's own kernels, docs/kernel_report.md, and what is over its budget."""
import pathlib
import re

import gpus
import kernels
import pipes
import prediction
import toolkit

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "kernel_report.md"
_SHOWN = ("tensor", "fma", "alu", "mufu", "lsu")


def object_of(build, source):
    target = "kernels_cuda_sm90" if "/sm90_" in source else "kernels_cuda"
    return build / "kernels" / "CMakeFiles" / f"{target}.dir" / f"{source}.o"


def missing_objects(build):
    """The sources of the table whose objects a build folder does not hold."""
    sources = sorted({kernel.source for kernel in kernels.KERNELS})
    return [source for source in sources if not object_of(build, source).is_file()]


def chosen(pattern):
    """The kernels of the table whose name matches; ValueError where none does."""
    if not (of := [kernel for kernel in kernels.KERNELS if re.search(pattern, kernel.name)]):
        raise ValueError(f"no kernel of the table matches {pattern} (lab/kernel_report/kernels.py)")
    return of


def compiled_in(path, source, of=kernels.KERNELS):
    """{(source, pattern, arch): (Function, Resources)} of those kernels of the table that are a source's, in what was
    compiled of it."""
    names = toolkit.names_of(path)
    shown = dict(zip(toolkit.demangled(names), names))
    wanted = {}
    for pattern in sorted({kernel.pattern for kernel in of if kernel.source == source}):
        matches = [mangled for name, mangled in shown.items() if re.search(pattern, name)]
        if len(matches) != 1:
            raise ValueError(f"{source}: {len(matches)} kernels match {pattern} (lab/kernel_report/kernels.py)")
        wanted[matches[0]] = pattern
    return {(source, wanted[function.name], function.arch): (function, resources)
            for function, resources in toolkit.kernels_of(path, tuple(wanted))}


def compiled(build, of=kernels.KERNELS):
    """The same of kernels of any sources; ValueError where one is not built."""
    found = {}
    for source in sorted({kernel.source for kernel in of}):
        path = object_of(build, source)
        if not path.is_file():
            raise ValueError(f"{path} is missing: `cmake --build {build} --target kernels` compiles it, in a build "
                             "folder with CUDA")
        found |= compiled_in(path, source, of)
    return found


def floor_of(gpu, kernel):
    """Seconds that no kernel can beat: of bytes at the rate of a copy, or of products at the peak of 16 bits."""
    peak = gpu.tensor * gpus.QUARTERS * gpu.sms * gpu.clock * 2 * 1e9
    return max(kernel.launch.bytes / gpu.copy_rate * 1e-9, kernel.flops / peak)


def predicted(code, of=kernels.KERNELS, on=gpus.GPUS):
    """[(kernel, Gpu, Resources, Prediction, (the least, the most) seconds of other schedulers)] of compiled code"""
    for kernel in of:
        for gpu in on:
            if gpu.name not in kernel.gpus:
                continue
            function, resources = code[kernel.source, kernel.pattern, gpu.code]
            yield (kernel, gpu, resources, prediction.predict(gpu, function, resources, kernel.launch),
                   prediction.range_of(gpu, function, resources, kernel.launch))


def rows(build, of=kernels.KERNELS):
    """What is predicted of kernels of a build folder, for all GPUs."""
    return predicted(compiled(build, of), of)


def micros(least, most):
    """A range of seconds in microseconds; one figure where both ends are it."""
    ends = [f"{1e6 * end:.0f}" for end in (least, most)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def dropout_table(build):
    """Markdown: what dropout costs attention. Instructions are those of a lane, for each score."""
    head = ["kernel", "GPU", "registers", "stack", "of dropout, instructions a score", "issued a score", "binds",
            "predicted µs"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    scores_of = {kernel.name: scores for kernel, scores in kernels.DROPOUT}
    for kernel, gpu, resources, predicted, ends in rows(build, [kernel for kernel, _ in kernels.DROPOUT]):
        scores = scores_of[kernel.name]
        function, _ = compiled(build, [kernel])[kernel.source, kernel.pattern, gpu.code]
        issued, without = (len(prediction.ways_of(function, inner)[1]) for inner in (kernel.launch.inner, 0))
        cells = [kernel.name, gpu.name, resources.registers, resources.stack, f"{(issued - without) / scores:.1f}",
                 f"{issued / scores:.1f}", predicted.bound, micros(*ends)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def table(found):
    """Markdown: a line for each kernel and GPU."""
    head = ["kernel", "GPU", "registers", "stack", "blocks an SM", "issued a turn", *_SHOWN, "MB", "binds",
            "predicted µs", "of other schedulers", "of the floor", "budget µs"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for kernel, gpu, resources, predicted, ends in found:
        counts = pipes.counts_of(predicted.counts)
        budget = kernel.budget.get(gpu.name)
        cells = [kernel.name, gpu.name, resources.registers, resources.stack, predicted.resident,
                 len(predicted.counts), *(counts[pipe] for pipe in _SHOWN), f"{kernel.launch.bytes / 1e6:.0f}",
                 predicted.bound, f"{predicted.seconds * 1e6:.0f}", micros(*ends),
                 f"{100 * floor_of(gpu, kernel) / predicted.seconds:.0f} %", f"{budget:.0f}" if budget else ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [f"Compiled by {toolkit.compiler()}.", "", *lines]


def over_budget(found):
    """A sentence for each kernel that is predicted to take longer than its budget."""
    for kernel, gpu, _, predicted, _ in found:
        budget = kernel.budget.get(gpu.name)
        if budget and predicted.seconds * 1e6 > budget:
            yield (f"{kernel.name} on {gpu.name}: predicted {predicted.seconds * 1e6:.0f} µs, its budget is "
                   f"{budget:.0f} µs (lab/kernel_report/kernels.py)")


def mark(part, edge):
    return f"<!-- kernel_report {part}: {edge} -->"


def replaced(page, part, lines):
    """A page with the lines between the two marks of a part."""
    begin, end = page.index(mark(part, "begin")) + len(mark(part, "begin")), page.index(mark(part, "end"))
    return page[:begin] + "\n\n" + "\n".join(lines) + "\n\n" + page[end:]
