#!/usr/bin/env python3
"""Runs a compiler of CUDA, and fails where it calls kernels right that are slow or may hang:

    python3 tools/checked_nvcc.py [ccache] nvcc ... -c kernel.cu -o kernel.cu.o

CMake puts this before nvcc (cmake/options.cmake). It fails where
- ptxas prints a message C75xx: it has changed the order of wgmma and of the registers around it, and products that
  should run beside each other wait;
- a block of a kernel that moves registers between its warpgroups (setmaxnreg) is not launched with as many as they ask
  for: a warpgroup would wait for the rest for ever. How many it is launched with is ptxas' own choice.
Spills are nvcc's own warnings (--warn-on-spills).
"""
import pathlib
import re
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lab" / "kernel_report"))
import fatbin  # noqa: E402

WARPGROUP = 128  # threads
_MAX_THREADS, _REGCOUNT = 0x05, 0x2F  # attributes of .nv.info
_USETMAXREG = 0x9C8  # the low 12 bits of the instruction; bits 32 to 39 say how many
_MORE = 1 << 9  # of its upper half: it asks for more, and waits for them


def messages_in(stderr):
    """ptxas' messages about products that it has put in another order."""
    return [line for line in stderr.splitlines() if re.search(r"\bC75\d\d\b", line)]


# ---- Registers that move between warpgroups -------------------------------------------------------------------------


def sections_of(elf):
    """{name: (content, sh_link)} of an ELF file of 64 bits."""
    (at,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, at + i * size) for i in range(count)]
    table = headers[names][4]

    def text(offset):
        return elf[offset:elf.index(b"\0", offset)].decode()

    nobits = 8
    return {text(table + header[0]): elf[header[4]:header[4] + (0 if header[1] == nobits else header[5])]
            for header in headers}


def attributes_of(info):
    """[(attribute, its bytes)] of a section .nv.info."""
    found, at = [], 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        length = size if form == 4 else 0  # of the other forms the value is where the size would be
        found.append((attribute, info[at + 4:at + 4 + length]))
        at += 4 + length
    return found


def registers_of(sections):
    """{kernel: registers a thread that it is launched with}"""
    symbols, names = sections[".symtab"], sections[".strtab"]

    def name_of(symbol):
        (begin,) = struct.unpack_from("<I", symbols, 24 * symbol)
        return names[begin:names.index(b"\0", begin)].decode()

    return {name_of(symbol): count for attribute, value in attributes_of(sections.get(".nv.info", b""))
            if attribute == _REGCOUNT for symbol, count in [struct.unpack("<II", value)]}


def asked_for(code):
    """(the registers a thread that a warpgroup keeps which gives some away, those of one that takes more); 0 where
    there is none."""
    less, more = 0, 0
    for at in range(0, len(code) - 15, 16):
        low, high = struct.unpack_from("<QQ", code, at)
        if low & 0xFFF == _USETMAXREG:
            count = low >> 32 & 0xFF
            less, more = (less, max(more, count)) if high & _MORE else (max(less, count), more)
    return less, more


def hangs_in(cubin):
    """A sentence for each kernel one of whose warpgroups could wait for registers for ever: the first gives some away,
    the others take more."""
    sections = sections_of(cubin)
    registers = registers_of(sections)
    for name, code in sections.items():
        kernel = name.removeprefix(".text.")
        less, more = asked_for(code) if kernel != name else (0, 0)
        if not more:
            continue
        threads = [struct.unpack("<3I", value) for attribute, value in attributes_of(sections[".nv.info." + kernel])
                   if attribute == _MAX_THREADS]
        if not threads:
            yield f"{kernel} uses setmaxnreg and has no __launch_bounds__: nobody knows its registers"
            continue
        groups = threads[0][0] // WARPGROUP
        needed = less + more * (groups - 1)
        if registers[kernel] * groups < needed:
            yield (f"{kernel} would hang: it is launched with {registers[kernel]} registers a thread, and its {groups} "
                   f"warpgroups ask for {needed} in all, {needed / groups:.1f} a thread")


def output_of(command):
    """What a command compiles to; None where it does not compile."""
    compiles = "-c" in command or "-cubin" in command
    return pathlib.Path(command[command.index("-o") + 1]) if compiles and "-o" in command else None


def main():
    command = sys.argv[1:]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(run.stderr)
    if run.returncode:
        sys.exit(run.returncode)
    problems = ["ptxas has put products of warpgroups in another order (above: C75xx): what they read or add to must "
                "be settled before wgmma_fence() (kernels/cuda/wgmma.h)"] if messages_in(run.stderr) else []
    output = output_of(command)
    if output and output.is_file():
        made = output.read_bytes()
        cubins = [made] if "-cubin" in command else [cubin for _, cubin in fatbin.cubins_in(made)]
        problems += [problem for cubin in cubins for problem in hangs_in(cubin)]
        if not cubins and any("sm_90a" in argument for argument in command):
            problems.append("its registers cannot be read: it holds no kernel that is not compressed")
    if problems and output:
        output.unlink(missing_ok=True)
    if problems:
        sys.exit("\n".join(f"isobar: {output.name if output else 'nvcc'}: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
