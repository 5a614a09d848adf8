#!/usr/bin/env python3
"""Fails when the page of a network, models/NAME/NAME.{h,cc}, speaks of ranks. A network is written as if there were one
device; its layers know how they are shared (models/build.h, models/layers/).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = re.compile(r"\b(ranks?|tp|cp|dp|mesh|meshes|windows?|bands?|shard\w*|\w*[Pp]arallel\w*|[Cc]ommunicator\w*|"
                   r"collectives?|all_reduce|all_gather|reduce_scatter|comm)\b")


def pages(root):
    for folder in sorted((root / "models").iterdir()):
        for suffix in (".h", ".cc"):
            page = folder / (folder.name + suffix)
            if page.is_file():
                yield page


def problems(page, root):
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for match in WORDS.finditer(line):
            yield f"{page.relative_to(root)}:{number}: a network's page says '{match.group(0)}'"


def main():
    found = [p for page in pages(ROOT) for p in problems(page, ROOT)]
    print("\n".join(found) or "pages of networks: none speaks of ranks")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
