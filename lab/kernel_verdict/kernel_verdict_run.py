#!/usr/bin/env python3
"""kernel_verdict_run.py --build BUILD: scripts/kernel as a user calls it, on gelu.cu beside HEAD, with BUILD's tests.
Exit status 77 (skipped) where BUILD is not the folder of the preset release, which the command builds in."""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    if build != ROOT / "build":
        print(f"skipped: {build} is not {ROOT / 'build'}")
        return SKIPPED
    command = [ROOT / "scripts" / "kernel", "gelu_fwd", "--against", "HEAD", "--preset", "release", "--tests",
               "gelu_fwd is the identity*"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    print(run.stdout + run.stderr)
    has_cuobjdump = "needs cuobjdump" not in run.stdout
    expected = [r"^== compiling gelu\.cu for sm_90$", r"^gelu_bwd_kernel \(sm_90\) +\d+", r"^nvcc [\d.]+, ",
                r"^== instructions", r"^== predicted", r"^== its tests, .*: tests/kernels/gelu\.cc$",
                r"^All tests passed \(\d+ assertions in 1 test case\)$",
                r"^== the CPU twin, timed: kernels/gelu_cpu\.cc$", r"^== measured on a GPU$",
                r"^verdict: (right|faster|slower): 2 kernels compile, none spills; .*1 tests pass"]
    if has_cuobjdump:
        expected += [r"^kernel +total +tensor +fp ", r"^gelu_fwd_kernel \(sm_90\) +\d+ ",
                     r"^gelu_fwd \(base\) +H100 +\w+"]
    missing = [words for words in expected if not re.search(words, run.stdout, re.MULTILINE)]
    if missing:
        print("not said:", *missing, sep="\n  ")
    right = run.stderr == "" and (run.returncode == 1) == ("verdict: slower" in run.stdout)
    return 1 if missing or not right else 0


if __name__ == "__main__":
    sys.exit(main())
