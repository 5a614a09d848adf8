#!/usr/bin/env python3
"""Ranks as processes: `isobar train` and the verbs under mpirun, and under a Slurm that this script brings up.

    processes.py CASE --isobar build-cpu/apps/isobar --verbs build-cpu/tests/mpi_collectives
                 --plugin build-cpu/apps/isobar_mpi.so [--kills 3]

    verbs         every verb on 1, 3 and 4 processes; calls that do not fit, a rank that is late, a rank that fails
    more_verbs    every verb on 2, 5 and 8 processes, and with what is told compared
    runs          runs of several processes are the run of one, and leave one run's files, log and TensorBoard
    tiny          the same of config tiny and 8 processes
    refused       ranks that do not fit together: one sentence, and no run folder
    faults        what ISOBAR_FAULT plants: ended within 30 s, the rank named, nothing left running
    hung          the same of a process that is stopped; what it has left resumes to the undisturbed bits
    killed        kill -9 of a random one of 8, --kills times; the last checkpoint resumes to the undisturbed bits
    pairs         kill -9 of two random ones of 8, a millisecond apart, --kills times: one sentence of one of them
    stopped       SIGUSR1 to one rank only stops all after the same iteration, status 75
    slurm         the same under srun --mpi=pmix on 4 nodes of one host; a plain srun is refused by one sentence
    slurm_faults  faults, hung and killed under srun
    requeued      scripts/slurm/cpu.sbatch: SIGUSR1, status 75, requeue; the end is the undisturbed run's, bit for bit

Exit status 77, with the reason, where what a case needs is missing.
"""
import argparse
import contextlib
import functools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SKIPPED, STOPPED = 77, 75
SECONDS_TO_END, SECONDS_OF_A_DEATH = 30, 15
ITERATIONS = 12
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Of runs that only have to be many: a model of 9424 parameters.
SMALL = {"num_iters": ITERATIONS, "log_every": 1, "validate_every": 6, "checkpoint_every": 3,
         "limit_nsamples_val": 13, "dtype": "fp64", "embed_dim": 16, "depth": 2, "num_heads": 2, "dropout": 0.2,
         "global_batch_size": 8, "grad_accumulation": 2, "optimizer": "adamw", "eps": 1e-3, "grad_clip": 0.05}
# Config `tiny` as it is, on data as `isobar data synth` makes them.
TINY = {"num_iters": 30, "log_every": 1, "validate_every": 10, "checkpoint_every": 10,
        "limit_nsamples_val": 64, "dtype": "fp64"}
SMALL_DATA = ["--train-years", "1", "--valid-years", "1", "--steps-per-year", "40", "--grid", "16x32",
              "--channels", "4"]
TINY_DATA = ["--train-years", "1", "--valid-years", "1"]
# Data-, tensor- and context-parallel ranks, and other flags, of the layouts that must train as one rank does.
LAYOUTS = [((2, 1, 1), []), ((4, 1, 1), ["--bucket-cap-mb", "0.001"]), ((1, 2, 2), ["--context-form", "ring"]),
           ((2, 2, 2), ["--sequence-parallel", "--shard-optimizer"])]
# A small GPT on a text: 4 blocks, 4 parts of a batch.
TEXT = {"task": "language_model", "seq_length": 12, "embed_dim": 16, "depth": 4, "num_heads": 2, "vocab_multiple": 8,
        "hidden_dropout": 0.1, "global_batch_size": 10, "grad_accumulation": 4, "num_iters": ITERATIONS, "lr": 1e-2,
        "optimizer": "adamw", "eps": 1e-3, "grad_clip": 0.1, "dtype": "fp64", "log_every": 1, "validate_every": 6,
        "checkpoint_every": 3}
# Ranks, and flags: pipelines that must train as one rank does.
PIPELINES = [(2, ["--pipeline-parallel", 2]), (4, ["--pipeline-parallel", 4]),
             (4, ["--pipeline-parallel", 2, "--shard-optimizer"]),
             (2, ["--pipeline-parallel", 2, "--pipeline-chunks", 2]),
             (3, ["--pipeline-parallel", 3, "--pipeline-split", "1,2,1"]),
             (8, ["--pipeline-parallel", 2, "--tensor-parallel", 2, "--sequence-parallel"])]
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")
OPEN_MPI_HAS_NOT_CONNECTED = ("Open MPI failed to TCP connect", "PML add procs failed")
TIMED = ("samples_per_second", "data_seconds")
TIMED_TAGS = ("Avg iters per sec", "Avg samples per sec", "Seconds waited for data")


class Failure(Exception):
    pass


def check(condition, *words):
    if not condition:
        raise Failure(" ".join(map(str, words)))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def mpirun(ranks, *command):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks),
            *map(str, command)]


def srun(ranks, *command, nodes=4):
    """Of the nodes that slurm() brings up."""
    return ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-N", str(nodes), "--ntasks-per-node", str(ranks // nodes),
            *map(str, command)]


def why_not_connected(said):
    return next((reason for reason in OPEN_MPI_HAS_NOT_CONNECTED if reason in said), None)


def environment(**more):
    """Without a bar, which mpirun's pseudo-terminal would have, and which the sentences would follow in one line."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "TERM": "dumb", **more}


def processes_of(program, mark):
    """Ids of the processes of a program that have `mark` among their arguments, the zombies left out; by rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_text().split("\0")
            variables = dict(entry.split("=", 1)
                             for entry in (folder / "environ").read_text().split("\0") if "=" in entry)
        except (OSError, UnicodeDecodeError):
            continue
        if arguments[0] == str(program) and str(mark) in arguments:
            rank = next((variables[name] for name in RANK_VARIABLES if name in variables), "0")
            found[int(rank)] = int(folder.name)
    return [found[rank] for rank in sorted(found)]


class Ended:
    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.seconds = status, out, seconds
        self.err = err.replace("\0", "")  # prterun puts one behind each of its messages
        # What the launcher itself says has no such beginning.
        self.sentences = [line for line in self.err.splitlines() if line.startswith("isobar: ")]

    def __str__(self):
        return f"status {self.status} after {self.seconds:.1f} s\n{self.out[-1000:]}\n{self.err[-3000:]}"


def run(command, meanwhile=None, timeout=200, **variables):
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   env=environment(**variables), text=True)
        try:
            if meanwhile:
                start = meanwhile(process) or start
            process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{' '.join(map(str, command))}: still running after {timeout} s") from late
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        for file in (out, err):
            file.seek(0)
        return Ended(process.returncode, out.read(), err.read(), time.monotonic() - start)


class Runs:
    """Data, and runs of `isobar train` on them. launch(ranks, *command): how several ranks are started."""

    def __init__(self, isobar, folder, settings=None, launch=mpirun, data=tuple(SMALL_DATA)):
        self.isobar, self.folder, self.launch = isobar, folder, launch
        self.settings = [word for key, value in (settings or SMALL).items()
                         for word in ("--set", f"{key}={json.dumps(value)}")]
        if not (folder / "data").exists():
            made = run([isobar, "data", "synth", "--out", folder / "data", *data])
            check(made.status == 0, made)

    def path(self, name):
        return self.folder / name

    def command(self, name, *flags):
        return [self.isobar, "train", "--config", "tiny", "--data", self.folder / "data", "--run-dir", self.path(name),
                *self.settings, *flags]

    def train(self, name, ranks, *flags, **more):
        """Again, twice at most, where Open MPI has not connected its processes: 4.1.4 drops connections that come
        before it knows who calls (its issue 3035), on a busy host about once in a hundred runs under Slurm; and there
        a process that is early may ask for the address of one whose node does not know of the step yet."""
        command = self.command(name, *flags)
        existed, reached = self.path(name).exists(), self.iterations(name)
        for attempt in range(3):
            ended = run(self.launch(ranks, *command) if ranks > 1 else command, **more)
            reason = why_not_connected(ended.err)
            if reason is None or self.iterations(name) > reached or attempt == 2:
                return ended
            print(f"{name}: {reason} before the first iteration: once more", flush=True)
            if not existed:
                shutil.rmtree(self.path(name), ignore_errors=True)

    def wait_for_iteration(self, name, iteration, process):
        """Until the run has logged it, or has ended."""
        while process.poll() is None and self.iterations(name) < iteration:
            time.sleep(0.005)

    def iterations(self, name):
        return max((line["iteration"] for line in self.metrics(name)), default=0)

    def metrics(self, name):
        try:
            lines = (self.path(name) / "metrics.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]
        except (OSError, ValueError):  # not begun, or cut in the middle of a line
            return []

    def scalars(self, name):
        """Of TensorBoard, from the one file that a run leaves."""
        files = list((self.path(name) / "logs").iterdir())
        check(len(files) == 1, f"{name}: files of TensorBoard: {files}")
        return scalars_in(files[0].read_bytes())

    def said(self, name):
        """The lines of out.log without their times and the run's folder, and without how many ranks there are,
        where they have met and what one of them holds."""
        log = (self.path(name) / "out.log").read_text().replace(str(self.path(name)), "RUN")
        lines = re.findall(r"^\S+ \S+ - root - INFO - (.*)", log, re.M)
        return [re.sub(r"[\d.e+-]+(?= (?:sec|samples/sec))", "", line) for line in lines
                if not line.startswith(("Setting DP = ", "Ranks:", "run folder ", "the ranks, on ",
                                        "memory of a step"))]

    def check_same_run(self, name, serial):
        """All numbers are those of one rank, and so is all that is left of the run."""
        apart = difference(self.metrics(serial), self.metrics(name))
        check(apart < 1e-10, f"{name}: {apart} from one rank's numbers")
        check(self.files(name) == self.files(serial), name, "other files than one rank's")
        check(self.said(name) == self.said(serial), name, "another log than one rank's:", self.said(name))
        mine, other = self.scalars(name), self.scalars(serial)
        check(mine.keys() == other.keys(), name, "other tags in TensorBoard than one rank's:", mine.keys())
        far = [key for key, value in mine.items()  # fp32
               if key[0] not in TIMED_TAGS and abs(value - other[key]) > 1e-6 * abs(other[key])]
        check(not far, f"{name}: other numbers in TensorBoard than one rank's: {far}")

    def files(self, name):
        run_folder = self.path(name)
        return sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*")
                      if path.parent.name != "logs")

    def check_none_is_left(self, name):
        """All processes of a run have ended, at the latest a little later."""
        end = time.monotonic() + 10
        while time.monotonic() < end and processes_of(self.isobar, self.path(name)):
            time.sleep(0.1)
        left = processes_of(self.isobar, self.path(name))
        check(not left, f"{name}: left running: {left}")

    def final_bits(self, name):
        last = sorted((self.path(name) / "checkpoints").glob("step_*"))[-1]
        files = {file: (last / file).read_bytes() for file in ("model.safetensors", "optimizer.safetensors")}
        files["metrics"] = [{k: v for k, v in line.items() if k not in TIMED} for line in self.metrics(name)]
        files["last"] = last.name
        return files

    def check_same_bits(self, name, other):
        mine, expected = self.final_bits(name), self.final_bits(other)
        for what, value in expected.items():
            check(mine[what] == value, f"{name}: {what} differs from that of {other}")


class TextRuns(Runs):
    """Runs on a text."""

    def __init__(self, isobar, folder, settings=None, launch=mpirun):
        self.isobar, self.folder, self.launch = isobar, folder, launch
        self.settings = [word for key, value in (settings or TEXT).items()
                         for word in ("--set", f"{key}={json.dumps(value)}")]
        rng = random.Random(4)
        (folder / "text.txt").write_text("".join(rng.choice(("delta ", "epsilon ", "zeta ")) for _ in range(500)))

    def command(self, name, *flags):
        return [self.isobar, "train", "--data", self.folder / "text.txt", "--run-dir", self.path(name), *self.settings,
                *flags]


def numbers_in(value):
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in numbers_in(value[key])]
    return [value] if isinstance(value, (int, float)) else []


def difference(a, b):
    """Of all numbers of two runs' metrics: the largest relative one."""
    flat = [[number for line in lines for key in sorted(line) if key not in TIMED for number in numbers_in(line[key])]
            for lines in (a, b)]
    check(len(flat[0]) == len(flat[1]) > 0, "the runs have logged different things")
    return max(abs(x - y) / max(abs(x), 1e-300) for x, y in zip(*flat))


def protobuf_fields(message):
    """(number, bytes or value) of every field."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + size]
        at += size


def scalars_in(events):
    """The numbers of a TensorBoard file by tag and step; a record is length, checksum, event, checksum."""
    found = {}
    while events:
        size = struct.unpack_from("<Q", events)[0]
        event = dict(protobuf_fields(events[12:12 + size]))
        events = events[size + 16:]
        for _, value in protobuf_fields(event.get(5, b"")):
            value = dict(protobuf_fields(value))
            if 2 in value:
                found[value[1].decode(), event.get(2, 0)] = struct.unpack("<f", value[2])[0]
    return found


def check_one_sentence(ended, *words):
    check(ended.status != 0, "status 0:", ended)
    check(ended.seconds < SECONDS_TO_END, "took too long:", ended)
    check(len(ended.sentences) == 1, f"{len(ended.sentences)} sentences:", ended)
    for word in words:
        check(word in ended.sentences[0], f"'{word}' is missing:", ended)


def run_verbs(options, ranks, compare="0"):
    ended = run(mpirun(ranks, options.verbs, "verbs"), ISOBAR_COMM_CHECK=compare)
    check(ended.status == 0, f"{ranks} processes:", ended)


def case_more_verbs(options, folder):
    for ranks in (2, 5, 8):
        run_verbs(options, ranks)
    run_verbs(options, 4, compare="1")


def case_verbs(options, folder):
    for ranks in (1, 3, 4):
        run_verbs(options, ranks)
    check_one_sentence(run(mpirun(3, options.verbs, "misfit"), ISOBAR_COMM_CHECK="1"),
                       "rank 0 comes to all_reduce of 4 fp32, rank 2 to all_reduce of 3 fp32")
    absent = run(mpirun(3, options.verbs, "absent"))
    check_one_sentence(absent, "rank 2 has not come to all_reduce of 4 fp32, call 2 of group world, within 4 s")
    check("is in" not in absent.sentences[0], "rank 2 is in no call:", absent)
    check_one_sentence(run(mpirun(3, options.verbs, "error")), "isobar: rank 2: the disk is full")
    check_one_sentence(run(mpirun(3, options.verbs, "absent"), ISOBAR_FAULT="rank=0 call=2 do=throw"),
                       "isobar: rank 0: ISOBAR_FAULT: an error was asked for at all_reduce of 4 fp32, call 2 of this ")
    check_one_sentence(run(mpirun(3, options.verbs, "absent"), ISOBAR_FAULT="rank=1 call=1 do=die"),
                       "isobar: rank 1: it has died (process ")
    works = run(mpirun(3, options.verbs, "work"))
    check(works.status == 0, works)
    check(len(works.sentences) == 1, "told once:", works)
    check(re.fullmatch("isobar: rank 1 is thinking since [4-8] s: the others wait for it", works.sentences[0]), works)


def shares(tp, cp):
    """The flags of ranks that share a model, and samples."""
    return ["--tensor-parallel", tp, "--context-parallel", cp]


def check_layout(runs, name, sizes, flags=()):
    """A run of ranks in that layout beside the one named serial."""
    dp, tp, cp = sizes
    ended = runs.train(name, dp * tp * cp, *shares(tp, cp), *flags)
    check(ended.status == 0 and not ended.sentences, name, ended)
    runs.check_same_run(name, "serial")
    for once in ("DONE ---- rank 0", "from the data: "):
        check(ended.out.count(once) == 1, name, ended)
    check(f"Setting DP = {dp}, TP = {tp}, CP = {cp}, PP = 1" in ended.out, name, ended)
    check("the ranks, on 1 host, met at 127.0.0.1:" in ended.out, name, ended)
    summary = json.loads((runs.path(name) / "summary.json").read_text())
    check(summary["layout"] == {"dp": dp, "tp": tp, "cp": cp, "pp": 1}, summary)


def serial_run(runs):
    serial = runs.train("serial", 1)
    check(serial.status == 0, serial)


def changed_bytes(path, change):
    contents = bytearray(path.read_bytes())
    change(contents)
    path.write_bytes(contents)


def flip_last(contents):
    contents[-1] ^= 0x10


def another_rate(events):
    """In TensorBoard's file: the first byte of the exponent of the first learning rate."""
    at = events.index(b"Learning Rate")
    events[events.index(b"\x15", at) + 4] ^= 1


def another_loss(metrics):
    at = metrics.index(b'"loss":') + len(b'"loss":0.')
    metrics[at] = ord("1") if metrics[at] != ord("1") else ord("2")


def check_comparisons(runs):
    """What tells runs apart is seen to do so, whichever of it is another: in copies of the run named serial."""
    def last(run):
        return sorted((run / "checkpoints").glob("step_*"))[-1]
    weights, moments = "model.safetensors", "optimizer.safetensors"
    metrics = lambda run: changed_bytes(run / "metrics.jsonl", another_loss)
    changes = [
        (runs.check_same_run, "from one rank's numbers", metrics),
        (runs.check_same_run, "other files", lambda run: (run / "images" / "more.png").touch()),
        (runs.check_same_run, "another log", lambda run: changed_bytes(
            run / "out.log", lambda text: text.extend(b"2026-01-01 10:00:00,000 - root - INFO - one line more\n"))),
        (runs.check_same_run, "other numbers in TensorBoard",
         lambda run: changed_bytes(next((run / "logs").iterdir()), another_rate)),
        (runs.check_same_bits, f"{weights} differs", lambda run: changed_bytes(last(run) / weights, flip_last)),
        (runs.check_same_bits, f"{moments} differs", lambda run: changed_bytes(last(run) / moments, flip_last)),
        (runs.check_same_bits, "metrics differs", metrics),
        (runs.check_same_bits, "last differs", lambda run: last(run).rename(run / "checkpoints" / "step_99999999"))]
    for same, words, change in changes:
        shutil.rmtree(runs.path("changed"), ignore_errors=True)
        shutil.copytree(runs.path("serial"), runs.path("changed"))
        log = runs.path("changed") / "out.log"
        log.write_text(log.read_text().replace(str(runs.path("serial")), str(runs.path("changed"))))
        same("changed", "serial")
        change(runs.path("changed"))
        try:
            same("changed", "serial")
        except Failure as failure:
            check(words in str(failure), f"'{words}' is missing in what was said of a changed run: {failure}")
        else:
            raise Failure(f"{same.__name__} sees nothing where it should say '{words}'")


def case_runs(options, folder):
    runs = Runs(options.isobar, folder)
    serial_run(runs)
    check_comparisons(runs)
    for number, (sizes, flags) in enumerate(LAYOUTS):
        check_layout(runs, f"layout{number}", sizes, flags)
    ended = runs.train("serial", 2, "--resume")
    check(ended.status == 0 and "is finished" in ended.out, ended)


def case_tiny(options, folder):
    tiny = Runs(options.isobar, folder, TINY, data=TINY_DATA)
    serial_run(tiny)
    check_layout(tiny, "mpirun", (2, 2, 2))


def another_build(isobar, folder):
    """The same program, but for the id that tells builds apart (apps/build_id.cmake): its path, and both ids."""
    contents = isobar.read_bytes()
    ids = re.findall(rb"\0([0-9a-f]{12})\0", contents)
    check(len(ids) == 1, "the program's id is not to be told from other texts:", ids)
    other_id = ids[0][::-1] if ids[0][::-1] != ids[0] else b"0123456789ab"
    other = folder / "another build" / "isobar"
    other.parent.mkdir()
    other.write_bytes(contents.replace(ids[0], other_id))
    other.chmod(0o755)
    return str(other), ids[0].decode(), other_id.decode()


def case_refused(options, folder):
    runs = Runs(options.isobar, folder)

    def check_refused(ended, *words):
        check_one_sentence(ended, *words)
        check(not runs.path("run").exists(), "a run folder was left")

    def pair(first, second):
        """Two processes with commands of their own; a shell chooses, because prterun 5.0.7 crashes with two of them."""
        choice = f"[ $OMPI_COMM_WORLD_RANK = 1 ] || exec {shlex.join(first)}; exec {shlex.join(second)}"
        return run(mpirun(2, "bash", "-c", choice))

    # What is wrong on all ranks, and before they have met, is told once too.
    check_refused(runs.train("run", 4, "--set", "num_heads=3"), "num_heads")
    check_refused(runs.train("run", 4, "--set", "learning_rat=1"), "learning_rat")
    check_refused(runs.train("run", 4, "--no-such-flag"), "--no-such-flag")
    check_refused(runs.train("run", 4, "--tensor-parallel", 3),
                  "OMPI_COMM_WORLD_SIZE 4 is no multiple of --tensor-parallel 3")
    check_refused(runs.train("run", 3, "--set", "global_batch_size=4"), "must be at least the 3 data-parallel ranks")
    # What only one has.
    def train(*flags):
        return [str(word) for word in runs.command("run", *flags)]
    check_refused(pair(train("--set", "seed=1"), train("--set", "seed=2")), "rank 1 (process ",
                  "has another config than rank 0")
    check_refused(pair(train("--tensor-parallel", 2), train("--context-parallel", 2)), "rank 1 (process ",
                  "has the layout dp 1 x tp 1 x cp 2")
    # Launchers that Open MPI cannot start under.
    def alone(**variables):
        return run(train(), **variables)
    check_refused(alone(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2"), "SLURM_STEP_NUM_TASKS is 2: Open MPI cannot "
                  "start under this srun; use srun --mpi=pmix")
    check_refused(alone(PMI_RANK="0", PMI_SIZE="2"), "PMI_SIZE is 2: Open MPI cannot start under this launcher; "
                  "use Open MPI's own mpirun, or srun --mpi=pmix")
    check_refused(alone(RANK="0", WORLD_SIZE="2"), "WORLD_SIZE is 2: the backend mpi needs mpirun or srun "
                  "--mpi=pmix to start the ranks")
    check_refused(alone(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2"), "OMPI_COMM_WORLD_SIZE is 2, but MPI has "
                  "started 1 ranks: it is not the MPI of ")
    other, own_id, other_id = another_build(options.isobar, folder)
    check_refused(pair(train(), [other, *train()[1:]]), "rank 1 (process ", f"(build {other_id})",
                  "rank 0 ", f"(build {own_id})")
    check_refused(pair(train("--comm-timeout", 3), ["sleep", "30"]),
                  "rank 0: not all ranks have started MPI within 3 s")
    bare = folder / "bare" / "isobar"  # no plugin lies beside it
    bare.parent.mkdir()
    shutil.copy(options.isobar, bare)
    del os.environ["ISOBAR_MPI_PLUGIN"]
    check_refused(run(mpirun(2, bare, *runs.command("run")[1:])), "this isobar was built without MPI")


def case_elsewhere(options, folder):
    """Rank 1's host has other disks: the first rank alone looks at the data, and what is read later must fit."""
    if os.geteuid() != 0 or run(["unshare", "-m", "true"]).status != 0:
        skip("file systems of one's own need root")
    runs = Runs(options.isobar, folder)

    def with_other(folders, name="run", *flags):
        """Rank 1 finds at each of `folders` what lies at its value."""
        train = runs.command(name, *flags, "--comm-timeout", 20)
        mounts = "; ".join(f"mount --bind {shlex.quote(str(other))} {shlex.quote(str(at))}"
                           for at, other in folders.items())
        inside = f"set -e; {mounts}; exec {shlex.join(map(str, train))}"
        choice = (f"[ $OMPI_COMM_WORLD_RANK = 1 ] || exec {shlex.join(map(str, train))}; "
                  f"exec unshare -m bash -c {shlex.quote(inside)}")
        return run(mpirun(2, "bash", "-c", choice))

    data, others, nothing = folder / "data", folder / "others", folder / "nothing"
    nothing.mkdir()
    made = run([options.isobar, "data", "synth", "--out", others / "shorter", *SMALL_DATA, "--steps-per-year", "9"])
    check(made.status == 0, made)
    # That rank 1 has no file at all is seen when it reads its first batch, and not before.
    check_one_sentence(with_other({data / "train": nothing}), "isobar: rank 1: ", "/data/train/", ".h5")
    check_one_sentence(with_other({data / "train": others / "shorter/train"}), "isobar: rank 1: ",
                       "is not what it was when the data were looked at")
    check(not runs.path("run").exists(), "a run folder was left")
    # Statistics that the first rank has made of the data are all ranks'.
    own = [word for key in ("global_means", "global_stds", "time_means")
           for word in ("--set", f"{key}_path={folder / 'none' / key}.npy")]
    together, alone = runs.train("together", 2, *own), runs.train("alone", 1, *own)
    check(together.status == 0 and alone.status == 0, together, alone)
    apart = difference(runs.metrics("alone"), runs.metrics("together"))
    check(apart < 1e-10, f"{apart} from one rank's numbers")


def train_undisturbed(runs, ranks, *flags):
    ended = runs.train("undisturbed", ranks, "--overwrite", *flags)
    check(ended.status == 0, ended)


def stop_one(runs, name, ranks, rank, *flags):
    """SIGSTOP in the midst of a run that would not end."""
    def stop(process):
        runs.wait_for_iteration(name, 7, process)
        ids = processes_of(runs.isobar, runs.path(name))
        if process.poll() is not None:  # it has ended before: what it has said is looked at below
            return None
        check(len(ids) == ranks, f"{len(ids)} processes")
        os.kill(ids[rank], signal.SIGSTOP)
        return time.monotonic()
    shutil.rmtree(runs.path(name), ignore_errors=True)
    ended = runs.train(name, ranks, *flags, "--comm-timeout", "10", "--set", "num_iters=100000", meanwhile=stop)
    print(f"rank {rank} stopped: {ended.seconds:.1f} s, status {ended.status}, {ended.sentences}")
    runs.check_none_is_left(name)
    check_one_sentence(ended, f"rank {rank} ")


def case_faults(options, folder):
    runs = Runs(options.isobar, folder)
    train_undisturbed(runs, 4)

    def faulty(fault, *flags, **more):
        ended = runs.train("faulty", 4, "--overwrite", *flags, ISOBAR_FAULT=fault, **more)
        print(f"{fault}: {ended.seconds:.1f} s, status {ended.status}, {ended.sentences}")
        runs.check_none_is_left("faulty")
        return ended

    check_one_sentence(faulty("rank=3 call=60 do=throw"), "isobar: rank 3: ISOBAR_FAULT")
    check_one_sentence(faulty("rank=0 call=60 do=throw"), "isobar: rank 0: ISOBAR_FAULT")
    check_one_sentence(faulty("rank=2 call=60 do=hang", "--comm-timeout", "5"), ": rank 2 has not come to ")
    check_one_sentence(faulty("rank=2 call=60 do=garble", ISOBAR_COMM_CHECK="1"), ": call ", "rank 2 ")
    dead = faulty("rank=1 call=60 do=die")
    check(dead.status != 0 and dead.seconds < SECONDS_TO_END and named_as_dead(dead) == {1}, dead)
    slow = faulty("rank=2 call=60 do=slow:5")
    check(slow.status == 0, slow)
    runs.check_same_bits("faulty", "undisturbed")


def case_pipeline(options, folder):
    runs = TextRuns(options.isobar, folder)
    serial_run(runs)
    for number, (ranks, flags) in enumerate(PIPELINES):
        name = f"pipeline{number}"
        ended = runs.train(name, ranks, *flags)
        check(ended.status == 0 and not ended.sentences, name, ended)
        apart = difference(runs.metrics("serial"), runs.metrics(name))
        check(apart < 1e-10, f"{name}: {apart} from one rank's numbers")
        check(runs.files(name) == runs.files("serial"), name, "other files than one rank's")
    flags = ["--pipeline-parallel", 2]
    train_undisturbed(runs, 4, *flags)
    # Half of all calls are messages between the stages.
    for rank, call in ((1, 150), (3, 401)):
        ended = runs.train("faulty", 4, *flags, "--overwrite", ISOBAR_FAULT=f"rank={rank} call={call} do=die")
        print(f"rank {rank} dies in call {call}: {ended.seconds:.1f} s, status {ended.status}, {ended.sentences}")
        runs.check_none_is_left("faulty")
        check(ended.status != 0 and ended.seconds < SECONDS_TO_END and named_as_dead(ended) == {rank}, ended)
        resumed = runs.train("faulty", 4, *flags, "--resume")
        check(resumed.status == 0, resumed)
        runs.check_same_bits("faulty", "undisturbed")
    kill_at_random(runs, options.kills, 4, flags)


def case_hung(options, folder):
    runs = Runs(options.isobar, folder)
    train_undisturbed(runs, 4)
    slow_disk(runs, options.library, *((20, 5) if options.kills > 3 else (3, 1)))
    for rank in (0, 2):
        stop_one(runs, "hung", 4, rank)
    ended = runs.train("hung", 4, "--resume")
    check(ended.status == 0, ended)
    runs.check_same_bits("hung", "undisturbed")


def slow_disk(runs, library, seconds, timeout):
    """A disk that takes `seconds` for a checkpoint, where the other ranks wait for `timeout`: the run goes on. One that
    never answers ends it, with what the rank does."""
    def train(wait):
        return runs.train("slow disk", 4, "--overwrite", "--comm-timeout", timeout, LD_PRELOAD=library,
                          FAULT_CALL="fsync", FAULT_PATH="step_", FAULT_AT="2", FAULT_SECONDS=str(wait))
    ended = train(seconds)
    print(f"fsync of {seconds} s, timeout {timeout}: {ended.seconds:.1f} s, status {ended.status}, {ended.sentences}")
    check(ended.status == 0 and ended.seconds > seconds, ended)
    check(len(ended.sentences) == 1 and re.search("rank 0 is writing a checkpoint since [0-9]+ s: the others wait",
                                                  ended.sentences[0]), ended)
    runs.check_same_bits("slow disk", "undisturbed")
    ended = train(10000)
    print(f"fsync without end, timeout {timeout}: {ended.seconds:.1f} s, status {ended.status}, {ended.sentences}")
    check(ended.status != 0 and 12 * timeout < ended.seconds < 14 * timeout + SECONDS_TO_END, ended)
    check(len(ended.sentences) == 2 and re.search(
        "rank 0 has not come to .*; rank 0 is writing a checkpoint since [0-9]+ s", ended.sentences[1]), ended)
    runs.check_none_is_left("slow disk")


def named_as_dead(ended):
    """The ranks that isobar says have died, or, where it was ended before it could, the first one of the launcher,
    which goes on to list those that it has ended itself."""
    of_isobar = re.findall(r"^isobar: rank (\d+): it (?:has died|died before)", ended.err, re.M)
    pattern = r"process rank (\d+) with PID .* exited on signal 9|^srun: error: \S+ task (\d+): Killed"
    of_launcher = ["".join(groups) for groups in re.findall(pattern, ended.err, re.M)]
    return {int(rank) for rank in of_isobar or of_launcher[:1]}


def kill_at_random(runs, kills, ranks=8, flags=None):
    """From the moment on at which the run has its folder. Before that mpirun 4.1.4 itself was seen to wait for ever in
    PMIx_server_finalize, in one of 50 kills, after it had named the dead rank and ended the others."""
    flags = flags or shares(2, 2)
    train_undisturbed(runs, ranks, *flags)
    rng = random.Random(kills)
    while kills > 0:
        rank, iteration = rng.randrange(ranks), rng.randrange(ITERATIONS // 2)
        shutil.rmtree(runs.path("killed"), ignore_errors=True)

        def kill(process, rank=rank, iteration=iteration):
            while process.poll() is None and not (runs.path("killed") / "config.json").exists():
                time.sleep(0.005)
            ids = processes_of(runs.isobar, runs.path("killed"))
            runs.wait_for_iteration("killed", iteration, process)
            if process.poll() is None:
                os.kill(ids[rank], signal.SIGKILL)
            return time.monotonic()
        ended = runs.train("killed", ranks, *flags, meanwhile=kill)
        print(f"rank {rank} killed after iteration {iteration}: {ended.seconds:.1f} s, status {ended.status}, "
              f"{ended.sentences}, named {named_as_dead(ended)}, reached {runs.iterations('killed')}", flush=True)
        runs.check_none_is_left("killed")
        if ended.status == 0:  # this script came too late
            continue
        kills -= 1
        check(ended.seconds < SECONDS_TO_END and len(ended.sentences) <= 1, ended)
        check(named_as_dead(ended) == {rank}, f"rank {rank} after iteration {iteration}:", ended)
        resumed = runs.train("killed", ranks, *flags, "--resume")
        check(resumed.status == 0, resumed)
        runs.check_same_bits("killed", "undisturbed")


def case_killed(options, folder):
    kill_at_random(Runs(options.isobar, folder), options.kills)


def kill_pairs(runs, kills, ranks, *flags, least_sentences):
    """In the midst of runs that would not end."""
    rng = random.Random(kills)
    slowest = 0
    for _ in range(kills):
        pair, iteration = rng.sample(range(ranks), 2), rng.randrange(1, ITERATIONS // 2)
        shutil.rmtree(runs.path("pair"), ignore_errors=True)

        def kill(process, pair=pair, iteration=iteration):
            runs.wait_for_iteration("pair", iteration, process)
            ids = processes_of(runs.isobar, runs.path("pair"))
            check(len(ids) == ranks, f"{len(ids)} processes")
            os.kill(ids[pair[0]], signal.SIGKILL)
            time.sleep(0.001)
            with contextlib.suppress(ProcessLookupError):  # the launcher was quicker
                os.kill(ids[pair[1]], signal.SIGKILL)
            return time.monotonic()
        ended = runs.train("pair", ranks, *flags, "--set", "num_iters=100000", meanwhile=kill)
        named = named_as_dead(ended)
        print(f"ranks {pair} killed after iteration {iteration}: {ended.seconds:.1f} s, status {ended.status}, "
              f"{ended.sentences}, named {named}", flush=True)
        runs.check_none_is_left("pair")
        check(ended.status != 0 and ended.seconds < SECONDS_OF_A_DEATH, ended)
        check(least_sentences <= len(ended.sentences) <= 1, f"{len(ended.sentences)} sentences:", ended)
        check(len(named) == 1 and named <= set(pair), f"{named} instead of one of {pair}:", ended)
        slowest = max(slowest, ended.seconds)
    print(f"{kills} pairs, the slowest end after {slowest:.1f} s")


def case_pairs(options, folder):
    kill_pairs(Runs(options.isobar, folder), options.kills, 8, *shares(2, 2), least_sentences=0)


def case_stopped(options, folder):
    runs = Runs(options.isobar, folder, {**SMALL, "global_batch_size": 12})
    train_undisturbed(runs, 3)
    # In the middle of training, and in an uneven validation (13 samples over 3 ranks): the first, before iteration 1.
    for name, iteration, rank in (("training", 4, 2), ("validation", 0, 1)):
        def signal_one(process, name=name, iteration=iteration, rank=rank):
            if iteration > 0:
                runs.wait_for_iteration(name, iteration, process)
            while process.poll() is None and not (runs.path(name) / "config.json").exists():
                time.sleep(0.001)
            ids = processes_of(options.isobar, runs.path(name))
            if process.poll() is not None:  # as above
                return
            check(len(ids) == 3, f"{len(ids)} processes")
            os.kill(ids[rank], signal.SIGUSR1)
        # Late once, so that there is time for the signal.
        stopped = runs.train(name, 3, meanwhile=signal_one, ISOBAR_FAULT=f"rank=0 call={16 + 12 * iteration} do=slow:2")
        check(stopped.status == STOPPED and not stopped.sentences, name, stopped)
        check("stopped by a signal to another rank" in stopped.out, name, stopped)
        runs.check_none_is_left(name)
        last = sorted((runs.path(name) / "checkpoints").glob("step_*"))[-1]
        owed = json.loads((last / "state.json").read_text())["validation_is_owed"]
        check(owed == (name == "validation"), f"{name}: stopped elsewhere, at {last.name}", stopped)
        resumed = runs.train(name, 3, "--resume")
        check(resumed.status == 0, name, resumed)
        runs.check_same_bits(name, "undisturbed")


FIRST_SLURM_WITHOUT_CGROUPS = (24, 11)  # Debian 13: the first one tried
SLURM_CONF = """\
ClusterName=isobar
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/s,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=node[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=8 RealMemory=4000 Gres=gpu:4
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


@contextlib.contextmanager
def slurm(nodes=4):
    """A Slurm of several nodes on this host, without systemd and cgroups; its variables are set meanwhile."""
    if os.geteuid() != 0:
        skip("Slurm's daemons need root")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    needs("munged", "slurmctld", "slurmd", "srun", "sbatch")
    version = tuple(map(int, re.findall(r"\d+", run(["slurmd", "-V"]).out)[:2]))
    can_do_without_cgroups = version >= FIRST_SLURM_WITHOUT_CGROUPS
    if not can_do_without_cgroups and not any(pathlib.Path("/sys/fs/cgroup").glob("*")):
        skip("there is no /sys/fs/cgroup, which slurmd wants")
    host = os.uname().nodename.split(".")[0]
    with tempfile.TemporaryDirectory(prefix="isobar_slurm_") as name:
        folder = pathlib.Path(name)
        for made in ("state", "log", "munge"):
            (folder / made).mkdir()
            (folder / made).chmod(0o755)
        folder.chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        port = 20000 + os.getpid() % 1000 * 10
        conf = folder / "slurm.conf"
        conf.write_text(SLURM_CONF.format(folder=folder, host=host, port=port, nodes=nodes, first=port + 1,
                                          last=port + nodes))
        for gpu in range(4):
            (folder / f"nvidia{gpu}").symlink_to("/dev/null")
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/nvidia[0-3]\n")
        daemons = [["munged", "--force", f"--key-file={key}", f"--socket={folder}/munge/s",
                    f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log",
                    f"--seed-file={folder}/munge/seed"],
                   ["slurmctld", "-c", "-f", conf]]
        for i in range(1, nodes + 1):  # a folder of its own for each, so that PMIx's files do not collide
            own = folder / f"n{i}"
            for made in (own, folder / "pmix" / f"node{i}", folder / "spool" / f"node{i}"):
                made.mkdir(parents=True)
            (own / "slurm.conf").symlink_to(conf)
            (own / "gres.conf").symlink_to(folder / "gres.conf")
            if can_do_without_cgroups:
                (own / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
            (own / "mpi.conf").write_text(f"PMIxCliTmpDirBase={folder}/pmix/node{i}\n")
            daemons.append(["slurmd", "-N", f"node{i}", "-f", own / "slurm.conf"])
        # Open MPI's shared memory would be that of several nodes at once: TCP. In MPI_Init of 4.1.4 one process may be
        # so far ahead on a busy host that its first message reaches another one which still waits in the first of two
        # fences of PMIx, before it can take messages: that one calls a null pointer in mca_btl_tcp. (Seen in a fifth of
        # the steps with 8 processes; the same is told in Open MPI's issues 11438 and 12495, and in 13559.) The last two
        # settings leave out that fence.
        os.environ |= {"SLURM_CONF": str(conf), "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp",
                       "OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8",
                       "OMPI_MCA_pmix_base_async_modex": "1", "OMPI_MCA_pmix_base_collect_data": "0"}
        try:
            for daemon in daemons:
                started = run(daemon, timeout=60)
                check(started.status == 0, daemon[0], started)
            end = time.monotonic() + 60
            while run(["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]).out.count("node") < nodes:
                check(time.monotonic() < end, "the nodes do not come up:", (folder / "log" / "node1.log").read_text())
                time.sleep(0.1)
            yield
        finally:
            end_daemons([*folder.glob("slurmd-*.pid"), folder / "slurmctld.pid", folder / "munge" / "pid"])


def end_daemons(pid_files):
    """They remove the files of their own ids when they go."""
    for file in pid_files:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(file.read_text()), signal.SIGTERM)
    end = time.monotonic() + 20
    while time.monotonic() < end and any(file.exists() for file in pid_files):
        time.sleep(0.05)


def case_slurm(options, folder):
    with slurm():
        tiny = Runs(options.isobar, folder, TINY, srun, TINY_DATA)
        plain = [word for word in srun(8, *tiny.command("plain")) if word != "--mpi=pmix"]
        check_one_sentence(run(plain),
                           "SLURM_STEP_NUM_TASKS is 8: Open MPI cannot start under this srun; use srun --mpi=pmix")
        check(not tiny.path("plain").exists(), "a run folder was left")
        serial_run(tiny)
        check_layout(tiny, "srun", (2, 2, 2))


def case_slurm_faults(options, folder):
    with slurm():
        runs = Runs(options.isobar, folder, launch=srun)
        kill_at_random(runs, options.kills)
        thrown = runs.train("faulty", 8, *shares(2, 2), ISOBAR_FAULT="rank=5 call=60 do=throw")
        check_one_sentence(thrown, "isobar: rank 5: ISOBAR_FAULT")
        runs.check_none_is_left("faulty")
        stop_one(runs, "stopped", 8, 6, *shares(2, 2))


def case_requeued(options, folder):
    script = ROOT / "scripts" / "slurm" / "cpu.sbatch"
    with slurm(nodes=2):
        runs = Runs(options.isobar, folder, launch=functools.partial(srun, nodes=2))
        train_undisturbed(runs, 4)
        log = folder / "log"

        def submit():
            log.unlink(missing_ok=True)
            job = run(["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=2", f"--output={log}", script,
                       *runs.command("job")[2:]], ISOBAR=str(options.isobar), ISOBAR_FAULT="rank=1 call=60 do=slow:3")
            check(job.status == 0, job)
            wait_until(lambda: runs.iterations("job") >= 3 or log.exists() and why_not_connected(log.read_text()), 60,
                       log)
            return job.out.strip()
        number = submit()
        if runs.iterations("job") < 3:
            print(f"job: {why_not_connected(log.read_text())} before the first iteration: once more", flush=True)
            run(["scancel", number])
            wait_until(lambda: number not in run(["squeue", "-h", "-o", "%i"]).out, 60, log)
            shutil.rmtree(runs.path("job"), ignore_errors=True)
            number = submit()
        signalled = run(["scancel", "--signal=USR1", number])
        check(signalled.status == 0, signalled)
        wait_until(lambda: (runs.path("job") / "summary.json").exists(), 120, log)
        wait_until(lambda: number not in run(["squeue", "-h", "-o", "%i"]).out, 60, log)
    said = log.read_text()
    # Slurm signals every rank; the first one tells which signal if its own has come by then.
    check(re.search("stopped by (SIGUSR1|a signal to another rank) after iteration", said), said)
    check("requeued" in said, said)
    check(json.loads((runs.path("job") / "summary.json").read_text())["iterations"] == ITERATIONS, said)
    runs.check_same_bits("job", "undisturbed")


def wait_until(holds, seconds, log=None):
    end = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < end, "has not happened:", log.read_text() if log and log.exists() else "no log")
        time.sleep(0.05)


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            skip(f"there is no {program} here")


def main():
    cases = {name.removeprefix("case_"): function for name, function in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--verbs", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="lab/faults/failing_calls.cc")
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    options.isobar, options.verbs = options.isobar.resolve(), options.verbs.resolve()
    if not options.plugin.exists():
        skip("this isobar was built without MPI")
    needs("mpirun")
    os.environ["ISOBAR_MPI_PLUGIN"] = str(options.plugin.resolve())
    with tempfile.TemporaryDirectory(prefix="isobar_") as name:
        try:
            cases[options.case](options, pathlib.Path(name))
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")
    print(f"{options.case}: well")


if __name__ == "__main__":
    main()
