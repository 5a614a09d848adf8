#!/usr/bin/env python3
"""Checks that the GPU's work in a training step of `base`, in bf16 and in TF32, is what lab/kernel_report/steps has:
the time of a step is predicted from that. It is recorded with one sample; only grids and bytes of its launches differ.
Kernels that a GPU of compute capability 9.0 chooses instead are launched as lab/kernel_report/kernels.py has them.

    work.py --isobar build-virtual-gpu/apps/isobar
"""
import argparse
import math
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab" / "kernel_report"))

import kernels  # pylint: disable=wrong-import-position
import work  # pylint: disable=wrong-import-position

RECORDED = 16  # samples
COPIES = 128  # threads of a block that only copy; kernels.py does not count them


def differences_on_hopper(isobar, folder):
    """A sentence for each kernel of `base` that a GPU of 9.0 launches differently from kernels.py."""
    works = work.condensed(work.record(isobar, work.STEPS["base"], 1, folder, 90), work.symbols(isobar))
    for kernel in kernels.KERNELS:
        if not kernel.instead or kernel.step != "base":
            continue
        said = (kernel.launch.blocks // kernels.BATCH, kernel.launch.threads + COPIES, kernel.launch.shared)
        launched = {(math.prod(entry["grid"]), entry["threads"], entry["shared"]) for entry in works
                    if re.search(kernel.pattern, entry.get("function", ""))}
        if launched != {said}:
            yield f"{kernel.name}: launched with (blocks, threads, bytes shared) {launched}, kernels.py says {said}"


def differs_from_record(isobar, name, folder):
    """Whether a step differs from the recorded one. Prints the differences, and the number of pieces of work."""
    works = work.condensed(work.record(isobar, work.STEPS[name], 1, folder), work.symbols(isobar))
    today, recorded = work.without_batch(works, 1), work.without_batch(work.read(name, RECORDED), RECORDED)
    for sign, here, there in (("now", today, recorded), ("recorded", recorded, today)):
        for line, count in (here - there).items():
            print(f"{name}, {sign}: {count} more of {line}")
    print(f"{name}: {sum(today.values())} pieces of work")
    return today != recorded


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    isobar = parser.parse_args().isobar.resolve()
    for name in ("base", "base_tf32"):
        with tempfile.TemporaryDirectory(prefix="isobar_work_") as folder:
            is_unlike = differs_from_record(isobar, name, pathlib.Path(folder))
        if is_unlike:
            print("FAILED: of each step: python3 lab/kernel_report record --isobar build-virtual-gpu/apps/isobar "
                  f"--of {name} --batch {RECORDED}; then its `table --write`")
            return 1
    with tempfile.TemporaryDirectory(prefix="isobar_work_") as folder:
        unlike = list(differences_on_hopper(isobar, pathlib.Path(folder)))
    if unlike:
        print("FAILED: " + "\n".join(unlike))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
