#!/usr/bin/env python3
"""gdb_session.py PAGE --program KERNEL_TESTS: runs the gdb session that PAGE shows (its lines that begin with "(gdb)")
on that program, and compares what gdb says with what the page says. Addresses, the number of a location, and how a path
begins may differ.

Exit status: 0 the same, 1 not, 77 gdb is missing or may not trace here.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
MARK = "=== command "
PROMPT = "(gdb) "


def session_of(page):
    """(the arguments of the program, [(command, what gdb says to it)]), from the page's indented lines."""
    lines = [line[4:] for line in page.read_text().splitlines() if line.startswith("    ")]
    arguments = next(re.search(r'gdb --args \S+ "([^"]*)"', line) for line in lines if "gdb --args" in line)
    commands = []
    for line in lines:
        if line.startswith(PROMPT):
            commands.append((line[len(PROMPT):], []))
        elif commands:
            commands[-1][1].append(normal(line))
    return [arguments.group(1)], commands


def normal(line):
    line = re.sub(r"0x[0-9a-f]+", "0x0", line)
    line = re.sub(r"^(Breakpoint \d+)\.\d+", r"\1", line)
    return re.sub(r"\S*(kernels/[\w/]+\.cu)", r"\1", line).strip()


def run(program, arguments, commands):
    """What gdb printed to each command."""
    script = [word for i, (command, _) in enumerate(commands) for word in ("-ex", f"echo {MARK}{i}\\n", "-ex", command)]
    done = subprocess.run(["gdb", "-batch", "-nx", "-ex", "set confirm off", *script, "--args", program, *arguments],
                          # From the build folder, gdb finds the sources of objects that a compiler cache took from
                          # another checkout.
                          cwd=pathlib.Path(program).parent.parent,
                          env=os.environ | {"ISOBAR_TEST_DEVICES": "emulator", "DEBUGINFOD_URLS": ""}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          check=False)
    if re.search("ptrace: Operation not permitted|Could not trace the inferior|Cannot create process", done.stdout):
        print("gdb may not trace a process here")
        sys.exit(SKIPPED)
    said = re.split(rf"^{MARK}\d+$", done.stdout, flags=re.MULTILINE)[1:]
    return [[normal(line) for line in text.splitlines()] for text in said]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--program", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    options = parser.parse_args()
    if shutil.which("gdb") is None:
        print("there is no gdb here")
        return SKIPPED
    arguments, commands = session_of(options.page)
    said = run(options.program, arguments, commands)
    wrong = 0
    for i, (command, expected) in enumerate(commands):
        lines = said[i] if i < len(said) else []
        missing = [line for line in expected if line not in lines]
        if missing:
            wrong += 1
            print(f"{PROMPT}{command}\n  the page says: " + "\n                 ".join(missing) +
                  "\n  gdb says:      " + "\n                 ".join(lines))
    print(f"{len(commands)} commands, {wrong} with another answer than {options.page.name} shows")
    return 1 if wrong or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
