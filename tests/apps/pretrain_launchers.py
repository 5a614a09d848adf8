#!/usr/bin/env python3
"""`isobar pretrain-gpt` under launchers: as two processes its losses are those of two threads of one process.

    pretrain_launchers.py CASE --isobar build-cpu/apps/isobar [--stand-ins build-cpu/lab/stand_ins]

    mpirun      two processes by MPI, to the bit
    torchrun    two processes with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) on the
                emulator device, by the stand-in for NCCL, which adds in an order of its own

Exit status 77, with the reason, where what a case needs is missing.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from processes import check, mpirun, needs, run, skip
from small_pretraining import MODEL, write_tokens

LENGTH = "--train-iters 4 --log-interval 1 --save-interval 4 --eval-interval 4 --eval-iters 1".split()
RANKS = 2
MOST_DIFFERENCE = 1e-5  # of fp32 losses about 5, relative: sums of another order


class Runs:
    def __init__(self, isobar, folder, device):
        self.isobar, self.folder, self.device = isobar.resolve(), folder, device
        self.tokens = write_tokens(self.isobar, folder)

    def command(self, name, *more):
        return [self.isobar, "pretrain-gpt", *MODEL, *LENGTH, "--device", self.device, "--data-path",
                self.tokens, "--save", self.folder / name, *more]

    def losses(self, name, ended):
        check(ended.status == 0 and not ended.sentences, ended)
        layout = f"using world size: {RANKS}, data-parallel-size: {RANKS}, "
        check(ended.out.count(layout) == 1, f"{name}: not once '{layout}' in\n{ended.out}")
        check((self.folder / name / "latest_checkpointed_iteration.txt").read_text() == "4", f"{name}: no checkpoint")
        lines = [json.loads(line) for line in open(self.folder / name / "metrics.jsonl")]
        check([line["event"] for line in lines] == ["train"] * 4 + ["valid"], f"{name}: {lines}")
        return [line["loss"] for line in lines]

    def threads(self):
        return self.losses("threads", run(self.command("threads", "--ranks", RANKS)))


def case_mpirun(options, folder):
    needs("mpirun")
    runs = Runs(options.isobar, folder, "cpu")
    processes = runs.losses("processes", run(mpirun(RANKS, *runs.command("processes"))))
    check(processes == runs.threads(), f"{processes} by processes, not the losses of threads")


def case_torchrun(options, folder):
    if options.stand_ins is None or not options.stand_ins.exists():
        skip("there is no stand-in for NCCL here")
    runs = Runs(options.isobar, folder, "emulator")
    spawn = [sys.executable, pathlib.Path(__file__).with_name("nccl_runs.py"), "spawn", RANKS]
    ended = run([*spawn, *runs.command("processes", "--backend", "nccl")],
                ISOBAR_CUDA_LIBS=str(options.stand_ins.resolve()))
    processes, threads = runs.losses("processes", ended), runs.threads()
    apart = max(abs(a - b) / abs(b) for a, b in zip(processes, threads))
    check(apart <= MOST_DIFFERENCE, f"{processes} by processes, and {threads} by threads")
    check(threads[0] - threads[3] > 0.01, f"nothing was learnt: {threads}")


def main():
    cases = {name.removeprefix("case_"): function for name, function in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--stand-ins", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases[options.case](options, pathlib.Path(folder))
    print(f"{options.case}: {RANKS} processes train as {RANKS} threads do")


if __name__ == "__main__":
    main()
