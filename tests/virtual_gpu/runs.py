#!/usr/bin/env python3
"""`isobar train --device cuda` on the virtual GPU: right, the same bits in every order that streams allow, and with one
sentence where a call fails.

    runs.py --isobar build-virtual-gpu/apps/isobar [--every N]

On data that it makes, with a very small model:
- fp32, tf32, bf16 and fp16, with dropout, accumulation and recompute: a loss near the CPU's; the same bits in three
  schedules, with a CUDA graph, and after a stop in the middle;
- every N-th call of the first failing in turn, and a driver that is too old: status 1 and one sentence, and the run
  folder resumes to the same bits;
- what one step does: launches, synchronisations, allocations.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = {"img_size": [8, 16], "patch_size": 2, "embed_dim": 16, "depth": 2, "num_heads": 2, "n_in_channels": 3,
         "n_out_channels": 3, "loss": "weighted_mse", "lr": 3e-3, "lr_schedule": "constant", "warmup": 2,
         "global_batch_size": 4, "num_iters": 4, "log_every": 1, "checkpoint_every": 2, "validate_every": 4,
         "limit_nsamples_val": 2, "seed": 5}
# Between the loss after four iterations on the CPU and on the virtual GPU: fp32 adds in another order; the others round
# more coarsely, at other places. 100 times what was seen.
TOLERANCE = {"none": 1e-5, "bf16": 1e-4, "fp16": 1e-4}
# On each of these calls a failure may be survived: what they destroy or look at is not needed any more.
MAY_BE_SURVIVED = re.compile(r"Destroy|Free|ProfilerSt|GetVersion|GetLastError")


class Failure(Exception):
    pass


def check(condition, sentence):
    if not condition:
        raise Failure(sentence)


def tensors(path):
    """The bytes of all tensors, without the metadata that tell of the config."""
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little")
    names = {name: value for name, value in json.loads(data[8:8 + header]).items() if name != "__metadata__"}
    return names, data[8 + header:]


class Runs:
    def __init__(self, isobar, work):
        self.isobar, self.work, self.count = isobar, work, 0
        self.data = work / "data"
        subprocess.run([isobar, "data", "synth", "--out", self.data, "--train-years", "1", "--valid-years", "1",
                        "--steps-per-year", "40", "--grid", "8x16", "--channels", "3"], check=True,
                       stdout=subprocess.DEVNULL)

    def start(self, run, device, settings, environment=None, resume=False):
        """Status and stderr."""
        flags = [flag for key, value in {**MODEL, **settings}.items()
                 for flag in ("--set", f"{key}={json.dumps(value)}")]
        command = [self.isobar, "train", "--config", "tiny", "--data", self.data, "--run-dir", run, "--threads", "1",
                   "--device", device, *flags, *(["--resume"] if resume else [])]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **(environment or {})})
        return done.returncode, done.stderr.strip()

    def folder(self):
        self.count += 1
        return self.work / f"run{self.count}"

    def train(self, device, settings, environment=None):
        run = self.folder()
        status, err = self.start(run, device, settings, environment)
        check(status == 0, f"{device} {settings} {environment}: status {status}: {err}")
        return run

    def stopped(self, settings):
        run = self.folder()
        for iterations in (2, 4):
            status, err = self.start(run, "cuda", {**settings, "num_iters": iterations}, resume=iterations == 4)
            check(status == 0, f"stopped {settings}: status {status}: {err}")
        return run


def loss_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "train"][-1]


def result_of(run, step=4):
    folder = run / "checkpoints" / f"step_{step:08}"
    return [tensors(folder / name) for name in ("model.safetensors", "optimizer.safetensors")]


def check_case(runs, settings, graph):
    expected, first = runs.train("cpu", settings), runs.train("cuda", settings)
    tolerance = TOLERANCE["fp16" if settings.get("tf32") else settings.get("amp_mode", "none")]
    difference = abs(loss_of(first) / loss_of(expected) - 1)
    print(f"{settings}: loss {loss_of(first):.7f}, {difference:.1e} from the CPU's", flush=True)
    check(difference <= tolerance, f"{settings}: the loss is {loss_of(first)}, on the CPU {loss_of(expected)}")
    others = {f"schedule {seed}": runs.train("cuda", settings, {"ISOBAR_VIRTUAL_GPU_SCHEDULE": str(seed)})
              for seed in (1, 2)}
    others["stopped"] = runs.stopped(settings)
    if graph:
        others["a graph"] = runs.train("cuda", {**settings, "cuda_graph": True})
        others["a graph, schedule 3"] = runs.train("cuda", {**settings, "cuda_graph": True},
                                                   {"ISOBAR_VIRTUAL_GPU_SCHEDULE": "3"})
        others["a graph, stopped"] = runs.stopped({**settings, "cuda_graph": True})
    for name, other in others.items():
        check(result_of(other) == result_of(first), f"{settings}: {name} gives other bits")


def check_synchronous(runs):
    runs.train("cuda", {"cuda_graph": True}, {"ISOBAR_SYNC": "1"})


def check_driver(runs):
    for device in ("auto", "cuda"):
        status, err = runs.start(runs.folder(), device, {}, {"ISOBAR_VIRTUAL_GPU_DRIVER": "12020"})
        check(status == 1 and "driver is too old: it is for CUDA 12.2" in err and err.count("\n") == 0,
              f"a driver that is too old: status {status}: {err}")
    status, err = runs.start(runs.folder(), "auto", {}, {"ISOBAR_VIRTUAL_GPU_DRIVER": "0"})
    check(status == 0, f"without a driver: status {status}: {err}")


def check_failing_calls(runs, every):
    """Each time status 1 and one sentence; the folder resumes to the same bits."""
    settings = {"cuda_graph": True, "num_iters": 3, "checkpoint_every": 2, "validate_every": 2}
    reference, names = runs.folder(), runs.work / "calls"
    status, err = runs.start(reference, "cuda", settings, {"ISOBAR_VIRTUAL_GPU_CALLS": str(names)})
    check(status == 0, f"failing calls, undisturbed: {err}")
    calls = names.read_text().split()
    survived, tried = set(), 0
    for number in range(1, len(calls) + 1, every):
        name, run = calls[number - 1], runs.folder()
        status, err = runs.start(run, "cuda", settings, {"ISOBAR_VIRTUAL_GPU_FAIL": f"any:{number}"})
        tried += 1
        if status == 0 and MAY_BE_SURVIVED.search(name):
            survived.add(name)
            continue
        check(status == 1 and err.startswith("isobar: ") and err.count("\n") == 0,
              f"call {number}, {name}, fails: status {status}: {err}")
        status, err = runs.start(run, "cuda", settings, resume=True)
        check(status == 0, f"resumed after call {number}, {name}, failed: status {status}: {err}")
        check(result_of(run, 3) == result_of(reference, 3), f"resumed after call {number}, {name}, failed: other bits")
    print(f"{tried} of {len(calls)} calls failed in turn; survived: {', '.join(sorted(survived)) or 'none'}")


def check_counts(runs):
    """What isobar does today; fewer are welcome, and change these lines."""
    for graph, launches in ((False, 73), (True, 0)):
        trace = runs.work / f"trace{graph}"
        runs.train("cuda", {"cuda_graph": graph}, {"ISOBAR_VIRTUAL_GPU_TRACE": str(trace)})
        last = json.loads(trace.read_text().splitlines()[-1])
        print(f"a step, graph {graph}: {last}")
        check(last["launches"] <= launches and last["synchronisations"] <= 8, f"a step takes more than before: {last}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--every", type=int, default=397, help="which calls are made to fail")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isobar_virtual_gpu_") as temporary:
        runs = Runs(arguments.isobar.resolve(), pathlib.Path(temporary))
        try:
            check_case(runs, {"tf32": False}, graph=True)
            check_case(runs, {"tf32": True, "recompute": True}, graph=False)
            check_case(runs, {"amp_mode": "bf16", "dropout": 0.1, "grad_accumulation": 2}, graph=False)
            check_case(runs, {"amp_mode": "fp16"}, graph=True)
            check_synchronous(runs)
            check_driver(runs)
            check_counts(runs)
            check_failing_calls(runs, arguments.every)
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
