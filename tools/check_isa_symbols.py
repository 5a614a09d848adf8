#!/usr/bin/env python3
"""check_isa_symbols.py [BUILD]: fails when an object that is compiled for AVX2 or AVX-512 defines a weak function
outside its own namespace (an inline function or a template of some header). The linker keeps one copy of such a
function for the whole program, and a machine without those instructions could end up in it. Exit status 77 (skipped)
where nothing is built.
"""
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parent.parent


def offenders(path, isa):
    """Weak code in an object file, demangled, that is not of namespace isobar::cpu::ISA."""
    listing = subprocess.run(["nm", "--demangle", "--defined-only", path], capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        match = re.match(r"[0-9a-f]+ [Wu] (.*)", line)
        if match and f"isobar::cpu::{isa}::" not in match.group(1):
            yield match.group(1)


def main():
    build = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build")
    objects = [(isa, path) for isa in ("avx2", "avx512")
               for path in sorted(build.glob(f"kernels/CMakeFiles/kernels_cpu_{isa}.dir/**/*.o"))]
    if not objects or not shutil.which("nm"):
        print(f"instruction sets: skipped, {build} holds no objects")
        return SKIPPED
    found = [f"{path.relative_to(build)}: {symbol}" for isa, path in objects for symbol in offenders(path, isa)]
    print("\n".join(found) or f"instruction sets: {len(objects)} objects keep to their own namespaces")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
