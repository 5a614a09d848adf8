#!/usr/bin/env python3
"""One training step on the CPU, isobar beside PyTorch: forward, loss, backward and Adam on the same weights and the
same batch, in fp32 and in bf16 (autocast). Two processes take turns, so that both meet the same machine; each one's
peak resident memory is its own. With --old, this build beside an older one instead. --config: `base`, the ViT; `cnn`,
the course's network; `unet`, the 3-D U-Net of 117 million parameters; `gpt2`, the GPT-2 of 124 million, whose step is
of AdamW and of 1,024 tokens a sample.

    cmake --build --preset release --target isobar-train-step
    pip install torch numpy
    python3 bench/cpu_step.py [--config base] [--rounds 3] [--threads 2] [--batch N] [--dtypes fp32 bf16] [--save]
    python3 bench/cpu_step.py --old OLD_BUILD/bench/isobar-train-step [--rounds 10] [--dtypes fp32]
    python3 bench/cpu_step.py --isa avx512_bf16 --torch-isa AVX512_CORE_BF16    # both as on a CPU without AMX

Prints a table, and appends a JSON line a dtype to bench/results/cpu_step.jsonl with --save (not with --old).
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

from stepper import Stepper

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "cpu_step.jsonl"
sys.path.insert(0, str(ROOT / "tools"))


class Problem:
    """What both programs compute."""

    @staticmethod
    def optimizer(network, config):
        import torch
        return torch.optim.Adam(network.parameters(), lr=config.learning_rate, betas=config.betas, fused=True)

    @staticmethod
    def output(network, batch):
        return network(batch["input"])

    @staticmethod
    def target(batch):
        return batch["target"]


class Base(Problem):
    batch, betas, learning_rate, assignments = 1, (0.9, 0.95), 5e-4, []

    @staticmethod
    def network():
        import reference_vit
        return reference_vit.ViT()

    @staticmethod
    def problem(batch):
        import torch
        return {name: torch.randn(batch, 20, 360, 720) for name in ("input", "target")}

    @staticmethod
    def loss(network, output, target):
        import reference_vit
        return reference_vit.relative_l2(output, target)


class WithOwnLoss(Problem):
    betas = 0.9, 0.999

    @staticmethod
    def loss(network, output, target):
        return network.loss(output, target)


class Cnn(WithOwnLoss):
    batch, learning_rate, assignments = 32, 1e-3, []

    @staticmethod
    def network():
        import reference_cnn
        return reference_cnn.CNN(1, 1)

    @staticmethod
    def problem(batch):
        import torch
        return {name: torch.rand(batch, 1, 128, 128) for name in ("input", "target")}


class Unet(WithOwnLoss):
    batch, learning_rate = 2, 2e-4
    assignments = ["volumes=synthetic", "lr=2e-4", "warmup=0", "batch_lr_scaling=none"]

    @staticmethod
    def network():
        import reference_unet
        return reference_unet.UNet(4, 5)

    @staticmethod
    def problem(batch):
        import torch
        return {"input": torch.randn(batch, 4, 64, 64, 64), "target": torch.randn(batch, 5, 64, 64, 64).tanh(),
                "turn": torch.zeros(batch, dtype=torch.int32)}


class Gpt2(WithOwnLoss):
    """Every row of the table is a class: PyTorch need not copy the columns of a vocabulary out of the logits."""
    tokens, vocabulary, decay = 1024, 50304, 0.1
    batch, betas, learning_rate = 2, (0.9, 0.95), 6e-4
    assignments = ["global_batch_size=2", "grad_accumulation=1", "grad_clip=0", "warmup=0", "lr_schedule=constant",
                   f"vocab_size={vocabulary}", f"weight_decay={decay}", f"lr={learning_rate}"]

    @staticmethod
    def network():
        import reference_gpt
        network = reference_gpt.GPT(Gpt2.vocabulary, Gpt2.vocabulary, Gpt2.tokens, 768, 12, 12, 64, 3072, "tanh", True,
                                    tied=True, live=True)
        for name, weight in network.named_parameters():
            if weight.dim() == 2:
                weight.data.normal_(0, 0.02 / (24**0.5 if name.endswith(("proj.weight", "fc2.weight")) else 1))
            elif name.endswith("bias"):
                weight.data.zero_()
        return network

    @staticmethod
    def problem(batch):
        import torch
        return {"tokens": torch.randint(0, Gpt2.vocabulary, (batch, Gpt2.tokens + 1), dtype=torch.int32)}

    @staticmethod
    def optimizer(network, config):
        import torch
        groups = [{"params": [p for p in network.parameters() if (p.dim() == 2) == decays],
                   "weight_decay": config.decay * decays} for decays in (True, False)]
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)

    @staticmethod
    def output(network, batch):
        return network(batch["tokens"][:, :-1])

    @staticmethod
    def target(batch):
        return batch["tokens"][:, 1:].long()


CONFIGS = {"base": Base, "cnn": Cnn, "unet": Unet, "gpt2": Gpt2}


def torch_worker(folder, config, dtype, threads):
    import torch
    from safetensors_file import load

    torch.set_num_threads(threads)
    network = config.network()
    network.load_state_dict(load(folder / "weights.safetensors"))
    batch = load(folder / "batch.safetensors")
    optimizer = config.optimizer(network, config)
    for _ in sys.stdin:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            output = config.output(network, batch)
        loss = config.loss(network, output, config.target(batch))
        del output
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"seconds": time.perf_counter() - begin, "loss": loss.item()}), flush=True)


def write_problem(folder, config, batch):
    import torch
    from safetensors_file import save

    torch.manual_seed(0)
    tensors = config.problem(batch)
    save({name: p.detach() for name, p in config.network().state_dict().items()}, folder / "weights.safetensors")
    save(tensors, folder / "batch.safetensors")


def stepper(command, options, limits):
    return Stepper(command, os.environ | {"OMP_NUM_THREADS": str(options.threads)} | limits)


def isobar_stepper(program, folder, dtype, options):
    command = [program, folder / "weights.safetensors", folder / "batch.safetensors", dtype, options.threads]
    if options.config != "base":  # older builds know no other
        command += [options.config] + CONFIGS[options.config].assignments
    return stepper(command, options, {"ISOBAR_MAX_ISA": options.isa} if options.isa else {})


def torch_stepper(folder, dtype, options):
    command = [sys.executable, __file__, "--worker", folder, "--config", options.config, "--dtypes", dtype, "--threads",
               options.threads]
    return stepper(command, options, {"ONEDNN_MAX_CPU_ISA": options.torch_isa} if options.torch_isa else {})


def compare(folder, dtype, options):
    workers = {"isobar": isobar_stepper(options.program, folder, dtype, options),
               "torch": torch_stepper(folder, dtype, options)}
    rounds = [{name: worker.step() for name, worker in workers.items()} for _ in range(1 + options.rounds)]
    peak = {name: worker.close() for name, worker in workers.items()}
    seconds = {name: [r[name]["seconds"] for r in rounds[1:]] for name in workers}  # the first round warms up
    return {
        "dtype": dtype,
        "isobar_seconds": seconds["isobar"],
        "torch_seconds": seconds["torch"],
        "ratio_of_medians": statistics.median(seconds["isobar"]) / statistics.median(seconds["torch"]),
        "ratio_of_minima": min(seconds["isobar"]) / min(seconds["torch"]),
        "isobar_peak_bytes": peak["isobar"],
        "torch_peak_bytes": peak["torch"],
        "memory_ratio": peak["isobar"] / peak["torch"],
        "losses": {name: [r[name]["loss"] for r in rounds] for name in workers},
    }


def circumstances(options):
    import torch

    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    return {"benchmark": "cpu_step", "date": datetime.date.today().isoformat(), "commit": commit, "cpu": cpu,
            "amx": "amx_bf16" in flags, "avx512_bf16": "avx512_bf16" in flags, "isa": options.isa,
            "torch_isa": options.torch_isa, "load_average": os.getloadavg()[0],
            "threads": options.threads, "config": options.config, "batch": options.batch,
            "torch": torch.__version__, "system": platform.platform(), "command": " ".join(sys.argv)}


def compare_with_torch(folder, options):
    print(f"{'dtype':5} {'isobar s':>9} {'torch s':>9} {'ratio':>6} {'of minima':>9} {'isobar MB':>10} {'torch MB':>9} "
          f"{'ratio':>6}  losses of step 1, 2", flush=True)
    for dtype in options.dtypes:
        r = compare(folder, dtype, options)
        medians = [statistics.median(r[f"{name}_seconds"]) for name in ("isobar", "torch")]
        losses = "  ".join(f"{r['losses']['isobar'][i]:.6f} / {r['losses']['torch'][i]:.6f}" for i in (0, 1))
        print(f"{dtype:5} {medians[0]:9.2f} {medians[1]:9.2f} {r['ratio_of_medians']:6.2f} "
              f"{r['ratio_of_minima']:9.2f} {r['isobar_peak_bytes'] / 1e6:10.0f} "
              f"{r['torch_peak_bytes'] / 1e6:9.0f} {r['memory_ratio']:6.2f}  {losses}", flush=True)
        if options.save:
            RESULTS.parent.mkdir(exist_ok=True)
            with open(RESULTS, "a") as results:
                results.write(json.dumps(circumstances(options) | r) + "\n")


# ---- Beside an older build -------------------------------------------------------------------------------------------


def step_of_fresh_process(program, folder, dtype, options):
    """Seconds of the second step. A process of its own each time: where its memory happens to lie decides, too."""
    worker = isobar_stepper(program, folder, dtype, options)
    worker.step()
    seconds = worker.step()["seconds"]
    worker.close()
    return seconds


def compare_builds(folder, dtype, options):
    """New, old, and old again, in turn: the last two differ by the machine's noise alone."""
    programs = {"new": options.program, "old": options.old, "old again": options.old}
    names, rounds = list(programs), []
    print(f"{dtype}: {options.rounds} rounds of fresh processes, seconds of a step: {', '.join(names)}")
    for _ in range(options.rounds):
        rounds.append({name: step_of_fresh_process(programs[name], folder, dtype, options) for name in names})
        print("  " + "  ".join(f"{rounds[-1][name]:.3f}" for name in programs), flush=True)
        names.reverse()
    for name in ("new", "old again"):
        ratios = sorted(r[name] / r["old"] for r in rounds)
        medians = [statistics.median(r[n] for r in rounds) for n in (name, "old")]
        minima = [min(r[n] for r in rounds) for n in (name, "old")]
        print(f"  {name} / old: median {statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}; "
              f"medians {medians[0]:.3f} / {medians[1]:.3f} s, minima {minima[0]:.3f} / {minima[1]:.3f} s", flush=True)


def compare_with_old(folder, options):
    for dtype in options.dtypes:
        compare_builds(folder, dtype, options)


# ---- The command -----------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="timed steps of each: 3, or 10 with --old")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--config", default="base", choices=list(CONFIGS))
    parser.add_argument("--batch", type=int, help="samples of a step: of base 1, of cnn 32, of unet and gpt2 2")
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--program", default=str(ROOT / "build" / "bench" / "isobar-train-step"))
    parser.add_argument("--isa", help="isobar's instruction set at most (ISOBAR_MAX_ISA)")
    parser.add_argument("--torch-isa", help="that of oneDNN in PyTorch (ONEDNN_MAX_CPU_ISA)")
    parser.add_argument("--old", help="the isobar-train-step of an older build, to stand beside in PyTorch's place")
    parser.add_argument("--save", action="store_true", help="append to bench/results/cpu_step.jsonl")
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return torch_worker(options.worker, CONFIGS[options.config], options.dtypes[0], options.threads)
    if options.old and options.save:
        parser.error("--save keeps comparisons with PyTorch, and --old makes none")
    options.batch = options.batch or CONFIGS[options.config].batch
    options.rounds = options.rounds or (10 if options.old else 3)
    for program in filter(None, (options.program, options.old)):
        if not os.access(program, os.X_OK):
            sys.exit(f"{program} is not there: build the target isobar-train-step first")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_problem(folder, CONFIGS[options.config], options.batch)
        if options.old:
            compare_with_old(folder, options)
        else:
            compare_with_torch(folder, options)


if __name__ == "__main__":
    main()
