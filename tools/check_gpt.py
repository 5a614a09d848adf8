#!/usr/bin/env python3
"""Compares whole runs of isobar's GPT with PyTorch and with Hugging Face's transformers. Nothing that is built or
tested needs it.

    pip install torch transformers numpy
    python3 tools/check_gpt.py --isobar build/apps/isobar --data DIR

DIR holds gpt2_encoder.json, gpt2_vocab.bpe (GPT-2's vocabulary and merges), wikitext2_test.txt and wikitext2_valid.txt.
Exit status 77 (skipped) without --data, as scripts/test calls it, or without one of the packages. Minutes.

    losses     the config wikitext on token files, from weights that PyTorch has drawn, beside PyTorch's own training:
               the samples by a walk over the documents as Megatron has it, with numpy's shuffles; GPT-2 as
               tools/reference_gpt.py has it; AdamW, clipping and rates as the config says
    folders    weights convert --to hf, opened by GPT2LMHeadModel.from_pretrained, gives isobar's loss; what its
               save_pretrained writes starts a run with that loss
    greedy     the ids that generate --greedy writes after 100 prompts are those of transformers' generate
    command    isobar pretrain-gpt with the flags of a Megatron-LM run on 2 x 2 ranks (tensor parallel, pipeline), all
               dropouts 0: its first losses in fp64 are PyTorch's, with Megatron-LM's rates (the first update's is 0: a
               warm-up that begins there) and its padded rows, which count
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
if "--data" not in sys.argv and not {"-h", "--help"} & set(sys.argv):
    print("gpt: skipped, it needs --isobar and --data (GPT-2's vocabulary and texts)")
    sys.exit(SKIPPED)
try:
    import numpy
    import torch
    import transformers
except ImportError as error:
    print(f"gpt: skipped, {error.name} is not installed")
    sys.exit(SKIPPED)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import reference_gpt  # noqa: E402
import safetensors_file  # noqa: E402

SEED, WIDTH, DEPTH, HEADS, TOKENS, BATCH = 1234, 128, 4, 4, 128, 8
VOCABULARY, COLUMNS = 50257, 50304
BASE, END, WARMUP = 1e-3, 1e-4, 100
VALID_BYTES = 60000  # of the validation text: minutes in fp64 for all of it
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 100, 40, 24
BOUNDS = {"fp32": (200, 0.02), "fp64": (20, 1e-9)}  # iterations, and the largest difference of a loss
EXACT = 1e-12  # of a loss in fp64, relative
COMMAND_RATE, COMMAND_END, COMMAND_ITERATIONS, COMMAND_WARMUP, COMPARED = 1e-3, 1e-5, 100, 5, 10

failures = []


def check(is_right, what):
    print(("ok      " if is_right else "WRONG   ") + what, flush=True)
    if not is_right:
        failures.append(what)


class Isobar:
    def __init__(self, program, data, folder):
        self.program, self.data, self.folder = program, data, folder

    def __call__(self, *arguments):
        done = subprocess.run([str(a) for a in (self.program, *arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"isobar {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def tokens_of(self, text, name):
        """A token file of a text whose documents have a line with a space between them."""
        self("data", "preprocess", "--text", "--separator", " ", "--append-eod", "--input", text, "--output-prefix",
             self.folder / name, "--tokenizer-type", "gpt2_bpe", "--vocab-file", self.data / "gpt2_encoder.json",
             "--merge-file", self.data / "gpt2_vocab.bpe")
        return self.folder / f"{name}_text_document"

    def train(self, run, init, **keys):
        sets = {"train_token_path": self.folder / "train_text_document", "valid_token_path": self.folder /
                "valid_text_document", "vocab_file": self.data / "gpt2_encoder.json", "merge_file": self.data /
                "gpt2_vocab.bpe", "log_every": 1, "num_data_workers": 0, "keep_checkpoints": 1,
                "warmup": warmup_of(keys["num_iters"]), **keys}
        flags = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        self("train", "--config", "wikitext", "--run-dir", self.folder / run, "--init", init, "--device", "cpu", *flags)
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        return {event: [line["loss"] for line in lines if line["event"] == event] for event in ("train", "valid")}


def documents_of(prefix):
    """The tokens of each sequence of a token file of uint16."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    count = int.from_bytes(index[18:26], "little")
    lengths = numpy.frombuffer(index, numpy.int32, count, 34)
    return numpy.split(numpy.fromfile(f"{prefix}.bin", numpy.uint16).astype(numpy.int64), numpy.cumsum(lengths)[:-1])


def samples_of(documents, wanted):
    """wanted samples of TOKENS + 1 tokens, or (None) all of one epoch, in Megatron's order."""
    per_epoch = sum(map(len, documents))
    epochs = 1 if wanted is None else math.ceil((wanted * TOKENS + 1) / per_epoch)
    assert epochs == 1, "the walk below is over one epoch"
    random = numpy.random.RandomState(SEED)
    order = numpy.arange(len(documents), dtype=numpy.int32)
    random.shuffle(order)
    stream = numpy.concatenate([documents[d] for d in order])
    count = (per_epoch - 1) // TOKENS
    shuffle = numpy.arange(count, dtype=numpy.uint32)
    random.shuffle(shuffle)
    chosen = shuffle if wanted is None else shuffle[:wanted]
    return torch.tensor(numpy.stack([stream[i * TOKENS:(i + 1) * TOKENS + 1] for i in chosen.astype(numpy.int64)]))


def drawn_model(live=False):
    torch.manual_seed(7)
    model = reference_gpt.GPT(VOCABULARY, COLUMNS, TOKENS, WIDTH, DEPTH, HEADS, WIDTH // HEADS, 4 * WIDTH, "tanh", True,
                              True, live)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.constant_(parameter, 1.0 if name.endswith("weight") else 0.0)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
        else:
            is_last = name.endswith(("proj.weight", "fc2.weight"))
            torch.nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * DEPTH) if is_last else 0.02)
    return model


def warmup_of(iterations):
    return min(WARMUP, iterations // 2)


def cosine(done, base, end):
    """done: the share of the decay that is over."""
    return end + (base - end) * 0.5 * (1 + math.cos(math.pi * done))


def rate(updates, iterations):
    warmup = warmup_of(iterations)
    if updates < warmup:
        return BASE * (updates + 1) / (warmup + 1)
    return cosine((updates - warmup) / (iterations - warmup), BASE, END)


def command_rate(updates):
    """Megatron-LM's cosine behind a linear warm-up from 0, in the place of update `updates`, counted from 0."""
    if updates <= COMMAND_WARMUP:
        return COMMAND_RATE * updates / COMMAND_WARMUP
    return cosine((updates - COMMAND_WARMUP) / (COMMAND_ITERATIONS - COMMAND_WARMUP), COMMAND_RATE, COMMAND_END)


def losses_of(model, samples, rates, weight_decay, betas):
    """The loss of each update, one for each rate."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": weight_decay},
                                   {"params": others, "weight_decay": 0.0}], betas=betas, eps=1e-8)
    losses = []
    for iteration, its_rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = its_rate
        batch = samples[iteration * BATCH:(iteration + 1) * BATCH]
        loss = model.loss(model(batch[:, :-1]), batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_losses(isobar, init):
    """Returns the weights of the run in fp64."""
    documents = documents_of(isobar.folder / "train_text_document")
    for dtype, (iterations, bound) in BOUNDS.items():
        samples = samples_of(documents, iterations * BATCH)
        begin = time.perf_counter()
        ours = isobar.train(dtype, init, dtype=dtype, num_iters=iterations, eval_iters=1)["train"]
        between = time.perf_counter()
        model = drawn_model()
        theirs = losses_of(model.to(getattr(torch, {"fp32": "float32", "fp64": "float64"}[dtype])), samples,
                           [rate(updates, iterations) for updates in range(iterations)], 0.1, (0.9, 0.95))
        end = time.perf_counter()
        largest = max(abs(a - b) for a, b in zip(ours, theirs))
        check(len(ours) == iterations and largest <= bound,
              f"{dtype}: {iterations} losses, {ours[0]:.4f} to {ours[-1]:.4f}, within {largest:.2g} of PyTorch's "
              f"({between - begin:.0f} s, PyTorch {end - between:.0f} s)")


def loss_of(model, samples):
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in samples.split(BATCH):
            logits = model(batch[:, :-1]).logits.flatten(0, 1)
            total += torch.nn.functional.cross_entropy(logits, batch[:, 1:].flatten(), reduction="sum").item()
            count += batch.shape[0] * TOKENS
    return total / count


def check_folders(isobar, init):
    """Returns the folder for transformers, and the model in it."""
    ours = isobar.train("exact", init, dtype="fp64", num_iters=1, lr=0, end_lr=0)["valid"][-1]
    there = isobar.folder / "hf"
    isobar("weights", "convert", "--in", isobar.folder / "exact", "--to", "hf", "--out", there)
    model = transformers.GPT2LMHeadModel.from_pretrained(there, torch_dtype=torch.float64).eval()
    samples = samples_of(documents_of(isobar.folder / "valid_text_document"), None)
    theirs = loss_of(model, samples)
    check(abs(ours - theirs) <= EXACT * theirs, f"from_pretrained: loss {theirs:.13f}, isobar's {ours:.13f}, "
          f"{abs(ours - theirs) / theirs:.2g} apart, over {samples.shape[0]} samples")
    tokenizer = transformers.AutoTokenizer.from_pretrained(there)
    text = "It didn't move.  Two spaces, 3 numbers."
    ids = isobar("data", "tokens", "--text", text, "--tokenizer-type", "gpt2_bpe", "--vocab-file",
                 isobar.data / "gpt2_encoder.json", "--merge-file", isobar.data / "gpt2_vocab.bpe").split()
    check(tokenizer(text)["input_ids"] == list(map(int, ids)), "the folder's tokenizer gives isobar's ids")
    back = isobar.folder / "back"
    model.save_pretrained(back)
    again = isobar.train("again", back, dtype="fp64", num_iters=1, lr=0, end_lr=0)["valid"][0]
    check(abs(again - theirs) <= EXACT * theirs, f"save_pretrained: a run from it begins at {again:.13f}, "
          f"{abs(again - theirs) / theirs:.2g} apart")
    return model


def check_greedy(isobar, model):
    documents = [d for name in ("valid", "train") for d in documents_of(isobar.folder / f"{name}_text_document")
                 if len(d) > PROMPT_TOKENS]
    prompts = [d[:1 + (7 * i) % PROMPT_TOKENS] for i, d in enumerate(documents)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(isobar.folder / "hf")
    texts = [tokenizer.decode(p.tolist(), clean_up_tokenization_spaces=False) for p in prompts]
    # A part of a character, or of a word, may be other tokens once it is a text.
    kept = [i for i, text in enumerate(texts) if tokenizer(text)["input_ids"] == prompts[i].tolist()][:PROMPTS]
    (isobar.folder / "prompts.jsonl").write_text("".join(json.dumps({"text": texts[i]}) + "\n" for i in kept))
    said = isobar("generate", "--weights", isobar.folder / "exact", "--device", "cpu", "--greedy", "--max-tokens",
                  NEW_TOKENS, "--in", isobar.folder / "prompts.jsonl", "--out", isobar.folder / "texts.jsonl")
    ours = [json.loads(line)["tokens"] for line in (isobar.folder / "texts.jsonl").read_text().splitlines()]
    begin = time.perf_counter()
    theirs, tokens = [], 0
    for i in kept:
        ids = torch.tensor(prompts[i])[None]
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False,
                               pad_token_id=VOCABULARY - 1)[0]
        theirs.append(found.tolist())
        tokens += len(theirs[-1]) - len(prompts[i])
    seconds = time.perf_counter() - begin
    same = sum(a == b for a, b in zip(ours, theirs))
    check(same == len(theirs) == len(ours) == PROMPTS,
          f"greedy: {same} of {len(theirs)} texts are those of transformers; {said.strip().split(': ', 1)[1]}; "
          f"transformers {tokens / seconds:.1f} tokens/s, one at a time")


def check_command(isobar, init):
    words = f"""
        --ranks 4 --device cpu --threads 1 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
        --num-layers {DEPTH} --hidden-size {WIDTH} --num-attention-heads {HEADS} --seq-length {TOKENS}
        --max-position-embeddings {TOKENS} --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 2
        --global-batch-size {BATCH} --train-iters {COMMAND_ITERATIONS} --exit-interval {COMPARED}
        --lr {COMMAND_RATE} --min-lr {COMMAND_END} --lr-decay-style cosine --lr-decay-iters {COMMAND_ITERATIONS}
        --lr-warmup-iters {COMMAND_WARMUP} --weight-decay 0.01 --clip-grad 1.0 --tokenizer-type GPT2BPETokenizer
        --vocab-file {isobar.data / "gpt2_encoder.json"} --merge-file {isobar.data / "gpt2_vocab.bpe"}
        --train-data-path {isobar.folder / "train_text_document"} --log-interval 1 --eval-iters 1
        --valid-data-path {isobar.folder / "valid_text_document"} --save {isobar.folder / "command"}
        --save-interval {COMMAND_ITERATIONS}
        --finetune --load {init} --set dtype=fp64""".split()
    isobar("pretrain-gpt", *words)
    lines = map(json.loads, (isobar.folder / "command" / "metrics.jsonl").read_text().splitlines())
    ours = [line["loss"] for line in lines if line["event"] == "train"]
    samples = samples_of(documents_of(isobar.folder / "train_text_document"), COMMAND_ITERATIONS * BATCH)
    theirs = losses_of(drawn_model(live=True).double(), samples, map(command_rate, range(COMPARED)), 0.01,
                       (0.9, 0.999))
    largest = max(abs(a - b) for a, b in zip(ours, theirs))
    check(len(ours) == COMPARED and largest <= BOUNDS["fp64"][1],
          f"pretrain-gpt on 2 x 2 ranks, fp64: {COMPARED} losses, {ours[0]:.4f} to {ours[-1]:.4f}, within "
          f"{largest:.2g} of PyTorch's")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        isobar = Isobar(options.isobar.resolve(), options.data.resolve(), pathlib.Path(folder))
        isobar.tokens_of(options.data / "wikitext2_test.txt", "train")
        short = isobar.folder / "valid.txt"
        text = (options.data / "wikitext2_valid.txt").read_text()[:VALID_BYTES]
        short.write_text(text[:text.rindex("\n \n")] + "\n")
        isobar.tokens_of(short, "valid")
        init = isobar.folder / "init.safetensors"
        safetensors_file.save({name: p.detach() for name, p in drawn_model().named_parameters()}, init)
        check_command(isobar, init)
        check_losses(isobar, init)
        trained = isobar.folder / "fp32" / "best" / "model.safetensors"
        check_greedy(isobar, check_folders(isobar, trained))
    print(f"{len(failures)} wrong" if failures else "gpt: all equal")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
