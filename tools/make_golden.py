#!/usr/bin/env python3
"""Makes tests/golden/*.safetensors: what PyTorch computes in fp64 for a tiny ViT, and how far PyTorch itself strays
from that in fp32, bf16 and fp16. The tests read the files; nobody needs PyTorch to run them.

    pip install torch numpy                    (made with 2.15; any PyTorch 2 gives the same numbers to ~1e-15)
    python3 tools/make_golden.py               writes tests/golden/
    python3 tools/make_golden.py --out DIR     writes somewhere else, to compare

Inputs and initial weights are representable in fp32 (stored as F32), so that every precision starts from the same
numbers. tests/golden/README.md lists every tensor.
"""
import argparse
import json
import math
import pathlib

import torch

import reference_vit as reference
import safetensors_file

BATCH, CHANNELS, HEIGHT, WIDTH, PATCH = 3, 4, 6, 10, 2  # 3 x 5 = 15 tokens: odd, and no multiple of any tile
HEAD_DIM = 8
TIME_PLANES = 4
STEPS = 10  # optimizer steps
REPEATS = 8  # inputs over which a yardstick is taken
LOSS_SCALE = 4096.0  # fp16 gradients: large enough that none underflows, small enough that none overflows
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LOSSES = {
    "relative_l2": lambda pred, target, rows, channels: reference.relative_l2(pred, target),
    "weighted_mse": reference.weighted_mse,
    "relative_l2_weighted": reference.relative_l2,
}


def fp32_exact(tensor):
    return tensor.float().double()


def make_fields(generator, batch):
    return fp32_exact(torch.randn(batch, CHANNELS, HEIGHT, WIDTH, generator=generator, dtype=torch.float64))


def empty_model(depth, heads, in_channels=CHANNELS, predict_change=False):
    return reference.ViT((HEIGHT, WIDTH), PATCH, in_channels, CHANNELS, heads * HEAD_DIM, depth, heads, predict_change)


def make_model(generator, *size):
    """A model whose every parameter, norms and biases included, is away from its initial value."""
    model = empty_model(*size).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            fan_in = math.prod(p.shape[1:]) if is_matrix(name, p) else 16
            offset = 1.0 if ".norm" in f".{name}" and name.endswith("weight") else 0.0
            p.copy_(fp32_exact(offset + torch.randn(p.shape, generator=generator, dtype=torch.float64) / fan_in**0.5))
    return model


def is_matrix(name, parameter):
    """What AdamW decays: weight matrices, so no biases, no norms, no position embedding."""
    return parameter.dim() >= 2 and name != "pos_embed"


def clone(model, dtype=torch.float64):
    copy = empty_model(len(model.blocks), model.blocks[0].attn.num_heads).to(dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def forward_backward(model, x, target, precision="fp64"):
    """(output, loss, gradients) of relative_l2. fp32, bf16 and fp16: fp32 weights, the latter two under autocast."""
    model.zero_grad()
    scale = LOSS_SCALE if precision == "fp16" else 1.0
    with torch.autocast("cpu", DTYPES.get(precision), enabled=precision in ("bf16", "fp16")):
        output = model(x)
    loss = reference.relative_l2(output, target)
    (loss * scale).backward()
    return output.detach(), loss.detach(), {name: g / scale for name, g in gradients(model).items()}


def cosine_rate(base, step, warmup=0):
    """The tutorial's schedules; step counts from 0."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / STEPS))
    return base * (min((step + 1) / warmup, cosine) if warmup else cosine)


def train(model, x, target, optimizer, rate, max_norm=0.0, precision="fp64"):
    """STEPS updates on one batch; returns losses, gradient norms before clipping, and rates."""
    losses, norms, rates = [], [], []
    for step in range(STEPS):
        _, loss, grads = forward_backward(model, x, target, precision)
        for name, p in model.named_parameters():
            p.grad = grads[name]
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or math.inf).item())
        rates.append(rate(step))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "grad_norms": norms, "rates": rates}


def adam(model):
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.95), eps=1e-8)


def adamw(model, weight_decay):
    named = list(model.named_parameters())
    return torch.optim.AdamW([{"params": [p for n, p in named if is_matrix(n, p)], "weight_decay": weight_decay},
                              {"params": [p for n, p in named if not is_matrix(n, p)], "weight_decay": 0.0}],
                             betas=(0.9, 0.95), eps=1e-8)


def yardsticks(model, generator, rate):
    """PyTorch's own relative L2 errors against fp64, [.., 2]: root mean square and largest over REPEATS inputs.

    The gradient of a key's bias is zero in exact arithmetic; its error is measured by the same block's query bias.
    """
    names = [name for name, _ in model.named_parameters()]
    yard = lambda name: name.replace(".k.bias", ".q.bias")
    errors = {f"{precision}.{what}": [] for precision in DTYPES for what in ("output", "loss", "gradients", "update")}
    for _ in range(REPEATS):
        x, target = make_fields(generator, BATCH), make_fields(generator, BATCH)
        exact = forward_backward(clone(model), x, target)
        exact_update = update(model, x, target, rate, "fp64")
        for precision in DTYPES:
            output, loss, grads = forward_backward(clone(model, torch.float32), x.float(), target.float(), precision)
            ours = update(model, x, target, rate, precision)
            errors[f"{precision}.output"].append([relative_error(output, exact[0])])
            errors[f"{precision}.loss"].append([relative_error(loss, exact[1])])
            errors[f"{precision}.gradients"].append(
                [relative_error(grads[n], exact[2][n], exact[2][yard(n)]) for n in names])
            errors[f"{precision}.update"].append(
                [relative_error(ours[n], exact_update[n], exact_update[yard(n)]) for n in names])
    result = {}
    for key, rows in errors.items():
        table = torch.tensor(rows, dtype=torch.float64)  # [REPEATS, tensors]
        result[f"yardstick.{key}"] = torch.stack([table.square().mean(0).sqrt(), table.amax(0)], 1)
    return result


def update(model, x, target, rate, precision):
    """What STEPS steps of Adam change, per parameter."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    trained = clone(model, dtype)
    train(trained, x.to(dtype), target.to(dtype), adam(trained), rate, precision=precision)
    before = model.state_dict()
    return {name: p.detach().double() - before[name] for name, p in trained.named_parameters()}


def relative_error(value, exact, scale=None):
    assert torch.isfinite(value).all()
    return ((value.double() - exact).norm() / (exact if scale is None else scale).norm()).item()


def vit_case(generator, model):
    """Everything about one training setup of the plain model; see tests/golden/README.md."""
    x, target = make_fields(generator, BATCH), make_fields(generator, BATCH)
    rows = reference.latitude_weights(HEIGHT)
    channels = torch.tensor([1.0, 0.0, 2.5, 0.75], dtype=torch.float64)
    output, _, grads = forward_backward(clone(model), x, target)
    tensors = {"input": x.float(), "target": target.float(), "row_weights": rows, "channel_weights": channels,
               "output": output}
    tensors |= {f"gradient.{name}": g for name, g in grads.items()}
    for kind, loss in LOSSES.items():
        pred = output.clone().requires_grad_()
        value = loss(pred, target, rows, channels)
        value.backward()
        tensors |= {f"loss.{kind}": value.detach().reshape(1), f"output_gradient.{kind}": pred.grad}

    squared = rows[:, None] * (output - target)**2
    tensors["rmse"] = squared.mean((0, 2, 3)).sqrt()
    tensors["rmse_tutorial"] = squared.mean((2, 3)).sqrt().mean(0)
    weighted = lambda a, b: (rows[:, None] * a * b).sum((2, 3))
    tensors["acc"] = (weighted(output, target) / (weighted(output, output) * weighted(target, target)).sqrt()).mean(0)

    base_rate, weight_decay, warmup, max_norm = 5e-3, 0.1, 3, 0.8
    plain, decayed = clone(model), clone(model)
    logs = {"adam": train(plain, x, target, adam(plain), lambda step: cosine_rate(base_rate, step)),
            "adamw": train(decayed, x, target, adamw(decayed, weight_decay),
                           lambda step: cosine_rate(base_rate, step, warmup), max_norm)}
    for optimizer, trained in (("adam", plain), ("adamw", decayed)):
        tensors |= {f"{optimizer}.{name}": p.detach() for name, p in trained.named_parameters()}
        tensors |= {f"{optimizer}.{key}": torch.tensor(v, dtype=torch.float64) for key, v in logs[optimizer].items()}
    tensors |= yardsticks(model, generator, lambda step: cosine_rate(base_rate, step))
    settings = {"lr": base_rate, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": weight_decay,
                "warmup": warmup, "grad_clip": max_norm, "loss_scale": LOSS_SCALE}
    return tensors, settings


def change_case(generator):
    """predict_change with the four time planes: fields [B, C, H, W] and planes [B, 4], constant over the grid."""
    model = make_model(generator, 1, 1, CHANNELS + TIME_PLANES, True)  # depth 1, one head
    x, target = make_fields(generator, BATCH), make_fields(generator, BATCH)
    planes = fp32_exact(torch.rand(BATCH, TIME_PLANES, generator=generator, dtype=torch.float64) * 2 - 1)
    image = torch.cat([x, planes[:, :, None, None].expand(-1, -1, HEIGHT, WIDTH)], 1)
    output, loss, grads = forward_backward(model, image, target)
    tensors = {"input": x.float(), "planes": planes.float(), "target": target.float(), "output": output,
               "loss.relative_l2": loss.reshape(1)}
    tensors |= {f"weight.{name}": p.detach().float() for name, p in model.named_parameters()}
    return tensors | {f"gradient.{name}": g for name, g in grads.items()}


def forecast_case(generator, model, steps=4):
    """Autoregressive forecast in physical units: normalise, step the model, undo the normalisation of every step."""
    mean = fp32_exact(torch.tensor([280.0, -3.0, 101325.0, 0.0], dtype=torch.float64))
    std = fp32_exact(torch.tensor([12.5, 7.25, 900.0, 1.0], dtype=torch.float64))
    per_channel = lambda v: v[:, None, None]
    initial = fp32_exact(make_fields(generator, 1)[0] * per_channel(std) + per_channel(mean))
    state, forecasts = (initial - per_channel(mean)) / per_channel(std), []
    with torch.no_grad():
        for _ in range(steps):
            state = model(state[None])[0]
            forecasts.append(state * per_channel(std) + per_channel(mean))
    return {"initial": initial.float(), "mean": mean, "std": std, "forecast": torch.stack(forecasts)}


def write(tensors, path, **metadata):
    safetensors_file.save(tensors, path, **metadata)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=default)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the same sums in the same order everywhere
    generator = torch.Generator().manual_seed(20)

    model = make_model(generator, 2, 2)  # depth 2, two heads
    names = [name for name, _ in model.named_parameters()]
    config = {"img_size": [HEIGHT, WIDTH], "patch_size": PATCH, "n_in_channels": CHANNELS, "n_out_channels": CHANNELS,
              "embed_dim": 2 * HEAD_DIM, "depth": 2, "num_heads": 2}
    # Plain state_dict names and no metadata: a weights file from elsewhere, as `isobar forecast` meets it.
    write({name: p.detach().float() for name, p in model.state_dict().items()}, out / "vit_weights.safetensors")
    tensors, settings = vit_case(generator, model)
    write(tensors, out / "vit.safetensors", config=config, training=settings, parameters=names)
    write(change_case(generator), out / "change.safetensors",
          config=config | {"embed_dim": HEAD_DIM, "depth": 1, "num_heads": 1, "predict_change": True,
                           "time_features": True})
    write(forecast_case(generator, model), out / "forecast.safetensors", config=config)


if __name__ == "__main__":
    main()
