#!/usr/bin/env python3
"""docs_commands.py --build BUILD [--all]: runs the commands that README.md and docs/*.md show (indented lines that
begin with a program's name), as they stand there, page by page in an empty folder beside the sources; DIR is a small
data set, MNIST a folder of a few images, and the configs of the table SHORT are shorter (`tiny`: 60 iterations, not
800). A command that is neither run here nor in the table ELSEWHERE is an error.

--all also runs what takes minutes or needs PyTorch, matplotlib or xarray, the Python of docs/train.md and
docs/data.md, and the whole of the configs.
"""
import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:isobar|python3|pip|cmake|ctest|gdb|git|mkdir|\.ci/run|"
                     r"(?:build|scripts|bench)/\S+)(?: |$)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What others run, and who.
ELSEWHERE = {
    r"scripts/(quickstart|install)$": "tried in a bare system",
    r"git clone ": "these sources are one",
    r"(ISOBAR_TEST_DEVICES=(emulator|cuda) )?scripts/test\b": "this is one of its tests; .ci/run builds for sanitizers",
    r"scripts/kernel ": "lab/kernel_verdict/kernel_verdict_run.py",
    r"build/bench/isobar-bench .*--against ": "tests/apps/bench_cli_test.cc",
    r"\.ci/run$": "this is one of its tests",
    r"cmake --(preset|build)": "scripts/test builds",
    r"ISOBAR_TEST_DEVICES=emulator gdb": "tests/apps/gdb_session.py",
    r"python3 tools/check_format.py --fix$": "it changes the sources",
    r"python3 (lab|gpu)/on_a_gpu ": "needs a GPU; lab/on_a_gpu/rehearsal.py rehearses it",
    r"python3 lab/planted_faults ": "takes half an hour; lab/planted_faults/planted_faults_test.py tests it",
    r"python3 tools/megatron_checkpoint.py ": "needs PyTorch; tests/tools/megatron_checkpoint_test.py",
    r"python3 lab/kernel_report accesses ": "lab/CMakeLists.txt has it as a test",
    r"isobar train --config cnn --set images=pairs ": "tests/models/image_regression/recipe_test.cc reads such files",
    r"isobar train --config unet --data ": "takes days here; that of unet_cpu is run, on files of the same kind",
    r"isobar train --config gpt2 --init ": "takes days here; tests/apps/language_run_test.cc begins with such a folder",
    r"isobar data convert downloads ": "tests/data/fields/convert_test.cc converts such files",
    r"python3 lab/kernel_report ": "needs nvcc, or wheels of 1.2 GB; lab/kernel_report/kernel_report_test.py tests it",
}
# What docs/data.md makes a file of.
NETCDF = """
import numpy as np, xarray as xr
times = np.datetime64("2018-01-01") + np.arange(5) * np.timedelta64(6, "h")
axes = {"time": times, "latitude": [-45.0, 0.0, 45.0], "longitude": [0.0, 90.0, 180.0, 270.0]}
units = {"u10": "m s**-1", "v10": "m s**-1", "t2m": "K"}
fields = {n: (list(axes), np.random.rand(5, 3, 4) + (280 if n == "t2m" else 0), {"units": u}) for n, u in units.items()}
xr.Dataset(fields, axes).to_netcdf("mine_2018.nc", engine="scipy")
"""
SHORT = {
    "tiny": ("tiny.json", {"num_iters": 60, "warmup": 10, "validate_every": 20, "checkpoint_every": 20}),
    "cnn": ("cnn.json", {"nsamples": 32, "nsamples_val": 32, "num_epochs": 1}),
    "shakespeare": ("shakespeare.json:shakespeare", {"num_iters": 20, "warmup": 5, "validate_every": 10}),
    "wikitext": ("gpt2.json:wikitext", {"num_iters": 4, "warmup": 2, "validate_every": 2}),
    "unet_cpu": ("unet.json:unet_cpu", {"nsamples": 8, "nsamples_val": 4, "num_epochs": 1}),
}
IMAGES = 40
LONG = [r"build/bench/isobar-bench --(op|ladder)", r"python3 bench/"]


def commands_of(page):
    """The commands of a page, without the comments behind them."""
    lines = [line[4:] for line in page.read_text().splitlines() if line.startswith("    ")]
    return [re.sub(r"\s+#.*", "", line) for line in lines if COMMAND.match(line)]


def fits(patterns, command):
    return any(re.match(pattern, command) for pattern in patterns)


def make_folder(folder, options):
    """The sources and their build folder by links, and data in DIR: a flat folder of small HDF5 files; in `short` the
    configs that are found before the sources' own."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith(("build", "runs")) and entry.name != ".git":
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(options.build.resolve())
    (folder / "short").mkdir()
    if not options.all:
        for config, (whole, values) in SHORT.items():
            values = {"extends": f"{ROOT / 'configs'}/{whole}", **values}
            (folder / "short" / f"{config}.json").write_text(json.dumps(values))
    make_texts(folder)
    (folder / "MNIST").mkdir()
    for name in ("train", "t10k"):
        pixels = bytes(range(256)) * (IMAGES * 28 * 28 // 256) + bytes(IMAGES * 28 * 28 % 256)
        header = struct.pack(">4B3I", 0, 0, 8, 3, IMAGES, 28, 28)  # bytes, along three axes
        (folder / "MNIST" / f"{name}-images-idx3-ubyte").write_bytes(header + pixels)
    run("isobar data synth --out planet --train-years 1 --valid-years 1 --steps-per-year 40 --grid 8x16 --channels 4",
        folder)
    (folder / "planet" / "train").rename(folder / "DIR")
    if options.all:
        (folder / "make_netcdf.py").write_text(NETCDF)
        run(f"{sys.executable} make_netcdf.py", folder)


def make_texts(folder):
    """What docs/language.md and docs/gpt.md make tokens of, and the files of a small tokenizer. Each document is longer
    than a sample."""
    sentences = ["The sea was calm.", "The boat didn't move.", "The wind came.", "It rose.", "Nobody spoke."]
    speeches = [" ".join(sentences[i % 5:] + sentences * 16) for i in range(20)]
    (folder / "FILE.txt").write_text("\n\n".join("ROMEO: " + speech for speech in speeches) + "\n")
    (folder / "mine.txt").write_text("\n\n".join(speeches) + "\n")
    (folder / "mine.jsonl").write_text("".join(json.dumps({"text": speech}) + "\n" for speech in speeches))
    tokenizer = json.loads((ROOT / "tests" / "golden" / "tokens.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(tokenizer["vocab"]))
    (folder / "merges.txt").write_text("\n".join(tokenizer["merges"]) + "\n")


def run(command, folder):
    environment = os.environ | {"PATH": f"{folder}/build/apps:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
                                "ISOBAR_CONFIG_PATH": f"{folder}/short"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(f"{command}\nended with status {done.returncode}:\n{done.stdout}")
    return done.returncode == 0


def try_page(page, options):
    """(commands that were run, that failed, that were left for --all)"""
    ran = failed = left = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_folder(folder, options)
        commands = [command for command in commands_of(page) if not fits(ELSEWHERE, command)]
        for command in commands:
            if fits(LONG, command) and not options.all:
                left += 1
                continue
            ran += 1
            failed += not run(command, folder)
        for i, text in enumerate(PYTHON.findall(page.read_text())):
            if not options.all:
                left += 1
                continue
            (folder / f"snippet_{i}.py").write_text(text)
            ran += 1
            failed += not run(f"{sys.executable} snippet_{i}.py", folder)
    return ran, failed, left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    total = [0, 0, 0]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        counts = try_page(page, options)
        total = [a + b for a, b in zip(total, counts)]
        if any(counts):
            print(f"{page.relative_to(ROOT)}: {counts[0]} commands run, {counts[1]} failed, {counts[2]} left for --all",
                  flush=True)
    print(f"{total[0]} commands run, {total[1]} failed, {total[2]} left for --all")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
