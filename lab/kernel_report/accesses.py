"""What the memory accesses of the project's kernels cost: sectors and wavefronts, counted in the emulator by
isobar-accesses (lab/accesses), beside the least that such accesses could cost."""
import dataclasses
import json
import re
import subprocess

import kernels

# (memory, access): what the cost is counted in
KINDS = {("global", "load"): "sectors", ("global", "store"): "sectors", ("shared", "load"): "wavefronts",
         ("shared", "store"): "wavefronts"}

# Cost over the least that accesses of a kernel must not exceed, in the order of KINDS; 1 where it is not named here.
# It is what was counted when a kernel was last worked on.
BUDGETS = {
    # Four lanes write 16 bytes of a row of the output; copies take whole sectors of global memory to the tiles.
    **{f"{kernel} ({of})": (1.0, 2.0, 1.0, 2.0) for kernel in ("attention_fwd", "attention_dkdv", "attention_dq")
       for of in ("base, head 48", "mp, head 128")},
    **{f"{kernel} by wgmma ({of})": (1.0, 2.0, 1.0, 1.0)
       for kernel in ("attention_fwd", "attention_dkdv", "attention_dq") for of in ("base, head 48", "mp, head 128")},
    # Rows that eight lanes copy to a tile, and round there, begin 20 banks from each other.
    "attention_fwd in TF32 (base, head 48)": (1.0, 1.01, 1.18, 2.0),
    "attention_dkdv in TF32 (base, head 48)": (1.0, 1.0, 1.11, 2.0),
    "attention_dq in TF32 (base, head 48)": (1.0, 1.0, 1.14, 2.0),
    "attention_delta (base, head 48)": (1.01, 1.0, 1.0, 1.0),  # log-sum-exps whose rows begin anywhere
    # A lane takes four pixels of shared memory one by one; a run of a patch in 16 bits is half a sector.
    "patchify (base)": (1.0, 2.0, 2.58, 3.9),
    **{f"forecast_loss_{part} (base)": (1.0, 1.0, 1.99, 3.9) for part in ("sums", "bwd")},  # by the same tiles
    # Eight numbers in fp32 are two accesses, 32 bytes from those of the next lane.
    "add_row (base)": (2.0, 2.0, 1.0, 1.0),
    "cast (base)": (2.0, 1.0, 1.0, 1.0),
}


def program_in(build):
    return build / "lab" / "accesses" / "isobar-accesses"


def count(program):
    """What the program prints: {"compiler": ..., "kernels": [...]}, kernels in the order of the report's table."""
    if not program.is_file():
        raise ValueError(f"{program} is missing: `cmake --build {program.parents[2]} --target isobar-accesses` makes "
                         "it")
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    if run.returncode:
        raise ValueError(run.stderr.strip())
    counted = json.loads(run.stdout)
    names = list(dict.fromkeys(kernel.name for kernel in kernels.KERNELS))
    found = {one["kernel"]: one for one in counted["kernels"]}
    for name in set(names) ^ set(found):
        raise ValueError(f"{name} is in only one of lab/accesses/cases.cc and lab/kernel_report/kernels.py")
    return {"compiler": counted["compiler"], "kernels": [found[name] for name in names]}


@dataclasses.dataclass(frozen=True)
class Cost:
    requests: int
    moved: int
    least: int

    @property
    def over_least(self):
        return self.moved / self.least


def cost_of(one, memory, access=None):
    """Of a kernel's accesses of a kind, or of both kinds to a memory; None where there are none."""
    places = [place for place in one["places"] if place["memory"] == memory and access in (None, place["access"])]
    return Cost(*(sum(place[key] for place in places) for key in ("requests", "moved", "least"))) if places else None


def budget_of(name, kind):
    return BUDGETS.get(name, (1.0,) * len(KINDS))[list(KINDS).index(kind)]


def table(counted):
    """Markdown: a line for each kernel."""
    head = ["kernel", "sectors a request", "loads: over the least", "budget", "stores: over the least", "budget",
            "wavefronts a request", "loads: over the least", "budget", "stores: over the least", "budget"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for one in counted["kernels"]:
        cells = [one["kernel"]]
        for kind in KINDS:
            memory, access = kind
            if access == "load":
                both = cost_of(one, memory)
                cells.append(f"{both.moved / both.requests:.1f}" if both else "")
            cost = cost_of(one, *kind)
            cells += [f"{cost.over_least:.2f}", f"{budget_of(one['kernel'], kind):.2f}"] if cost else ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return [f"Counted in kernels compiled by {counted['compiler']}.", "", *lines]


def over_budget(counted):
    """A sentence for each kernel whose accesses cost more than its budget."""
    for one in counted["kernels"]:
        for kind, unit in KINDS.items():
            cost, budget = cost_of(one, *kind), budget_of(one["kernel"], kind)
            if cost and cost.over_least > budget + 0.005:  # the page has two digits
                memory, access = kind
                yield (f"{one['kernel']}: {access}s of {memory} memory cost {cost.over_least:.2f} times the least "
                       f"{unit}, the budget is {budget:.2f} (lab/kernel_report/accesses.py)")


def lines_of(program, address):
    """The source lines of code in a program, the innermost of inlined calls first; without wrappers of the emulator."""
    run = subprocess.run(["addr2line", "-i", "-e", program, hex(address - 1)], capture_output=True, text=True,
                         check=True)
    lines = [re.sub(r"^.*?/(?=kernels/)| \(discriminator.*$", "", line) for line in run.stdout.splitlines()]
    kept = [line for line in lines if not line.startswith(("kernels/emulator/", "??"))]
    return " < ".join(dict.fromkeys(kept))


def places(counted, program, pattern):
    """A line for each place of kernels whose name matches: the most above its least first."""
    for one in counted["kernels"]:
        if not re.search(pattern, one["kernel"]):
            continue
        yield one["kernel"]
        for place in sorted(one["places"], key=lambda place: place["least"] - place["moved"]):
            yield (f"{place['moved']:9} of {place['least']:9} in {place['requests']:7} requests: {place['memory']} "
                   f"{place['access']}, {lines_of(program, place['address'])}")
