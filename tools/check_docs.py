#!/usr/bin/env python3
"""Fails when README.md or a page of docs/ names something that does not exist:

links     [text](page.md#anchor): the file is there, and the anchor is one of its headings
paths     `engine/tape.h`, `launch.h`, `kernels/x.h`: see the rules at path_problem()
names     `begin_step()`, `Gradients::slot`, `TapeScope`, `grad_norm`, `kPitch`, `ISOBAR_RUN`: they occur in the
          sources, outside comments; see the rules at name_problem()
code      a block behind <!-- from FILE --> stands in that file, line by line, however indented; a line "..." skips
          some. A block of C++ says where it is from, or <!-- an example -->: that it is in no file

Of everything else only text in backquotes is read, never blocks of code.
"""
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE_FOLDERS = ["kernels", "engine", "comm", "data", "models", "apps", "tests", "bench", "lab", "tools", "scripts",
                "cmake", "configs"]
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".txt", ".json", ""}
FILE_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".md", ".cmake")  # a bare word with one of these is a file's name

# Names that are right although no source of isobar has them, by whose they are.
FOREIGN = {
    "PyTorch": {"torch.randperm", "DistributedSampler", "GradScaler"},
    "micrograd and the NERSC tutorial": {"engine.py", "train.py"},
    "docs/notation.md, of how names are spelled": {"CamelCase", "snake_case", "kName", "ISOBAR_NAME"},
}
NAMESPACES = {"isobar", "std", "cpu", "cuda", "emulator"}  # a macro declares every kernel in the last three
EXCEPTIONS = set(itertools.chain.from_iterable(FOREIGN.values()))


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose_of(text):
    """The page without its code, which is fenced or indented by four; emptied lines stay, to be counted."""
    lines, fenced = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        lines.append("" if fence or fenced or line.startswith("    ") else line)
        fenced ^= fence
    return "\n".join(lines)


# ---- links ----------------------------------------------------------------------------------------------------------


def anchors_of(page):
    """What GitHub makes of the headings: lower case, no punctuation, dashes for blanks; a number where one repeats."""
    seen, anchors = {}, set()
    for heading in re.findall(r"^#+ +(.*?) *#*$", prose_of(page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def link_problem(page, target):
    if re.match(r"[a-z]+:", target):
        arxiv = re.match(r"https?://(?:www\.)?arxiv\.org/(.*)", target)
        if arxiv and not re.fullmatch(r"abs/\d{4}\.\d{4,5}", arxiv.group(1)):
            return "is no address of a paper's page on arXiv (https://arxiv.org/abs/NUMBER)"
        return None
    name, _, anchor = target.partition("#")
    linked = (page.parent / name).resolve() if name else page
    if not linked.is_relative_to(ROOT):
        return "leads out of the project"
    if not linked.exists():
        return "leads nowhere"
    if anchor and anchor not in anchors_of(linked):
        return "names no heading of that page"
    return None


# ---- paths ----------------------------------------------------------------------------------------------------------


def expand_braces(word):
    match = re.search(r"\{([^{}]*,[^{}]*)\}", word)
    if not match:
        return [word]
    return [path for part in match.group(1).split(",")
            for path in expand_braces(word[:match.start()] + part + word[match.end():])]


def looks_like_path(word):
    """It begins with a file or folder of the root, or is the bare name of a source or a page."""
    if not re.fullmatch(r"[\w.*{},/+-]+(:\d+)?", word) or word.startswith("/"):
        return False
    first, slash, _ = word.partition("/")
    if slash:
        return first in CODE_FOLDERS or first in {"docs", ".ci"}
    name = word.partition(":")[0]
    return name.endswith(FILE_SUFFIXES) and not name.startswith(".") or (ROOT / name).is_file()


def as_pattern(path):
    """Placeholders become `*`: the stem `x` or `x_...` of a component (any op), and capitals (NAME, RUN)."""
    parts = [re.sub(r"^x(?=[._]|$)", "*", part) for part in path.split("/")]
    return "/".join(re.sub(r"(?<![a-z])[A-Z]{2,}(?![a-z])", "*", part) for part in parts)


def path_problem(word):
    """A path exists: as it stands, or, with a wildcard or a placeholder, as a pattern that some file fits. A bare name
    is a file's, anywhere in the tree. `file.cc:12` has that many lines."""
    path, _, number = word.partition(":")
    for one in expand_braces(path):
        one = one.rstrip("/")
        if "/" not in one:
            found = [p for folder in [*CODE_FOLDERS, "docs"] for p in (ROOT / folder).rglob(as_pattern(one))]
            found += ROOT.glob(one)
        elif (ROOT / one).exists():
            found = [ROOT / one]
        else:
            pattern = as_pattern(one)
            found = list(ROOT.glob(pattern)) if pattern != one or "*" in one else []
        if not found:
            return f"{one} does not exist"
        if number and len(found[0].read_text().splitlines()) < int(number):
            return f"{one} has fewer lines than {number}"
    return None


# ---- names ----------------------------------------------------------------------------------------------------------


CLASS = re.compile(r"\b(?:class|struct|enum)\s+(?:class\s+)?(\w+)\s*(?:final\s*)?(?::[^;{}()]*)?\{")


class Sources:
    """What the sources contain, comments of C++ left out: words, functions (words that a bracket follows), and members,
    A::b, where b is a word in the body of class A, or A::b is written out."""

    def __init__(self):
        self.words, self.functions, self.members = set(), set(), set()
        for folder in CODE_FOLDERS:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in SOURCE_SUFFIXES and path.is_file() and "corpus" not in path.parts:
                    self.add(path)

    def add(self, path):
        if path == pathlib.Path(__file__).resolve():
            return  # the exceptions above are no evidence
        text = path.read_text(errors="replace")
        if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
            text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
            self.members |= set(re.findall(r"(?=\b(\w+)::(\w+))", text))
            for match in CLASS.finditer(text):
                self.members |= {(match.group(1), word) for word in re.findall(r"\w+", body_from(text, match.end()))}
        self.words |= set(re.findall(r"\w+", text))
        self.functions |= set(re.findall(r"(\w+)(?=\s*[(<{])", text))
        self.functions |= set(re.findall(r"ISOBAR_KERNEL\((\w+)", text))  # declares a function


def body_from(text, start):
    """From behind an opening brace to the one that closes it."""
    depth = 1
    for match in re.finditer(r"[{}]", text[start:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[start:start + match.start()]
    return text[start:]


def name_problem(text, sources):
    """Checked are a call, `f()` or `a.f(x)`; a qualified name, `A::b`; and a single word that is spelled like a name of
    code: CamelCase, snake_case, kConstant or MACRO_CASE. Other words are English."""
    if text in EXCEPTIONS:
        return None
    call = re.fullmatch(r"([A-Za-z_][\w.]*(?:::\w+)*)\((?s:.*)\)", text)
    name = call.group(1) if call else text
    if name in EXCEPTIONS or name.rpartition(".")[2] in EXCEPTIONS:
        return None
    if call:
        last = re.split(r"::|\.", name)[-1]
        if not last.startswith("x_") and last not in sources.functions:
            return f"{last}() is no function of the sources"
    if re.fullmatch(r"\w+(::\w+)+", name):
        parts = [part for part in name.split("::") if part not in NAMESPACES]
        for pair in zip(parts, parts[1:]):
            if pair not in sources.members:
                return f"{pair[0]} has no {pair[1]}"
        return None if set(parts) <= sources.words else f"{parts[0]} is no word of the sources"
    if name.startswith("x_"):  # the placeholder again: x_cost
        return None if any(word.endswith(name[1:]) for word in sources.words) else f"no op has a {name}"
    is_code = re.fullmatch(r"([A-Z]+[a-z0-9]+)+|k[A-Z]\w*|[a-z]\w*_\w+|_\w+|[A-Z][A-Z0-9]*_[A-Z0-9_]+", name)
    if is_code and not name.endswith("_") and name not in sources.words:
        return f"{name} is no word of the sources"
    return None


# ---- code -----------------------------------------------------------------------------------------------------------


def code_problem(name, block):
    """The lines stand in the file, in this order and next to each other, but for what "..." leaves out."""
    if not (ROOT / name).is_file():
        return f"{name} does not exist"
    lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
    begin = 0
    for part in re.split(r"^ *\.\.\. *$", block, flags=re.MULTILINE):
        wanted = [line.strip() for line in part.strip("\n").splitlines()]
        places = range(begin, len(lines) - len(wanted) + 1)
        found = next((i for i in places if lines[i:i + len(wanted)] == wanted), None)
        if found is None:
            return f"{name} has no such lines: {wanted[0].strip()} ..."
        begin = found + len(wanted)
    return None


def quoted(text):
    """(match, file, block) of every block of code that says where it is from."""
    for match in re.finditer(r"^<!-- from (\S+) -->\n```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield match, match.group(1), match.group(2)


def unmarked(text):
    """The blocks of C++ that do not say where they are from."""
    for match in re.finditer(r"(?<!-->\n)^```(?:cpp|c\+\+)\n", text, re.MULTILINE):
        yield match
    for match in re.finditer(r"^<!--(?! from \S+ -->| an example -->).*-->\n```(?:cpp|c\+\+)\n", text, re.MULTILINE):
        yield match


# ---- a page ---------------------------------------------------------------------------------------------------------


def problems(page, sources):
    whole = page.read_text()
    for match, name, block in quoted(whole):
        if problem := code_problem(name, block):
            yield f"{page.relative_to(ROOT)}:{whole.count(chr(10), 0, match.start()) + 1}: {problem}"
    for match in unmarked(whole):
        yield f"{page.relative_to(ROOT)}:{whole.count(chr(10), 0, match.start()) + 1}: a block of C++ does not say " \
            "where it is from"
    text = prose_of(whole)
    where = lambda match: f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
    for match in re.finditer(r"\]\(([^()\s]+)\)", text):
        if problem := link_problem(page, match.group(1)):
            yield f"{where(match)}: the link {match.group(1)} {problem}"
    for match in re.finditer(r"`([^`]+)`", text):
        code = " ".join(match.group(1).split())
        words = [word for i, word in enumerate(code.split()) if looks_like_path(word) and (i == 0 or "/" in word)]
        for word in words:
            if word not in EXCEPTIONS and (problem := path_problem(word)):
                yield f"{where(match)}: `{code}`: {problem}"
        # In a command or an expression of several words, only what is surely a name of code.
        names = [code]
        if " " in code and not re.fullmatch(r"[\w.:]+\(.*\)", code):
            sure = re.compile(r"\w+(::\w+)+|[a-z]+(_[a-z0-9]+)+")
            names = [word for word in re.split(r"[\s,;|()<>{}]+", code) if sure.fullmatch(word)]
        for name in names if not words else []:
            if problem := name_problem(name, sources):
                yield f"{where(match)}: `{code}`: {problem}"


def main():
    sources = Sources()
    found = [problem for page in pages() for problem in problems(page, sources)]
    print("\n".join(found) or f"docs: what {len(pages())} pages name exists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
