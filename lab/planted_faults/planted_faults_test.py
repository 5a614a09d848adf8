#!/usr/bin/env python3
"""Tests of how lab/planted_faults draws faults, and of what a program says of those that are planted in it."""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import unittest
from importlib import util

import drawing

spec = util.spec_from_file_location("planted_faults", pathlib.Path(__file__).with_name("__main__.py"))
planted_faults = util.module_from_spec(spec)
spec.loader.exec_module(planted_faults)

SOURCE = """#include <vector>

namespace isobar {

// A comment with a < b; and a brace {
constexpr int kMost = 4;
static const char* const kName = "first_name";

int smaller(int a, int b) {
  if (a < b && !is_odd(a)) return a + 1;
  for (int i = 0; i < b; ++i) {
    const auto add = [&](int x) { sum += x; };
    add(i);
  }
  copy(a, b);
  while (true) {
    throw_error("a sentence, with a < in it");
  }
  return b;
}

}  // namespace isobar
"""


def wrongs(line):
    return {fault.wrong.strip() for fault in drawing.faults_of("x.cc", SOURCE) if fault.line == line}


class Drawing(unittest.TestCase):
    def test_what_can_be_wrong(self):
        self.assertIn("constexpr int kMost = 5;", wrongs(6))
        self.assertIn('static const char* const kName = "first_name_";', wrongs(7))
        condition = wrongs(10)
        for wrong in ("if (a <= b && !is_odd(a)) return a + 1;", "if (a < b || !is_odd(a)) return a + 1;",
                      "if (a < b && is_odd(a)) return a + 1;", "if (true) return a + 1;", "if (false) return a + 1;",
                      "if (a < b && !is_odd(a)) return a - 1;", "if (a < b && !is_odd(a)) return a + 2;"):
            self.assertIn(wrong, condition)
        self.assertIn("for (int i = 0; i <= b; ++i)", wrongs(11))
        self.assertEqual(wrongs(12), {"", "sum -= x;", "sum = x;"})
        self.assertEqual(wrongs(13), {""})
        self.assertEqual(wrongs(15), {"", "copy(b, a);"})
        self.assertEqual(wrongs(17), {""})  # nothing within a sentence
        self.assertEqual(wrongs(19), set())

    def test_faults_that_somebody_wrote(self):
        one = {"path": "x.cc", "original": "copy(a, b);", "wrong": "copy(b, a);",
               "written": "if (isobar_fault(@)) { copy(b, a); } else { copy(a, b); }"}
        (fault,) = drawing.written({"x.cc": SOURCE}, [one])
        self.assertEqual(fault.line, 15)
        text, spans = drawing.planted(SOURCE, {7: fault})
        self.assertIn("  if (isobar_fault(7)) { copy(b, a); } else { copy(a, b); }\n", text)
        self.assertEqual(spans, {7: (15, 15)})
        for wrong in ([one, one], [dict(one, original="int")], [dict(one, original="not there")]):
            with self.assertRaises(ValueError):
                drawing.written({"x.cc": SOURCE}, wrong)

    def test_the_lists_of_this_folder_fit_the_sources(self):
        lists = sorted(pathlib.Path(__file__).parent.glob("*.json"))
        self.assertTrue(lists)
        for path in lists:
            entries = json.loads(path.read_text())
            sources = {entry["path"]: (planted_faults.ROOT / entry["path"]).read_text() for entry in entries}
            self.assertEqual(len(drawing.written(sources, entries)), len(entries))

    def test_an_empty_statement_has_none(self):
        self.assertEqual(drawing.faults_of("x.cc", "struct X {\n  void f() {}\n};\n"), [])

    def test_nothing_in_comments_and_directives(self):
        self.assertEqual({f.line for f in drawing.faults_of("x.cc", SOURCE)} & {1, 3, 5, 9, 21}, set())

    def test_the_original_stays_and_lines_are_told(self):
        faults = drawing.draw({"x.cc": SOURCE}, 100, 1)
        numbered = dict(enumerate(faults))
        text, spans = drawing.planted(SOURCE, numbered)
        lines = text.splitlines()
        for number, (first, last) in spans.items():
            self.assertIn(f"isobar_fault({number})", "\n".join(lines[first - 1:last]))
        self.assertEqual(text.count("isobar_fault("), len(faults))

    def test_a_seed_draws_the_same_and_one_fault_a_statement(self):
        one, same, other = (drawing.draw({"x.cc": SOURCE}, 5, seed) for seed in (3, 3, 4))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)
        for fault in one:
            self.assertFalse(drawing.overlaps(fault, [o for o in one if o is not fault]))

    def test_lines_are_drawn_evenly(self):
        counts = {}
        for seed in range(2000):
            fault = drawing.draw({"x.cc": SOURCE}, 1, seed)[0]
            counts[fault.line] = counts.get(fault.line, 0) + 1
        expected = 2000 / len(counts)
        for line, count in counts.items():  # five standard deviations
            self.assertLess(abs(count - expected), 5 * expected ** 0.5, line)


class Written(unittest.TestCase):
    def test_files_of_faults_fit_the_sources(self):
        """What a fault replaces stands once in its file, and no fault lies within another."""
        folder = pathlib.Path(__file__).parent
        files = sorted(folder.glob("*.json"))
        self.assertTrue(files)
        for file in files:
            entries = json.loads(file.read_text())
            sources = {entry["path"]: (planted_faults.ROOT / entry["path"]).read_text() for entry in entries}
            faults = drawing.written(sources, entries)
            self.assertTrue(all("isobar_fault(@)" in fault.written for fault in faults))


PROGRAM = """#include "planted_fault.h"

int main() { return isobar_fault(3) ? 3 : isobar_fault(70) ? 70 : 0; }
"""


@unittest.skipUnless(shutil.which("c++"), "no compiler")
class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = os.path.join(folder.name, "program")
        subprocess.run(["c++", "-std=c++20", "-x", "c++", "-", "-o", self.program, "-I",
                        pathlib.Path(__file__).parent], check=True, text=True, input=PROGRAM)

    def run_program(self, faults="", most_bytes=resource.RLIM_INFINITY):
        """Its status, and the numbers that it has reached."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        with planted_faults.Reached() as reached:
            done = subprocess.run(
                [self.program], env=dict(os.environ, ISOBAR_FAULTS=faults, ISOBAR_REACHED=reached.name),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard)))
            return done.returncode, reached.numbers()

    def test_a_fault_is_on_where_its_number_is_given(self):
        self.assertEqual(self.run_program(), (0, [3, 70]))
        self.assertEqual(self.run_program("3"), (3, [3]))
        self.assertEqual(self.run_program("5,70"), (70, [3, 70]))

    def test_a_program_that_may_write_no_file_notes_what_it_reaches(self):
        """As in tests of a full disk."""
        self.assertEqual(self.run_program(most_bytes=0), (0, [3, 70]))


if __name__ == "__main__":
    unittest.main()
