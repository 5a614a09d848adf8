#!/usr/bin/env python3
"""Tests of lab/on_a_gpu with programs that are a few lines of shell: no build, and no GPU, is needed."""
import contextlib
import fnmatch
import io
import json
import pathlib
import re
import sys
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lab" / "on_a_gpu"), str(ROOT / "lab" / "kernel_report")]

# pylint: disable=wrong-import-position,wrong-import-order
import checks
import export
import gpus
import importlib.util
import kernels
import measurements
import processes
import results
import staging
import work

SPEC = importlib.util.spec_from_file_location("on_a_gpu", ROOT / "lab" / "on_a_gpu" / "__main__.py")
on_a_gpu = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(on_a_gpu)

PRODUCT = {"step": "base", "dtype": "bf16", "rows": 64800, "count": 12, "m": 1152, "n": 64800, "k": 384, "epilogue": 4,
           "microseconds": {"H100": 90.0}}
STEP = {"config": "base", "dtype": "bf16", "amp_mode": "bf16", "batch": 16, "microseconds": {"H100": 88000.0},
        "kinds": {"gelu_fwd": {"H100": 3000.0}, "products (cuBLASLt)": {"H100": 13000.0},
                  "gaps between launches": {"H100": 700.0}},
        "launches": [{"function": "gelu_fwd_kernel", "grid": [16384, 1, 1], "threads": 256, "kind": "gelu_fwd"},
                     {"function": "partial_sums_kernel", "grid": [12, 2, 1], "threads": 512, "kind": "layernorm_bwd"},
                     {"function": "partial_sums_kernel", "grid": [12, 1, 1], "threads": 512, "kind": "column_sum"}]}
PREDICTIONS = {"compiler": "nvcc 13.0.88", "kernels": {"gelu_fwd (base)": {"H100": 137.0}}, "products": [PRODUCT],
               "steps": {"base": STEP, "mp": STEP}, "launch": {"H100": 1.5}, "wait": {"H100": 30.0},
               "upload_byte": {"H100": 1.9e-5}}
INFO = {"build": {"cuda": True, "cuda_runtime": "13.0"}, "cuda_driver": "13.0",
        "devices": [{"kind": "cpu", "threads": 2},
                    {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "memory_bytes": 1}]}
NO_GPU = {**INFO, "devices": INFO["devices"][:1]}
# An isobar-bench that takes 2 µs for each op that it is given.
BENCH = """while [ $# -gt 0 ]; do
  case $1 in --op) op=$2 ;; --shape) echo "{\\"op\\": \\"$op\\", \\"shape\\": \\"$2\\", \\"microseconds\\": 2}" ;; esac
  shift
done"""


def result(op, shape, microseconds, warning=None):
    return json.dumps({"op": op, "shape": shape, "microseconds": microseconds, "warning": warning})


class Tree:
    """A staged folder of shell scripts."""

    def __init__(self, folder, info=None, **programs):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "predictions.json").write_text(json.dumps(PREDICTIONS))
        (folder / "stage.json").write_text(json.dumps({"commit": "abc1234"}))
        self.write("isobar", f"cat <<'END'\n{json.dumps(info or INFO)}\nEND")
        for name, lines in programs.items():
            self.write(name.replace("isobar_bench", "isobar-bench"), lines)

    def write(self, name, lines):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)

    def run(self, *arguments):
        """(what ended the program, what it printed, its JSON)"""
        given = ["on_a_gpu", "run", "--tree", str(self.folder), "--results", str(self.folder / "results"), *arguments]
        printed, ended = io.StringIO(), None
        with unittest.mock.patch.object(sys, "argv", given), contextlib.redirect_stdout(printed):
            options = on_a_gpu.arguments()
            try:
                options.run(options)
            except SystemExit as end:
                ended = end.code
        found = list((self.folder / "results").glob("*.json"))
        return ended, printed.getvalue(), json.loads(found[0].read_text()) if found else None


class InFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="isobar_on_a_gpu_test_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def runner(self, **given):
        return processes.Runner(self.folder, self.folder / "log", **given)


class Parsing(unittest.TestCase):
    def test_a_bench_that_ends_in_the_middle_of_a_line(self):
        lines = result("adam", "5", 7.5) + "\n" + result("cast", "6", 8)[:-5]
        self.assertEqual([one["microseconds"] for one in measurements.parse_bench(lines)], [7.5])
        self.assertEqual(measurements.parse_bench("isobar-bench: no such op\n"), [])

    def test_ncu(self):
        head = '"ID","Process ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"'
        lines = [("gelu_fwd_kernel", "(256, 1, 1)", "(16384, 1, 1)", "137,500"),
                 ("nvjet_hsh_128x256", "(384, 1, 1)", "(132, 1, 1)", "90000"),
                 ("partial_sums_kernel", "(512, 1, 1)", "(12, 2, 1)", "5000"),
                 ("partial_sums_kernel", "(512, 1, 1)", "(9, 9, 1)", "6000")]
        text = "\n".join(["==PROF== Connected", head] +
                         [f'"0","1","{name}","{block}","{grid}","gpu__time_duration.sum","ns","{time}"'
                          for name, block, grid, time in lines])
        found = measurements.parse_ncu(text)
        self.assertEqual(found[0], ("gelu_fwd_kernel", (16384, 1, 1), 256, 137.5))
        self.assertEqual(measurements.kinds_of_step(found, STEP["launches"]),
                         {"gelu_fwd": 137.5, "products (cuBLASLt)": 90, "layernorm_bwd": 5,
                          "column_sum or layernorm_bwd": 6})
        with self.assertRaisesRegex(ValueError, "ncu gives times in us"):
            measurements.parse_ncu(text.replace('"ns"', '"us"'))
        self.assertEqual(measurements.parse_ncu("==ERROR== ERR_NVGPUCTRPERM"), [])

    def test_metrics_without_the_first_line_which_has_the_start_in_it(self):
        lines = [{"event": "valid"}] + [{"event": "train", "samples_per_second": rate} for rate in (1, 100, 160, 200)]
        self.assertEqual(measurements.step_microseconds("\n".join(map(json.dumps, lines)), 16), 1e5)


class Predictions(unittest.TestCase):
    def test_every_kernel_of_the_report_is_measured_once(self):
        measured = [name for *_, names in measurements.kernels_measured() for name in names]
        self.assertEqual(sorted(measured), sorted(kernel.name for kernel in kernels.KERNELS if not kernel.instead))

    def test_families_are_those_that_are_checked(self):
        families = {one.family for one in measurements.measurements(PREDICTIONS)} - {""}
        self.assertEqual(families, set(checks.FAMILIES))

    def test_a_sum_needs_a_prediction_of_each(self):
        known = {"kernels": {"a": {"A100": 1, "H100": 2}, "b": {"H100": 5}}}
        self.assertEqual(measurements.sum_of(known, ["a", "b"]), {"H100": 7})
        self.assertEqual(measurements.sum_of(known, ["a", "c"]), {})

    def test_products_of_the_recorded_steps(self):
        shapes = {}
        for product in export.products_of("base"):
            op, shape = measurements.product_as_op(product)
            shapes[op, shape] = shapes.get((op, shape), 0) + product["count"]
            rows, out, into = map(int, shape.split("x"))
            self.assertEqual(rows * out * into, product["m"] * product["n"] * product["k"])
            self.assertEqual(rows, 64800)
        self.assertEqual(shapes["linear_fwd", "64800x1152x384"], 12)  # q, k and v
        self.assertEqual(shapes["linear_dw", "64800x1536x384"], 12)
        self.assertEqual(sum(shapes.values()), sum(one["count"] for one in work.read("base", 16)
                                                   if one["work"] == "product"))

    def test_launches_are_told_apart(self):
        for name in work.STEPS:
            kinds = {}
            for one in export.launches_of(work.read(name, 16)):
                kinds.setdefault((one["function"], tuple(one["grid"]), one["threads"]), set()).add(one["kind"])
            self.assertEqual([names for names in kinds.values() if len(names) > 1], [])


class Checks(InFolder):
    def checks(self, limit=20, jobs=1, **given):
        return checks.Checks(self.runner(**given), limit, lambda line: None, jobs)

    def test_checks_run_side_by_side(self):
        begin = time.monotonic()
        done = self.checks(jobs=4)
        done.run_all([(f"sleep {i}", ["/bin/sleep", "1"], {}) for i in range(4)])
        self.assertEqual([check.result for check in done.done], ["passed"] * 4)
        self.assertLess(time.monotonic() - begin, 3.5)

    def test_a_sanitizer_sees_a_case_of_each_kind_and_each_has_its_own_limit(self):
        tree = Tree(self.folder, kernel_tests="exit 0",
                    sanitizer='case "$6" in adam*) exit 97 ;; patchify*) sleep 9 ;; esac')
        done = self.checks(limit=1)
        with unittest.mock.patch("shutil.which", return_value=str(self.folder / "bin" / "sanitizer")):
            done.run_all(checks.sanitizer_checks(done, tree.folder, rehearsal=False))
        became = {check.name: check.result for check in done.done}
        self.assertEqual(became["compute-sanitizer memcheck: Adam"], "failed")
        self.assertEqual(became["compute-sanitizer racecheck: patches"], "time limit")
        self.assertEqual(became["compute-sanitizer racecheck: attention"], "passed")
        self.assertNotIn("compute-sanitizer racecheck: Adam", became)

    def test_every_file_of_kernel_tests_is_run(self):
        specs = [spec for specs in (*checks.FAMILIES.values(), checks.OTHERS) for spec in specs.split(",")]
        on_the_cpu = {"common.cc", "emulator.cc", "hopper.cc", "streams.cc", "vector_math.cc", "workbench.cc"}
        for path in (ROOT / "tests" / "kernels").glob("*.cc"):
            if path.name not in on_the_cpu:
                first = re.search(r'^TEST_CASE\("([^"]*)"', path.read_text(), re.MULTILINE).group(1)
                self.assertTrue(any(fnmatch.fnmatchcase(first, spec) for spec in specs), f"{path.name}: {first}")

    def test_sanitizers_have_cases(self):
        """Catch2 knows a * at both ends of a name only, and a comma is between names."""
        names = re.findall(r'^TEST_CASE\("([^"]*)"', "".join(path.read_text() for path in (ROOT / "tests" / "kernels").
                                                            glob("*.cc")), re.MULTILINE)
        for specs in checks.SANITIZED.values():
            for spec in specs.split(","):
                self.assertNotIn("*", spec[:-1])
                self.assertTrue(any(fnmatch.fnmatchcase(name, spec) for name in names), spec)

    def test_constants_that_are_measured_and_that_are_not(self):
        tree = Tree(self.folder, constants="echo '{\"constant\": \"a\", \"value\": 29.5, \"unit\": \"cycles\"}'\n"
                    "echo 'isobar-constants: no' >&2; exit 1")
        rows = measurements.measure_constants(self.runner(), tree.folder / "bin" / "constants", {"a": 28.9, "b": 1}, 9)
        self.assertEqual([(row.title, row.predicted, row.measured, row.note) for row in rows],
                         [("a", 28.9, 29.5, "cycles"), ("b", 1, None, "status 1: isobar-constants: no")])
        self.assertIn("| what | assumed | measured |", results.table_of(rows)[0])

    def test_constants_have_the_names_that_the_program_prints(self):
        source = (ROOT / "bench" / "constants.cu").read_text()
        for name in export.constants(gpus.H100):
            for part in re.sub(r"wgmma 64x\d+", "wgmma 64x", name).split(", "):
                self.assertIn(part, source)

    def test_a_failed_check_leaves_the_families_that_pass(self):
        tree = Tree(self.folder, kernel_tests='case "$1" in gelu*) echo "gelu_fwd: FAILED: 3 ulp"; exit 1 ;; esac')
        done = self.checks(jobs=3)
        done.run_all(checks.kernel_checks(tree.folder, rehearsal=False))
        became = {check.name: (check.result, check.said) for check in done.done}
        self.assertEqual(became["kernel_tests: GELU"], ("failed", "status 1: gelu_fwd: FAILED: 3 ulp"))
        self.assertEqual(len(became), len(checks.FAMILIES) + 1)
        self.assertFalse(done.family_is_right("GELU"))
        self.assertTrue(done.family_is_right("Adam"))

    def test_a_time_limit_ends_the_program_and_what_it_started(self):
        mark = self.folder / "mark"
        tree = Tree(self.folder, kernel_tests=f"(sleep 3; touch {mark}) & sleep 60")
        done = self.checks(limit=0.5)
        begin = time.monotonic()
        done.run(checks.KERNELS, [tree.folder / "bin" / "kernel_tests"])
        self.assertEqual(done.done[0].result, "time limit")
        self.assertFalse(done.has_passed(checks.KERNELS))
        self.assertLess(time.monotonic() - begin, 3)
        time.sleep(max(0, begin + 4 - time.monotonic()))
        self.assertFalse(mark.exists())

    def test_the_time_of_all(self):
        done = self.checks(seconds=0)
        done.run("late", ["/bin/false"])
        self.assertEqual((done.done[0].result, done.done[0].said), ("not run", "the time is up"))


class Runs(InFolder):
    def test_no_gpu_is_one_sentence(self):
        ended, printed, found = Tree(self.folder, info=NO_GPU).run()
        self.assertEqual(ended, "on_a_gpu: there is no NVIDIA GPU, or no driver for it; `run` needs one")
        self.assertEqual((printed, found), ("", None))

    def test_a_driver_that_is_too_old_says_so_itself(self):
        tree = Tree(self.folder)
        tree.write("isobar", "echo 'isobar: the NVIDIA driver is too old' >&2; exit 1")
        self.assertEqual(tree.run()[0], "on_a_gpu: status 1: isobar: the NVIDIA driver is too old")

    def test_a_folder_that_is_not_staged(self):
        with self.assertRaisesRegex(SystemExit, "is no staged folder"):
            on_a_gpu.run(unittest.mock.Mock(tree=self.folder))

    def test_only_what_has_passed_is_measured(self):
        """A kernel_tests that exits 1 for one family."""
        tree = Tree(self.folder, kernel_tests='case "$1" in adam*) exit 1 ;; esac', isobar_bench=BENCH)
        ended, printed, found = tree.run("--only", "checks", "kernels")
        rows = {row["title"]: row for row in found["rows"]}
        self.assertRegex(str(ended), "on_a_gpu: . checks have not passed, 2 figures were not measured")
        self.assertRegex(printed, "failed .*kernel_tests: Adam: status 1")
        self.assertEqual(rows["adam (base)"]["measured"], None)
        self.assertEqual(rows["adam (base)"]["note"], "not measured: the check of Adam has not passed")
        gelu = rows["gelu_fwd (base)"]
        self.assertEqual((gelu["predicted"], gelu["measured"], gelu["ratio"]), (137.0, 2, 2 / 137.0))
        page = next((self.folder / "results").glob("*.md")).read_text()
        self.assertIn("| gelu_fwd (base) | 137.0 | 2.0 | 0.01 |  |", page)
        self.assertIn("NVIDIA H100 80GB HBM3", page)
        self.assertEqual((found["commit"], found["predicted_for"], found["rehearsal"]), ("abc1234", "H100", False))

    def test_nothing_is_measured_without_checks(self):
        _, _, found = Tree(self.folder, isobar_bench=BENCH).run("--only", "kernels", "steps")
        self.assertTrue(found["rows"])
        self.assertEqual([row for row in found["rows"] if row["measured"] is not None], [])

    def test_checks_of_an_earlier_call(self):
        tree = Tree(self.folder, kernel_tests="exit 0", isobar_bench=BENCH)
        tree.run("--only", "checks")
        earlier = next((self.folder / "results").glob("*.json")).rename(self.folder / "checks.json")
        ended, _, found = tree.run("--only", "kernels", "--checked", str(earlier))
        self.assertEqual([row for row in found["rows"] if row["measured"] is None], [])
        earlier.write_text(earlier.read_text().replace("abc1234", "def5678"))
        ended, _, _ = tree.run("--only", "kernels", "--checked", str(earlier))
        self.assertRegex(str(ended), "is of commit def5678, and this is abc1234")

    def test_a_bench_that_dies_loses_no_more_than_what_follows(self):
        tree = Tree(self.folder, kernel_tests="exit 0",
                    isobar_bench=BENCH.replace("--shape)", "--shape) [ $op != gelu_bwd ] || exec sh -c "
                                               "'echo isobar-bench: out of memory on GPU 0 >&2; exit 1';"))
        _, _, found = tree.run("--only", "checks", "kernels")
        rows = {row["title"]: row for row in found["rows"]}
        self.assertEqual(rows["gelu_fwd (base)"]["measured"], 2)
        self.assertEqual(rows["gelu_bwd (base)"]["note"], "status 1: isobar-bench: out of memory on GPU 0")
        self.assertEqual(rows["gelu_fwd (mp)"]["note"], "not reached")
        self.assertEqual(rows["adam (mp)"]["measured"], 2)

    def test_another_gpu_has_no_predictions(self):
        info = {**INFO, "devices": [INFO["devices"][0], {**INFO["devices"][1], "name": "NVIDIA L4"}]}
        _, _, found = Tree(self.folder, info=info, kernel_tests="exit 0", isobar_bench=BENCH).run("--only", "costs")
        self.assertEqual((found["predicted_for"], found["rows"][0]["predicted"], found["rows"][0]["measured"]),
                         (None, None, 2))

    def test_launches_are_counted_singly(self):
        _, _, found = Tree(self.folder, isobar_bench=BENCH).run("--only", "costs")
        rows = {row["title"]: row["measured"] for row in found["rows"]}
        self.assertEqual(rows["a launch of a kernel that does nothing"], 2 / 1000)


class Staging(InFolder):
    def test_what_is_missing_is_named(self):
        with self.assertRaisesRegex(staging.StagingError, "apps/isobar is not there: build it first"):
            staging.stage(self.folder, self.folder / "out")
        (self.folder / "out").mkdir()
        (self.folder / "out" / "file").touch()
        (self.folder / "apps").mkdir()
        (self.folder / "apps" / "isobar").touch()
        with self.assertRaisesRegex(staging.StagingError, "out is not empty"):
            staging.stage(self.folder, self.folder / "out", programs=["isobar"])

    def test_libraries_of_the_system_stay(self):
        names = {path.name for path in staging.libraries_of(sys.executable)}
        self.assertFalse({"libc.so.6", "libm.so.6", "libcuda.so.1"} & names)


class Results(unittest.TestCase):
    def test_a_ratio_needs_both(self):
        self.assertIsNone(measurements.Row("kernels", "a", None, 2.0).ratio)
        self.assertIsNone(measurements.Row("kernels", "a", 2.0, None).ratio)
        self.assertEqual(measurements.Row("kernels", "a", 2.0, 3.0).ratio, 1.5)


if __name__ == "__main__":
    unittest.main()
