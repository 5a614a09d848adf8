#!/usr/bin/env python3
"""Tests of lab/kernel_verdict and scripts/kernel: no compiler is needed."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("lab/on_a_gpu", "lab/kernel_report", "lab/kernel_verdict"):
    sys.path.insert(0, str(ROOT / folder))

# pylint: disable=wrong-import-position
import compiling
import counting
import gpus
import judging
import kernels
import parts
import sass
import sources
from judging import FASTER, SAME, SKIPPED, SLOWER, WRONG, Finding

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1fv' for 'sm_90'
ptxas info    : Function properties for _Z1fv
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 94 registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 77.930 ms
ptxas info    : Compiling entry function '_Z1gv' for 'sm_90'
ptxas info    : Function properties for _Z1gv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Function properties for _Z6helperv
    40 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)

    def write(self, path, text=""):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


class Sources(Folder):
    def test_the_project_s_own(self):
        gelu = sources.Kernel("kernels/gelu.cu", "kernels/gelu.h", ("gelu_fwd", "gelu_bwd"), "tests/kernels/gelu.cc",
                              ("kernels/gelu_cpu.cc",))
        for name in ("gelu", "gelu.cu", "kernels/gelu.cu", str(ROOT / "kernels/gelu.cu"), "gelu_fwd", "gelu_bwd"):
            self.assertEqual(sources.find(name), gelu)
        head = sources.find("attention/head_48.cu")
        self.assertEqual(head, sources.find("head_48"))
        self.assertEqual((head.header, head.ops, head.tests, head.twin),
                         ("kernels/attention/attention.h", ("attention_fwd", "attention_bwd"),
                          "tests/kernels/attention.cc", ("kernels/attention/attention_cpu.cc",)))
        self.assertEqual(sources.find("attention_merge").tests, "tests/kernels/attention_merge.cc")
        self.assertEqual(sources.find("attention_bwd").source, "kernels/attention/attention.cu")
        self.assertEqual(sources.find("gemm").twin, ("kernels/gemm/packed_cpu.cc",))
        self.assertEqual(sources.find("tensor_map.cu").ops, ())

    def test_every_kernel_has_what_the_parts_need(self):
        for path in (ROOT / "kernels").rglob("*.cu"):
            kernel = sources.find(str(path))
            if kernel.name not in ("cuda/tensor_map.cu", "conv/engine_kernels.cu"):  # no ops, and on a GPU alone
                self.assertTrue(kernel.ops and kernel.tests, kernel)
                self.assertTrue(kernel.twin, kernel)

    def test_names_that_are_none(self):
        for name, words in (("gelo", "no kernel 'gelo'.*gelu_fwd"), ("gelo.cu", "no gelo.cu in kernels/"),
                            ("bench/constants.cu", "no bench/constants.cu in kernels/"), ("", "no kernel ''")):
            with self.assertRaisesRegex(sources.NoKernel, words):
                sources.find(name)

    def test_closure(self):
        self.write("kernels/x.cu", '#include "kernels/x.h"\n#include "kernels/w.h"\n#include <vector>\n')
        self.write("kernels/w.h")
        self.write("kernels/x.h", '#include "kernels/y.h"\n')
        self.write("kernels/y.h", '  #  include "kernels/x.h"\n#include "kernels/made_by_the_build.h"\n')
        self.write("kernels/z.h")
        self.assertEqual(set(sources.closure(self.root, ["kernels/x.cu"])),
                         {"kernels/x.cu", "kernels/x.h", "kernels/y.h", "kernels/w.h"})


class Git(Folder):
    def setUp(self):
        super().setUp()
        self.git("init", "--quiet")

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True,
                       capture_output=True)

    def commit(self, title):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", title)

    def test_the_older_commit(self):
        paths = ["kernels/x.cu", "kernels/x.h"]
        self.write("kernels/x.cu", "1")
        self.assertIsNone(sources.older_commit(self.root, paths))  # nothing is committed
        self.commit("first")
        self.assertIsNone(sources.older_commit(self.root, paths))  # nothing is older
        self.write("kernels/x.h", "2")
        self.commit("a header")
        self.write("README", "3")
        self.commit("elsewhere")
        older = sources.older_commit(self.root, paths)
        self.assertRegex(older.words, r"^[0-9a-f]{7,} \(before “a header”\)$")
        tree = self.root / "older"
        tree.mkdir()
        self.assertTrue(sources.extract(self.root, older.name, tree))
        self.assertEqual([path.name for path in (tree / "kernels").iterdir()], ["x.cu"])
        self.write("kernels/x.h", "4")
        older = sources.older_commit(self.root, paths)
        self.assertEqual(older.name, "HEAD")
        self.assertRegex(older.words, r"^[0-9a-f]{7,} \(HEAD\)$")
        self.assertRegex(sources.named_commit(self.root, "HEAD~2").words, r"\(first\)$")
        self.assertIsNone(sources.named_commit(self.root, "HEAD~3"))

    def test_a_folder_that_is_no_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(sources.older_commit(pathlib.Path(folder), ["x"]))


class Compiling(Folder):
    def test_figures_of_ptxas(self):
        found = compiling.usage_in(LOG)
        self.assertEqual(found, {"_Z1fv": compiling.Usage(94, 16, 20, 1024), "_Z1gv": compiling.Usage(32, 0, 0, 0)})

    def test_messages_are_what_is_no_figure(self):
        said = ["ptxas info    : (C7519) Potential Performance Loss: wgmma", "gelu.cu(3): warning: unused",
                "ptxas warning : Registers are spilled to local memory in function '_Z1fv', 8 bytes spill stores"]
        self.assertEqual(compiling.messages_in(LOG), [])
        self.assertEqual(compiling.messages_in(said[0] + "\n" + LOG + "\n".join(said[1:])), said)

    def test_the_command_for_machine_code(self):
        source = "kernels/x.cu"
        words = ["nvcc", f"-I{ROOT}", "-isystem=/cuda", "--generate-code=arch=compute_80,code=[compute_80,sm_80,sm_90]",
                 "-x", "cu", "-c", str(ROOT / source), "-o", "kernels/x.cu.o"]
        made = compiling.elsewhere(compiling.for_machine_code(words, source, "sm_80"), self.root, source, "x.cubin")
        self.assertEqual(made[1:], [str(ROOT / "tools/checked_nvcc.py"), "nvcc", f"-I{self.root}", "-isystem=/cuda",
                                    "--generate-code=arch=compute_80,code=[sm_80]", "-x", "cu", "-cubin",
                                    str(self.root / source), "-o", "x.cubin", "-Xptxas=-v"])
        source = "kernels/attention/sm90_x.cu"
        words = ["nvcc", "--generate-code=arch=compute_90a,code=[sm_90a]", "-c", str(ROOT / source), "-o", "x.o"]
        self.assertIn(words[1], compiling.for_machine_code(words, source, "sm_90"))

    def test_what_is_kept_is_made_once(self):
        made = []

        def make(new):
            made.append(new)
            new.write_text("machine code")

        for _ in range(2):
            self.assertEqual(compiling.kept(self.root / "a" / "x.cubin", make).read_text(), "machine code")
        self.assertEqual(len(made), 1)
        self.assertEqual([path.name for path in (self.root / "a").iterdir()], ["x.cubin"])

        def fail(_):
            raise compiling.Failed("error: 7")

        for _ in range(2):  # a failure is not kept
            with self.assertRaises(compiling.Failed):
                compiling.kept(self.root / "a" / "y.cubin", fail)

    def test_the_key_is_of_all_that_goes_in(self):
        keys = {compiling.key_of(words, texts) for words, texts in (
            (["nvcc", "x"], {"x": "1"}), (["nvcc", "y"], {"x": "1"}), (["nvcc", "x"], {"x": "2"}),
            (["nvcc", "x"], {"x": "1", "y": ""}), (["nvcc", "x"], {"y": "1"}))}
        self.assertEqual(len(keys), 5)

    def test_a_build_folder_without_cuda(self):
        self.write("compile_commands.json", json.dumps([{"file": str(ROOT / "kernels/gelu.cu"),
                                                         "command": "/usr/bin/ccache /usr/bin/c++ -c gelu.cu"}]))
        self.assertEqual(compiling.commands_of(self.root, "kernels/gelu.cu"), [["/usr/bin/c++", "-c", "gelu.cu"]])
        with self.assertRaisesRegex(compiling.NotHere, "no nvcc: .* without CUDA"):
            compiling.nvcc_command(self.root, "kernels/gelu.cu")
        self.write("compile_commands.json", json.dumps([{"file": str(ROOT / "kernels/gelu.cu"),
                                                         "command": "/gone/nvcc -c gelu.cu"}]))
        with self.assertRaisesRegex(compiling.NotHere, "/gone/nvcc, of which .* is gone"):
            compiling.nvcc_command(self.root, "kernels/gelu.cu")


def instructions(*opcodes):
    return [sass.Instruction(16 * at, "", opcode, "", sass.control_of(0)) for at, opcode in enumerate(opcodes)]


class Counting(unittest.TestCase):
    def test_classes(self):
        of_class = {"tensor": ["HMMA.16816.F32.BF16", "HGMMA.64x128x16.F32.BF16"],
                    "fp": ["FFMA", "FADD.FTZ", "HFMA2.BF16", "DADD", "MUFU.EX2", "FSETP.GT", "FSEL", "F2FP.BF16.F32",
                           "I2F", "F2I.TRUNC", "FMNMX"],
                    "ld/st": ["LDG.E.128", "STS", "LDGSTS.E", "LDSM.16.M88.4", "LDC", "RED.E.ADD", "UTMALDG.2D"],
                    "branch": ["BRA", "EXIT", "CALL.REL", "RET.REL"],
                    "other": ["IMAD.WIDE", "MOV", "BAR.SYNC", "FLO.U32", "SHFL.BFLY", "LOP3.LUT", "NOP", "UMOV",
                              "FENCE.VIEW.ASYNC"]}
        for name, opcodes in of_class.items():
            for opcode in opcodes:
                self.assertEqual(counting.class_of(*instructions(opcode)), name, opcode)
        self.assertEqual(counting.counts_of(instructions(*sum(of_class.values(), []))),
                         {"total": 33, **{name: len(opcodes) for name, opcodes in of_class.items()}})

    def test_tables(self):
        self.assertEqual([counting.change(*ends) for ends in ((None, 7), (7, 7), (8, 7))], ["7", "7", "8 → 7"])
        self.assertEqual(counting.aligned(["kernel", "total"], [["f", 7], ["longer name", "8 → 7"]]),
                         ["kernel       total", "f                7", "longer name  8 → 7"])
        self.assertEqual(counting.short("isobar::cuda::attention::forward_kernel<isobar::bf16, 48, false>"),
                         "forward_kernel<bf16, 48, false>")

    def test_of_many_rows_the_news_are_shown(self):
        rows = [[f"k{at}", at] for at in range(30)]
        self.assertEqual(len(parts.shown(["k", "n"], rows[:12], lambda _: False)), 13)
        self.assertEqual(parts.shown(["k", "n"], rows, lambda _: False)[12:], ["k11  11", "and 18 more"])
        self.assertEqual(parts.shown(["k", "n"], rows, lambda row: row[1] == 20),
                         ["k     n", "k20  20", "and 29 more, as before"])
        self.assertEqual(parts.shown(["k", "n"], rows, lambda row: row[1] > 15)[-1],
                         "and 18 more, 2 of them changed")


class Judging(unittest.TestCase):
    def test_the_word_and_the_status(self):
        found = {kind: Finding(kind, kind) for kind in (WRONG, SLOWER, FASTER, SAME, SKIPPED)}
        for kinds, word, status in (((SAME, SKIPPED), "right", 0), ((SAME, FASTER), "faster", 0),
                                    ((FASTER, SLOWER, SAME), "slower", 1), ((SLOWER, WRONG, FASTER), "wrong", 1),
                                    ((SKIPPED,), "nothing could be looked at", 0)):
            findings = [found[kind] for kind in kinds]
            self.assertEqual((judging.word_of(findings), judging.status_of(findings)), (word, status))
        self.assertEqual(judging.line_of([found[SAME], found[SKIPPED]], 7.4), "verdict: right: same; skipped (7 s)")

    def test_predictions(self):
        def kind(*pairs):
            return judging.of_predictions([("k", *pair) for pair in pairs]).kind

        self.assertEqual(kind((1.0, 1.005), (2.0, 2.0)), SAME)
        self.assertEqual(kind((1.0, 0.9), (2.0, 2.0)), FASTER)
        self.assertEqual(kind((1.0, 0.9), (2.0, 2.1)), SLOWER)
        self.assertEqual(kind((None, 3.0)), SAME)
        self.assertEqual(kind(), SKIPPED)
        self.assertEqual(judging.of_predictions([("a", 1.0, 1.5), ("b", 1.0, 1.2)]).words,
                         "predicted 50 % slower (a)")

    def test_timings(self):
        def line(op, ratio, verdict):
            return {"op": op, "ratio_to_old": ratio, "verdict": verdict}

        fast, slow, same = line("f", 0.8, "faster"), line("g", 1.25, "slower"), line("h", 1.01, "within the noise")
        self.assertEqual(judging.of_timings([fast, slow, same], "it is"), Finding(SLOWER, "it is slower: g 25 %"))
        self.assertEqual(judging.of_timings([fast, same], "it is"), Finding(FASTER, "it is faster: f 20 %"))
        self.assertEqual(judging.of_timings([same], "it is"), Finding(SAME, "it is within the noise"))

    def test_spills(self):
        few, more = compiling.Usage(255, 8, 8, 0), compiling.Usage(255, 16, 16, 0)
        none = compiling.Usage(128, 0, 0, 0)
        self.assertEqual(judging.of_usage({"f": few}, {"f": more, "g": none}).kind, SLOWER)
        self.assertEqual(judging.of_usage({}, {"f": few}).kind, SLOWER)
        self.assertEqual(judging.of_usage({"f": few}, {"f": few}).words, "1 kernels compile, 1 spill as before")
        self.assertEqual(judging.of_usage({"f": few}, {"f": none}), Finding(SAME, "1 kernels compile, none spills"))

    def test_tests(self):
        for status, last, found in (
                (0, "All tests passed (7 assertions in 5 test cases)", Finding(SAME, "5 tests pass")),
                (0, "All tests passed (7 assertions in 1 test case)", Finding(SAME, "1 tests pass")),
                (77, "All tests passed (1 assertion in 1 test case)", Finding(SKIPPED, "no test can run here")),
                (0, "No tests ran", Finding(WRONG, "no tests have run")),
                (1, "test cases: 5 | 1 failed", Finding(WRONG, "tests fail: test cases: 5 | 1 failed"))):
            self.assertEqual(judging.of_tests(status, last), found)


class OnAGpu(unittest.TestCase):
    def test_ops_in_the_shapes_of_the_predictions(self):
        commands = []

        def run_bench(words):
            commands.append(words)
            return [{"op": words[7], "shape": words[9] if len(words) > 9 else "5", "microseconds": 150.04,
                     "percent_of_floor": 91.2, "ratio_to_baseline": 1.234}]

        name = "gelu_fwd (base)"
        predicted = [(next(one for one in kernels.KERNELS if one.name == name), gpus.H100, None,
                      mock.Mock(seconds=137e-6), None)]
        rows = parts.measured(("gelu_fwd", "fill"), "bf16", "NVIDIA H100 80GB HBM3", predicted, run_bench)
        self.assertEqual(rows, [["gelu_fwd", str(16 * 4050 * 4 * 384), "bf16", "150.0", "137", "91 %", "1.23"],
                                ["gelu_fwd", str(16 * 4050 * 4 * 1024), "bf16", "150.0", "", "91 %", "1.23"],
                                ["fill", "5", "bf16", "150.0", "", "91 %", "1.23"]])
        self.assertEqual(commands[2], ["--device", "cuda", "--baseline", "memcpy", "--dtype", "bf16", "--op", "fill"])

    def test_the_gpu_s_name(self):
        def said(text, status=0):
            ran = subprocess.CompletedProcess([], status, text, "")
            with mock.patch("shutil.which", return_value="nvidia-smi"), mock.patch("subprocess.run", return_value=ran):
                return parts.gpu_here()

        self.assertEqual(said("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: other (UUID: GPU-2)\n"),
                         "NVIDIA H100 80GB HBM3")
        self.assertEqual(said("No devices were found"), "")
        self.assertEqual(said("GPU 0: x", 9), "")
        with mock.patch("shutil.which", return_value=None):
            self.assertEqual(parts.gpu_here(), "")


class CommandLine(unittest.TestCase):
    def run_kernel(self, *words):
        return subprocess.run([ROOT / "scripts" / "kernel", *words], capture_output=True, text=True, check=False)

    def test_help(self):
        for words, status in ((["--help"], 0), (["-h"], 0), ([], 1)):
            run = self.run_kernel(*words)
            self.assertEqual((run.returncode, run.stderr), (status, ""))
            self.assertTrue(run.stdout.startswith("scripts/kernel NAME|FILE.cu "))
            for option in ("--against", "--arch", "--tests", "--old", "--dtype", "--preset"):
                self.assertRegex(run.stdout, rf"(?m)^  {option} ")

    def test_what_is_wrong_is_one_sentence(self):
        for words, said in ((["gelo"], "there is no kernel 'gelo'"), (["gelo.cu"], "there is no gelo.cu in kernels/"),
                            (["gelu", "--against", "no_such"], "there is no commit 'no_such'"),
                            (["gelu", "--old", "no_such"], "--old: there is no file no_such"),
                            (["gelu", "--arch", "sm_70"], "--arch"), (["gelu", "--agains", "HEAD"], "--agains"),
                            (["gelu", "--dtype"], "--dtype"), (["--arch", "sm_80"], "NAME|FILE.cu"),
                            (["sm90_head_48", "--arch", "sm_80"], "has code for sm_90 alone")):
            run = self.run_kernel(*words)
            self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (1, "", 1), run.stderr)
            self.assertTrue(run.stderr.startswith("kernel: "), run.stderr)
            self.assertIn(said, run.stderr)


if __name__ == "__main__":
    unittest.main()
