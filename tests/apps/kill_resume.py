#!/usr/bin/env python3
"""A run of `isobar train` that is killed and resumed ends with the same bits as one that was not; a damaged checkpoint
is never loaded.

    kill_resume.py --isobar build-cpu/apps/isobar [--kills 20] [--damages all] [--ranks 4]

Trains a very small model on data it makes, undisturbed, and then
- `--kills` times with kill -9 at a random moment of the run (half of them killed a second time while they go on),
- once each with SIGTERM and SIGUSR1, which must end with status 75,
- once for each way of damaging the newest checkpoint of a stopped run, which must be passed over with one line on
  stderr that names it,
- with a disk that is full when a checkpoint or an event is written, which must end with status 1 and one line,
each time resuming to the end and comparing the last checkpoint with the undisturbed run's: weights and optimizer byte
for byte, and what state.json and metrics.jsonl say but for the time it took. A damaged best/ must be refused by
`isobar forecast`.

With `--ranks N` the run has N ranks, which share the optimizer between them. Runs that are killed are then resumed on
other numbers of ranks too: all losses have to be the undisturbed run's up to rounding.
"""
import argparse
import json
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ITERATIONS = 60
STOPPED = 75
SAME_LOSS = 2e-3  # of the same run on another number of ranks, in fp32
TIMED = ("samples_per_second", "data_seconds")  # what time has a part in, of metrics.jsonl

# Small, with everything that a resumed run must carry on: dropout, an order of samples that ends epochs between two
# checkpoints, gradient accumulation, a schedule with warmup, stages of rollouts that begin between two checkpoints, an
# average of the weights, frozen weights.
MODEL = {"img_size": [8, 16], "patch_size": 2, "embed_dim": 16, "depth": 2, "num_heads": 2, "dropout": 0.1,
         "n_in_channels": 3, "n_out_channels": 3, "time_features": True, "predict_change": True,
         "loss": "weighted_mse", "optimizer": "adamw", "weight_decay": 0.01, "grad_clip": 1.0, "lr": 3e-3, "warmup": 5,
         "global_batch_size": 8, "grad_accumulation": 2, "num_iters": ITERATIONS, "num_data_workers": 2,
         "rollout": [[0, 1], [20, 3], [40, 2]], "rollout_weights": [3, 2, 1], "ema": 0.9, "freeze": ["blocks.0.mlp.*"],
         "log_every": 1, "checkpoint_every": 7, "validate_every": 16, "keep_checkpoints": 2, "seed": 5}


class Failure(Exception):
    pass


def check(condition, sentence):
    if not condition:
        raise Failure(sentence)


class Trainer:
    def __init__(self, isobar, data, settings, ranks=1):
        self.isobar = str(isobar)
        self.data = str(data)
        self.ranks = ranks
        self.settings = [flag for key, value in settings.items() for flag in ("--set", f"{key}={json.dumps(value)}")]

    def start(self, run, *flags, **more):
        layout = ["--ranks", str(self.ranks), "--shard-optimizer"] if self.ranks > 1 else []
        command = [self.isobar, "train", "--config", "tiny", "--data", self.data, "--run-dir", str(run), "--threads",
                   "1", *layout, *self.settings, *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def run(self, run, *flags, status=0, **more):
        """Runs to the end; what was written to stderr."""
        process = self.start(run, *flags, **more)
        out, err = process.communicate()
        check(process.returncode == status,
              f"{run}: status {process.returncode} instead of {status}: {err.strip() or out[-500:]}")
        return err

    def kill(self, run, reached, *flags):
        """Starts a run and kills it when reached() says so; how it ended, and the last iteration it told of."""
        process = self.start(run, *flags)
        while process.poll() is None and not reached():
            time.sleep(0.001)
        process.kill()
        process.communicate()
        return process.returncode, iterations_logged(run)


def random_moment(rng, run, seconds):
    """A function that says when: after a random time, or after a random iteration and a little more. Most of the time
    goes into starting, validating and writing, so that the first kind alone would seldom hit an iteration."""
    if rng.random() < 0.5:
        end = time.monotonic() + rng.uniform(0, seconds)
        return lambda: time.monotonic() > end
    iteration = rng.randrange(1, ITERATIONS)
    rest = rng.uniform(0, 0.02)
    return lambda: iterations_logged(run) >= iteration and time.sleep(rest) is None


def iterations_logged(run):
    try:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (FileNotFoundError, ValueError):  # not begun, or cut in the middle of a line
        return 0
    return max((line["iteration"] for line in lines), default=0)


def without_times(value):
    """Without the run's own number too."""
    if isinstance(value, dict):
        return {key: without_times(v) for key, v in value.items() if "seconds" not in key and key != "run_id"}
    return value


def final_state(run):
    """What must be the same whatever happened to the run on its way."""
    last = checkpoints_of(run)[-1]
    state = {name: (last / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}
    state["best"] = (run / "best" / "model.safetensors").read_bytes()
    state["state.json"] = without_times(json.loads((last / "state.json").read_text()))
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    state["metrics.jsonl"] = [{k: v for k, v in line.items() if k not in TIMED} for line in metrics]
    return state


def check_same(run, expected):
    got = final_state(run)
    for name, value in expected.items():
        check(got[name] == value, f"{run}: {name} differs from the undisturbed run's")
    hidden = [str(p) for p in (run / "checkpoints").iterdir() if p.name.startswith(".")]
    check(not hidden, f"{run}: leftovers of a killed writer: {hidden}")


def check_comparison(run, expected, work):
    """What is compared is seen to differ, whichever of it does."""
    def another_number(path, key):
        text = path.read_text()
        at = re.search(rf'"{key}": ?-?\d', text).end() - 1
        path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:])
    changes = {
        "model.safetensors": lambda copy: flip(checkpoints_of(copy)[-1] / "model.safetensors", -1),
        "optimizer.safetensors": lambda copy: flip(checkpoints_of(copy)[-1] / "optimizer.safetensors", -1),
        "best": lambda copy: flip(copy / "best" / "model.safetensors", -1),
        "state.json": lambda copy: another_number(checkpoints_of(copy)[-1] / "state.json", "best_loss"),
        "metrics.jsonl": lambda copy: another_number(copy / "metrics.jsonl", "loss"),
    }
    check(changes.keys() == expected.keys(), f"what is compared: {list(expected)}")
    for name, change in changes.items():
        copy = work / "changed"
        shutil.copytree(run, copy)
        change(copy)
        try:
            check_same(copy, expected)
        except Failure as failure:
            check(f": {name} differs" in str(failure), f"{name} was changed, and said was: {failure}")
        else:
            raise Failure(f"{name} was changed, and nothing seen")
        shutil.rmtree(copy)


def flip(path, position):
    contents = bytearray(path.read_bytes())
    contents[position if position >= 0 else len(contents) + position] ^= 0x10
    path.write_bytes(contents)


def truncate(path, length):
    with open(path, "r+b") as file:
        file.truncate(length if length >= 0 else path.stat().st_size + length)


DAMAGES = {
    "a byte of the weights flipped": lambda c: flip(c / "model.safetensors", -100),
    "the end of the weights cut off": lambda c: truncate(c / "model.safetensors", -1),
    "a checksum flipped": lambda c: flip(c / "checksums.xxh64", 3),
    "a byte of the weights' header flipped": lambda c: flip(c / "model.safetensors", 20),
    "a byte of the optimizer flipped": lambda c: flip(c / "optimizer.safetensors", -1),
    "the optimizer cut to nothing": lambda c: truncate(c / "optimizer.safetensors", 0),
    "a byte of state.json flipped": lambda c: flip(c / "state.json", -10),
    "state.json gone": lambda c: (c / "state.json").unlink(),
    "the checksums gone": lambda c: (c / "checksums.xxh64").unlink(),
    "the checksums cut off": lambda c: truncate(c / "checksums.xxh64", -30),
    "the folder empty": lambda c: [file.unlink() for file in c.iterdir()],
}


def checkpoints_of(run):
    return sorted((run / "checkpoints").glob("step_*"))


def check_kills(trainer, work, expected, seconds, kills, rng):
    stopped_at = []
    for number in range(kills):
        run = work / f"kill_{number}"
        for _ in range(1 + number % 2):
            status, iteration = trainer.kill(run, random_moment(rng, run, seconds), "--resume")
            check(status in (0, -signal.SIGKILL), f"{run}: status {status}")
            stopped_at.append(iteration)
        err = trainer.run(run, "--resume")
        check(err == "", f"{run}: resuming after a kill warns: {err.strip()}")
        check_same(run, expected)
        shutil.rmtree(run)
    print(f"kill -9: {kills} runs, killed after iterations {stopped_at}; all resumed to the same bits")


def losses_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {(line["event"], line["iteration"]): line["loss"] for line in lines}


def check_other_ranks(trainer, work, undisturbed, seconds, rng):
    """Killed with the trainer's ranks, resumed with others: sums are added in another order, that is all."""
    expected, worst = losses_of(undisturbed), 0
    others = [ranks for ranks in (1, 2, 4) if ranks != trainer.ranks]
    for ranks in others:
        run = work / f"on_{ranks}"
        while not checkpoints_of(run) or (run / "summary.json").exists():
            shutil.rmtree(run, ignore_errors=True)
            trainer.kill(run, random_moment(rng, run, seconds), "--resume")
        other = Trainer(trainer.isobar, trainer.data, {}, ranks)
        other.settings = trainer.settings
        other.run(run, "--resume")
        got = losses_of(run)
        check(got.keys() == expected.keys(), f"{run}: its lines are those of other iterations")
        worst = max([worst, *(abs(got[key] - expected[key]) / expected[key] for key in expected)])
    check(worst < SAME_LOSS, f"on {others} ranks losses differ by {worst:.2e}")
    print(f"killed on {trainer.ranks} ranks, resumed on {others}: losses differ by at most {worst:.1e}")


def check_stops(trainer, work, expected):
    """Returns a run that was stopped with at least two checkpoints; what is resumed is a copy."""
    for which in (signal.SIGUSR1, signal.SIGTERM):
        stopped = work / f"stopped_{which.name}"
        process = trainer.start(stopped)
        while process.poll() is None and len(checkpoints_of(stopped)) < 2:
            time.sleep(0.002)
        process.send_signal(which)
        _, err = process.communicate()
        check(process.returncode == STOPPED, f"{stopped}: status {process.returncode} after {which.name}: {err}")
        reached = checkpoints_of(stopped)[-1].name
        check(not (stopped / "summary.json").exists(), f"{stopped}: {which.name} came too late: the run has ended")
        copy = work / "resumed"
        shutil.copytree(stopped, copy)
        trainer.run(copy, "--resume")
        check_same(copy, expected)
        shutil.rmtree(copy)
        print(f"{which.name}: status {STOPPED}, stopped at {reached}, resumed to the same bits")
    return stopped


def check_damages(trainer, work, expected, stopped, damages):
    for what in damages:
        run = work / "damaged"
        shutil.copytree(stopped, run)
        newest = checkpoints_of(run)[-1]
        DAMAGES[what](newest)
        lines = trainer.run(run, "--resume").splitlines()
        check(len(lines) == 1 and str(newest) in lines[0],
              f"{what}: stderr should be one line that names {newest}: {lines}")
        check_same(run, expected)
        shutil.rmtree(run)
    run = work / "all_damaged"
    shutil.copytree(stopped, run)
    for checkpoint in checkpoints_of(run):
        truncate(checkpoint / "model.safetensors", -1)
    lines = trainer.run(run, "--resume").splitlines()
    check(len(lines) == len(checkpoints_of(stopped)), f"all damaged: one line each is wanted on stderr: {lines}")
    check_same(run, expected)
    print(f"damaged checkpoints: {len(damages)} ways, and all of them damaged at once; none loaded, same bits")


def limit_file_size(size):
    """To be called in the child: no file can grow beyond `size`; to a program, much like a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def check_full_disk(trainer, work, expected, undisturbed):
    sizes = {path.name: path.stat().st_size for path in (undisturbed / "best").iterdir()}
    events = sum(path.stat().st_size for path in (undisturbed / "logs").iterdir())
    full = []
    for size in (sizes["model.safetensors"] - 1000, sizes["optimizer.safetensors"] - 1000, events - 1000):
        run = work / "full_disk"
        err = trainer.run(run, status=1, preexec_fn=lambda: limit_file_size(size))
        lines = [line for line in err.splitlines() if not line.startswith("isobar: warning: ")]  # of maps
        told = "isobar: (?:rank 0: )?" + re.escape(f"{run}/") + r"(\S+): cannot be written: .*"
        named = re.fullmatch(told, "\n".join(lines))
        check(named, f"full disk: stderr should be one line that names a file of {run}: {lines}")
        hidden = [str(path) for path in run.rglob(".*")]
        check(not hidden, f"full disk: left {hidden}")
        full.append(named[1])
        trainer.run(run, "--resume")
        check_same(run, expected)
        shutil.rmtree(run)
    print(f"full disk at {', '.join(full)}: status 1, nothing half-written left; resumed to the same bits")


def check_damaged_best(trainer, work, finished):
    run = work / "damaged_best"
    shutil.copytree(finished, run)
    command = [trainer.isobar, "forecast", "--weights", str(run), "--data", trainer.data, "--start", "0", "--steps",
               "2", "--out", str(work / "forecast.h5")]
    result = subprocess.run(command, capture_output=True, text=True)
    check(result.returncode == 0, f"forecast from {run}: {result.stderr.strip()}")
    (work / "forecast.h5").unlink()
    flip(run / "best" / "model.safetensors", -100)
    result = subprocess.run(command, capture_output=True, text=True)
    lines = result.stderr.splitlines()
    check(result.returncode == 1 and len(lines) == 1 and str(run / "best") in lines[0],
          f"forecast from a damaged best/: status {result.returncode}, {lines}")
    check(not (work / "forecast.h5").exists(), "forecast from a damaged best/ left a file")
    print("damaged best/: refused by forecast, by name")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", required=True, type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damages", default="all", help="how many ways of damaging a checkpoint, or all")
    parser.add_argument("--amp-mode", default="none", choices=["none", "bf16", "fp16"])
    parser.add_argument("--ranks", type=int, default=1, help="threads of one process, with --shard-optimizer")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments")
    parser.add_argument("--work", type=pathlib.Path, help="a folder to work in, kept; default: a temporary one")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)
    rng = random.Random(seed)
    print(f"random moments from seed {seed}")
    count = len(DAMAGES) if arguments.damages == "all" else int(arguments.damages)

    with tempfile.TemporaryDirectory(prefix="isobar_kill_") as temporary:
        work = arguments.work or pathlib.Path(temporary)
        data = work / "data"
        subprocess.run([arguments.isobar, "data", "synth", "--out", data, "--train-years", "1", "--valid-years", "1",
                        "--steps-per-year", "100", "--grid", "8x16", "--channels", "3", "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        trainer = Trainer(arguments.isobar, data, {**MODEL, "amp_mode": arguments.amp_mode}, arguments.ranks)
        undisturbed = work / "undisturbed"
        start = time.monotonic()
        trainer.run(undisturbed)
        seconds = time.monotonic() - start
        expected = final_state(undisturbed)
        check_comparison(undisturbed, expected, work)
        print(f"the undisturbed run: {ITERATIONS} iterations in {seconds:.1f} s")
        try:
            trainer.run(work / "again")
            check_same(work / "again", expected)
            check_kills(trainer, work, expected, seconds, arguments.kills, rng)
            if arguments.ranks > 1:
                check_other_ranks(trainer, work, undisturbed, seconds, rng)
            stopped = check_stops(trainer, work, expected)
            check_damages(trainer, work, expected, stopped, list(DAMAGES)[:count])
            check_damaged_best(trainer, work, undisturbed)
            check_full_disk(trainer, work, expected, undisturbed)
        except Failure as failure:
            sys.exit(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
