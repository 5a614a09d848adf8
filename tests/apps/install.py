#!/usr/bin/env python3
"""install.py --build BUILD --library FAILING_CALLS: installs what BUILD made, moves the tree, and uses it as somebody
else would: info, data synth, train, forecast and bench by another user (where this runs as root), with every file of
the sources and of BUILD out of reach.

The preloaded library (lab/faults/failing_calls.cc) makes each call fail that names a path in the sources, and the
loader of programs is asked whether it takes a library from there.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

NOBODY = 65534


def run(command, **settings):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=500, check=False, **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


class Elsewhere:
    """Another user on a machine that has no sources."""

    def __init__(self, home, sources, library):
        self.home = home
        self.sources = sources
        self.settings = {"cwd": home, "env": {"PATH": "/usr/bin:/bin", "HOME": str(home), "LD_PRELOAD": str(library),
                                              "FAULT_PATH": str(sources), "FAULT_AT": "all", "FAULT_ERROR": "13",
                                              "FAULT_LOG": str(home / "calls")}}
        if os.geteuid() == 0:
            self.settings |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(home, NOBODY, NOBODY)

    def run(self, *command):
        return run(command, **self.settings)

    def check_hidden(self):
        """The sources are really out of reach, so that what follows means something."""
        read = subprocess.run(["head", "-c", "1", self.sources / "README.md"], capture_output=True, text=True,
                              check=False, **self.settings)
        assert read.returncode != 0, "the sources can be read"

    def check_libraries(self, program):
        taken = run(["ldd", program])
        assert "not found" not in taken, taken
        assert str(self.sources) not in taken, taken


def use(user, tree):
    isobar, bench = tree / "bin" / "isobar", tree / "bin" / "isobar-bench"
    for program in (isobar, bench):
        user.check_libraries(program)
    if (tree / "bin" / "isobar_mpi.so").exists():  # where this build has MPI; a cluster's own stays where it is
        assert str(user.sources) not in run(["ldd", tree / "bin" / "isobar_mpi.so"])
        assert not list(tree.rglob("libmpi.so*")), "MPI was bundled"
    assert "isobar" in user.run(isobar, "info")
    user.run(isobar, "data", "synth", "--out", "planet", "--train-years", "1", "--valid-years", "1",
             "--steps-per-year", "12", "--grid", "8x16", "--channels", "2")
    assert "tiny" in user.run(isobar, "train", "--list-configs")
    user.run(isobar, "train", "--config", "tiny", "--data", "planet", "--run-dir", "run", "--set", "num_iters=4",
             "--set", "global_batch_size=2")
    assert "persistence" in user.run(isobar, "forecast", "--weights", "run", "--data", "planet", "--start", "0",
                                     "--steps", "2", "--out", "forecast.h5")
    assert (user.home / "forecast.h5").stat().st_size > 0
    user.run(bench, "--op", "gelu_fwd", "--small", "--seconds", "0", "--threads", "1")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    options = parser.parse_args()
    sources = pathlib.Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        run(["cmake", "--install", options.build, "--prefix", folder / "made"])
        tree = (folder / "made").rename(folder / "moved here")
        home = folder / "home"
        home.mkdir()
        user = Elsewhere(home, sources, shutil.copy(options.library, folder))
        user.check_hidden()
        use(user, tree)
    print(f"installed, moved and used{' by another user' if os.geteuid() == 0 else ''}, without the sources")


if __name__ == "__main__":
    main()
