"""cuobjdump of NVIDIA's CUDA toolkit: found, and run on objects, cubins and shared libraries."""
import functools
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

import sass

HOW_TO_GET_IT = ("needs cuobjdump and nvdisasm: from a CUDA toolkit, or by `python3 -m pip install "
                 "nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`")


ROOT = pathlib.Path(__file__).resolve().parents[2]


class MissingTool(Exception):
    pass


def folders():
    """Where the two programs may lie: $PATH, beside nvcc, in Python packages, where .ci/run puts these."""
    yield from map(pathlib.Path, os.environ.get("PATH", "").split(os.pathsep))
    nvcc = shutil.which("nvcc")
    yield pathlib.Path(nvcc).resolve().parent if nvcc else pathlib.Path("/usr/local/cuda/bin")
    for package, below in (("nvidia", "cu*/bin"), ("triton", "backends/nvidia/bin")):
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or []) if found else []:
            yield from sorted(pathlib.Path(place).glob(below), reverse=True)
    yield from sorted(ROOT.glob("build/disassemblers/nvidia/*/bin"), reverse=True)


@functools.cache
def folder_of_tools():
    """The first folder that has both programs; MissingTool where none has."""
    for folder in folders():
        if all(os.access(folder / name, os.X_OK) for name in ("cuobjdump", "nvdisasm")):
            return folder
    raise MissingTool(HOW_TO_GET_IT)


def cuobjdump(*arguments):
    """The lines that it prints; ValueError with its own words where it fails."""
    folder = folder_of_tools()
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    run = subprocess.run([folder / "cuobjdump", *arguments], env=environment, capture_output=True, text=True,
                         check=False)
    if run.returncode:
        raise ValueError(f"cuobjdump {' '.join(map(str, arguments))}: {run.stderr.strip() or run.stdout.strip()}")
    return run.stdout.splitlines()


def compiler():
    """nvcc and its version; "" where there is none."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        return ""
    run = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return "nvcc " + re.search(r"V([\d.]+)", run.stdout).group(1)


def demangled(names):
    """C++ names by c++filt, without return types and parameters; as they are where there is no c++filt."""
    if not names or not shutil.which("c++filt"):
        return list(names)
    run = subprocess.run(["c++filt", "--no-params"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [name.replace("(anonymous namespace)::", "").removeprefix("void ") for name in run.stdout.splitlines()]


def names_in(path):
    """The mangled names of the kernels that an object holds."""
    return sorted({name for _, name in sass.resources_of(cuobjdump("-res-usage", path))})


def kernels_in(path, arch=None, names=()):
    """[(Function, Resources)] of an object file, cubin or library, of all architectures or one (sm_80), of all kernels
    or those with such mangled names."""
    only = (["-arch", arch] if arch else []) + (["-fun", ",".join(names)] if names else [])
    resources = sass.resources_of(cuobjdump("-res-usage", *only, path))
    functions = list(sass.functions_of(cuobjdump("-sass", *only, path)))
    by_name = {name: value for (_, name), value in resources.items()}  # a cubin alone is not told with its arch
    return [(function, resources.get((function.arch, function.name)) or by_name[function.name])
            for function in functions]


# Of objects that the report reads several times; what it found for a kernel is then found once, too.
names_of = functools.cache(names_in)


@functools.cache
def kernels_of(path, names):
    """kernels_in(path) of kernels with such mangled names (a tuple), of all architectures."""
    return kernels_in(path, names=names)
