#!/usr/bin/env python3
"""Tests that the tools for users say in one sentence which package of Python is missing."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
PACKAGES = ("numpy", "torch")


class MissingPackages(unittest.TestCase):
    def test_one_sentence(self):
        for tool in ("megatron_checkpoint.py", "ckpt_tar.py"):
            for package in PACKAGES:
                with self.subTest(tool=tool, package=package), tempfile.TemporaryDirectory() as folder:
                    for name in PACKAGES:  # the one is not to be found, the other is there without anything in it
                        lines = f"raise ImportError('No module named {name}', name='{name}')" if name == package else ""
                        pathlib.Path(folder, f"{name}.py").write_text(lines)
                    run = subprocess.run([sys.executable, TOOLS / tool], capture_output=True, text=True, check=False,
                                         env={**os.environ, "PYTHONPATH": folder})
                    self.assertEqual(run.returncode, 1)
                    self.assertEqual(run.stdout, "")
                    self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
                    self.assertTrue(run.stderr.startswith(f"{tool}: {package} is not installed"), run.stderr)


if __name__ == "__main__":
    unittest.main()
