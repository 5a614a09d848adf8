"""All predictions as data, for lab/on_a_gpu. Times are in microseconds, by the name of a GPU."""
import gpus
import kernels
import report
import simulator
import step
import toolkit
import work


def microseconds(of):
    return {gpu.name: of(gpu) * 1e6 for gpu in gpus.GPUS}


def kernels_of(build):
    """{name of a row of docs/kernel_report.md: times}, whichever kernel of that name a GPU chooses"""
    found = {}
    for kernel, gpu, _, predicted, _ in report.rows(build):
        found.setdefault(kernel.name.replace(" by wgmma", ""), {})[gpu.name] = predicted.seconds * 1e6
    return found


def step_of(name, build):
    """One training step: its whole, its kinds of work, and by which launches a profiler's list tells these."""
    of, works = work.STEPS[name], work.read(name, kernels.BATCH)
    code = step.compiled(build, name, {entry["function"] for entry in works if "function" in entry})
    known_code = report.compiled(build)
    shares = {gpu.name: step.shares(gpu, name, works, code, known_code) for gpu in gpus.GPUS}
    return {"config": of.config, "dtype": of.dtype, "amp_mode": of.amp_mode, "batch": kernels.BATCH,
            "microseconds": {name: sum(share.seconds for share in found.values()) * 1e6
                             for name, found in shares.items()},
            "kinds": {kind: {name: found[kind].seconds * 1e6 for name, found in shares.items()}
                      for kind in shares[gpus.GPUS[0].name]},
            "launches": launches_of(works)}


def launches_of(works):
    """What a step launches of the project's own kernels."""
    return [{"function": base_name(entry["function"]), "grid": entry["grid"], "threads": entry["threads"],
             "kind": step.kind_of(entry)} for entry in works if "function" in entry]


def base_name(function):
    """`isobar::cuda::attention::forward_kernel<isobar::bf16, 48, false, false>` is `forward_kernel`."""
    return function.split("<")[0].rsplit("::", 1)[-1]


def products_of(name):
    """The products of a step as cuBLASLt is asked for them: column-major, m features of n rows, or k rows summed."""
    return [{"step": name, "dtype": work.STEPS[name].dtype, "rows": kernels.BATCH * work.TOKENS,
             **{key: entry[key] for key in ("count", "m", "n", "k", "epilogue")},
             "microseconds": microseconds(lambda gpu, entry=entry: step.product(gpu, entry)[0])}
            for entry in work.read(name, kernels.BATCH) if entry["work"] == "product"]


def constants(gpu):
    """What the simulator assumes and bench/constants.cu measures, by the names that it prints."""
    found = {}
    for columns in (48, 64, 128):
        for a, shared in (("shared memory", True), ("registers", False)):
            operands = 2 * 16 * (columns + (64 if shared else 0)) / 128
            found[f"wgmma 64x{columns}, A in {a}"] = max(16 * columns * 16 / gpu.tensor / gpu.wgmma, operands)
            found[f"wgmma 64x{columns}, A in {a}, from the last to its registers"] = simulator.WGMMA_LATENCY
    found["products beside exponentials, of their time alone"] = 1
    found["exponentials beside products, of their time alone"] = 1
    found["an exponential of a warp"] = gpu.rates["mufu"]
    found["a block that does one product"] = 2 * gpu.latencies["memory"] / gpu.clock * 1e-3
    return found


def predictions(build):
    return {"compiler": toolkit.compiler(),
            "constants": constants(gpus.H100),
            "kernels": kernels_of(build),
            "products": [product for name in work.STEPS for product in products_of(name)],
            "steps": {name: step_of(name, build) for name in work.STEPS},
            "launch": microseconds(lambda gpu: step.GAP),
            "wait": microseconds(lambda gpu: step.WAIT),
            "upload_byte": microseconds(lambda gpu: 1e-9 / gpu.host_rate)}
