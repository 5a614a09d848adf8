#!/usr/bin/env python3
"""`isobar train --device cuda` on the virtual GPU: correct results, the same bits in every order that streams allow,
and one sentence if a call fails.

    runs.py --isobar build-virtual-gpu/apps/isobar [--all] [--every N] [--jobs N] [--precisions bf16 ...]

It uses generated data and a very small model:
- fp32, tf32, bf16 and fp16, with and without dropout, accumulation and recompute. The error of the weights, against
  the CPU's in fp64, is at most twice the CPU's in the same precision. The bits are the same in three schedules, with a
  CUDA graph, and after a stop in the middle. --all: every combination, and four more, 36; else four;
- a loss scale of fp16 that changes under a graph;
- every N-th call fails in turn, and a driver is too old: status 1 and one sentence, no leak, and the run folder resumes
  to the same bits;
- one step's launches, synchronisations, allocations and memory;
- the algorithms of products: timed once, kept for other runs and in checkpoints, and unchanged with autotune=false;
- convolutions by cuDNN's engines: the same precisions, schedules, graph and stops; the engines of a checkpoint, and a
  line in the log for each that is wrong;
- ranks as processes, which use the first one's algorithms. Exit status 77 if there is no mpirun;
- ranks as processes with a GPU each, by NCCL: the bits of ranks that are threads, contexts only on their own GPU, and
  one sentence if a GPU fails for good.
"""
import argparse
import array
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

MODEL = {"img_size": [8, 16], "patch_size": 2, "embed_dim": 16, "depth": 2, "num_heads": 2, "n_in_channels": 3,
         "n_out_channels": 3, "loss": "weighted_mse", "lr": 3e-3, "lr_schedule": "constant", "warmup": 2,
         "global_batch_size": 4, "num_iters": 4, "log_every": 1, "checkpoint_every": 2, "validate_every": 4,
         "limit_nsamples_val": 2, "seed": 5, "predict_change": False}
CNN = {"img_size": [6, 7], "width": 5, "depth": 3, "lr": 3e-3, "lr_schedule": "constant", "global_batch_size": 4,
       "num_epochs": None, "num_iters": 4, "nsamples": 16, "nsamples_val": 4, "log_every": 1, "checkpoint_every": 2,
       "validate_every": 4, "seed": 5}
UNET = {"volumes": "synthetic", "data_size": 4, "width": 2, "levels": 2, "lr_schedule": "constant",
        "global_batch_size": 4, "num_epochs": None, "num_iters": 4, "nsamples": 16, "nsamples_val": 2, "log_every": 1,
        "checkpoint_every": 2, "validate_every": 4, "seed": 5}
CONFIGS = {"tiny": MODEL, "cnn": CNN, "unet_cpu": UNET}
# The CPU's counterpart of a precision: tensor cores use 10 bits of mantissa of an fp32 operand, as many as fp16 has.
PRECISIONS = {"fp32": ({"tf32": False}, {}), "tf32": ({"tf32": True}, {"amp_mode": "fp16"}),
              "bf16": ({"amp_mode": "bf16"}, {"amp_mode": "bf16"}),
              "fp16": ({"amp_mode": "fp16"}, {"amp_mode": "fp16"})}
DROPOUT, PARTS, RECOMPUTE = {"dropout": 0.1}, {"grad_accumulation": 2}, {"recompute": True}
CONVOLUTIONS, TRANSPOSED = {"config": "cnn"}, {"config": "unet_cpu"}
CHANGE = {"predict_change": True}  # then the loss is computed on fields, else on rows of patches
SAMPLE = [("fp32", PARTS), ("tf32", RECOMPUTE), ("bf16", DROPOUT | PARTS | RECOMPUTE),
          ("fp16", PARTS | RECOMPUTE | CHANGE)]
OF_CONVOLUTIONS = [(precision, CONVOLUTIONS) for precision in PRECISIONS] + [("bf16", TRANSPOSED)]
SKIPPED = 77
ROUNDING = 2.0**-24  # of a weight in fp32
SPAWN = pathlib.Path(__file__).resolve().parents[2] / "tests/apps/nccl_runs.py"
SECONDS_TO_END = 15  # for all ranks, after a GPU has failed, in addition to the time of the whole run
# A failure of these calls may be survived: they destroy or query objects that are not needed any more. Memory used by
# another stream is freed after an event, and a buffer is refilled after one, or when the host has waited.
MAY_BE_SURVIVED = re.compile(
    r"Destroy|Free|ProfilerSt|GetVersion|GetLastError|EventCreateWithFlags|EventRecord|EventQuery|"
    r"StreamWaitEvent")


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


def check(condition, sentence):
    if not condition:
        raise Failure(sentence)


def tensors(path):
    """The positions of tensors, and their bytes, without the metadata, which contain the config."""
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little")
    names = {name: value for name, value in json.loads(data[8:8 + header]).items() if name != "__metadata__"}
    return names, data[8 + header:]


class Runs:
    def __init__(self, isobar, work):
        self.isobar, self.work, self.count = isobar, work, itertools.count()
        self.data = work / "data"
        subprocess.run([isobar, "data", "synth", "--out", self.data, "--train-years", "1", "--valid-years", "1",
                        "--steps-per-year", "40", "--grid", "8x16", "--channels", "3"], check=True,
                       stdout=subprocess.DEVNULL)

    def command(self, run, device, settings, *more):
        """`settings` may have the config of a network whose data are random."""
        config = settings.get("config", "tiny")
        values = {**CONFIGS[config], **settings}
        flags = [flag for key, value in values.items() if key != "config"
                 for flag in ("--set", f"{key}={json.dumps(value)}")]
        data = ["--data", self.data] if config == "tiny" else []
        return [self.isobar, "train", "--config", config, *data, "--run-dir", run, "--threads", "1",
                "--device", device, *flags, *more]

    def start(self, run, device, settings, environment=None, resume=False):
        """Returns status and stderr. The times measured by one run are used by the next one, from a file."""
        command = self.command(run, device, settings, *(["--resume"] if resume else []))
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.work / "cache"), **(environment or {})})
        return done.returncode, done.stderr.strip()

    def folder(self):
        return self.work / f"run{next(self.count)}"

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


def weights_of(run):
    header, data = tensors(run / "checkpoints/step_00000004/model.safetensors")
    values = []
    for name in sorted(header):
        begin, end = header[name]["data_offsets"]
        values += array.array({"F32": "f", "F64": "d"}[header[name]["dtype"]], data[begin:end])
    return values


def distance(a, b):
    return math.sqrt(sum((x - y)**2 for x, y in zip(a, b, strict=True)))


def result_of(run, step=4):
    folder = run / "checkpoints" / f"step_{step:08}"
    return [tensors(folder / name) for name in ("model.safetensors", "optimizer.safetensors")]


def check_case(runs, precision, settings):
    on_gpu, on_cpu = (settings | extra for extra in PRECISIONS[precision])
    first, honest = runs.train("cuda", on_gpu), runs.train("cpu", on_cpu)
    exact = weights_of(runs.train("cpu", {**settings, "dtype": "fp64"}))
    error, allowed = distance(weights_of(first), exact), 2 * distance(weights_of(honest), exact)
    allowed += ROUNDING * distance(exact, [0] * len(exact))
    print(f"{precision} {settings}: errs {error:.2e}, may {allowed:.2e}", flush=True)
    check(error <= allowed, f"{precision} {settings}: the weights err by {error:.2e}, twice the CPU's is {allowed:.2e}")
    others = {f"schedule {seed}": runs.train("cuda", on_gpu, {"ISOBAR_VIRTUAL_GPU_SCHEDULE": str(seed)})
              for seed in (1, 2)}
    others["stopped"] = runs.stopped(on_gpu)
    graph = {**on_gpu, "cuda_graph": True}
    others["a graph"] = runs.train("cuda", graph)
    others["a graph, schedule 3"] = runs.train("cuda", graph, {"ISOBAR_VIRTUAL_GPU_SCHEDULE": "3"})
    others["a graph, stopped"] = runs.stopped(graph)
    for name, other in others.items():
        check(result_of(other) == result_of(first), f"{precision} {settings}: {name} gives other bits")


def all_cases():
    for precision, dropout, parts, recompute in itertools.product(PRECISIONS, *(({}, x) for x in
                                                                                (DROPOUT, PARTS, RECOMPUTE))):
        yield precision, dropout | parts | recompute
    for precision in PRECISIONS:
        yield precision, PARTS | CHANGE


def check_cases(runs, cases, precisions):
    for precision, settings in cases:
        if precision in precisions:
            check_case(runs, precision, settings)


def xxh64(data):
    """The hash of a short file, with seed 0 (xxHash's specification)."""
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                          0x27D4EB2F165667C5)
    mask = 2**64 - 1

    def left(x, bits):
        return (x << bits | x >> (64 - bits)) & mask

    def lane(x, word):
        return left((x + word * p2) & mask, 31) * p1 & mask

    lanes, at = [(p1 + p2) & mask, p2, 0, -p1 & mask], 0
    while at + 32 <= len(data):
        lanes = [lane(x, int.from_bytes(data[at + 8 * i:at + 8 * i + 8], "little")) for i, x in enumerate(lanes)]
        at += 32
    value = p5
    if at > 0:
        value = sum(left(x, bits) for x, bits in zip(lanes, (1, 7, 12, 18))) & mask
        for x in lanes:
            value = ((value ^ lane(0, x)) * p1 + p4) & mask
    value = (value + len(data)) & mask
    for size, mix, bits, times, plus in ((8, lambda w: lane(0, w), 27, p1, p4),
                                         (4, lambda w: w * p1 & mask, 23, p2, p3),
                                         (1, lambda w: w * p5 & mask, 11, p1, 0)):
        while at + size <= len(data):
            word = int.from_bytes(data[at:at + size], "little")
            value = (left(value ^ mix(word), bits) * times + plus) & mask
            at += size
    for shift, times in ((33, p2), (29, p3), (32, 1)):
        value = (value ^ value >> shift) * times & mask
    return f"{value:016x}"


def set_loss_scale(run, scale):
    """Sets it in the checkpoint after two iterations."""
    folder = run / "checkpoints/step_00000002"
    state = json.loads((folder / "state.json").read_text())
    state["trainer"]["loss_scale"] = scale
    (folder / "state.json").write_text(json.dumps(state))
    names = sorted(file.name for file in folder.iterdir() if file.name != "checksums.xxh64")
    lines = "".join(f"{xxh64((folder / name).read_bytes())}  {name}\n" for name in names)
    (folder / "checksums.xxh64").write_text(lines + f"# {xxh64(lines.encode())}\n")


def check_loss_scale(runs):
    """It is halved in every iteration in which a gradient overflows; a graph is captured before the halving ends."""
    results = {}
    for graph in (False, True):
        settings, run = {"amp_mode": "fp16", "cuda_graph": graph}, runs.folder()
        for iterations in (2, 8):
            status, err = runs.start(run, "cuda", {**settings, "num_iters": iterations}, resume=iterations > 2)
            check(status == 0, f"a changing loss scale, graph {graph}: status {status}: {err}")
            if iterations == 2:
                set_loss_scale(run, 2.0**26)  # overflows until it is 2 to the 23
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        scales = [math.log2(line["loss_scale"]) for line in lines if line["event"] == "train"]
        results[graph] = scales, result_of(run, 8)
    print(f"a changing loss scale: 2 to the {results[True][0]}")
    check(results[True] == results[False], f"a changing loss scale: {results[True][0]} with a graph: other bits")
    check(len(set(results[True][0][3:])) > 2, f"a changing loss scale: it does not change: {results[True][0]}")


def check_synchronous(runs):
    runs.train("cuda", {"cuda_graph": True}, {"ISOBAR_SYNC": "1"})


def check_driver(runs):
    for device in ("auto", "cuda"):
        status, err = runs.start(runs.folder(), device, {}, {"ISOBAR_VIRTUAL_GPU_DRIVER": "12020"})
        check(status == 1 and "driver is too old: it is for CUDA 12.2" in err and err.count("\n") == 0,
              f"a driver that is too old: status {status}: {err}")
    status, err = runs.start(runs.folder(), "auto", {}, {"ISOBAR_VIRTUAL_GPU_DRIVER": "0"})
    check(status == 0, f"without a driver: status {status}: {err}")


def check_failing_call(runs, settings, number, name, reference):
    """Returns True if the run went on."""
    run = runs.folder()
    status, err = runs.start(run, "cuda", settings, {"ISOBAR_VIRTUAL_GPU_FAIL": f"any:{number}",
                                                     "XDG_CACHE_HOME": str(run) + "_cache"})
    if status == 0 and name == "cublasLtMatmul":  # the candidate is skipped, and another one may give other bits
        return True
    if status == 0 and MAY_BE_SURVIVED.search(name):
        check(result_of(run, 3) == reference, f"survived call {number}, {name}: other bits")
        return True
    check(status == 1 and err.startswith("isobar: ") and err.count("\n") == 0,
          f"call {number}, {name}, fails: status {status}: {err}")
    status, err = runs.start(run, "cuda", settings, resume=True)
    check(status == 0, f"resumed after call {number}, {name}, failed: status {status}: {err}")
    check(result_of(run, 3) == reference, f"resumed after call {number}, {name}, failed: other bits")
    shutil.rmtree(run)
    return False


def check_failing_calls(runs, every, jobs):
    """In a run of two steps after the first, one of them replayed."""
    settings = {"cuda_graph": True, "num_iters": 3, "checkpoint_every": 2, "validate_every": 2}
    run, names = runs.folder(), runs.work / "calls"
    status, err = runs.start(run, "cuda", settings, {"ISOBAR_VIRTUAL_GPU_CALLS": str(names),
                                                     "XDG_CACHE_HOME": str(run) + "_cache"})
    check(status == 0, f"failing calls, undisturbed: {err}")
    calls, reference = names.read_text().split(), result_of(run, 3)
    uploading = calls.index("cudaEventCreateWithFlags") + 1  # by then the trainer has passed host memory to a copy
    numbers = sorted({*range(1, len(calls) + 1, every), uploading})
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        survived = list(pool.map(lambda n: check_failing_call(runs, settings, n, calls[n - 1], reference), numbers))
    names = {calls[number - 1] for number, went_on in zip(numbers, survived) if went_on}
    print(f"{len(numbers)} of {len(calls)} calls failed in turn; survived: {', '.join(sorted(names)) or 'none'}")


def one_sentence(status, err):
    return status == 1 and err.startswith("isobar: ") and err.count("\n") == 0


def check_failed_for_good(runs, points):
    """From one call on, every call returns the error of a kernel with an illegal address."""
    settings = {"cuda_graph": True, "num_iters": 3, "checkpoint_every": 2, "validate_every": 2}
    run, names = runs.folder(), runs.work / "calls"
    status, err = runs.start(run, "cuda", settings, {"ISOBAR_VIRTUAL_GPU_CALLS": str(names)})
    check(status == 0, f"failing for good, undisturbed: {err}")
    calls, reference = names.read_text().split(), result_of(run, 3)
    for number in sorted({1, 2, *(len(calls) * point // points for point in range(1, points))}):
        run = runs.folder()
        status, err = runs.start(run, "cuda", settings, {"ISOBAR_VIRTUAL_GPU_FAIL": f"any:{number}:700:on"})
        if status == 0:  # the remaining calls only freed and destroyed
            check(result_of(run, 3) == reference, f"survived call {number}, {calls[number - 1]}, and later: other bits")
            check((run / "summary.json").is_file(), f"survived call {number} and later: the run has not ended")
            continue
        check(one_sentence(status, err) and "illegal memory access" in err,
              f"from call {number}, {calls[number - 1]}, on: status {status}: {err}")
        failed = run
    status, err = runs.start(failed, "cuda", settings, resume=True)
    check(status == 0 and result_of(failed, 3) == reference, f"resumed after it: status {status}: {err}: or other bits")


def check_counts(runs):
    """The present counts; if they fall, update these lines."""
    last = {}
    for graph, launches in ((False, 68), (True, 5)):
        trace = runs.work / f"trace{graph}"
        runs.train("cuda", {"cuda_graph": graph, "validate_every": 0}, {"ISOBAR_VIRTUAL_GPU_TRACE": str(trace)})
        last[graph] = json.loads(trace.read_text().splitlines()[-1])
        print(f"a step, graph {graph}: {last[graph]}")
        check(last[graph]["launches"] <= launches and last[graph]["synchronisations"] <= 1,
              f"a step takes more than before: {last[graph]}")
    held = [last[graph]["held_bytes"] / 2**20 for graph in (False, True)]
    check(held[1] < held[0] + 0.1, f"a graph holds {held[1]:.2f} MiB, a step without one {held[0]:.2f}")


def check_held_after_validation(runs):
    """The memory that a validation leaves in the pool is not kept in addition to a graph's."""
    held = {}
    for every in (0, 1):
        trace = runs.work / f"held{every}"
        trace.unlink(missing_ok=True)
        runs.train("cuda", {"cuda_graph": True, "validate_every": every, "limit_nsamples_val": 8},
                   {"ISOBAR_VIRTUAL_GPU_TRACE": str(trace)})
        held[every] = json.loads(trace.read_text().splitlines()[-1])["held_bytes"] / 2**20
    print(f"a graph, and the pool beside it: {held[0]:.3f} MiB; after a validation {held[1]:.3f} MiB")
    check(held[1] < held[0] + 0.05, f"after a validation {held[1]:.3f} MiB are held, before {held[0]:.3f}")


class Choosing:
    """A run with its own cache. A different `durations` gives the algorithms different times."""

    def __init__(self, runs, durations, cache, settings=None, run=None, version=None):
        self.cache = runs.work / cache
        self.run, calls = run or runs.folder(), runs.work / "calls"
        log = self.run / "out.log"
        before = log.read_text() if log.exists() else ""
        environment = {"XDG_CACHE_HOME": str(self.cache), "ISOBAR_VIRTUAL_GPU_DURATIONS": str(durations),
                       "ISOBAR_VIRTUAL_GPU_CALLS": str(calls)}
        if version:
            environment["ISOBAR_VIRTUAL_GPU_CUBLASLT"] = str(version)
        status, err = runs.start(self.run, "cuda", settings or {}, environment, resume=log.exists())
        check(status == 0, f"{settings} with durations {durations} and {cache}: status {status}: {err}")
        self.said = log.read_text()[len(before):]
        self.timed = calls.read_text().count("cudaEventElapsedTime")

    def files(self):
        return sorted(self.cache.glob("isobar/*")) if self.cache.is_dir() else []

    def algorithms(self, step=4):
        return json.loads((self.run / f"checkpoints/step_{step:08}/state.json").read_text()).get("algorithms")


def first_choice(runs):
    """Chosen once; its cache is kept."""
    if not hasattr(runs, "choice"):
        runs.choice = Choosing(runs, 1, "choice")
    return runs.choice


def check_choice(runs):
    """Other times, other algorithms, other bits; a product that was timed once is not timed again."""
    first, other = first_choice(runs), Choosing(runs, 2, "other")
    count = len(first.algorithms()["of_products"])
    print(f"{count} products, {first.timed} timings")
    check(first.timed > count > 10, f"a cold run: {count} products and {first.timed} timings")
    check(len(first.files()) == 1 and json.loads(first.files()[0].read_text()) == first.algorithms(),
          f"a cold run: the file {first.files()} is not what the checkpoint holds")
    check(result_of(other.run) != result_of(first.run), "other algorithms: the same bits")
    again = Choosing(runs, 2, "choice")
    check(again.timed == 0, f"a warm run: {again.timed} timings")
    check(result_of(again.run) == result_of(first.run), "a warm run: other bits")


def check_choice_resumed(runs):
    """Uses the checkpoint's algorithms, whatever the file and the times are."""
    first, run = first_choice(runs), runs.folder()
    shutil.rmtree(runs.work / "elsewhere", ignore_errors=True)
    Choosing(runs, 1, "stopped", {"num_iters": 2}, run=run)
    resumed = Choosing(runs, 2, "elsewhere", run=run)
    check(result_of(run) == result_of(first.run), "resumed where others are faster: other bits")
    check(resumed.timed == 0 and not resumed.files(), f"resumed: {resumed.timed} timings, {resumed.files()}")
    check(resumed.algorithms() == first.algorithms(), "resumed: the checkpoint has lost them")
    shutil.rmtree(run / "checkpoints/step_00000004")
    (run / "summary.json").unlink()
    newer = Choosing(runs, 1, "choice", run=run, version=130001)
    check("algorithms of products are for virtual GPU, cuBLASLt 130000, form 1, and this is" in newer.said,
          f"resumed with another cuBLASLt: it says {newer.said}")
    check(newer.timed > 0 and len(newer.files()) == 2, f"another cuBLASLt: {newer.timed} timings, {newer.files()}")
    newer.files()[1].unlink()


def check_choice_unusable(runs):
    """The file is damaged, of another GPU, or cannot be written."""
    first = first_choice(runs)
    file, = first.files()
    whole = file.read_text()
    unfit = json.loads(whole)
    unfit["of_products"] = {name: "f" * 128 for name in unfit["of_products"]}
    for text, sentence in ((whole[:1000], "passed over: "), ("", "passed over: "),
                           (whole.replace("virtual GPU", "another GPU"), "is for another GPU"),
                           (json.dumps(unfit), f"{len(unfit['of_products'])} of them chosen by time")):
        file.write_text(text)
        again = Choosing(runs, 1, "choice", {"num_iters": 1, "checkpoint_every": 1})
        check(sentence in again.said and again.timed == first.timed,
              f"instead of \"{sentence}\", after {again.timed} timings, it says: {again.said}")
        check(file.read_text() == whole, f"what was {text[:40]} is not replaced")
    (runs.work / "no_folder").write_text("")
    unkept = Choosing(runs, 1, "no_folder")
    check("what is chosen is not kept for other runs: " in unkept.said, f"no folder: {unkept.said}")
    check(result_of(unkept.run) == result_of(first.run), "no folder: other bits")


def check_first_guess(runs):
    first = first_choice(runs)
    guesses = [Choosing(runs, durations, "unused", {"autotune": False}) for durations in (1, 2)]
    check(result_of(guesses[0].run) == result_of(guesses[1].run), "autotune=false: the clock decides")
    check(result_of(guesses[0].run) != result_of(first.run), "autotune=false: the bits of the fastest")
    for guess in guesses:
        check(guess.timed == 0 and not guess.files() and guess.algorithms() is None,
              f"autotune=false: {guess.timed} timings, {guess.files()}")


def check_convolutions(runs):
    """By engines of cuDNN, most of which are traps (lab/stand_ins/cuda/cudnn.cc)."""
    first = Choosing(runs, 1, "convolutions", CONVOLUTIONS)
    count = len(first.algorithms()["of_convolutions"])
    print(f"{count} convolutions, {first.timed} timings")
    check(count > 5 and f"algorithms of {count} convolutions, {count} of them chosen by time" in first.said,
          f"{count} convolutions, and it says: {first.said}")
    for sentence in ("engine 9 is not used for conv_fwd, 4 x 1 x 6 x 7 x 1 to ", "from that of isobar's own kernels",
                     "engine 11 is not used for conv_bwd_weight"):
        check(sentence in first.said, f"no line has \"{sentence}\": {first.said}")
    run = runs.folder()
    Choosing(runs, 1, "stopped convolutions", {**CONVOLUTIONS, "num_iters": 2}, run=run)
    resumed = Choosing(runs, 2, "other convolutions", CONVOLUTIONS, run=run)
    check(result_of(run) == result_of(first.run), "resumed where other engines are faster: other bits")
    check(resumed.timed == 0 and resumed.algorithms() == first.algorithms(), f"resumed: {resumed.timed} timings")
    other = Choosing(runs, 2, "other convolutions", CONVOLUTIONS)
    check(result_of(other.run) != result_of(first.run), "other engines: the same bits")
    own = runs.train("cuda", CONVOLUTIONS, {"ISOBAR_CONV": "own"})
    check(result_of(own) != result_of(first.run), "ISOBAR_CONV=own: the bits of engines")


def check_ranks(runs):
    """Two processes share the heads, and time different algorithms as fastest. Both use the first one's. The state
    that both hold is compared when they save."""
    if shutil.which("mpirun") is None:
        raise Skipped("no mpirun: ranks as processes are left out")
    results = []
    for durations in ((1, 1), (1, 2), (2, 2)):
        run = runs.folder()
        of_ranks = [["-n", "1", "env", f"ISOBAR_VIRTUAL_GPU_DURATIONS={number}",
                     f"ISOBAR_VIRTUAL_GPU_NUMBER={rank}", f"XDG_CACHE_HOME={run}_cache{rank}",
                     *runs.command(run, "cuda", {}, "--tensor-parallel", "2", "--backend", "mpi")]
                    for rank, number in enumerate(durations)]
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *of_ranks[0],
                               ":", *of_ranks[1]], capture_output=True, text=True, check=False,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        check(done.returncode == 0, f"ranks with durations {durations}: status {done.returncode}: {done.stderr}")
        results.append(result_of(run))
    check(results[1] == results[0], "ranks that find others fastest: other bits")
    check(results[2] != results[0], "the clock of both ranks decides nothing")
    print("two ranks have the first one's algorithms")


def by_nccl(runs, run, settings, flags, environment=None, timeout=120):
    """Runs two ranks; returns status, stderr and seconds."""
    command = [sys.executable, SPAWN, "spawn", "2",
               *runs.command(run, "cuda", settings, *flags, "--backend", "nccl", "--comm-timeout", "60")]
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=timeout,
                          env={**os.environ, "ISOBAR_VIRTUAL_GPU_DEVICES": "2", "OMP_WAIT_POLICY": "passive",
                               "ISOBAR_CUDA_LIBS": str(runs.isobar.parents[1] / "lab/stand_ins"),
                               "XDG_CACHE_HOME": str(runs.work / "cache"), **(environment or {})})
    return done.returncode, done.stderr.strip(), time.monotonic() - begin


def check_nccl_runs(runs):
    """The bits equal those of two ranks that are threads and share a GPU: sums of two have only one order."""
    for flags, network in ((["--bucket-cap-mb", "0.001"], {}), (["--tensor-parallel", "2"], {}),
                           (["--context-parallel", "2", "--context-form", "ring"], {}),
                           (["--shard-optimizer"], CONVOLUTIONS)):
        run, contexts = runs.folder(), runs.work / "contexts"
        contexts.unlink(missing_ok=True)
        settings = {**network, "num_iters": 2, "checkpoint_every": 2, "validate_every": 2}
        status, err, seconds = by_nccl(runs, run, settings, flags, {"ISOBAR_VIRTUAL_GPU_CONTEXTS": str(contexts)})
        check(status == 0, f"by NCCL {flags}: status {status}: {err}")
        devices = {}
        for line in map(json.loads, contexts.read_text().splitlines()):
            devices.setdefault(line["process"], {}).setdefault(line["device"], line)
        check(sorted(list(of) for of in devices.values()) == [[0], [1]],
              f"by NCCL {flags}: ranks make contexts on each other's GPU: {list(devices.values())}")
        threads = runs.folder()
        done = subprocess.run(runs.command(threads, "cuda", settings, *flags, "--ranks", "2"), capture_output=True,
                              text=True, check=False, env={**os.environ, "XDG_CACHE_HOME": str(runs.work / "cache")})
        check(done.returncode == 0, f"as threads {flags}: status {done.returncode}: {done.stderr}")
        print(f"two ranks by NCCL {flags}: {seconds:.1f} s", flush=True)
        check(result_of(run, 2) == result_of(threads, 2), f"by NCCL {flags}: other bits than as threads")


def check_nccl_failure(runs, calls):
    settings, flags = {"num_iters": 3, "checkpoint_every": 3, "validate_every": 3}, ["--bucket-cap-mb", "0.001"]
    status, err, whole = by_nccl(runs, runs.folder(), settings, flags)
    check(status == 0, f"by NCCL, undisturbed: status {status}: {err}")
    for call in calls:
        status, err, seconds = by_nccl(runs, runs.folder(), settings, flags,
                                       {"ISOBAR_VIRTUAL_GPU_FAIL": f"{call}:700:on:1"})
        print(f"{call} and all later ones of rank 1: status {status} after {seconds:.1f} s: {err}", flush=True)
        check(one_sentence(status, err) and "illegal memory access" in err,
              f"by NCCL, {call} and later: status {status}: {err}")
        check(seconds < whole + SECONDS_TO_END, f"by NCCL, {call} and later: ended after {seconds:.1f} s")


def check_algorithms(runs):
    for body in (check_choice, check_choice_resumed, check_choice_unusable, check_first_guess):
        body(runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true", help="all combinations of settings")
    parser.add_argument("--every", type=int, default=397, help="which calls are made to fail")
    parser.add_argument("--jobs", type=int, default=1, help="failing calls at once")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="of the cases")
    parser.add_argument("--only", help="only the checks whose names match")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isobar_virtual_gpu_") as temporary:
        runs = Runs(arguments.isobar.resolve(), pathlib.Path(temporary))
        checks = {
            "cases": lambda: check_cases(runs, all_cases() if arguments.all else SAMPLE, arguments.precisions),
            "loss scale": lambda: check_loss_scale(runs),
            "synchronous": lambda: check_synchronous(runs),
            "driver": lambda: check_driver(runs),
            "counts": lambda: check_counts(runs),
            "held after a validation": lambda: check_held_after_validation(runs),
            "algorithms": lambda: check_algorithms(runs),
            "cases of convolutions": lambda: check_cases(runs, OF_CONVOLUTIONS, arguments.precisions),
            "engines of convolutions": lambda: check_convolutions(runs),
            "ranks": lambda: check_ranks(runs),
            "NCCL, runs": lambda: check_nccl_runs(runs),
            "NCCL, a GPU that fails": lambda: check_nccl_failure(
                runs, ("any:40", "any:700", "cudaEventQuery:3")),
            "failed for good": lambda: check_failed_for_good(runs, 24 if arguments.all else 6),
            "failing calls": lambda: check_failing_calls(runs, arguments.every, arguments.jobs),
        }
        try:
            for name, body in checks.items():
                if re.search(arguments.only or "", name):
                    body()
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
        except Skipped as reason:
            print(f"skipped: {reason}")
            return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
