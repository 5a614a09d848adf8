#!/usr/bin/env python3
"""count_tests.py JUNIT.xml: prints the failed tests, the end of what each of them printed (behind "    | ")
and `N passed, N failed, N skipped`, from what ctest --output-junit wrote.

A test that ctest could not run (a program that is missing, say) counts as failed, only one that says so itself as
skipped.
"""
import sys
import xml.etree.ElementTree as ElementTree

LINES_OF_A_FAILURE = 40


def verdict(case):
    if case.get("status") == "run" and case.find("failure") is None:
        return "passed"
    reason = case.find("skipped")
    if case.get("status") == "disabled" or reason is not None and reason.get("message", "").startswith("SKIP_"):
        return "skipped"
    return "failed"


def main(path):
    cases = {case.get("name"): case for case in ElementTree.parse(path).getroot().iter("testcase")}
    verdicts = {name: verdict(case) for name, case in cases.items()}
    for name, result in sorted(verdicts.items()):
        if result == "failed":
            print(f"FAILED  {name}")
            for line in (cases[name].findtext("system-out") or "").splitlines()[-LINES_OF_A_FAILURE:]:
                print(f"    | {line}")
    counts = [sum(v == result for v in verdicts.values()) for result in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*counts))


if __name__ == "__main__":
    main(sys.argv[1])
