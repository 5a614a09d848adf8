#!/usr/bin/env python3
"""Fails when a figure of docs/images/ is not what tools/draw_figures.py draws, when nobody draws it, or when no page
shows it.
"""
import re
import sys

import draw_figures


def problems(figures, folder, pages):
    """figures: {name: what draws it}; pages: their texts."""
    shown = {name for text in pages for name in re.findall(r"!\[[^\]]*\]\([^)]*?images/([\w.-]+)\)", text)}
    for name, draw in figures.items():
        path = folder / f"{name}.svg"
        if not path.is_file() or path.read_text() != draw().svg():
            yield f"{path.name} is not what the script draws: python3 tools/draw_figures.py"
    for path in sorted(folder.iterdir()):
        if path.suffix == ".svg" and path.stem not in figures:
            yield f"{path.name} is drawn by nobody"
        if path.name not in shown:
            yield f"{path.name} is on no page"


def main():
    pages = [draw_figures.ROOT / "README.md", *(draw_figures.ROOT / "docs").rglob("*.md")]
    texts = [page.read_text() for page in pages]
    found = list(problems(draw_figures.FIGURES, draw_figures.FOLDER, texts))
    print("\n".join(found) or f"figures: {len(draw_figures.FIGURES)} are as drawn")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
