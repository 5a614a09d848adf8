"""Takes the cubins (kernels in machine code) out of a shared library, without NVIDIA's tools, whose own search stops at
some libraries. What is stored uncompressed is found, or compressed by LZ4 (not by Zstandard, newer compilers' other
choice)."""
import struct

_MAGIC = struct.pack("<IH", 0xBA55ED50, 1)
_CUBIN = 2  # kind of an entry; 1 is PTX
_LZ4 = 0x2000  # a flag of an entry
_ELF = b"\x7fELF"


def cubins_in(library, hint=None):
    """[(architecture as 80, bytes of the cubin)] of a library's bytes. Of compressed cubins only those that hold the
    hint as it is: LZ4 leaves a word whole where it first appears, unless it begins like one before. Without a hint,
    none."""
    found, at = [], library.find(_MAGIC)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", library, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, length, stored = struct.unpack_from("<HHIQI", library, entry)
            (arch,) = struct.unpack_from("<I", library, entry + 28)
            flags, unpacked = struct.unpack_from("<Q8xQ", library, entry + 40) if entry_header >= 64 else (0, 0)
            code = library[entry + entry_header:entry + entry_header + length]
            if kind == _CUBIN and flags & _LZ4 and hint and hint in code:
                code = decompressed(code[:stored], unpacked)
            if kind == _CUBIN and code.startswith(_ELF):
                found.append((arch, code))
            entry += entry_header + length
        at = library.find(_MAGIC, end)
    return found


def decompressed(block, size):
    """The bytes of an LZ4 block (github.com/lz4/lz4, doc/lz4_Block_format.md); ValueError where they are not `size`."""
    out, at = bytearray(), 0

    def length(half):
        nonlocal at
        total, more = half, 255 if half == 15 else 0
        while more == 255:
            more, at = block[at], at + 1
            total += more
        return total

    while at < len(block):
        token, at = block[at], at + 1
        literals = length(token >> 4)
        out += block[at:at + literals]
        at += literals
        if at >= len(block):  # the last sequence is literals alone
            break
        distance, at = block[at] | block[at + 1] << 8, at + 2
        count = length(token & 15) + 4
        begin = len(out) - distance
        if distance == 0 or begin < 0:
            raise ValueError("an LZ4 block refers to what lies before its begin")
        repeated = bytes(out[begin:begin + count])
        out += (repeated * (count // len(repeated) + 1))[:count]
    if len(out) != size:
        raise ValueError(f"an LZ4 block has {len(out)} bytes, not {size}")
    return bytes(out)
