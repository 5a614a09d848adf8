"""Draws faults for C++ sources: small wrong versions of a statement, each behind `isobar_fault(NUMBER)`.

A fault is one of: an operator or a number replaced (`<` by `<=`, `+` by `-`, 4 by 5, min by max, a by b in f(a, b)), a
condition that is always or never met, a statement that is left out, a name in quotes that is misspelled. Lines are
drawn evenly over all lines of code that can take one, then the faults of that line evenly: nobody chooses suspicious
places.

The reading of C++ is simple (braces, parentheses, semicolons, written as clang-format lays them out). Where it is
mistaken, the fault does not compile and is dropped.
"""
import dataclasses
import random
import re

OPERATORS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "),
             (" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), (" % ", " / "), (" && ", " || "),
             (" || ", " && "), ("std::min(", "std::max("), ("std::max(", "std::min("), ("true", "false"),
             ("false", "true"), (" += ", " -= "), (" += ", " = "), (" -= ", " += ")]
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.'])")
REAL = re.compile(r"(?<![\w.])(\d+\.\d*(?:e-?\d+)?)(?![\w.])")
ARGUMENTS = re.compile(r"(?<=[\w>]\()([\w.>\[\]-]+(?:\(\))?), ([\w.>\[\]-]+(?:\(\))?)(?=[,)])")
NAME = re.compile(r'"([a-z_0-9.-]{2,40})"')
NOT = re.compile(r"(?<![\w!])!(?=[\w(])")


@dataclasses.dataclass
class Fault:
    path: str
    line: int  # of the change, from 1
    begin: int  # the statement's place in the file
    end: int
    original: str  # the statement
    wrong: str  # what the program does instead; for people
    written: str  # what replaces the statement, with @ for the fault's number


def masked(text):
    """The text with comments, the insides of strings and directives blanked; as long as the text."""
    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found[0] + "_" * (len(found) - 2) + found[-1]
        return re.sub(r"[^\n]", " ", found)
    pattern = (r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
               r'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*')
    return re.sub(pattern, blank, text, flags=re.S | re.M)


def statements(mask):
    """Yields (begin, end, opener) of statements: up to a semicolon (opener '') or to the brace of a block ('{')."""
    inside = []  # of every open bracket: '(' '[' 'list' 'block' 'enum'
    begin = 0
    starts = []
    for i, c in enumerate(mask):
        if c in "([":
            inside.append(c)
        elif c in ")]":
            if inside and inside[-1] in "([":
                inside.pop()
        elif c == "{":
            head = mask[begin:i]
            before = head.rstrip()
            keyword = re.match(r"\s*(?:template <[^{]*> )?(namespace|struct|class|enum|union|extern)\b", head)
            is_block = (re.search(r"(\)|\belse|\bdo|\btry|\]|\bconst|\bnoexcept|\boverride|\bmutable)$", before)
                        or re.search(r"\) -> [\w:<>&*, ]+$", before) or before == "")
            if keyword and not before.endswith(")") and "(" not in inside[-1:]:
                inside.append("enum" if keyword.group(1) == "enum" else "block")
                begin = i + 1
            elif is_block:
                if "(" not in inside[-1:]:
                    yield begin, i, "{"
                inside.append("block")
                starts.append(begin)
                begin = i + 1
            else:
                inside.append("list")
        elif c == "}":
            kind = inside.pop() if inside else "block"
            if kind in ("block", "enum"):
                begin = i + 1
        elif c == ";" and (not inside or inside[-1] == "block"):
            yield begin, i + 1, ""
            begin = i + 1


def top_level(text, what):
    """The places of `what` outside of brackets."""
    depth, found = 0, []
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and text.startswith(what, i):
            found.append(i)
    return found


def closing(mask, opening):
    """The place of the bracket that closes the one at `opening`, or -1."""
    depth = 0
    for i in range(opening, len(mask)):
        depth += (mask[i] in "([{") - (mask[i] in ")]}")
        if depth == 0:
            return i
    return -1


def changes(text, mask):
    """Yields (place, wrong text) for an expression: everything that can be wrong in it."""
    for old, new in OPERATORS:
        for match in re.finditer(re.escape(old), mask):
            at = match.start()
            if old in ("true", "false") and re.search(r"\w", mask[at - 1:at] + mask[match.end():match.end() + 1]):
                continue
            yield at, text[:at] + new + text[match.end():]
    for match in NUMBER.finditer(mask):
        value = int(match.group(1))
        for other in ({0: [1], 1: [0, 2], 2: [1, 3]}.get(value, [value + 1, value - 1])):
            yield match.start(), text[:match.start()] + str(other) + text[match.end():]
    for match in REAL.finditer(mask):
        yield match.start(), text[:match.start()] + "(1.25 * " + match.group(1) + ")" + text[match.end():]
    for match in ARGUMENTS.finditer(mask):
        a, b = match.groups()
        if a != b:
            yield match.start(), text[:match.start()] + b + ", " + a + text[match.end():]
    for match in NOT.finditer(mask):
        yield match.start(), text[:match.start()] + text[match.end():]
    for match in NAME.finditer(text):
        if mask[match.start()] == '"':
            yield match.start(1), text[:match.start(1)] + match.group(1) + "_" + text[match.end(1):]


def of_expression(text, mask):
    """Yields (place, wrong, the choice between both) for an expression."""
    for place, wrong in changes(text, mask):
        yield place, wrong, f"(isobar_fault(@) ? ({wrong}) : ({text}))"


def of_condition(text, mask):
    yield from of_expression(text, mask)
    for wrong in ("true", "false"):
        yield 0, wrong, f"(isobar_fault(@) ? {wrong} : static_cast<bool>({text}))"


def of_simple(text, mask):
    """Yields (place, wrong, written) for a statement that ends with a semicolon and has no head."""
    stripped = mask.strip()
    if re.match(r"(using|typedef|static_assert|friend|template|struct|class|enum|extern|namespace|goto|public|private|"
                r"protected)\b", stripped) or not re.search(r"\w", stripped):
        return
    if head := re.match(r"\s*(case\b[^:]*(?:::[^:]*)*:|default:)(?!:)\s*", mask):
        cut = head.end()
        for place, wrong, written in of_simple(text[cut:], mask[cut:]):
            yield cut + place, text[:cut] + wrong, text[:cut] + written
        return
    if head := re.match(r"\s*else\s+", mask):
        cut = head.end()
        for place, wrong, written in of_simple(text[cut:], mask[cut:]):
            yield cut + place, text[:cut] + wrong, text[:cut] + "{ " + written + " }"
        return
    if head := re.match(r"\s*(?:if|while) (?=\()", mask):
        yield from of_head(text, mask, head.end())
        return
    if re.match(r"\s*(for|do|switch|else)\b", mask):
        if head := re.match(r"\s*for (?=\()", mask):
            yield from of_loop(text, mask, head.end())
        return
    if head := re.match(r"\s*return\b\s*", mask):
        cut, end = head.end(), mask.rindex(";")
        if cut < end:
            for place, wrong in changes(text[cut:end], mask[cut:end]):
                wrong = text[:cut] + wrong + ";"
                yield cut + place, wrong, f"if (isobar_fault(@)) {{ {wrong} }}{text}"
        else:
            yield len(text) - len(text.lstrip()), "", f"if (!isobar_fault(@)) {text}"
        return
    first = top_level(mask, " = ")
    before = mask[:first[0]].strip() if first else ""
    end = mask.rindex(";")
    if first and re.search(r"[\w>&*] [&*]?\w+$|^auto|\]$", before) and " " in before:  # a declaration
        cut = first[0] + 3
        head = re.sub(r"\bconstexpr\b", "const", text[:cut])
        kind = re.sub(r"\b(static|const|constexpr|inline|thread_local)\b", "", before)
        kind = kind[:-len(before.split(" ")[-1])].strip(" &")
        for place, wrong, chosen in of_expression(text[cut:end], mask[cut:end]):
            if text[cut] == "{":
                chosen = f"isobar_fault(@) ? {kind}{wrong} : {kind}{text[cut:end]}"
            yield cut + place, text[:cut] + wrong + ";", head + chosen + ";"
        return
    words = r"(?:const |static |inline |mutable |virtual |explicit |\[\[\w+\]\] )*"
    is_declaration = re.match(r"\s*" + words + r"[\w:]+(?:<.*>)?[&*]* [&*]?\w+\s*[({;\[]", mask, re.S)
    if is_declaration and not re.match(r"\s*(throw|delete|co_\w+)\b", mask):
        return  # a declaration without an initial value, or with one in brackets
    indent = len(text) - len(text.lstrip())
    yield indent, "", f"if (!isobar_fault(@)) {text}"
    for place, wrong in changes(text, mask):
        yield place, wrong, f"if (isobar_fault(@)) {{ {wrong} }} else {{ {text} }}"


def of_head(text, mask, opening):
    """if (CONDITION) STATEMENT, or while."""
    close = closing(mask, opening)
    if close < 0:
        return
    condition, hidden = text[opening + 1:close], mask[opening + 1:close]
    if not top_level(hidden, " = ") and ";" not in hidden and not text[:opening].rstrip().endswith("constexpr"):
        for place, wrong, chosen in of_condition(condition, hidden):
            yield (opening + 1 + place, text[:opening + 1] + wrong + text[close:],
                   text[:opening + 1] + chosen + text[close:])
    rest, hidden = text[close + 1:], mask[close + 1:]
    if hidden.strip() and hidden.strip() != ";":
        for place, wrong, written in of_simple(rest, hidden):
            yield close + 1 + place, text[:close + 1] + wrong, text[:close + 1] + " { " + written + " }"


def of_loop(text, mask, opening):
    """for (BEGIN; CONDITION; STEP) ...: the condition."""
    close = closing(mask, opening)
    parts = [opening + 1 + i for i in top_level(mask[opening + 1:close], ";")]
    if close < 0 or len(parts) != 2:
        return
    begin, end = parts[0] + 1, parts[1]
    for place, wrong, chosen in of_expression(text[begin:end], mask[begin:end]):
        yield begin + place, text[:begin] + wrong + text[end:], text[:begin] + " " + chosen + text[end:]


def of_statement(text, mask, opener):
    if opener == "":
        yield from of_simple(text, mask)
        return
    head = re.match(r"\s*(?:else )?(?:if|while) (?=\()", mask)
    if head:
        yield from of_head(text, mask, head.end())
    elif head := re.match(r"\s*for (?=\()", mask):
        yield from of_loop(text, mask, head.end())


def faults_of(path, text):
    """All faults that this file can take."""
    mask, found = masked(text), []
    for begin, end, opener in statements(mask):
        begin += len(mask[begin:end]) - len(mask[begin:end].lstrip())  # comments before it too
        try:
            for place, wrong, written in of_statement(text[begin:end], mask[begin:end], opener):
                at = begin + place
                while at < end and text[at].isspace():
                    at += 1
                found.append(Fault(path, text.count("\n", 0, at) + 1, begin, end, text[begin:end], wrong, written))
        except ValueError:
            continue
    return found


def overlaps(fault, others):
    return any(fault.path == o.path and fault.begin < o.end and o.begin < fault.end for o in others)


def draw(sources, count, seed):
    """`count` faults (fewer where there are no more places) of {path: text}, at most one a statement."""
    lines = {}
    for path in sorted(sources):
        for fault in faults_of(path, sources[path]):
            lines.setdefault((path, fault.line), []).append(fault)
    generator, drawn = random.Random(seed), []
    places = sorted(lines)
    generator.shuffle(places)
    for place in places:
        if len(drawn) == count:
            break
        fault = generator.choice(lines[place])
        if not overlaps(fault, drawn):
            drawn.append(fault)
    return drawn


def written(sources, entries):
    """Faults that somebody wrote: [{"path": .., "original": what stands once in that file, "written": what replaces it,
    with isobar_fault(@), "wrong": the faulty version, for people}]."""
    faults = []
    for entry in entries:
        text, original = sources[entry["path"]], entry["original"]
        if text.count(original) != 1:
            raise ValueError(f"{entry['path']}: stands {text.count(original)} times in it: {original}")
        begin = text.index(original)
        faults.append(Fault(entry["path"], text.count("\n", 0, begin) + 1, begin, begin + len(original), original,
                            entry["wrong"], entry["written"]))
        if overlaps(faults[-1], faults[:-1]):
            raise ValueError(f"{entry['path']}: lies within another fault: {original}")
    return faults


def planted(text, faults):
    """The text with these faults, {number: fault}, all of this file; and of every fault the lines it takes."""
    spans, shift, added = {}, 0, 0
    for number, fault in sorted(faults.items(), key=lambda item: item[1].begin):
        begin, end = fault.begin + shift, fault.end + shift
        new = fault.written.replace("@", str(number))
        text = text[:begin] + new + text[end:]
        shift += len(new) - (fault.end - fault.begin)
        first = text.count("\n", 0, begin) + 1
        spans[number] = (first, first + new.count("\n"))
    return text, spans
