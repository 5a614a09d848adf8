"""Reads what `cuobjdump -sass` and `cuobjdump -res-usage` print: instructions with their control codes, and the
registers, stack and static shared memory of each kernel.

A listing gives each instruction as text and as 128 bits. Bits 105 to 125 are the control code by which the compiler
orders instructions (Jia et al. 2018, arXiv 1804.06826, section 2.1): cycles until the warp may issue again, up to two
of six scoreboards that the instruction raises (until its result is written; until its operands are read), and those it
waits for.
"""
import dataclasses
import re

NO_BARRIER = 7


@dataclasses.dataclass(frozen=True)
class Control:
    stall: int  # cycles until the warp's next instruction may issue
    write_barrier: int  # scoreboard 0..5 that is up until the result is written; NO_BARRIER for none
    read_barrier: int  # the same until the operands are read
    waits: tuple  # scoreboards that must be down before the instruction issues


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    guard: str  # "@P0", "@!UP1", or "" where it always executes
    opcode: str  # with its modifiers, as HMMA.16816.F32.BF16
    operands: str
    control: Control

    @property
    def name(self):
        """The opcode without modifiers."""
        return self.opcode.split(".")[0]

    @property
    def target(self):
        """The address of a branch or of where a convergence barrier meets; None for others."""
        match = re.search(r"(?:^|[\s,])(?:`\()?0x([0-9a-f]+)\)?$", self.operands)
        return int(match.group(1), 16) if self.name in ("BRA", "BSSY", "CALL") and match else None


@dataclasses.dataclass(eq=False)
class Function:
    name: str  # mangled
    arch: str  # sm_80, or sm_90, as which sm_90a counts
    instructions: list


@dataclasses.dataclass(frozen=True)
class Resources:
    registers: int  # a thread
    stack: int  # bytes of local memory a thread: spills and arrays that are indexed at run time
    shared: int  # bytes a block, without what the launch adds


def control_of(high):
    """The control code in the upper 64 of an instruction's 128 bits."""
    code = high >> 41
    waits = code >> 11 & 0x3f
    return Control(stall=code & 15, write_barrier=code >> 5 & 7, read_barrier=code >> 8 & 7,
                   waits=tuple(barrier for barrier in range(6) if waits >> barrier & 1))


_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z]\w*(?:\.\w+)*)\s*([^;]*?)\s*;")
_UPPER_HALF = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")


def functions_of(lines):
    """The kernels of a listing, in its order. The padding behind a kernel (NOP, and a branch to itself) is cut."""
    arch, function = None, None
    lines = iter(lines)
    for line in lines:
        if match := re.match(r"\s*code for (sm_\d+)", line):
            arch = match.group(1)
        elif match := re.match(r"\s*Function : (\S+)", line):
            if function:
                yield without_padding(function)
            function = Function(match.group(1), arch, [])
        elif function and (match := _INSTRUCTION.match(line)):
            upper = _UPPER_HALF.match(next(lines, ""))
            if not upper:
                raise ValueError(f"{function.name}: the second half of the instruction at 0x{match.group(1)} is "
                                 "missing")
            function.instructions.append(Instruction(int(match.group(1), 16), match.group(2) or "", match.group(3),
                                                     match.group(4), control_of(int(upper.group(1), 16))))
    if function:
        yield without_padding(function)


def without_padding(function):
    code = function.instructions
    while code and (code[-1].name == "NOP" or (code[-1].name == "BRA" and code[-1].target == code[-1].address)):
        code.pop()
    return function


def width_of(opcode):
    """Bytes that each lane moves."""
    for suffix, width in ((".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".U8", 1), (".S8", 1)):
        if opcode.endswith(suffix) or suffix + "." in opcode:
            return width
    return 4


def resources_of(lines):
    """{(arch, mangled name): Resources} of what `cuobjdump -res-usage` prints."""
    found, arch, name = {}, None, None
    for line in lines:
        if match := re.match(r"arch = (sm_\d+)", line):
            arch = match.group(1)
        elif match := re.match(r"\s*Function (\S+):$", line):
            name = match.group(1)
        elif match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", line):
            found[arch, name] = Resources(*map(int, match.groups()))
    return found
