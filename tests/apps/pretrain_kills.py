#!/usr/bin/env python3
"""Kills `isobar pretrain-gpt` at random moments and goes on with it: the bits of the end are those of a run that nobody
disturbed, and the file that names the newest checkpoint is whole at every moment.

    pretrain_kills.py --isobar build-cpu/apps/isobar [--kills 6] [--ranks 4] [--pipeline 2] [--seed 1]
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from small_pretraining import MODEL, write_tokens

LENGTH = "--train-iters 60 --log-interval 10 --save-interval 7 --eval-interval 20 --eval-iters 2".split()
SECONDS = 120


def tensors_of(path):
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little"):]


def tracked(run):
    """The iteration that the tracker names; its folder must be there. None: there is no tracker yet."""
    tracker = run / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        return None
    iteration = int(tracker.read_text())
    assert (run / f"iter_{iteration:07d}" / "model.safetensors").exists(), f"{tracker} names {iteration}"
    return iteration


class Runs:
    def __init__(self, options, folder):
        self.isobar, self.folder = options.isobar.resolve(), folder
        self.layout = ["--ranks", str(options.ranks), "--pipeline-model-parallel-size", str(options.pipeline)]
        self.tokens = write_tokens(self.isobar, folder)

    def start(self, run):
        command = [self.isobar, "pretrain-gpt", *MODEL, *LENGTH, "--device", "cpu", "--data-path", self.tokens,
                   "--save", run, "--load", run, *self.layout]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, run):
        process = self.start(run)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        return out


def compare(whole, killed):
    assert tracked(killed) == 60
    for file in ("model.safetensors", "optimizer.safetensors"):
        same = tensors_of(whole / "iter_0000060" / file) == tensors_of(killed / "iter_0000060" / file)
        assert same, f"{file} of {killed.name} differs"
    losses = [[json.loads(line)["loss"] for line in open(run / "metrics.jsonl")] for run in (whole, killed)]
    assert losses[0] == losses[1], f"metrics.jsonl of {killed.name} differs"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=4, help="of the pipeline and of data")
    parser.add_argument("--pipeline", type=int, default=2, help="ranks that a copy of the model is cut over")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    numbers = random.Random(o.seed)
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(o, pathlib.Path(name))
        whole, killed = runs.folder / "whole", runs.folder / "killed"
        begin = time.monotonic()
        runs.finish(whole)
        seconds = time.monotonic() - begin
        assert tracked(whole) == 60
        made, seen, number = 0, set(), 0
        while made < o.kills:  # a run that is not killed before its end is compared, and the next one begins
            number += 1
            killed = runs.folder / f"killed{number}"
            is_done = False
            while made < o.kills and not is_done:
                process = runs.start(killed)
                time.sleep(numbers.uniform(0.05, 0.6) * seconds)
                process.send_signal(signal.SIGKILL)
                process.communicate()
                is_done = process.returncode != -signal.SIGKILL
                made += not is_done
                seen.add(tracked(killed))
            runs.finish(killed)
            compare(whole, killed)
        print(f"{made} kills of {number} runs, after checkpoints {sorted(seen, key=str)}: the bits of a whole run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
