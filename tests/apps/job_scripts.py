#!/usr/bin/env python3
"""The job scripts of scripts/slurm/ with a Slurm of a few lines: what they start, and when they queue a job again.

    job_scripts.py --isobar build-cpu/apps/isobar

The stand-in for srun runs one task, the real program. On its first call it sends SIGUSR1 to the task and, when that has
ended with 75, ends with 137 as Slurm's does whose --kill-on-bad-exit has killed the other tasks.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from processes import Failure, Runs, check

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = {"num_iters": 40, "log_every": 1, "validate_every": 0, "checkpoint_every": 0, "limit_nsamples_val": 2,
            "embed_dim": 16, "depth": 1, "num_heads": 2, "global_batch_size": 2}
DATA = ["--train-years", "1", "--valid-years", "1", "--steps-per-year", "8", "--grid", "16x32", "--channels", "4"]

SRUN = r'''#!/usr/bin/env python3
import json, os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(os.environ["STAND_IN"])
options = [word for word in sys.argv[1:] if word.startswith("--") or word == "nsys"]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps({"argv": sys.argv[1:], "key": os.environ.get("ISOBAR_JOB_KEY"),
                            "address": os.environ.get("MASTER_ADDR"), "module": os.environ.get("LOADED"),
                            "locks": os.environ.get("HDF5_USE_FILE_LOCKING")}) + "\n")
at = sys.argv.index("train")
command = [os.environ["PROGRAM"], "train", *[word for word in sys.argv[at + 1:] if word not in ("cuda", "nccl")]]
command = [word for word in command if word not in ("--device", "--backend")] + ["--device", "cpu"]
mode = os.environ.get("MODE", "run")
if mode == "fail":
    sys.exit(75)  # a task that says so, and a run's folder that does not
task = subprocess.Popen(command)
if mode == "stop":
    run = pathlib.Path(os.environ["RUN"])
    while task.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.002)
    task.send_signal(signal.SIGUSR1)
status = task.wait()
sys.exit(137 if mode == "stop" and status == 75 else status)
'''
SCONTROL = '''#!/bin/bash
[[ $1 != show ]] || { echo node7; echo node8; exit; }
echo "$*" >>"$STAND_IN/asked"
'''
MODULE = 'module() { [[ $1 == load ]] && export LOADED="${*:2}"; }; export -f module\n'


class Job:
    def __init__(self, script, folder, runs):
        self.script, self.folder, self.runs = ROOT / "scripts" / "slurm" / script, folder, runs
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "module.sh").write_text(MODULE)

    def run(self, *options, **variables):
        """Status, what was said, how srun was called, and what scontrol was asked for."""
        for name in ("calls", "asked"):
            (self.folder / name).unlink(missing_ok=True)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "STAND_IN": str(self.folder),
                       "BASH_ENV": str(self.folder / "module.sh"), "PROGRAM": str(self.runs.isobar),
                       "SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "isobar", "SLURM_JOB_NODELIST": "node[7-8]",
                       "OMP_NUM_THREADS": "1", **variables}
        ended = subprocess.run(["bash", self.script, *map(str, options)], env=environment, text=True,
                               capture_output=True, timeout=120, check=False)
        calls = self.folder / "calls"
        call = json.loads(calls.read_text()) if calls.exists() else None
        asked = self.folder / "asked"
        return ended, call, asked.read_text().splitlines() if asked.exists() else []


def check_stops_and_goes_on(job, name):
    runs = job.runs
    command = [str(word) for word in runs.command(name)[2:]]
    run = runs.path(name)
    ended, call, asked = job.run(*command, MODE="stop", RUN=str(run), SLURM_CPUS_PER_TASK="6")
    check(ended.returncode == 137, f"{name}: status {ended.returncode}", ended.stdout, ended.stderr)
    check("--cpus-per-task=6" in call["argv"] and "--kill-on-bad-exit=1" in call["argv"], name, call)
    check(call["argv"][-1] == "--resume" and call["locks"] == "FALSE", name, call)
    check(asked == ["requeue 17"], f"{name}: srun's status was 137, the run stopped, and scontrol got {asked}")
    check("stopped by SIGUSR1 after iteration" in (run / "stopped").read_text(), name)
    ended, call, asked = job.run(*command)
    check(ended.returncode == 0 and asked == [], f"{name}: status {ended.returncode}, {asked}", ended.stderr)
    check(not any(word.startswith("--cpus-per-task") for word in call["argv"]), name, call)
    check(not (run / "stopped").exists(), f"{name}: a finished run says that it is stopped")
    check(json.loads((run / "summary.json").read_text())["iterations"] == SETTINGS["num_iters"], name)


def check_other_ends(job, name):
    """A job is not queued again for ever: not by a status of 75 alone, and not by what an earlier stop has left."""
    runs = job.runs
    runs.path(name).mkdir()
    (runs.path(name) / "stopped").write_text("stopped by SIGUSR1 after iteration 3 of 40\n")
    ended, _, asked = job.run(*runs.command(name)[2:], MODE="fail")
    check(ended.returncode == 75 and asked == [], f"{name}: status {ended.returncode}, {asked}")
    ended, call, asked = job.run("--config", "tiny")
    check(ended.returncode == 1 and call is None and "--run-dir DIR is missing" in ended.stderr, ended)


def check_run_folder_is_found(job):
    for words in (["--run-dir", "a b"], ["--run_dir", "a b"], ["--run-dir=a b"],
                  ["--run-dir", "x", "--run-dir", "a b"]):
        folder = job.folder / "a b"
        folder.mkdir(exist_ok=True)
        (folder / "stopped").write_text("old\n")
        words = [word.replace("a b", str(folder)) for word in words]
        job.run(*words, MODE="fail")
        check(not (folder / "stopped").exists(), f"{words}: the run's folder was not found")


def check_site(job):
    ended, call, _ = job.run("--run-dir", job.folder / "none", MODE="fail", ISOBAR="shifter --module=gpu isobar",
                             ISOBAR_MODULES="GCC nccl", ISOBAR_HOST_SUFFIX="i")
    check(call["module"] == "GCC nccl" and call["address"] == "node7i", call, ended.stderr)
    at = call["argv"].index("train")
    check(call["argv"][at - 3:at] == ["shifter", "--module=gpu", "isobar"], call)
    return call


def check_gpu(job):
    call = check_site(job)
    check("--mpi=none" in call["argv"] and "nsys" not in call["argv"], call)
    keys = [call["key"]]
    _, call, _ = job.run("--run-dir", job.folder / "none", MODE="fail", ENABLE_PROFILING="1",
                         PROFILE_OUTPUT="out/mine")
    keys.append(call["key"])
    check(all(len(key) == 32 and int(key, 16) >= 0 for key in keys) and keys[0] != keys[1], f"job keys {keys}")
    words = call["argv"]
    check(words[words.index("nsys"):words.index("isobar")][-2:] == ["-o", "out/mine.%q{SLURM_PROCID}"], words)
    check("cudaProfilerApi" in words and words.index("nsys") < words.index("train"), words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="isobar_jobs_") as name:
        runs = Runs(options.isobar.resolve(), pathlib.Path(name), SETTINGS, data=DATA)
        try:
            for script in ("cpu", "gpu"):
                folder = pathlib.Path(name) / f"slurm_{script}"
                folder.mkdir()
                job = Job(f"{script}.sbatch", folder, runs)
                check_stops_and_goes_on(job, f"stopped_{script}")
                check_other_ends(job, f"others_{script}")
                check_run_folder_is_found(job)
                (check_gpu if script == "gpu" else check_site)(job)
        except Failure as failure:
            sys.exit(f"job scripts: {failure}")
    print(f"job scripts: well, {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
