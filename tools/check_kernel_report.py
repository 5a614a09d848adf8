#!/usr/bin/env python3
"""check_kernel_report.py [BUILD]: fails when a CUDA kernel is predicted to take longer than its budget
(lab/kernel_report/kernels.py), or when the tables in docs/kernel_report.md, of kernels and of training steps, are
not those of the kernels in BUILD and the compiler is the one that the page names. Exit status 77 (skipped) where no
kernel is built for a GPU, or NVIDIA's disassembler is missing.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "lab" / "kernel_report"))

import report  # pylint: disable=wrong-import-position
import step  # pylint: disable=wrong-import-position
import toolkit  # pylint: disable=wrong-import-position

SKIPPED = 77


def main():
    build = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build")
    missing = report.missing_objects(build)
    if missing:
        print(f"kernel report: skipped, {build} holds no {missing[0]} that is compiled for a GPU")
        return SKIPPED
    try:
        found = list(report.rows(build))
    except toolkit.MissingTool as reason:
        print(f"kernel report: skipped, it {reason}")
        return SKIPPED
    problems = list(report.over_budget(found))
    page, lines = report.PAGE.read_text(encoding="utf-8"), report.table(found)
    now = report.replaced(report.replaced(page, "kernels", lines), "dropout", report.dropout_table(build))
    now = report.replaced(now, "steps", step.page_lines(build))
    if lines[0] in page and now != page:
        problems.append("docs/kernel_report.md is not of these kernels: python3 lab/kernel_report table "
                        f"--build {build.name} --write")
    print("\n".join(problems) or f"kernel report: {len(found)} predictions are within their budgets" +
          ("" if lines[0] in page else "; the table is another compiler's and was not compared"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
