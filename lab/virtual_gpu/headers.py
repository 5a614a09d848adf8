#!/usr/bin/env python3
"""Checks that the values in the virtual GPU's headers are NVIDIA's: compiles them with NVIDIA's own headers, if a
toolkit is installed. Status 77 if none is.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

OWN = pathlib.Path(__file__).resolve().parent.parent / "stand_ins/cuda/include"
CUDA = pathlib.Path("/usr/local/cuda/include")
HEADERS = ("cuda_runtime_api.h", "cuda.h", "cublasLt.h")
LISTED = ("cudaMemcpyHostToHost cudaMemcpyHostToDevice cudaMemcpyDeviceToHost cudaMemcpyDeviceToDevice "
          "cudaMemcpyDefault", "cudaStreamCaptureModeGlobal cudaStreamCaptureModeThreadLocal "
          "cudaStreamCaptureModeRelaxed", "cudaStreamCaptureStatusNone cudaStreamCaptureStatusActive "
          "cudaStreamCaptureStatusInvalidated")  # enumerators, which count from 0 in NVIDIA's too


def main():
    if not all((CUDA / header).is_file() for header in HEADERS):
        print(f"no CUDA toolkit in {CUDA}")
        return 77
    values = {name: number for names in LISTED for number, name in enumerate(names.split())}
    for header in HEADERS:
        values |= {name: int(number) for name, number in
                   re.findall(r"\b((?:cuda|CUDA|CUBLAS|CU)_?\w+) = (\d+)", (OWN / header).read_text())}
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "values.cc"
        source.write_text("".join(f"#include <{header}>\n" for header in HEADERS) +
                          "".join(f"static_assert(int({name}) == {value});\n" for name, value in values.items()))
        status = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-isystem{CUDA}", source]).returncode
    print(f"{len(values)} values")
    return status


if __name__ == "__main__":
    sys.exit(main())
