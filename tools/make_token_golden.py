#!/usr/bin/env python3
"""Makes tests/golden/tokens.json: a small byte-level vocabulary, and the ids that tiktoken gives texts with it.
tests/data/text/gpt2_tokenizer_test.cc reads them; nobody needs tiktoken to run it.

    pip install tiktoken==0.14.0 regex && python3 tools/make_token_golden.py

In the file: "vocab" {token: id} and "merges" [line] as GPT-2's two files write them, "cases" [{"text", "ids"}].
"""
import collections
import json
import pathlib
import random

import regex
import tiktoken

TARGET = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokens.json"
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
RULES = 300  # fewer where all words of the lesson are tokens
EOD = "<|endoftext|>"

# What the rules are learned from: written for this file.
LESSON = """The sea was calm, and the boat didn't move. "We'll wait," said the captain; they'd waited before.
In 2024 the harbour had 1,250 boats, in 1999 only 300. It's the wind that they're after, and I've seen it come,
he'd say: I'm sure it'll come. The children shouted aaaaaaaaaaaa and hahahahahaha, and the gulls answered.
    Indented lines have four spaces,\tor a tab.  Two spaces end a sentence.  The wind came; the sea rose.
Der Wind kam spät, und die Möwen flogen über das Haus. Le vent était tombé; l'été finissait. Море было тихим.
海は静かだった。風が来た。""" * 2


def letters_of_bytes():
    """The printable character that stands for each byte."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in own}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + byte - sum(o < byte for o in own)))
    return letters


def joined(parts, left, right):
    """The parts with every `left`, `right` as one, from the left."""
    out = []
    for part in parts:
        if out and out[-1] == left and part == right:
            out[-1] = left + right
        else:
            out.append(part)
    return tuple(out)


def learned_rules():
    """Pairs of tokens, as bytes: the most frequent pair of the lesson becomes a token, again and again."""
    words = collections.Counter(tuple(bytes([b]) for b in word.encode()) for word in regex.findall(PATTERN, LESSON))
    rules, made = [], set()
    while len(rules) < RULES:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = max((p for p in pairs if p[0] + p[1] not in made), key=lambda p: (pairs[p], p), default=None)
        if best is None:
            break
        rules.append(best)
        made.add(best[0] + best[1])
        shorter = collections.Counter()
        for word, n in words.items():
            shorter[joined(word, *best)] += n
        words = shorter
    return rules


def texts():
    yield from ["", " ", "  ", "a", " a", "  a", "a ", "a  ", "\n", "\n\n", "a\n", "a\n\nb", "\t\ta", " \n a", "a \n",
                "it's we'll I'm they're I've he'd don't 'tis", "IT'S WE'LL", "'s't're've'm'll'd", "''s", " 's",
                "it\u2019s", "'x", "'", " '", "'l", "'r'v", "x'sy", "1 2 33 4a b5", "\u00b2 \u2167 x\u00b2",
                "e\u0301 \u0301 a\u0308", "\u00a0a \u3000b \u2028c\u0085", "\u001ca\u200bb", "\ufeffx",
                "Hello, world!!! (foo) [bar] #1 @x", "...   ...", "  !", "\u00a0!", EOD, "a" + EOD + "b",
                "\U0001f600 \U0001f468\u200d\U0001f469", "Möwen über été Море 海は", "\x00\x01\x7f", "\u0378 \U0010ffff"]
    yield from (piece * n for piece in ("a", "ha", "aab", " ", "1", "the", "é", "!?") for n in (31, 64, 65, 127, 1000))
    draw = random.Random(7)
    kinds = ["abcdehtins", "ABCS", "0123456789", "   \n\t", "'", ".,;!?-", "éüöМо海風", "\u00a0\u3000\u0301\u200b²Ⅷ"]
    for _ in range(200):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(1, 60)))
    for _ in range(40):  # any code points
        yield "".join(chr(draw.choice([draw.randrange(0x80), draw.randrange(0x3000), draw.randrange(0xe000, 0x110000)]))
                      for _ in range(40))
    words = ["the ", "wind ", "captain", "didn't ", "haha", "spät", "  ", "1999", "\n", "море ", "aaaa"]
    for _ in range(10):  # long pieces, whose merges are found in another way
        yield "".join(draw.choice("aht") for _ in range(500)) + "".join(draw.choice(words) for _ in range(50))


def main():
    letters = letters_of_bytes()
    spelled = lambda token: "".join(letters[b] for b in token)
    rules = learned_rules()
    tokens = [bytes([b]) for b in range(256)] + [left + right for left, right in rules]
    encoding = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks={t: i for i, t in enumerate(tokens)},
                                 special_tokens={EOD: len(tokens)})
    cases = [{"text": text, "ids": encoding.encode_ordinary(text)} for text in texts()]
    vocab = {spelled(token): i for i, token in enumerate(tokens)} | {EOD: len(tokens)}
    merges = [f"{spelled(left)} {spelled(right)}" for left, right in rules]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    TARGET.write_text(f'{{"vocab":{json.dumps(vocab)},\n"merges":{json.dumps(merges)},\n"cases":[\n{lines}\n]}}\n',
                      encoding="utf-8")
    print(f"{TARGET.name}: {len(tokens) + 1} tokens, {len(cases)} cases, "
          f"{sum(len(case['ids']) for case in cases)} ids, tiktoken {tiktoken.__version__}")


if __name__ == "__main__":
    main()
