"""kernel_report: what the compiler made of the CUDA kernels.

    python3 lab/kernel_report instructions build/kernels/CMakeFiles/kernels_cuda.dir/attention/forward.cu.o

prints for each kernel its registers, its stack (spills), and the instructions that a warp issues in one turn of its
main loop, by the unit that executes them. All this is counted, not predicted. How often a turn goes through loops
inside it cannot be told from the code: their turns stand beside, "+ 104 x n?", and are not in the sum; --inner N puts
them in.

    python3 lab/kernel_report table --build build [--write]

predicts the time of the kernels of a training step on A100, H100 and H200, and prints the tables of
docs/kernel_report.md, or writes them there. --kernel NAME does so for matching rows alone: only their objects must be
built, as by `cmake --build build --target kernels/CMakeFiles/kernels_cuda.dir/adam.cu.o`. --before prints those of
another build folder first.

    python3 lab/kernel_report step --of base --batch 16 --gpu H200 --build build

predicts a whole training step: launches, products, copies, waits. Of base and mp, in bf16; of base_tf32, in fp32 with
products in TF32.

    python3 lab/kernel_report accesses --build build [--write] [--check] [--places KERNEL]

counts sectors and bank conflicts in the emulator, with isobar-accesses of any build folder, and prints the table of
docs/kernel_report.md, or writes it there, or fails where the page is not of these kernels, or prints each place of a
kernel's source. A kernel over its budget is a failure in any case.

    python3 lab/kernel_report export --build build

prints all predictions as JSON, for lab/on_a_gpu, which measures what they are about.

    python3 lab/kernel_report record --isobar build-virtual-gpu/apps/isobar --of base --batch 16

records what such a step gives a GPU to do, with the virtual GPU, into lab/kernel_report/steps.

    python3 lab/kernel_report validate --wheels FOLDER [--of attention|rows]

predicts the speed of public kernels, of wheels that pip downloads into FOLDER (330 MB for attention, 900 MB for kernels
that memory binds), and prints it beside what was published.
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile

import accesses
import export
import gpus
import loops
import pipes
import report
import rows
import step
import toolkit
import validation
import work


def print_instructions(arguments):
    kernels = [kernel for path in arguments.object for kernel in toolkit.kernels_in(path, arguments.arch)]
    names = toolkit.demangled([function.name for function, _ in kernels])
    print(f"{'arch':7} {'regs':>4} {'stack':>5} {'issue':>6} " +
          " ".join(f"{pipe:>7}" for pipe in pipes.PIPES) + "  kernel")
    for (function, resources), name in zip(kernels, names):
        if not re.search(arguments.kernel, name):
            continue
        blocks = loops.blocks_of(function)
        loop = loops.main_loop_of(blocks)
        turn = loops.turn_of(blocks, loop, arguments.inner) if loop else loops.straight_way_of(blocks)
        counts = pipes.counts_of(turn)
        inside = [] if arguments.inner or not loop else loops.inner_loops(blocks, loop)
        more = "".join(f" + {len(loops.turn_of(blocks, one)):.0f} x n?" for one in inside)
        print(f"{function.arch:7} {resources.registers:4} {resources.stack:5} {len(turn) / arguments.per:6.0f} " +
              " ".join(f"{counts[pipe] / arguments.per:7.0f}" for pipe in pipes.PIPES) +
              f"  {name}{'' if loop else ' (no loop: the whole kernel)'}{more}")


def print_table(arguments):
    if arguments.kernel:
        of = report.chosen(arguments.kernel)
        for build in filter(None, (arguments.before, arguments.build)):
            print(f"{build}:", *report.table(report.rows(build, of))[2:], sep="\n")
        return
    found = list(report.rows(arguments.build))
    dropout = report.dropout_table(arguments.build)
    if arguments.write:
        page = report.replaced(report.PAGE.read_text(encoding="utf-8"), "kernels", report.table(found))
        page = report.replaced(page, "dropout", dropout)
        report.PAGE.write_text(report.replaced(page, "steps", step.page_lines(arguments.build)), encoding="utf-8")
    else:
        print("\n".join([*report.table(found), "", *dropout]))
    if problems := list(report.over_budget(found)):
        sys.exit("\n".join(problems))


def print_step(arguments):
    chosen = [gpu for gpu in gpus.GPUS if arguments.gpu in (None, gpu.name)]
    print("\n".join(step.table(arguments.of, arguments.batch, chosen, arguments.build)))


def print_accesses(arguments):
    program = accesses.program_in(arguments.build)
    counted = accesses.count(program)
    lines, page = accesses.table(counted), report.PAGE.read_text(encoding="utf-8")
    problems, now = list(accesses.over_budget(counted)), report.replaced(page, "accesses", lines)
    if arguments.places:
        print("\n".join(accesses.places(counted, program, arguments.places)))
    elif arguments.write:
        report.PAGE.write_text(now, encoding="utf-8")
    elif not arguments.check:
        print("\n".join(lines))
    elif lines[0] in page and now != page:
        problems.append("docs/kernel_report.md is not of these kernels: python3 lab/kernel_report accesses "
                        f"--build {arguments.build} --write")
    if problems:
        sys.exit("\n".join(problems))


def print_export(arguments):
    print(json.dumps(export.predictions(arguments.build), indent=1))


def record_step(arguments):
    with tempfile.TemporaryDirectory(prefix="isobar_step_") as folder:
        isobar = arguments.isobar.resolve()
        lines = work.record(isobar, work.STEPS[arguments.of], arguments.batch, pathlib.Path(folder))
        work.write(work.condensed(lines, work.symbols(isobar)), work.recorded_at(arguments.of, arguments.batch))


def print_validation(arguments):
    tables = {"attention": validation.table, "rows": rows.table}
    for of in [arguments.of] if arguments.of else tables:
        print("\n".join(tables[of](arguments.wheels)))


def main():
    parser = argparse.ArgumentParser(prog="kernel_report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    instructions = commands.add_parser("instructions", help="registers, and instructions of the main loop's turn")
    instructions.add_argument("object", nargs="+", type=pathlib.Path, help="object file, cubin or shared library")
    instructions.add_argument("--arch", help="sm_80, sm_90 or sm_90a; default all that the file holds")
    instructions.add_argument("--kernel", default="", help="only kernels whose demangled name matches this expression")
    instructions.add_argument("--per", type=float, default=1, metavar="N",
                              help="divide the counts by N, as by the scores of a turn / 1024")
    instructions.add_argument("--inner", type=int, default=0, metavar="N",
                              help="a turn goes N times through each loop inside it")
    instructions.set_defaults(run=print_instructions)
    table = commands.add_parser("table", help="predicted times of the project's kernels")
    table.add_argument("--build", required=True, type=pathlib.Path, help="a build folder with CUDA, as build")
    table.add_argument("--write", action="store_true", help="into docs/kernel_report.md, and steps too")
    table.add_argument("--kernel", metavar="NAME", help="only rows whose name matches this expression")
    table.add_argument("--before", type=pathlib.Path, metavar="BUILD", help="with --kernel: of this one, too, first")
    table.set_defaults(run=print_table)
    one_step = commands.add_parser("step", help="predicted time of a training step")
    one_step.add_argument("--gpu", choices=[gpu.name for gpu in gpus.GPUS], help="default: all of them")
    one_step.add_argument("--build", default="build", type=pathlib.Path, help="a build folder with CUDA")
    one_step.set_defaults(run=print_step)
    counting = commands.add_parser("accesses", help="sectors a request and bank conflicts, counted in the emulator")
    counting.add_argument("--build", required=True, type=pathlib.Path, help="a build folder with isobar-accesses")
    counting.add_argument("--write", action="store_true", help="into docs/kernel_report.md")
    counting.add_argument("--check", action="store_true", help="compare with the page and the budgets")
    counting.add_argument("--places", metavar="KERNEL", help="only places of kernels whose name matches")
    counting.set_defaults(run=print_accesses)
    exporting = commands.add_parser("export", help="all predictions, as JSON")
    exporting.add_argument("--build", required=True, type=pathlib.Path, help="a build folder with CUDA")
    exporting.set_defaults(run=print_export)
    recording = commands.add_parser("record", help="what a training step gives the GPU to do")
    recording.add_argument("--isobar", required=True, type=pathlib.Path, help="of the preset virtual-gpu")
    recording.set_defaults(run=record_step)
    for command in (one_step, recording):
        command.add_argument("--of", choices=sorted(work.STEPS), required=True)
        command.add_argument("--batch", type=int, default=16)
    validate = commands.add_parser("validate", help="predictions beside published speeds of public kernels")
    validate.add_argument("--wheels", required=True, type=pathlib.Path, metavar="FOLDER")
    validate.add_argument("--of", choices=("attention", "rows"), help="default: both")
    validate.set_defaults(run=print_validation)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (toolkit.MissingTool, ValueError, OSError) as error:
        sys.exit(f"kernel_report: {error}")


if __name__ == "__main__":
    main()
