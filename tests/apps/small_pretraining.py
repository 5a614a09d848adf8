"""What runs of `isobar pretrain-gpt` in tests are made of: a small model, and a token file."""
import json
import random
import subprocess

MODEL = ("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
         "--micro-batch-size 2 --global-batch-size 8 --lr 6e-3 --lr-decay-style cosine --lr-warmup-fraction .01 "
         "--tokenizer-type bytes --split 90,5,5 --threads 1 --make-vocab-size-divisible-by 64").split()


def write_tokens(isobar, folder):
    """Makes a token file of 80 documents in the folder; returns its path without the ending, as --data-path has it."""
    numbers = random.Random(5)
    with open(folder / "text.jsonl", "w") as text:
        for _ in range(80):
            words = " ".join(numbers.choice(["alpha", "beta", "gamma"]) for _ in range(20))
            text.write(json.dumps({"text": words}) + "\n")
    subprocess.run([isobar, "data", "preprocess", "--input", folder / "text.jsonl", "--output-prefix", folder / "p",
                    "--tokenizer-type", "bytes", "--append-eod"], check=True, capture_output=True)
    return folder / "p_text_document"
