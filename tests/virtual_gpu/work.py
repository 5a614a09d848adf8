#!/usr/bin/env python3
"""What a training step of `base` gives the GPU to do is what tools/kernel_report/steps says, from which the time of a
step is predicted. Recorded with one sample, whose launches differ in grids and bytes alone. What a GPU of compute
capability 9.0 chooses instead of a recorded kernel is launched as tools/kernel_report/kernels.py says.

    work.py --isobar build-virtual-gpu/apps/isobar
"""
import argparse
import math
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "kernel_report"))

import kernels  # pylint: disable=wrong-import-position
import work  # pylint: disable=wrong-import-position

RECORDED = 16  # samples
COPIES = 128  # threads of a block that only copy, which kernels.py does not count


def unlike_on_hopper(isobar, folder):
    """A sentence for each kernel of `base` that a GPU of 9.0 does not launch as kernels.py says."""
    works = work.condensed(work.record(isobar, "base", 1, folder, 90), work.symbols(isobar))
    for kernel in kernels.KERNELS:
        if not kernel.instead or "(base" not in kernel.name:
            continue
        said = (kernel.launch.blocks // kernels.BATCH, kernel.launch.threads + COPIES, kernel.launch.shared)
        launched = {(math.prod(entry["grid"]), entry["threads"], entry["shared"]) for entry in works
                    if re.search(kernel.pattern, entry.get("function", ""))}
        if launched != {said}:
            yield f"{kernel.name}: launched with (blocks, threads, bytes shared) {launched}, kernels.py says {said}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    isobar = parser.parse_args().isobar.resolve()
    with tempfile.TemporaryDirectory(prefix="isobar_work_") as folder:
        works = work.condensed(work.record(isobar, "base", 1, pathlib.Path(folder)), work.symbols(isobar))
    today = work.without_batch(works, 1)
    recorded = work.without_batch(work.read("base", RECORDED), RECORDED)
    for sign, here, there in (("now", today, recorded), ("recorded", recorded, today)):
        for line, count in (here - there).items():
            print(f"{sign}: {count} more of {line}")
    if today != recorded:
        print("FAILED: for both configs: python3 tools/kernel_report record --isobar build-virtual-gpu/apps/isobar "
              f"--config base --batch {RECORDED}; then its `table --write`")
        return 1
    with tempfile.TemporaryDirectory(prefix="isobar_work_") as folder:
        unlike = list(unlike_on_hopper(isobar, pathlib.Path(folder)))
    if unlike:
        print("FAILED: " + "\n".join(unlike))
        return 1
    print(f"{sum(today.values())} pieces of work, as tools/kernel_report/steps has them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
