#!/usr/bin/env python3
"""Checks that the values in the virtual GPU's headers, and in isobar's own declarations of cuDNN, are NVIDIA's:
compiles them with NVIDIA's own headers. Those of the toolkit must be installed, or the status is 77. Those of cuDNN are
looked for in the folder CUDNN_INCLUDE of the environment, as that of NVIDIA's Python package, and beside the toolkit's.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ROOT / "lab/stand_ins/cuda/include"
CUDNN_API = "kernels/conv/cudnn_api.h"
CUDA = pathlib.Path("/usr/local/cuda/include")
SKIPPED = 77
HEADERS = ("cuda_runtime_api.h", "cuda.h", "cublasLt.h")
LISTED = ("cudaMemcpyHostToHost cudaMemcpyHostToDevice cudaMemcpyDeviceToHost cudaMemcpyDeviceToDevice "
          "cudaMemcpyDefault", "cudaStreamCaptureModeGlobal cudaStreamCaptureModeThreadLocal "
          "cudaStreamCaptureModeRelaxed", "cudaStreamCaptureStatusNone cudaStreamCaptureStatusActive "
          "cudaStreamCaptureStatusInvalidated")  # enumerators, which count from 0 in NVIDIA's too


def compiles(name, text, *flags):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / f"{name}.cc"
        source.write_text(text)
        return subprocess.run(["c++", "-std=c++20", "-fsyntax-only", *flags, source]).returncode == 0


def check_toolkit():
    values = {name: number for names in LISTED for number, name in enumerate(names.split())}
    for header in HEADERS:
        values |= {name: int(number) for name, number in
                   re.findall(r"\b((?:cuda|CUDA|CUBLAS|CU)_?\w+) = (\d+)", (OWN / header).read_text())}
    print(f"{len(values)} values of CUDA and cuBLASLt")
    return compiles("values", "".join(f"#include <{header}>\n" for header in HEADERS) +
                    "".join(f"static_assert(int({name}) == {value});\n" for name, value in values.items()),
                    f"-isystem{CUDA}")


def check_cudnn(folder):
    """Every enumerator, and every function's parameters: same sizes, and pointers for pointers."""
    text = (ROOT / CUDNN_API).read_text()
    values = re.findall(r"\b(CUDNN_\w+) = \d+", text)
    functions = re.findall(r"\(\*(\w+)\)\(", text)
    print(f"{len(values)} values and {len(functions)} functions of cuDNN")
    lines = ["#include <cudnn_graph.h>", f'#include "{CUDNN_API}"', '#include "tests/harness/alike.h"',
             "using isobar::testing::are_alike;",
             *(f"static_assert(int(isobar::cudnn::{name}) == int(::{name}));" for name in values),
             *(f"static_assert(are_alike(decltype(isobar::cudnn::Api::{name}){{}}, decltype(&::cudnn{name}){{}}));"
               for name in functions)]
    return compiles("cudnn", "\n".join(lines) + "\n", f"-I{ROOT}", f"-isystem{folder}", f"-isystem{CUDA}")


def main():
    if not all((CUDA / header).is_file() for header in HEADERS):
        print(f"no CUDA toolkit in {CUDA}")
        return SKIPPED
    results = [check_toolkit()]
    for folder in (pathlib.Path(os.environ.get("CUDNN_INCLUDE", CUDA)), CUDA):
        if (folder / "cudnn_graph.h").is_file():
            results.append(check_cudnn(folder))
            break
    else:
        print("no header of cuDNN")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
