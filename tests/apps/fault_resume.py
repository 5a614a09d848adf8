#!/usr/bin/env python3
"""A run of `isobar train` in which any one system call fails either does without it or ends with one line; resumed, it
has the same bits as one that was not disturbed. So does one in which any one allocation fails.

    fault_resume.py --isobar build-cpu/apps/isobar --library build-cpu/tests/libfailing_calls.so [--every 25]
                    [--allocations 100]

Trains a very small model on data it makes, and counts the system calls about files that this takes. Then, for every
`--every`-th of them from a random one on (1: all), it trains once more while that call fails (lab/faults/
failing_calls.cc), which must end with status 0, or with status 1 and one line on stderr, resumes to the end and
compares weights, optimizer, state.json and metrics.jsonl with the undisturbed run's, as kill_resume.py does. Then the
same for `--allocations` of the program's allocations, drawn at random.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from kill_resume import Failure, Trainer, check, check_same, final_state

# Small, with all that a run writes: best weights twice, an old checkpoint removed, a last one that is not at a
# boundary.
MODEL = {"img_size": [4, 8], "patch_size": 2, "embed_dim": 8, "depth": 1, "num_heads": 1, "n_in_channels": 2,
         "n_out_channels": 2, "lr": 3e-3, "global_batch_size": 2, "num_iters": 3, "log_every": 1,
         "checkpoint_every": 2, "validate_every": 2, "keep_checkpoints": 1, "predict_change": True,
         "optimizer": "adamw", "num_data_workers": 0}


def with_fault(library, **plan):
    return {**os.environ, "LD_PRELOAD": str(library), **{f"FAULT_{key.upper()}": str(v) for key, v in plan.items()}}


def calls_of(trainer, library, work):
    """The calls of an undisturbed run, in order: "NUMBER NAME PATH"."""
    log = work / "calls"
    trainer.run(work / "counted", env=with_fault(library, log=log))
    return log.read_text().splitlines()


def allocations_of(isobar, trainer, library, work):
    """The numbers of the allocations that an undisturbed run makes, beyond those of a command that does nothing: what
    fails before main cannot be told in a line of isobar's.
    """
    log = work / "allocations"
    subprocess.run([isobar, "--version"], env=with_fault(library, new_log=log), check=True, stdout=subprocess.DEVNULL)
    first = int(log.read_text()) + 1
    trainer.run(work / "allocated", env=with_fault(library, new_log=log))
    return range(first, int(log.read_text()) + 1)


def check_fault(trainer, library, work, expected, call):
    """Whether the run ended in spite of the call, "NUMBER NAME PATH", or the allocation, "NUMBER new", that failed."""
    number, name = call.split()[:2]
    run = work / f"fault_{name}_{number}"
    process = trainer.start(run, env=with_fault(library, **{"new_at" if name == "new" else "at": number}))
    _, err = process.communicate()
    lines = err.splitlines()
    check(process.returncode in (0, 1), f"{call}: status {process.returncode}: {err}")
    check(process.returncode == 0 or len(lines) == 1 and lines[0].startswith("isobar: "),
          f"{call}: one line is wanted on stderr: {lines}")
    try:
        trainer.run(run, "--resume")
        check_same(run, expected)
    except (Failure, OSError) as failure:
        raise Failure(f"{call}: {lines}, and then: {failure}") from None
    shutil.rmtree(run)
    return process.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", required=True, type=pathlib.Path)
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--every", type=int, default=1, help="one call of so many, from a random one on")
    parser.add_argument("--allocations", type=int, default=100, help="so many of the allocations")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--from", dest="first", type=int, help="the call to begin with; default: random, below --every")
    arguments = parser.parse_args()
    isobar, library = arguments.isobar.resolve(), arguments.library.resolve()
    first = arguments.first if arguments.first is not None else random.randrange(1, arguments.every + 1)

    with tempfile.TemporaryDirectory(prefix="isobar_fault_") as temporary:
        work = pathlib.Path(temporary)
        data = work / "data"
        subprocess.run([isobar, "data", "synth", "--out", data, "--train-years", "1", "--valid-years", "1",
                        "--steps-per-year", "9", "--grid", "4x8", "--channels", "2", "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        trainer = Trainer(isobar, data, MODEL)
        trainer.run(work / "undisturbed")
        expected = final_state(work / "undisturbed")
        calls = calls_of(trainer, library, work)
        allocations = allocations_of(isobar, trainer, library, work)
        chosen = calls[first - 1::arguments.every]
        drawn = random.sample(allocations, min(arguments.allocations, len(allocations)))
        chosen += [f"{number} new" for number in sorted(drawn)]
        kinds = collections.Counter(call.split()[1] for call in chosen)
        print(f"a run makes {len(calls)} calls and {len(allocations)} allocations; {len(chosen)} of them fail in turn, "
              f"calls from number {first} on, every {arguments.every}: "
              + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()), flush=True)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            ended = [pool.submit(check_fault, trainer, library, work, expected, call)
                     for call in chosen]
            failures = [str(future.exception()) for future in concurrent.futures.as_completed(ended)
                        if future.exception()]
        if failures:
            sys.exit("\n".join(f"FAILED: {failure}" for failure in failures))
        survived = sum(future.result() for future in ended)
        print(f"{len(chosen)} faults: {survived} runs did without what failed, {len(chosen) - survived} ended with one "
              f"line; all resumed to the same bits, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
