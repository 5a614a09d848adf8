#!/usr/bin/env python3
"""Tests of what tools/check_docs.py says of blocks of code, and tools/check_figures.py of figures."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_docs  # noqa: E402
import check_figures  # noqa: E402
import draw_figures  # noqa: E402

FILE = "models/vit/vit.cc"  # any file of the sources, whose lines the tests quote
LINES = (ROOT / FILE).read_text().splitlines()


class Blocks(unittest.TestCase):
    def test_lines_of_the_file_are_right_however_indented(self):
        self.assertIsNone(check_docs.code_problem(FILE, "\n".join("    " + line for line in LINES[2:6])))

    def test_a_changed_line_and_a_line_left_out_are_found(self):
        self.assertIn("no such lines", check_docs.code_problem(FILE, LINES[2] + "  // not there"))
        self.assertIn("no such lines", check_docs.code_problem(FILE, "\n".join([LINES[2], *LINES[9:11]])))

    def test_dots_skip_lines_in_the_order_of_the_file(self):
        parts = ["\n".join(LINES[2:4]), "\n".join(LINES[-3:])]
        self.assertIsNone(check_docs.code_problem(FILE, "\n...\n".join(parts)))
        self.assertIsNotNone(check_docs.code_problem(FILE, "\n  ...\n".join(reversed(parts))))

    def test_a_file_that_does_not_exist_is_found(self):
        self.assertIn("does not exist", check_docs.code_problem("models/no_such.cc", "x"))

    def test_a_block_of_cpp_says_where_it_is_from(self):
        block = "```cpp\nint x;\n```\n"
        for before, found in [("", 1), ("text\n", 1), ("<!-- from a.cc -->\n", 0), ("<!-- an example -->\n", 0),
                              ("<!-- of a.cc -->\n", 1), ("<!-- from a.cc -->\n\n", 1)]:
            with self.subTest(before):
                self.assertEqual(len(list(check_docs.unmarked(before + block))), found)
        self.assertEqual(list(check_docs.unmarked("```python\nx = 1\n```\n")), [])


class Figures(unittest.TestCase):
    def problems(self, stored, pages):
        """Of a figure `one` that is drawn as a box, with these files and pages."""
        picture = draw_figures.Picture(10, 10, "a box")
        picture.box(1, 1, 8, 8, "a < b\nc")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file, text in stored.items():
                (folder / file).write_text(picture.svg() if text is None else text)
            return list(check_figures.problems({"one": lambda: picture}, folder, pages))

    def test_a_figure_as_drawn_that_a_page_shows_is_right(self):
        self.assertEqual(self.problems({"one.svg": None}, ["![a box](../images/one.svg)"]), [])

    def test_other_figures_are_not(self):
        shown = ["![a box](docs/images/one.svg) ![two](images/two.svg)"]
        self.assertIn("is not what the script draws", self.problems({"one.svg": "<svg/>"}, shown)[0])
        self.assertIn("is not what the script draws", self.problems({}, shown)[0])
        self.assertIn("two.svg is drawn by nobody", self.problems({"one.svg": None, "two.svg": ""}, shown)[0])
        self.assertIn("one.svg is on no page", self.problems({"one.svg": None}, ["[a box](images/one.svg)"])[0])

    def test_words_are_escaped(self):
        picture = draw_figures.Picture(10, 10, "x")
        picture.text(1, 1, "a < b & c")
        self.assertIn("a &lt; b &amp; c", picture.svg())

    def test_products_of_matrices(self):
        self.assertEqual(draw_figures.times_transposed([[1, 2]], [[3, 4], [0, -1]]), [[11, -2]])
        self.assertEqual(draw_figures.halves_of_columns([[1, 2, 3, 4]]), ([[1, 2]], [[3, 4]]))


if __name__ == "__main__":
    unittest.main()
