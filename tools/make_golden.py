#!/usr/bin/env python3
"""Makes tests/golden/*.safetensors: what PyTorch computes in fp64 for two tiny ViTs, one that forecasts and one that
classifies, for a tiny CNN, for thin
U-Nets, for tiny language models, for causal attention and for whole small runs, and how far PyTorch itself strays from
that in fp32, bf16 and fp16. The tests read the files; nobody needs PyTorch to run them.

    pip install torch numpy                    (made with 2.15; any PyTorch 2 gives the same numbers to ~1e-15)
    python3 tools/make_golden.py               writes tests/golden/
    python3 tools/make_golden.py --out DIR     writes somewhere else, to compare

Inputs and initial weights are representable in fp32 (stored as F32), so that every precision starts from the same
numbers. tests/golden/README.md lists every tensor.
"""
import argparse
import copy
import datetime
import math
import pathlib

import torch
import torch.nn.functional as F

import reference_cnn
import reference_digits
import reference_gpt
import reference_run
import reference_unet
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


def draw_parameters(generator, model):
    """Every parameter, norms and biases included, is away from its initial value."""
    model = model.double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            fan_in = math.prod(p.shape[1:]) if is_matrix(name, p) else 16
            offset = 1.0 if ".norm" in f".{name}" and name.endswith("weight") else 0.0
            p.copy_(fp32_exact(offset + torch.randn(p.shape, generator=generator, dtype=torch.float64) / fan_in**0.5))
    return model


def make_model(generator, *size):
    return draw_parameters(generator, empty_model(*size))


def is_matrix(name, parameter):
    """What AdamW decays: weight matrices, so no biases, no norms, no position embedding."""
    return parameter.dim() >= 2 and name != "pos_embed"


def clone(model, dtype=torch.float64):
    return copy.deepcopy(model).to(dtype)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def loss_of(output, target):
    """Classes are whole numbers: cross entropy, else relative_l2."""
    if target.dtype == torch.int64:
        return F.cross_entropy(output.to(torch.promote_types(output.dtype, torch.float32)), target)
    return reference.relative_l2(output, target)


def forward_backward(model, x, target, precision="fp64"):
    """(output, loss, gradients). fp32, bf16 and fp16: fp32 weights, the latter two under autocast; losses in fp32."""
    model.zero_grad()
    scale = LOSS_SCALE if precision == "fp16" else 1.0
    with torch.autocast("cpu", DTYPES.get(precision), enabled=precision in ("bf16", "fp16")):
        output = model(x)
    loss = getattr(model, "loss", loss_of)(output, target)
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


def cast(tensor, dtype):
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def yardsticks(model, draw, fit, repeats=REPEATS):
    """PyTorch's own relative L2 errors against fp64, [.., 2]: root mean square and largest over the inputs.

    draw() yields an input and a target; fit(model, input, target, precision) does STEPS updates.

    The gradient of a key's bias is zero in exact arithmetic; its error is measured by the same block's query bias.
    """
    names = [name for name, _ in model.named_parameters()]
    yard = lambda name: name.replace(".k.bias", ".q.bias")
    errors = {f"{precision}.{what}": [] for precision in DTYPES for what in ("output", "loss", "gradients", "update")}
    for _ in range(repeats):
        x, target = draw()
        exact = forward_backward(clone(model), x, target)
        exact_update = update(model, x, target, fit, "fp64")
        for precision in DTYPES:
            inputs = [cast(tensor, torch.float32) for tensor in (x, target)]
            output, loss, grads = forward_backward(clone(model, torch.float32), *inputs, precision)
            ours = update(model, x, target, fit, precision)
            errors[f"{precision}.output"].append([relative_error(output, exact[0])])
            errors[f"{precision}.loss"].append([relative_error(loss, exact[1])])
            errors[f"{precision}.gradients"].append(
                [relative_error(grads[n], exact[2][n], exact[2][yard(n)]) for n in names])
            errors[f"{precision}.update"].append(
                [relative_error(ours[n], exact_update[n], exact_update[yard(n)]) for n in names])
    result = {}
    for key, rows in errors.items():
        table = torch.tensor(rows, dtype=torch.float64)  # [repeats, tensors]
        result[f"yardstick.{key}"] = torch.stack([table.square().mean(0).sqrt(), table.amax(0)], 1)
    return result


def update(model, x, target, fit, precision):
    """What STEPS updates change, per parameter."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    trained = clone(model, dtype)
    fit(trained, cast(x, dtype), cast(target, dtype), precision)
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
    tensors |= yardsticks(model, lambda: (make_fields(generator, BATCH), make_fields(generator, BATCH)),
                          lambda trained, x, target, precision: train(
                              trained, x, target, adam(trained), lambda step: cosine_rate(base_rate, step),
                              precision=precision))
    settings = {"lr": base_rate, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": weight_decay,
                "warmup": warmup, "grad_clip": max_norm, "loss_scale": LOSS_SCALE}
    return tensors, settings


def change_case(generator):
    """predict_change with the four time planes: fields [B, V, LAT, LON] and planes [B, 4], constant over the grid."""
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


# Of the rollout: two channels, a and b, of which b has missing points and its mask is an input plane; a diagnostic d; a
# forcing f; a computed plane and a constant; one older state; the four time planes.
ROLLOUT_STEPS, ROLLOUT_BATCH, ROLLOUT_CHANNELS, ROLLOUT_FILL, ROLLOUT_EDGE = 3, 2, 2, 1.5, 1
ROLLOUT_WEIGHTS = [0.5, 1.0, 2.0]
ROLLOUT = {"img_size": [HEIGHT, WIDTH], "patch_size": PATCH, "embed_dim": 2 * HEAD_DIM, "depth": 2, "num_heads": 2,
           "dropout": 0.2, "seed": 8, "n_in_channels": 3, "n_out_channels": 3, "channel_names": ["a", "b", "d", "f"],
           "channels": ["a", "b"], "diagnostic_channels": ["d"], "forcing_channels": ["f"],
           "computed_channels": ["cos_zenith"], "constant_channels": {"z": "file:z"}, "history": 1,
           "time_features": True, "predict_change": True, "missing": {"b": ROLLOUT_FILL}, "missing_masks": ["b"],
           "rollout": ROLLOUT_STEPS, "rollout_weights": ROLLOUT_WEIGHTS, "boundary_width": ROLLOUT_EDGE}


def masked_relative_l2(pred, target):
    """relative_l2 over the points that the target has."""
    present = ~target.isnan()
    error = torch.where(present, pred - target.nan_to_num(), 0).square().flatten(1).sum(1)
    return (error.sqrt() / target.nan_to_num().square().flatten(1).sum(1).sqrt()).mean()


class RolloutBatch:
    """The raw fields of a window, and what they are normalised with."""

    def __init__(self, generator):
        def draw(*shape):
            return fp32_exact(torch.randn(*shape, generator=generator, dtype=torch.float64))

        self.means = torch.tensor([0.5, -1.0, 0.25, 2.0, 0.125, 3.0], dtype=torch.float64)  # a, b, d, f, planes
        self.stds = torch.tensor([2.0, 0.5, 1.5, 4.0, 0.75, 1.25], dtype=torch.float64)
        grid = (HEIGHT, WIDTH)
        self.never = torch.zeros(3, *grid, dtype=torch.bool)  # of a, b, d
        self.never[1, 2:4, 3:6] = True
        self.input = draw(ROLLOUT_BATCH, 7, *grid)  # a, b; a, b one step older; f; the planes
        self.targets = [draw(ROLLOUT_BATCH, 3, *grid) for _ in range(ROLLOUT_STEPS)]  # a, b, d
        self.given = [draw(ROLLOUT_BATCH, 2, *grid) for _ in range(ROLLOUT_STEPS - 1)]  # f, computed
        self.times = [fp32_exact(torch.rand(ROLLOUT_BATCH, TIME_PLANES, generator=generator, dtype=torch.float64))
                      for _ in range(ROLLOUT_STEPS)]
        for fields in (self.input[:, 1], self.input[:, 3], *(target[:, 1] for target in self.targets)):
            fields[:, self.never[1]] = math.nan
            fields[torch.rand(fields.shape, generator=generator) < 0.1] = math.nan  # these come and go

    def tensors(self):
        named = {"input": self.input, "target": self.targets[0], "time": self.times[0]}
        for step in range(2, ROLLOUT_STEPS + 1):
            named |= {f"target.{step}": self.targets[step - 1], f"given.{step}": self.given[step - 2],
                      f"time.{step}": self.times[step - 1]}
        return {name: tensor.float() for name, tensor in named.items()} | {
            "means": self.means, "stds": self.stds, "never_there": self.never.float()}

    def normalised(self, fields, channels):
        mean, std = (v[channels][:, None, None] for v in (self.means, self.stds))
        return (fields - mean) / std

    def target(self, step):
        return self.normalised(self.targets[step], [0, 1, 2])

    def filled(self, fields):
        """A normalised state [B, 2, ...] without missing points."""
        fill = (ROLLOUT_FILL - self.means[1]) / self.stds[1]
        return torch.stack([fields[:, 0], torch.where(fields[:, 1].isnan(), fill, fields[:, 1])], 1)

    def planes(self, step, raw_b):
        """What comes behind the states: f, the planes, b's mask, the time."""
        given = self.input[:, 4:6] if step == 0 else self.given[step - 1]
        planes = self.normalised(torch.cat([given, self.input[:, 6:]], 1), [3, 4, 5])
        time = self.times[step][:, :, None, None].expand(-1, -1, HEIGHT, WIDTH)
        return torch.cat([planes, (~raw_b.isnan()).double()[:, None], time], 1)

    def first(self):
        states = [self.filled(self.normalised(self.input[:, i:i + 2], [0, 1])) for i in (0, 2)]
        return torch.cat([*states, self.planes(0, self.input[:, 1])], 1)

    def continued(self, before, forecast, step):
        truth = self.targets[step - 1][:, :2]
        state, given = forecast[:, :2], self.filled(self.normalised(truth, [0, 1]))
        fill = (ROLLOUT_FILL - self.means[1]) / self.stds[1]
        state = torch.where(self.never[:2], fill, state)
        edge = torch.ones(HEIGHT, WIDTH, dtype=torch.bool)
        edge[ROLLOUT_EDGE:-ROLLOUT_EDGE, ROLLOUT_EDGE:-ROLLOUT_EDGE] = False
        state = torch.where(edge, given, state)
        return torch.cat([state, before[:, :2], self.planes(step, truth[:, 1])], 1)


def rollout_loss(model, batch, iteration, gradient="full"):
    """The loss of the rollout; gradient "last": steps before the last one are data, and the last loss alone counts."""
    loss, x = 0, batch.first()
    for step in range(ROLLOUT_STEPS):
        last = step + 1 == ROLLOUT_STEPS
        drops = reference.Drops(ROLLOUT["dropout"], ROLLOUT["depth"], ROLLOUT["seed"], (iteration << 16) + (step << 48))
        with torch.set_grad_enabled(gradient == "full" or last):
            y = model(x, drops)
            y = torch.cat([y[:, :2] + x[:, :2], y[:, 2:]], 1)
            weight = ROLLOUT_WEIGHTS[step] / sum(ROLLOUT_WEIGHTS) if gradient == "full" else float(last)
            loss = loss + weight * masked_relative_l2(y, batch.target(step))
            x = None if last else batch.continued(x, y, step + 1)
    return loss


def rollout_case(generator):
    model = draw_parameters(generator, reference.ViT((HEIGHT, WIDTH), PATCH, 12, 3, 2 * HEAD_DIM, 2, 2))
    batch = RolloutBatch(generator)
    tensors = batch.tensors() | {f"weight.{name}": p.detach().float() for name, p in model.named_parameters()}
    for gradient in ("full", "last"):
        one = clone(model)
        loss = rollout_loss(one, batch, 0, gradient)
        loss.backward()
        suffix = "" if gradient == "full" else "_last"
        tensors[f"loss{suffix}"] = loss.detach().reshape(1)
        tensors |= {f"gradient{suffix}.{name}": g for name, g in gradients(one).items()}
    trained = clone(model)
    optimizer, losses, norms, rates = adam(trained), [], [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = rollout_loss(trained, batch, step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained.parameters(), math.inf).item())
        rates.append(cosine_rate(5e-3, step))
        optimizer.param_groups[0]["lr"] = rates[-1]
        optimizer.step()
        losses.append(loss.item())
    tensors |= {f"adam.{name}": p.detach() for name, p in trained.named_parameters()}
    tensors |= {f"adam.{key}": torch.tensor(v, dtype=torch.float64)
                for key, v in {"losses": losses, "grad_norms": norms, "rates": rates}.items()}
    settings = {"lr": 5e-3, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8}
    return tensors, {"config": ROLLOUT, "training": settings,
                     "parameters": [name for name, _ in model.named_parameters()]}


def attention_case(generator):
    """Causal attention of as many queries as keys, of fewer and of more. Tensors are [T, heads, channels of a head]."""
    tensors = {}
    for case, queries, keys in (("square", 37, 37), ("fewer_queries", 21, 70), ("more_queries", 70, 21)):
        q, k, v, d_o = (fp32_exact(torch.randn(tokens, 2, HEAD_DIM, generator=generator, dtype=torch.float64))
                        for tokens in (queries, keys, keys, queries))
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        o = F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in leaves), is_causal=True).transpose(0, 1)
        o.backward(d_o)
        tensors |= {f"{case}.{name}": x.float() for name, x in (("q", q), ("k", k), ("v", v), ("d_o", d_o))}
        tensors |= {f"{case}.{name}": x for name, x in (("o", o.detach()), *zip(("dq", "dk", "dv"),
                                                                                (x.grad for x in leaves)))}
    return tensors


IMAGES, IMAGE_SIZE, IMAGE_PATCH, CLASSES = 40, (8, 12), 4, 5  # 2 x 3 tokens


def make_images(generator):
    """Bytes [B, 1, rows, columns] and their classes."""
    return (torch.randint(256, (IMAGES, 1, *IMAGE_SIZE), generator=generator, dtype=torch.uint8),
            torch.randint(CLASSES, (IMAGES,), generator=generator))


def digits_case(generator):
    """A classifier and one batch: everything about one training setup; see tests/golden/README.md."""
    images, labels = make_images(generator)
    config = {"embed_dim": 2 * HEAD_DIM, "depth": 2, "num_heads": 2, "patch_size": IMAGE_PATCH}
    mean, std = reference_digits.statistics(images)
    model = draw_parameters(generator, reference.Classifier(IMAGE_SIZE, IMAGE_PATCH, CLASSES, config["embed_dim"],
                                                            config["depth"], config["num_heads"], mean, std))
    base_rate, weight_decay, warmup, max_norm = 5e-3, 0.1, 3, 2.0

    def fit(trained, x, target, precision="fp64"):
        return train(trained, x, target, adamw(trained, weight_decay),
                     lambda step: cosine_rate(base_rate, step, warmup), max_norm, precision)

    def draw():
        bytes_, classes = make_images(generator)
        return bytes_.double(), classes

    logits, loss, grads = forward_backward(clone(model), images.double(), labels)
    trained = clone(model)
    log = fit(trained, images.double(), labels)
    tensors = {"images": images.float(), "labels": labels.float(), "output": logits, "loss": loss.reshape(1)}
    tensors |= {f"weight.{name}": p.detach().float() for name, p in model.named_parameters()}
    tensors |= {f"gradient.{name}": g for name, g in grads.items()}
    tensors |= {f"adamw.{name}": p.detach() for name, p in trained.named_parameters()}
    tensors |= {f"adamw.{key}": torch.tensor(v, dtype=torch.float64) for key, v in log.items()}
    tensors |= yardsticks(model, draw, fit)
    settings = {"lr": base_rate, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": weight_decay,
                "warmup": warmup, "grad_clip": max_norm, "loss_scale": LOSS_SCALE}
    names = [name for name, _ in model.named_parameters()]
    return tensors, {"config": config, "training": settings, "parameters": names, "mean": mean, "std": std}


CNN_SIZE = {"in": 2, "out": 3, "depth": 4, "width": 6}
CNN_HEIGHT, CNN_WIDTH = 7, 9


def cnn_case(generator):
    """A regression of pictures and one batch: everything about one training setup; see tests/golden/README.md."""
    def draw():
        values = lambda channels: fp32_exact(
            torch.randn(BATCH, channels, CNN_HEIGHT, CNN_WIDTH, generator=generator, dtype=torch.float64))
        return values(CNN_SIZE["in"]), values(CNN_SIZE["out"])

    def fit(trained, x, target, precision="fp64"):
        return train(trained, x, target, adam(trained), lambda step: cosine_rate(base_rate, step), precision=precision)

    model = draw_parameters(generator, reference_cnn.CNN(CNN_SIZE["in"], CNN_SIZE["out"], CNN_SIZE["depth"],
                                                         CNN_SIZE["width"]))
    base_rate = 5e-3
    x, target = draw()
    output, loss, grads = forward_backward(clone(model), x, target)
    trained = clone(model)
    log = fit(trained, x, target)
    tensors = {"input": x.float(), "target": target.float(), "output": output, "loss": loss.reshape(1)}
    tensors |= {f"gradient.{name}": g for name, g in grads.items()}
    tensors |= {f"adam.{name}": p.detach() for name, p in trained.named_parameters()}
    tensors |= {f"adam.{key}": torch.tensor(v, dtype=torch.float64) for key, v in log.items()}
    tensors |= yardsticks(model, draw, fit)
    settings = {"lr": base_rate, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8, "loss_scale": LOSS_SCALE}
    config = {"task": "image_regression", "model": "cnn", "img_size": [CNN_HEIGHT, CNN_WIDTH],
              "n_in_channels": CNN_SIZE["in"], "n_out_channels": CNN_SIZE["out"], "depth": CNN_SIZE["depth"],
              "width": CNN_SIZE["width"], "activate_output": True}
    weights = {name: p.detach().float() for name, p in model.state_dict().items()}
    # The schedule of the course: one rate an epoch.
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1e-3)
    schedule, rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=25), []
    for _ in range(25):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    tensors["course_rates"] = torch.tensor(rates, dtype=torch.float64)
    return weights, tensors, {"config": config, "training": settings, "parameters": list(grads)}


GPT_BATCH, GPT_VOCABULARY, GPT_TOKENS, GPT_WIDTH, GPT_DEPTH, GPT_HEADS = 3, 97, 13, 24, 2, 3
GPT_REPEATS = 32  # a loss is one number: its error varies much
GPTS = {  # each choice at least twice, once with another one changed
    "gpt": {"tie_head": True, "gelu": "tanh", "bias": True, "vocab_multiple": 32, "vocab_padding": "masked",
            "head_size": 8},
    "gpt_untied": {"tie_head": False, "gelu": "erf", "bias": False, "vocab_multiple": 16, "vocab_padding": "live",
                   "head_size": 16},
    "gpt_plain": {"tie_head": True, "gelu": "erf", "bias": False, "vocab_multiple": 1, "vocab_padding": "masked",
                  "head_size": 8},
    "gpt_packed": {"tie_head": True, "gelu": "tanh", "bias": True, "vocab_multiple": 1, "vocab_padding": "masked",
                   "head_size": 8},
}
GPT_DOCUMENTS = [[5, 8], [1, 1, 11], [13]]  # of each sample of gpt_packed, their tokens


def gpt_case(generator, name, tie_head, gelu, bias, vocab_multiple, vocab_padding, head_size):
    """A language model and one batch, of whose targets some do not count."""
    has_yardsticks = name in ("gpt", "gpt_untied")

    def draw():
        tokens = torch.randint(GPT_VOCABULARY, (GPT_BATCH, GPT_TOKENS + 1), generator=generator)
        target = tokens[:, 1:].clone()
        if has_yardsticks:  # of the last sample one target counts
            target[torch.rand(target.shape, generator=generator) < 0.25] = reference_gpt.IGNORED
            target[-1, 1:] = reference_gpt.IGNORED
            target[-1, 0] = tokens[-1, 1]
        return tokens[:, :-1], target

    def fit(trained, x, target, precision="fp64"):
        return train(trained, x, target, adamw(trained, weight_decay),
                     lambda step: cosine_rate(base_rate, step, warmup), max_norm, precision)

    columns = -(-GPT_VOCABULARY // vocab_multiple) * vocab_multiple
    model = draw_parameters(generator, reference_gpt.GPT(
        GPT_VOCABULARY, columns, GPT_TOKENS, GPT_WIDTH, GPT_DEPTH, GPT_HEADS, head_size, 4 * GPT_WIDTH, gelu, bias,
        tie_head, vocab_padding == "live"))
    if name == "gpt_packed":
        model.begins = torch.tensor([[sum(lengths[:i]) for i, n in enumerate(lengths) for _ in range(n)]
                                     for lengths in GPT_DOCUMENTS])
    base_rate, weight_decay, warmup, max_norm = 5e-3, 0.1, 3, 1.0
    x, target = draw()
    logits, loss, grads = forward_backward(clone(model), x, target)
    trained = clone(model)
    log = fit(trained, x, target)
    tensors = {"ids": x.float(), "target": target.float(), "output": logits, "loss": loss.reshape(1)}
    tensors |= {f"weight.{key}": p.detach().float() for key, p in model.named_parameters()}
    tensors |= {f"gradient.{key}": g for key, g in grads.items()}
    tensors |= {f"adamw.{key}": p.detach() for key, p in trained.named_parameters()}
    tensors |= {f"adamw.{key}": torch.tensor(v, dtype=torch.float64) for key, v in log.items()}
    if name == "gpt_packed":
        tensors["begins"] = model.begins.float()
    if has_yardsticks:
        tensors |= yardsticks(model, draw, fit, GPT_REPEATS)
    settings = {"lr": base_rate, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": weight_decay,
                "warmup": warmup, "grad_clip": max_norm, "loss_scale": LOSS_SCALE}
    config = {"task": "language_model", "model": "gpt", "seq_length": GPT_TOKENS, "vocab_size": GPT_VOCABULARY,
              "positions": GPT_TOKENS, "embed_dim": GPT_WIDTH, "depth": GPT_DEPTH, "num_heads": GPT_HEADS,
              "head_size": head_size, "gelu": gelu, "bias": bias, "tie_head": tie_head,
              "vocab_multiple": vocab_multiple, "vocab_padding": vocab_padding}
    return tensors, {"config": config, "training": settings, "parameters": list(grads)}


UNETS = {
    "unet": {"batch": 1, "size": 64, "full_scale": True, "lambda_rho": 0.0},
    "unet_half": {"batch": 2, "size": 32, "full_scale": False, "lambda_rho": 2.0**-16},
}
UNET_WIDTH, UNET_IN, UNET_OUT = 4, 4, 5
SAMPLES_OF_A_SUMMARY = 48


def hashed(shape, seed, scale=1.0, offset=0.0):
    """Numbers in [offset - scale, offset + scale) that are made again from their formula, in C++ too: the files of a
    U-Net would be large. Exact in fp32 where scale and offset are powers of two of similar size."""
    n = math.prod(shape)
    mask = 0xFFFFFFFF
    bits = ((torch.arange(n, dtype=torch.int64) + 1) * 2654435761 + seed * 40503) & mask
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = ((bits ^ (bits >> shift)) * factor) & mask
    bits ^= bits >> 16
    values = (bits >> 8).double() / 2**23 - 1
    return (offset + scale * values).reshape(shape)


def summary(tensor):
    """A large tensor in a few numbers: its norm and a sum with signs, each over the root of its size, and elements at
    equal distances."""
    values = tensor.detach().double().reshape(-1)
    n = values.numel()
    signs = torch.sign(hashed((n,), 0))
    root = n**0.5
    picked = values[(torch.arange(SAMPLES_OF_A_SUMMARY) * n) // SAMPLES_OF_A_SUMMARY]
    return torch.cat([torch.stack([values.norm() / root, (values * signs).sum() / root]), picked])


def unet_case(batch, size, full_scale, lambda_rho):
    """A regression of volumes and one batch. Inputs and weights are those of hashed(), results are summaries."""
    def draw(seed):
        box = (size, size, size)
        x = hashed((batch, UNET_IN, *box), 2 * seed + 1)
        return x, hashed((batch, UNET_OUT, *box), 2 * seed + 2, 0.5, -0.25)

    def fit(trained, x, target, precision="fp64"):
        return train(trained, x, target, adam(trained), lambda step: cosine_rate(base_rate, step), precision=precision)

    model = reference_unet.UNet(UNET_IN, UNET_OUT, UNET_WIDTH, full_scale, lambda_rho).double()
    scales = {}  # of the weights: powers of two
    for name, p in model.named_parameters():
        if p.dim() == 1:
            scales[name] = 2.0**-4
            continue
        terms = 64 * p.shape[1] if "down" in name else 8 * p.shape[0]  # of an output
        scales[name] = 2.0**round(math.log2((6 / terms)**0.5))
    with torch.no_grad():
        for seed, (name, p) in enumerate(model.named_parameters()):
            p.copy_(hashed(p.shape, 1000 + seed, scales[name]))
    base_rate = 2.0**-9
    x, target = draw(0)
    output, loss, grads = forward_backward(clone(model), x, target)
    trained = clone(model)
    log = fit(trained, x, target)
    tensors = {"output": summary(output), "loss": loss.reshape(1)}
    tensors |= {f"gradient.{name}": summary(g) for name, g in grads.items()}
    tensors |= {f"adam.{name}": summary(p) for name, p in trained.named_parameters()}
    tensors |= {f"adam.{key}": torch.tensor(v, dtype=torch.float64) for key, v in log.items()}
    seeds = iter(range(1, 1 + REPEATS))
    if not full_scale:
        tensors |= yardsticks(model, lambda: draw(next(seeds)), fit)
    tensors["rates"] = torch.tensor([reference_unet.rate(i, 2e-4, 0.0, 512, 64, "sqrt", 128, 40 * 128)
                                     for i in (1, 127, 128, 129, 1024, 5120)], dtype=torch.float64)
    settings = {"lr": base_rate, "num_iters": STEPS, "betas": [0.9, 0.95], "eps": 1e-8, "loss_scale": LOSS_SCALE}
    config = {"task": "volume_regression", "model": "unet", "volumes": "synthetic", "augment": "none",
              "data_size": size, "n_in_channels": UNET_IN, "n_out_channels": UNET_OUT, "width": UNET_WIDTH,
              "full_scale": full_scale, "lambda_rho": lambda_rho}
    return tensors, {"config": config, "training": settings, "parameters": list(grads), "batch": batch,
                     "scales": scales}


def unet_weights():
    """A state_dict of the tutorials' network, in one channel where theirs has 64. No two of its numbers are at the same
    place of the formula."""
    model = reference_unet.UNet(UNET_IN, UNET_OUT, 1)
    with torch.no_grad():
        for seed, p in enumerate(model.parameters()):
            p.copy_(hashed(p.shape, 2000 + seed))
    return model.state_dict()


# Whole runs. Stored fields are larger than the grid that the model sees; steps are six hours apart.
FULL_HEIGHT, FULL_WIDTH = HEIGHT + 1, WIDTH + 1
NAMES = ["u10", "v10", "t2m"]
FILES = {  # steps and the time of the first: a leap day, half hours, a turn of the year
    "train/2000": (9, datetime.datetime(2000, 2, 27, 0, 30)),
    "train/2001": (10, datetime.datetime(2001, 6, 1, 5)),
    "valid/2002": (9, datetime.datetime(2002, 10, 20, 18)),
    "test/2003": (8, datetime.datetime(2003, 12, 31, 6)),
}
LATITUDES = [75.0, 50.0, 25.0, 0.0, -25.0, -50.0, -75.0]
LONGITUDES = [30.0 * i for i in range(FULL_WIDTH)]
HOURS = 6
RUN_KEYS = {"img_size": [HEIGHT, WIDTH], "patch_size": PATCH, "n_in_channels": 3, "n_out_channels": 3,
            "channel_names": NAMES, "embed_dim": 2 * HEAD_DIM, "num_heads": 2, "depth": 2, "dropout": 0.0,
            "predict_change": False, "time_features": False, "dt": 1, "sampler": "all_pairs", "limit_nsamples": None,
            "limit_nsamples_val": None, "seed": 0, "loss": "relative_l2", "channel_weights": None, "optimizer": "adam",
            "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0, "grad_clip": 0.0, "grad_accumulation": 1,
            "warmup": 0, "lr_schedule": "cosine", "batch_lr_scaling": "none", "reference_batch_size": 16,
            "validate_every": 0}
RUNS = {
    # All that isobar adds to the tutorial: 11 of 15 samples in 2 iterations an epoch, the last epoch half done; 5
    # of 7 samples of validation in batches of 2, 2 and 1.
    "weather": RUN_KEYS | {"depth": 3, "dropout": 0.2, "predict_change": True, "time_features": True, "dt": 2,
                           "limit_nsamples": 11, "limit_nsamples_val": 5, "seed": 7, "loss": "weighted_mse",
                           "channel_weights": [1.0, 0.5, 2.0], "optimizer": "adamw", "weight_decay": 0.1,
                           "grad_clip": 0.7, "global_batch_size": 4, "grad_accumulation": 2, "num_iters": 9, "lr": 8e-3,
                           "warmup": 3, "batch_lr_scaling": "sqrt", "validate_every": 4},
    # The tutorial's ways: its sampler, loss, schedule and latitudes; two of three channels are forecast.
    "tutorial": RUN_KEYS | {"n_out_channels": 2, "sampler": "tutorial", "global_batch_size": 5, "num_iters": 7,
                            "lr": 1e-3, "batch_lr_scaling": "linear", "reference_batch_size": 2},
    # fp16, of whose first gradients two are too large for the loss scale: see fp16_case.
    "fp16": RUN_KEYS | {"loss": "weighted_mse", "channel_weights": [1.0, 1.0, 1.0], "global_batch_size": 5,
                        "num_iters": 8, "lr": 1e-3, "warmup": 4},
}
FIRST_LOSS_SCALE, FP16_MAX = 65536.0, 65504.0


def run_data(generator):
    """Fields that remember the step before, each channel with its mean and spread: {name: [T, C, H', W']}, and more."""
    shape = (3, FULL_HEIGHT, FULL_WIDTH)
    draw = lambda: torch.randn(shape, generator=generator, dtype=torch.float64)
    mean, std = torch.tensor([1.5, -0.75, 280.0]).double(), torch.tensor([6.0, 4.5, 14.0]).double()
    climate, fields = 0.5 * draw(), {}
    for name, (steps, _) in FILES.items():
        state, stack = draw(), []
        for _ in range(steps):
            stack.append((climate + state) * std[:, None, None] + mean[:, None, None])
            state = 0.8 * state.roll(1, 2) + 0.6 * draw()
        fields[name] = torch.stack(stack).float()
    climate = climate * std[:, None, None] + mean[:, None, None]
    return fields, {"means": mean, "stds": std, "time_means": climate.float()}


def data_of(fields, statistics, described):
    """As reference_run takes it; described: with latitudes and times."""
    def files(folder):
        found = []
        for name, (steps, start) in FILES.items():
            times = [start + datetime.timedelta(hours=HOURS * i) for i in range(steps)] if described else None
            if name.startswith(folder):
                found.append(reference_run.File(fields[name], times))
        return found

    return reference_run.Data(files("train"), files("valid"), files("test"), **statistics,
                              latitudes=torch.tensor(LATITUDES, dtype=torch.float64) if described else None)


def deviations(ours, exact, relative=True):
    """Largest |ours - exact| (/ |exact|) of all numbers in two like trees."""
    if isinstance(exact, dict):
        return max(deviations(ours[key], exact[key], relative) for key in exact)
    if isinstance(exact, (list, tuple)):
        return max(deviations(a, b, relative) for a, b in zip(ours, exact))
    return abs(ours - exact) / (abs(exact) if relative else 1)


def figures(log, scores=None):
    """All numbers of a run that rounding errors move relative to their size."""
    numbers = [[[line[key] for line in log["train"]] for key in ("loss", "grad_norm")],
               [[line[key] for line in log["valid"]] for key in ("loss", "rmse", "persistence_rmse", "rmse_tutorial")]]
    return numbers if scores is None else numbers + [scores["rmse"], scores["persistence_rmse"]]


def run_of(config, data, starts, steps, **how):
    """The run, its log and picture at the end, then the forecast of its best weights and its scores."""
    run = reference_run.Run(config, data, **how)
    log, picture = run.train(), run.picture()
    run.last_weights = {key: value.clone() for key, value in run.model.state_dict().items()}
    run.model.load_state_dict(run.best_weights)
    forecast, scores = run.roll_out(starts, steps)
    return run, log, picture, forecast, scores


def run_case(generator, config, data, starts, steps):
    """A run in fp64, and how far fp32 strays from it at most in REPEATS draws of its rounding errors: relatively, of
    ACC absolutely, of fields in standard deviations."""
    initial = reference_run.Run(config, data).model.state_dict()
    run, log, picture, forecast, scores = run_of(config, data, starts, steps)
    tensors = {f"picture.{key}": value for key, value in picture.items()} | {"forecast": forecast}
    for when, weights in (("initial", initial), ("final", run.last_weights)):
        tensors |= {f"{when}.{name}": value.float() for name, value in weights.items()}

    apart = lambda a, b: ((a.double() - b) / run.stds[:b.shape[-3], None, None]).abs().max().item()
    acc = lambda scores: [scores["acc"], scores["persistence_acc"]]
    yard = {"figures": [], "acc": [], "fields": []}
    for _ in range(REPEATS):
        _, log32, picture32, forecast32, scores32 = run_of(config, data, starts, steps, dtype=torch.float32,
                                                           rounding=generator)
        yard["figures"].append(deviations(figures(log32, scores32), figures(log, scores)))
        yard["acc"].append(deviations(acc(scores32), acc(scores), relative=False))
        yard["fields"].append(max(apart(picture32["forecast"], picture["forecast"]), apart(forecast32, forecast)))
    return tensors, {"config": config, "log": log, "starts": starts, "steps": steps, "scores": scores,
                     "yardstick": {kind: max(values) for kind, values in yard.items()}}


def fp16_case(generator, config, data):
    """fp16: the weights of the loss are such that the first two updates overflow, by a factor of 2.8 and 1.4."""
    probe = reference_run.Run(config, data)
    probe.train()
    weight = 2.8 * FP16_MAX / (probe.largest_gradient[0] * FIRST_LOSS_SCALE)
    config = config | {"channel_weights": [float(torch.tensor(weight).half())] * 3}
    run = reference_run.Run(config, data, skipped=(0, 1))
    log = run.train()
    scale = [FIRST_LOSS_SCALE / 2**min(i, 2) for i in range(config["num_iters"])]
    margin = [g * s / FP16_MAX for g, s in zip(run.largest_gradient, scale)]
    assert all((m > 1.3) if i < 2 else (m < 0.8) for i, m in enumerate(margin)), margin
    how = {"dtype": torch.float32, "autocast": torch.float16, "skipped": (0, 1), "rounding": generator}
    yard = max(deviations(figures(reference_run.Run(config, data, **how).train()), figures(log))
               for _ in range(REPEATS))
    return {}, {"config": config, "log": log, "loss_scales": scale, "skipped": [1, 2], "yardstick": {"figures": yard}}


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
    write(attention_case(torch.Generator().manual_seed(21)), out / "attention.safetensors")
    write(forecast_case(generator, model), out / "forecast.safetensors", config=config)

    fields, statistics = run_data(generator)
    times = {name: [steps, f"hours since {start}"] for name, (steps, start) in FILES.items()}
    write(fields | statistics, out / "run_data.safetensors", channels=NAMES, latitudes=LATITUDES, hours=HOURS,
          longitudes=LONGITUDES, times={name: start for name, (_, start) in times.items()})
    described, bare = (data_of(fields, statistics, known) for known in (True, False))
    for name, data, starts, steps in (("weather", described, [1, 3], 2), ("tutorial", bare, [2], 1)):
        tensors, metadata = run_case(generator, RUNS[name], data, starts, steps)
        if name == "weather":  # the weights of one run are enough
            tensors = {key: value for key, value in tensors.items() if key.split(".")[0] not in ("initial", "final")}
        write(tensors, out / f"run_{name}.safetensors", **metadata)
    tensors, metadata = fp16_case(generator, RUNS["fp16"], bare)
    write(tensors, out / "run_fp16.safetensors", **metadata)

    tensors, metadata = digits_case(generator)
    write(tensors, out / "digits.safetensors", **metadata)

    tensors, metadata = rollout_case(torch.Generator().manual_seed(23))
    write(tensors, out / "rollout.safetensors", **metadata)

    weights, tensors, metadata = cnn_case(torch.Generator().manual_seed(22))
    write(weights, out / "cnn_weights.safetensors")
    write(tensors, out / "cnn.safetensors", **metadata)

    for seed, (name, choices) in enumerate(GPTS.items()):
        tensors, metadata = gpt_case(torch.Generator().manual_seed(30 + seed), name, **choices)
        write(tensors, out / f"{name}.safetensors", **metadata)

    write(unet_weights(), out / "unet_weights.safetensors")
    for name, sizes in UNETS.items():
        tensors, metadata = unet_case(**sizes)
        write(tensors, out / f"{name}.safetensors", **metadata)


if __name__ == "__main__":
    main()
