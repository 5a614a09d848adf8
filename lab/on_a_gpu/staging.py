"""Copies what a machine without the sources needs, from a build folder into one folder:

    bin/                  isobar, isobar-bench, isobar-constants, kernel_tests, unit_tests, stripped
    lib/                  shared libraries that they are linked to, but for the runtimes of C and C++ and the driver
    share/isobar/configs  as an install tree has them
    tests/golden          golden files
    lab/virtual_gpu       the runs of the virtual GPU's tests
    on_a_gpu/             this program
    predictions.json      of lab/kernel_report
    stage.json            commit, date, build
"""
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {"isobar": "apps/isobar", "isobar-bench": "bench/isobar-bench", "kernel_tests": "tests/kernel_tests",
            "unit_tests": "tests/unit_tests", "isobar-constants": "bench/isobar-constants"}
FOLDERS = {"configs": "share/isobar/configs", "tests/golden": "tests/golden", "lab/on_a_gpu": "on_a_gpu"}
FILES = {"lab/virtual_gpu/runs.py": "lab/virtual_gpu/runs.py"}
NOT_STAGED = shutil.ignore_patterns("__pycache__", "*_test.py", "rehearsal.py")
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|nvidia-.*))\.so.*")


class StagingError(Exception):
    pass


def libraries_of(program):
    """Paths of the shared libraries that a program is linked to, those of every system left out."""
    run = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if lost := re.findall(r"(\S+) => not found", run.stdout):
        raise StagingError(f"{program}: {lost[0]} was not found")
    found = [pathlib.Path(path) for path in re.findall(r"=> (/\S+)", run.stdout)]
    return [path for path in found if not OF_THE_SYSTEM.fullmatch(path.name)]


def predictions(build):
    """JSON, as text."""
    run = subprocess.run([sys.executable, ROOT / "lab" / "kernel_report", "export", "--build", build],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        raise StagingError(run.stderr.strip().splitlines()[-1])
    return run.stdout


def commit():
    run = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True,
                         text=True, check=False)
    return run.stdout.strip() or "unknown"


def copy_program(source, target):
    shutil.copy2(source, target)
    if strip := shutil.which("strip"):
        subprocess.run([strip, target], check=True)


def stage(build, out, more_libraries=(), predicted=None, programs=tuple(PROGRAMS)):
    """predicted: a file with predictions, instead of those of the build's own machine code."""
    missing = [build / PROGRAMS[name] for name in programs if not (build / PROGRAMS[name]).is_file()]
    if missing:
        raise StagingError(f"{missing[0]} is not there: build it first")
    if out.exists() and any(out.iterdir()):
        raise StagingError(f"{out} is not empty")
    text = predicted.read_text(encoding="utf-8") if predicted else predictions(build)
    for folder in ("bin", "lib", "lab/virtual_gpu"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name in programs:
        copy_program(build / PROGRAMS[name], out / "bin" / name)
    libraries = {library for name in programs for library in libraries_of(build / PROGRAMS[name])}
    for library in sorted(libraries.union(more_libraries)):
        shutil.copy(library, out / "lib" / library.name)
    for source, target in FOLDERS.items():
        shutil.copytree(ROOT / source, out / target, ignore=NOT_STAGED)
    for source, target in FILES.items():
        shutil.copy(ROOT / source, out / target)
    (out / "predictions.json").write_text(text, encoding="utf-8")
    about = {"commit": commit(), "date": datetime.date.today().isoformat(), "programs": list(programs)}
    (out / "stage.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
