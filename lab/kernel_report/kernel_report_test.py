#!/usr/bin/env python3
"""Tests of lab/kernel_report on the listings of machine code beside it: no compiler is needed."""
import dataclasses
import json
import pathlib
import re
import struct
import tempfile
import unittest

import accesses
import fatbin
import gpus
import kernels
import loops
import pipes
import prediction
import report
import rows
import sass
import simulator
import step
import validation
import work

HERE = pathlib.Path(__file__).resolve().parent


def row_sums():
    (function,) = sass.functions_of((HERE / "listings" / "row_sums.sass").read_text().splitlines())
    return function


def function_of(*code):
    """A kernel of instructions such as "@P0 BRA 0x40", at addresses 0x0, 0x10, ..."""
    lines = ["code for sm_80", "Function : kernel"]
    for number, text in enumerate(code):
        lines += [f"  /*{16 * number:04x}*/  {text} ;  /* 0x0 */", f"  /* 0x{0x000fe200078e00ff:016x} */"]
    (function,) = sass.functions_of(lines)
    return function


class Sass(unittest.TestCase):
    def test_instructions_of_a_listing(self):
        function = row_sums()
        self.assertEqual((function.name, function.arch), ("row_sums", "sm_80"))
        self.assertEqual(len(function.instructions), 0x220 // 16)  # without the padding behind EXIT
        store = function.instructions[0x1e0 // 16]
        self.assertEqual((store.address, store.guard, store.opcode, store.operands),
                         (0x1e0, "@!P0", "STG.E", "[R4.64], R7"))
        self.assertEqual(function.instructions[0x1b0 // 16].target, 0x130)
        self.assertIsNone(store.target)

    def test_control_codes(self):
        load = row_sums().instructions[0x140 // 16]
        self.assertEqual(load.opcode, "LDG.E")
        # It raises 2 until R2 is there, and 0 until its address R2, R3 is read: the sum that writes R3 waits for that.
        self.assertEqual((load.control.write_barrier, load.control.read_barrier), (2, 0))
        self.assertEqual(row_sums().instructions[0x180 // 16].control.waits, (0,))
        # The exponential waits for the load, and raises a scoreboard of its own, for which the sum waits.
        exponential, total = row_sums().instructions[0x190 // 16:0x1b0 // 16]
        self.assertEqual(exponential.control.waits, (2,))
        self.assertEqual(total.control.waits, (exponential.control.write_barrier,))
        self.assertEqual(sass.control_of(0x000fe400078e00ff).stall, 2)

    def test_a_cut_listing_is_refused(self):
        lines = (HERE / "listings" / "row_sums.sass").read_text().splitlines()
        with self.assertRaisesRegex(ValueError, "row_sums: the second half of the instruction at 0x0140 is missing"):
            list(sass.functions_of([line for line in lines if "0x0000a2000c1e1900" not in line]))

    def test_resources(self):
        lines = ["arch = sm_90a", " Function f:", "  REG:94 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:568"]
        self.assertEqual(sass.resources_of(lines), {("sm_90", "f"): sass.Resources(94, 16, 1024)})


class Loops(unittest.TestCase):
    def test_nested_loops(self):
        blocks = loops.blocks_of(row_sums())
        spans = [[blocks[index].instructions[0].address for index in loop.blocks] for loop in loops.loops_of(blocks)]
        self.assertEqual([(min(span), max(span)) for span in spans], [(0x60, 0x1c0), (0x130, 0x130)])

    def test_the_main_loop_and_its_turn(self):
        blocks = loops.blocks_of(row_sums())
        turn = loops.turn_of(blocks, loops.main_loop_of(blocks))
        self.assertEqual([instruction.address for instruction in turn], list(range(0x130, 0x1c0, 16)))
        counts = pipes.counts_of(turn)
        self.assertEqual({pipe: count for pipe, count in counts.items() if count},
                         {"lsu": 1, "mufu": 1, "fma": 2, "alu": 4, "control": 1})

    def test_a_turn_loads_the_next_tile_and_passes_by_the_mask(self):
        function = function_of("MOV R0, RZ", "@P0 BRA 0x40", "LDGSTS [R1], [R2]", "LDGSTS [R1+0x10], [R2]",
                               "HMMA.16816.F32.BF16 R4, R8, R12, R4", "@P1 BRA 0x80", "FSEL R4, R4, R5, P3",
                               "FSEL R5, R5, R6, P3", "MUFU.EX2 R4, R4", "@P2 BRA 0x10", "EXIT")
        blocks = loops.blocks_of(function)
        turn = loops.turn_of(blocks, loops.main_loop_of(blocks))
        self.assertEqual([instruction.address // 16 for instruction in turn], [1, 2, 3, 4, 5, 8, 9])

    def test_the_loop_with_tensor_instructions_is_the_main_one(self):
        function = function_of("LDG R0, [R2]", "LDG R1, [R2]", "@P0 BRA 0x0",  # more loads, but no products
                               "HMMA.16816.F32 R4, R8, R12, R4", "FSEL R4, R4, R5, P3", "@P0 BRA 0x30",  # masked
                               "HMMA.16816.F32 R4, R8, R12, R4", "@P0 BRA 0x60", "EXIT")
        blocks = loops.blocks_of(function)
        turn = loops.turn_of(blocks, loops.main_loop_of(blocks))
        self.assertEqual([instruction.address // 16 for instruction in turn], [6, 7])

    GENERATOR = ("HMMA.16816.F32 R4, R8, R12, R4", "@P1 BRA 0x70", "MOV R0, RZ",  # dropout is off: past all
                 "IMAD.WIDE.U32 R2, R2, R3, RZ", "LOP3.LUT R2, R2, R3, RZ, 0x96, !PT", "@P2 BRA 0x30",
                 "SHFL R0, R0, 0x1", "SYNCS.PHASECHK.TRYWAIT P0, [R1]", "@!P0 BRA 0x70",  # a wait
                 "@P3 BRA 0x0", "EXIT")

    def test_a_loop_inside_the_turn_is_gone_through_as_often_as_is_said(self):
        blocks = loops.blocks_of(function_of(*self.GENERATOR))
        loop = loops.main_loop_of(blocks)
        past = [instruction.address // 16 for instruction in loops.turn_of(blocks, loop)]
        self.assertEqual(past, [0, 1, 7, 8, 9])
        nine = [instruction.address // 16 for instruction in loops.turn_of(blocks, loop, 9)]
        self.assertEqual(nine, [0, 1, 2, *[3, 4, 5] * 9, 6, 7, 8, 9])
        (inside,) = loops.inner_loops(blocks, loop)  # and not the wait
        self.assertEqual([one.address // 16 for one in loops.turn_of(blocks, inside)], [3, 4, 5])

    def test_a_jump_back_from_behind_the_loop_is_no_loop(self):
        function = function_of("LDG R0, [R2]", "@P1 BRA 0x50", "FADD R0, R0, R1", "@P0 BRA 0x0", "EXIT",
                               "FMUL R0, R0, R0", "BRA 0x20")  # a slow path that lies behind EXIT
        blocks = loops.blocks_of(function)
        self.assertEqual(len(loops.loops_of(blocks)), 1)
        turn = loops.turn_of(blocks, loops.main_loop_of(blocks))
        self.assertEqual([instruction.address // 16 for instruction in turn], [0, 1, 2, 3])

    def test_nothing_loops(self):
        blocks = loops.blocks_of(function_of("LDG R0, [R2]", "@P1 EXIT", "STG [R2], R0", "EXIT"))
        self.assertIsNone(loops.main_loop_of(blocks))
        self.assertEqual(len(loops.straight_way_of(blocks)), 4)


class Pipes(unittest.TestCase):
    def test_units(self):
        for text, pipe in (("HMMA.16816.F32.BF16 R0, R0, R0, R0", "tensor"), ("HGMMA.64x128x16.F32.BF16 R0", "tensor"),
                           ("IMAD.MOV.U32 R0, RZ, RZ, R1", "fma"), ("F2FP.BF16.F32.PACK_AB R0, R1, R2", "alu"),
                           ("I2F.RP R0, R1", "mufu"), ("SHFL.BFLY PT, R0, R1, 0x1, 0x1f", "lsu"),
                           ("UIADD3 UR4, UR4, 0x1, URZ", "uniform"), ("UTMALDG.4D [UR8], [UR4]", "lsu"),
                           ("BAR.SYNC 0x0", "control"), ("DMUL R0, R2, R4", "fp64")):
            self.assertEqual(pipes.pipe_of(function_of(text).instructions[0]), pipe, text)

    def test_an_unknown_instruction_is_refused(self):
        with self.assertRaisesRegex(ValueError, "unknown instruction FROB.X"):
            pipes.pipe_of(function_of("FROB.X R0").instructions[0])

    def test_occupancy(self):
        # 255 registers are given as 256: 8192 a warp, two warps a quarter (CUDA's occupancy calculator says the same).
        self.assertEqual(gpus.blocks_an_sm(gpus.A100, registers=255, shared=48 << 10, threads=128), 2)
        self.assertEqual(gpus.blocks_an_sm(gpus.A100, registers=101, shared=0, threads=128), 4)  # 104 are given
        self.assertEqual(gpus.blocks_an_sm(gpus.A100, registers=32, shared=0, threads=256), 8)
        self.assertEqual(gpus.blocks_an_sm(gpus.A100, registers=32, shared=35840, threads=128), 4)  # by shared memory
        self.assertEqual(gpus.blocks_an_sm(gpus.H100, registers=32, shared=35840, threads=128), 6)
        self.assertEqual(gpus.blocks_an_sm(gpus.H100, registers=16, shared=0, threads=32), 32)


class Simulator(unittest.TestCase):
    """Loops whose time can be told by hand."""

    def cycles(self, *code, gpu=gpus.A100, blocks=1, warps=1, controls=None):
        turn = function_of(*code).instructions
        for number, control in (controls or {}).items():
            turn[number] = dataclasses.replace(turn[number], control=control)
        return simulator.cycles_a_turn(gpu, turn, blocks, warps)

    def test_a_unit_is_shared_by_the_warps(self):
        product = "HMMA.16816.F32 R4, R8, R12, R4"  # 2048 multiply-adds: 8 cycles of an A100's quarter
        self.assertAlmostEqual(self.cycles(*[product] * 10, warps=1), 80, delta=2)
        self.assertAlmostEqual(self.cycles(*[product] * 10, blocks=3), 240, delta=3)
        self.assertAlmostEqual(self.cycles(*[product] * 10, gpu=gpus.H100), 10 * 4 / 0.63, delta=2)

    def test_units_work_side_by_side(self):
        code = ["HMMA.16816.F32 R4, R8, R12, R4", "FADD R0, R1, R2", "LOP3.LUT R3, R4, R5, RZ, 0x3c, !PT"] * 10
        self.assertAlmostEqual(self.cycles(*code, blocks=4), 4 * 80, delta=8)

    def test_one_instruction_a_cycle(self):
        self.assertAlmostEqual(self.cycles(*["FADD R0, R1, R2", "BRA 0x0"] * 10, gpu=gpus.H100, blocks=4), 80, delta=4)

    def test_whom_the_scheduler_prefers(self):
        class Warp:
            def __init__(self, turn, at):
                self.turn, self.at = turn, at

        team = [Warp(2, 5), Warp(1, 7), Warp(2, 3)]

        def order(policy):
            return [team.index(warp) for warp in simulator.in_order(policy, team, team[1])]

        self.assertEqual(order("youngest"), [1, 2, 1, 0])
        self.assertEqual(order("oldest"), [1, 0, 1, 2])
        self.assertEqual(order("round robin"), [2, 0, 1])
        self.assertEqual(order("the one behind"), [1, 2, 0])

    def test_schedulers_agree_where_one_unit_binds(self):
        turn = function_of(*["HMMA.16816.F32 R4, R8, R12, R4"] * 10).instructions
        for policy in simulator.POLICIES:
            self.assertAlmostEqual(simulator.cycles_a_turn(gpus.A100, turn, 1, 2, policy=policy), 160, delta=3)

    def test_integer_products_have_half_of_the_units(self):
        self.assertAlmostEqual(self.cycles(*["FFMA R0, R1, R2, R3"] * 20, gpu=gpus.H100, blocks=2), 40, delta=2)
        self.assertAlmostEqual(self.cycles(*["IMAD R0, R1, R2, R3"] * 20, gpu=gpus.H100, blocks=2), 80, delta=2)

    def test_a_result_is_waited_for(self):
        load, user = sass.Control(1, 0, 7, ()), sass.Control(1, 7, 7, (0,))
        cycles = self.cycles("LDG.E R0, [R2]", "FADD R0, R0, R1", controls={0: load, 1: user})
        self.assertAlmostEqual(cycles, gpus.A100.latencies["l2"], delta=8)
        # Two warps wait at the same time.
        self.assertAlmostEqual(self.cycles("LDG.E R0, [R2]", "FADD R0, R0, R1", blocks=2, controls={0: load, 1: user}),
                               cycles, delta=8)

    def test_the_last_but_one_copy_is_waited_for(self):
        code = ["LDGSTS.E.BYPASS.128 [R0], [R2]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x{}", "FADD R0, R0, R1"]
        self.assertGreater(self.cycles(*[line.format(0) for line in code]), gpus.A100.latencies["l2"])
        two = self.cycles(*[line.format(1) for line in code])
        self.assertAlmostEqual(two, gpus.A100.latencies["l2"] / 2, delta=20)

    def test_wgmma_runs_beside_its_warp(self):
        products = ["HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x0"]
        others = ["FADD R0, R1, R2"] * 50
        waited = self.cycles(*products, *others, gpu=gpus.H100)
        beside = self.cycles(products[0], *others, products[1], gpu=gpus.H100)
        self.assertGreater(waited, beside + 30)
        self.assertAlmostEqual(beside, 64 / 0.83 + simulator.WGMMA_LATENCY, delta=6)

    def test_wgmma_and_others_share_the_shared_memory(self):
        # 64 x 64 x 16 with both operands there: 32 cycles of reading 4096 bytes, 32 / 0.83 of multiplying.
        product, end = "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x0"
        alone = 10 * 32 / 0.83 + simulator.WGMMA_LATENCY
        self.assertAlmostEqual(self.cycles(*[product] * 10, end, gpu=gpus.H100), alone, delta=4)
        # The four quarters store 512 bytes each a STSM: 16 cycles, in which 0.83 of the reading is missed.
        store = "STSM.16.M88.4 [R1], R2"
        self.assertAlmostEqual(self.cycles(product, *[product, store] * 9, end, gpu=gpus.H100),
                               alone + 9 * 16 * 0.83, delta=8)
        of_registers = "HGMMA.64x64x16.F32 R24, R8, gdesc[UR8], R24, gsb0"  # reads half as much
        self.assertAlmostEqual(self.cycles(of_registers, *[of_registers, store] * 9, end, gpu=gpus.H100),
                               alone + 9 * 16 * 0.415, delta=8)
        # TMA writes 12 800 bytes a turn of two warps: 100 cycles, in which the products of the other one wait.
        turn = function_of(*[product] * 10, end).instructions
        without = simulator.cycles_a_turn(gpus.H100, turn, 1, 2)
        self.assertAlmostEqual(simulator.cycles_a_turn(gpus.H100, turn, 1, 2, copied=12800), without + 83, delta=20)

    def test_whom_a_barrier_joins(self):
        turn, data = function_of("BAR.SYNC R3, 0x100", "BAR.SYNC R11, 0xa0").instructions
        self.assertTrue(simulator.joins_warpgroups(turn))
        self.assertFalse(simulator.joins_warpgroups(data))  # 160 threads: a warpgroup and one warp

    def test_a_barrier_joins_the_warps_of_a_block(self):
        code = ["HMMA.16816.F32 R4, R8, R12, R4"] * 4 + ["BAR.SYNC 0x0"]
        self.assertAlmostEqual(self.cycles(*code, warps=2), 64 + gpus.A100.latencies["barrier"], delta=12)
        self.assertAlmostEqual(self.cycles(*code, blocks=2), 64, delta=4)  # one warp each: nobody waits

    def test_barriers_that_never_open_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "wait for each other for ever"):
            self.cycles("BAR.SYNC R3, 0x100", "BAR.SYNC 0x0", "BAR.ARV R0, 0x100", warps=2)

    def test_shared_memory_in_wavefronts(self):
        for text, cycles in (("LDSM.16.M88.4 R0, [R1]", 16), ("LDS.128 R0, [R1]", 16), ("LDS R0, [R1]", 4),
                             ("LDSM.16.M88.2 R0, [R1]", 8), ("STS.64 [R1], R0", 8),
                             ("LDGSTS.E.BYPASS.LTC128B.128 [R0], [R2.64]", 16), ("LDG.E.U16 R0, [R2]", 2)):
            self.assertEqual(simulator.lsu_cycles(function_of(text).instructions[0]), cycles, text)


class Prediction(unittest.TestCase):
    RESOURCES = sass.Resources(registers=128, stack=0, shared=0)  # 16 warps an SM: four blocks of 128 threads

    def loop(self):
        return function_of("S2R R0, SR_TID.X", *["HMMA.16816.F32 R4, R8, R12, R4"] * 20, "@P0 BRA 0x10", "EXIT")

    def seconds(self, gpu=gpus.A100, **launch):
        launch = {"blocks": 432, "threads": 128, "shared": 0, "turns": 1000} | launch
        return prediction.predict(gpu, self.loop(), self.RESOURCES, prediction.Launch(**launch)).seconds

    def test_products_at_the_peak_of_the_tensor_units(self):
        # Four warps a quarter, 1000 turns of 20 products of 8 cycles: 640 000 cycles at 1.41 GHz.
        self.assertAlmostEqual(self.seconds(), 640e3 / 1.41e9, delta=0.01 * 640e3 / 1.41e9)

    def test_rounds_of_blocks(self):
        one = self.seconds()
        self.assertAlmostEqual(self.seconds(blocks=864) / one, 2, delta=0.01)
        self.assertAlmostEqual(self.seconds(blocks=108) / one, 0.25, delta=0.01)  # a block an SM
        self.assertAlmostEqual(self.seconds(blocks=433) / one, 1.25, delta=0.01)  # one block more than fit: alone, last

    def test_products_outside_the_loop_are_turns_too(self):
        product = "HMMA.16816.F32 R4, R8, R12, R4"
        peeled = function_of(*[product] * 20, *[product] * 20, "@P0 BRA 0x140", "EXIT")
        launch = prediction.Launch(432, 128, 0, 20)
        seconds = prediction.predict(gpus.A100, peeled, self.RESOURCES, launch).seconds
        self.assertAlmostEqual(seconds / self.seconds(turns=20), 1, delta=0.01)  # a turn that stands before the loop

    def test_persistent_blocks_wait_once(self):
        waits = 2 * gpus.A100.latencies["memory"] / 1.41e9
        self.assertAlmostEqual(self.seconds(turns=1) - self.seconds(turns=1, persistent=True), waits, delta=1e-9)

    def test_bytes_bind(self):
        launch = prediction.Launch(432, 128, 0, 1000, bytes=17e9)
        predicted = prediction.predict(gpus.A100, self.loop(), self.RESOURCES, launch)
        self.assertEqual((predicted.bound, predicted.resident), ("memory", 4))
        self.assertAlmostEqual(predicted.seconds, 10e-3, delta=1e-6)  # 17 GB at 1.7 TB/s

    def test_what_binds(self):
        launch = prediction.Launch(432, 128, 0, 1000)
        self.assertEqual(prediction.predict(gpus.A100, self.loop(), self.RESOURCES, launch).bound, "tensor")

    def test_a_block_that_does_not_fit_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "kernel: no block fits a multiprocessor of A100"):
            self.seconds(shared=164 << 10)


class Report(unittest.TestCase):
    def found(self, microseconds):
        kernel = dataclasses.replace(kernels.KERNELS[0], name="attention_fwd", budget={"A100": 100})
        predicted = prediction.Prediction(microseconds * 1e-6, 20e-6, "issue", 4, row_sums().instructions)
        return [(kernel, gpus.A100, sass.Resources(96, 16, 0), predicted, (80e-6, 120e-6))]

    def test_a_kernel_over_its_budget(self):
        self.assertEqual(list(report.over_budget(self.found(99))), [])
        (problem,) = report.over_budget(self.found(101.4))
        self.assertIn("attention_fwd on A100: predicted 101 µs, its budget is 100 µs", problem)

    def test_the_page_holds_the_table_between_its_marks(self):
        begin, end = report.mark("kernels", "begin"), report.mark("kernels", "end")
        page = f"before\n{begin}\nold\n{end}\nafter\n"
        once = report.replaced(page, "kernels", ["| a |", "| b |"])
        self.assertEqual(once, f"before\n{begin}\n\n| a |\n| b |\n\n{end}\nafter\n")
        self.assertEqual(report.replaced(once, "kernels", ["| a |", "| b |"]), once)
        for part in ("kernels", "dropout", "steps"):
            self.assertIn(report.mark(part, "begin"), report.PAGE.read_text(encoding="utf-8"))

    def test_a_range_over_schedulers(self):
        self.assertIn("| 99 | 80 to 120 |", report.table(self.found(99))[-1])
        self.assertEqual(report.micros(80.1e-6, 80.2e-6), "80")

    def test_an_object_that_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as build:
            with self.assertRaisesRegex(ValueError, r"adam\.cu\.o is missing: `cmake --build .* --target kernels`"):
                report.compiled(pathlib.Path(build), report.chosen("adam"))
            with self.assertRaisesRegex(ValueError, "isobar-accesses is missing: `cmake --build"):
                accesses.count(accesses.program_in(pathlib.Path(build)))
        with self.assertRaisesRegex(ValueError, "no kernel of the table matches nothing"):
            report.chosen("nothing")


class Work(unittest.TestCase):
    def line(self, name, *operands, site="step 1 > forward", stream="0x1", **facts):
        return {"site": site, "name": name, "stream": stream, "operands": list(operands), **facts}

    def test_names_as_both_compilers_have_them(self):
        self.assertEqual(work.plain("void isobar::cuda::(anonymous namespace)::f<isobar::cuda::(anonymous namespace)::"
                                    "G, 3>(isobar::cuda::(anonymous namespace)::Forward)"),
                         "isobar::cuda::f<isobar::cuda::G, 3>")
        self.assertEqual(work.plain("isobar::cuda::partial_sums_kernel<false>(float*, long)"),
                         "isobar::cuda::partial_sums_kernel<false>")

    def test_bytes_of_operands(self):
        lines = [self.line("kernel a", ["0x1000", 0x300], ["0x1100", 0x200]),  # a part of what was counted
                 self.line("kernel b", ["0x2100", 0x700], ["0x4000", 8]),  # up to the next parameter, and a tensor
                 self.line("kernel c", ["0x2180", 0x680], ["0x2180", 0x680]),  # read and written, up to the end
                 self.line("kernel d", ["0x2000", 0x800]),  # the begin of an allocation: all of it
                 self.line("kernel e", ["0x9000", 0x1000], ["0x4000", 8]),  # a workspace of products
                 self.line("product of 1 x 1", ["0x4000", 8], ["0x4000", 8], ["0x4000", 8], ["0x9000", 0x1000], m=1)]
        self.assertEqual(list(work.bytes_of(lines))[:5], [0x300, 0x80 + 8, 2 * 0x680, 0x800, 8])

    def test_only_one_step_is_kept_and_counted(self):
        kernel = {"function": 64, "grid": [4, 1, 1], "threads": 32, "shared": 0}
        lines = [self.line("kernel f", ["0x1000", 64], site=site, **kernel)
                 for site in ("step 0", "step 1 > f", "step 1", "step 10")]
        (entry,) = work.condensed(lines, {64: "void isobar::cuda::f(int)"})
        self.assertEqual((entry["count"], entry["work"], entry["function"], entry["bytes"], entry["stream"]),
                         (2, "f", "isobar::cuda::f", 64, 0))

    def test_batches_differ_in_rows_alone(self):
        def works(batch, threads=256):
            return [{"count": 1, "work": "product", "m": 384, "n": batch * work.TOKENS, "k": 1280},
                    {"count": 2, "work": "f", "grid": [batch, 1, 1], "threads": threads, "bytes": 100 * batch}]
        self.assertEqual(work.without_batch(works(16), 16), work.without_batch(works(1), 1))
        self.assertNotEqual(work.without_batch(works(16), 16), work.without_batch(works(1, threads=128), 1))


class Step(unittest.TestCase):
    PRODUCT = {"count": 3, "work": "product", "stream": 0, "m": 8192, "n": 8192, "k": 8192, "bytes_of_a": 2,
               "bytes_of_d": 2, "reads_c": False, "epilogue": 1}

    def test_products(self):
        seconds, floor, moved = step.product(gpus.H200, self.PRODUCT)
        self.assertAlmostEqual(seconds, 2 * 8192**3 / (0.81 * 790e12))
        self.assertAlmostEqual(floor, 2 * 8192**3 / 949e12, delta=1e-6)
        self.assertEqual(moved, 3 * 2 * 8192**2)
        tf32 = {**self.PRODUCT, "bytes_of_a": 4, "bytes_of_d": 4}  # half the units' rate, and of cuBLAS's
        self.assertAlmostEqual(step.product(gpus.H200, tf32)[0], 2 * 8192**3 / (0.81 * 395e12))
        self.assertAlmostEqual(step.product(gpus.H200, tf32)[1], 2 * 8192**3 / 474.5e12, delta=1e-6)
        narrow = {**self.PRODUCT, "k": 16, "reads_c": True}
        self.assertAlmostEqual(step.product(gpus.H200, narrow)[0], (2 * 2 * 8192 * 16 + 4 * 8192**2) / 4.3e12)

    def test_a_step_is_the_sum_of_its_parts(self):
        upload = {"count": 1, "work": "copy to the device", "stream": 0, "bytes": 52e6, "pinned": True}
        wait = {"count": 2, "work": "synchronisation", "stream": 0}
        kernel = {"count": 1, "work": "f: partial sums", "stream": 0, "function": "f", "grid": [4, 1, 1], "threads": 32,
                  "shared": 0, "bytes": 4.3e9}
        code = {"f": {"sm_90": (row_sums(), sass.Resources(32, 0, 0))}}
        found = step.shares(gpus.H200, "base", [upload, wait, self.PRODUCT, kernel], code)
        self.assertAlmostEqual(found[step.UPLOADS].seconds, 1e-3 + step.GAP)
        self.assertAlmostEqual(found[step.WAITS].seconds, 2 * step.WAIT)
        self.assertAlmostEqual(found[step.GAPS].seconds, 4 * step.GAP)
        self.assertAlmostEqual(found[step.PRODUCTS].seconds, 3 * step.product(gpus.H200, self.PRODUCT)[0])
        self.assertEqual((found["f"].launches, found["f"].bytes, found["f"].floor), (1, 4.3e9, 1e-3))
        # From a stream of its own the upload is hidden behind the rest.
        apart = step.shares(gpus.H200, "base", [{**upload, "stream": 1}, self.PRODUCT, kernel], code)
        self.assertEqual(apart[step.UPLOADS].seconds, 0)
        alone = step.shares(gpus.H200, "base", [{**upload, "stream": 1}, {**kernel, "bytes": 0}], code)
        self.assertGreater(alone[step.UPLOADS].seconds, 0.99e-3)

    def test_a_corrected_step(self):
        found = {"attention_fwd": step.Share(seconds=1), "attention_dq": step.Share(seconds=2),
                 step.PRODUCTS: step.Share(seconds=4), "adam": step.Share(seconds=8), step.GAPS: step.Share(seconds=16)}
        by_mma_sync = step.corrected(gpus.A100, "base", found)[1]
        self.assertAlmostEqual(by_mma_sync, 3 * 1.15 + 4 * 1.21 + 8 * 1.15 + 16)
        best, expected, worst = step.corrected(gpus.H100, "base", found)
        self.assertAlmostEqual(expected, 1.21 + 2 * 1.28 + 4 * 1.21 + 8 * 1.15 + 16)
        self.assertLess(31, best)
        self.assertLess(best, expected)
        self.assertLess(expected, worst)

    def test_a_gpu_of_9_0_chooses_another_kernel_than_was_recorded(self):
        recorded = "isobar::cuda::attention::forward_kernel<isobar::bf16, 48, false, false>"
        self.assertIsNone(step.stand_in_of("base", gpus.A100, recorded))
        chosen = step.stand_in_of("base", gpus.H100, recorded)
        self.assertEqual(chosen.source, "attention/sm90_head_48.cu")
        self.assertEqual(step.entry_of("base", recorded).gpus, ("A100",))
        entry = {"count": 12, "work": "attention_fwd", "stream": 0, "function": recorded, "grid": [32, 8, 16],
                 "threads": 128, "shared": 0, "bytes": 1e6}
        code = {recorded: {"sm_90": (row_sums(), sass.Resources(32, 0, 0))}}
        known = {(chosen.source, chosen.pattern, "sm_90"): (row_sums(), sass.Resources(32, 0, 0))}
        found = step.shares(gpus.H100, "base", [entry], code, known)["attention_fwd"]
        self.assertEqual((found.launches, found.bytes), (12, 12 * chosen.launch.bytes))

    def test_a_launch_that_kernels_py_does_not_know_goes_by_its_bytes(self):
        entry = {"count": 1, "work": "f", "stream": 0, "function": "f", "grid": [10, 1, 1], "threads": 64,
                 "shared": 128, "bytes": 4 * 64 * 10 * 25}
        launch = step.launch_of("base", entry, row_sums())
        # A turn has one load of four bytes.
        self.assertEqual((launch.blocks, launch.threads, launch.shared, launch.turns), (10, 64, 128, 25))

    def test_recorded_steps(self):
        for name, of in work.STEPS.items():
            works = work.read(name, 16)
            names = [entry["work"] for entry in works]
            self.assertEqual(sum(entry["count"] for entry in works if entry["work"] == "attention_fwd"), 12)
            self.assertIn("adam", names)
            # Each of 50 layers forward, and its gradients by weight and, but for the first, by input.
            flops = sum(2 * entry["m"] * entry["n"] * entry["k"] * entry["count"] for entry in works
                        if entry["work"] == "product")
            per_token = 12 * of.depth * of.width**2 + 2 * 1280 * of.width
            self.assertEqual(flops, 2 * 16 * work.TOKENS * (3 * per_token - 1280 * of.width))


class Kernels(unittest.TestCase):
    """kernels.py beside what the program launches (lab/kernel_report/steps)."""

    def launches(self):
        for name in work.STEPS:
            recorded = [entry for entry in work.read(name, 16) if "function" in entry]
            for kernel in kernels.KERNELS:
                if kernel.step == name and not kernel.instead:  # see lab/virtual_gpu/work.py
                    yield kernel, [entry for entry in recorded
                                   if step.entry_of(name, entry["function"], entry["bytes"]) is kernel]

    def test_launches_are_those_of_the_program(self):
        for kernel, entries in self.launches():
            self.assertTrue(entries, f"{kernel.name}: no step launches it")
            for entry in entries:
                blocks = entry["grid"][0] * entry["grid"][1] * entry["grid"][2]
                launch = kernel.launch.on(work.RECORDED_ON)
                self.assertEqual((blocks, entry["threads"], entry["shared"]),
                                 (launch.blocks, launch.threads, launch.shared), kernel.name)

    def test_bytes_are_those_of_the_operands(self):
        for kernel, entries in self.launches():
            most = max(entry["bytes"] for entry in entries)
            self.assertLessEqual(kernel.launch.bytes, 1.01 * most, kernel.name)
            if not re.search(r"attention_(delta|dkdv|dq)\b", kernel.name):  # whose parameters are one structure
                self.assertGreaterEqual(kernel.launch.bytes, 0.98 * most, kernel.name)


class PublicBinaries(unittest.TestCase):
    def test_cubins_of_a_library(self):
        def entry(kind, arch, data):
            return struct.pack("<HHIQIIIIQQQQ", kind, 0x101, 64, len(data), 0, 0, 0, arch, 0, 0, 0, 0)[:64] + data
        cubin, compressed, ptx = b"\x7fELF sm_80", b"\x13\x0a", b".version 8"
        entries = entry(2, 80, cubin) + entry(2, 90, compressed) + entry(1, 80, ptx)
        library = b"x" * 24 + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries + b"y" * 8
        self.assertEqual(fatbin.cubins_in(library), [(80, cubin)])
        self.assertEqual(fatbin.cubins_in(b"no kernels here"), [])

    def test_each_published_speed_has_its_kernel(self):
        for family, _, passes, head in validation.PUBLISHED:
            for one in passes:
                self.assertEqual(validation.KERNELS[family, one, head].head, head)


class Lz4(unittest.TestCase):
    def test_blocks_made_by_hand(self):
        self.assertEqual(fatbin.decompressed(b"\x30xyz", 3), b"xyz")
        # Three literals, nine bytes from three back, three literals.
        self.assertEqual(fatbin.decompressed(b"\x35abc\x03\x00\x30xyz", 15), b"abcabcabcabcxyz")
        # Lengths that need more bytes: 15 + 255 + 10 literals, then 4 + 15 + 0 bytes from one back.
        literals = bytes(range(256)) + bytes(24)
        self.assertEqual(fatbin.decompressed(b"\xff\xff\x0a" + literals + b"\x01\x00\x00\x10!", 300),
                         literals + bytes(19) + b"!")

    def test_blocks_that_are_wrong(self):
        with self.assertRaisesRegex(ValueError, "has 3 bytes, not 4"):
            fatbin.decompressed(b"\x30xyz", 4)
        with self.assertRaisesRegex(ValueError, "before its begin"):
            fatbin.decompressed(b"\x35abc\x04\x00\x30xyz", 15)

    def test_a_compressed_cubin_of_a_library(self):
        code = b"\x7fELF a kernel"
        block = bytes([0xd0]) + code
        flags = 0x2000
        entry = struct.pack("<HHIQIIIIQQQQ", 2, 0x101, 64, 16, len(block), 0, 0, 90, 0, flags, 0, len(code))
        entry += block + bytes(16 - len(block))
        library = b"before" + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry
        self.assertEqual(fatbin.cubins_in(library), [])
        self.assertEqual(fatbin.cubins_in(library, b"a kernel"), [(90, code)])
        self.assertEqual(fatbin.cubins_in(library, b"another"), [])


class Rows(unittest.TestCase):
    """PyTorch's kernel in small: a loop that sums up, unrolled by two and not, and one that writes with a weight."""

    @staticmethod
    def kernel():
        return function_of("LDG.E.128 R4, [R2.64]", "LDG.E.128 R8, [R2.64]", "@P0 BRA 0x0",
                           "LDG.E.128 R4, [R2.64]", "@P0 BRA 0x30",
                           "LDG.E.128 R4, [R2.64]", *["LDG.E R8, [R2.64]"] * 4, "STG.E.128 [R2.64], R4",
                           "@P0 BRA 0x50", "EXIT")

    def test_its_loops(self):
        sums, outputs = rows.turns_of(self.kernel(), 1)
        self.assertEqual(({count: len(turn) for count, turn in sums.items()},
                          {count: len(turn) for count, turn in outputs.items()}), ({2: 3, 1: 2}, {1: 7}))
        with self.assertRaisesRegex(ValueError, "are not those of PyTorch"):
            rows.turns_of(self.kernel(), 2)

    def test_the_unrolled_loop_goes_first(self):
        sums, _ = rows.turns_of(self.kernel(), 1)
        two, one = (rows.cycles_of(gpus.A100, {count: sums[count]}, count, 4, "memory") for count in (2, 1))
        self.assertAlmostEqual(rows.cycles_of(gpus.A100, sums, 7, 4, "memory"), 3 * two + one)

    def test_rows_are_read_again_where_the_cache_is_too_small(self):
        code = self.kernel(), sass.Resources(32, 0, 0)  # 16 blocks an SM: 1728 rows at once on an A100
        norm = dataclasses.replace(rows.LAYER_NORM, vectors=1)
        fits, exceeds = 2880, 2900  # columns: 2 · 4 · 1728 rows of them are 39.8 and 40.1 MB
        for columns, passes in ((fits, 2), (exceeds, 3)):
            seconds = rows.prediction_of(rows.A100_PCIE, norm, code, 1 << 16, columns)
            moved = passes * 4 * (1 << 16) * columns + 8 * (1 << 16)
            self.assertAlmostEqual(seconds, moved / rows.A100_PCIE.copy_rate * 1e-9)


class Accesses(unittest.TestCase):
    """On counts made up: those of isobar-accesses are tested by lab/accesses/accesses_test.cc."""

    @staticmethod
    def counted(name, *places):
        return {"compiler": "g++ 1.2.3", "kernels": [{"kernel": name, "places": [
            {"address": 1, "memory": memory, "access": access, "requests": requests, "moved": moved, "least": least}
            for memory, access, requests, moved, least in places]}]}

    def test_costs_are_summed_over_places(self):
        counted = self.counted("adam (base)", ("global", "load", 10, 160, 160), ("global", "load", 10, 40, 20),
                               ("global", "store", 20, 80, 80))
        (one,) = counted["kernels"]
        self.assertEqual(accesses.cost_of(one, "global", "load"), accesses.Cost(20, 200, 180))
        self.assertEqual(accesses.cost_of(one, "global"), accesses.Cost(40, 280, 260))
        self.assertIsNone(accesses.cost_of(one, "shared"))
        self.assertEqual(accesses.table(counted)[-1],
                         "| adam (base) | 7.0 | 1.11 | 1.00 | 1.00 | 1.00 |  |  |  |  |  |")

    def test_a_kernel_over_its_budget_is_named(self):
        good = self.counted("adam (base)", ("global", "load", 10, 160, 160), ("shared", "load", 1, 4, 4))
        self.assertEqual(list(accesses.over_budget(good)), [])
        strided = self.counted("adam (base)", ("global", "load", 10, 320, 160), ("shared", "store", 10, 15, 10))
        self.assertEqual([sentence.split(",")[0] for sentence in accesses.over_budget(strided)],
                         ["adam (base): loads of global memory cost 2.00 times the least sectors",
                          "adam (base): stores of shared memory cost 1.50 times the least wavefronts"])
        known = self.counted("cast (base)", ("global", "load", 10, 320, 160))
        self.assertEqual(list(accesses.over_budget(known)), [])

    def test_budgets_are_of_kernels_of_the_table(self):
        self.assertLessEqual(set(accesses.BUDGETS), {kernel.name for kernel in kernels.KERNELS})

    def test_a_kernel_that_nobody_counts_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "isobar-accesses"
            program.write_text("#!/bin/sh\necho '" + json.dumps(self.counted("adam (base)")) + "'\n")
            program.chmod(0o755)
            with self.assertRaisesRegex(ValueError, "is in only one of"):
                accesses.count(program)


if __name__ == "__main__":
    unittest.main()
