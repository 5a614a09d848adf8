#!/usr/bin/env python3
"""Checkpoints of Megatron-LM (its format `torch`) and of nanoGPT as weights for isobar, and back.

    python3 tools/megatron_checkpoint.py from-megatron CKPT weights.safetensors [--rows 50257] [--moments m.safetensors]
    python3 tools/megatron_checkpoint.py to-megatron RUN/iter_0000100 CKPT --heads 12 [--tp 2 --pp 2]
    python3 tools/megatron_checkpoint.py from-nanogpt ckpt.pt weights.safetensors
    python3 tools/megatron_checkpoint.py to-nanogpt weights.safetensors ckpt.pt --heads 12

Then `isobar train --init weights.safetensors --init-moments m.safetensors`, or `isobar pretrain-gpt --load
weights.safetensors --load-moments m.safetensors`. CKPT is the folder with latest_checkpointed_iteration.txt: all its
mp_rank_TT[_PPP] are joined, whatever tensor- and pipeline-parallel sizes they have, stages of an interleaved pipeline
(model0, model1, ...) included. Adam's moments travel too, as m.NAME and v.NAME, where the optimizer is not distributed;
then weights of 16 bits are taken from the optimizer's copies of them in fp32. What is written is bit for bit what was
read.

Needs PyTorch and NumPy. A pickle is read as data only: what would run code in it is refused by PyTorch.

  source  NVIDIA/Megatron-LM, its checkpoints of 2022; karpathy/nanoGPT, its ckpt.pt
"""
import argparse
import json
import pathlib
import re
import sys
import types

try:
    import numpy
    import torch
except ImportError as missing:
    sys.exit(f"megatron_checkpoint.py: {missing.name} is not installed; these checkpoints are PyTorch's own files: "
             "pip install torch numpy")

import safetensors_file

TRACKER = "latest_checkpointed_iteration.txt"
BLOCK = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attn.proj": "self_attention.dense",
         "mlp.fc1": "mlp.dense_h_to_4h", "mlp.fc2": "mlp.dense_4h_to_h"}
QKV = "self_attention.query_key_value"
UPDATES = "isobar.updates"  # of moments, in their file's metadata
DISTRIBUTED = ("distrib_optim.pt", "optim.pt")  # where a distributed optimizer keeps its part of them
# Which axis of a tensor tensor-parallel ranks share; the others are on all of them. q, k and v lie by heads.
SHARED_AXIS = {"word_embeddings.weight": 0, "word_embeddings_for_head.weight": 0, "output_layer.weight": 0,
               f"{QKV}.weight": 0, f"{QKV}.bias": 0, "mlp.dense_h_to_4h.weight": 0,
               "mlp.dense_h_to_4h.bias": 0, "self_attention.dense.weight": 1, "mlp.dense_4h_to_h.weight": 1}


class Refusal(Exception):
    """One sentence for the user."""


def need(condition, sentence):
    if not condition:
        raise Refusal(sentence)


# ---- names of one rank's tensors, flat: embedding.word_embeddings.weight, encoder.layers.3.mlp..., encoder.final_...

def shared_axis(name):
    return next((axis for ending, axis in SHARED_AXIS.items() if name.endswith(ending)), None)


def flat(tree, prefix=""):
    """{name: tensor} of nested dictionaries."""
    out = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            out.update(flat(value, f"{prefix}{key}."))
        elif torch.is_tensor(value):
            out[prefix + key] = value
    return out


def nested(tensors):
    """The tree of a checkpoint: language_model/{embedding/..., encoder/{layers.N...: tensor}}, word_embeddings_..."""
    model = {}
    for name, tensor in tensors.items():
        if name.startswith("word_embeddings_for_head."):
            model.setdefault("word_embeddings_for_head", {})["weight"] = tensor
        elif name.startswith("embedding."):
            _, table, leaf = name.split(".")
            model.setdefault("language_model", {}).setdefault("embedding", {}).setdefault(table, {})[leaf] = tensor
        elif name.startswith("encoder."):
            model.setdefault("language_model", {}).setdefault("encoder", {})[name.removeprefix("encoder.")] = tensor
        else:
            model.setdefault("language_model", {}).setdefault("output_layer", {})["weight"] = tensor
    return model


def rank_tensors(model, first_layer):
    """A chunk's tensors, with the layers' numbers in the whole model."""
    out = {}
    for name, tensor in flat(model).items():
        name = name.removeprefix("language_model.").replace("transformer.layers.", "encoder.layers.")
        layer = re.match(r"encoder\.layers\.(\d+)\.(.*)", name)
        out[f"encoder.layers.{first_layer + int(layer[1])}.{layer[2]}" if layer else name] = tensor
    return out


def layers_of(names):
    found = [int(m[1]) for name in names if (m := re.search(r"(?:layers|blocks)\.(\d+)\.", name))]
    return max(found) + 1 if found else 0


def is_decayed(name, tensor):
    return not name.endswith(".bias") and tensor.dim() > 1


def optimizer_order(tensors):
    """Names as the optimizer numbers them: what decays comes first."""
    return [n for n, t in tensors.items() if is_decayed(n, t)] + [n for n, t in tensors.items() if not is_decayed(n, t)]


# ---- q, k and v

def to_stacked(q, k, v, heads):
    """[NH·HS, ...] each -> rows of each head: q, k, v."""
    rest = q.shape[1:]
    parts = [t.reshape(heads, -1, *rest) for t in (q, k, v)]
    return torch.stack(parts, 1).reshape(-1, *rest)


def from_stacked(stacked, heads, version):
    rest = stacked.shape[1:]
    size = stacked.shape[0] // (3 * heads)
    if version >= 2:
        parts = stacked.reshape(heads, 3, size, *rest).unbind(1)
    elif version >= 1:
        parts = stacked.reshape(heads, size, 3, *rest).unbind(2)
    else:
        parts = stacked.reshape(3, heads, size, *rest).unbind(0)
    return [part.reshape(heads * size, *rest).contiguous() for part in parts]


# ---- the whole model under both names

def to_isobar(whole, heads, version):
    out = {"wte.weight": whole["embedding.word_embeddings.weight"],
           "wpe.weight": whole["embedding.position_embeddings.weight"]}
    for layer in range(layers_of(whole)):
        there, here = f"encoder.layers.{layer}.", f"blocks.{layer}."
        for own, other in BLOCK.items():
            for leaf in ("weight", "bias"):
                if there + f"{other}.{leaf}" in whole:
                    out[here + f"{own}.{leaf}"] = whole[there + f"{other}.{leaf}"]
        for leaf in ("weight", "bias"):
            if there + f"{QKV}.{leaf}" in whole:
                parts = from_stacked(whole[there + f"{QKV}.{leaf}"], heads, version)
                out.update({here + f"attn.{n}.{leaf}": part for n, part in zip("qkv", parts)})
    for leaf in ("weight", "bias"):
        if f"encoder.final_layernorm.{leaf}" in whole:
            out[f"norm.{leaf}"] = whole[f"encoder.final_layernorm.{leaf}"]
    if "output_layer.weight" in whole:
        out["head.weight"] = whole["output_layer.weight"]
    return out


def check_queries(own):
    """Queries, keys and values are one tensor there: one that lies alone would be lost."""
    for name in own:
        part = re.fullmatch(r"(blocks\.\d+\.attn\.)[qkv]\.(weight|bias)", name)
        for other in (f"{part[1]}{n}.{part[2]}" for n in "qkv") if part else ():
            need(other in own, f"the weights have {name}, but no {other}")


def to_megatron(own, heads):
    check_queries(own)
    out = {"embedding.word_embeddings.weight": own["wte.weight"],
           "embedding.position_embeddings.weight": own["wpe.weight"]}
    order = ("norm1", None, "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")  # of the module's parameters there
    for layer in range(layers_of(own)):
        here, there = f"blocks.{layer}.", f"encoder.layers.{layer}."
        for name in order:
            for leaf in ("weight", "bias"):
                if name is None and f"{here}attn.q.{leaf}" in own:
                    out[f"{there}{QKV}.{leaf}"] = to_stacked(*(own[f"{here}attn.{n}.{leaf}"] for n in "qkv"), heads)
                elif name is not None and f"{here}{name}.{leaf}" in own:
                    out[f"{there}{BLOCK[name]}.{leaf}"] = own[f"{here}{name}.{leaf}"]
    out.update({f"encoder.final_layernorm.{leaf}": own[f"norm.{leaf}"] for leaf in ("weight", "bias")
                if f"norm.{leaf}" in own})
    if "head.weight" in own:
        out["output_layer.weight"] = own["head.weight"]
    return out


# ---- files of Megatron-LM

class _Other:
    """What a checkpoint's arguments hold of classes that are not here: kept as nothing."""
    def __init__(self, *_):
        pass


def allow_data():
    """Lets PyTorch read arguments and random states, which are data."""
    safe = [argparse.Namespace, numpy.ndarray, numpy.dtype, type(numpy.dtype("uint32"))]
    multiarray = sys.modules.get("numpy._core.multiarray") or sys.modules.get("numpy.core.multiarray")
    safe.append(multiarray._reconstruct)
    for module in ("megatron.model.enums", "megatron.enums", "megatron.core.enums"):
        there = types.ModuleType(module)
        for name in ("ModelType", "LayerType", "AttnType", "AttnMaskType"):
            kind = type(name, (_Other,), {"__module__": module})
            setattr(there, name, kind)
            safe.append(kind)
        sys.modules.setdefault(module, there)
    torch.serialization.add_safe_globals(safe)


def load(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise Refusal(f"{path} cannot be read as data: {str(error).splitlines()[0]}") from error


def ranks_in(folder):
    """{(tp, pp): file} of a folder iter_XXXXXXX."""
    files = {}
    for path in sorted(folder.glob("mp_rank_*")):
        name = re.fullmatch(r"mp_rank_(\d\d)(?:_(\d\d\d))?", path.name)
        file = path / "model_optim_rng.pt"
        if name and file.exists():
            files[int(name[1]), int(name[2] or 0)] = file
    need(files, f"{folder} holds no mp_rank_*/model_optim_rng.pt: is it of another format (torch_dist) or with a "
                "distributed optimizer?")
    return files


def folder_of(checkpoint, iteration=None):
    tracker = checkpoint / TRACKER
    if iteration is None:
        need(tracker.exists(), f"{tracker} does not exist")
        text = tracker.read_text().strip()
        if text == "release":
            return checkpoint / "release"
        iteration = int(text)
    return checkpoint / f"iter_{iteration:07d}"


def join(name, shards):
    axis = shared_axis(name)
    if axis is None:
        for other in shards[1:]:
            need(torch.equal(other, shards[0]), f"{name} differs between tensor-parallel ranks")
        return shards[0]
    return shards[0] if len(shards) == 1 else torch.cat(shards, axis)


def chunks_of(state):
    """The chunks of a rank: one, or those of an interleaved pipeline."""
    if "model" in state:
        return [state["model"]]
    count = sum(1 for key in state if re.fullmatch(r"model\d+", key))
    need(count > 0, "a file holds no model")
    return [state[f"model{i}"] for i in range(count)]


def inner_optimizer(state):
    """Adam's state_dict, which mixed precision wraps; empty: there is none."""
    optimizer = state.get("optimizer") or {}
    return optimizer.get("optimizer", optimizer)


def updates_of(state):
    """How many updates the moments are of: apex counts in the groups, PyTorch with each parameter."""
    adam = inner_optimizer(state)
    counted = [group["step"] for group in adam["param_groups"] if "step" in group]
    counted += [one["step"] for one in adam["state"].values() if "step" in one]
    return int(max(counted)) if counted else int(state.get("iteration", 0))


def with_masters(state, tensors):
    """The weights, in fp32 where the optimizer keeps copies of all of them in it."""
    groups = (state.get("optimizer") or {}).get("fp32_from_fp16_params")
    masters = [tensor for group in groups or [] for tensor in group]
    if len(masters) != len(tensors):
        return tensors
    return tensors | {name: tensor.reshape(tensors[name].shape)
                      for name, tensor in zip(optimizer_order(tensors), masters)}


def moments_of(state, names):
    """[{name: exp_avg}, {name: exp_avg_sq}], or none."""
    inner = inner_optimizer(state)
    if not inner.get("state"):
        return None
    order = optimizer_order(names)
    found = inner["state"]
    need(len(found) == len(order), f"the optimizer has {len(found)} parameters, and the model {len(order)}")
    return [{name: found[i][key] for i, name in enumerate(order)} for key in ("exp_avg", "exp_avg_sq")]


def read_whole(folder):
    """(tensors of the model, moments or None, one rank's state)."""
    files = ranks_in(folder)
    tp, pp = 1 + max(t for t, _ in files), 1 + max(p for _, p in files)
    need(len(files) == tp * pp, f"{folder} holds {len(files)} ranks, and {tp} x {pp} are needed")
    states = {rank: load(file) for rank, file in files.items()}
    chunk_count = len(chunks_of(states[0, 0]))
    whole, moments, first = {}, [{}, {}], 0
    firsts = {}
    for chunk in range(chunk_count):  # a chunk lies on all stages before the next one begins
        for p in range(pp):
            firsts[p, chunk] = first
            first += layers_of(flat(chunks_of(states[0, p])[chunk]))
    has_moments = True
    for p in range(pp):
        of_ranks = []
        for t in range(tp):
            state = states[t, p]
            tensors = {}
            for chunk, model in enumerate(chunks_of(state)):
                tensors.update(rank_tensors(model, firsts[p, chunk]))
            found = moments_of(state, tensors)
            has_moments = has_moments and found is not None
            of_ranks.append((with_masters(state, tensors), found))
        for name in of_ranks[0][0]:
            joined = join(name, [tensors[name] for tensors, _ in of_ranks])
            if name.startswith("word_embeddings_for_head"):
                need(torch.equal(joined, whole["embedding.word_embeddings.weight"]),
                     "the tied embedding differs between the first and the last stage")
                continue
            whole[name] = joined
            for i in range(2):
                if has_moments:
                    moments[i][name] = join(name, [found[i][name] for _, found in of_ranks])
    return whole, moments if has_moments else None, states[0, 0]


def set_rows(tensors, rows, names):
    """More rows are zeros, fewer cut the last ones."""
    for name in names:
        if rows is None or name not in tensors:
            continue
        table = tensors[name]
        more = rows - table.shape[0]
        tensors[name] = torch.cat([table, table.new_zeros(more, *table.shape[1:])]) if more > 0 else table[:rows]


def from_megatron(o):
    folder = folder_of(o.source, o.iteration)
    parts = sorted(path for name in DISTRIBUTED for path in folder.glob(f"*/{name}"))
    need(not (o.moments and parts), f"{parts[0] if parts else ''} is of a distributed optimizer, whose moments lie in "
                                    "its ranks' buckets: they are not read. Leave --moments out, or save the run once "
                                    "without --use-distributed-optimizer")
    whole, moments, state = read_whole(folder)
    args = state.get("args")
    heads = o.heads or getattr(args, "num_attention_heads", None)
    need(heads, "how many attention heads there are is not said in the file: give --heads")
    version = float(state.get("checkpoint_version", 0))
    own = to_isobar(whole, heads, version)
    set_rows(own, o.rows, ("wte.weight", "head.weight"))
    safetensors_file.save({n: t.float() for n, t in own.items()}, o.target)
    print(f"{o.target}: {len(own)} tensors, {sum(t.numel() for t in own.values())} numbers, of iteration "
          f"{state.get('iteration')}")
    if o.moments:
        need(moments, f"{folder} holds no moments of Adam")
        both = {}
        for prefix, named in zip("mv", moments):
            converted = to_isobar(named, heads, version)
            set_rows(converted, o.rows, ("wte.weight", "head.weight"))
            both.update({f"{prefix}.{n}": t.float() for n, t in converted.items()})
        safetensors_file.save(both, o.moments, **{UPDATES: updates_of(state)})
        print(f"{o.moments}: {len(both)} tensors, of {updates_of(state)} updates")


def split(tensors, tp, t):
    out = {}
    for name, tensor in tensors.items():
        axis = shared_axis(name)
        if axis is None:
            out[name] = tensor.clone()
            continue
        need(tensor.shape[axis] % tp == 0,
             f"{name} has {tensor.shape[axis]} rows or columns, no multiple of {tp} ranks")
        out[name] = tensor.chunk(tp, axis)[t].clone()
    return out


def of_stage(whole, pp, p):
    """The tensors of one stage, with its own numbers of layers; the last one has the tied embedding too."""
    layers = layers_of(whole)
    need(layers % pp == 0, f"{layers} layers are no multiple of {pp} stages")
    first, count, out = p * (layers // pp), layers // pp, {}
    for name, tensor in whole.items():
        layer = re.match(r"encoder\.layers\.(\d+)\.(.*)", name)
        if layer and first <= int(layer[1]) < first + count:
            out[f"encoder.layers.{int(layer[1]) - first}.{layer[2]}"] = tensor
        elif (name.startswith("embedding.") and p == 0) or \
                (name.startswith(("encoder.final_", "output_layer")) and p == pp - 1):
            out[name] = tensor
    if p == pp - 1 and pp > 1 and "output_layer.weight" not in whole:
        out["word_embeddings_for_head.weight"] = whole["embedding.word_embeddings.weight"]
    return out


def to_megatron_files(o):
    source = o.source / "model.safetensors" if o.source.is_dir() else o.source
    own = safetensors_file.load(source)
    metadata = metadata_of(source)
    config = json.loads(metadata.get("isobar.config", "{}"))
    heads = o.heads or config.get("num_heads")
    need(heads, "how many attention heads there are is not said in the file: give --heads")
    multiple = config.get("vocab_multiple", 128) * o.tp
    rows = -(-own["wte.weight"].shape[0] // multiple) * multiple
    optimizer = o.source / "optimizer.safetensors" if o.source.is_dir() else None
    moments = safetensors_file.load(optimizer) if optimizer and optimizer.exists() else None
    state = json.loads((o.source / "state.json").read_text()) if (o.source / "state.json").exists() else {}
    iteration = state.get("trainer", {}).get("iteration", 0)
    updates = state.get("trainer", {}).get("updates", iteration)
    models = [own]
    if moments:
        models += [{n.removeprefix(p): t for n, t in moments.items() if n.startswith(p)} for p in ("m.", "v.")]
    for model in models:
        set_rows(model, rows, ("wte.weight", "head.weight"))
    wholes = [to_megatron(model, heads) for model in models]
    args = argparse.Namespace(
        num_layers=layers_of(wholes[0]),
        hidden_size=own["wte.weight"].shape[1], num_attention_heads=heads,
        ffn_hidden_size=own["blocks.0.mlp.fc1.weight"].shape[0], seq_length=config.get("seq_length"),
        max_position_embeddings=own["wpe.weight"].shape[0], padded_vocab_size=rows,
        make_vocab_size_divisible_by=config.get("vocab_multiple", 128), tensor_model_parallel_size=o.tp,
        pipeline_model_parallel_size=o.pp, iteration=iteration,
        consumed_train_samples=iteration * config.get("global_batch_size", 0), consumed_valid_samples=0)
    folder = o.target / f"iter_{iteration:07d}"
    for t in range(o.tp):
        for p in range(o.pp):
            parts = [split(of_stage(whole, o.pp, p), o.tp, t) for whole in wholes]
            rank = folder / (f"mp_rank_{t:02d}_{p:03d}" if o.pp > 1 else f"mp_rank_{t:02d}")
            rank.mkdir(parents=True, exist_ok=True)
            saved = {"args": args, "checkpoint_version": 3.0, "iteration": iteration, "model": nested(parts[0])}
            if moments:
                saved["optimizer"] = optimizer_state(parts, updates, config)
            torch.save(saved, rank / "model_optim_rng.pt")
    (o.target / TRACKER).write_text(str(iteration))
    print(f"{folder}: {o.tp} x {o.pp} ranks, {rows} rows of tokens{', with moments' if moments else ''}")


def optimizer_state(parts, updates, config):
    weights, first, second = parts
    order = optimizer_order(weights)
    decayed = sum(1 for name in order if is_decayed(name, weights[name]))
    betas = tuple(config.get("betas", (0.9, 0.999)))
    group = {"lr": 0.0, "betas": betas, "eps": config.get("eps", 1e-8), "step": updates, "bias_correction": True}
    groups = [dict(group, weight_decay=config.get("weight_decay", 0.0), wd_mult=1.0, lr_mult=1.0,
                   params=list(range(decayed))),
              dict(group, weight_decay=0.0, wd_mult=0.0, lr_mult=1.0, params=list(range(decayed, len(order))))]
    return {"state": {i: {"exp_avg": first[n], "exp_avg_sq": second[n]} for i, n in enumerate(order)},
            "param_groups": groups}


def metadata_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little"))).get("__metadata__", {})


# ---- nanoGPT

NANO = {"norm1": "ln_1", "norm2": "ln_2", "attn.proj": "attn.c_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}


def nano_name(name):
    block = re.match(r"blocks\.(\d+)\.(.*)\.(weight|bias)$", name)
    if block:
        return f"transformer.h.{block[1]}.{NANO[block[2]]}.{block[3]}"
    if name == "head.weight":
        return "lm_head.weight"
    return "transformer." + name.replace("norm.", "ln_f.")


def from_nanogpt(o):
    state = load(o.source)
    model = {n.removeprefix("_orig_mod."): t for n, t in state["model"].items()}
    own, back = {}, {v: k for k, v in NANO.items()}
    for name, tensor in model.items():
        block = re.match(r"transformer\.h\.(\d+)\.(.*)\.(weight|bias)$", name)
        if name == "lm_head.weight":
            if not torch.equal(tensor, model["transformer.wte.weight"]):
                own["head.weight"] = tensor
        elif block and block[2] == "attn.c_attn":
            for n, part in zip("qkv", tensor.chunk(3, 0)):
                own[f"blocks.{block[1]}.attn.{n}.{block[3]}"] = part.contiguous()
        elif block and block[2] in back:
            own[f"blocks.{block[1]}.{back[block[2]]}.{block[3]}"] = tensor
        elif not (block and block[2] == "attn") and not name.endswith(".attn.bias"):
            own[name.removeprefix("transformer.").replace("ln_f.", "norm.")] = tensor
    safetensors_file.save({n: t.float() for n, t in own.items()}, o.target)
    print(f"{o.target}: {len(own)} tensors, {sum(t.numel() for t in own.values())} numbers, after iteration "
          f"{state.get('iter_num')}; its sizes: {state.get('model_args')}")


def to_nanogpt(o):
    source = o.source / "model.safetensors" if o.source.is_dir() else o.source
    own, config = safetensors_file.load(source), json.loads(metadata_of(source).get("isobar.config", "{}"))
    check_queries(own)
    model = {}
    for name, tensor in own.items():
        part = re.match(r"(blocks\.\d+\.attn\.)([qkv])\.(weight|bias)$", name)
        if part and part[2] == "q":
            stacked = torch.cat([own[f"{part[1]}{n}.{part[3]}"] for n in "qkv"])
            model[nano_name(f"{part[1]}proj.{part[3]}").replace("c_proj", "c_attn")] = stacked
        elif not part:
            model[nano_name(name)] = tensor
    model.setdefault("lm_head.weight", model["transformer.wte.weight"])
    heads = o.heads or config.get("num_heads")
    need(heads, "how many attention heads there are is not said in the file: give --heads")
    sizes = {"n_layer": layers_of(own), "n_head": heads, "n_embd": own["wte.weight"].shape[1],
             "block_size": own["wpe.weight"].shape[0], "bias": "norm.bias" in own,
             "vocab_size": own["wte.weight"].shape[0], "dropout": config.get("hidden_dropout", 0.0)}
    torch.save({"model": model, "model_args": sizes, "iter_num": 0, "best_val_loss": torch.tensor(1e9),
                "config": {}}, o.target)
    print(f"{o.target}: {len(model)} tensors, {sizes}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=("from-megatron", "to-megatron", "from-nanogpt", "to-nanogpt"))
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--iteration", type=int, help="of a checkpoint of Megatron-LM; default: the newest")
    parser.add_argument("--heads", type=int, help="attention heads, where the file does not say")
    parser.add_argument("--rows", type=int, help="rows of the table of tokens in isobar's file: its vocabulary up to a "
                                           "multiple of vocab_multiple; default: as they are")
    parser.add_argument("--moments", type=pathlib.Path, help="from-megatron: a file for Adam's moments")
    parser.add_argument("--tp", type=int, default=1, help="to-megatron: tensor-parallel ranks")
    parser.add_argument("--pp", type=int, default=1, help="to-megatron: pipeline-parallel ranks")
    o = parser.parse_args(arguments)
    allow_data()
    try:
        {"from-megatron": from_megatron, "to-megatron": to_megatron_files, "from-nanogpt": from_nanogpt,
         "to-nanogpt": to_nanogpt}[o.direction](o)
    except Refusal as refusal:
        sys.exit(f"megatron_checkpoint.py: {refusal}")


if __name__ == "__main__":
    main()
