#!/usr/bin/env python3
"""Turns the checkpoints of NERSC's course on several GPUs (ckpt.tar, pickles of PyTorch) into weights for isobar, and
isobar's checkpoints of the network `cnn` into files that the course's program goes on from.

    python3 tools/ckpt_tar.py outputs/default/0/checkpoints/ckpt.tar weights.safetensors
    isobar train --config cnn --init weights.safetensors

    python3 tools/ckpt_tar.py RUN/checkpoints/step_00000100 ckpt.tar [--ddp]

Names with and without `module.` are read; --ddp writes them with it, as the course's program does on several GPUs. The
way back has the weights, Adam's moments, and the schedule. Needs PyTorch and NumPy. A pickle is read as data only: what
would run code in it is refused by PyTorch.
"""
import argparse
import json
import pathlib
import sys
import warnings

try:
    import numpy  # noqa: F401, of safetensors_file
    import torch
except ImportError as missing:
    sys.exit(f"ckpt_tar.py: {missing.name} is not installed; these checkpoints are PyTorch's own files: "
             "pip install torch numpy")

import reference_cnn
import safetensors_file

PREFIX = "module."


def to_safetensors(source, target):
    state = torch.load(source, map_location="cpu", weights_only=True)
    weights = {name.removeprefix(PREFIX): tensor.float() for name, tensor in state["model_state"].items()}
    safetensors_file.save(weights, target)
    print(f"{target}: {len(weights)} tensors, {sum(t.numel() for t in weights.values())} numbers, after epoch "
          f"{state['epoch'] + 1}")


def metadata_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]


def to_pickle(source, target, prefix):
    config = json.loads(metadata_of(source / "model.safetensors")["isobar.config"])
    assert config["model"] == "cnn", f"{source} is of the network {config['model']}"
    moments = safetensors_file.load(source / "optimizer.safetensors")
    state = json.loads((source / "state.json").read_text())
    model = reference_cnn.CNN(config["n_in_channels"], config["n_out_channels"], config["depth"], config["width"])
    model.load_state_dict(safetensors_file.load(source / "model.safetensors"))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"], betas=tuple(config["betas"]), eps=config["eps"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=config["decay_epochs"])
    epochs, updates = state["cursor"]["epoch"], float(state["trainer"]["updates"])
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {"step": torch.tensor(updates), "exp_avg": moments[f"m.{name}"],
                                      "exp_avg_sq": moments[f"v.{name}"]}
    with warnings.catch_warnings():  # the optimizer has made no step in this process
        warnings.simplefilter("ignore")
        for _ in range(epochs):
            schedule.step()
    torch.save({"iters": state["trainer"]["iteration"], "epoch": epochs - 1,
                "model_state": {prefix + name: tensor for name, tensor in model.state_dict().items()},
                "optimizer_state_dict": optimizer.state_dict(), "scheduler_state_dict": schedule.state_dict()}, target)
    print(f"{target}: after epoch {epochs} and {state['trainer']['iteration']} updates")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--ddp", action="store_true", help="names with module.")
    options = parser.parse_args()
    if options.source.is_dir():
        to_pickle(options.source, options.target, PREFIX if options.ddp else "")
    else:
        to_safetensors(options.source, options.target)


if __name__ == "__main__":
    main()
