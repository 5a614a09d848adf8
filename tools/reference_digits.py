#!/usr/bin/env python3
"""The first losses of a run of the task "classification", computed once more in PyTorch from the same images and the
same initial weights: data, order of samples, network, loss, optimizer and schedule.

    isobar train --config mnist --data DIR --run-dir INITIAL --num-iters 1 --set lr=0 --set weight_decay=0
    isobar train --config mnist --data DIR --run-dir RUN --num-iters 100 --set log_every=1 --set dtype=fp64 \\
        --init INITIAL/checkpoints/step_00000001/model.safetensors
    python3 tools/reference_digits.py --data DIR --run RUN --losses 100 \\
        --initial INITIAL/checkpoints/step_00000001/model.safetensors

The run needs --init, because a file of weights is rounded to fp32. A run in fp64 must agree with PyTorch to 1e-9. A run
in fp32 may err twice as much as PyTorch in fp32 does, plus one rounding; both are measured against PyTorch in fp64. The
exit status is 1 where it does not hold.
"""
import argparse
import gzip
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

import reference_run
import reference_vit as reference
import safetensors_file

EXACT = 1e-9
FP32_ROUNDING = 2.0**-24


def read_idx(folder, name):
    """The bytes of an IDX file, plain or compressed, in their shape."""
    plain = folder / name
    data = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    assert data[:3] == b"\0\0\x08", f"{plain} holds no unsigned bytes"
    sizes = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * data[3]:]), dtype=torch.uint8).reshape(sizes)


def statistics(images):
    """Mean and standard deviation of all pixels."""
    counts, values = torch.bincount(images.flatten(), minlength=256), torch.arange(256, dtype=torch.float64)
    mean = (counts * values).sum() / counts.sum()
    return mean.item(), ((counts * (values - mean)**2).sum() / counts.sum()).sqrt().item()


def make_model(config, images, initial):
    patch, classes = config["patch_size"], config["classes"]
    model = reference.Classifier(images.shape[1:], patch, classes, config["embed_dim"], config["depth"],
                                 config["num_heads"], *statistics(images)).double()
    model.load_state_dict({name: tensor.double() for name, tensor in initial.items()})
    return model


def batches(config, labels):
    """Indices of one batch after another, for ever: epochs are shuffled, and an incomplete last batch is dropped."""
    size, epoch = config["global_batch_size"], 0
    while True:
        order = reference_run.shuffled(range(len(labels)), config["seed"], epoch)
        yield from reference_run.parts_of(order, size)[:len(order) // size]
        epoch += 1


def train(config, images, labels, initial, dtype, count):
    """The losses and gradient norms of the first `count` iterations, in fp64: [count] each."""
    model = make_model(config, images, initial).to(dtype)
    optimizer = reference_run.make_optimizer(config, model)
    losses, norms = [], []
    for done, batch in zip(range(count), batches(config, labels)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[batch].unsqueeze(1).to(dtype)), labels[batch].long())
        loss.backward()
        losses.append(loss.item())
        norms.append(reference_run.clip(config, model))
        reference_run.update(config, optimizer, done)
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def read_run(folder, count):
    """The losses and gradient norms of the first `count` iterations that the run has logged."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["event"] == "train"][:count]
    assert [line["iteration"] for line in lines] == list(range(1, count + 1)), "the run must be one with log_every=1"
    return [torch.tensor([line[key] for line in lines], dtype=torch.float64) for key in ("loss", "grad_norm")]


def check_config(config):
    assert config["task"] == "classification"
    assert config["dropout"] == 0 and config["amp_mode"] == "none", "masks and 16 bits are not imitated here"


def compare_exactly(run, exact):
    """fp64: whether all losses and norms are PyTorch's."""
    worst = [((a - b).abs() / b.abs()).max().item() for a, b in zip(run, exact)]
    print(f"largest relative difference: losses {worst[0]:.3g}, gradient norms {worst[1]:.3g} (may be {EXACT:g})")
    return max(worst) <= EXACT


def compare_with_fp32(run, exact, own):
    """fp32: whether the run errs at most twice as much as PyTorch's own fp32, plus one rounding."""
    holds = True
    for what, ours, theirs, true in zip(("losses", "gradient norms"), run, own, exact):
        error, yardstick = ((x - true).norm().item() for x in (ours, theirs))
        budget = 2 * yardstick + FP32_ROUNDING * true.norm().item()
        print(f"{what}: the run's error {error:.3g}, PyTorch's {yardstick:.3g}, {100 * error / budget:.0f} % of the "
              f"budget {budget:.3g}")
        holds = holds and error <= budget
    return holds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder of the four IDX files")
    parser.add_argument("--run", type=pathlib.Path, required=True, help="the run's folder")
    parser.add_argument("--initial", type=pathlib.Path, required=True, help="the weights that it started from")
    parser.add_argument("--losses", type=int, default=100, help="how many are compared")
    parser.add_argument("--dtype", choices=["fp64", "fp32"], help="what the run must have trained in")
    parser.add_argument("--threads", type=int, default=1)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    config = json.loads((o.run / "config.json").read_text())
    check_config(config)
    assert o.dtype in (None, config["dtype"]), f"the run trained in {config['dtype']}"
    images, labels = (read_idx(o.data, f"train-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    initial, run = safetensors_file.load(o.initial), read_run(o.run, o.losses)
    compute = lambda dtype: train(config, images, labels, initial, dtype, o.losses)
    exact = compute(torch.float64)
    print(f"{o.losses} losses from {exact[0][0]:.4f} to {exact[0][-1]:.4f}")
    holds = compare_exactly(run, exact) if config["dtype"] == "fp64" else \
        compare_with_fp32(run, exact, compute(torch.float32))
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
