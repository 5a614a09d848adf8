"""What all parts found, as one word and one line."""
import dataclasses
import re

WRONG, SLOWER, FASTER, SAME, SKIPPED = "wrong", "slower", "faster", "same", "skipped"


@dataclasses.dataclass(frozen=True)
class Finding:
    kind: str  # one of the above
    words: str  # of a part, for the line


def word_of(findings):
    """What is wrong outweighs what is slow, and that what is fast: who trades one for the other looks at the tables."""
    kinds = {finding.kind for finding in findings}
    for kind in (WRONG, SLOWER, FASTER):
        if kind in kinds:
            return kind
    return "right" if SAME in kinds else "nothing could be looked at"


def line_of(findings, seconds):
    return f"verdict: {word_of(findings)}: {'; '.join(finding.words for finding in findings)} ({seconds:.0f} s)"


def status_of(findings):
    return 1 if word_of(findings) in (WRONG, SLOWER) else 0


# ---- findings of figures --------------------------------------------------------------------------------------------

LEAST_CHANGE = 0.01  # of a prediction
NONE_CAN_RUN = 77  # status of tests/harness/main.cc


def of_predictions(pairs):
    """Finding of [(name, old seconds or None, new seconds)]: by the kernel that changes most."""
    if not pairs:
        return Finding(SKIPPED, "not predicted")
    changes = [(new / old - 1, name) for name, old, new in pairs if old]
    if not changes:
        return Finding(SAME, f"{len(pairs)} predictions, none older")
    worst, best = max(changes), min(changes)
    if worst[0] > LEAST_CHANGE:
        return Finding(SLOWER, f"predicted {100 * worst[0]:.0f} % slower ({worst[1]})")
    if best[0] < -LEAST_CHANGE:
        return Finding(FASTER, f"predicted {-100 * best[0]:.0f} % faster ({best[1]})")
    return Finding(SAME, "predicted as before")


def of_timings(lines, of):
    """Finding of what isobar-bench --against PROGRAM --json prints; `of` says what was timed."""
    def said(verdict):
        return ", ".join(f"{line['op']} {abs(100 * (line['ratio_to_old'] - 1)):.0f} %"
                         for line in lines if line["verdict"] == verdict)

    for kind in (SLOWER, FASTER):
        if words := said(kind):
            return Finding(kind, f"{of} {kind}: {words}")
    return Finding(SAME, f"{of} within the noise")


def of_tests(status, last_line):
    """Finding of a run of kernel_tests, by its status and the last line that it prints."""
    if status == NONE_CAN_RUN:
        return Finding(SKIPPED, "no test can run here")
    if status:
        return Finding(WRONG, f"tests fail: {last_line}")
    cases = re.search(r"(\d+) test cases?", last_line)
    return Finding(SAME, f"{cases.group(1)} tests pass") if cases else Finding(WRONG, "no tests have run")


def of_usage(old, new):
    """Finding of {kernel: Usage}: spills, which are slow wherever they are."""
    spilled = [name for name, usage in new.items() if usage.spills > (old[name].spills if name in old else 0)]
    if spilled:
        return Finding(SLOWER, f"{len(spilled)} of {len(new)} kernels spill more registers ({spilled[0]})")
    before = sum(usage.spills > 0 for usage in new.values())
    return Finding(SAME, f"{len(new)} kernels compile, " + (f"{before} spill as before" if before else "none spills"))
