#!/usr/bin/env python3
"""Fails when a line of the sources, comments included, has more than 120 characters, when the name of a test holds a
semicolon, at which CMake would cut it in two, or when clang-format 14 would change a C++ or CUDA file. Exit status 77
(skipped) if nothing else is wrong and there is no version 14: other versions disagree about details.
`python3 tools/check_format.py --fix` formats the files first; comments are broken by hand.
"""
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["kernels", "engine", "comm", "data", "models", "apps", "tests", "bench", "lab"]
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
LONGEST_LINE = 120  # characters
LINE_SUFFIXES = SUFFIXES | {".py", ".cmake", ".sh"}
LINE_FOLDERS = [*FOLDERS, "cmake", "scripts", "tools", ".ci"]


def has_limited_lines(path):
    """Whether the limit holds for a file: sources, CMake, Python, and shell scripts, which have no suffix here."""
    if path.suffix in LINE_SUFFIXES or path.name == "CMakeLists.txt":
        return True
    return path.suffix == "" and path.is_file() and path.open("rb").read(2) == b"#!"


def long_lines():
    """A message for each line that is too long."""
    files = [ROOT / "CMakeLists.txt", *(path for folder in LINE_FOLDERS for path in sorted((ROOT / folder).rglob("*")))]
    for path in filter(has_limited_lines, files):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LONGEST_LINE:
                yield f"{path.relative_to(ROOT)}:{number}: {len(line)} characters; at most {LONGEST_LINE}"


def cut_names(files):
    """A message for each test whose name CMake would take for two."""
    for path in files:
        for name in re.findall(r'TEST_CASE\("([^"]*;[^"]*)"', (ROOT / path).read_text(encoding="utf-8")):
            yield f"{path}: a semicolon in the name of the test '{name}'"


def find_clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if program:
            text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", text):
                return program
    return None


def unformatted(program, files):
    """A message for each file that clang-format would change."""
    check = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True,
                           check=False)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", check.stderr, re.MULTILINE)))
    messages = [f"{path}: not formatted (python3 tools/check_format.py --fix)" for path in wrong]
    return messages or ([check.stderr.strip()] if check.returncode else [])


def main():
    program = find_clang_format()
    files = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in SUFFIXES]
    if program and "--fix" in sys.argv[1:]:
        subprocess.run([program, "-i", *files], cwd=ROOT, check=True)
    problems = [*long_lines(), *cut_names(files)] + (unformatted(program, files) if program else [])
    if problems:
        print("\n".join(problems))
        return 1
    print(f"format: {len(files)} files are formatted" if program else
          f"format: no line is too long; the rest is skipped, there is no clang-format {VERSION}")
    return 0 if program else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
