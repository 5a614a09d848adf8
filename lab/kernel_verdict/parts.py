"""The parts of a verdict on one kernel. Each prints a heading and its figures, and returns a Finding."""
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import compiling
import counting
import gpus
import judging
import kernels
import measurements
import report
import sources
import toolkit
from compiling import Failed, NotHere
from judging import Finding
from sources import ROOT

MOST_ROWS = 12  # of a table: a file may have hundreds of kernels
CUDA = compiling.folder_of("release")


def heading(text):
    print(f"\n== {text}", flush=True)


def say(lines):
    print("\n".join(lines), flush=True)


def shown(head, rows, is_news):
    """A table of the rows that are news, else of the first ones; of no more than MOST_ROWS."""
    news = [row for row in rows if is_news(row)]
    chosen = (news or rows)[:MOST_ROWS]
    left, left_news = len(rows) - len(chosen), max(0, len(news) - len(chosen))
    more = f"and {left} more" + (f", {left_news} of them changed" if left_news else ", as before" if news else "")
    return counting.aligned(head, chosen) + ([more] if left else [])


def build(preset, target):
    """Builds a target; Failed with the end of what was said."""
    compiling.configured(preset)
    ran = subprocess.run(["cmake", "--build", "--preset", preset, "--target", target], cwd=ROOT, capture_output=True,
                         text=True, check=False)
    if ran.returncode:
        raise Failed("\n".join((ran.stdout + ran.stderr).strip().splitlines()[-30:]))


def bench(program, words):
    """What isobar-bench prints as JSON; Failed with its sentence."""
    ran = subprocess.run([program, "--json", *map(str, words)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Failed(ran.stderr.strip())
    return [json.loads(line) for line in ran.stdout.splitlines()]


def gpu_here():
    """The name of the first GPU, or "" where there is none."""
    if not shutil.which("nvidia-smi"):
        return ""
    ran = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    match = re.search(r"GPU 0: (.*?)(?: \(UUID|$)", ran.stdout)
    return match.group(1) if ran.returncode == 0 and match else ""


class Parts:
    def __init__(self, options, kernel, commit):
        self.options, self.kernel, self.commit = options, kernel, commit
        self.cpu = compiling.folder_of(options.preset)
        self.tree = None  # of the older commit
        self.new, self.old = {}, {}  # Compiled, by architecture
        self.predicted = []  # of the new one, as predictions() gives it

    def run(self):
        """The Findings of all parts, in their order."""
        named = {"compiling": self.compile, "instructions": self.count, "prediction": self.predict,
                 "tests": self.test, "CPU twin": self.time_twin, "GPU": self.measure}
        findings = []
        with tempfile.TemporaryDirectory(prefix="isobar_kernel_") as folder:
            if self.commit and sources.extract(ROOT, self.commit.name, folder):
                self.tree = pathlib.Path(folder)
            for name, part in named.items():
                try:
                    findings.append(part())
                except NotHere as reason:
                    print(f"skipped: {reason}")
                    findings.append(Finding(judging.SKIPPED, f"{name}: skipped"))
                except Failed as error:
                    print(error)
                    findings.append(Finding(judging.WRONG, f"{name}: failed"))
        return findings

    # ---- the GPU's machine code -------------------------------------------------------------------------------------

    def compile(self):
        heading(f"compiling {self.kernel.name} for {' and '.join(self.options.arch)}")
        compiling.configured("release", self.kernel.source)
        begin = time.monotonic()
        older = self.tree if self.tree and (self.tree / self.kernel.source).is_file() else None
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = {(tree, arch): pool.submit(compiling.compile_kernel, CUDA, tree, self.kernel.source, arch)
                    for tree in filter(None, (ROOT, older)) for arch in self.options.arch}
        self.new = {arch: jobs[ROOT, arch].result() for arch in self.options.arch}
        try:
            self.old = {arch: jobs[older, arch].result() for arch in self.options.arch} if older else {}
        except Failed as error:
            print(f"{self.commit.words} does not compile with today's flags: {str(error).splitlines()[0]}")
        took = time.monotonic() - begin
        say([message for compiled in self.new.values() for message in compiling.messages_in(compiled.log)] or
            ["ptxas warns of nothing"])
        usage, before = usage_of(self.new), usage_of(self.old)
        rows = [[name, *(counting.change(getattr(before[name], key) if name in before else None, getattr(new, key))
                         for key in ("registers", "stack", "spills", "shared"))] for name, new in usage.items()]
        say(shown(["kernel", "registers", "stack B", "spilled B", "shared B"], rows,
                  lambda row: usage[row[0]].spills or usage[row[0]] != before.get(row[0], usage[row[0]])))
        say([f"{toolkit.compiler()}, {took:.1f} s", *other_files(self.kernel, self.options.kernel)])
        return judging.of_usage(before, usage)

    def count(self):
        heading("instructions" + (f", beside {self.commit.words}" if self.old else ""))
        self.need_machine_code()
        new, old = (future.result() for future in self.of_both(counts_of))
        rows = [[name, *(counting.change(old[name][key] if name in old else None, counts[key])
                         for key in ("total", *counting.CLASSES))] for name, counts in new.items()]
        say(shown(["kernel", "total", *counting.CLASSES], rows, lambda row: new[row[0]] != old.get(row[0])))
        totals = [sum(counts["total"] for counts in of.values()) for of in (old, new)]
        if not old:
            print("there is no older version to compare with")
            return Finding(judging.SAME, f"{totals[1]} instructions")
        if gone := sorted(set(old) - set(new)):
            print(f"no longer there: {', '.join(gone)}")
        return Finding(judging.SAME, "the same instructions" if new == old else
                       f"{counting.change(*totals)} instructions")

    def need_machine_code(self):
        if not self.new:
            raise NotHere("there is no machine code")
        try:
            toolkit.folder_of_tools()
        except toolkit.MissingTool as reason:
            raise NotHere(f"it {reason}") from reason

    def of_both(self, function, *arguments):
        """Futures of a function of the new and of the old machine code, each in a process: they take seconds."""
        with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
            new = pool.submit(function, *arguments, self.new)
            return new, new if self.old == self.new else pool.submit(function, *arguments, self.old)

    def predict(self):
        heading("predicted, with the floor: the time of its bytes, or of its products")
        self.need_machine_code()
        name = self.kernel.name
        now, before = self.of_both(predictions, name)
        try:
            new = now.result()
        except ValueError as error:
            raise Failed(str(error)) from error
        if not new:
            raise NotHere(f"lab/kernel_report/kernels.py has no launch of a kernel of {name} on a GPU that runs code "
                          f"for {' or '.join(self.options.arch)}")
        try:
            old = {(row[0].name, row[1].name): row for row in before.result()}
        except ValueError as error:
            print(f"the older version cannot be predicted: {error}")
            old = {}
        self.predicted = new
        rows, pairs = [], []
        for kernel, gpu, _, predicted, ends in new:
            before, floor = old.get((kernel.name, gpu.name)), report.floor_of(gpu, kernel)
            rows.append([kernel.name, gpu.name, predicted.bound,
                         counting.change(before and report.micros(*before[4]), report.micros(*ends)),
                         f"{1e6 * floor:.0f}", f"{100 * floor / predicted.seconds:.0f} %",
                         kernel.budget.get(gpu.name, "")])
            pairs.append((f"{kernel.name} on {gpu.name}", before and before[3].seconds, predicted.seconds))
        say(counting.aligned(["kernel", "GPU", "binds", "predicted µs", "floor µs", "of the floor", "budget µs"], rows))
        if over := list(report.over_budget(new)):
            say(over)
            return Finding(judging.SLOWER, f"{len(over)} predictions over their budgets")
        return judging.of_predictions(pairs)

    # ---- tests, and the CPU -----------------------------------------------------------------------------------------

    def test(self):
        heading(f"its tests, in the emulator and on the CPU: {self.kernel.tests or 'none'}")
        if not self.kernel.tests:
            raise NotHere(f"there is no file of tests/kernels/ for {self.kernel.name}")
        build(self.options.preset, "kernel_tests")
        only = self.options.tests or f"[#{pathlib.PurePath(self.kernel.tests).stem}]"
        begin = time.monotonic()
        ran = subprocess.run([self.cpu / "tests" / "kernel_tests", "--filenames-as-tags", only], capture_output=True,
                             text=True, check=False, env=os.environ | devices_of(self.kernel))
        said = ran.stdout.strip() or ran.stderr.strip() or "they say nothing"
        last = said.splitlines()[-1]
        say([said if ran.returncode else last, f"{time.monotonic() - begin:.1f} s"])
        return judging.of_tests(ran.returncode, last)

    def time_twin(self):
        twin = " and ".join(self.kernel.twin)
        heading(f"the CPU twin, timed: {twin or 'none'}")
        if not twin or not self.kernel.ops:
            raise NotHere(f"{self.kernel.name} has none")
        if not self.options.old and self.tree and \
                sources.closure(ROOT, self.kernel.twin) == sources.closure(self.tree, self.kernel.twin):
            print(f"{twin} and what it includes are as in {self.commit.words}")
            return Finding(judging.SKIPPED, "the CPU twin is the same")
        compiling.configured(self.options.preset)
        program, name = self.old_program()
        build(self.options.preset, "isobar-bench")
        ops = [word for op in self.kernel.ops for word in ("--op", op)]
        begin = time.monotonic()
        lines = bench(self.cpu / "bench" / "isobar-bench", ["--against", program, "--dtype", self.options.dtype,
                                                       "--seconds", "0", *ops])
        print(f"{self.options.dtype}, beside {name}, {time.monotonic() - begin:.1f} s")
        if "verdict" not in lines[0]:  # of a file of results
            say(counting.aligned(["op", "least µs", "/ old"], [[line["op"], f"{line['microseconds_min']:.1f}",
                                                               f"{line['ratio_to_old']:.3f}"] for line in lines]))
            return Finding(judging.SKIPPED, "the CPU twin was not timed in turn with the old one")
        say(counting.aligned(
            ["op", "shape", "least µs", "old", "µs / old", "between", ""],
            [[line["op"], line["shape"], f"{line['microseconds_min']:.1f}", f"{line['old_microseconds_min']:.1f}",
              f"{line['ratio_to_old']:.3f}", f"{line['ratio_to_old_low']:.3f}, {line['ratio_to_old_high']:.3f}",
              line["verdict"]] for line in lines]))
        return judging.of_timings(lines, "the CPU twin is")

    def old_program(self):
        """(an isobar-bench with the older twin, or what --old gives; what to call it)"""
        if self.options.old:
            return self.options.old, self.options.old
        if not self.tree or not all((self.tree / path).is_file() for path in self.kernel.twin):
            raise NotHere("there is no older version")
        if sources.closure(ROOT, [self.kernel.header]) != sources.closure(self.tree, [self.kernel.header]):
            raise NotHere(f"{self.kernel.header}, or what it includes, is another in {self.commit.words}: today's "
                          "isobar-bench cannot call that twin. Build isobar-bench there, and give it by --old")
        objects = compiling.compile_twin(self.cpu, self.tree, self.kernel.twin)
        return compiling.link_with(self.cpu, objects), self.commit.words

    # ---- a GPU ------------------------------------------------------------------------------------------------------

    def measure(self):
        heading("measured on a GPU")
        name = gpu_here()
        if not name:
            print("no GPU here: not measured")
            return Finding(judging.SKIPPED, "no GPU here: not measured")
        build("release", "isobar-bench")
        rows = measured(self.kernel.ops, self.options.dtype, name, self.predicted,
                        lambda words: bench(CUDA / "bench" / "isobar-bench", words))
        print(name)
        say(counting.aligned(["op", "shape", "dtype", "µs", "predicted", "of the floor", "µs / copy"], rows))
        return Finding(judging.SAME, f"{len(rows)} ops measured on {name}")


def usage_of(compiled):
    """{"kernel (arch)": Usage} of {arch: Compiled}"""
    found = {}
    for arch, one in compiled.items():
        usage = compiling.usage_in(one.log)
        found |= {f"{counting.short(name)} ({arch})": of_it
                  for name, of_it in zip(toolkit.demangled(list(usage)), usage.values())}
    return found


def predictions(name, compiled):
    """[(kernel of the table, Gpu, Resources, Prediction, ends)] of a source, of {arch: Compiled}"""
    of = [kernel for kernel in kernels.KERNELS if kernel.source == name]
    return [row for arch, one in (compiled.items() if of else ())
            for row in report.predicted(report.compiled_in(one.cubin, name, of), of,
                                        [gpu for gpu in gpus.GPUS if gpu.code == arch])]


def counts_of(compiled):
    """{"kernel (arch)": counts of its instructions} of {arch: Compiled}"""
    return {f"{counting.short(name)} ({arch})": counting.counts_of(function.instructions)
            for arch, one in compiled.items() for name, (function, _) in counting.kernels_in(one.cubin).items()}


def other_files(kernel, asked_for):
    """A line, where an op was asked for whose code lies in several files."""
    path = ROOT / kernel.source
    others = sorted(other.name for other in path.parent.glob("*.cu") if other != path)
    if asked_for in kernel.ops and others and kernel.header and path.parent != ROOT / "kernels":
        yield f"{path.parent.name}/ has more code, each file to be given by its name: {', '.join(others)}"


def devices_of(kernel):
    """The environment of tests: where kernels run. Those for one GPU are chosen where the emulator is that."""
    if compiling.architecture_of(kernel.source):
        return {"ISOBAR_TEST_DEVICES": "emulator", "ISOBAR_EMULATOR_CAPABILITY": "90"}
    return {"ISOBAR_TEST_DEVICES": "cpu,emulator"}


def measured(ops, dtype, gpu, predicted, run_bench):
    """Rows of the table: each op in the shapes that lab/on_a_gpu measures, beside the sum of its predictions and a
    copy of as many bytes; of other ops in the shape of the base model."""
    times = {(row[0].name.replace(" by wgmma", ""), row[1].name): row[3].seconds * 1e6 for row in predicted}
    model = next((one.name for one in gpus.GPUS if one.name in gpu), None)
    known = [(op, shape, of, names) for op, shape, of, _, names in measurements.kernels_measured() if op in ops]
    others = [(op, "", dtype, []) for op in ops if op not in {one[0] for one in known}]
    rows = []
    for op, shape, of, names in known + others:
        (line,) = run_bench(["--device", "cuda", "--baseline", "memcpy", "--dtype", of, "--op", op,
                             *(["--shape", shape] if shape else [])])
        parts = [times.get((name, model)) for name in names]
        rows.append([op, line["shape"], of, f"{line['microseconds']:.1f}",
                     f"{sum(parts):.0f}" if parts and all(parts) else "", f"{line['percent_of_floor']:.0f} %",
                     f"{line['ratio_to_baseline']:.2f}"])
    return rows
