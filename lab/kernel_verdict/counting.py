"""The instructions of compiled kernels by class, old and new, and tables of such figures."""
import re

import pipes
import toolkit

CLASSES = ("tensor", "fp", "ld/st", "branch", "other")


def class_of(instruction):
    """tensor: products of tensor cores; fp: arithmetic, comparisons and conversions of floating-point numbers; ld/st:
    loads, stores and copies of any memory; branch: what may go elsewhere; other: integers, moves, waits."""
    pipe = pipes.pipe_of(instruction)
    if pipe == "tensor":
        return "tensor"
    if pipe == "lsu":
        return "other" if re.fullmatch(r"SHFL|REDUX|MATCH|MOVM", instruction.name) else "ld/st"
    if pipe == "control":
        return "branch" if re.fullmatch(r"BRA|BRX|JMP|JMX|EXIT|RET|CALL|BREAK", instruction.name) else "other"
    if pipe == "fp64" or re.fullmatch(r"F(?!LO)\w+|H(ADD|MUL|FMA|SET|SETP|MNMX)2|MUFU|[IF]2FP?|F2IP?",
                                      instruction.name):
        return "fp"
    return "other"


def counts_of(instructions):
    """{"total" or a class: how many}"""
    counts = {"total": len(instructions), **dict.fromkeys(CLASSES, 0)}
    for instruction in instructions:
        counts[class_of(instruction)] += 1
    return counts


def kernels_in(cubin):
    """{demangled name: (Function, Resources)}; of kernels of one name those behind the first have a number."""
    kernels = toolkit.kernels_in(cubin)
    found = {}
    for (function, resources), name in zip(kernels, toolkit.demangled([function.name for function, _ in kernels])):
        same = sum(other == name or other.startswith(f"{name} #") for other in found)
        found[f"{name} #{same + 1}" if same else name] = function, resources
    return found


def short(name):
    """Without the namespaces that all of them have."""
    return re.sub(r"\bisobar::(?:cuda::)?(?:attention::)?|cuda::", "", name)


def change(old, new, unit=""):
    """ "812 → 790", or one figure where both are the same or the old one is not known (None)."""
    return f"{new}{unit}" if old is None or old == new else f"{old} → {new}{unit}"


def aligned(head, rows):
    """Lines of a table: its first column to the left, the others to the right."""
    widths = [max(len(str(row[at])) for row in [head, *rows]) for at in range(len(head))]
    return ["  ".join(str(cell).ljust(width) if at == 0 else str(cell).rjust(width)
                      for at, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in [head, *rows]]
