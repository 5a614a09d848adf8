#!/usr/bin/env python3
"""Fails when clang-format 14 would change a C++ or CUDA file. Exit status 77 (skipped) where there is no version 14:
other versions disagree about details. `python3 tools/check_format.py --fix` formats the files instead.
"""
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["kernels", "engine", "comm", "data", "models", "apps", "tests", "bench"]
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def find_clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if program:
            text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", text):
                return program
    return None


def main():
    program = find_clang_format()
    if not program:
        print(f"format: skipped, there is no clang-format {VERSION}")
        return SKIPPED
    files = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in SUFFIXES]
    if "--fix" in sys.argv[1:]:
        return subprocess.run([program, "-i", *files], cwd=ROOT, check=False).returncode
    check = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True,
                           check=False)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", check.stderr, re.MULTILINE)))
    print("\n".join(f"{path}: not formatted (python3 tools/check_format.py --fix)" for path in wrong)
          or (check.stderr.strip() if check.returncode else f"format: {len(files)} files are formatted"))
    return 1 if check.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
