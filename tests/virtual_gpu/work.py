#!/usr/bin/env python3
"""What a training step of `base` gives the GPU to do is what tools/kernel_report/steps says, from which the time of a
step is predicted. Recorded with one sample, whose launches differ in grids and bytes alone.

    work.py --isobar build-virtual-gpu/apps/isobar
"""
import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "kernel_report"))

import work  # pylint: disable=wrong-import-position

RECORDED = 16  # samples


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
    print(f"{sum(today.values())} pieces of work, as tools/kernel_report/steps has them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
