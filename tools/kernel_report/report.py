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


def compiled(build):
    """{(source, pattern, arch): (Function, Resources)} of the kernels of the table."""
    found = {}
    for source in sorted({kernel.source for kernel in kernels.KERNELS}):
        path = object_of(build, source)
        names = toolkit.names_of(path)
        shown = dict(zip(toolkit.demangled(names), names))
        patterns = sorted({kernel.pattern for kernel in kernels.KERNELS if kernel.source == source})
        wanted = {}
        for pattern in patterns:
            matches = [mangled for name, mangled in shown.items() if re.search(pattern, name)]
            if len(matches) != 1:
                raise ValueError(f"{source}: {len(matches)} kernels match {pattern} (tools/kernel_report/kernels.py)")
            wanted[matches[0]] = pattern
        for function, resources in toolkit.kernels_of(path, tuple(wanted)):
            found[source, wanted[function.name], function.arch] = function, resources
    return found


def floor_of(gpu, kernel):
    """Seconds that no kernel can beat: of bytes at the rate of a copy, or of products at the peak of 16 bits."""
    peak = gpu.tensor * gpus.QUARTERS * gpu.sms * gpu.clock * 2 * 1e9
    return max(kernel.launch.bytes / gpu.copy_rate * 1e-9, kernel.flops / peak)


def rows(build):
    """[(kernel, Gpu, Resources, Prediction)]"""
    code = compiled(build)
    for kernel in kernels.KERNELS:
        for gpu in gpus.GPUS:
            if gpu.name not in kernel.gpus:
                continue
            function, resources = code[kernel.source, kernel.pattern, gpu.code]
            yield kernel, gpu, resources, prediction.predict(gpu, function, resources, kernel.launch)


def table(found):
    """Markdown: a line for each kernel and GPU."""
    head = ["kernel", "GPU", "registers", "stack", "blocks an SM", "issued a turn", *_SHOWN, "MB", "binds",
            "predicted µs", "of the floor", "budget µs"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for kernel, gpu, resources, predicted in found:
        counts = pipes.counts_of(predicted.counts)
        budget = kernel.budget.get(gpu.name)
        cells = [kernel.name, gpu.name, resources.registers, resources.stack, predicted.resident,
                 len(predicted.counts), *(counts[pipe] for pipe in _SHOWN), f"{kernel.launch.bytes / 1e6:.0f}",
                 predicted.bound, f"{predicted.seconds * 1e6:.0f}",
                 f"{100 * floor_of(gpu, kernel) / predicted.seconds:.0f} %", f"{budget:.0f}" if budget else ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [f"Compiled by {toolkit.compiler()}.", "", *lines]


def over_budget(found):
    """A sentence for each kernel that is predicted to take longer than its budget."""
    for kernel, gpu, _, predicted in found:
        budget = kernel.budget.get(gpu.name)
        if budget and predicted.seconds * 1e6 > budget:
            yield (f"{kernel.name} on {gpu.name}: predicted {predicted.seconds * 1e6:.0f} µs, its budget is "
                   f"{budget:.0f} µs (tools/kernel_report/kernels.py)")


def mark(part, edge):
    return f"<!-- kernel_report {part}: {edge} -->"


def replaced(page, part, lines):
    """A page with the lines between the two marks of a part."""
    begin, end = page.index(mark(part, "begin")) + len(mark(part, "begin")), page.index(mark(part, "end"))
    return page[:begin] + "\n\n" + "\n".join(lines) + "\n\n" + page[end:]
