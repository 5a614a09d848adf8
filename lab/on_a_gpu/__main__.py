"""on_a_gpu: what is right and how fast on a real GPU, beside what was predicted without one. It builds nothing.

    python3 lab/on_a_gpu stage OUT [--build build] [--library FILE]...

copies what is needed from a build with CUDA into the folder OUT, which can be carried to another machine: programs,
their libraries, configs, golden files, the predictions of lab/kernel_report, and this program. cuBLASLt and NCCL are
loaded when they are needed: from the system, from NVIDIA's Python packages, or --library FILE takes them along.

    python3 OUT/on_a_gpu run [--results FOLDER]

there measures what the predictions assume, runs the tests that need a GPU, then measures what they have found right,
and writes a table and JSON:

    constants what predictions assume of a GPU of compute capability 9.0: minutes, and more than any model can tell
    checks    tests on the GPU, ranks, training beside the CPU, compute-sanitizer
    kernels   every row of docs/kernel_report.md
    products  those of a training step
    costs     uploads, launches, waits of the host
    steps     of `base` and `mp` in bf16, of `base` in fp32 with TF32, without and with a CUDA graph
    kinds     what the kernels of a step take, where Nsight Compute (ncu) is installed

--only and --minutes divide it where a command may take no longer than some minutes; --checked takes the checks of an
earlier call. With --rehearse, on the virtual GPU, sizes are small and the times mean nothing.
"""
import argparse
import datetime
import json
import pathlib
import shutil
import sys
import tempfile

import checks as checking
import measurements
import processes
import results
import staging

PARTS = ("constants", "checks", "kernels", "products", "costs", "steps", "kinds")
HERE = pathlib.Path(__file__).resolve().parent
PREDICTED = ("A100", "H100", "H200")  # as lab/kernel_report names them


def say(text):
    print(text, flush=True)


def gpu_of(runner, tree):
    """What `isobar info` knows; ends the program where no GPU can be used."""
    outcome = runner.run([tree / "bin" / "isobar", "info", "--json"], 60)
    if not outcome.passed:
        sys.exit(f"on_a_gpu: {outcome.sentence()}")
    info = json.loads(outcome.out)
    gpus = [device for device in info["devices"] if device["kind"] == "cuda"]
    if not gpus:
        sys.exit("on_a_gpu: there is no NVIDIA GPU, or no driver for it; `run` needs one" if info["build"]["cuda"] else
                 "on_a_gpu: this isobar was built without CUDA")
    return info, gpus[0]


def driver_version(runner, info):
    if not shutil.which("nvidia-smi"):
        return f"for CUDA {info['cuda_driver']}"
    asked = runner.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], 60)
    return asked.out.strip() or "unknown"


def about_run(runner, tree, options, predictions):
    info, gpu = gpu_of(runner, tree)
    staged = json.loads((tree / "stage.json").read_text(encoding="utf-8"))
    return {"gpu": gpu["name"], "compute_capability": gpu["compute_capability"], "memory_bytes": gpu["memory_bytes"],
            "driver": driver_version(runner, info), "cuda_driver": info["cuda_driver"],
            "cuda_runtime": info["build"]["cuda_runtime"],
            "cpu_threads": next(one["threads"] for one in info["devices"] if one["kind"] == "cpu"),
            "date": datetime.date.today().isoformat(), "commit": staged["commit"], "compiler": predictions["compiler"],
            "predicted_for": options.predictions_for or next((name for name in PREDICTED if name in gpu["name"]), None),
            "command": " ".join(sys.argv), "rehearsal": options.rehearse}


def take_checks(path, about):
    """Of an earlier call, of the same commit on the same kind of GPU."""
    earlier = json.loads(path.read_text(encoding="utf-8"))
    for key in ("commit", "gpu", "rehearsal"):
        if earlier[key] != about[key]:
            sys.exit(f"on_a_gpu: {path} is of {key} {earlier[key]}, and this is {about[key]}")
    return [checking.Check(**check) for check in earlier["checks"]]


class Measuring:
    """Rows, shown as they come."""

    def __init__(self, runner, tree, about, predictions, options):
        self.runner, self.tree, self.about, self.predictions, self.options = runner, tree, about, predictions, options
        self.rows = []

    def add(self, rows):
        for row in rows:
            say(f"{results.number(row.predicted):>12} {results.number(row.measured):>12} "
                f"{results.number(row.ratio, 2):>6}  {row.title}{'  ' if row.note else ''}{row.note}")
        self.rows += rows

    def leave_out(self, section, titles, reason):
        self.add([measurements.Row(section, title, None, None, f"not measured: {reason}") for title in titles])

    def measure_constants(self):
        assumed = self.predictions.get("constants", {})
        if self.options.rehearse:
            return self.leave_out("constants", assumed, "the virtual GPU has none of them")
        program = self.tree / "bin" / "isobar-constants"
        if not program.is_file():
            return self.leave_out("constants", assumed, "isobar-constants is not in the tree")
        return self.add(measurements.measure_constants(self.runner, program, assumed, self.options.limit))

    def measure_ops(self, sections, checked):
        gpu, rehearsal = self.about["predicted_for"], self.options.rehearse
        for (section, family, _), ops in measurements.groups_of(measurements.measurements(self.predictions)).items():
            if section not in sections:
                continue
            if self.runner.time_is_up():
                self.leave_out(section, [one.title for one in ops], "the time is up")
            elif family and not checked.family_is_right(family):
                self.leave_out(section, [one.title for one in ops], f"the check of {family} has not passed")
            else:
                self.add(measurements.measure_ops(self.runner, self.tree / "bin" / "isobar-bench", ops, gpu, rehearsal,
                                                  self.options.limit))

    def measure_steps(self, parts, checked, place):
        if not {"steps", "kinds"}.intersection(parts):
            return
        steps = self.predictions["steps"]
        if not checked.has_passed(checking.TRAINING):
            return self.leave_out("steps", steps, f"the check {checking.TRAINING!r} has not passed")
        gpu, rehearsal, limit = self.about["predicted_for"], self.options.rehearse, self.options.limit
        made = measurements.make_data(self.runner, self.tree / "bin" / "isobar", place / "data", rehearsal, limit)
        if not made.passed:
            return self.leave_out("steps", steps, made.sentence())
        for name, step in steps.items():
            given = (step, gpu, place, rehearsal, limit)
            for graph in (False, True) if "steps" in parts else ():
                self.add([measurements.measure_step(self.runner, self.tree, name, graph, *given)])
            if "kinds" in parts:
                self.add(measurements.measure_kinds(self.runner, self.tree, name, *given))
        return None


def run(options):
    tree = options.tree.resolve()
    if not (tree / "stage.json").is_file():
        sys.exit(f"on_a_gpu: {tree} is no staged folder: python3 lab/on_a_gpu stage {tree}")
    options.results.mkdir(parents=True, exist_ok=True)
    predictions = json.loads((tree / "predictions.json").read_text(encoding="utf-8"))
    runner = processes.Runner(tree, options.results / "on_a_gpu.log", options.minutes and 60 * options.minutes)
    about = about_run(runner, tree, options, predictions)
    say(f"{about['gpu']}, driver {about['driver']}, commit {about['commit']}, predictions for {about['predicted_for']}")
    if options.rehearse:
        say(results.REHEARSAL)
    checked = checking.Checks(runner, options.limit, say, options.jobs)
    measuring = Measuring(runner, tree, about, predictions, options)
    with tempfile.TemporaryDirectory(prefix="isobar_on_a_gpu_") as work:
        if "constants" in options.only:
            measuring.measure_constants()
        if options.checked:
            checked.done = take_checks(options.checked, about)
        elif "checks" in options.only:
            checking.check_all(checked, tree, pathlib.Path(work), options.rehearse)
        if set(options.only) - {"checks", "constants"}:
            say(f"{'predicted µs':>12} {'measured µs':>12} {'ratio':>6}")
        measuring.measure_ops(options.only, checked)
        measuring.measure_steps(options.only, checked, pathlib.Path(work))
    for path in results.write(options.results, about, checked.done, measuring.rows):
        say(path)
    if options.rehearse:
        say(results.REHEARSAL)
    wrong = [check.name for check in checked.done if check.result in ("failed", "time limit")]
    left = ("ncu is not installed", "the virtual GPU has none", "isobar-constants is not in the tree")
    lost = [row.title for row in measuring.rows
            if row.measured is None and not any(reason in row.note for reason in left)]
    if wrong or lost:
        sys.exit(f"on_a_gpu: {len(wrong)} checks have not passed, {len(lost)} figures were not measured")


def stage(options):
    may_be_missing = {"isobar-constants"} | ({"unit_tests"} if options.rehearse else set())
    programs = [name for name, place in staging.PROGRAMS.items()
                if name not in may_be_missing or (options.build / place).is_file()]
    try:
        size = staging.stage(options.build, options.out, options.library, options.predictions, tuple(programs))
    except (staging.StagingError, OSError) as error:
        sys.exit(f"on_a_gpu: {error}")
    say(f"{options.out}: {size / 1e6:.0f} MB. On the machine with the GPU: python3 {options.out.name}/on_a_gpu run")


def arguments():
    parser = argparse.ArgumentParser(prog="on_a_gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    staged = commands.add_parser("stage", help="copy what is needed into one folder")
    staged.add_argument("out", type=pathlib.Path)
    staged.add_argument("--build", type=pathlib.Path, default=staging.ROOT / "build")
    staged.add_argument("--library", type=pathlib.Path, action="append", default=[], metavar="FILE",
                        help="one more shared library, as libcublasLt.so.13; repeatable")
    staged.add_argument("--predictions", type=pathlib.Path, metavar="FILE", help="instead of those of this build")
    staged.add_argument("--rehearse", action="store_true", help="of the preset virtual-gpu: unit_tests may be missing")
    staged.set_defaults(run=stage)
    running = commands.add_parser("run", help="check and measure")
    running.add_argument("--tree", type=pathlib.Path, default=HERE.parent, help="what `stage` made; default: this one")
    running.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"), metavar="FOLDER")
    running.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    running.add_argument("--checked", type=pathlib.Path, metavar="FILE", help="JSON of a call that has made the checks")
    running.add_argument("--limit", type=float, default=180, metavar="SECONDS", help="of one program (%(default)s)")
    running.add_argument("--jobs", type=int, default=1, metavar="N", help="checks at once (%(default)s)")
    running.add_argument("--minutes", type=float, help="of everything; what is left then is not run")
    running.add_argument("--predictions-for", metavar="GPU", help="A100, H100 or H200; default by the GPU's name")
    running.add_argument("--rehearse", action="store_true", help="small sizes, on the virtual GPU")
    running.set_defaults(run=run)
    return parser.parse_args()


if __name__ == "__main__":
    options_ = arguments()
    options_.run(options_)
