#!/usr/bin/env python3
"""What the way in which threads wait costs (kernels/cpu/brief_spin.cc): on a machine that computes something else
too, and on an idle one. Needs Python's standard library only.

    cmake --build --preset release --target isobar isobar-train-step
    python3 bench/busy_machine.py busy [--others 2] [--rounds 5]
    python3 bench/busy_machine.py idle [--rounds 10] [--trainings 5] [--iterations 800] [--old BUILD_DIR]

busy: trains `tiny` for 12 iterations beside other processes that compute, with no setting, asleep at once
(OMP_WAIT_POLICY=passive) and with libgomp's own count (GOMP_SPINCOUNT=300000), in turn.
idle: training steps of `base` (isobar-train-step) and whole trainings of `tiny`, with no setting, with libgomp's own
count, and with libgomp's own count once more, in turn: the last two differ by the machine's noise alone. With --old the
last two are the programs of another build folder, run without any setting.
"""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from stepper import Stepper

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS, PASSIVE, LIBGOMP = {}, {"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "300000"}


def environment(setting):
    """This process's environment with nothing said about waiting but `setting`."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    return kept | setting


def run(command, setting):
    """Wall seconds of a command that must succeed."""
    begin = time.perf_counter()
    done = subprocess.run([str(word) for word in command], env=environment(setting), capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}: {done.stderr.strip()}")
    return time.perf_counter() - begin


def make_data(isobar, folder, *arguments):
    run([isobar, "data", "synth", "--out", folder, *arguments], OURS)
    return folder


def train(isobar, config, data, run_dir, *settings):
    command = [isobar, "train", "--config", config, "--data", data, "--run-dir", run_dir, "--overwrite"]
    return command + [word for setting in settings for word in ("--set", setting)]


def report(title, seconds, reference):
    """Medians, spreads, and ratios to the variant named `reference`."""
    print(f"\n{title}")
    base = statistics.median(seconds[reference])
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"  {name:28} median {median:8.3f} s   min {min(values):8.3f}   max {max(values):8.3f}   "
              f"{median / base:6.3f} of {reference}", flush=True)


def in_turn(rounds, variants):
    """Seconds of every variant, {name: function}: each once a round, first those that were last in the round before."""
    names, seconds = list(variants), {name: [] for name in variants}
    for _ in range(rounds):
        for name in names:
            seconds[name].append(variants[name]())
        names.reverse()
    return seconds


# ---- busy ------------------------------------------------------------------------------------------------------------


def measure_busy(options, folder):
    isobar = options.build / "apps" / "isobar"
    data = make_data(isobar, folder / "data", "--train-years", 1, "--valid-years", 1, "--steps-per-year", 40)
    command = train(isobar, "tiny", data, folder / "run", "num_iters=12")
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.others)]
    try:
        variants = {"no setting": OURS, "OMP_WAIT_POLICY=passive": PASSIVE, "GOMP_SPINCOUNT=300000": LIBGOMP}
        seconds = in_turn(options.rounds, {name: lambda s=s: run(command, s) for name, s in variants.items()})
    finally:
        for other in others:
            other.kill()
            other.wait()
    report(f"12 iterations of tiny beside {options.others} processes that compute", seconds, "OMP_WAIT_POLICY=passive")


# ---- idle ------------------------------------------------------------------------------------------------------------


def save_fields(path, shape, *names):
    """A safetensors file of random fp32 tensors of one shape."""
    count = 1
    for size in shape:
        count *= size
    block = array.array("f", (random.gauss(0, 1) for _ in range(1 << 16))).tobytes()
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [4 * count * i, 4 * count * (i + 1)]}
              for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = (block * (4 * count // len(block) + 1))[:4 * count]
    path.write_bytes(len(text).to_bytes(8, "little") + text + values * len(names))


def measure_steps(options, folder, variants):
    """Takes the initial weights of `base` from a run of one iteration."""
    isobar = options.build / "apps" / "isobar"
    data = make_data(isobar, folder / "large", "--train-years", 1, "--valid-years", 1, "--steps-per-year", 4,
                     "--grid", "360x720", "--channels", 20)
    run(train(isobar, "base", data, folder / "base", "num_iters=1", "global_batch_size=1", "limit_nsamples_val=1"),
        OURS)
    (folder / "base" / "best" / "model.safetensors").rename(folder / "weights.safetensors")
    save_fields(folder / "batch.safetensors", [1, 20, 360, 720], "input", "target")
    steppers = {}
    for name, (build, setting) in variants.items():
        command = [build / "bench" / "isobar-train-step", folder / "weights.safetensors", folder / "batch.safetensors",
                   options.dtype, options.threads]
        steppers[name] = Stepper(command, environment(setting))
        for _ in range(2):  # to warm up
            steppers[name].step()
    seconds = in_turn(options.rounds, {name: lambda s=s: s.step()["seconds"] for name, s in steppers.items()})
    for stepper in steppers.values():
        stepper.close()
    report(f"a training step of base, batch 1, {options.dtype}", seconds, "old")


def measure_trainings(options, folder, variants):
    data = make_data(options.build / "apps" / "isobar", folder / "data")
    seconds = in_turn(options.trainings, {
        name: lambda b=build, s=setting: run(
            train(b / "apps" / "isobar", "tiny", data, folder / "run", f"num_iters={options.iterations}"), s)
        for name, (build, setting) in variants.items()})
    report(f"{options.iterations} iterations of tiny, as scripts/quickstart trains", seconds, "old")


def measure_idle(options, folder):
    old = (options.old, OURS) if options.old else (options.build, LIBGOMP)
    variants = {"no setting": (options.build, OURS), "old": old, "old again": old}
    if options.rounds:
        measure_steps(options, folder, variants)
    if options.trainings:
        measure_trainings(options, folder, variants)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", choices=["busy", "idle"])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder to measure")
    parser.add_argument("--old", type=pathlib.Path, help="idle: a build folder to compare with")
    parser.add_argument("--others", type=int, default=2, help="busy: processes that compute beside it")
    parser.add_argument("--rounds", type=int, help="busy: trainings (5), idle: steps (10) of each variant")
    parser.add_argument("--trainings", type=int, default=5, help="idle: trainings of each variant")
    parser.add_argument("--iterations", type=int, default=800, help="idle: iterations of a training")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"], help="idle: of the steps")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="idle: of the steps")
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 5 if options.machine == "busy" else 10
    if options.machine == "idle" and os.getloadavg()[0] > 0.5:
        print(f"warning: this machine is not idle (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        (measure_busy if options.machine == "busy" else measure_idle)(options, pathlib.Path(name))


if __name__ == "__main__":
    main()
