#!/usr/bin/env python3
"""Ranks as processes that exchange data by NCCL: `isobar train --backend nccl` on the emulator device, with the
stand-in for NCCL (lab/stand_ins/nccl).

    nccl_runs.py CASE --isobar build-cpu/apps/isobar --stand-ins build-cpu/lab/stand_ins
                 [--ranks 4] [--kills 3]

    layouts    runs of 8 and fewer processes err at most twice as much as the run of one, with and without launch order
    meeting    what keeps the processes from meeting is one sentence
    faults     of --ranks ranks, 4 or 8: what ISOBAR_FAULT plants, SIGSTOP, kill -9 of a random one, --kills times,
               SIGUSR1 to one
    pairs      kill -9 of two random ones of --ranks ranks, a millisecond apart, --kills times: one sentence of one of
               them
    slurm      srun with every --mpi that this Slurm has, on 4 nodes of one host; an arbitrary distribution; two
               components of a heterogeneous job

    nccl_runs.py spawn RANKS COMMAND...: starts ranks with torchrun's variables; exit status: the largest one

Exit status 77, with the reason, where what a case needs is missing.
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from processes import (ITERATIONS, PIPELINES, SECONDS_TO_END, SMALL, STOPPED, TEXT, Failure, Runs, TextRuns, check,
                       check_one_sentence, difference, kill_pairs, processes_of, run, shares, slurm)

SECONDS_TO_LEAVE = 2  # of the other ranks, once one has ended with an error
# 9 x 5 patches, 8 heads of 8: rows, heads and hidden channels that 2 x 2 x 2 ranks share unevenly.
DATA = ["--train-years", "1", "--valid-years", "1", "--steps-per-year", "40", "--grid", "18x10", "--channels", "4"]
SETTINGS = {**SMALL, "num_iters": 3, "validate_every": 3, "limit_nsamples_val": 5, "embed_dim": 64, "num_heads": 8,
            "patch_size": 2, "dtype": "fp32", "dropout": 0.1}
# Starts two ranks, of which the second one has an older NCCL.
OTHER_NCCL = """
import os, socket, subprocess, sys
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
started = [subprocess.Popen(sys.argv[1:], env=dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                                                   LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                                                   ISOBAR_NCCL_STAND_IN_VERSION=version))
           for rank, version in enumerate(("22809", "22703"))]
sys.exit(max(abs(process.wait()) for process in started))
"""
LAYOUTS = [((2, 2, 2), ["--context-form", "ring"], "1"),
           ((2, 2, 2), ["--context-form", "ring", "--bucket-cap-mb", "0.01"], "0"),
           ((2, 2, 2), ["--sequence-parallel", "--shard-optimizer", "--bucket-cap-mb", "0.01"], "1"),
           ((4, 1, 1), ["--bucket-cap-mb", "0.01"], "0")]


def spawn(ranks, command):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **os.environ}
    started = [subprocess.Popen(command, env={**address, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                                              "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)})
               for rank in range(ranks)]
    while None in (ends := [process.poll() for process in started]) and not any(ends):
        time.sleep(0.02)
    end = time.monotonic() + SECONDS_TO_LEAVE
    while time.monotonic() < end and any(process.poll() is None for process in started):
        time.sleep(0.02)
    for process in started:  # a stopped one, say
        process.kill()
    return max(abs(process.wait()) for process in started)


def spawned(ranks, *command):
    return [sys.executable, __file__, "spawn", str(ranks), *command, "--backend", "nccl"]


def srun_with(*options):
    """Whatever --mpi says, the same command line starts."""
    return lambda ranks, *command: ["srun", *options, "--kill-on-bad-exit=1", *command, "--backend", "nccl"]


def srun_of_components(first, second):
    """One step of two components of a heterogeneous job, with so many tasks each."""
    def launch(ranks, *command):
        task = ["--kill-on-bad-exit=1", *command, "--backend", "nccl"]
        return ["srun", "-N1", f"-n{first}", *task, ":", "-N1", f"-n{second}", *task]
    return launch


class NcclRuns(Runs):
    """Runs on the emulator device; of several ranks: by NCCL."""

    def __init__(self, options, folder, settings, launch=spawned):
        super().__init__(options.isobar, folder, settings, launch, data=DATA)

    def command(self, name, *flags, device="emulator"):
        return super().command(name, "--device", device, *flags)

    def trained(self, *words, **more):
        ended = self.train(*words, **more)
        check(ended.status == 0 and not ended.sentences, ended)
        return ended

    def losses(self, name):
        return [line["loss"] for line in self.metrics(name)]


def rms_apart(losses, exact):
    check(len(losses) == len(exact) > 0, "the runs have logged different things")
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(losses, exact)) / len(exact))


def check_twice(runs, name):
    """Losses err at most twice as much as those of one rank, against fp64, and one rounding."""
    exact = runs.losses("exact")
    rounding = 2.0 ** -24 * max(exact)
    serial, mine = rms_apart(runs.losses("serial"), exact), rms_apart(runs.losses(name), exact)
    print(f"{name}: {mine:.3g} from fp64, one rank {serial:.3g}")
    check(mine <= 2 * serial + rounding, f"{name}: {mine} from fp64, one rank {serial}")


def exact_and_serial(options, folder, launch=spawned):
    runs = NcclRuns(options, folder, SETTINGS, launch)
    runs.trained("serial", 1)
    exact = run(runs.command("exact", "--set", 'dtype="fp64"', device="cpu"))
    check(exact.status == 0, exact)
    return runs


def case_layouts(options, folder):
    runs = exact_and_serial(options, folder)
    for number, (sizes, flags, order) in enumerate(LAYOUTS):
        name, (dp, tp, cp) = f"layout{number}", sizes
        ended = runs.trained(name, dp * tp * cp, *shares(tp, cp), *flags, NCCL_LAUNCH_ORDER_IMPLICIT=order)
        check(f"Setting DP = {dp}, TP = {tp}, CP = {cp}, PP = 1" in ended.out, ended)
        check_twice(runs, name)
        check(runs.files(name) == runs.files("serial"), name, "other files than one rank's")
    # Where the agreement comes an iteration late, the host does not wait for it; no bit is another one.
    seldom = ("--set", "log_every=3")
    runs.trained("at_once", 2, *seldom)
    runs.trained("late", 2, "--late-agreement", *seldom)
    runs.check_same_bits("late", "at_once")


def case_pipeline(options, folder):
    runs = TextRuns(options.isobar, folder, {**TEXT, "num_iters": 3, "validate_every": 3, "dtype": "fp32"}, spawned)
    on_emulator = ("--device", "emulator")
    serial = runs.train("serial", 1, *on_emulator)
    check(serial.status == 0, serial)
    for number, (ranks, flags) in enumerate(PIPELINES[:5]):
        name = f"pipeline{number}"
        ended = runs.train(name, ranks, *on_emulator, *flags)
        check(ended.status == 0 and not ended.sentences, name, ended)
        apart = difference(runs.metrics("serial"), runs.metrics(name))
        check(apart < 1e-3, f"{name}: {apart} from one rank's numbers")
        check(runs.files(name) == runs.files("serial"), name, "other files than one rank's")


def has_nccl():
    """NVIDIA's library is installed."""
    try:
        return bool(ctypes.CDLL("libnccl.so.2"))
    except OSError:
        return False


def case_meeting(options, folder):
    runs = NcclRuns(options, folder, SETTINGS)

    def told(*words, ranks=2, flags=(), variables=None):
        ended = runs.train("wrong", ranks, "--comm-timeout", "2", *flags, **(variables or {}))
        check_one_sentence(ended, *words)
        check(not runs.path("wrong").exists(), "a run folder was left")

    told("is no multiple of --tensor-parallel 3", flags=["--tensor-parallel", "3"])
    without_stand_in = ("NVIDIA's own, which needs GPUs" if has_nccl() else
                        "libnccl.so.2 is needed on a GPU and was not found")
    told(without_stand_in, variables={"ISOBAR_CUDA_LIBS": "/nowhere"})
    told("ISOBAR_FAULT", variables={"ISOBAR_FAULT": "what?"})
    alone = run(runs.command("wrong", "--backend", "nccl"))
    check_one_sentence(alone, "--backend nccl: no launcher has started this process")
    threads = run(runs.command("wrong", "--backend", "nccl", "--ranks", "2"))
    check_one_sentence(threads, "--backend nccl: no launcher has started this process")
    told("NCCL_COMM_BLOCKING is set", variables={"NCCL_COMM_BLOCKING": "1"})
    # What NCCL says of itself is kept, of all ranks; ranks with another NCCL are refused.
    ended = runs.trained("logged", 2, NCCL_DEBUG="INFO", MASTER_ADDR="localhost")
    check("the ranks, on 1 host, met at localhost:" in ended.out, ended)
    logs = list(runs.path("logged").glob("nccl.*"))
    check(len(logs) == 2 and all("Using network" in log.read_text() for log in logs), "logs of NCCL:", logs)
    check("NCCL 2.28.9 from " in ended.out and "libnccl.so.2, network Shared memory" in ended.out, ended)
    other = run([sys.executable, "-c", OTHER_NCCL, *runs.command("wrong", "--backend", "nccl", "--comm-timeout", "5")])
    check_one_sentence(other, "with NCCL 2.27.3, rank 0 ", "with NCCL 2.28.9")
    # Rank 0 tells, at once or when the time is over; the other one has not met anybody, and tells so too.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, variables in (("is taken by another process; set MASTER_PORT", {"MASTER_PORT": port}),
                                 ("is no address of", {"MASTER_ADDR": "192.0.2.1"}),
                                 ("cannot be resolved", {"MASTER_ADDR": "no.such.host.invalid"})):
            ended = runs.train("wrong", 2, "--comm-timeout", "2", **variables)
            check(ended.status != 0 and any(words in sentence for sentence in ended.sentences), words, ended)
    # Nobody comes as rank 1.
    late = run(["env", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}",
                *runs.command("wrong", "--backend", "nccl", "--comm-timeout", "2")])
    check_one_sentence(late, "rank 1 has not come to the meeting")
    # Rank 0 listens at the interface that the user names, and not at the others of its host.
    late = run(["env", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=192.0.2.1", f"MASTER_PORT={port}",
                "ISOBAR_INTERFACE=lo", *runs.command("wrong", "--backend", "nccl", "--comm-timeout", "1")])
    check_one_sentence(late, f"rank 1 has not come to the meeting at 127.0.0.1:{port} within 1 s",
                       "192.0.2.1 is no address of")


def case_faults(options, folder):
    runs = NcclRuns(options, folder, {**SMALL, "depth": 1, "global_batch_size": 4, "limit_nsamples_val": 3,
                                      "dtype": "fp32", "patch_size": 2})
    ranks, layout = options.ranks, shares(2, options.ranks // 4)
    runs.trained("undisturbed", ranks, *layout)

    def faulty(fault, *flags, **more):
        shutil.rmtree(runs.path("faulty"), ignore_errors=True)
        ended = runs.train("faulty", ranks, *layout, *flags, ISOBAR_FAULT=fault, **more)
        runs.check_none_is_left("faulty")
        print(f"{fault} {flags}: status {ended.status} after {ended.seconds:.1f} s {ended.sentences}", flush=True)
        return ended

    check_one_sentence(faulty("rank=3 call=60 do=throw"), "isobar: rank 3: ISOBAR_FAULT")
    check_one_sentence(faulty("rank=0 call=60 do=throw"), "isobar: rank 0: ISOBAR_FAULT")
    hung = faulty("rank=2 call=60 do=hang", "--comm-timeout", "5")
    check_one_sentence(hung)  # of a rank that waits for it, or for one that does
    check(re.search(": rank 2 has not come to |, rank 2 is in no call", hung.sentences[0]), hung)
    check_one_sentence(faulty("rank=1 call=60 do=die"), "isobar: rank 1: it has died")
    for question in (1, 40, 200):
        failed = faulty("", ISOBAR_NCCL_STAND_IN_GPU=f"2:fail:{question}")
        check_one_sentence(failed, "isobar: rank 2: ", "an illegal memory access")
        check(failed.seconds < SECONDS_TO_END, failed)
    stuck = faulty("", "--comm-timeout", "5", ISOBAR_NCCL_STAND_IN_GPU="1:stuck:100")
    check_one_sentence(stuck)
    check(re.search("rank 1: .*the GPU has not answered|rank 1 has not come to |rank 1 is in no call",
                    stuck.sentences[0]), stuck)
    check(stuck.seconds < 5 + SECONDS_TO_END, stuck)
    slow = faulty("rank=2 call=60 do=slow:3")
    check(slow.status == 0, slow)
    runs.check_same_bits("faulty", "undisturbed")

    def signal_one(rank, which, iteration):
        def send(process):
            runs.wait_for_iteration("faulty", iteration, process)
            ids = processes_of(options.isobar, runs.path("faulty"))
            if len(ids) == ranks:
                os.kill(ids[rank], which)
            return time.monotonic()
        return send

    for rank in (0, 2):
        check_one_sentence(faulty("", "--comm-timeout", "10", "--set", "num_iters=100000",
                                  meanwhile=signal_one(rank, signal.SIGSTOP, 4)), f"rank {rank} ")
    rng = random.Random(options.kills)
    for _ in range(options.kills):
        rank, iteration = rng.randrange(ranks), rng.randrange(1, ITERATIONS - 2)
        killed = faulty("", meanwhile=signal_one(rank, signal.SIGKILL, iteration))
        if killed.status != 0:
            check(killed.seconds < SECONDS_TO_END and len(killed.sentences) == 1, killed)
            check(killed.sentences[0].startswith(f"isobar: rank {rank}: it has died"), killed)
        runs.trained("faulty", ranks, *layout, "--resume")
        runs.check_same_bits("faulty", "undisturbed")

    stopped = faulty("rank=0 call=60 do=slow:2", meanwhile=signal_one(1, signal.SIGUSR1, 1))
    check(stopped.status == STOPPED and not stopped.sentences, stopped)
    runs.trained("faulty", ranks, *layout, "--resume")
    runs.check_same_bits("faulty", "undisturbed")


def case_pairs(options, folder):
    runs = NcclRuns(options, folder, {**SMALL, "depth": 1, "global_batch_size": 4, "dtype": "fp32", "patch_size": 2})
    kill_pairs(runs, options.kills, options.ranks, *shares(2, options.ranks // 4), least_sentences=1)


def case_slurm(options, folder):
    runs = exact_and_serial(options, folder)
    layout = shares(2, 2)
    on_four = ["-N", "4", "--ntasks-per-node=2"]
    with slurm():
        can = run(["srun", "--mpi=list"])
        listed = (can.out + can.err).split()
        # With pmi2, PMI's variables stand beside Slurm's, and no MPI is there that could read them.
        ways = [way for way in ("pmi2", "none", "pmix", "cray_shasta") if way in listed]
        check("none" in ways, can)
        os.environ["ISOBAR_MPI_PLUGIN"] = str(folder / "there_is_no_MPI.so")
        for way in ways:
            name = f"srun_{way}"
            runs.launch = srun_with(f"--mpi={way}", *on_four)
            whole = way == ways[0]
            ended = runs.trained(name, 8, *layout, *([] if whole else ["--set", "num_iters=1"]))
            check("Setting DP = 2, TP = 2, CP = 2, PP = 1" in ended.out, ended)
            if whole:
                check_twice(runs, name)
            print(f"srun --mpi={way}: {ended.seconds:.1f} s", flush=True)
        check_one_sentence(runs.train("thrown", 8, *layout, ISOBAR_FAULT="rank=5 call=60 do=throw"),
                           "isobar: rank 5: ISOBAR_FAULT")
        runs.check_none_is_left("thrown")
        slurm_steps_in_other_orders(runs, folder)


def slurm_steps_in_other_orders(runs, folder):
    """Where rank 0 need not be on the first node, or the step has components."""
    once = ["--set", "num_iters=1"]
    hosts = folder / "hosts"
    hosts.write_text("node3\nnode1\n")
    runs.launch = srun_with("-m", "arbitrary", "-n", "2")
    check_one_sentence(runs.train("unsaid", 2, *once, SLURM_HOSTFILE=str(hosts)),
                       "SLURM_DISTRIBUTION is arbitrary, so that the list of nodes does not say where rank 0 is: set "
                       "MASTER_ADDR")
    check(not runs.path("unsaid").exists(), "a run folder was left")
    runs.trained("arbitrary", 2, *once, SLURM_HOSTFILE=str(hosts), MASTER_ADDR="127.0.0.1")
    runs.launch = srun_of_components(1, 2)
    ended = runs.train("components", 3, *once, "--set", "global_batch_size=6")
    check(ended.status == 0 and "Setting DP = 3" in ended.out, ended)


def main():
    if sys.argv[1:2] == ["spawn"]:
        sys.exit(spawn(int(sys.argv[2]), sys.argv[3:]))
    cases = {name.removeprefix("case_"): function for name, function in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--stand-ins", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, choices=(4, 8), default=4)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    options.isobar = options.isobar.resolve()
    os.environ["ISOBAR_CUDA_LIBS"] = str(options.stand_ins.resolve())
    with tempfile.TemporaryDirectory(prefix="isobar_") as name:
        try:
            cases[options.case](options, pathlib.Path(name))
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")
    print(f"{options.case}: well")


if __name__ == "__main__":
    main()
