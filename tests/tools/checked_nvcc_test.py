#!/usr/bin/env python3
"""Tests of tools/checked_nvcc.py, with a stand-in of nvcc: no compiler is needed."""
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "checked_nvcc.py"
KERNEL = "sm90_kernel"


def padded(data):
    return data + bytes(-len(data) % 8)


def cubin(registers, threads, less=24, more=160):
    """An ELF file as ptxas writes it, of one kernel that moves registers."""
    def moved(count, upper):
        return struct.pack("<QQ", count << 32 | 0x79C8, upper)

    code = moved(more, 0x000E240008000600) + moved(less, 0x000E0000080E0500) if more else bytes(16)
    info = struct.pack("<BBHII", 4, 0x2F, 8, 1, registers)
    launch = struct.pack("<BBH", 3, 0x1B, 0xFF) + struct.pack("<BBHIII", 4, 0x05, 12, threads, 1, 1) if threads else b""
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 2, 0, 1, 0, len(code))
    contents = [("", b""), (f".text.{KERNEL}", code), (".nv.info", info), (f".nv.info.{KERNEL}", launch),
                (".symtab", symbols), (".strtab", f"\0{KERNEL}\0".encode())]
    names = b"".join(name.encode() + b"\0" for name, _ in contents) + b".shstrtab\0"
    contents.append((".shstrtab", names))
    body, headers, at, name_at = b"", b"", 64, 0
    for name, content in contents:
        headers += struct.pack("<IIQQQQIIQQ", name_at, 1 if name else 0, 0, 0, at + len(body), len(content), 0, 0, 8, 0)
        name_at += len(name) + 1
        body += padded(content)
    start = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, at + len(body), 0, 64, 0, 0, 64,
                        len(contents), len(contents) - 1)
    return start + body + headers


def object_of(code):
    """A file that nvcc writes around it."""
    entry = struct.pack("<HHIQI", 2, 0x101, 64, len(code), 0).ljust(28, b"\0") + struct.pack("<I", 90)
    entry = entry.ljust(64, b"\0")
    return b"\x7fELF and more" + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(code)) + entry + code


class CheckCuda(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_check(self, code, message="", status=0, kind="-c"):
        """The check, of a compiler that writes such an object, prints such a message and ends so."""
        (self.folder / "made").write_bytes(code)
        self.output = self.folder / "kernel.cu.o"
        compiler = self.folder / "nvcc"
        compiler.write_text(f"cp {self.folder / 'made'} {self.output}; echo '{message}' >&2; exit {status}")
        return subprocess.run([sys.executable, CHECK, "sh", compiler, "code=[sm_90a]", kind, "-o", self.output],
                              capture_output=True, text=True, check=False)

    def fails(self, run, *words):
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertFalse(self.output.exists())
        for word in words:
            self.assertIn(word, run.stderr)

    def test_what_is_right_passes(self):
        for registers, threads, more in ((128, 512, 160), (168, 384, 240), (64, 128, 0)):
            run = self.run_check(object_of(cubin(registers, threads, more=more)))
            self.assertEqual((run.returncode, run.stderr.strip()), (0, ""))
            self.assertTrue(self.output.exists())

    def test_too_few_registers_to_share(self):
        self.fails(self.run_check(object_of(cubin(120, 512))), KERNEL, "would hang", "120 registers", "504 in all")
        self.fails(self.run_check(object_of(cubin(160, 384, more=240))), "would hang", "504 in all", "168.0 a thread")

    def test_a_cubin_alone(self):
        self.assertEqual(self.run_check(cubin(128, 512), kind="-cubin").returncode, 0)
        self.fails(self.run_check(cubin(120, 512), kind="-cubin"), KERNEL, "would hang", "120 registers")

    def test_a_kernel_without_launch_bounds(self):
        self.fails(self.run_check(object_of(cubin(168, 0))), "no __launch_bounds__")

    def test_products_in_another_order(self):
        message = "ptxas info    : (C7519) warpgroup.arrive is injected in around line 7 by compiler"
        self.fails(self.run_check(object_of(cubin(128, 512)), message), message, "wgmma_fence()")

    def test_other_messages_pass(self):
        run = self.run_check(object_of(cubin(128, 512)), "ptxas info    : Used 128 registers; C7 519, XC7519")
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_what_cannot_be_read(self):
        self.fails(self.run_check(b"\x7fELF compressed"), "cannot be read")

    def test_a_failure_of_the_compiler_stays(self):
        self.assertEqual(self.run_check(object_of(cubin(128, 512)), "error", 3).returncode, 3)


if __name__ == "__main__":
    unittest.main()
