"""Programs that are run one after the other: each with a time limit, all of what they say in one log."""
import dataclasses
import os
import signal
import subprocess
import sys
import time


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int | None  # None: the time limit was hit, and the program ended
    seconds: float
    out: str
    err: str

    @property
    def passed(self):
        return self.status == 0

    def sentence(self):
        """What to tell of it."""
        if self.passed:
            return ""
        if self.status is None:
            return f"stopped after {self.seconds:.0f} s"
        said = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        failures = [line for line in said if "FAILED:" in line or line.startswith("isobar")]
        return f"status {self.status}: {(failures or said or ['it said nothing'])[0 if failures else -1]}"


class Runner:
    """Of programs in a staged tree. `seconds`: for all of them together, or None."""

    def __init__(self, tree, log, seconds=None):
        self.tree, self.log = tree, log
        self.end = None if seconds is None else time.monotonic() + seconds
        self.environment = environment_of(tree)

    def time_is_up(self):
        return self.end is not None and time.monotonic() >= self.end

    def run(self, command, seconds, **variables):
        """The outcome of a command, which may take so long; with more variables of the environment."""
        limit = seconds if self.end is None else max(0.1, min(seconds, self.end - time.monotonic()))
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
                                   env={**self.environment, **variables})
        try:
            out, err = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            out, err = process.communicate()
            status = None
        outcome = Outcome(status, time.monotonic() - begin, out, err)
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(f'{k}={v}' for k, v in variables.items())} {' '.join(map(str, command))}\n"
                      f"{out}{err}[status {status}, {outcome.seconds:.1f} s]\n\n")
        return outcome


def environment_of(tree):
    """Libraries that were staged are found first, then those of the Python that runs this (NVIDIA's packages)."""
    found = {**os.environ, "ISOBAR_TEST_SOURCES": str(tree), "ISOBAR_VIRTUAL_GPU_MAY_LEAK": "1"}
    found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(tree / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    if sys.prefix != sys.base_prefix:
        found.setdefault("VIRTUAL_ENV", sys.prefix)
    return found
