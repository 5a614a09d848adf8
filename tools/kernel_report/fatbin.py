"""Takes the cubins (kernels in machine code) out of a shared library, without NVIDIA's tools, whose own search stops at
some libraries. Only what is stored uncompressed is found."""
import struct

_MAGIC = struct.pack("<IH", 0xBA55ED50, 1)
_CUBIN = 2  # kind of an entry; 1 is PTX


def cubins_in(library):
    """[(architecture as 80, bytes of the cubin)] of a library's bytes."""
    found, at = [], library.find(_MAGIC)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", library, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, length = struct.unpack_from("<HHIQ", library, entry)
            (arch,) = struct.unpack_from("<I", library, entry + 28)
            code = library[entry + entry_header:entry + entry_header + length]
            if kind == _CUBIN and code.startswith(b"\x7fELF"):
                found.append((arch, code))
            entry += entry_header + length
        at = library.find(_MAGIC, end)
    return found
