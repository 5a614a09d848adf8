#!/usr/bin/env python3
"""random_layouts.py --isobar PROGRAM [--count N] [--seed S] [--first K]: layouts drawn at random, each beside one rank.

Draws layouts of 2 to 16 ranks (dp, tp, cp, the order of the mesh, the form of attention, sequence parallel, a sharded
optimizer over all ranks or over groups, sizes of buckets) and models (dropout, recompute, clipping that bites, parts of
a batch, a loss; a forecaster or a classifier), and runs `isobar check` on each in fp64, where a tensor may be 1e-12 of
its largest element apart. A layout that is refused must be told by one sentence that is known here. Names the layouts
that fail, and ends with the number of those that passed; layout K of a seed is the same in every run.
"""
import argparse
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

REFUSALS = [r"context form all-to-all deals \d+ heads over \d+ ranks",
            r"tensor-parallel ranks share \d+ (heads|hidden channels)"]


def write_images(folder):
    """Four IDX files of random images and labels."""
    draw = random.Random(1)
    folder.mkdir()
    for name, count in (("train", 64), ("t10k", 16)):
        pixels = bytes(draw.randrange(256) for _ in range(count * 28 * 28))
        labels = bytes(draw.randrange(10) for _ in range(count))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def draw_layout(draw, is_classifier):
    """The flags of a layout of 2 to 16 ranks."""
    while True:
        tp, cp, dp = draw.randint(1, 4), 1 if is_classifier else draw.randint(1, 7), draw.randint(1, 6)
        if 2 <= tp * cp * dp <= 16:
            break
    axes = ["tp", "cp", "dp"]
    draw.shuffle(axes)
    flags = ["--ranks", tp * cp * dp, "--tensor-parallel", tp, "--context-parallel", cp]
    flags += ["--parallel-order", "-".join(axes)]
    flags += ["--bucket-cap-mb", draw.choice([0.00001, 0.01, 0.1, 25])]
    if cp > 1:
        flags += ["--context-form", draw.choice(["automatic", "all-to-all", "gather", "ring"])]
    if draw.random() < 0.5:
        flags.append("--sequence-parallel")
    shards = draw.choice(["none", "all", "group", "group"])
    if shards == "all":
        flags.append("--shard-optimizer")
    if shards == "group":
        flags += ["--shard-optimizer", draw.choice(divisors(dp * cp))]
    return flags


def draw_case(draw, folder):
    """The whole command line behind `isobar check`."""
    is_classifier = draw.random() < 0.2
    heads = draw.choice([4, 5, 8])
    keys = {"dtype": "fp64", "warmup": 0, "embed_dim": 8 * heads, "num_heads": heads,
            "dropout": draw.choice([0.0, 0.1]), "recompute": draw.choice(["true", "false"]),
            "grad_clip": draw.choice([0, 0.01]), "grad_accumulation": draw.choice([1, 2]),
            "optimizer": draw.choice(["adam", "adamw"])}
    if not is_classifier:
        keys |= {"patch_size": 2, "predict_change": draw.choice(["true", "false"]),
                 "loss": draw.choice(["relative_l2", "weighted_mse", "relative_l2_weighted"])}
    config, data = ("mnist", folder / "images") if is_classifier else ("tiny", folder / "planet")
    command = ["check", "--config", config, "--data", data, "--threads", 1, *draw_layout(draw, is_classifier)]
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    return [str(word) for word in command]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isobar", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    passed = refused = 0
    failed = []
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = lambda words: subprocess.run([options.isobar, *words], capture_output=True, text=True, timeout=600)
        made = run(["data", "synth", "--out", str(folder / "planet"), "--train-years", "1", "--valid-years", "1",
                    "--steps-per-year", "40", "--grid", "14x8", "--channels", "3"])
        if made.returncode != 0:
            sys.exit(made.stderr)
        write_images(folder / "images")
        for number in range(options.first, options.first + options.count):
            command = draw_case(random.Random(f"{options.seed}/{number}"), folder)
            ended = run(command)
            sentence = ended.stderr.strip()
            if ended.returncode == 0 and ended.stdout.endswith("\npassed\n"):
                passed += 1
                worst = max([worst, *map(float, re.findall(r"^(?:gradients|weights) +(\S+) of", ended.stdout, re.M))])
            elif ended.returncode == 1 and sentence.count("\n") == 0 and any(re.search(r, sentence) for r in REFUSALS):
                refused += 1
            else:
                failed.append(number)
                print(f"layout {number}: isobar {' '.join(command)}\n{ended.stdout}{ended.stderr}", flush=True)
    print(f"{passed} layouts passed, at most {worst:.1e} of the largest element apart; {refused} refused, "
          f"{len(failed)} failed {failed if failed else ''}")
    if passed == 0 or failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
