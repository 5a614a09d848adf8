#!/usr/bin/env python3
"""Rehearses lab/on_a_gpu on the virtual GPU: staged from a build folder, moved, and run in full with small sizes.
on_a_gpu_test.py tests how it handles checks that fail.

    rehearsal.py --build build-virtual-gpu
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import on_a_gpu_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEANINGLESS = "the times mean nothing"


def run(*command):
    done = subprocess.run([sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    print(done.stdout, flush=True)
    return done


def stage(build, folder):
    (folder / "predictions.json").write_text(json.dumps(on_a_gpu_test.PREDICTIONS))
    done = run(ROOT / "lab" / "on_a_gpu", "stage", folder / "made", "--build", build, "--rehearse", "--predictions",
               folder / "predictions.json")
    assert done.returncode == 0
    return (folder / "made").rename(folder / "moved here")


def rehearse(tree, results):
    """Returns (its output, its JSON, its page)."""
    done = run(tree / "on_a_gpu", "run", "--rehearse", "--predictions-for", "H100", "--results", results,
               "--limit", 500)
    (found,) = results.glob("*.json")
    (page,) = results.glob("*.md")
    return done, json.loads(found.read_text()), page.read_text()


def check_whole(tree, results):
    done, found, page = rehearse(tree, results)
    assert done.returncode == 0, f"status {done.returncode}"
    assert MEANINGLESS in done.stdout and MEANINGLESS in page
    states = {check["name"]: check["result"] for check in found["checks"]}
    assert "failed" not in states.values() and "time limit" not in states.values(), states
    assert states["kernel_tests: GELU"] == states["isobar train beside the CPU"] == "passed", states
    measured = {row["title"]: row for row in found["rows"]}
    left = [title for title, row in measured.items() if row["measured"] is None and row["section"] != "kinds"]
    assert not left, left
    assert measured["gelu_fwd (base)"]["ratio"] > 0 and "| gelu_fwd (base) | 137.0 |" in page
    assert {row["section"] for row in found["rows"]} == {"kernels", "products", "costs", "steps", "kinds"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory(prefix="isobar_rehearsal_") as name:
        folder = pathlib.Path(name)
        tree = stage(build, folder)
        check_whole(tree, folder / "results")
    return 0


if __name__ == "__main__":
    sys.exit(main())
