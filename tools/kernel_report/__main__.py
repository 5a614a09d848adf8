"""kernel_report: what the compiler made of the CUDA kernels.

    python3 tools/kernel_report instructions build/kernels/CMakeFiles/kernels_cuda.dir/attention/forward.cu.o

prints for each kernel its registers, its stack (spills), and the instructions that a warp issues in one turn of its
main loop, by the unit that executes them. All this is counted, not predicted.
"""
import argparse
import pathlib
import re
import sys

import loops
import pipes
import toolkit


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
        turn = loops.turn_of(blocks, loop) if loop else loops.straight_way_of(blocks)
        counts = pipes.counts_of(turn)
        print(f"{function.arch:7} {resources.registers:4} {resources.stack:5} {len(turn) / arguments.per:6.0f} " +
              " ".join(f"{counts[pipe] / arguments.per:7.0f}" for pipe in pipes.PIPES) +
              f"  {name}{'' if loop else ' (no loop: the whole kernel)'}")


def main():
    parser = argparse.ArgumentParser(prog="kernel_report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    instructions = commands.add_parser("instructions", help="registers, and instructions of the main loop's turn")
    instructions.add_argument("object", nargs="+", type=pathlib.Path, help="object file, cubin or shared library")
    instructions.add_argument("--arch", help="sm_80 or sm_90a; default all that the file holds")
    instructions.add_argument("--kernel", default="", help="only kernels whose demangled name matches this expression")
    instructions.add_argument("--per", type=float, default=1, metavar="N",
                              help="divide the counts by N, as by the scores of a turn / 1024")
    instructions.set_defaults(run=print_instructions)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (toolkit.MissingTool, ValueError, OSError) as error:
        sys.exit(f"kernel_report: {error}")


if __name__ == "__main__":
    main()
