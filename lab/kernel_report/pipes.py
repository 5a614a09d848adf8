"""Which unit of a multiprocessor executes an instruction.

    tensor   HMMA and wgmma           fma      FFMA, FMUL, FADD, integer multiplication (IMAD, also as a move)
    alu      integer, logic, compare, select, conversions between 16 and 32 bits
    mufu     exponential, reciprocal, square root; conversions from and to integers and fp64 (16 lanes too)
    lsu      shared and global memory, shuffles
    fp64     double precision         uniform  the scalar unit of a warp
    control  branches, barriers, waits
"""
import re

PIPES = ("tensor", "fma", "alu", "mufu", "lsu", "fp64", "uniform", "control")

_NAMES = (  # the first that matches the opcode without modifiers
    ("tensor", r"[HIQBD]G?MMA"),
    ("control", r"BRA|BRX|JMP|JMX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|BMOV|WARPSYNC|WARPGROUP|YIELD|NOP|BAR|DEPBAR"
                r"|LDGDEPBAR|ERRBAR|CGAERRBAR|MEMBAR|CCTL|CCTLL|NANOSLEEP|ELECT|USETMAXREG|SYNCS|FENCE|UCGABAR_\w+"
                r"|ARRIVES|ACQBULK|PREEXIT|UTMACMDFLUSH|UTMACCTL|LEPC|KILL|B2R|R2B|BPT|VOTEU|PMTRIG|ENDCOLLECTIVE"),
    ("lsu", r"LDG|STG|LDS|STS|LDL|STL|LD|ST|LDSM|STSM|MOVM|LDGSTS|ATOM|ATOMG|ATOMS|RED|REDG|REDUX|SHFL|LDC|UTMA\w+"
            r"|UBLKCP|MATCH"),
    ("uniform", r"U[A-Z]\w*|R2UR|S2UR|LDCU"),
    ("fp64", r"DADD|DMUL|DFMA|DSETP|DMNMX"),
    ("mufu", r"MUFU|F2F|F2I|I2F|FRND|POPC|FLO|BREV|S2R|FCHK"),
    ("fma", r"FFMA|FMUL|FADD|FFMA32I|FADD32I|FMUL32I|IMAD|IMUL|IDP|IDP4A|HFMA2|HADD2|HMUL2|FFMA2|FADD2|FMUL2"),
    ("alu", r"IADD3?|IADD32I|IABS|VIADD|IMNMX|VIMNMX3?|VIADDMNMX|LEA|LOP3|LOP|LOP32I|SHF|SHL|SHR|SGXT|BMSK|PRMT|SEL|MOV"
            r"|MOV32I|CS2R|R2P|P2R|PLOP3|PSETP|ISETP|FSEL|FSET|FSETP|FMNMX3?|HSETP2|HSET2|HMNMX2|F2FP|I2FP|F2IP|I2IP"
            r"|VOTE|FSWZADD|VABSDIFF4?"),
)

_SHAPES = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "16832": 16 * 8 * 32}


def pipe_of(instruction):
    """The unit; ValueError for an opcode that is not known."""
    for pipe, names in _NAMES:
        if re.fullmatch(names, instruction.name):
            return pipe
    raise ValueError(f"unknown instruction {instruction.opcode}")


def counts_of(instructions):
    """{unit: how many of the instructions it executes}."""
    counts = dict.fromkeys(PIPES, 0)
    for instruction in instructions:
        counts[pipe_of(instruction)] += 1
    return counts


def products_of(instruction):
    """The multiply-adds of a tensor instruction of a warp, or of a warp's share of a warpgroup's; 0 of other
    instructions; ValueError for shapes that are not known."""
    if pipe_of(instruction) != "tensor":
        return 0
    if wgmma := re.search(r"GMMA\.64x(\d+)x(\d+)", instruction.opcode):
        return 16 * int(wgmma.group(1)) * int(wgmma.group(2))
    shape = re.search(r"MMA\.(\d+)", instruction.opcode)
    if not shape or shape.group(1) not in _SHAPES:
        raise ValueError(f"unknown tensor instruction {instruction.opcode}")
    return _SHAPES[shape.group(1)]
