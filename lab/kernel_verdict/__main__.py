"""kernel_verdict: one CUDA kernel compiled, compared with older sources, predicted, tested and timed; scripts/kernel
calls it, and says how."""
import argparse
import pathlib
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in (ROOT / "lab" / "kernel_report", ROOT / "lab" / "on_a_gpu"):
    sys.path.insert(1, str(folder))  # before the standard library, which has a module pipes

# pylint: disable=wrong-import-position
import compiling
import judging
import parts
import sources


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        sys.exit(f"kernel: {message} (see --help)")


def arguments(words=None):
    parser = Arguments(prog="scripts/kernel", add_help=False, allow_abbrev=False)
    parser.add_argument("kernel", metavar="NAME|FILE.cu")
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--arch", action="append", choices=compiling.ARCHITECTURES)
    parser.add_argument("--tests", metavar="SPEC")
    parser.add_argument("--old", type=pathlib.Path, metavar="PROGRAM")
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16", "fp16"))
    parser.add_argument("--preset", default="cpu", choices=("cpu", "release"))
    options = parser.parse_args(words)
    options.arch = options.arch or ["sm_90"]
    return options


def parts_of(options):
    """What is to be done; ends the program with one sentence where an argument is wrong."""
    try:
        kernel = sources.find(options.kernel)
    except sources.NoKernel as error:
        sys.exit(f"kernel: {error}")
    only = compiling.architecture_of(kernel.source)
    if only and options.arch != [only]:
        sys.exit(f"kernel: {kernel.name} has code for {only} alone")
    if options.old and not options.old.is_file():
        sys.exit(f"kernel: --old: there is no file {options.old}")
    if not options.against:
        read = list(sources.closure(ROOT, [kernel.source, *kernel.twin]))
        return parts.Parts(options, kernel, sources.older_commit(ROOT, read))
    if not (commit := sources.named_commit(ROOT, options.against)):
        sys.exit(f"kernel: there is no commit '{options.against}'")
    return parts.Parts(options, kernel, commit)


def main():
    for number in (signal.SIGPIPE, signal.SIGINT):  # `| head` and Ctrl-C end it without a word
        signal.signal(number, signal.SIG_DFL)
    begin = time.monotonic()
    findings = parts_of(arguments()).run()
    print(f"\n{judging.line_of(findings, time.monotonic() - begin)}")
    return judging.status_of(findings)


if __name__ == "__main__":
    sys.exit(main())
