#!/usr/bin/env python3
"""Fails when an include points right in the folder order or is not spelled from the root, when what trains knows a kind
of data or a task, when the product includes a case of a kernel, or when a kernel is launched past the launch function.
"""
import pathlib
import re
import sys

ORDER = ["kernels", "engine", "comm", "data", "models", "apps"]
# The same within a folder, whose own files are "". Folders of it that are not named stand to the right of these.
ORDER_WITHIN = {"data": ["files", "", "maps", "images", "fields", "synthetic"]}
# Beside the order: what may include all of it, and is included by none of it. Each may also include what stands here.
BESIDE = {"tests": ["lab"], "bench": ["lab"], "lab": ["tests"]}
ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
# What trains, whatever it is: it goes by the lists of tasks and networks (models/list.cc), and names none of them.
FOR_ANY_TASK = re.compile(r"apps/((train|sweep)/.*|(train|sweep)\.cc|train_flags\..*|check\.cc|evaluate\.cc|mesh\.cc)")
# What tests, benchmarks and the counter of accesses run a kernel on.
CASES = "kernels/cases/"
ONE_KIND = re.compile(r"(data/(?!files/|maps/)|models/(?!layers/))\w+/.*")


def place_within(file):
    """Where a file stands in the order of its folder's folders."""
    folder, *below = pathlib.PurePath(file).parts[:-1]
    order = ORDER_WITHIN.get(folder, [])
    name = below[0] if below else ""
    return order.index(name) if name in order else len(order)


def problems(path):
    relative = path.relative_to(ROOT)
    folder = relative.parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{relative}:{number}"
        if "<<<" in line and relative.as_posix() != "kernels/cuda/launch.h":
            yield f"{where}: launches a kernel outside kernels/cuda/launch.h"
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if FOR_ANY_TASK.fullmatch(relative.as_posix()) and ONE_KIND.fullmatch(match.group(1)):
            yield f"{where}: {match.group(1)} is of one kind of data, task or network, and this is for any"
        if match.group(1).startswith(CASES) and folder in ORDER and not relative.as_posix().startswith(CASES):
            yield f"{where}: {match.group(1)} is for tests/, bench/ and lab/ only"
        if not (ROOT / match.group(1)).is_file():
            yield f'{where}: "{match.group(1)}" is not spelled from the root of the project'
        elif folder in BESIDE:
            tests_it = relative.parts[:2] == ("tests", target)  # tests/bench/ tests bench/
            if target in BESIDE and target != folder and target not in BESIDE[folder] and not tests_it:
                yield f"{where}: {folder}/ includes {target}/"
        elif target not in ORDER or ORDER.index(target) > ORDER.index(folder):
            yield f"{where}: {folder}/ includes {target}/, which stands to its right"
        elif target == folder and place_within(match.group(1)) > place_within(relative):
            yield f"{where}: includes {match.group(1)}, which stands to its right within {folder}/"


def main():
    found = [p for folder in [*ORDER, *BESIDE] if (ROOT / folder).is_dir()
             for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES for p in problems(path)]
    print("\n".join(found) or "includes: all point left")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
