#!/usr/bin/env python3
"""One training step on an NVIDIA GPU, isobar beside PyTorch: forward, loss, backward and Adam on the same weights and
the same batch, which lies on the GPU. The programs take turns in one run, so that all meet the same machine.

    cmake --build --preset release --target isobar-train-step
    python3 bench/gpu_step.py [--config base] [--batch 16] [--dtypes bf16 tf32] [--peers eager compiled] [--save FILE]

Peers: PyTorch as it comes (eager), with torch.compile (compiled), with channels as the last axis (channels_last). All
of them have the fused Adam, their own choice among cuDNN's algorithms (cudnn.benchmark) and, in fp16, a loss scale.
isobar is timed without and with a CUDA graph. PyTorch waits for the GPU at the end of a round only, isobar in each
step.

Prints a table, and appends a JSON line a dtype to FILE. Memory is what tensors hold at most, as each side counts it.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import cpu_step
from stepper import Stepper

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = ("fp32", "tf32", "bf16", "fp16")
PEERS = ("eager", "compiled", "channels_last")
BATCHES = {"base": 16, "cnn": 32, "unet": 4}


class TorchStep:
    """A network on the GPU, with its batch."""

    def __init__(self, folder, config, dtype, peer):
        import torch
        from safetensors_file import load

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        torch.backends.cudnn.benchmark = True
        self.torch, self.config = torch, config
        self.mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype)
        self.scaler = torch.amp.GradScaler("cuda", enabled=dtype == "fp16")
        network = config.network()
        network.load_state_dict(load(folder / "weights.safetensors"))
        batch = load(folder / "batch.safetensors")
        self.input, self.target = batch["input"].cuda(), batch["target"].cuda()
        network = network.cuda()
        if peer == "channels_last":
            memory = torch.channels_last_3d if self.input.dim() == 5 else torch.channels_last
            network = network.to(memory_format=memory)
            self.input = self.input.contiguous(memory_format=memory)
        self.network = network
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, betas=config.betas, fused=True)
        self.loss = torch.compile(self.plain_loss) if peer == "compiled" else self.plain_loss

    def plain_loss(self, x, target):
        with self.torch.autocast("cuda", self.mixed or self.torch.bfloat16, enabled=self.mixed is not None):
            output = self.network(x)
        return self.config.loss(self.network, output.float(), target)

    def step(self):
        loss = self.loss(self.input, self.target)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


def torch_worker(folder, config, dtype, peer):
    step = TorchStep(folder, config, dtype, peer)
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            loss = step.step()
        step.torch.cuda.synchronize()
        seconds = (time.perf_counter() - begin) / int(line)
        print(json.dumps({"seconds": seconds, "loss": loss.item(),
                          "peak_bytes": step.torch.cuda.max_memory_allocated()}), flush=True)


def programs(folder, dtype, options):
    """{name: Stepper}"""
    isobar = [options.program, folder / "weights.safetensors", folder / "batch.safetensors", dtype, "cuda",
              options.config, *cpu_step.CONFIGS[options.config].assignments]
    torch = [sys.executable, __file__, "--worker", folder, "--config", options.config, "--dtypes", dtype, "--peers"]
    commands = {"isobar": isobar, "isobar, a graph": [*isobar, "cuda_graph=true"]}
    commands |= {f"PyTorch, {peer}": [*torch, peer] for peer in options.peers}
    return {name: Stepper(command, dict(os.environ)) for name, command in commands.items()}


def compare(folder, dtype, options):
    """{name: {seconds: [...], losses: [...], peak_bytes}}"""
    workers = programs(folder, dtype, options)
    first = {name: [worker.step(1) for _ in range(2)] for name, worker in workers.items()}
    for worker in workers.values():
        worker.step(options.steps)  # what libraries choose in the first steps is chosen by then
    rounds = [{name: worker.step(options.steps) for name, worker in workers.items()} for _ in range(options.rounds)]
    for worker in workers.values():
        worker.close()
    return {name: {"seconds": [r[name]["seconds"] for r in rounds],
                   "losses": [step["loss"] for step in first[name]] + [rounds[-1][name]["loss"]],
                   "peak_bytes": rounds[-1][name]["peak_bytes"]} for name in workers}


def circumstances(options):
    import torch

    asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                           capture_output=True, text=True, check=False).stdout.strip()
    return {"benchmark": "gpu_step", "date": datetime.date.today().isoformat(), "commit": options.commit, "gpu": asked,
            "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "config": options.config, "batch": options.batch, "steps": options.steps, "command": " ".join(sys.argv)}


def show(dtype, options, found):
    best = min(statistics.median(one["seconds"]) for name, one in found.items() if name.startswith("PyTorch"))
    for name, one in found.items():
        seconds = statistics.median(one["seconds"])
        losses = "  ".join(f"{loss:.6f}" for loss in one["losses"])
        print(f"{options.config:5} {options.batch:5} {dtype:5} {name:24} {1e3 * seconds:9.2f} "
              f"{options.batch / seconds:9.1f} {seconds / best:6.2f} {one['peak_bytes'] / 1e9:7.2f}  {losses}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base", choices=list(cpu_step.CONFIGS))
    parser.add_argument("--batch", type=int, help=", ".join(f"of {name} {size}" for name, size in BATCHES.items()))
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "tf32"], choices=DTYPES)
    parser.add_argument("--peers", nargs="+", default=["eager"], choices=PEERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="of a round (%(default)s)")
    parser.add_argument("--program", default=str(ROOT / "build" / "bench" / "isobar-train-step"))
    parser.add_argument("--commit", default="unknown", help="to write down")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE", help="append JSON")
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return torch_worker(options.worker, cpu_step.CONFIGS[options.config], options.dtypes[0], options.peers[0])
    options.batch = options.batch or BATCHES[options.config]
    if not os.access(options.program, os.X_OK):
        sys.exit(f"{options.program} is not there: build the target isobar-train-step first")
    print(f"{'':5} {'batch':>5} {'dtype':5} {'':24} {'ms':>9} {'samples/s':>9} {'ratio':>6} {'GB':>7}  "
          "losses of step 1, 2, the last", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cpu_step.write_problem(folder, cpu_step.CONFIGS[options.config], options.batch)
        for dtype in options.dtypes:
            found = compare(folder, dtype, options)
            show(dtype, options, found)
            if options.save:
                with open(options.save, "a", encoding="utf-8") as results:
                    results.write(json.dumps(circumstances(options) | {"dtype": dtype, "programs": found}) + "\n")


if __name__ == "__main__":
    main()
