#!/usr/bin/env python3
"""Draws the figures of docs/: `python3 tools/draw_figures.py` writes docs/images/*.svg. tools/check_figures.py fails
where a stored file is another one. Numbers in a figure are computed here, from those that the page names.
"""
import pathlib
import sys
from xml.sax.saxutils import escape

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"

INK, GREY, PALE = "#222222", "#777777", "#eeeeee"
FIRST, SECOND, BOTH = "#cfe2f7", "#fbdcb8", "#d5ecd2"  # of rank 0, of rank 1, of both


class Picture:
    """An SVG file in the making, on white ground: pages have a dark theme too."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def rect(self, x, y, width, height, fill="white", line=INK):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{line}"/>')

    def text(self, x, y, words, size=13, anchor="middle", colour=INK, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
                          f"{escape(words)}</text>")

    def line(self, x1, y1, x2, y2, arrow=False, colour=INK, dashed=False):
        ends = ' marker-end="url(#arrow)"' if arrow else ""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"{dashes}{ends}/>')

    def box(self, x, y, width, height, words, fill="white", size=13):
        """A box with a word, or several lines of them, in its middle."""
        self.rect(x, y, width, height, fill)
        lines = words.split("\n")
        for i, one in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + size * (0.35 + 1.2 * (i - (len(lines) - 1) / 2)), one, size)

    def matrix(self, x, y, rows, name="", fill=lambda row, column: "white", cell=30):
        """Its numbers in cells, its name above; returns where it ends on the right."""
        columns = len(rows[0])
        if name:
            self.text(x + columns * cell / 2, y - 7, name)
        for i, row in enumerate(rows):
            for j, number in enumerate(row):
                self.rect(x + j * cell, y + i * cell, cell, cell, fill(i, j), GREY)
                self.text(x + j * cell + cell / 2, y + i * cell + cell / 2 + 4.5, str(number).replace("-", "\u2212"))
        return x + columns * cell

    def svg(self):
        arrow = ('<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                 f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>')
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif" role="img">')
        ground = f'<rect width="{self.width}" height="{self.height}" fill="white"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", arrow, ground, *self.parts, "</svg>", ""])


# ---- the order of the folders ---------------------------------------------------------------------------------------


def folder_order():
    """As tools/check_layers.py has it."""
    order, width, gap, top = check_layers.ORDER, 92, 26, 60
    picture = Picture(len(order) * (width + gap) + 14, 200, "The order of the folders: an include points left")
    knows = {"kernels": "pointers,\nsizes", "engine": "tensors,\ngradients", "comm": "ranks", "data": "files,\nsamples",
             "models": "networks,\ntasks", "apps": "the\ncommand"}
    for i, name in enumerate(order):
        x = 20 + i * (width + gap)
        picture.box(x, top, width, 34, name + "/", PALE, 15)
        for j, word in enumerate(knows[name].split("\n")):
            picture.text(x + width / 2, top + 54 + 16 * j, word, 12, colour=GREY)
        if i > 0:
            picture.line(x, top + 17, x - gap + 2, top + 17, arrow=True)
    picture.text(20, 30, "An include points left, over one folder or several. Nothing points right.", 14, "start")
    *names, last = (name + "/" for name in check_layers.BESIDE)
    picture.rect(20, top + 96, len(order) * (width + gap) - gap, 30, "white", GREY)
    picture.text(20 + (len(order) * (width + gap) - gap) / 2, top + 116,
                 f"{', '.join(names)} and {last} may include all of them", 13)
    return picture


# ---- a product on two ranks -----------------------------------------------------------------------------------------

# Of docs/learn/7_two_ranks.md.
X = [[1, 2, 0, -1], [0, 1, 1, 2]]
A = [[1, 0, 2, 1], [0, 1, 1, -1], [2, 1, 0, 0], [1, -1, 1, 0]]
B = [[1, 2, 0, 1], [0, 1, 1, 0], [1, 0, 1, 2], [2, 1, 0, 1]]
BIAS = [1, 0, -1, 2]


def times_transposed(x, w):
    return [[sum(a * b for a, b in zip(row, column)) for column in w] for row in x]


def add(x, y):
    return [[a + b for a, b in zip(one, other)] for one, other in zip(x, y)]


def halves_of_columns(x):
    return [row[:2] for row in x], [row[2:] for row in x]


def product_on_two_ranks():
    """Tensor parallel: A by rows, B by columns, one all-reduce. The whole product is computed as well, and compared."""
    picture = Picture(760, 470, "Two products on two ranks: A is cut by rows, B by columns, and the parts are added")
    own_b = halves_of_columns(B)
    own_h = [times_transposed(X, A[:2]), times_transposed(X, A[2:])]
    parts = [times_transposed(own_h[rank], own_b[rank]) for rank in (0, 1)]
    total = add(*parts)
    assert total == times_transposed(times_transposed(X, A), B)
    y = [[value + bias for value, bias in zip(row, BIAS)] for row in total]
    for rank, colour in enumerate((FIRST, SECOND)):
        top, paint = 50 + 190 * rank, lambda i, j, colour=colour: colour
        picture.text(20, top - 24, f"rank {rank}", 15, "start", bold=True)
        picture.matrix(20, top + 30, X, "x, all of it", lambda i, j: BOTH)
        picture.text(154, top + 64, "·", 20)
        picture.matrix(170, top + 30, A[2 * rank:2 * rank + 2], "its rows of A", paint)
        picture.text(305, top + 64, "\u1d40 =", 18)
        picture.matrix(325, top + 30, own_h[rank], "its columns of h", paint)
        picture.text(400, top + 64, "·", 20)
        picture.matrix(415, top, own_b[rank], "its columns of B", paint)
        picture.text(490, top + 64, "\u1d40 =", 18)
        end = picture.matrix(512, top + 30, parts[rank], "its part of the sum", paint)
        picture.line(end + 6, top + 60, end + 44, 214 if rank == 0 else 252, arrow=True)
    picture.box(662, 218, 90, 30, "all-reduce", PALE)
    picture.line(716, 252, 640, 424, arrow=True)
    picture.matrix(512, 400, total, "the sum, on both ranks", lambda i, j: BOTH)
    picture.line(504, 430, 455, 430, arrow=True)
    picture.text(480, 420, "+ c", 13)
    picture.matrix(325, 400, y, "y, on both ranks", lambda i, j: BOTH)
    picture.text(20, 434, "Nothing is exchanged before the sum.", 13, "start", GREY)
    return picture


# ---- sequence parallel ----------------------------------------------------------------------------------------------


def sequence_parallel():
    """Which rows of the tokens a rank has, from one branch to the next."""
    picture = Picture(800, 330, "Sequence parallel: between the branches each rank has its own rows")
    steps = [("norm", "own"), ("all-gather", "wait"), ("A, its half", "all"), ("B, its half", "all"),
             ("reduce-scatter", "wait"), ("+ c, dropout,\naddition, norm", "own"), ("all-gather", "wait")]
    rows, cell, left, width = 4, 24, 90, 98
    for rank, colour in enumerate((FIRST, SECOND)):
        top = 62 + 140 * rank
        picture.text(left - 14, top + 52, f"rank {rank}", 14, "end", bold=True)
        for i, (_, kind) in enumerate(steps):
            x = left + i * width
            if kind == "wait":
                continue
            for row in range(rows):
                own = row // 2 == rank
                fill = colour if kind == "all" or own else "white"
                picture.rect(x, top + row * cell, width - 14, cell, fill, GREY if fill != "white" else PALE)
                if fill != "white":
                    picture.text(x + (width - 14) / 2, top + row * cell + 16, f"token {row}", 12)
    for i, (name, kind) in enumerate(steps):
        x = left + i * width
        middle = x + (width - 14) / 2
        for j, one in enumerate(name.split("\n")):
            picture.text(middle, 26 + 15 * j, one, 12, bold=kind == "wait")
        if kind == "wait":
            picture.rect(middle - 8, 62, 16, 236, PALE, GREY)
            for top in (110, 250):
                picture.line(x - 12, top, middle - 10, top, arrow=True)
                picture.line(middle + 9, top, x + width - 16, top, arrow=i + 1 < len(steps))
    picture.text(left, 320, "In the branch each rank has all tokens and half of the weights; between branches half of "
                 "the tokens.", 12, "start", GREY)
    return picture


# ---- the life of a batch --------------------------------------------------------------------------------------------


def life_of_a_batch():
    """Who has which batch, over the time of four steps: three slots, one worker, a device with a copy engine."""
    picture = Picture(850, 366, "The life of a batch: while the device computes one, the next ones are read and copied")
    lanes = ["a worker reads", "slot 0", "slot 1", "slot 2", "copy to the device", "the device computes"]
    colours, left, top, height, unit, end = [FIRST, SECOND, BOTH], 165, 44, 40, 102, 6.5
    step = 1.2
    for i, name in enumerate(lanes):
        y = top + i * (height + 8)
        picture.text(left - 12, y + height / 2 + 5, name, 13, "end")
        picture.line(left, y + height + 4, left + end * unit, y + height + 4, colour=PALE)

    def bar(lane, begin, until, words, colour):
        until = min(until, end)
        x, width = round(left + begin * unit, 1), round((until - begin) * unit - 3, 1)
        picture.box(x, top + lane * (height + 8), width, height, words, colour, 12)

    for batch in range(4):
        colour, computed = colours[batch % 3], 1.6 + step * batch
        read = [0, 0.8, 1.6, 1.6 + step][batch]  # the fourth needs the first one's slot
        copied = 0.95 if batch == 0 else computed - step + 0.1
        bar(0, read, read + 0.75, f"batch {batch}", colour)
        bar(1 + batch % 3, read, computed + step, f"batch {batch}", colour)
        bar(4, copied, copied + 0.5, f"batch {batch}", colour)
        bar(5, computed, computed + step, f"step {batch}", colour)
    picture.text(left, 26, "time \u2192", 13, "start", GREY)
    picture.text(left, 350, "A slot is free again when the next step begins. Reading is two batches ahead of the "
                 "device, copying one.", 12, "start", GREY)
    return picture


# ---- tiles ----------------------------------------------------------------------------------------------------------


def product_tiles():
    """The third rung of the product on a GPU, from memory to registers: B above, A on the left, C between them."""
    picture = Picture(810, 330, "A product in tiles: of memory, of shared memory, of registers")

    def panel(left, title, a, b, side, words):
        """a, b: (width of A, height of B) in pixels; `side` is that of C."""
        picture.text(left + (a + 14 + side) / 2, 24, title, 14, bold=True)
        top = 44 + b + 14
        picture.rect(left, top, a, side, "white", GREY)
        picture.rect(left + a + 14, 44, side, b, "white", GREY)
        picture.rect(left + a + 14, top, side, side, "white", GREY)
        for i, one in enumerate(words):
            picture.text(left + (a + 14 + side) / 2, top + side + 26 + 16 * i, one, 12, colour=GREY)
        return left + a + 14, top

    x, y = panel(20, "memory", 96, 96, 96,
                 ["a block has 64 x 64 numbers of C,", "from 64 rows of A and 64 columns of B"])
    picture.rect(20, y + 48, 96, 12, FIRST)
    picture.rect(x + 60, 44, 12, 96, SECOND)
    picture.rect(x + 60, y + 48, 12, 12, BOTH)
    picture.text(68, y - 8, "A", 13)
    picture.text(x - 10, 60, "B", 13, "end")
    picture.text(x + 48, y + 24, "C", 13)

    x, y = panel(300, "shared memory", 48, 48, 160,
                 ["16 columns of A and 16 rows of B at a time;", "each number is used 64 times"])
    picture.rect(300, y, 48, 160, FIRST)
    picture.rect(x, 44, 160, 48, SECOND)
    picture.rect(x + 70, y + 50, 10, 10, BOTH)
    picture.line(x + 75, y + 66, x + 75, y + 96)
    picture.text(x + 75, y + 112, "a thread's 4 x 4", 12)

    x, y = panel(590, "registers of a thread", 30, 30, 120,
                 ["a step of k: 4 + 4 numbers are loaded", "for 16 multiply-adds"])
    picture.matrix(590, y, [["a"]] * 4, fill=lambda i, j: FIRST)
    picture.matrix(x, 44, [["b"] * 4], fill=lambda i, j: SECOND)
    picture.matrix(x, y, [["+ab"] * 4] * 4, fill=lambda i, j: BOTH)
    return picture


def attention_tiles():
    """Which scores a block of threads has computed, computes, and never keeps."""
    columns, rows, cell, left, top = 7, 4, 62, 110, 56
    picture = Picture(840, 380, "Attention in tiles: a block of queries meets all keys, and keeps three things a row")
    for i in range(rows):
        for j in range(columns):
            fill = "white"
            if i == 1:
                fill = PALE if j < 3 else BOTH if j == 3 else "white"
            picture.rect(left + j * cell, top + i * cell, cell, cell, fill, GREY)
    picture.text(left + columns * cell / 2, 24, "keys, 64 at a time", 14)
    picture.line(left + 60, 36, left + columns * cell - 60, 36, arrow=True)
    for i in range(rows):
        picture.text(left - 10, top + i * cell + 36, f"block {i}", 13, "end", bold=i == 1)
    picture.text(left - 10, top - 10, "queries", 14, "end")
    middle = top + 1.5 * cell
    picture.text(left + 1.5 * cell, middle + 5, "used, and forgotten", 12, colour=GREY)
    picture.text(left + 3.5 * cell, middle - 4, "scores", 12)
    picture.text(left + 3.5 * cell, middle + 12, "now", 12)
    picture.text(left + 5.5 * cell, middle + 5, "still to come", 12, colour=GREY)
    right = left + columns * cell + 50
    picture.line(left + columns * cell + 6, middle, right - 6, middle, arrow=True)
    for i, (name, words) in enumerate([("m", "the largest score so far"), ("l", "the sum of exp(S - m)"),
                                       ("A", "the sum of exp(S - m)\u00b7V")]):
        picture.box(right, top + 18 + i * 56, 34, 34, name, FIRST, 15)
        picture.text(right + 44, top + 40 + i * 56, words, 12, "start")
    picture.text(left, top + rows * cell + 30, "A block of threads has one block of queries. Of each row it keeps m, l "
                 "and A; a larger m shrinks l and A by one factor.", 12, "start", GREY)
    picture.text(left, top + rows * cell + 48, "At the end O = A/l and lse = m + log l.", 12, "start", GREY)
    return picture


# ---- a convolution --------------------------------------------------------------------------------------------------

# Of docs/learn/8_a_convolution.md.
PIXELS = [[1, 2, 0, 1], [0, 1, 3, 2], [2, 0, 1, 1], [1, 3, 2, 0]]
KERNEL = [[1, 0, -1], [2, 1, 0], [0, -1, 1]]


def padded(picture, wraps):
    """By 1 on every side: rows with zeros, columns with zeros or with the other end."""
    def element(i, j):
        if not 0 <= i < 4 or not (wraps or 0 <= j < 4):
            return 0
        return picture[i][j % 4]
    return [[element(i, j) for j in range(-1, 5)] for i in range(-1, 5)]


def convolved(around):
    """The windows of a padded picture, with stride 1."""
    return [[sum(KERNEL[k][m] * around[i + k][j + m] for k in range(3) for m in range(3)) for j in range(4)]
            for i in range(4)]


def convolution_window():
    """One element of y and the window that it reads, with zeros around x and with wrapped columns."""
    picture = Picture(850, 300, "A 3 x 3 kernel on a 4 x 4 picture: zeros around it, and wrapped columns")
    top, cell = 60, 28
    inside = lambda i, j: 1 <= i <= 4 and 1 <= j <= 4
    for left, wraps, row, column in [(20, False, 1, 2), (500, True, 1, 0)]:
        around = padded(PIXELS, wraps)
        window = lambda i, j: row <= i < row + 3 and column <= j < column + 3
        title = "columns wrapped, rows zeros" if wraps else "zeros on all sides"
        picture.text(left + 3 * cell, 24, title, 14, bold=True)
        end = picture.matrix(left, top, around, "x, padded by 1", cell=cell,
                             fill=lambda i, j: FIRST if window(i, j) else "white" if inside(i, j) else PALE)
        if not wraps:
            picture.text(end + 18, top + 3 * cell + 5, "\u2217", 18)
            end = picture.matrix(end + 36, top + 1.5 * cell, KERNEL, "w", cell=cell, fill=lambda i, j: FIRST)
        picture.text(end + 18, top + 3 * cell + 5, "=" if not wraps else "\u2192", 18)
        picture.matrix(end + 36, top + cell, convolved(around), "y", cell=cell,
                       fill=lambda i, j: BOTH if (i, j) == (row, column) else "white")
        terms = [(KERNEL[k][m], around[row + k][column + m]) for k in range(3) for m in range(3) if KERNEL[k][m]]
        words = " + ".join(f"{w}\u00b7{x}" if w >= 0 else f"({w})\u00b7{x}" for w, x in terms)
        picture.text(left, top + 6 * cell + 28, f"{words} = {sum(w * x for w, x in terms)}".replace("-", "\u2212"), 13,
                     "start")
    picture.text(20, 284, "Grey: what the padding adds. The terms whose weight is 0 are left out below.", 12, "start",
                 GREY)
    return picture


def who_reads_what():
    """One axis of the U-Net's convolutions: kernel 4, stride 2, padding 1."""
    picture = Picture(900, 280, "Who reads what: a convolution with stride 2, and its data gradient in two classes")
    cell, top, bottom = 42, 70, 200

    def row_of(left, y, name, count, step, fill):
        for i in range(count):
            picture.box(left + i * step, y, cell - 6, cell - 6, f"{name}{i}", fill(i))

    def reads(reader, source, tap):
        """From the left edge of a box below to that of a box above."""
        x1, x2 = round(reader + (cell - 6) / 2), round(source + (cell - 6) / 2)
        y1, y2 = bottom, top + cell - 6
        picture.line(x1, y1, x2, y2, arrow=True, colour=GREY)
        x, y = round((x1 + 2 * x2) / 3), round((y1 + 2 * y2) / 3)
        picture.rect(x - 11, y - 9, 22, 18, "white", "white")
        picture.text(x, y + 4, f"w{tap}", 12)

    left = 40
    picture.text(left + 4 * cell, 30, "the convolution: y of o reads x of 2\u00b7o \u2212 1 + k", 14, bold=True)
    row_of(left, top, "x", 8, cell, lambda i: FIRST if 1 <= i <= 4 else "white")
    row_of(left + cell / 2, bottom, "y", 4, 2 * cell, lambda o: BOTH if o == 1 else "white")
    for k in range(4):
        reads(left + 2.5 * cell, left + (2 * 1 - 1 + k) * cell, k)
    picture.text(left, bottom + cell + 24, "y1 reads x1 to x4, y2 reads x3 to x6, and so on.", 12, "start", GREY)

    left = 500
    picture.text(left + 4 * cell, 30, "its data gradient: dx of i reads dy of (i + 1 \u2212 k)/2", 14, bold=True)
    row_of(left + cell / 2, top, "dy", 4, 2 * cell, lambda o: "white")
    row_of(left, bottom, "dx", 8, cell, lambda i: SECOND if i % 2 else FIRST)
    for i in (2, 5):
        for k in range(4):
            if (i + 1 - k) % 2 == 0:
                reads(left + i * cell, left + ((i + 1 - k) // 2 * 2 + 0.5) * cell, k)
    picture.text(left, bottom + cell + 24, "Even elements have the taps 1 and 3, odd ones 0 and 2.", 12, "start", GREY)
    return picture


FIGURES = {"folder_order": folder_order, "life_of_a_batch": life_of_a_batch, "product_tiles": product_tiles,
           "attention_tiles": attention_tiles, "product_on_two_ranks": product_on_two_ranks,
           "sequence_parallel": sequence_parallel, "convolution_window": convolution_window,
           "who_reads_what": who_reads_what}


def main():
    for name, draw in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())
    print(f"figures: {len(FIGURES)} drawn into {FOLDER.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
