"""What a training step gives the GPU to do, as isobar's own host code does it: recorded on the virtual GPU (preset
virtual-gpu, lab/stand_ins/cuda), where nothing is computed, so that a large model takes seconds.

steps/*.json hold such records; lab/virtual_gpu/work.py compares them with what isobar does today.
"""
import bisect
import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess

import gpus

RECORDS = pathlib.Path(__file__).resolve().parent / "steps"
TOKENS = 4050  # a sample
RECORDED_ON = gpus.H100  # whose multiprocessors the virtual GPU has
_STEP = "step 1"  # the first may do what later ones need not


@dataclasses.dataclass(frozen=True)
class Step:
    """What is recorded: a step of a config of configs/vit.json, which has this depth and width."""
    config: str
    dtype: str  # bf16, or tf32: fp32, of which the GPU rounds what products read
    depth: int
    width: int

    @property
    def amp_mode(self):
        return "none" if self.dtype == "tf32" else self.dtype


STEPS = {"base": Step("base", "bf16", 12, 384), "mp": Step("mp_bs16", "bf16", 12, 1024),
         "base_tf32": Step("base", "tf32", 12, 384)}


def recorded_at(name, batch):
    return RECORDS / f"{name}_b{batch}.json"


def record(isobar, step, batch, folder, capability=80):
    """The lines of the list of work of one Step, as the program writes them on a GPU of that compute
    capability. Data are made in the folder."""
    data, listed = folder / "data", folder / "work.jsonl"
    years = ["--train-years", "1", "--valid-years", "1", "--steps-per-year", str(batch + 1), "--grid", "360x720"]
    subprocess.run([isobar, "data", "synth", "--out", data, *years, "--channels", "20"], check=True,
                   stdout=subprocess.DEVNULL)
    settings = [f"global_batch_size={batch}", "num_iters=2", f"amp_mode={step.amp_mode}", "limit_nsamples_val=1",
                "validate_every=100", "checkpoint_every=100", "keep_checkpoints=1", "autotune=false"]
    subprocess.run([isobar, "train", "--config", step.config, "--data", data, "--run-dir", folder / "run",
                    "--device", "cuda", *(word for setting in settings for word in ("--set", setting))],
                   check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "ISOBAR_VIRTUAL_GPU_COMPUTE": "0", "ISOBAR_EMULATOR_WHOLE_GRIDS": "1",
                        "ISOBAR_VIRTUAL_GPU_MEMORY": str(80 << 30),
                        "ISOBAR_VIRTUAL_GPU_CAPABILITY": str(capability),
                        "ISOBAR_VIRTUAL_GPU_MULTIPROCESSORS": str(RECORDED_ON.sms),
                        "ISOBAR_VIRTUAL_GPU_WORK": str(listed)})
    return [json.loads(line) for line in listed.read_text().splitlines()]


def symbols(program):
    """{where it begins: demangled name} of the functions of a program or object that lie in isobar::cuda."""
    run = subprocess.run(["nm", "--demangle", "--defined-only", program], capture_output=True, text=True, check=True)
    lines = (line.split(" ", 2) for line in run.stdout.splitlines())
    return {int(address, 16): name for address, _, name in lines if "isobar::cuda::" in name}


def plain(name):
    """A demangled name as nvcc's and g++'s symbols have it in common: `void a::(anonymous namespace)::f<b>(c)` is
    `a::f<b>`."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:at]
    return name


def bytes_of(lines):
    """For each line the bytes that its operands reach: to the end of their allocation from its begin, else to the next
    address that anybody uses. What begins inside an operand that was counted is a part of it; an address that stands
    there twice is read and written. A workspace of products counts nothing.

    That is right where a tensor is an allocation, or lies behind others in one, as parameters do."""
    ends = {}  # of allocations
    for line in lines:
        for operand in line["operands"]:
            ends.setdefault(int(operand[0], 16) + operand[1], []).append(int(operand[0], 16))
    begins = {end: sorted(set(addresses)) for end, addresses in ends.items()}
    workspaces = {int(line["operands"][3][0], 16) for line in lines if line["name"].startswith("product")}
    for line in lines:
        total, counted = 0, []
        for address, reach in line["operands"]:
            begin = int(address, 16)
            if begin in workspaces or any(first < begin < last for first, last in counted):
                continue
            used = begins[begin + reach]
            after = bisect.bisect_right(used, begin)
            is_whole = begin == used[0] or after == len(used)
            extent = reach if is_whole else used[after] - begin
            counted.append((begin, begin + extent))
            total += extent
        yield total


def condensed(lines, kernels):
    """The work of one step, of each kind once with its count, in the order of the first."""
    counts = collections.Counter()
    streams = {}
    works = [line for line in lines if line["name"] not in ("allocation", "free")]
    for line, moved in zip(works, bytes_of(works)):
        if not re.match(rf"{_STEP}(?: >|$)", line["site"]):
            continue
        work = {"work": line["name"], "stream": streams.setdefault(line["stream"], len(streams))}
        if "function" in line:
            work |= {"work": line["name"].removeprefix("kernel "), "function": plain(kernels[line["function"]]),
                     "grid": line["grid"], "threads": line["threads"], "shared": line["shared"], "bytes": moved}
        elif "m" in line:
            work |= {key: line[key] for key in ("m", "n", "k", "bytes_of_a", "bytes_of_d", "reads_c", "epilogue")}
            work["work"] = "product"
        elif line["operands"]:
            work |= {"bytes": line["operands"][0][1]} | ({"pinned": line["pinned"]} if "pinned" in line else {})
        counts[json.dumps(work)] += 1
    return [{"count": count, **json.loads(work)} for work, count in counts.items()]


def without_batch(works, batch):
    """The same for any batch: without grids and bytes, rows of products counted in samples."""
    counts = collections.Counter()
    for work in works:
        kept = {key: value for key, value in work.items() if key not in ("count", "grid", "bytes")}
        for side in ("m", "n", "k"):
            if kept.get(side) == batch * TOKENS:
                kept[side] = "rows"
        counts[json.dumps(kept)] += work["count"]
    return counts


def write(works, path):
    path.parent.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(work) for work in works) + "\n]\n")


def read(name, batch):
    return json.loads(recorded_at(name, batch).read_text(encoding="utf-8"))
