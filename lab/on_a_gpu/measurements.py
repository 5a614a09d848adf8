"""What is measured, and which predictions it is about: rows of docs/kernel_report.md, the products of a step, what a
step costs beside its kernels, and the step itself."""
import collections
import csv
import dataclasses
import json
import shutil
import statistics

ROWS, FIELDS = 16 * 4050, "16x20x360x720"
PARAMETERS = {"base": 23_832_960, "mp": 157_930_000}
WIDTH, HEAD = {"base": 384, "mp": 1024}, {"base": 48, "mp": 128}
WITH_BIAS = 4  # CUBLASLT_EPILOGUE_BIAS
COUNT = 1000  # launches, and waits
UPLOADED = 2 * 16 * 20 * 360 * 720  # numbers in fp32: a batch of inputs and targets
ITERATIONS, EVERY = 40, 10
WORKERS = 8  # that read
OF_REHEARSAL = {"embed_dim": 16, "depth": 1, "num_heads": 2, "patch_size": 2, "img_size": [8, 16], "n_in_channels": 3,
                "n_out_channels": 3, "global_batch_size": 2}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One op of isobar-bench."""
    op: str
    shape: str
    dtype: str
    family: str  # of the checks that it needs; empty: none
    title: str
    predicted: dict  # microseconds by the name of a GPU
    section: str = "kernels"
    per: int = 1  # what the time is divided by


@dataclasses.dataclass
class Row:
    section: str
    title: str
    predicted: float | None  # microseconds
    measured: float | None
    note: str = ""

    @property
    def ratio(self):
        return self.measured / self.predicted if self.predicted and self.measured is not None else None


# ---- kernels, products and costs, by isobar-bench -------------------------------------------------------------------


def kernels_measured():
    """(op, shape, dtype, family, rows of the report that it is the sum of)"""
    for config, width in WIDTH.items():
        head, hidden = HEAD[config], 4 * width
        of, heads, backward = f"({config}, head {head})", f"16x8x4050x4050x{head}", ("delta", "dkdv", "dq")
        yield "attention_fwd", heads, "bf16", "attention", [f"attention_fwd {of}"]
        yield "attention_bwd", heads, "bf16", "attention", [f"attention_{part} {of}" for part in backward]
        yield "column_sum", f"{ROWS}x{width}", "fp32", "sums", [f"column_sum ({config}, {width} columns)"]
        for op in ("layernorm_fwd", "layernorm_bwd"):
            yield op, f"{ROWS}x{width}", "bf16", "layer norm", [f"{op} ({config}, {width} columns)"]
        for op in ("gelu_fwd", "gelu_bwd"):
            yield op, str(ROWS * hidden), "bf16", "GELU", [f"{op} ({config})"]
        yield "adam", str(PARAMETERS[config]), "bf16", "Adam", [f"adam ({config})"]
    heads, backward = f"16x8x4050x4050x{HEAD['base']}", ("delta in fp32", "dkdv in TF32", "dq in TF32")
    yield "attention_fwd", heads, "tf32", "attention", ["attention_fwd in TF32 (base, head 48)"]
    yield "attention_bwd", heads, "tf32", "attention", [f"attention_{part} (base, head 48)" for part in backward]
    fields, patches = "fields", f"{FIELDS}x8"
    yield "normalize", FIELDS, "fp32", fields, ["normalize (base)"]
    yield "patchify", patches, "bf16", fields, ["patchify (base)"]
    yield "forecast_loss_sums", patches, "fp32", fields, ["forecast_loss_sums (base)"]
    yield "forecast_loss_bwd", patches, "bf16", fields, ["forecast_loss_bwd (base)"]
    yield "add_row", f"16x{4050 * WIDTH['base']}", "fp32", "elementwise", ["add_row (base)"]
    yield "cast", str(ROWS * WIDTH["base"]), "bf16", "elementwise", ["cast (base)"]
    yield "sum_of_squares", str(PARAMETERS["base"]), "fp32", "sums", ["sum_of_squares (base)"]
    for op in ("conv_fwd", "conv_bwd_data", "conv_bwd_weight"):
        yield op, "64x256x512x8x8x8x3x1x1", "bf16", "convolution", [f"{op} (256 to 512 channels)"]


def sum_of(predictions, names):
    """Of several kernels, for the GPUs that all have predictions for."""
    times = [predictions["kernels"].get(name, {}) for name in names]
    return {gpu: sum(one[gpu] for one in times) for gpu in times[0] if all(gpu in one for one in times)}


def product_as_op(product):
    """The op of isobar-bench, and its shape: rows, features out, features in."""
    m, n, k, rows = (product[key] for key in ("m", "n", "k", "rows"))
    if k == rows:
        return "linear_dw", f"{rows}x{n}x{m}"
    if product["epilogue"] == WITH_BIAS:
        return "linear_fwd", f"{rows}x{m}x{k}"
    return "linear_dx", f"{rows}x{k}x{m}"


def measurements(predictions):
    for op, shape, dtype, family, names in kernels_measured():
        yield Measurement(op, shape, dtype, family, " + ".join(names), sum_of(predictions, names))
    for product in predictions["products"]:
        op, shape = product_as_op(product)
        title = f"{op} {shape} ({product['step']}, {product['count']} a step)"
        yield Measurement(op, shape, product["dtype"], "products", title, product["microseconds"], "products")
    yield Measurement("upload", str(UPLOADED), "fp32", "", f"upload of {UPLOADED * 4 >> 20} MiB",
                      {gpu: UPLOADED * 4 * a_byte for gpu, a_byte in predictions["upload_byte"].items()}, "costs")
    yield Measurement("launches", str(COUNT), "fp32", "", "a launch of a kernel that does nothing",
                      predictions["launch"], "costs", COUNT)
    yield Measurement("waits", str(COUNT), "fp32", "", "a launch, and the host waits for it", predictions["wait"],
                      "costs", COUNT)


def parse_bench(text):
    """Results of isobar-bench --json, in the order of its ops; what is not a whole line is left out."""
    results = []
    for line in text.splitlines():
        try:
            results.append(json.loads(line))
        except ValueError:
            break
    return [result for result in results if isinstance(result, dict) and "microseconds" in result]


def measure_ops(runner, bench, ops, gpu, rehearsal, limit):
    """[Row] of measurements of one dtype, by one process. What it did not come to has the reason in its note."""
    flags = ["--device", "cuda", "--dtype", ops[0].dtype, "--json"]
    flags += ["--small", "--seconds", "0"] if rehearsal else []
    for one in ops:
        flags += ["--op", one.op] + ([] if rehearsal else ["--shape", one.shape])
    # Predicted are isobar's own kernels of a convolution, not cuDNN's.
    outcome = runner.run([bench, *flags], limit, ISOBAR_CONV="own")
    results = parse_bench(outcome.out)
    rows = []
    for at, one in enumerate(ops):
        row = Row(one.section, one.title, one.predicted.get(gpu), None)
        if at >= len(results):
            row.note = outcome.sentence() if at == len(results) and not outcome.passed else "not reached"
        elif results[at]["op"] != one.op or not rehearsal and results[at]["shape"] != one.shape:
            row.note = f"isobar-bench timed {results[at]['op']} {results[at]['shape']} instead"
        else:
            per = 3 if rehearsal and one.per > 1 else one.per  # of the small shapes
            row.measured, row.note = results[at]["microseconds"] / per, results[at].get("warning") or ""
        rows.append(row)
    return rows


def groups_of(found):
    """Measurements by section, family and dtype: what one process times."""
    groups = collections.defaultdict(list)
    for one in found:
        groups[one.section, one.family, one.dtype].append(one)
    return groups


def measure_constants(runner, program, assumed, limit):
    """[Row] of what isobar-constants prints; of what is assumed and was not measured, too, with the reason."""
    outcome = runner.run([program], limit)
    found = {}
    for line in outcome.out.splitlines():
        try:
            constant = json.loads(line)
            found[constant["constant"]] = (float(constant["value"]), constant["unit"])
        except (ValueError, KeyError, TypeError):
            break
    reason = outcome.sentence() or "not printed"
    return [Row("constants", title, assumed.get(title), *found.get(title, (None, reason)))
            for title in dict.fromkeys([*found, *assumed])]


# ---- whole steps ----------------------------------------------------------------------------------------------------


def make_data(runner, isobar, folder, rehearsal, limit):
    """33 steps, from which two batches of 16 can be made."""
    grid, channels = ("8x16", "3") if rehearsal else ("360x720", "20")
    return runner.run([isobar, "data", "synth", "--out", folder, "--train-years", "1", "--valid-years", "1",
                       "--steps-per-year", "33", "--grid", grid, "--channels", channels], limit)


def train_command(isobar, step, data, run, rehearsal, **more):
    settings = {"global_batch_size": step["batch"], "num_iters": ITERATIONS, "log_every": EVERY,
                "amp_mode": step["amp_mode"], "limit_nsamples_val": 1, "validate_every": 1000,
                "checkpoint_every": 1000, "keep_checkpoints": 1, "num_data_workers": WORKERS}
    settings |= (OF_REHEARSAL if rehearsal else {}) | more
    return [isobar, "train", "--config", step["config"], "--data", data, "--run-dir", run, "--device", "cuda",
            *(word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}"))]


def step_microseconds(metrics, batch):
    """The median over the lines of metrics.jsonl, the first left out: it has the start in it."""
    lines = [json.loads(line) for line in metrics.splitlines()]
    rates = [line["samples_per_second"] for line in lines if line["event"] == "train"][1:]
    return batch / statistics.median(rates) * 1e6


def measure_step(runner, tree, name, graph, step, gpu, place, rehearsal, limit):
    """Samples a second as training itself counts them, loading of data included."""
    run, data = place / f"{name}{'_graph' if graph else ''}", place / "data"
    row = Row("steps", f"step of {name}, batch {step['batch']}, {step['dtype']}{', as a graph' if graph else ''}",
              step["microseconds"].get(gpu), None)
    outcome = runner.run(train_command(tree / "bin" / "isobar", step, data, run, rehearsal, cuda_graph=graph), limit)
    if outcome.passed:
        batch = OF_REHEARSAL["global_batch_size"] if rehearsal else step["batch"]
        row.measured = step_microseconds((run / "metrics.jsonl").read_text(encoding="utf-8"), batch)
    else:
        row.note = outcome.sentence()
    return row


# ---- the kernels of a step, by Nsight Compute -----------------------------------------------------------------------


def parse_ncu(text):
    """[(function, grid, threads, microseconds)] of what `ncu --csv --print-units base` prints."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    found = []
    for line in csv.DictReader(lines[begin:]) if begin is not None else ():
        if line["Metric Name"] != "gpu__time_duration.sum":
            continue
        if line["Metric Unit"] not in ("ns", "nsecond"):
            raise ValueError(f"ncu gives times in {line['Metric Unit']}, not in ns")
        grid, block = (tuple(int(size) for size in line[key].strip("()").split(",")) for key in ("Grid Size",
                                                                                                 "Block Size"))
        found.append((line["Kernel Name"], grid, block[0] * block[1] * block[2],
                      float(line["Metric Value"].replace(",", "")) * 1e-3))
    return found


def kinds_of_step(kernels, launches):
    """{kind of work: microseconds}; what is none of the project's own kernels is a product. Two kernels of one name are
    told apart by their grids, where these are those of the record."""
    by_grid = {(one["function"], tuple(one["grid"]), one["threads"]): one["kind"] for one in launches}
    by_name = collections.defaultdict(set)
    for one in launches:
        by_name[one["function"]].add(one["kind"])
    times = collections.Counter()
    for name, grid, threads, microseconds in kernels:
        kinds = {by_grid.get((name, grid, threads))} - {None} or by_name.get(name, {"products (cuBLASLt)"})
        times[" or ".join(sorted(kinds))] += microseconds
    return dict(times)


def measure_kinds(runner, tree, name, step, gpu, place, rehearsal, limit):
    """[Row]: what the kinds of work of one step take, and what is left of a step beside them."""
    ncu = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    if not ncu:
        return [Row("kinds", f"kinds of work in a step of {name}", None, None, "ncu is not installed")]
    # The profiler's window is the fourth epoch but for its last iteration: the seventh of eight.
    command = train_command(tree / "bin" / "isobar", step, place / "data", place / f"{name}_ncu", rehearsal,
                            num_iters=8)
    outcome = runner.run([ncu, "--csv", "--print-units", "base", "--metrics", "gpu__time_duration.sum",
                          "--kernel-name-base", "function", "--profile-from-start", "off", "--clock-control", "none",
                          "--cache-control", "none", *command], limit, ENABLE_PROFILING="1")
    try:
        kinds = kinds_of_step(parse_ncu(outcome.out), step["launches"])
    except (ValueError, KeyError) as error:
        return [Row("kinds", f"kinds of work in a step of {name}", None, None, f"ncu's table was not read: {error}")]
    if not kinds:
        return [Row("kinds", f"kinds of work in a step of {name}", None, None, f"ncu: {outcome.sentence()}")]
    rows = [Row("kinds", f"{kind} ({name})", step["kinds"].get(kind, {}).get(gpu), time)
            for kind, time in sorted(kinds.items(), key=lambda item: -item[1])]
    return rows + [Row("kinds", f"all kernels of a step ({name})",
                       sum(times.get(gpu, 0) for kind, times in step["kinds"].items() if kind not in BESIDE) or None,
                       sum(kinds.values()))]


BESIDE = ("gaps between launches", "waits of the host", "uploads")  # kinds of work that are no kernels
