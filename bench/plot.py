#!/usr/bin/env python3
"""A picture of a sweep of isobar-bench: time, and share of the floor, over the size that was swept; one line an op, and
one a baseline. Needs matplotlib; what it reads, JSON lines, is as easily read by anything else.

    build/bench/isobar-bench --op attention_fwd --sweep q_tokens,kv_tokens=256:8192 --baseline gemm --json >sweep.jsonl
    pip install matplotlib
    python3 bench/plot.py sweep.jsonl sweep.png
"""
import argparse
import json
import math
import pathlib
import sys


def curves(results):
    """{label: [(swept size, result)]}, and the names of these sizes, the first in which an op's shapes differ."""
    names = []
    grouped = {}
    for result in results:
        grouped.setdefault(f"{result['op']} {result['dtype']}", []).append(result)
    for label, group in grouped.items():
        shapes = [[int(size) for size in result["shape"].split("x")] for result in group]
        swept = next((i for i, sizes in enumerate(zip(*shapes)) if len(set(sizes)) > 1), 0)
        grouped[label] = [(shape[swept], result) for shape, result in zip(shapes, group)]
        dims = group[0].get("dims", "").split()
        names.append(dims[swept] if swept < len(dims) else "size")
    return grouped, ", ".join(dict.fromkeys(names))


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (times, shares) = pyplot.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
    grouped, swept = curves(results)
    for label, points in grouped.items():
        sizes = [size for size, _ in points]
        median = [result["microseconds"] for _, result in points]
        line, = times.plot(sizes, median, marker="o", label=label)
        times.fill_between(sizes, [result["microseconds_min"] for _, result in points],
                           [result["microseconds_max"] for _, result in points], color=line.get_color(), alpha=0.2)
        if points[0][1]["baseline"]:
            baseline = [m / result["ratio_to_baseline"] for m, (_, result) in zip(median, points)]
            times.plot(sizes, baseline, linestyle="--", color=line.get_color(),
                       label=f"{points[0][1]['baseline']} beside it")
        shares.plot(sizes, [result["percent_of_floor"] for _, result in points], marker="o", label=label)
    times.set(xscale="log", yscale="log", xlabel=swept, ylabel="µs: median, minimum to maximum shaded")
    shares.set(xscale="log", xlabel=swept, ylabel="% of the floor")
    shares.set_ylim(0, max(100, math.ceil(shares.get_ylim()[1])))
    times.legend()
    first = results[0]
    figure.suptitle(f"{first['device']}: {first['cpu']}, {first['instruction_set']}, {first['threads']} threads, "
                    f"commit {first['commit']}", fontsize=9)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, help="the output of isobar-bench --json")
    parser.add_argument("picture", type=pathlib.Path, help="the PNG to write")
    options = parser.parse_args()
    results = [json.loads(line) for line in options.results.read_text().splitlines() if line.strip()]
    if not results:
        sys.exit(f"{options.results} holds no results")
    try:
        draw(results, options.picture)
    except ImportError:
        sys.exit("bench/plot.py needs matplotlib: pip install matplotlib")


if __name__ == "__main__":
    main()
