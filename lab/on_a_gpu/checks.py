"""What must be right before anything is measured: the tests that run on a GPU, and runs of the command."""
import concurrent.futures
import dataclasses
import os
import shutil
import sys
import threading

# Names of kernel_tests' cases by family: where one fails, the rest can still be measured.
FAMILIES = {
    "attention": "attention*",
    "products": "gemm*",
    "layer norm": "layernorm*",
    "sums": "column_sum*,sum_of_squares*,the factor of a sum*,sums of squares*,clip_coefficient*",
    "GELU": "gelu*",
    "Adam": "adam*",
    "elementwise": "cast*,fill*,add*",
    "convolution": "conv*",
    "fields": "normalize*,denormalize*,patchify*,unpatchify*,forecast_loss*",
}
# Of which nothing is measured.
OTHERS = ("drop*,cross_entropy*,copy_strided*,embedding*,mean_loss*,pointwise*,replace*,turn*,forecast_scores*,"
          "tensor maps*")
KERNELS, TRAINING = "kernel_tests", "isobar train beside the CPU"
# A case of each kind of kernel for compute-sanitizer, which makes them ten to fifty times slower; racecheck looks at
# those that share memory among threads.
SANITIZED = {
    "attention": "attention with dropout*", "layer norm": "layernorm_fwd may write*,layernorm_bwd is the gradient*",
    "sums": "column_sum adds the rows",
    "norm": "clip_coefficient*", "GELU": "gelu_fwd follows*", "Adam": "adam follows*", "cast": "cast rounds*",
    "patches": "patchify*", "loss": "forecast_loss_bwd follows*", "dropout": "dropout keeps*",
    "cross entropy": "cross_entropy_fwd follows*",
    "convolution": "conv of operands that are not aligned*,conv sums in parts*",
}
SHARING = ("attention", "convolution", "layer norm", "sums", "norm", "patches", "loss", "cross entropy")
SANITIZERS = {"memcheck": tuple(SANITIZED), "synccheck": SHARING, "racecheck": SHARING}
OTHER_STATUS = 97  # of compute-sanitizer where it has found something


@dataclasses.dataclass
class Check:
    name: str
    result: str  # passed, failed, time limit, or not run
    seconds: float = 0
    said: str = ""


class Checks:
    """Runs checks, so many at once, and keeps what became of them. `limit`: seconds of one."""

    def __init__(self, runner, limit, show, jobs=1):
        self.runner, self.limit, self.show, self.jobs = runner, limit, show, jobs
        self.done, self.lock = [], threading.Lock()
        self.is_rehearsal = False  # then one family stands for all

    def note(self, check):
        with self.lock:
            self.done.append(check)
            self.show(f"{check.result:10} {check.seconds:6.1f} s  {check.name}{': ' if check.said else ''}{check.said}")

    def leave_out(self, name, reason):
        self.note(Check(name, "not run", said=reason))

    def run(self, name, command, **variables):
        if self.runner.time_is_up():
            return self.leave_out(name, "the time is up")
        outcome = self.runner.run(command, self.limit, **variables)
        result = "passed" if outcome.passed else "time limit" if outcome.status is None else "failed"
        return self.note(Check(name, result, outcome.seconds, outcome.sentence()))

    def run_all(self, planned):
        """[(name, command, variables of the environment)]"""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for running in [pool.submit(self.run, name, command, **variables) for name, command, variables in planned]:
                running.result()

    def has_passed(self, name):
        return any(check.name == name and check.result == "passed" for check in self.done)

    def family_is_right(self, family):
        return self.has_passed(f"{KERNELS}: {'GELU' if self.is_rehearsal else family}")


def check_all(checks, tree, work, rehearsal):
    checks.is_rehearsal = rehearsal
    data = work / "small"
    checks.run("isobar data synth",
               [tree / "bin" / "isobar", "data", "synth", "--out", data, "--train-years", "1", "--valid-years", "1",
                "--steps-per-year", "40", "--grid", "8x16", "--channels", "3"])
    checks.run_all([*kernel_checks(tree, rehearsal), *program_checks(checks, tree, work, data, rehearsal),
                    *sanitizer_checks(checks, tree, rehearsal)])


def kernel_checks(tree, rehearsal):
    specs = {"GELU": FAMILIES["GELU"]} if rehearsal else FAMILIES | {"others": OTHERS}
    for family, spec in specs.items():
        yield f"{KERNELS}: {family}", [tree / "bin" / "kernel_tests", spec], {"ISOBAR_TEST_DEVICES": "cuda"}


def program_checks(checks, tree, work, data, rehearsal):
    """Training in each precision; unit_tests that run on every device; layouts of ranks on the one GPU."""
    isobar, units, runs = tree / "bin" / "isobar", tree / "bin" / "unit_tests", tree / "lab" / "virtual_gpu" / "runs.py"
    # In fp32, tf32, bf16 and fp16 by the 2x rule; again, with a graph, stopped and resumed: the same bits.
    checked = [sys.executable, runs, "--isobar", isobar, *(["--precisions", "bf16"] if rehearsal else [])]
    yield TRAINING, [*checked, "--only", "^cases" if rehearsal else "^cases$|loss scale|synchronous"], {}
    yield f"{TRAINING}, convolutions", [*checked, "--only", "cases of convolutions"], {}
    if units.exists():
        yield "unit_tests on the GPU", [units, "lower precisions*,parallel models: lower precisions*"], {}
    else:
        checks.leave_out("unit_tests on the GPU", "unit_tests is not in the tree")
    tiny = ["--config", "tiny", "--data", data, "--device", "cuda"]
    yield "isobar check, two ranks as threads", [isobar, "check", *tiny, "--ranks", "2"], {}
    yield from nccl_check(checks, [isobar, "train", *tiny, "--backend", "nccl", "--run-dir", work / "nccl", "--set",
                                   "num_iters=4", "--set", "global_batch_size=2"], rehearsal)


def nccl_check(checks, command, rehearsal):
    """One rank as a process, which takes its GPU through NCCL."""
    name = "NCCL with one rank"
    if rehearsal:
        return checks.leave_out(name, "the virtual GPU has no NCCL")
    yield name, command, {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000)}


def sanitizer_checks(checks, tree, rehearsal):
    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    for tool, kinds in SANITIZERS.items():
        name = f"compute-sanitizer {tool}"
        if rehearsal or not program:
            checks.leave_out(name, "the virtual GPU has its own rules" if rehearsal else "it is not installed")
            continue
        for kind in kinds:
            yield f"{name}: {kind}", [program, "--tool", tool, "--error-exitcode", OTHER_STATUS,
                                      tree / "bin" / "kernel_tests", SANITIZED[kind]], {"ISOBAR_TEST_DEVICES": "cuda"}
