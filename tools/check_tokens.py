#!/usr/bin/env python3
"""Compares isobar's tokens, token files and sample indices with tiktoken and with known hashes, and its speed with
tiktoken's. Nothing that is built or tested needs it.

    pip install tiktoken==0.14.0 numpy
    python3 tools/check_tokens.py --isobar build/apps/isobar --data DIR       minutes
    python3 tools/check_tokens.py ... --gigabyte                              and 1 GB of JSON lines, in bounded memory

DIR holds gpt2_encoder.json, gpt2_vocab.bpe (GPT-2's vocabulary and merges), tinyshakespeare.txt, wikitext2_valid.txt
and wikitext2_test.txt. Exit status 77 (skipped) without --data, as scripts/test calls it, or without tiktoken.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
if "--data" not in sys.argv and not {"-h", "--help"} & set(sys.argv):
    print("tokens: skipped, it needs --isobar and --data (GPT-2's vocabulary and texts)")
    sys.exit(SKIPPED)
try:
    import numpy
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
except ImportError as error:
    print(f"tokens: skipped, {error.name} is not installed")
    sys.exit(SKIPPED)

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXTS = {"tinyshakespeare": (338025, "25c01b32b32f4189"), "wikitext2_valid": (258659, "17bc83b54d943c68"),
         "wikitext2_test": (295877, "33d3634d89dfb45a")}  # ids, sha256 of them as uint16
SPEECHES = {"bin": "4bbfe2d73ddcc539", "idx": "c0d001bf3890c1e3"}
# sha256 of document, sample and shuffle index of the speeches: 949,50,1; T 128; seed 1234; 2400, 80, 80 samples.
INDEX = {"train_indexmap_2400ns": ("c7802daecbef1319", "021fd8c1011bfa35", "08c8e30a75ff7073"),
         "valid_indexmap_80ns": ("815935d9fa575ecd", "c6a22d77c7776f68", "611a25c50cd2de06"),
         "test_indexmap_80ns": ("32ed7604c5cedfc4", "677ea7f8d3d99da0", "914fa552f3c3ecc0")}
LONGEST_SECONDS = 5  # for 16 MB of one letter
LARGEST_MEMORY = 300  # MB, for 1 GB of JSON lines
LEAST_RATIO = 3  # of tiktoken's speed, on one thread

failures = []


def check(is_right, what):
    print(("ok      " if is_right else "WRONG   ") + what, flush=True)
    if not is_right:
        failures.append(what)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


class Isobar:
    def __init__(self, program, data):
        self.program = program
        self.tokenizer = ["--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", data / "gpt2_encoder.json",
                          "--merge-file", data / "gpt2_vocab.bpe"]

    def __call__(self, *arguments, tokenizer=True):
        command = [self.program, "data", *arguments, *(self.tokenizer if tokenizer else [])]
        return subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout


def read_token_file(prefix):
    """The tokens of each sequence of a file of uint16."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    count = int.from_bytes(index[18:26], "little")
    lengths = numpy.frombuffer(index, numpy.int32, count, 34)
    tokens = numpy.fromfile(f"{prefix}.bin", numpy.uint16)
    return numpy.split(tokens, numpy.cumsum(lengths)[:-1])


def fastest(work, turns=10):
    best = float("inf")
    for _ in range(turns):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def check_texts(isobar, encoding, data, folder):
    for name, (count, expected) in TEXTS.items():
        path = data / f"{name}.txt"
        text = path.read_bytes().decode()
        ids = list(map(int, isobar("tokens", path).split()))
        stored = numpy.array(ids, numpy.uint16).tobytes()
        check(len(ids) == count and digest(stored) == expected, f"{name}: {count} ids")
        check(ids == encoding.encode_ordinary(text), f"{name}: equal to tiktoken's one by one")
        (folder / "ids").write_text(" ".join(map(str, ids)))
        check(isobar("tokens", "--decode", folder / "ids") == path.read_bytes(), f"{name}: decoded to the same bytes")
        theirs = len(text.encode()) / 1e6 / fastest(lambda: encoding.encode_ordinary(text))
        ours = float(isobar("tokens", "--speed", path).split()[-2])
        check(ours >= LEAST_RATIO * theirs,
              f"{name}: {ours:.1f} MB/s, tiktoken {theirs:.1f}: {ours / theirs:.1f} times as fast")
    (folder / "letters").write_text("a" * (16 << 20))
    begin = time.perf_counter()
    isobar("tokens", folder / "letters")
    seconds = time.perf_counter() - begin
    check(seconds <= LONGEST_SECONDS, f"16 MB of one letter: {seconds:.1f} s, the whole command")


def random_texts():
    draw = random.Random(11)
    kinds = ["abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "0123456789", "    \n\t\r", "'", "'s'll", ".,;!?-()[]#",
             "éüöñçМоя海風", "\u00a0\u3000\u2028\u0085\u0301\u200b²Ⅷ½٣", "\U0001f600\U0001f468\u200d"]
    for _ in range(20000):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(1, 80)))
    for _ in range(2000):
        yield "".join(draw.choice("ahstei") for _ in range(draw.randrange(60, 3000)))
    code_points = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for _ in range(2000):
        yield "".join(draw.choice(code_points) for _ in range(60))
    for first in range(0, len(code_points), 5000):  # each between a letter, a number and blanks
        yield "".join(f"a{c}1{c}{c} {c}" for c in code_points[first:first + 5000])


def check_random_texts(isobar, encoding, folder):
    texts = list(random_texts())
    with open(folder / "random.jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    isobar("preprocess", "--input", folder / "random.jsonl", "--output-prefix", folder / "random", "--workers", 2)
    found = read_token_file(folder / "random_text_document")
    different = [text for text, ids in zip(texts, found) if ids.tolist() != encoding.encode_ordinary(text)]
    check(len(found) == len(texts) and not different,
          f"{len(texts)} random texts, every code point among them: {len(different)} differ {different[:1]!r}")


def check_token_files(isobar, data, folder):
    for workers in (1, 2, 7):
        isobar("preprocess", "--input", data / "tinyshakespeare.txt", "--text", "--separator", "", "--append-eod",
               "--output-prefix", folder / "speeches", "--workers", workers, "--overwrite")
        for suffix, expected in SPEECHES.items():
            found = digest((folder / f"speeches_text_document.{suffix}").read_bytes())
            check(found == expected, f"7,222 speeches, {workers} workers: .{suffix}")
    for rule in ("legacy", "core"):
        isobar("index", folder / "speeches_text_document", "--seq-length", 128, "--split", "949,50,1", "--samples",
               "2400,80,80", "--rule", rule, "--out", folder / rule, tokenizer=False)
        for name, expected in INDEX.items():
            for kind, hash_of in zip(("doc", "sample", "shuffle"), expected):
                array = numpy.load(folder / rule / f"speeches_text_document_{name}_128sl_1234s_{kind}_idx.npy")
                check(digest(array.tobytes()) == hash_of, f"{rule}: {name} {kind}_idx, {array.shape} {array.dtype}")


def check_gigabyte(isobar, data, folder):
    line = json.dumps({"text": (data / "wikitext2_valid.txt").read_text()[:20000], "meta": {"id": 1}}) + "\n"
    with open(folder / "large.jsonl", "w") as file:
        for _ in range(10**9 // len(line.encode()) + 1):
            file.write(line)
    for workers in (1, 2):
        begin = time.perf_counter()
        child = os.posix_spawn(isobar.program, [str(a) for a in [
            isobar.program, "data", "preprocess", "--input", folder / "large.jsonl", "--output-prefix",
            folder / f"large{workers}", "--append-eod", "--workers", workers, *isobar.tokenizer]], os.environ)
        _, status, usage = os.wait4(child, 0)
        seconds = time.perf_counter() - begin
        speed = (folder / "large.jsonl").stat().st_size / 1e6 / seconds
        check(status == 0 and usage.ru_maxrss / 1024 <= LARGEST_MEMORY,
              f"1 GB of JSON lines, {workers} workers: {usage.ru_maxrss / 1024:.0f} MB of memory, {speed:.1f} MB/s; "
              f"{seconds:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} s of the processors")
    files = [[folder / f"large{w}_text_document.{suffix}" for w in (1, 2)] for suffix in ("bin", "idx")]
    same = all(one.read_bytes() == two.read_bytes() for one, two in files)
    check(same, "1 GB of JSON lines: the same files")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--gigabyte", action="store_true")
    parser.add_argument("--temporary", help="folder for files that are removed at the end")
    options = parser.parse_args()
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=str(options.data / "gpt2_vocab.bpe"),
                                            encoder_json_file=str(options.data / "gpt2_encoder.json"))
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    isobar = Isobar(options.isobar.resolve(), options.data)
    with tempfile.TemporaryDirectory(dir=options.temporary) as name:
        folder = pathlib.Path(name)
        check_texts(isobar, encoding, options.data, folder)
        check_random_texts(isobar, encoding, folder)
        check_token_files(isobar, options.data, folder)
        if options.gigabyte:
            check_gigabyte(isobar, options.data, folder)
    print(f"{len(failures)} wrong" if failures else "all right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
