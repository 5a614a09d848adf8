"""Compiles one .cu file into machine code alone, as the project would, and its CPU twin of older sources; what was
compiled once is kept by the hash of all that went into it."""
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from sources import ROOT, closure

CHECK = ROOT / "tools" / "checked_nvcc.py"
ARCHITECTURES = ("sm_80", "sm_90")


class NotHere(Exception):
    """A part cannot be done on this machine; the reason."""


class Failed(Exception):
    """A compiler or linker does not take it; what it says."""


# ---- the project's own commands -------------------------------------------------------------------------------------


def folder_of(preset):
    return ROOT / ("build" if preset == "release" else f"build-{preset}")


def configured(preset, source=None):
    """Lets CMake write the build folder of a preset, where it is not there or knows nothing of a source."""
    folder = folder_of(preset)
    if (folder / "build.ninja").is_file() and (source is None or commands_of(folder, source)):
        return
    if not shutil.which("cmake"):
        raise NotHere("no cmake")
    ran = subprocess.run(["cmake", "--preset", preset], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NotHere(f"cmake --preset {preset} fails: {(ran.stderr.strip() or ran.stdout.strip())[-300:]}")


def commands_of(folder, source):
    """The commands, in words, by which a build folder compiles a source of the project, without a compiler cache."""
    listed = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
    commands = [shlex.split(entry["command"]) for entry in listed if entry["file"] == str(ROOT / source)]
    return [[word for word in command if pathlib.PurePath(word).name != "ccache"] for command in commands]


def nvcc_command(folder, source):
    """NotHere where the build folder has no nvcc."""
    found = [command for command in commands_of(folder, source) if "nvcc" in pathlib.PurePath(command[0]).name]
    if not found:
        raise NotHere(f"no nvcc: {folder.name}/ is configured without CUDA")
    if not shutil.which(found[0][0]):
        raise NotHere(f"no nvcc: {found[0][0]}, of which {folder.name}/ knows, is gone")
    return found[0]


def elsewhere(words, tree, source, output):
    """A compiler's command, for a source in another tree, and for another output."""
    words = [word.replace(f"-I{ROOT}", f"-I{tree}") if word.startswith("-I") else word for word in words]
    words[words.index("-o") + 1] = str(output)
    words[words.index(str(ROOT / source))] = str(tree / source)
    return words


def architecture_of(source):
    """Of a source that has code for one GPU alone; None of others."""
    return "sm_90" if pathlib.PurePath(source).name.startswith("sm90_") else None


def for_machine_code(words, source, arch):
    """nvcc's command for the machine code of one architecture alone, with ptxas' figures."""
    code = "--generate-code=arch=compute_80,code=[{}]" if architecture_of(source) is None else None
    words = [code.format(arch) if code and word.startswith("--generate-code=") else word for word in words]
    words[words.index("-c")] = "-cubin"
    return [sys.executable, str(CHECK), *words, "-Xptxas=-v"]


# ---- what is kept ---------------------------------------------------------------------------------------------------


def key_of(words, texts):
    """Of a command and of the texts of all files that it reads."""
    whole = json.dumps([words, sorted(texts.items())])
    return hashlib.sha256(whole.encode()).hexdigest()[:20]


def versions(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def kept(path, make):
    """The path, once `make` has written it; `make` is given the place to write to. Two that make it at once do no
    harm."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as place:
            new = pathlib.Path(place) / path.name
            make(new)
            os.replace(new, path)
    return path


def run(words, folder):
    """What a compiler prints; Failed with it where it fails."""
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Failed((ran.stderr + ran.stdout).strip())
    return ran.stderr


# ---- machine code ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Usage:
    """What ptxas says of a kernel: registers and bytes of a thread, bytes of static shared memory of a block."""
    registers: int = 0
    stack: int = 0
    spills: int = 0  # stored and loaded
    shared: int = 0


_SAID_OF_ALL = re.compile(r"ptxas info\s+: (?:\d+ bytes gmem|Compiling entry function|Function properties for "
                          r"|Used \d+ registers|Compile time = )|\s+\d+ bytes stack frame")


def usage_in(log):
    """{mangled name: Usage} of the kernels that ptxas speaks of."""
    found, name = {}, None
    for line in log.splitlines():
        if match := re.match(r"ptxas info\s+: Compiling entry function '(\S+)'", line):
            name = match.group(1)
            found[name] = Usage()
        elif match := re.match(r"ptxas info\s+: Function properties for (\S+)", line):
            name = match.group(1) if match.group(1) in found else None  # of a function that kernels call
        elif name and (match := re.match(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", line)):
            stack, stored, loaded = map(int, match.groups())
            found[name] = dataclasses.replace(found[name], stack=stack, spills=stored + loaded)
        elif name and (match := re.match(r"ptxas info\s+: Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = dataclasses.replace(found[name], registers=int(match.group(1)),
                                              shared=int(shared.group(1)) if shared else 0)
    return found


def messages_in(log):
    """What the compiler says beyond the figures of each kernel: warnings, losses of performance."""
    return [line for line in log.splitlines() if line.strip() and not _SAID_OF_ALL.match(line)]


@dataclasses.dataclass(frozen=True)
class Compiled:
    cubin: pathlib.Path
    log: str


def compile_kernel(folder, tree, source, arch):
    """The Compiled of a source of a tree; it is kept below the build folder."""
    words = for_machine_code(nvcc_command(folder, source), source, arch)
    nvcc = words[2]
    key = key_of([*elsewhere(words, pathlib.Path("tree"), source, "output"), versions(nvcc)], closure(tree, [source]))
    place = folder / "kernel_verdict" / f"{pathlib.PurePath(source).stem}-{arch}-{key}"

    def make(new):
        log = run(elsewhere(words, tree, source, new), folder)
        place.with_suffix(".log").write_text(log, encoding="utf-8")

    cubin = kept(place.with_suffix(".cubin"), make)
    return Compiled(cubin, place.with_suffix(".log").read_text(encoding="utf-8"))


# ---- the CPU twin ---------------------------------------------------------------------------------------------------


def compile_twin(folder, tree, twin):
    """Objects of the sources of a CPU twin in a tree, for each instruction set."""
    def compile_one(source, words):
        texts = closure(tree, [source])
        key = key_of([*elsewhere(words, pathlib.Path("tree"), source, "output"), versions(words[0])], texts)
        return kept(folder / "kernel_verdict" / f"{pathlib.PurePath(source).stem}-{key}.o",
                    lambda new: run(elsewhere(words, tree, source, new), folder))

    jobs = [(source, words) for source in twin for words in commands_of(folder, source)
            if "/kernels_cpu_" in words[words.index("-o") + 1]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda job: compile_one(*job), jobs))


def link_with(folder, objects):
    """isobar-bench with these objects in place of those of the library, which the linker then leaves out."""
    key = key_of([path.name for path in objects], {})

    def make(new):
        listed = subprocess.run(["ninja", "-t", "commands", "bench/isobar-bench"], cwd=folder, capture_output=True,
                                text=True, check=True).stdout
        link = listed.splitlines()[-1]
        given = " ".join(shlex.quote(str(path)) for path in objects)
        run(["sh", "-c", link.replace(" -o bench/isobar-bench ", f" {given} -s -o {shlex.quote(str(new))} ")], folder)

    return kept(folder / "kernel_verdict" / f"isobar-bench-{key}", make)
