"""Would a test notice? Plants faults in a copy of isobar, one at a time, and runs the tests that reach them.

    python3 lab/planted_faults --count 60 --seed 7
    python3 lab/planted_faults --count 20 --seed 1 --sources comm/mesh.cc --tests 'mesh|layouts'
    python3 lab/planted_faults --from faults.json  (written by a person, also in kernels; drawing.written says how)
    python3 lab/planted_faults --from lab/planted_faults/missing_points.json --tests 'missing|scores|loss|normalize'

All faults are compiled into one build, each asleep behind a number (drawing.py draws them). Every test runs once and
notes which faults it reaches. Then every fault is switched on for the tests that reach it, quick tests first, until one
fails. What survives that goes through the remaining, slow tests, several faults together: where a test fails, they are
taken apart. A test that does not end within ten times its time has failed, as it has under ctest.

Faults that no test fails for are written out with their place: read them. Some are equivalent (the program is as right
with them), which only a reader can say; the others are missing tests. Faults are planted in .cc and .cu files: one in a
header would compile nearly all tests anew. The work is kept in build-faults/ and goes on where it ended; exit status 0
where at least --share of the faults was found.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import drawing  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build-faults"
TREE = WORK / "tree"
MOST_FAULTS = 65536  # kFaults of planted_fault.h
FOLDERS = ["comm", "models", "apps", "data", "engine"]


def said_by(command, folder):
    return subprocess.run(command, cwd=folder, check=True, text=True, capture_output=True).stdout


def read_sources(wanted):
    files = said_by(["git", "ls-files", *wanted], ROOT).split()
    return {path: (ROOT / path).read_text() for path in files if path.endswith((".cc", ".cu"))}


def copy_tree():
    """The files that git knows, as they are now; what is the same keeps its time, so that a second build is quick."""
    for path in filter(None, said_by(["git", "ls-files", "-z"], ROOT).split("\0")):
        to = TREE / path
        if (ROOT / path).is_file() and (not to.exists() or to.read_bytes() != (ROOT / path).read_bytes()):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, to)


def write_faults(sources, faults):
    """Plants them in the copy. Returns {path: {number: (first line, last line)}} of where they stand there."""
    spans = {}
    for path, text in sources.items():
        mine = {number: fault for number, fault in faults.items() if fault.path == path}
        text, spans[path] = drawing.planted(text, mine)
        if mine:
            text = '#include "lab/planted_faults/planted_fault.h"\n' + text
            spans[path] = {number: (a + 1, b + 1) for number, (a, b) in spans[path].items()}
        to = TREE / path
        if to.read_text() != text:
            to.write_text(text)
    return spans


def build(sources, faults, jobs):
    """Builds; drops faults that do not compile. Returns those that are left."""
    environment = dict(os.environ, CCACHE_BASEDIR=str(TREE), CCACHE_NOHASHDIR="1")
    subprocess.run(["cmake", "--preset", "cpu"], cwd=TREE, check=True, stdout=subprocess.DEVNULL,
                   env=environment)
    for attempt in range(12):
        spans = write_faults(sources, faults)
        done = subprocess.run(["cmake", "--build", "--preset", "cpu", "--parallel", str(jobs), "--target", "all",
                               "long_gate", "--", "-k", "0"], cwd=TREE, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=environment)
        (WORK / "build.log").write_text(done.stdout)
        if done.returncode == 0:
            return faults
        # Errors, and where the template or macro is used that one is in. An error below a fault, not in it, is of the
        # last fault before: a declaration that has become the only statement of an `if`.
        places = [(os.path.normpath(match.group(1)).lstrip("./"), int(match.group(2))) for match in re.finditer(
            r"^(?:[^:\n]*/build-faults/tree/)?([^:\s]+):(\d+):\d+: +(?:fatal )?(?:error|required|note: in expansion)",
            done.stdout, re.M)]
        wrong = {n for path, line in places for n, (a, b) in spans.get(path, {}).items() if a <= line <= b}
        if not wrong:
            before = [[(a, n) for n, (a, b) in spans.get(path, {}).items() if b < line] for path, line in places]
            wrong = {max(those)[1] for those in before if those}
        if not wrong:
            failed = set(re.findall(r"^FAILED: .*\n.* -c \S*/tree/(\S+\.cc)$", done.stdout, re.M))
            wrong = {n for path in failed for n in spans.get(path, {})}
        print(f"  {len(wrong)} faults do not compile", flush=True)
        if not wrong:
            break
        faults = {number: fault for number, fault in faults.items() if number not in wrong}
    sys.exit(f"planted_faults: the build fails; see {WORK / 'build.log'}")


class Tests:
    """The tests of ctest: {name: (command, environment, folder, status that skips)}."""

    def __init__(self, wanted, gate):
        listed = json.loads(said_by(["ctest", "--show-only=json-v1"], TREE / "build-cpu"))
        self.all = {}
        for test in listed["tests"]:
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            if gate == "fast" and "long" in properties.get("LABELS", []):
                continue
            if "command" not in test or not re.search(wanted, test["name"]):
                continue
            environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
            self.all[test["name"]] = (test["command"], environment, properties.get("WORKING_DIRECTORY"),
                                      properties.get("SKIP_RETURN_CODE"))

    def run(self, name, faults=(), reached=None, limit=600.0):
        """'passed', 'failed' or 'skipped', and the seconds it took."""
        command, environment, folder, skips = self.all[name]
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", **environment)
        if faults:
            environment["ISOBAR_FAULTS"] = ",".join(map(str, faults))
        if reached:
            environment["ISOBAR_REACHED"] = reached
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=output, start_new_session=True)
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = -1
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        result = "passed" if status == 0 else "skipped" if str(status) == str(skips) else "failed"
        return result, time.monotonic() - begin


class Reached:
    """A file in which any process notes what it reaches (ISOBAR_REACHED). It is as large as it will be: processes of
    tests that play a full disk may make no file longer."""

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile()
        self.file.truncate(MOST_FAULTS)
        os.chmod(self.file.name, 0o666)
        return self

    def __exit__(self, *_):
        self.file.close()

    @property
    def name(self):
        return self.file.name

    def numbers(self):
        return [i for i, byte in enumerate(pathlib.Path(self.name).read_bytes()) if byte]


def record(tests, jobs, state):
    """What every test reaches and how long it takes, without any fault."""
    def one(name):
        with Reached() as reached:
            result, seconds = tests.run(name, reached=reached.name)
            return name, {"result": result, "seconds": seconds, "reached": reached.numbers()}
    missing = [name for name in tests.all if name not in state["tests"]]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, seen in pool.map(one, missing):
            state["tests"][name] = seen
    save(state)


def save(state):
    temporary = WORK / "state.json.new"
    temporary.write_text(json.dumps(state))
    temporary.replace(WORK / "state.json")


def reaching(state, number):
    names = [n for n, seen in state["tests"].items() if seen["result"] == "passed" and number in seen["reached"]]
    return sorted(names, key=lambda name: state["tests"][name]["seconds"])


def limit_of(state, name):
    return 10 * state["tests"][name]["seconds"] + 20


def is_noticed(tests, state, name, numbers):
    """Whether the test fails with these faults, and fails again: a test that a busy machine disturbs does not count."""
    return all(tests.run(name, numbers, limit=limit_of(state, name))[0] == "failed" for _ in range(2))


def judge_alone(tests, state, faults, jobs, budget):
    """Every fault by the quick tests that reach it, about `budget` seconds for a fault that survives."""
    lock = threading.Lock()

    def one(number):
        spent = 0.0
        for name in reaching(state, number):
            spent += state["tests"][name]["seconds"]
            if spent > budget and spent > state["tests"][name]["seconds"]:
                break
            with lock:
                if [name, number] in state["tried"]:
                    continue
            noticed = is_noticed(tests, state, name, [number])
            with lock:
                if noticed:
                    state["found"][str(number)] = name
                    print(f"  fault {number} is found by {name}", flush=True)
                    return
                state["tried"].append([name, number])

    open_ = [n for n in faults if str(n) not in state["found"]]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for i, _ in enumerate(pool.map(one, open_)):
            if i % 10 == 9:
                with lock:
                    save(state)
    save(state)


def judge_together(tests, state, faults, jobs):
    """The remaining tests, each with all faults on that it reaches and that are not found yet."""
    lock = threading.Lock()

    def split(name, numbers):
        if not numbers or not is_noticed(tests, state, name, numbers):
            return
        if len(numbers) == 1:
            with lock:
                state["found"][str(numbers[0])] = name
                print(f"  fault {numbers[0]} is found by {name}", flush=True)
            return
        half = len(numbers) // 2
        split(name, numbers[:half])
        split(name, numbers[half:])

    def one(name):
        with lock:
            tried = {number for test, number in state["tried"] if test == name}
            numbers = [n for n in faults if n in state["tests"][name]["reached"] and str(n) not in state["found"]
                       and n not in tried]
        split(name, numbers)
        with lock:
            state["tried"] += [[name, n] for n in numbers]
            save(state)

    names = sorted((n for n, seen in state["tests"].items() if seen["result"] == "passed"),
                   key=lambda n: state["tests"][n]["seconds"])
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, names))


def report(state, faults):
    print("\nSurvivors:")
    for number, fault in sorted(faults.items()):
        if str(number) not in state["found"]:
            reach = len(reaching(state, number))
            reached = f"{reach} tests reach it" if reach else "no test reaches it"
            print(f"\n{number}  {fault.path}:{fault.line}  {reached}")
            print("  - " + "\n    ".join(fault.original.strip().splitlines()))
            print("  + " + ("\n    ".join(fault.wrong.strip().splitlines()) or "(left out)"))
    print("\n| folder | planted | found | share |\n|---|---|---|---|")
    for folder in [*dict.fromkeys(f.path.split("/")[0] for f in faults.values()), ""]:
        mine = [n for n, f in faults.items() if not folder or f.path.startswith(folder + "/")]
        found = sum(str(n) in state["found"] for n in mine)
        print(f"| {folder or 'all'} | {len(mine)} | {found} | {found / max(1, len(mine)):.0%} |")
    disturbed = [name for name, seen in state["tests"].items() if seen["result"] == "failed"]
    for name in disturbed:
        print(f"not used, it fails without any fault: {name}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="of the draw")
    which.add_argument("--from", dest="written", type=pathlib.Path, help="a file of faults, instead of a draw")
    parser.add_argument("--count", type=int, default=60, help="faults to draw")
    parser.add_argument("--sources", nargs="+", default=FOLDERS, help="files or folders of isobar")
    parser.add_argument("--tests", default=".", help="a regular expression over their names")
    parser.add_argument("--gate", choices=["fast", "all"], default="all", help="whose tests (docs/testing.md)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--budget", type=float, default=20, help="seconds of tests for a fault alone")
    parser.add_argument("--share", type=float, default=0.95)
    parser.add_argument("--new", action="store_true", help="forget what an earlier run has found out")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.written:
        entries = json.loads(options.written.read_text())
        sources = read_sources(sorted({entry["path"] for entry in entries}))
        drawn = dict(enumerate(drawing.written(sources, entries)))
        options.count = len(drawn)
    else:
        sources = read_sources(options.sources)
        spare = options.count // 6 + 5  # for those that do not compile
        drawn = dict(enumerate(drawing.draw(sources, options.count + spare, options.seed)))
    WORK.mkdir(exist_ok=True)
    copy_tree()
    key = [options.seed, options.count, options.sources, {n: f.written for n, f in drawn.items()}]
    key = json.loads(json.dumps(key))
    saved = WORK / "state.json"
    state = json.loads(saved.read_text()) if saved.exists() and not options.new else {}
    if state.get("key") != key:
        state = {"key": key, "tests": {}, "found": {}, "tried": []}
    # As many as are wanted, in the order of the draw, of those that compile.
    everything = build({**read_sources(FOLDERS), **sources}, drawn, options.jobs)
    faults = {number: everything[number] for number in sorted(everything)[:options.count]}
    print(f"{len(faults)} faults are planted", flush=True)
    tests = Tests(options.tests, options.gate)
    record(tests, options.jobs + 2, state)
    print(f"{len(tests.all)} tests have run without a fault", flush=True)
    judge_alone(tests, state, faults, options.jobs, options.budget)
    judge_together(tests, state, faults, options.jobs)
    report(state, faults)
    found = sum(str(n) in state["found"] for n in faults)
    print(f"{found} of {len(faults)} faults found")
    return 0 if faults and found >= options.share * len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
