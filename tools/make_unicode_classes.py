#!/usr/bin/env python3
"""Makes data/text/unicode_ranges.cc: which code points are letters (general category L*), numbers (N*) and white space
(the property White_Space), for the rule that cuts text into pieces (data/text/pieces.h).

    pip install "unicodedata2==16.0.0" && python3 tools/make_unicode_classes.py      writes the file
    python3 tools/make_unicode_classes.py --check                                    fails if the file differs

tiktoken 0.14 knows Unicode 16.0 (tools/check_tokens.py compares every code point), so the table has that version.
Without the package, Python's own `unicodedata` is taken, whose version is in the first line of what is written.
"""
import argparse
import pathlib
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

TARGET = pathlib.Path(__file__).resolve().parent.parent / "data" / "text" / "unicode_ranges.cc"
CODE_POINTS = 0x110000
# White_Space of PropList.txt. Python's str.isspace() has U+001C to U+001F besides.
WHITE_SPACE = [*range(0x09, 0x0e), 0x20, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029, 0x202f, 0x205f,
               0x3000]
CLASSES = {"L": "letter", "N": "number"}


def class_of(code_point):
    if code_point in WHITE_SPACE:
        return "space"
    return CLASSES.get(unicodedata.category(chr(code_point))[0])


def ranges():
    """(first, last, class) of every run of code points of one class."""
    found = []
    for code_point in range(CODE_POINTS):
        name = class_of(code_point)
        if name is None:
            continue
        if found and found[-1][1] == code_point - 1 and found[-1][2] == name:
            found[-1][1] = code_point
        else:
            found.append([code_point, code_point, name])
    return found


def source():
    found = ranges()
    lines, line = [], ""
    for first, last, name in found:
        entry = f"{{0x{first:x}, 0x{last:x}, {name}}},"
        if len(line) + 1 + len(entry) > 116:
            lines.append("    " + line)
            line = ""
        line += (" " if line else "") + entry
    lines.append("    " + line)
    table = "\n".join(lines)
    return f"""// Letters, numbers and white space of Unicode {unicodedata.unidata_version}.
// Made by tools/make_unicode_classes.py; not edited by hand.
#include <array>

#include "data/text/unicode_classes.h"

namespace isobar {{
namespace {{

constexpr UnicodeClass letter = UnicodeClass::letter, number = UnicodeClass::number, space = UnicodeClass::space;

// clang-format off
constexpr std::array<UnicodeRange, {len(found)}> kRanges{{{{
{table}
}}}};
// clang-format on

}}  // namespace

std::span<const UnicodeRange> unicode_ranges() {{
  return kRanges;
}}

}}  // namespace isobar
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        same = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == source()
        print(f"{TARGET.name} is {'as' if same else 'not what'} this script makes it")
        return 0 if same else 1
    TARGET.write_text(source(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
