"""Whole runs of `isobar train` and `isobar forecast` once more, in PyTorch and fp64: from raw fields and a config to
every figure that the run's files must hold. Written from docs and contracts, not from the code: the oracle of
tools/make_golden.py for what lies above the network.

A Run works in the dtype that it is given. What it yields in fp32, beside fp64, is how far rounding may lead astray.
"""
import dataclasses
import datetime
import math

import numpy as np
import torch

import reference_vit as reference

FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
MATRIX_STD = 0.02
AUTOCAST_SCALE = 1024.0  # fp16 gradients neither underflow nor overflow; a power of two changes no rounding


@dataclasses.dataclass
class File:
    """One data file: fields [T, C, H', W'] fp32; times, one a step, or None."""
    fields: torch.Tensor
    times: list = None


@dataclasses.dataclass
class Data:
    train: list
    valid: list
    test: list
    means: torch.Tensor  # [C]
    stds: torch.Tensor  # [C]
    time_means: torch.Tensor  # [C, H', W']
    latitudes: torch.Tensor = None  # [H'] degrees


# ---- what a run starts from ----


def hash_of(name):
    """FNV-1a with 64 bits: a parameter's random stream."""
    value = FNV_OFFSET
    for byte in name.encode():
        value = (value ^ byte) * FNV_PRIME % 2**64
    return value


def normals(seed, name, count):
    """Box and Muller on the first two words of each element's Philox block."""
    words = reference.philox(seed, hash_of(name), np.arange(count)).astype(np.float64)
    return np.sqrt(-2 * np.log((words[:, 0] + 1) / 2**32)) * np.cos(2 * np.pi * words[:, 1] / 2**32)


def uniforms(seed, name, count):
    """(0, 1], four to a Philox block."""
    words = reference.philox(seed, hash_of(name), np.arange((count + 3) // 4)).reshape(-1)[:count]
    return (words.astype(np.float64) + 1) / 2**32


def initialise(model, seed):
    for name, p in model.named_parameters():
        if name.startswith("patch_embed."):
            bound = 1 / math.sqrt(math.prod(model.patch_embed.proj.weight.shape[1:]))
            values = bound * (2 * uniforms(seed, name, p.numel()) - 1)
        elif name == "pos_embed" or (p.dim() == 2 and not (name == "head.weight" and model.predict_change)):
            values = MATRIX_STD * normals(seed, name, p.numel())
        else:
            is_gain = ".norm" in f".{name}" and name.endswith("weight")
            values = np.full(p.numel(), 1.0 if is_gain else 0.0)
        with torch.no_grad():
            p.copy_(torch.from_numpy(values).reshape(p.shape))


def round_at_random(model, dtype, generator):
    """Each weight becomes one of the two numbers of dtype that it lies between."""
    for p in model.parameters():
        nearest = p.detach().to(dtype)
        beyond = torch.nextafter(nearest, torch.where(p > nearest, torch.inf, -torch.inf).to(dtype))
        is_between = (p != nearest) & (torch.rand(p.shape, generator=generator) < 0.5)
        with torch.no_grad():
            p.copy_(torch.where(is_between, beyond, nearest))


# ---- which samples, in which order ----


def list_samples(files, config):
    """(file, step) of every sample: all pairs, or the tutorial's rule, in file order."""
    dt, samples = config["dt"], []
    for f, file in enumerate(files):
        steps = len(file.fields)
        if config["sampler"] == "tutorial":
            for i in range(steps):
                local = i % (steps - dt)
                samples.append((f, local + dt if local < dt else local))
        else:
            samples += [(f, step) for step in range(steps - dt)]
    return samples


def shuffled(samples, seed, epoch):
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed + epoch))
    return [samples[i] for i in order]


def parts_of(samples, size):
    return [samples[i:i + size] for i in range(0, len(samples), size)]


def time_planes(time):
    """sin and cos of the hour of day, sin and cos of the day of year."""
    day = (time - datetime.datetime(time.year, 1, 1)) / datetime.timedelta(days=1)
    days = (datetime.datetime(time.year + 1, 1, 1) - datetime.datetime(time.year, 1, 1)).days
    angles = [2 * math.pi * (day % 1), 2 * math.pi * day / days]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


# ---- how weights are updated ----


def learning_rate(config, done):
    """Of the next update after `done` iterations."""
    c = config
    ratio = c["global_batch_size"] / c["reference_batch_size"]
    base = c["lr"] * {"none": 1, "sqrt": math.sqrt(ratio), "linear": ratio}[c["batch_lr_scaling"]]
    shape = 0.5 * (1 + math.cos(math.pi * done / c["num_iters"])) if c["lr_schedule"] == "cosine" else 1
    return base * (min((done + 1) / c["warmup"], shape) if c["warmup"] else shape)


def make_optimizer(config, model):
    """Adam, or AdamW, which decays weight matrices only."""
    decays = lambda name, p: config["optimizer"] == "adamw" and p.dim() >= 2 and name != "pos_embed"
    groups = {True: [], False: []}
    for name, p in model.named_parameters():
        groups[decays(name, p)].append(p)
    return torch.optim.AdamW([{"params": groups[True], "weight_decay": config["weight_decay"]},
                              {"params": groups[False], "weight_decay": 0.0}],
                             betas=config["betas"], eps=config["eps"])


def update(config, optimizer, done):
    """The update after `done` iterations from the gradients that the parameters hold."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, done)
    optimizer.step()


def clip(config, model):
    """Clips the gradients; returns their norm before."""
    return torch.nn.utils.clip_grad_norm_(model.parameters(), config["grad_clip"] or math.inf).item()


# ---- the figures ----


class Scores:
    """Pools squared errors and anomaly products [B, V, LAT, LON] over samples."""

    def __init__(self, row_weights):
        self.rows = row_weights[:, None]
        self.squares, self.products = [], []

    def add(self, forecast, target, climatology=None):
        self.squares.append((self.rows * (forecast - target)**2).mean((2, 3)))
        if climatology is not None:
            a, b = forecast - climatology, target - climatology
            self.products.append(torch.stack([(self.rows * p).sum((2, 3)) for p in (a * b, a * a, b * b)]))

    def rmse(self):
        return torch.cat(self.squares).mean(0).sqrt()

    def mean_sample_rmse(self):
        return torch.cat(self.squares).sqrt().mean(0)

    def acc(self):
        both, ours, theirs = torch.cat(self.products, 1).sum(1)
        return both / (ours * theirs).sqrt()


class Run:
    """A training run of `config` (isobar's keys, all of those that are used here) on `data`.

    rounding: a generator that rounds the initial weights up or down at random, for another draw of rounding errors;
    autocast: the 16-bit type of products; skipped: iterations, from 0, without their update.
    """

    def __init__(self, config, data, dtype=torch.float64, rounding=None, autocast=None, skipped=()):
        self.config, self.dtype, self.autocast, self.skipped = config, dtype, autocast, set(skipped)
        self.data, (self.height, self.width) = data, config["img_size"]
        self.names = config["channel_names"][:config["n_out_channels"]]
        self.means, self.stds = data.means.to(dtype), data.stds.to(dtype)
        self.parts = config["grad_accumulation"]
        self.batch = config["global_batch_size"] // self.parts
        planes = 4 if config["time_features"] else 0
        self.model = reference.ViT((self.height, self.width), config["patch_size"], config["n_in_channels"] + planes,
                                   config["n_out_channels"], config["embed_dim"], config["depth"],
                                   config["num_heads"], config["predict_change"]).double()
        initialise(self.model, config["seed"])
        if rounding is not None:
            round_at_random(self.model, dtype, rounding)
        self.model.to(dtype)
        self.rows = self._row_weights().to(dtype)
        weights = config["channel_weights"]
        self.channel_weights = None if weights is None else torch.tensor(weights, dtype=dtype)
        self.samples = list_samples(data.train, config)[:config["limit_nsamples"]]
        self.valid_samples = list_samples(data.valid, config)[:config["limit_nsamples_val"]]
        self.per_epoch = len(self.samples) // config["global_batch_size"]
        self.largest_gradient = []  # in a forecast, of each part: what fp16 must hold

    def _row_weights(self):
        if self.data.latitudes is None:
            return reference.latitude_weights(self.height)
        cosine = torch.cos(torch.deg2rad(self.data.latitudes[:self.height]))
        return cosine / cosine.mean()

    def _fields(self, file, step):
        """Normalised [V, LAT, LON], of the cropped grid."""
        raw = file.fields[step, :, :self.height, :self.width].to(self.dtype)
        return (raw - self.means[:, None, None]) / self.stds[:, None, None]

    def _image(self, file, step, fields):
        """Fields and the time planes of a step."""
        if not self.config["time_features"]:
            return fields
        planes = torch.tensor(time_planes(file.times[step]), dtype=self.dtype)
        return torch.cat([fields, planes[:, None, None].expand(-1, self.height, self.width)])

    def _load(self, files, samples):
        """Images and targets of a batch."""
        images, targets = [], []
        for f, step in samples:
            images.append(self._image(files[f], step, self._fields(files[f], step)))
            targets.append(self._fields(files[f], step + self.config["dt"])[:len(self.names)])
        return torch.stack(images), torch.stack(targets)

    def _forecast(self, image, drops=reference.NoDrops()):
        with torch.autocast("cpu", self.autocast, enabled=self.autocast is not None):
            return self.model(image, drops)

    def _loss(self, forecast, target):
        kind = self.config["loss"]
        if kind == "relative_l2":
            return reference.relative_l2(forecast, target)
        function = reference.weighted_mse if kind == "weighted_mse" else reference.relative_l2
        return function(forecast, target, self.rows, self.channel_weights)

    def rate(self, done):
        return learning_rate(self.config, done)

    def epoch(self, iteration):
        return -(-iteration // self.per_epoch)

    def _iterate(self, optimizer, iteration):
        """One iteration, counted from 0: the mean loss and the gradient's norm before clipping."""
        c, loss_sum = self.config, 0.0
        epoch, at = divmod(iteration, self.per_epoch)
        batches = parts_of(shuffled(self.samples, c["seed"], epoch), self.batch)
        scale = 1.0 if self.autocast is None else AUTOCAST_SCALE
        optimizer.zero_grad()
        for part in range(self.parts):
            image, target = self._load(self.data.train, batches[at * self.parts + part])
            drops = reference.NoDrops()
            if c["dropout"]:
                drops = reference.Drops(c["dropout"], c["depth"], c["seed"], (iteration * self.parts + part) << 16)
            forecast = self._forecast(image, drops)
            forecast.retain_grad()
            loss = self._loss(forecast, target) / self.parts
            (loss * scale).backward()
            loss_sum += loss.item()
            self.largest_gradient.append(forecast.grad.abs().max().item() / scale)
        for p in self.model.parameters():
            p.grad /= scale
        norm = clip(c, self.model)
        if iteration not in self.skipped:
            update(c, optimizer, iteration)
        return loss_sum, norm

    def validate(self):
        scores, persistence, losses = Scores(self.rows), Scores(self.rows), []
        with torch.no_grad():
            for sample in self.valid_samples:
                image, target = self._load(self.data.valid, [sample])
                forecast = self._forecast(image)
                losses.append(self._loss(forecast, target).item())
                scores.add(forecast, target)
                persistence.add(image[:, :len(self.names)], target)
        by_name = lambda values: dict(zip(self.names, values.tolist()))
        return {"loss": sum(losses) / len(losses), "rmse": by_name(scores.rmse()),
                "persistence_rmse": by_name(persistence.rmse()),
                "rmse_tutorial": by_name(scores.mean_sample_rmse())}

    def _is_due(self, iteration, every):
        return iteration % (every or self.per_epoch) == 0 or iteration == self.config["num_iters"]

    def train(self):
        """{"train": [a line an iteration], "valid": [...], "epochs": [...], "best": iteration}; weights stay trained.

        `best_weights` are those of the lowest validation loss.
        """
        optimizer, losses, best = make_optimizer(self.config, self.model), [], math.inf
        train, valid, epochs = [], [], []
        for iteration in range(self.config["num_iters"] + 1):
            if iteration > 0:
                loss, norm = self._iterate(optimizer, iteration - 1)
                losses = losses if (iteration - 1) % self.per_epoch else []
                losses.append(loss)
                train.append({"iteration": iteration, "epoch": self.epoch(iteration), "loss": loss,
                              "lr": self.rate(iteration - 1), "grad_norm": norm})
                if self._is_due(iteration, 0):
                    epochs.append({"iteration": iteration, "loss": sum(losses) / len(losses),
                                   "next_lr": self.rate(iteration)})
            if iteration == 0 or self._is_due(iteration, self.config["validate_every"]):
                valid.append({"iteration": iteration, "epoch": self.epoch(iteration)} | self.validate())
                if valid[-1]["loss"] < best:
                    best, best_iteration = valid[-1]["loss"], iteration
                    self.best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}
        return {"train": train, "valid": valid, "epochs": epochs, "best": best_iteration}

    def _physical(self, fields):
        channels = fields.shape[-3]
        return fields * self.stds[:channels, None, None] + self.means[:channels, None, None]

    def picture(self):
        """The forecast of the first validation sample, physical [V, LAT, LON], and its target."""
        image, target = self._load(self.data.valid, self.valid_samples[:1])
        with torch.no_grad():
            return {"forecast": self._physical(self._forecast(image))[0], "target": self._physical(target)[0]}

    def roll_out(self, starts, steps):
        """Forecasts [K, V, LAT, LON] from the first start in physical units, and the scores over all starts."""
        dt, file, channels = self.config["dt"], self.data.test[0], len(self.names)
        climatology = self.data.time_means[:, :self.height, :self.width].to(self.dtype)
        climatology = ((climatology - self.means[:, None, None]) / self.stds[:, None, None])[:channels]
        totals = {who: [Scores(self.rows) for _ in range(steps)] for who in ("", "persistence_")}
        first = []
        with torch.no_grad():
            for start in starts:
                fields = self._fields(file, start)
                still = fields[:channels]
                for k in range(steps):
                    fields = self._forecast(self._image(file, start + k * dt, fields)[None])[0]
                    target = self._fields(file, start + (k + 1) * dt)[:channels]
                    totals[""][k].add(fields[None], target[None], climatology)
                    totals["persistence_"][k].add(still[None], target[None], climatology)
                    if start == starts[0]:
                        first.append(self._physical(fields))
        scores = {"starts": len(starts), "lead_steps": [(k + 1) * dt for k in range(steps)]}
        for who, leads in totals.items():
            rmse = torch.stack([lead.rmse() for lead in leads]) * self.stds[:channels]
            acc = torch.stack([lead.acc() for lead in leads])
            scores[who + "rmse"] = {name: rmse[:, c].tolist() for c, name in enumerate(self.names)}
            scores[who + "acc"] = {name: acc[:, c].tolist() for c, name in enumerate(self.names)}
        return torch.stack(first), scores
